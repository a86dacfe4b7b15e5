//! Structural schemas of custom resources: pruning, defaulting and validation of a value, worded as the API server
//! does. Of the CEL rules only the shape that the shipped definitions use is evaluated; others are reported, not run.

use std::collections::{BTreeSet, HashMap};

use regex::Regex;
use serde_json::{Map, Value};

use super::error::Cause;

/// One `openAPIV3Schema`, ready for use.
#[derive(Debug)]
pub struct Schema {
    root: Value,
    patterns: HashMap<String, Regex>,
    /// CEL rules that are not evaluated here.
    pub unchecked: BTreeSet<String>,
}

impl Schema {
    /// Takes a schema as written in a definition.
    #[must_use]
    pub fn new(root: Value) -> Self {
        let mut schema = Self {
            patterns: HashMap::new(),
            unchecked: BTreeSet::new(),
            root: Value::Null,
        };
        schema.learn(&root);
        schema.root = root;
        schema
    }

    /// Drops what the schema does not know; gives the paths of what was dropped.
    pub fn prune(&self, value: &mut Value) -> Vec<String> {
        let mut dropped = Vec::new();
        prune(&self.root, value, "", true, &mut dropped);
        dropped
    }

    /// Fills in defaults, and drops nulls where null is no value.
    pub fn default(&self, value: &mut Value) {
        default(&self.root, value);
    }

    /// Everything that is wrong with a value.
    #[must_use]
    pub fn validate(&self, value: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        self.check(&self.root, value, "", &mut causes);
        causes
    }

    /// The keys by which the list at a path merges, when it is a map by declaration.
    #[must_use]
    pub fn list_map_keys(&self, path: &[&str]) -> Option<Vec<&str>> {
        let schema = path.iter().try_fold(&self.root, |schema, part| match *part {
            "[]" => schema.get("items"),
            name => schema["properties"]
                .get(name)
                .or_else(|| schema.get("additionalProperties")),
        })?;
        let keys = schema.get("x-kubernetes-list-map-keys")?.as_array()?;
        Some(keys.iter().filter_map(Value::as_str).collect())
    }

