//! What sets write into the annotations of pods (`spec/sidecarset.md` 2.8), at injection and when a pod is updated.

use serde_json::{Map, Value};

use super::record::Annotations;
use crate::api::sidecarset::{PatchPodMetadata, PatchPolicy, SidecarSet};

/// Why an annotation cannot be merged.
#[derive(Debug, thiserror::Error)]
#[error("SidecarSet {set}: cannot merge {value:?} into annotation {key}: {error}")]
pub struct MetadataError {
    set: String,
    key: String,
    value: String,
    error: serde_json::Error,
}

/// Does to a pod's annotations what a set wants done.
///
/// # Errors
/// If something is to be merged that is no JSON.
pub fn patch_annotations(annotations: &mut Annotations, set: &SidecarSet) -> Result<(), MetadataError> {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    for entry in &set.spec.patch_pod_metadata {
        apply(annotations, name, entry)?;
    }
    Ok(())
}

fn apply(annotations: &mut Annotations, set: &str, entry: &PatchPodMetadata) -> Result<(), MetadataError> {
    for (key, value) in &entry.annotations {
        let present = annotations.get(key);
        let new = match entry.patch_policy.as_ref().unwrap_or(&PatchPolicy::Retain) {
            PatchPolicy::Retain if present.is_some() => continue,
            PatchPolicy::Retain | PatchPolicy::Overwrite => value.clone(),
            PatchPolicy::MergePatchJson => match present.filter(|present| !present.is_empty()) {
                None => value.clone(),
                Some(present) => merged(present, value).map_err(|error| MetadataError {
                    set: set.to_owned(),
                    key: key.clone(),
                    value: value.clone(),
                    error,
                })?,
            },
            PatchPolicy::Other(_) => continue,
        };
        annotations.insert(key.clone(), new);
    }
    Ok(())
}

/// RFC 7396.
fn merged(present: &str, patch: &str) -> serde_json::Result<String> {
    fn merge(target: &mut Value, patch: Value) {
        let Value::Object(patch) = patch else {
            *target = patch;
            return;
        };
        if !target.is_object() {
            *target = Value::Object(Map::new());
        }
        let Value::Object(target) = target else {
            return;
        };
        for (key, value) in patch {
            if value.is_null() {
                target.remove(&key);
            } else {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
    }
    let mut target = serde_json::from_str(present)?;
    merge(&mut target, serde_json::from_str(patch)?);
    Ok(target.to_string())
}
