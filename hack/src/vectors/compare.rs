//! Comparing an answer with an expectation, as JSON and by path. Absent, `null`, `{}` and `[]` mean the same, and where
//! the original panicked everything is right.

use std::{collections::BTreeSet, fmt};

use serde_json::{Number, Value};

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Where the answer is wrong. None: the case passes.
    pub differences: Vec<Difference>,
    /// What was deliberately held to another standard than the expectation; counted in the summary.
    pub notes: Vec<&'static str>,
    /// Why we refuse what the original computes, if we do; told for each case.
    pub stricter: Option<String>,
}

/// One place where an answer is not what was expected.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Where: `a.string`, `results[3].v`.
    pub path: String,
    /// What the original answered.
    pub expected: Value,
    /// What we answered.
    pub got: Value,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() {
            "the whole"
        } else {
            &self.path
        };
        write!(f, "{path}: expected {}, got {}", self.expected, self.got)
    }
}

/// The comparison of a family that needs no rules of its own.
#[must_use]
pub fn as_json(_input: &Value, expected: &Value, got: &Value) -> Comparison {
    Comparison {
        differences: differences(expected, got),
        ..Comparison::default()
    }
}

/// Where two JSON values differ.
#[must_use]
pub fn differences(expected: &Value, got: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    walk("", expected, got, &mut found);
    found
}

fn walk(path: &str, expected: &Value, got: &Value, found: &mut Vec<Difference>) {
    match (expected, got) {
        (Value::Object(expected), _) if expected.contains_key("panic") => {}
        (Value::Object(left), Value::Object(right)) => {
            let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for key in keys {
                let inner = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                let value =
                    |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or(Value::Null);
                walk(&inner, &value(left), &value(right), found);
            }
        }
        (Value::Array(left), Value::Array(right)) => {
            for index in 0..left.len().max(right.len()) {
                let value = |list: &[Value]| list.get(index).cloned().unwrap_or(Value::Null);
                let inner = format!("{path}[{index}]");
                if index < left.len().min(right.len()) {
                    walk(&inner, &value(left), &value(right), found);
                } else {
                    // An element too many is a difference even if it is empty.
                    found.push(Difference {
                        path: inner,
                        expected: value(left),
                        got: value(right),
                    });
                }
            }
        }
        (Value::Number(left), Value::Number(right)) if same_number(left, right) => {}
        _ if is_empty(expected) && is_empty(got) => {}
        _ if expected == got => {}
        _ => found.push(Difference {
            path: path.to_owned(),
            expected: expected.clone(),
            got: got.clone(),
        }),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// `1` and `1.0` are one number; two integers are compared as integers.
fn same_number(left: &Number, right: &Number) -> bool {
    left == right || ((left.is_f64() || right.is_f64()) && left.as_f64() == right.as_f64())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(expected: &Value, got: &Value) -> Vec<String> {
        differences(expected, got)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn absent_null_and_empty_mean_the_same() {
        let nothing = [json!({}), json!({"a": null}), json!({"a": {}}), json!({"a": []})];
        for expected in &nothing {
            for got in &nothing {
                assert_eq!(found(expected, got), [""; 0], "{expected} {got}");
            }
        }
        for something in [json!(""), json!(0), json!(false), json!([null]), json!({"b": 0})] {
            assert_eq!(
                differences(&json!({}), &json!({ "a": something })).len(),
                1,
                "{something}"
            );
            assert_eq!(
                differences(&json!({ "a": something }), &json!({})).len(),
                1,
                "{something}"
            );
        }
    }

    #[test]
    fn differences_have_paths() {
        let expected = json!({"a": {"string": "1", "f": 1}, "list": [1, {"v": 2}], "same": true});
        let got =
            json!({"a": {"string": "2", "f": 1.0}, "list": [1, {"v": 3}, null], "same": true, "more": 5});
        assert_eq!(
            found(&expected, &got),
            [
                r#"a.string: expected "1", got "2""#,
                "list[1].v: expected 2, got 3",
                "list[2]: expected null, got null",
                "more: expected null, got 5",
            ]
        );
        assert_eq!(
            found(&json!(1), &json!("1")),
            [r#"the whole: expected 1, got "1""#]
        );
        assert_eq!(
            found(
                &json!(9_007_199_254_740_993_u64),
                &json!(9_007_199_254_740_992_u64)
            )
            .len(),
            1
        );
    }

    #[test]
    fn where_the_original_panicked_everything_is_right() {
        let expected = json!({"results": [{"panic": "nil map"}, {"result": true}]});
        assert_eq!(
            found(
                &expected,
                &json!({"results": [{"result": false}, {"result": true}]})
            ),
            [""; 0]
        );
        assert_eq!(
            found(&expected, &json!({"results": [{}, {"result": false}]})).len(),
            1
        );
    }
}
