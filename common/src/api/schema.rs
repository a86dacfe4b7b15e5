//! The schemas that no Rust type spells out: quantities, selectors and what the API leaves unchecked.
//! `x-published-…` keys are instructions to the generator of the CRDs, which drops every `nullable` and `default` it
//! was not told to publish: those that schemars infers from Rust types are not part of the API.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// What the API server accepts as a quantity.
const QUANTITY_PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

pub(super) fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "pattern": QUANTITY_PATTERN,
        "x-kubernetes-int-or-string": true,
    })
}

pub(super) fn resource_list(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "additionalProperties": quantity(generator) })
}

pub(super) fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "x-kubernetes-int-or-string": true,
    })
}

pub(super) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

pub(super) fn nullable_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time", "x-published-nullable": true })
}

pub(super) fn integer(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer" })
}

pub(super) fn number(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "number" })
}

/// An object whose fields the server neither checks nor prunes.
pub(super) fn unchecked_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Any JSON at all.
pub(super) fn unchecked(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

pub(super) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    let strings = json!({
        "type": "array",
        "items": { "type": "string" },
        "x-kubernetes-list-type": "atomic",
    });
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": described(
                "Labels that must be there with exactly these values.",
                json!({ "type": "object", "additionalProperties": { "type": "string" } }),
            ),
            "matchExpressions": described("Further conditions; all must hold.", json!({
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": described("The label.", json!({ "type": "string" })),
                        "operator": described("In, NotIn, Exists or DoesNotExist.", json!({ "type": "string" })),
                        "values": described("The values of In and NotIn.", strings),
                    },
                },
            })),
        },
    })
}

/// The names of objects in the pod's namespace, published with the server's default for a missing name.
pub(super) fn local_object_references(_: &mut SchemaGenerator) -> Schema {
    let name = json!({ "type": "string", "x-published-default": "" });
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "properties": { "name": described("Name of the object, in the pod's namespace.", name) },
        },
    })
}

pub(super) fn object_field_selector(_: &mut SchemaGenerator) -> Schema {
    let string = json!({ "type": "string" });
    json_schema!({
        "type": "object",
        "required": ["fieldPath"],
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "apiVersion": described("The version whose field names the path uses.", string.clone()),
            "fieldPath": described("Path of the field in the pod.", string),
        },
    })
}

fn described(description: &str, mut schema: Value) -> Value {
    if let Value::Object(keys) = &mut schema {
        keys.insert("description".to_owned(), description.into());
    }
    schema
}
