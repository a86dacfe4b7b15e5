//! The pod's annotations: those that a set patches (`spec/sidecarset.md` 2.8), and those that tell what was injected
//! (2.9, 2.10).

use std::{borrow::Cow, collections::BTreeSet};

use chrono::{DateTime, Utc};
use common::{
    api::sidecarset::{PatchPodMetadata, PatchPolicy, SidecarSet},
    sidecarset::{
        Annotations, Hashes, Record, Records, hot,
        record::{self, HASH, HASH_WITHOUT_IMAGE, INJECTED_LIST},
    },
    time::to_k8s,
};
use serde_json::{Map, Value};

use super::{InjectError, build::Built, json::child_mut};

/// Why an annotation cannot be merged.
#[derive(Debug, thiserror::Error)]
#[error("SidecarSet {set}: cannot merge {value:?} into annotation {key}: {error}")]
pub struct MetadataError {
    set: String,
    key: String,
    value: String,
    error: serde_json::Error,
}

/// Applies what a set wants of the pod's annotations.
pub(super) fn patch(pod: &mut Map<String, Value>, set: &SidecarSet) -> Result<(), MetadataError> {
    if set
        .spec
        .patch_pod_metadata
        .iter()
        .all(|entry| entry.annotations.is_empty())
    {
        return Ok(());
    }
    let mut annotations = read(pod);
    let name = set.metadata.name.as_deref().unwrap_or_default();
    for entry in &set.spec.patch_pod_metadata {
        apply(&mut annotations, name, entry)?;
    }
    write(pod, annotations);
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

/// Notes which sets the pod was injected by.
pub(super) fn note(
    pod: &mut Map<String, Value>,
    sets: &[Cow<'_, SidecarSet>],
    built: &Built,
    known_by: Option<(&'static str, String)>,
    now: DateTime<Utc>,
) -> Result<(), InjectError> {
    let mut annotations = read(pod);
    annotations.extend(known_by.map(|(key, value)| (key.to_owned(), value)));
    for key in [HASH, HASH_WITHOUT_IMAGE] {
        let mut records = record::records(Some(&annotations), key)?;
        for set in sets {
            let new = record(set, key);
            let entry = records.entry(new.sidecar_set_name.clone()).or_default();
            // The time of the first call stays, so that a second one changes nothing.
            let update_timestamp = entry.update_timestamp.take();
            entry.update_timestamp.clone_from(&new.update_timestamp);
            if *entry == new && update_timestamp.is_some() {
                entry.update_timestamp = update_timestamp;
            } else {
                *entry = Record {
                    update_timestamp: Some(to_k8s(now)),
                    ..new
                };
            }
        }
        annotations.insert(key.to_owned(), serde_json::to_string(&records)?);
    }

    let names: BTreeSet<String> = record::injected_sets(Some(&annotations))
        .map(str::to_owned)
        .chain(sets.iter().filter_map(|set| set.metadata.name.clone()))
        .collect();
    let names: Vec<String> = names.into_iter().collect();
    annotations.insert(INJECTED_LIST.to_owned(), names.join(","));

    if !built.hot.is_empty() {
        let mut working = hot::working(Some(&annotations));
        for name in &built.hot {
            let [first, second] = hot::pair(name);
            if working.contains_key(name) {
                continue;
            }
            for (container, version, alternate) in [(&first, "1", "0"), (&second, "0", "1")] {
                annotations.insert(hot::version_key(container), version.to_owned());
                annotations.insert(hot::alternate_version_key(container), alternate.to_owned());
            }
            working.insert(name.clone(), first);
        }
        annotations.insert(
            hot::WORKING_CONTAINER.to_owned(),
            serde_json::to_string(&working)?,
        );
    }
    write(pod, annotations);
    Ok(())
}

/// Whether a pod was injected by a set, as it is now, before.
pub(super) fn is_noted(known: &Records, set: &SidecarSet) -> bool {
    let new = record(set, HASH);
    known.get(&new.sidecar_set_name).is_some_and(|known| {
        (&known.hash, &known.controller_revision) == (&new.hash, &new.controller_revision)
    })
}

/// What is noted of a set, all but the time.
fn record(set: &SidecarSet, key: &str) -> Record {
    let of_set = set.metadata.annotations.as_ref().and_then(|found| found.get(key));
    let hash = of_set.cloned().unwrap_or_else(|| {
        let Hashes { hash, without_image } = Hashes::of(&set.spec);
        if key == HASH { hash } else { without_image }
    });
    let native = set.spec.init_containers.iter();
    let native = native.filter(|sidecar| sidecar.restarts_always());
    let mut sidecar_list: Vec<String> = native
        .chain(&set.spec.containers)
        .map(|sidecar| sidecar.name().to_owned())
        .collect();
    sidecar_list.sort();
    sidecar_list.dedup();
    let status = set.status.as_ref().filter(|_| key == HASH);
    Record {
        update_timestamp: None,
        hash,
        sidecar_set_name: set.metadata.name.clone().unwrap_or_default(),
        sidecar_list,
        controller_revision: status
            .map(|status| status.latest_revision.clone())
            .unwrap_or_default(),
    }
}

fn read(pod: &mut Map<String, Value>) -> Annotations {
    let annotations = child_mut(pod, "metadata").and_then(|metadata| metadata.get("annotations"));
    let annotations = annotations.and_then(Value::as_object).into_iter().flatten();
    annotations
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

fn write(pod: &mut Map<String, Value>, annotations: Annotations) {
    let annotations: Map<_, _> = annotations
        .into_iter()
        .map(|(key, value)| (key, Value::String(value)))
        .collect();
    if let Some(metadata) = child_mut(pod, "metadata") {
        metadata.insert("annotations".to_owned(), Value::Object(annotations));
    }
}
