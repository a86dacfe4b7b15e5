//! Quantities inside JSON values.

use common::quantity::Quantity;
use serde_json::Value;

use super::tree;

/// The quantity at a place; none for what is none.
#[must_use]
pub(super) fn at(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// Respells every quantity of a resource list as the API server prints it: `0.5` becomes `500m`.
pub(super) fn canonicalize(list: &mut Value) {
    for amount in list
        .as_object_mut()
        .into_iter()
        .flat_map(serde_json::Map::values_mut)
    {
        if let Some(quantity) = at(amount) {
            *amount = quantity.canonical().to_string().into();
        }
    }
}

/// The same for the requests and limits of containers.
pub(super) fn canonicalize_containers(spec: &mut Value) {
    for list in ["/initContainers", "/containers"] {
        for container in tree::items_mut(spec, list) {
            for field in ["/resources/requests", "/resources/limits"] {
                container.pointer_mut(field).into_iter().for_each(canonicalize);
            }
        }
    }
}
