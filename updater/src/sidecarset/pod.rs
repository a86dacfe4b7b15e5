//! A pod as the rollout of sidecars reads it: its containers' images and what became of them.

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use common::{
    api::k8s::{ObjectMeta, Pod, PodCondition, Time},
    sidecarset::{Annotations, Labels},
    time::from_k8s,
};
use kube::core::NamespaceResourceScope;
use serde::{Deserialize, Deserializer};

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SidecarPod {
    /// Who it is.
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    /// What it should be.
    #[serde(deserialize_with = "nullable")]
    pub spec: Spec,
    /// What it is.
    #[serde(deserialize_with = "nullable")]
    pub status: Status,
}

/// What a pod should be.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// Its node.
    pub node_name: Option<String>,
    /// Its containers.
    #[serde(deserialize_with = "nullable")]
    pub containers: Vec<Container>,
    /// Its init containers.
    #[serde(deserialize_with = "nullable")]
    pub init_containers: Vec<Container>,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Container {
    /// Its name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Its image.
    #[serde(deserialize_with = "nullable")]
    pub image: String,
}

/// What a pod is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// Where it is in its life.
    #[serde(deserialize_with = "nullable")]
    pub phase: String,
    /// Its conditions.
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<PodCondition>,
    /// What its containers are.
    #[serde(deserialize_with = "nullable")]
    pub container_statuses: Vec<ContainerStatus>,
}

/// What a container is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Which.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// The image that it runs.
    #[serde(rename = "imageID", deserialize_with = "nullable")]
    pub image_id: String,
    /// What it does.
    #[serde(deserialize_with = "nullable")]
    pub state: State,
}

/// What a container does.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct State {
    /// It runs.
    pub running: Option<Running>,
}

/// A container that runs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Running {
    /// Since when.
    pub started_at: Option<Time>,
}

impl kube::Resource for SidecarPod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Pod::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Pod::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Pod::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl SidecarPod {
    /// Its uid.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Its annotations.
    #[must_use]
    pub fn annotations(&self) -> Option<&Annotations> {
        self.metadata.annotations.as_ref()
    }

    /// A label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        let labels: &Labels = self.metadata.labels.as_ref()?;
        labels.get(key).map(String::as_str)
    }

    /// Whether it has not ended and is not on its way out.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.metadata.deletion_timestamp.is_none()
            && !["Succeeded", "Failed"].contains(&self.status.phase.as_str())
    }

    /// A condition.
    #[must_use]
    pub fn condition(&self, type_: &str) -> Option<&PodCondition> {
        let mut conditions = self.status.conditions.iter();
        conditions.find(|condition| condition.type_ == type_)
    }

    /// Whether it serves.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.status.phase == "Running"
            && self
                .condition("Ready")
                .is_some_and(|ready| ready.status == "True")
    }

    /// When it was created.
    #[must_use]
    pub fn created(&self) -> Option<DateTime<Utc>> {
        self.metadata.creation_timestamp.as_ref().map(from_k8s)
    }

    /// What one of its containers is.
    #[must_use]
    pub fn container_status(&self, name: &str) -> Option<&ContainerStatus> {
        let mut statuses = self.status.container_statuses.iter();
        statuses.find(|status| status.name == name)
    }
}

fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(input: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(input)?.unwrap_or_default())
}