    fn learn(&mut self, schema: &Value) {
        let Some(map) = schema.as_object() else { return };
        if let Some(pattern) = map.get("pattern").and_then(Value::as_str)
            && let Ok(regex) = Regex::new(pattern)
        {
            self.patterns.insert(pattern.to_owned(), regex);
        }
        for rule in map
            .get("x-kubernetes-validations")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let text = rule["rule"].as_str().unwrap_or_default();
            if OneOrNone::parse(text).is_none() {
                self.unchecked.insert(text.to_owned());
            }
        }
        for child in map
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            self.learn(child.1);
        }
        for key in ["items", "additionalProperties", "not"] {
            map.get(key).into_iter().for_each(|child| self.learn(child));
        }
        for key in ["anyOf", "allOf", "oneOf"] {
            let children = map.get(key).and_then(Value::as_array).into_iter().flatten();
            children.for_each(|child| self.learn(child));
        }
    }

    fn check(&self, schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
        if value.is_null() {
            if !truth(schema, "nullable") && schema.get("type").is_some() {
                causes.push(wrong_type(schema, value, path));
            }
            return;
        }
        if !has_type(schema, value) {
            causes.push(wrong_type(schema, value, path));
            return;
        }
        let before = causes.len();
        self.check_scalar(schema, value, path, causes);
        self.check_combined(schema, value, path, causes);
        match value {
            Value::Object(map) => self.check_object(schema, map, path, causes),
            Value::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    self.check(&schema["items"], item, &format!("{path}[{i}]"), causes);
                }
                check_list_type(schema, items, path, causes);
            }
            _ => {}
        }
        if causes.len() == before {
            check_rules(schema, value, path, causes);
        }
    }

    fn check_object(&self, schema: &Value, map: &Map<String, Value>, path: &str, causes: &mut Vec<Cause>) {
        for name in schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if !map.contains_key(name) {
                causes.push(Cause::required(join(path, name), ""));
            }
        }
        for (name, child) in map {
            let known = schema["properties"].get(name);
            let known = known.or_else(|| schema.get("additionalProperties").filter(|s| s.is_object()));
            if let Some(schema) = known {
                self.check(schema, child, &join(path, name), causes);
            }
        }
    }

    fn check_scalar(&self, schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
        let mut fail =
            |why: String| causes.push(Cause::invalid(path, value, &format!("{path} in body {why}")));
        let limit = |key: &str| schema.get(key).and_then(Value::as_f64);
        if let Some(number) = value.as_f64() {
            let exclusive = |key| truth(schema, key);
            if let Some(min) = limit("minimum") {
                if exclusive("exclusiveMinimum") && number <= min {
                    fail(format!("should be greater than {min}"));
                } else if number < min {
                    fail(format!("should be greater than or equal to {min}"));
                }
            }
            if let Some(max) = limit("maximum") {
                if exclusive("exclusiveMaximum") && number >= max {
                    fail(format!("should be less than {max}"));
                } else if number > max {
                    fail(format!("should be less than or equal to {max}"));
                }
            }
            if schema["format"] == "int32" && value.as_i64().is_none_or(|n| i32::try_from(n).is_err()) {
                fail("must be of type int32".into());
            }
        }
        let mut between = |size: usize, min: &str, max: &str, verb: &str, unit: &str| {
            let bound = |key: &str| {
                schema
                    .get(key)
                    .and_then(Value::as_u64)
                    .and_then(|n| usize::try_from(n).ok())
            };
            if let Some(min) = bound(min).filter(|min| size < *min) {
                fail(format!("should {verb} at least {min} {unit}"));
            }
            if let Some(max) = bound(max).filter(|max| size > *max) {
                fail(format!("should {verb} at most {max} {unit}"));
            }
        };
        match value {
            Value::String(text) => {
                between(text.chars().count(), "minLength", "maxLength", "be", "chars long");
                let pattern = schema["pattern"].as_str().and_then(|p| self.patterns.get(p));
                if let Some(pattern) = pattern.filter(|pattern| !pattern.is_match(text)) {
                    fail(format!("should match '{}'", pattern.as_str()));
                }
                if schema["format"] == "date-time" && chrono::DateTime::parse_from_rfc3339(text).is_err() {
                    fail(format!("must be of type date-time: {value}"));
                }
            }
            Value::Array(items) => between(items.len(), "minItems", "maxItems", "have", "items"),
            Value::Object(map) => between(map.len(), "minProperties", "maxProperties", "have", "properties"),
            _ => {}
        }
        if let Some(allowed) = schema["enum"]
            .as_array()
            .filter(|allowed| !allowed.contains(value))
        {
            let allowed: Vec<_> = allowed
                .iter()
                .map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned))
                .collect();
            causes.push(Cause::unsupported(path, value, &allowed));
        }
    }

    fn check_combined(&self, schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
        let passes = |schema: &Value| {
            let mut causes = Vec::new();
            self.check(schema, value, path, &mut causes);
            causes.is_empty()
        };
        let each = |key: &str| schema[key].as_array().cloned().unwrap_or_default();
        for one in &each("allOf") {
            self.check(one, value, path, causes);
        }
        let (any, one) = (each("anyOf"), each("oneOf"));
        let mut fail = |why: &str| causes.push(Cause::invalid(path, value, &format!("{path} in body {why}")));
        if !any.is_empty() && !any.iter().any(passes) {
            fail("must validate at least one schema (anyOf)");
        }
        if !one.is_empty() && one.iter().filter(|one| passes(one)).count() != 1 {
            fail("must validate one and only one schema (oneOf)");
        }
        if schema.get("not").is_some_and(passes) {
            fail("must not validate the schema (not)");
        }
    }
}

/// The shape of the CEL rules that are shipped: `(self.A == 'text') == has(self.B)`.
struct OneOrNone<'a> {
    field: &'a str,
    text: &'a str,
    needs: &'a str,
}

