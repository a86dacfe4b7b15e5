//! One request taken apart, and answers put together.

use std::{collections::HashMap, sync::Arc};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header};
use serde_json::{Value, json};

use super::{
    api::{FieldValidation, Write},
    delete::DeleteOptions,
    error::{ApiError, Result},
    patch::parse_document,
    registry::Kind,
    selector::Selector,
    store::Key,
};

/// One request, taken apart.
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) query: HashMap<String, String>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Where a request goes.
pub(super) struct Location {
    pub(super) kind: Arc<Kind>,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
}

impl Location {
    pub(super) fn key(&self) -> Key {
        Key::new(
            self.namespace.as_deref().unwrap_or_default(),
            self.name.as_deref().unwrap_or_default(),
        )
    }
}

impl Call {
    pub(super) fn header(&self, name: header::HeaderName) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    pub(super) fn document(&self) -> Result<Value> {
        if self.header(header::CONTENT_TYPE).contains("protobuf") {
            let why = "the sandbox reads JSON and YAML, no protobuf; with kubectl, apply a manifest";
            return Err(ApiError::new(415, "UnsupportedMediaType", why));
        }
        parse_document(&self.body)
    }

    pub(super) fn selector(&self, kind: &Kind) -> Result<Selector> {
        let of = |name: &str| self.query.get(name).map_or("", String::as_str);
        Selector::parse(of("labelSelector"), of("fieldSelector"), &kind.fields)
    }

    pub(super) fn revision(&self, name: &str) -> Result<Option<u64>> {
        match self.query.get(name).filter(|text| !text.is_empty()) {
            None => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                ApiError::bad_request(format!(
                    "Invalid value: {text:?}: {name} must be a revision of this server"
                ))
            }),
        }
    }

    pub(super) fn write(&self) -> Write {
        let of = |name: &str| self.query.get(name).map_or("", String::as_str);
        let mut write = Write {
            dry_run: of("dryRun") == "All",
            ..Write::default()
        };
        write.fields = match of("fieldValidation") {
            "Strict" => FieldValidation::Strict,
            "Ignore" => FieldValidation::Ignore,
            _ => FieldValidation::Warn,
        };
        write.manager = of("fieldManager").to_owned();
        write
    }

    pub(super) fn delete_options(&self) -> Result<DeleteOptions> {
        let mut options = if self.body.is_empty() {
            DeleteOptions::default()
        } else {
            serde_json::from_value(self.document()?)
                .map_err(|error| ApiError::bad_request(format!("bad DeleteOptions: {error}")))?
        };
        if let Some(seconds) = self
            .query
            .get("gracePeriodSeconds")
            .and_then(|text| text.parse().ok())
        {
            options.grace_period_seconds = Some(seconds);
        }
        if let Some(policy) = self.query.get("propagationPolicy") {
            options.propagation_policy = serde_json::from_value(policy.as_str().into()).ok();
        }
        Ok(options)
    }
}

pub(super) fn token(revision: u64, key: &Key) -> String {
    format!("{revision}/{}/{}", key.namespace, key.name)
}

pub(super) fn parse_token(token: &str) -> Result<(u64, Key)> {
    let parsed = || {
        let (revision, rest) = token.split_once('/')?;
        let (namespace, name) = rest.split_once('/')?;
        Some((revision.parse().ok()?, Key::new(namespace, name)))
    };
    parsed().ok_or_else(|| ApiError::bad_request("continue key is not valid"))
}

pub(super) fn respond(code: StatusCode, media: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static(media));
    response
}

pub(super) fn ok(value: &Value) -> Response {
    respond(StatusCode::OK, "application/json", value.to_string())
}

pub(super) fn created() -> Response {
    respond(
        StatusCode::CREATED,
        "application/json",
        success(StatusCode::CREATED, None).to_string(),
    )
}

pub(super) fn success(code: StatusCode, details: Option<Value>) -> Value {
    let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
    if code != StatusCode::OK {
        status["code"] = code.as_u16().into();
    }
    if let Some(details) = details {
        status["details"] = details;
    }
    status
}

/// The real server answers an unknown path with a plain text.
pub(super) fn found(value: Option<Value>) -> Result<Response> {
    Ok(match value {
        Some(value) => ok(&value),
        None => respond(
            StatusCode::NOT_FOUND,
            "text/plain; charset=utf-8",
            "404 page not found\n",
        ),
    })
}

pub(super) fn failure(error: &ApiError) -> Response {
    let code = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = respond(code, "application/json", error.status().to_string());
    if let Some(seconds) = error.retry_after_seconds() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// An answer that breaks off: the connection is closed in the middle of its body.
pub(super) fn broken() -> Response {
    let cut = futures::stream::iter([Err::<Bytes, _>(std::io::Error::other("a fault was asked for"))]);
    respond(StatusCode::OK, "application/json", Body::from_stream(cut))
}

pub(super) fn warned(mut response: Response, write: &Write) -> Response {
    for warning in write.warnings() {
        let text = warning
            .replace('\\', r"\\")
            .replace('"', "\\\"")
            .replace(['\r', '\n'], " ");
        if let Ok(value) = header::HeaderValue::from_str(&format!("299 - \"{text}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}
