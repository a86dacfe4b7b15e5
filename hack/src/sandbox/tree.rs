//! Small helpers on JSON values that never panic on the wrong shape.

use serde_json::{Map, Value};

/// The object at a path, made where there is none.
pub(super) fn object<'a>(value: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    let mut here = as_map(value);
    for part in path {
        here = as_map(here.entry(*part).or_insert_with(|| Value::Object(Map::new())));
    }
    here
}

/// Sets a field if it is absent or null.
pub(super) fn default(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    if map.get(key).is_none_or(Value::is_null) {
        map.insert(key.to_owned(), value.into());
    }
}

/// The text at a path; empty when there is none.
#[must_use]
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The items of a list at a path.
pub(super) fn items<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// The items of a list at a path, to change.
pub(super) fn items_mut<'a>(
    value: &'a mut Value,
    pointer: &str,
) -> impl Iterator<Item = &'a mut Value> + use<'a> {
    value
        .pointer_mut(pointer)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// Copies a field from one map to another, or removes it there when it is not in the first.
pub(super) fn carry(from: &Value, to: &mut Map<String, Value>, key: &str) {
    match from.get(key) {
        Some(value) => to.insert(key.to_owned(), value.clone()),
        None => to.remove(key),
    };
}

fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        // Made an object two lines above; this arm only keeps the function total.
        _ => unreachable!("just made an object"),
    }
}