impl<'a> OneOrNone<'a> {
    fn parse(rule: &'a str) -> Option<Self> {
        let (left, right) = rule.split_once(") == ")?;
        let (field, text) = left.strip_prefix("(self.")?.split_once(" == ")?;
        let text = text.strip_prefix('\'')?.strip_suffix('\'')?;
        let needs = right.strip_prefix("has(self.")?.strip_suffix(')')?;
        let simple = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric());
        (simple(field) && simple(needs)).then_some(Self { field, text, needs })
    }

    fn holds(&self, value: &Value) -> bool {
        (value[self.field] == self.text) == value.get(self.needs).is_some()
    }
}

fn check_rules(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    for rule in schema["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let text = rule["rule"].as_str().unwrap_or_default();
        if OneOrNone::parse(text).is_some_and(|parsed| !parsed.holds(value)) {
            let message = rule["message"]
                .as_str()
                .map_or(format!("failed rule: {text}"), str::to_owned);
            causes.push(Cause::invalid(path, &"object".into(), &message));
        }
    }
}

fn check_list_type(schema: &Value, items: &[Value], path: &str, causes: &mut Vec<Cause>) {
    let keys: Vec<_> = schema["x-kubernetes-list-map-keys"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    let identity = |item: &Value| -> Option<Vec<Value>> {
        match schema["x-kubernetes-list-type"].as_str()? {
            "set" => Some(vec![item.clone()]),
            "map" => Some(
                keys.iter()
                    .filter_map(|key| item.get(key.as_str()?).cloned())
                    .collect(),
            ),
            _ => None,
        }
    };
    for (i, item) in items.iter().enumerate() {
        let mine = identity(item);
        if mine.is_some() && items.iter().take(i).any(|other| identity(other) == mine) {
            let message = format!("Duplicate value: {item}");
            causes.push(Cause {
                reason: "FieldValueDuplicate",
                field: format!("{path}[{i}]"),
                message,
            });
        }
    }
}

fn has_type(schema: &Value, value: &Value) -> bool {
    if truth(schema, "x-kubernetes-int-or-string") {
        return value.is_i64() || value.is_u64() || value.is_string();
    }
    match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
        }
        Some("number") => value.is_number(),
        _ => true,
    }
}

fn wrong_type(schema: &Value, value: &Value, path: &str) -> Cause {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let wanted = if truth(schema, "x-kubernetes-int-or-string") {
        "integer,string"
    } else {
        schema["type"].as_str().unwrap_or_default()
    };
    let why = format!("{path} in body must be of type {wanted}: \"{found}\"");
    Cause {
        reason: "FieldValueTypeInvalid",
        ..Cause::invalid(path, &found.into(), &why)
    }
}

fn prune(schema: &Value, value: &mut Value, path: &str, resource: bool, dropped: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            let resource = resource || truth(schema, "x-kubernetes-embedded-resource");
            let preserve = truth(schema, "x-kubernetes-preserve-unknown-fields");
            let additional = &schema["additionalProperties"];
            map.retain(|name, child| {
                if resource && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                    return true;
                }
                let path = join(path, name);
                if let Some(schema) = schema["properties"].get(name) {
                    prune(schema, child, &path, false, dropped);
                } else if additional.is_object() {
                    prune(additional, child, &path, false, dropped);
                } else if !preserve && additional != &Value::Bool(true) {
                    dropped.push(path);
                    return false;
                }
                true
            });
        }
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                prune(&schema["items"], item, &format!("{path}[{i}]"), false, dropped);
            }
        }
        _ => {}
    }
}

fn default(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
                if map.get(name).is_some_and(Value::is_null) && !truth(schema, "nullable") {
                    map.remove(name);
                }
                if let Some(default) = schema.get("default").filter(|_| !map.contains_key(name)) {
                    map.insert(name.clone(), default.clone());
                }
                if let Some(child) = map.get_mut(name) {
                    default(schema, child);
                }
            }
            let additional = &schema["additionalProperties"];
            if additional.is_object() {
                map.values_mut().for_each(|child| default(additional, child));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| default(&schema["items"], item)),
        _ => {}
    }
}

