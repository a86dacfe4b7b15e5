//! How the pods of a set stand, and what the set's status says of them (`spec/sidecarset.md` 5, steps 1 and 2).

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use common::{
    api::{
        k8s::Time,
        sidecarset::{SidecarSet, SidecarSetStatus},
    },
    sidecarset::{
        Labels, Record, Set, hot,
        record::{self, HASH, HASH_WITHOUT_IMAGE, injected_sets},
    },
    time::from_k8s,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::pod::SidecarPod;

/// The annotation with what a pod was before the update that is under way, by set.
pub const UPDATE_STATE: &str = "kruise.io/sidecarset-inplace-update-state";

/// What a pod was before an update.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UpdateState {
    /// The revision it is updated to.
    pub revision: String,
    /// When.
    pub update_timestamp: Option<Time>,
    /// The images its containers ran.
    pub last_container_statuses: BTreeMap<String, LastStatus>,
}

/// The image a container ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct LastStatus {
    /// The image.
    #[serde(rename = "imageID")]
    pub image_id: String,
}

/// How a pod stands to its set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing<'p> {
    /// The pod.
    pub pod: &'p SidecarPod,
    /// Whether it has the set's newest sidecars.
    pub is_updated: bool,
    /// Whether it serves, with what it should have.
    pub is_ready: bool,
    /// Whether nothing but images is between it and the newest sidecars.
    pub is_upgradable: bool,
}

impl<'p> Standing<'p> {
    /// Of a pod of a set. `in_flight` is a pod that was just updated, of which nothing has been heard since.
    #[must_use]
    pub fn of(set: &SidecarSet, pod: &'p SidecarPod, in_flight: bool) -> Self {
        let name = set.metadata.name.as_deref().unwrap_or_default();
        let recorded = |key| {
            let records = record::records(pod.annotations(), key).unwrap_or_default();
            records.get(name).map(|record| record.hash.clone())
        };
        let is = |key| recorded(key).is_some_and(|hash| hash == Record::of(set, key).hash);
        Self {
            pod,
            is_updated: in_flight || is(HASH),
            is_ready: !in_flight && pod.is_ready() && is_consistent(name, pod),
            is_upgradable: is(HASH_WITHOUT_IMAGE),
        }
    }
}

/// Whether a pod is one of a set: selected, injected, and with all of its containers.
#[must_use]
pub fn is_of(set: &Set, pod: &SidecarPod, namespace: &Labels) -> bool {
    let none = Labels::new();
    let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
    pod.is_active()
        && set.is_for_namespace(namespace)
        && set.selects(labels).unwrap_or(false)
        && injected_sets(pod.annotations()).any(|name| name == set.name())
        && set.object.spec.containers.iter().all(|sidecar| {
            let names = if hot::is_hot(sidecar) {
                hot::pair(sidecar.name()).to_vec()
            } else {
                vec![sidecar.name().to_owned()]
            };
            let has = |name: &String| {
                pod.spec
                    .containers
                    .iter()
                    .any(|container| container.name == *name)
            };
            names.iter().all(has)
        })
}

/// Whether the kubelet has done what the last update asked for: a container that was updated runs another image, or was
/// started again since (a new name can be the same image).
fn is_consistent(set: &str, pod: &SidecarPod) -> bool {
    let Some(state) = update_states(pod).remove(set) else {
        return true;
    };
    let since: Option<DateTime<Utc>> = state.update_timestamp.as_ref().map(from_k8s);
    state.last_container_statuses.iter().all(|(name, last)| {
        let Some(status) = pod.container_status(name) else {
            return false;
        };
        let running = status.state.running.as_ref();
        let started = running
            .and_then(|running| running.started_at.as_ref())
            .map(from_k8s);
        status.image_id != last.image_id || (started.is_some() && started > since)
    })
}

/// What a pod was before the updates under way. What cannot be read is nothing.
#[must_use]
pub fn update_states(pod: &SidecarPod) -> BTreeMap<String, UpdateState> {
    let text = pod
        .annotations()
        .and_then(|annotations| annotations.get(UPDATE_STATE));
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

/// The merge patch that makes a status what it should be. What is left out where it is 0 has to be taken away, or it stays.
#[must_use]
pub fn patch(status: &SidecarSetStatus) -> Value {
    let mut fields = json!({"updatedReadyPods": null, "latestRevision": null, "collisionCount": null});
    if let (Some(fields), Ok(Value::Object(status))) = (fields.as_object_mut(), serde_json::to_value(status))
    {
        fields.extend(status);
    }
    json!({"status": fields})
}

/// What the status of a set should be.
#[must_use]
pub fn status(
    set: &SidecarSet,
    standings: &[Standing<'_>],
    latest_revision: &str,
    collisions: Option<i32>,
) -> SidecarSetStatus {
    let count = |is: fn(&Standing<'_>) -> bool| {
        let count = standings.iter().filter(|standing| is(standing)).count();
        i32::try_from(count).unwrap_or(i32::MAX)
    };
    SidecarSetStatus {
        observed_generation: set.metadata.generation.unwrap_or_default(),
        matched_pods: count(|_| true),
        updated_pods: count(|pod| pod.is_updated),
        ready_pods: count(|pod| pod.is_ready),
        updated_ready_pods: count(|pod| pod.is_updated && pod.is_ready),
        latest_revision: latest_revision.to_owned(),
        collision_count: collisions,
    }
}
