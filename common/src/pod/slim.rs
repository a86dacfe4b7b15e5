//! A pod as we read it: of the 7 KB that a pod is on the wire, the fields that some component looks at. serde skips
//! the rest while parsing, which is what makes a list of 150,000 pods cheap (`spec/stack.md` 3.1).

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, Utc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer};

use super::ResourceList;
use crate::quantity::Quantity;

/// A pod, slim. Works as the type of `kube::Api` and of watches.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, kube::Resource)]
#[resource(inherit = k8s_openapi::api::core::v1::Pod)]
pub struct Pod {
    /// Who it is, without `managedFields` and other fields that nothing here reads.
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// What it should be. Pods that were made alike may share it.
    #[serde(default, deserialize_with = "shared")]
    pub spec: Arc<PodSpec>,
    /// What it is.
    #[serde(default, deserialize_with = "null_is_default")]
    pub status: PodStatus,
}

/// What a pod should be.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node it is bound to.
    pub node_name: Option<String>,
    /// Resources of the pod as a whole.
    pub resources: Option<Resources>,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) containers: Vec<Container>,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) init_containers: Vec<Container>,
}

/// An entry of `containers` or `initContainers`; seen through [`super::Managed`] only.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Container {
    pub(super) name: String,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) resources: Resources,
    restart_policy: Option<String>,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) resize_policy: Vec<ResizePolicy>,
}

impl Container {
    /// Asked of init containers only: there it is what makes a native sidecar.
    pub(super) fn is_native_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

/// Requests and limits. An absent map differs from an empty one in what a patch must add first.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// What the scheduler sets aside.
    pub requests: Option<ResourceList>,
    /// What the kernel enforces.
    pub limits: Option<ResourceList>,
}

impl Resources {
    /// One request.
    #[must_use]
    pub fn request(&self, resource: &str) -> Option<&Quantity> {
        self.requests.as_ref()?.get(resource)
    }

    /// One limit.
    #[must_use]
    pub fn limit(&self, resource: &str) -> Option<&Quantity> {
        self.limits.as_ref()?.get(resource)
    }
}

/// What a change of one resource in place does to the container.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResizePolicy {
    /// Which resource.
    pub resource_name: String,
    /// What happens.
    pub restart_policy: ResizeRestart,
}

/// See [`ResizePolicy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum ResizeRestart {
    /// The container goes on running.
    NotRequired,
    /// The container is restarted.
    RestartContainer,
    /// A word that is newer than we are.
    #[serde(other)]
    Other,
}

/// Where a pod is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum Phase {
    /// Accepted, not all containers started yet.
    Pending,
    /// Bound to a node, containers started.
    Running,
    /// All containers ended well and stay so.
    Succeeded,
    /// All containers ended, at least one badly.
    Failed,
    /// Not known, or not said.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Phase {
    /// Whether the pod has ended for good.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// What a pod is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// Where it is in its life.
    #[serde(deserialize_with = "null_is_default")]
    pub phase: Phase,
    /// When the kubelet took it on.
    #[serde(deserialize_with = "time")]
    pub start_time: Option<DateTime<Utc>>,
    /// Its conditions, in the API's order.
    #[serde(deserialize_with = "null_is_default")]
    pub conditions: Vec<Condition>,
    #[serde(deserialize_with = "shared")]
    pub(super) container_statuses: Arc<Vec<ContainerStatus>>,
    #[serde(deserialize_with = "shared")]
    pub(super) init_container_statuses: Arc<Vec<ContainerStatus>>,
}

/// A condition of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word.
    #[serde(deserialize_with = "null_is_default")]
    pub reason: String,
    /// Why, for people.
    #[serde(deserialize_with = "null_is_default")]
    pub message: String,
    /// Since when.
    #[serde(deserialize_with = "time")]
    pub last_transition_time: Option<DateTime<Utc>>,
}

/// What the kubelet says of a container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Which container.
    pub name: String,
    /// The resources it really has; absent on kubelets before 1.33.
    pub resources: Option<Resources>,
    /// How often it was started again.
    #[serde(deserialize_with = "null_is_default")]
    pub restart_count: i32,
    /// What it does now.
    #[serde(deserialize_with = "null_is_default")]
    pub state: ContainerState,
    /// How it ended the last time.
    #[serde(deserialize_with = "null_is_default")]
    pub last_state: ContainerState,
}

/// What a container does; neither field is set while it waits.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// It runs.
    pub running: Option<Running>,
    /// It has ended.
    pub terminated: Option<Terminated>,
}

/// A running container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Running {
    /// Since when.
    #[serde(deserialize_with = "time")]
    pub started_at: Option<DateTime<Utc>>,
}

/// An ended container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    /// Why, in one word: `OOMKilled`, `Error`, `Completed`.
    #[serde(deserialize_with = "null_is_default")]
    pub reason: String,
    /// When it had started.
    #[serde(deserialize_with = "time")]
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    #[serde(deserialize_with = "time")]
    pub finished_at: Option<DateTime<Utc>>,
}

/// Of the metadata, what some component reads; above all not `managedFields`, a third of a pod's bytes.
pub(crate) fn slim_metadata<'de, D: Deserializer<'de>>(input: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Slim {
        name: Option<String>,
        generate_name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        labels: Option<BTreeMap<String, String>>,
        annotations: Option<BTreeMap<String, String>>,
        owner_references: Option<Vec<OwnerReference>>,
    }
    let slim = Option::<Slim>::deserialize(input)?.unwrap_or_default();
    Ok(ObjectMeta {
        name: slim.name,
        generate_name: slim.generate_name,
        namespace: slim.namespace,
        uid: slim.uid,
        resource_version: slim.resource_version,
        generation: slim.generation,
        creation_timestamp: slim.creation_timestamp,
        deletion_timestamp: slim.deletion_timestamp,
        labels: slim.labels,
        annotations: slim.annotations,
        owner_references: slim.owner_references,
        ..ObjectMeta::default()
    })
}

fn shared<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(input: D) -> Result<Arc<T>, D::Error> {
    null_is_default(input).map(Arc::new)
}

/// Go writes `null` for an empty list or struct where others leave the field out; both mean the same.
pub(crate) fn null_is_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    input: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

fn time<'de, D: Deserializer<'de>>(input: D) -> Result<Option<DateTime<Utc>>, D::Error> {
    Ok(Option::<Time>::deserialize(input)?.map(|time| crate::time::from_k8s(&time)))
}