fn truth(schema: &Value, key: &str) -> bool {
    schema[key] == true
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Schema {
        Schema::new(json!({
            "type": "object",
            "required": ["spec"],
            "properties": {
                "metadata": {"type": "object"},
                "spec": {
                    "type": "object",
                    "properties": {
                        "mode": {"type": "string", "enum": ["Off", "Auto"], "default": "Auto"},
                        "count": {"type": "integer", "format": "int32", "minimum": 1},
                        "amount": {
                            "anyOf": [{"type": "integer"}, {"type": "string"}],
                            "pattern": "^[0-9]+m?$", "x-kubernetes-int-or-string": true,
                        },
                        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        "names": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                        "boost": {
                            "type": "object",
                            "properties": {"type": {"type": "string"}, "factor": {"type": "integer"}},
                            "x-kubernetes-validations": [
                                {"message": "factor it is", "rule": "(self.type == 'Factor') == has(self.factor)"},
                                {"rule": "size(self) > 1"},
                            ],
                        },
                        "when": {"type": "string", "format": "date-time", "nullable": true},
                    },
                },
            },
        }))
    }

    #[test]
    fn unknown_fields_are_dropped_where_nothing_preserves_them() {
        let mut value = json!({
            "apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "what": 1}, "other": 1,
            "spec": {"mode": "Off", "extra": {"a": 1}, "free": {"any": {"thing": 1}}},
        });
        assert_eq!(schema().prune(&mut value), ["other", "spec.extra"]);
        assert_eq!(
            value,
            json!({
                "apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "what": 1},
                "spec": {"mode": "Off", "free": {"any": {"thing": 1}}},
            })
        );
    }

    #[test]
    fn defaults_fill_in_and_nulls_go() {
        let mut value = json!({"spec": {"mode": null, "count": null, "when": null}});
        schema().default(&mut value);
        assert_eq!(value, json!({"spec": {"mode": "Auto", "when": null}}));
    }

    #[test]
    fn validation_speaks_like_the_api_server() {
        let table = [
            (json!({"spec": {"amount": 5, "count": 1, "when": null}}), vec![]),
            (json!({"spec": {"amount": "5m"}}), vec![]),
            (json!({}), vec!["spec: Required value"]),
            (
                json!({"spec": {"count": "x"}}),
                vec![
                    r#"spec.count: Invalid value: "string": spec.count in body must be of type integer: "string""#,
                ],
            ),
            (
                json!({"spec": {"count": 0}}),
                vec!["spec.count: Invalid value: 0: spec.count in body should be greater than or equal to 1"],
            ),
            (
                json!({"spec": {"mode": "On"}}),
                vec![r#"spec.mode: Unsupported value: "On": supported values: "Off", "Auto""#],
            ),
            (
                json!({"spec": {"amount": "x"}}),
                vec![r#"spec.amount: Invalid value: "x": spec.amount in body should match '^[0-9]+m?$'"#],
            ),
            (
                json!({"spec": {"names": ["a", "b", "a"]}}),
                vec![r#"spec.names[2]: Duplicate value: "a""#],
            ),
            (
                json!({"spec": {"boost": {"type": "Factor"}}}),
                vec![r#"spec.boost: Invalid value: "object": factor it is"#],
            ),
            (
                json!({"spec": {"boost": {"type": "Factor", "factor": 2}}}),
                vec![],
            ),
            (
                json!({"spec": {"boost": {"type": "Other", "factor": 2}}}),
                vec![r#"spec.boost: Invalid value: "object": factor it is"#],
            ),
        ];
        for (value, expected) in table {
            let found: Vec<_> = schema()
                .validate(&value)
                .iter()
                .map(|c| format!("{}: {}", c.field, c.message))
                .collect();
            assert_eq!(found, expected, "{value}");
        }
        assert_eq!(schema().unchecked, ["size(self) > 1".to_owned()].into());
    }
}
