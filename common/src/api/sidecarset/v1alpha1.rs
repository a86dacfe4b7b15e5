//! `apps.kruise.io/v1alpha1` SidecarSet: the stored version with `namespace` in place of `customVersion`.

use super::v1beta1;
use crate::api::wire::{go_struct, nullable};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which pods get which sidecars.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "apps.kruise.io",
    version = "v1alpha1",
    kind = "SidecarSet",
    plural = "sidecarsets",
    status = "v1beta1::SidecarSetStatus",
    storage = false,
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
    /// The one namespace whose pods are served; wins over the namespace selector.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// All that the two versions share. Its `custom_version` is a label in this version and empty here.
    #[serde(flatten, with = "v1beta1::SidecarSetSpec")]
    pub shared: v1beta1::SidecarSetSpec,
}

go_struct!(SidecarSetSpec);
