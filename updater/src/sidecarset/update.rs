//! What an update does to a pod (`spec/sidecarset.md` 5, step 6): new images, what is noted of the set, and what has to be
//! known to see the update through. Nothing else of a running pod's sidecars is changed.

use chrono::{DateTime, Utc};
use common::{
    api::sidecarset::SidecarSet,
    sidecarset::{
        MetadataError, Record, hot, patch_annotations,
        record::{self, HASH, RecordError},
    },
    time::to_k8s,
};
use serde_json::{Value, json};

use super::{
    pod::SidecarPod,
    standing::{LastStatus, UPDATE_STATE, UpdateState, update_states},
};

/// The condition by which a pod tells that its sidecars can be updated without a new pod.
pub const UPGRADABLE: &str = "SidecarSetUpgradable";

/// Why a pod cannot be updated.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// What it tells of earlier injections cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// What the set adds to its annotations does not go together with what is there.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// Something cannot be written.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// The strategic merge patch that gives a pod the images of a set, of which the pod has another revision. It fails if the
/// pod has changed meanwhile.
///
/// # Errors
/// If what the pod has cannot be read.
pub fn patch(
    set: &SidecarSet,
    pod: &SidecarPod,
    revision: &str,
    now: DateTime<Utc>,
) -> Result<Value, UpdateError> {
    let set_name = set.metadata.name.as_deref().unwrap_or_default();
    let before = pod.annotations().cloned().unwrap_or_default();
    let mut after = before.clone();
    patch_annotations(&mut after, set)?;
    let mut records = record::records(Some(&after), HASH)?;
    let new = Record {
        update_timestamp: Some(to_k8s(now)),
        controller_revision: revision.to_owned(),
        ..Record::of(set, HASH)
    };
    records.insert(set_name.to_owned(), new);
    after.insert(HASH.to_owned(), serde_json::to_string(&records)?);

    let mut state = UpdateState {
        revision: revision.to_owned(),
        update_timestamp: Some(to_k8s(now)),
        ..UpdateState::default()
    };
    let mut containers = Vec::new();
    // A pair that is upgraded hot takes more than a new image, and stays as it is.
    for sidecar in set.spec.containers.iter().filter(|sidecar| !hot::is_hot(sidecar)) {
        let name = sidecar.name();
        let image = sidecar
            .core
            .get("image")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let present = pod
            .spec
            .containers
            .iter()
            .find(|container| container.name == name);
        if present.is_none_or(|present| present.image == image) {
            continue;
        }
        containers.push(json!({"name": name, "image": image}));
        let image_id = pod.container_status(name).map(|status| status.image_id.clone());
        let last = LastStatus {
            image_id: image_id.unwrap_or_default(),
        };
        state.last_container_statuses.insert(name.to_owned(), last);
    }
    let mut states = update_states(pod);
    states.insert(set_name.to_owned(), state);
    after.insert(UPDATE_STATE.to_owned(), serde_json::to_string(&states)?);

    let changed: serde_json::Map<String, Value> = after
        .into_iter()
        .filter(|(key, value)| before.get(key) != Some(value))
        .map(|(key, value)| (key, Value::String(value)))
        .collect();
    let mut patch = json!({"metadata": {
        "uid": pod.uid(),
        "resourceVersion": pod.metadata.resource_version,
        "annotations": changed,
    }});
    if !containers.is_empty() {
        patch["spec"] = json!({"containers": containers});
    }
    Ok(patch)
}

/// The condition that a pod should have, if it has another: whether each of its sets can update it. A pod that no set ever
/// had trouble with needs none.
#[must_use]
pub fn condition(set: &str, is_upgradable: bool, pod: &SidecarPod, now: DateTime<Utc>) -> Option<Value> {
    let present = pod.condition(UPGRADABLE);
    let mut sets: std::collections::BTreeMap<String, bool> = present
        .and_then(|condition| condition.message.as_deref())
        .and_then(|message| serde_json::from_str(message).ok())
        .unwrap_or_default();
    if present.is_none() && is_upgradable {
        return None;
    }
    if sets.insert(set.to_owned(), is_upgradable) == Some(is_upgradable) {
        return None;
    }
    let (status, reason) = if sets.values().all(|upgradable| *upgradable) {
        ("True", "AllSidecarsetUpgradable")
    } else {
        ("False", "UpdateImmutableField")
    };
    let changed = present.is_none_or(|present| present.status != status);
    let since = present.and_then(|present| present.last_transition_time.clone());
    let since = since.filter(|_| !changed).unwrap_or_else(|| to_k8s(now));
    Some(json!({"status": {"conditions": [{
        "type": UPGRADABLE,
        "status": status,
        "reason": reason,
        "message": serde_json::to_string(&sets).unwrap_or_default(),
        "lastTransitionTime": since,
    }]}}))
}
