//! Looking into objects that stay JSON, because a field newer than our types must come through.

use serde_json::{Map, Value};

/// The objects in a list of an object.
pub(super) fn objects<'v>(
    object: &'v Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = &'v Map<String, Value>> {
    items(object, key).iter().filter_map(Value::as_object)
}

/// A list of an object; empty where there is none.
pub(super) fn items<'v>(object: &'v Map<String, Value>, key: &str) -> &'v [Value] {
    match object.get(key) {
        Some(Value::Array(items)) => items,
        _ => &[],
    }
}

/// A text of an object; empty where there is none.
pub(super) fn text<'v>(object: &'v Map<String, Value>, key: &str) -> &'v str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// An object in an object.
pub(super) fn child<'v>(object: &'v Map<String, Value>, key: &str) -> Option<&'v Map<String, Value>> {
    object.get(key).and_then(Value::as_object)
}

/// An object in an object, made where there is none.
pub(super) fn child_mut<'v>(
    object: &'v mut Map<String, Value>,
    key: &str,
) -> Option<&'v mut Map<String, Value>> {
    let child = object.entry(key).or_insert(Value::Null);
    if child.is_null() {
        *child = Value::Object(Map::new());
    }
    child.as_object_mut()
}

/// Sets a list, and leaves an empty one out that was not there.
pub(super) fn set_items(object: &mut Map<String, Value>, key: &str, items: Vec<Value>) {
    let is_there = object.get(key).is_some_and(|value| !value.is_null());
    if is_there || !items.is_empty() {
        object.insert(key.to_owned(), Value::Array(items));
    }
}
