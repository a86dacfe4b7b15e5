//! Label and field selectors: parsed once per request, then asked for every object.

use serde_json::Value;

use super::{
    error::{ApiError, Result},
    store::Object,
};

/// What a list, a watch or a delete-collection is restricted to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// Requirements on labels; all must hold.
    pub labels: Labels,
    fields: Vec<FieldRequirement>,
}

/// A conjunction of requirements on labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    Above(i64),
    Below(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldRequirement {
    field: Field,
    value: String,
    equal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    Indexed(usize),
}

impl Selector {
    /// Parses `labelSelector` and `fieldSelector`; `known` are the resource's selectable fields.
    ///
    /// # Errors
    /// 400 when one does not parse or names an unknown field.
    pub fn parse(labels: &str, fields: &str, known: &[String]) -> Result<Self> {
        let fields = split(fields).map(|part| field_requirement(part, known));
        Ok(Self {
            labels: Labels::parse(labels)?,
            fields: fields.collect::<Result<_>>()?,
        })
    }

    /// Whether an object is selected.
    #[must_use]
    pub fn matches(&self, object: &Object) -> bool {
        let field = |requirement: &FieldRequirement| {
            let value = match requirement.field {
                Field::Name => &*object.key.name,
                Field::Namespace => &*object.key.namespace,
                Field::Indexed(at) => object.fields.get(at).map_or("", |value| value),
            };
            (value == requirement.value) == requirement.equal
        };
        self.fields.iter().all(field) && self.labels.matches(|key| object.label(key))
    }

    /// Whether it selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.labels.0.is_empty()
    }
}

impl Labels {
    /// Parses the query form, such as `app=web,tier in (a,b),!old`.
    ///
    /// # Errors
    /// 400 when it does not parse.
    pub fn parse(text: &str) -> Result<Self> {
        split(text).map(requirement).collect::<Result<_>>().map(Self)
    }

    /// Reads the object form with `matchLabels` and `matchExpressions`; an empty one selects everything, and an
    /// operator that is not known selects nothing.
    #[must_use]
    pub fn from_object(selector: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pairs = selector["matchLabels"].as_object().into_iter().flatten();
        let pairs = pairs.map(|(key, value)| Requirement {
            key: key.clone(),
            test: Test::In(vec![text(value)]),
        });
        let expressions = selector["matchExpressions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|expression| {
                let values = expression["values"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(text)
                    .collect();
                let test = match expression["operator"].as_str() {
                    Some("In") => Test::In(values),
                    Some("NotIn") => Test::NotIn(values),
                    Some("Exists") => Test::Exists,
                    Some("DoesNotExist") => Test::DoesNotExist,
                    _ => Test::In(Vec::new()),
                };
                Requirement {
                    key: text(&expression["key"]),
                    test,
                }
            });
        Self(pairs.chain(expressions).collect())
    }

    /// Whether it has no requirement, so that it selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the labels that `get` gives are selected.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| {
            let value = get(&requirement.key);
            let number = || value.and_then(|text| text.parse::<i64>().ok());
            match &requirement.test {
                Test::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
                Test::NotIn(values) => !value.is_some_and(|value| values.iter().any(|one| one == value)),
                Test::Exists => value.is_some(),
                Test::DoesNotExist => value.is_none(),
                Test::Above(limit) => number().is_some_and(|number| number > *limit),
                Test::Below(limit) => number().is_some_and(|number| number < *limit),
            }
        })
    }

    /// Whether the labels of a decoded object are selected.
    #[must_use]
    pub fn matches_value(&self, object: &Value) -> bool {
        self.matches(|key| object["metadata"]["labels"][key].as_str())
    }
}

/// Splits at commas that are not inside parentheses.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}

