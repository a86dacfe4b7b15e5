//! The four kinds of patches. Server-side apply is simplified: an applier's former fields are remembered and removed when
//! it drops them, lists merge by their keys, but there are no managed fields and so no conflicts between appliers.

mod apply;
mod strategic;

use std::sync::PoisonError;

use serde_json::Value;

use super::{
    api::{Api, Part, Write},
    error::{ApiError, Result},
    registry::Kind,
    store::Key,
    tree,
};

/// A patch as its content type declares it.
#[derive(Clone, Debug)]
pub enum Patch {
    /// RFC 6902.
    Json(json_patch::Patch),
    /// RFC 7386.
    Merge(Value),
    /// Lists merge by keys; built-in kinds only.
    Strategic(Value),
    /// Server-side apply.
    Apply(Value),
}

impl Patch {
    /// Reads a body by its content type.
    ///
    /// # Errors
    /// 400 for a bad body, 415 for an unknown type or strategic merge on a custom resource.
    pub fn parse(kind: &Kind, content_type: &str, body: &[u8]) -> Result<Self> {
        let bad =
            |error: &dyn std::fmt::Display| ApiError::bad_request(format!("error decoding patch: {error}"));
        let document = || serde_json::from_slice(body).map_err(|error| bad(&error));
        let r#type = content_type.split(';').next().unwrap_or_default().trim();
        match r#type {
            "application/json-patch+json" => Ok(Self::Json(
                serde_json::from_slice(body).map_err(|error| bad(&error))?,
            )),
            "application/merge-patch+json" => document().map(Self::Merge),
            "application/strategic-merge-patch+json" if !kind.is_custom() => document().map(Self::Strategic),
            "application/apply-patch+yaml" => parse_document(body).map(Self::Apply),
            _ => {
                let mut accepted = vec!["application/json-patch+json", "application/merge-patch+json"];
                if !kind.is_custom() {
                    accepted.push("application/strategic-merge-patch+json");
                }
                accepted.push("application/apply-patch+yaml");
                let message = format!(
                    "the body of the request was in an unknown format - accepted media types include: {}",
                    accepted.join(", ")
                );
                Err(ApiError::new(415, "UnsupportedMediaType", message))
            }
        }
    }

    /// Applies the patch to a whole object.
    ///
    /// # Errors
    /// 422 when a JSON patch does not fit.
    pub fn apply(&self, kind: &Kind, value: &mut Value) -> Result<()> {
        match self {
            Self::Json(patch) => json_patch::patch(value, patch).map_err(|error| {
                tracing::debug!(%error, "a JSON patch does not fit");
                let why = "the server rejected our request due to an error in our request";
                ApiError::new(422, "Invalid", why)
            })?,
            Self::Merge(patch) => json_patch::merge(value, patch),
            Self::Strategic(patch) => strategic::merge(value, patch),
            Self::Apply(_) => self.apply_config(kind, value, None),
        }
        Ok(())
    }

    /// Merges an applied configuration, after taking out what the same applier had set before and now has not.
    pub fn apply_config(&self, kind: &Kind, value: &mut Value, last: Option<&Value>) {
        let Self::Apply(config) = self else { return };
        let mut path = Vec::new();
        if let Some(last) = last {
            apply::withdraw(kind, value, last, config, &mut path);
        }
        apply::merge(kind, value, config, &mut path);
    }
}

/// Reads JSON or YAML.
///
/// # Errors
/// 400.
pub(super) fn parse_document(body: &[u8]) -> Result<Value> {
    if let Ok(value) = serde_json::from_slice(body) {
        return Ok(value);
    }
    serde_saphyr::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("error decoding the body: {error}")))
}

impl Api {
    pub(super) fn check_applied(&self, kind: &Kind, key: &Key, body: &Value) -> Result<()> {
        if tree::text(body, "/apiVersion").is_empty() || tree::text(body, "/kind").is_empty() {
            return Err(ApiError::bad_request(
                "an applied configuration must have apiVersion and kind",
            ));
        }
        match tree::text(body, "/metadata/name") {
            name if name.is_empty() || name == &*key.name => Ok(()),
            name => Err(ApiError::bad_request(format!(
                "metadata.name is {name}, but the path names {} {}",
                kind.resource(),
                key.name
            ))),
        }
    }

    /// Keeps what an applier has applied; gives what it had applied before.
    pub(super) fn remember_applied(
        &self,
        kind: &Kind,
        key: &Key,
        part: Part,
        body: &Value,
        write: &Write,
    ) -> Option<Value> {
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        let object = applied.entry((kind.storage.clone(), key.clone())).or_default();
        let applier = (part, write.manager.clone());
        if write.dry_run {
            return object.get(&applier).cloned();
        }
        object.insert(applier, body.clone())
    }
}
