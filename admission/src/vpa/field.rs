//! Errors in fields, worded as the API server words its own, and the Status that carries them.

use std::{collections::BTreeSet, fmt};

use common::{
    api::k8s::{StatusCause, StatusDetails},
    quantity::Quantity,
};

use crate::review::{NoMetadata, Request, Status};

const GROUP: &str = "autoscaling.k8s.io";

/// A field of an object: `spec.resourcePolicy.containerPolicies[0].minAllowed[cpu]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path(String);

impl Path {
    /// The object itself.
    pub(super) fn root() -> Self {
        Self(".".to_owned())
    }

    /// A field of the spec.
    pub(super) fn spec(field: &str) -> Self {
        Self(format!("spec.{field}"))
    }

    /// A field of this one.
    pub(super) fn child(&self, field: &str) -> Self {
        Self(format!("{}.{field}", self.0))
    }

    /// An element of this list, or of this map.
    pub(super) fn at(&self, key: impl fmt::Display) -> Self {
        Self(format!("{}[{key}]", self.0))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldError {
    field: String,
    reason: &'static str,
    message: String,
}

impl FieldError {
    pub(super) fn internal(path: &Path, error: &str) -> Self {
        Self::new(path, "InternalError", format!("Internal error: {error}"))
    }

    pub(super) fn required(path: &Path, detail: &str) -> Self {
        let message = if detail.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {detail}")
        };
        Self::new(path, "FieldValueRequired", message)
    }

    pub(super) fn forbidden(path: &Path, detail: &str) -> Self {
        Self::new(path, "FieldValueForbidden", format!("Forbidden: {detail}"))
    }

    /// The value is a number, printed as it is.
    pub(super) fn invalid_number(path: &Path, value: impl fmt::Display, detail: &str) -> Self {
        Self::new(
            path,
            "FieldValueInvalid",
            format!("Invalid value: {value}: {detail}"),
        )
    }

    pub(super) fn invalid_quantity(path: &Path, value: &Quantity, detail: &str) -> Self {
        Self::invalid_number(path, json_text(&value.to_string()), detail)
    }

    pub(super) fn not_supported(path: &Path, value: &str, supported: &[&str]) -> Self {
        let value = json_text(value);
        let supported = supported.iter().map(|value| quoted(value)).collect::<Vec<_>>();
        Self::new(
            path,
            "FieldValueNotSupported",
            format!(
                "Unsupported value: {value}: supported values: {}",
                supported.join(", ")
            ),
        )
    }

    pub(super) fn too_many(path: &Path, count: usize, max: usize) -> Self {
        let items = if max == 1 { "item" } else { "items" };
        Self::new(
            path,
            "FieldValueTooMany",
            format!("Too many: {count}: must have at most {max} {items}"),
        )
    }

    fn new(path: &Path, reason: &'static str, message: String) -> Self {
        Self {
            field: path.0.clone(),
            reason,
            message,
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// The refusal of an object for what is wrong with its fields.
pub(super) fn invalid_status(request: &Request<'_>, errors: &[FieldError]) -> Status {
    let kind = &request.request_kind.as_ref().unwrap_or(&request.kind).kind;
    let message = format!(
        "{kind}.{GROUP} {} is invalid: {}",
        quoted(&request.name),
        aggregate(errors)
    );
    let causes = errors.iter().map(|error| StatusCause {
        field: Some(error.field.clone()),
        message: Some(error.message.clone()),
        reason: Some(error.reason.to_owned()),
    });
    Status {
        metadata: NoMetadata {},
        status: "Failure",
        message,
        reason: "Invalid",
        details: StatusDetails {
            name: Some(request.name.clone()).filter(|name| !name.is_empty()),
            group: Some(GROUP.to_owned()),
            kind: Some(kind.clone()),
            causes: Some(causes.collect()),
            ..StatusDetails::default()
        },
        code: 422,
    }
}

/// One error as it is, several in brackets, none twice.
fn aggregate(errors: &[FieldError]) -> String {
    let mut seen = BTreeSet::new();
    let texts: Vec<String> = errors
        .iter()
        .map(ToString::to_string)
        .filter(|text| seen.insert(text.clone()))
        .collect();
    match texts.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// A text in quotes as Go's `%q` writes it.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            c if c.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if c.is_control() || (c.is_whitespace() && c != ' ') => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A text in quotes as Go writes it in JSON, which keeps HTML out.
fn json_text(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}
