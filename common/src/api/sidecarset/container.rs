//! The sidecar: a container of the core API with what the SidecarSet says about it besides.

use super::ResourcesPolicy;
use crate::api::{
    k8s::{Container, ObjectFieldSelector},
    open_enum::open_enum,
    schema,
    wire::{is_zero, non_empty, nullable},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A container to put into pods.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SidecarContainer {
    /// The container of the core API, as it came. The schema does not check it, and a field newer than the types we
    /// are built with must reach the pod, so it stays JSON: see [`Self::parse_container`].
    #[serde(flatten)]
    pub core: Map<String, Value>,
    /// Whether it stands before or after the pod's own containers.
    #[serde(deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub pod_inject_policy: Option<PodInjectPolicy>,
    /// How it is updated in running pods.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "is_zero")]
    pub upgrade_strategy: UpgradeStrategy,
    /// Whether it gets the mounts of the pod's own containers.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "is_zero")]
    pub share_volume_policy: ShareVolumePolicy,
    /// Whether it gets the block devices of the pod's own containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_volume_device_policy: Option<ShareVolumePolicy>,
    /// Environment variables that are taken over from the pod's own containers.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub transfer_env: Vec<TransferEnvVar>,
    /// Resources computed from those of the pod's own containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources_policy: Option<ResourcesPolicy>,
}

impl SidecarContainer {
    /// The container's name, empty where there is none.
    #[must_use]
    pub fn name(&self) -> &str {
        self.core.get("name").and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether it is a native sidecar, given that it stands among the init containers.
    #[must_use]
    pub fn restarts_always(&self) -> bool {
        self.core.get("restartPolicy").and_then(Value::as_str) == Some("Always")
    }

    /// The container of the core API, without the fields we do not know.
    ///
    /// # Errors
    /// When it is no container, which the schema does not rule out.
    pub fn parse_container(&self) -> Result<Container, serde_json::Error> {
        Container::deserialize(&self.core)
    }
}

open_enum! {
    /// Where a sidecar stands.
    pub enum PodInjectPolicy {
        /// Before the pod's own containers.
        BeforeAppContainer = "BeforeAppContainer",
        /// After the pod's own containers.
        AfterAppContainer = "AfterAppContainer",
    }
}

/// How a sidecar is updated in running pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UpgradeStrategy {
    /// ColdUpgrade, if not given.
    #[serde(deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub upgrade_type: Option<UpgradeType>,
    /// Image of the idle one of a hot-upgraded pair.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub hot_upgrade_empty_image: String,
}

open_enum! {
    /// How a sidecar's image is exchanged.
    pub enum UpgradeType {
        /// The container restarts.
        ColdUpgrade = "ColdUpgrade",
        /// A second container takes over.
        HotUpgrade = "HotUpgrade",
    }
}

/// Whether a sidecar shares what the pod's own containers mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ShareVolumePolicy {
    /// Disabled, if not given.
    #[serde(
        rename = "type",
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<String>")]
    pub type_: Option<ShareVolumePolicyType>,
}

open_enum! {
    /// Whether something is shared.
    pub enum ShareVolumePolicyType {
        /// It is.
        Enabled = "enabled",
        /// It is not.
        Disabled = "disabled",
    }
}

/// Environment variables that are taken over from a container of the pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TransferEnvVar {
    /// Name of that container.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub source_container_name: String,
    /// Where the name of that container is found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_container_name_from: Option<SourceContainerNameSource>,
    /// Name of the variable.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub env_name: String,
    /// Names of further variables.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub env_names: Vec<String>,
}

/// Where the name of a container is found.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SourceContainerNameSource {
    /// A label or an annotation of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_field_selector")]
    pub field_ref: Option<ObjectFieldSelector>,
}
