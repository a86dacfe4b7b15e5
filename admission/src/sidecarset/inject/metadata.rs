//! The pod's annotations: those that a set patches (`spec/sidecarset.md` 2.8), and those that tell what was injected
//! (2.9, 2.10).

use std::{borrow::Cow, collections::BTreeSet};

use chrono::{DateTime, Utc};
use common::{
    api::sidecarset::SidecarSet,
    sidecarset::{
        Annotations, MetadataError, Record, Records, hot, patch_annotations,
        record::{self, HASH, HASH_WITHOUT_IMAGE, INJECTED_LIST},
    },
    time::to_k8s,
};
use serde_json::{Map, Value};

use super::{InjectError, build::Built, json::child_mut};

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
    patch_annotations(&mut annotations, set)?;
    write(pod, annotations);
    Ok(())
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
            let new = Record::of(set, key);
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
    let new = Record::of(set, HASH);
    known.get(&new.sidecar_set_name).is_some_and(|known| {
        (&known.hash, &known.controller_revision) == (&new.hash, &new.controller_revision)
    })
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
