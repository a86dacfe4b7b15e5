//! One version of one object, as the store keeps it.

use std::sync::Arc;

use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::Value;

use super::tree;

/// A time as objects tell it.
pub(super) fn stamp(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Where an object is within its resource; the namespace is empty for cluster-scoped ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Empty for cluster-scoped resources.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

impl Key {
    /// A key from its parts.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// One version of one object: its JSON without `apiVersion` and `kind` (the reader adds those of the version it asked
/// for), and what selectors look at.
#[derive(Debug)]
pub struct Object {
    /// Namespace and name.
    pub key: Arc<Key>,
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// `metadata.resourceVersion`.
    pub revision: u64,
    /// `metadata.labels`.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// The values of the resource's selectable fields, in the order of its registration.
    pub fields: Box<[Box<str>]>,
    /// The uids of the owners.
    pub owners: Box<[Box<str>]>,
    /// The JSON text.
    pub bytes: Bytes,
}

impl Object {
    /// The decoded object, without `apiVersion` and `kind`.
    #[must_use]
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }

    /// One label's value.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(key, _)| (**key).cmp(name)).ok()?;
        self.labels.get(at).map(|(_, value)| &**value)
    }

    /// Indexes and serialises `value`, which becomes version `revision`.
    #[must_use]
    pub fn new(key: Arc<Key>, mut value: Value, revision: u64, fields: &[String]) -> Self {
        if let Some(map) = value.as_object_mut() {
            map.remove("apiVersion");
            map.remove("kind");
        }
        tree::object(&mut value, &["metadata"]).insert("resourceVersion".into(), revision.to_string().into());
        let metadata = &value["metadata"];
        let labels = metadata["labels"].as_object().into_iter().flatten();
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        Self {
            uid: metadata["uid"].as_str().unwrap_or_default().into(),
            labels: labels
                .map(|(k, v)| (k.as_str().into(), v.as_str().unwrap_or_default().into()))
                .collect(),
            owners: owners
                .filter_map(|owner| owner["uid"].as_str())
                .map(Into::into)
                .collect(),
            fields: fields.iter().map(|path| text_at(&value, path)).collect(),
            bytes: serde_json::to_vec(&value).unwrap_or_default().into(),
            key,
            revision,
        }
    }
}

/// The text of a field, as selectors compare it: absent is the empty text.
fn text_at(value: &Value, path: &str) -> Box<str> {
    let found = path.split('.').try_fold(value, |value, part| value.get(part));
    match found {
        Some(Value::String(text)) => text.as_str().into(),
        Some(Value::Null) | None => "".into(),
        Some(other) => other.to_string().into(),
    }
}
