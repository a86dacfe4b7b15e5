//! `apps.kruise.io/v1beta1` SidecarSet: the stored version.

use super::{InjectionStrategy, PatchPodMetadata, SidecarContainer, UpdateStrategy};
use crate::api::{
    k8s::{LabelSelector, LocalObjectReference, Volume},
    schema,
    wire::{go_struct, is_zero, nullable},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Which pods get which sidecars.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "apps.kruise.io",
    version = "v1beta1",
    kind = "SidecarSet",
    plural = "sidecarsets",
    status = "SidecarSetStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Sidecars that are put into pods when these are created.",
    printcolumn = r#"{"name":"MATCHED","type":"integer","jsonPath":".status.matchedPods"}"#,
    printcolumn = r#"{"name":"UPDATED","type":"integer","jsonPath":".status.updatedPods"}"#,
    printcolumn = r#"{"name":"READY","type":"integer","jsonPath":".status.readyPods"}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(remote = "Self", rename_all = "camelCase", default)]
pub struct SidecarSetSpec {
    /// Labels of the pods that get the sidecars.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: Option<LabelSelector>,
    /// Labels of their namespaces: all namespaces, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub namespace_selector: Option<LabelSelector>,
    /// A name for this revision.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub custom_version: String,
    /// Init containers, native sidecars among them.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub init_containers: Vec<SidecarContainer>,
    /// Containers.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<SidecarContainer>,
    /// Volumes of the sidecars, as in a pod. The schema does not check them, so they stay JSON:
    /// see [`Self::parse_volumes`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        schema_with = "schema::unchecked",
        description = "Volumes of the sidecars, as in a pod."
    )]
    pub volumes: Option<Value>,
    /// How running pods are updated.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "is_zero")]
    pub update_strategy: UpdateStrategy,
    /// How new pods are served.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "is_zero")]
    pub injection_strategy: InjectionStrategy,
    /// Secrets to pull the sidecars' images with.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::local_object_references")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// How many revisions are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_history_limit: Option<i32>,
    /// What is written into the pod's metadata.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub patch_pod_metadata: Vec<PatchPodMetadata>,
}

go_struct!(SidecarSetSpec);

impl SidecarSetSpec {
    /// The volumes as the pod will have them, without the fields we do not know.
    ///
    /// # Errors
    /// When they are no volumes, which the schema does not rule out.
    pub fn parse_volumes(&self) -> Result<Vec<Volume>, serde_json::Error> {
        self.volumes
            .as_ref()
            .map_or(Ok(Vec::new()), Vec::<Volume>::deserialize)
    }
}

/// How far the update of the pods has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["matchedPods", "readyPods", "updatedPods"]))]
pub struct SidecarSetStatus {
    /// The generation this status is about.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// Pods that match.
    #[serde(deserialize_with = "nullable")]
    pub matched_pods: i32,
    /// Matching pods with the newest sidecars.
    #[serde(deserialize_with = "nullable")]
    pub updated_pods: i32,
    /// Matching pods that are ready.
    #[serde(deserialize_with = "nullable")]
    pub ready_pods: i32,
    /// Matching pods with the newest sidecars that are ready.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "is_zero")]
    pub updated_ready_pods: i32,
    /// Name of the newest revision.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub latest_revision: String,
    /// How many names of revisions turned out to be taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
}