fn requirement(text: &str) -> Result<Requirement> {
    let bad = || ApiError::bad_request(format!("unable to parse requirement: {text:?}"));
    let make = |key: &str, test| {
        let key = key.trim();
        let valid = !key.is_empty()
            && key
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
        valid
            .then(|| Requirement {
                key: key.to_owned(),
                test,
            })
            .ok_or_else(bad)
    };
    let one = |value: &str| vec![value.trim().to_owned()];
    if let Some((head, values)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        return match head.trim().rsplit_once(char::is_whitespace) {
            Some((key, "in")) => make(key, Test::In(values)),
            Some((key, "notin")) => make(key, Test::NotIn(values)),
            _ => Err(bad()),
        };
    }
    if let Some((key, value)) = text.split_once("!=") {
        make(key, Test::NotIn(one(value)))
    } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        make(key, Test::In(one(value)))
    } else if let Some((key, value)) = text.split_once('>') {
        make(key, Test::Above(value.trim().parse().map_err(|_| bad())?))
    } else if let Some((key, value)) = text.split_once('<') {
        make(key, Test::Below(value.trim().parse().map_err(|_| bad())?))
    } else if let Some(key) = text.strip_prefix('!') {
        make(key, Test::DoesNotExist)
    } else {
        make(text, Test::Exists)
    }
}

fn field_requirement(text: &str, known: &[String]) -> Result<FieldRequirement> {
    let (path, value, equal) = if let Some((path, value)) = text.split_once("!=") {
        (path, value, false)
    } else if let Some((path, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        (path, value, true)
    } else {
        let message = format!("invalid selector: '{text}'; can't understand '{text}'");
        return Err(ApiError::bad_request(message));
    };
    let field = match path.trim() {
        "metadata.name" => Field::Name,
        "metadata.namespace" => Field::Namespace,
        path => match known.iter().position(|one| one == path) {
            Some(at) => Field::Indexed(at),
            None => {
                return Err(ApiError::bad_request(format!(
                    "field label not supported: {path}"
                )));
            }
        },
    };
    Ok(FieldRequirement {
        field,
        value: value.to_owned(),
        equal,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn label_selectors_mean_what_they_mean_to_kubectl() {
        let labels = json!({"metadata": {"labels": {"app": "web", "tier": "front", "n": "5", "empty": ""}}});
        let table = [
            ("", true),
            ("app", true),
            ("!app", false),
            ("app=web", true),
            ("app==web", true),
            ("app!=web", false),
            ("none!=web", true),
            ("app in (web, db)", true),
            ("app notin (web,db)", false),
            ("none notin (web)", true),
            ("app=web,tier in (front,back),!none", true),
            ("app=web,tier=back", false),
            ("empty=", true),
            ("n>4", true),
            ("n<5", false),
        ];
        for (text, expected) in table {
            assert_eq!(
                Labels::parse(text).unwrap().matches_value(&labels),
                expected,
                "{text}"
            );
        }
        for bad in ["a b", "=x", "x in y", "n>x", "(a)"] {
            assert_eq!(Labels::parse(bad).unwrap_err().code, 400, "{bad}");
        }
    }

    #[test]
    fn object_selectors() {
        let labels = json!({"metadata": {"labels": {"app": "web"}}});
        let table = [
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "db"}}), false),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}),
                false,
            ),
            (
                json!({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "What"}]}),
                false,
            ),
        ];
        for (selector, expected) in table {
            assert_eq!(
                Labels::from_object(&selector).matches_value(&labels),
                expected,
                "{selector}"
            );
        }
    }

    #[test]
    fn field_selectors_know_their_fields() {
        let known = ["spec.nodeName".to_owned()];
        let key = crate::sandbox::store::Key::new("ns", "a");
        let object = Object::new(key.into(), json!({"spec": {"nodeName": "n1"}}), 1, &known);
        let table = [
            ("spec.nodeName=n1", true),
            ("spec.nodeName!=n1", false),
            ("spec.nodeName!=", true),
            ("metadata.name=a,metadata.namespace=ns", true),
            ("metadata.name=b", false),
        ];
        for (text, expected) in table {
            assert_eq!(
                Selector::parse("", text, &known).unwrap().matches(&object),
                expected,
                "{text}"
            );
        }
        let error = Selector::parse("", "spec.what=1", &known).unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            (400, "field label not supported: spec.what")
        );
    }
}
