//! Errors as the API server words them: a `Status` with a code, a reason, a message and machine-readable causes.

use std::borrow::Cow;

use serde_json::{Value, json};

/// A refused request; becomes the HTTP code and the `Status` body.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The HTTP code.
    pub code: u16,
    /// The machine-readable reason, such as `NotFound`.
    pub reason: Cow<'static, str>,
    /// What a person reads.
    pub message: String,
    /// `details` of the `Status`; null when there are none.
    pub details: Value,
}

/// What every verb of the sandbox answers.
pub(super) type Result<T> = std::result::Result<T, ApiError>;

/// One entry of a 422's causes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Such as `FieldValueInvalid`.
    pub reason: &'static str,
    /// The path of the field.
    pub field: String,
    /// The message without the path.
    pub message: String,
}

impl Cause {
    /// A value that is not allowed there.
    #[must_use]
    pub fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        Self::new(
            "FieldValueInvalid",
            field,
            format!("Invalid value: {value}: {why}"),
        )
    }

    /// A change or a field that is not allowed there.
    #[must_use]
    pub fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    /// A value that is missing.
    #[must_use]
    pub fn required(field: impl Into<String>, why: &str) -> Self {
        let colon = if why.is_empty() { "" } else { ": " };
        Self::new("FieldValueRequired", field, format!("Required value{colon}{why}"))
    }

    /// A value outside of an enumeration.
    #[must_use]
    pub fn unsupported(field: impl Into<String>, value: &Value, allowed: &[String]) -> Self {
        let allowed = allowed
            .iter()
            .map(|one| format!("\"{one}\""))
            .collect::<Vec<_>>()
            .join(", ");
        let message = format!("Unsupported value: {value}: supported values: {allowed}");
        Self::new("FieldValueNotSupported", field, message)
    }

    fn new(reason: &'static str, field: impl Into<String>, message: String) -> Self {
        Self {
            reason,
            field: field.into(),
            message,
        }
    }
}

impl ApiError {
    /// An error with no details.
    #[must_use]
    pub fn new(code: u16, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
            message: message.into(),
            details: Value::Null,
        }
    }

    /// 400.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 403 for one object.
    #[must_use]
    pub fn forbidden(resource: &str, name: &str, why: impl std::fmt::Display) -> Self {
        Self::new(
            403,
            "Forbidden",
            format!("{resource} \"{name}\" is forbidden: {why}"),
        )
        .about(resource, name)
    }

    /// 404 for one object. `resource` is `plural` or `plural.group`.
    #[must_use]
    pub fn not_found(resource: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} \"{name}\" not found")).about(resource, name)
    }

    /// 405.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message)
    }

    /// 409 for a name that is taken.
    #[must_use]
    pub fn already_exists(resource: &str, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{resource} \"{name}\" already exists"),
        )
        .about(resource, name)
    }

    /// 409 for a change made to an old version.
    #[must_use]
    pub fn conflict(resource: &str, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict_because(resource, name, why)
    }

    /// 409 with another reason.
    #[must_use]
    pub fn conflict_because(resource: &str, name: &str, why: impl std::fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}");
        Self::new(409, "Conflict", message).about(resource, name)
    }

    /// 410: the history asked for is gone.
    #[must_use]
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 422 with its causes; `kind` is `Kind` or `Kind.group`.
    #[must_use]
    pub fn invalid(kind: &str, name: &str, causes: &[Cause]) -> Self {
        let texts: Vec<_> = causes
            .iter()
            .map(|c| format!("{}: {}", c.field, c.message))
            .collect();
        let text = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut error =
            Self::new(422, "Invalid", format!("{kind} \"{name}\" is invalid: {text}")).about(kind, name);
        error.details["causes"] = causes
            .iter()
            .map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field}))
            .collect();
        error
    }

    /// 500.
    #[must_use]
    pub fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(
            500,
            "InternalError",
            format!("Internal error occurred: {message}"),
        )
    }

    /// Adds one cause to the details.
    #[must_use]
    pub fn because(mut self, reason: &str, message: &str) -> Self {
        let mut cause = json!({"reason": reason});
        if !message.is_empty() {
            cause["message"] = message.into();
        }
        match self.details.pointer_mut("/causes").and_then(Value::as_array_mut) {
            Some(causes) => causes.push(cause),
            None => self.details["causes"] = json!([cause]),
        }
        self
    }

    /// Asks the client to come back later.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.details["retryAfterSeconds"] = seconds.into();
        self
    }

    /// The seconds of `Retry-After`, if any.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.details.get("retryAfterSeconds").and_then(Value::as_u64)
    }

    /// The body.
    #[must_use]
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }

    fn about(mut self, resource: &str, name: &str) -> Self {
        let (kind, group) = resource.split_once('.').unwrap_or((resource, ""));
        self.details = json!({"name": name, "kind": kind});
        if !group.is_empty() {
            self.details["group"] = group.into();
        }
        self
    }
}
