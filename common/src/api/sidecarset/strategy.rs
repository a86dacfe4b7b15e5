//! How a SidecarSet reaches pods: updates of running ones, injection into new ones, changes to their metadata.

use crate::api::{
    k8s::{IntOrString, LabelSelector},
    open_enum::open_enum,
    schema,
    wire::{is_zero, non_empty, nullable, saturating_int_or_string},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How running pods are updated.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UpdateStrategy {
    /// RollingUpdate, if not given.
    #[serde(
        rename = "type",
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<String>")]
    pub type_: Option<UpdateStrategyType>,
    /// No pod is updated for now.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "is_zero")]
    pub paused: bool,
    /// Only these pods are updated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: Option<LabelSelector>,
    /// How many pods, or what part of them, stay on the old revision.
    #[serde(
        deserialize_with = "saturating_int_or_string",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::int_or_string")]
    pub partition: Option<IntOrString>,
    /// How many pods, or what part of them, may be unavailable during the update.
    #[serde(
        deserialize_with = "saturating_int_or_string",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::int_or_string")]
    pub max_unavailable: Option<IntOrString>,
    /// Which pods come first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_strategy: Option<PriorityStrategy>,
    /// Pods with these labels are spread over the update.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub scatter_strategy: Vec<ScatterTerm>,
}

open_enum! {
    /// Whether running pods are updated.
    pub enum UpdateStrategyType {
        /// They are, a few at a time.
        RollingUpdate = "RollingUpdate",
        /// They are not.
        NotUpdate = "NotUpdate",
    }
}

/// Which pods come first.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PriorityStrategy {
    /// By the weights of what they match.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub weight_priority: Vec<PriorityWeightTerm>,
    /// By the numbers in their labels.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub order_priority: Vec<PriorityOrderTerm>,
}

/// The weight of pods that match.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["matchSelector", "weight"]))]
pub struct PriorityWeightTerm {
    /// From 1 to 100.
    #[serde(deserialize_with = "nullable")]
    pub weight: i32,
    /// Labels of the pods.
    #[serde(deserialize_with = "nullable")]
    #[schemars(schema_with = "schema::label_selector")]
    pub match_selector: LabelSelector,
}

/// A label whose number gives the order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["orderedKey"]))]
pub struct PriorityOrderTerm {
    /// The label.
    #[serde(deserialize_with = "nullable")]
    pub ordered_key: String,
}

/// A label whose pods are spread over the update.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["key", "value"]))]
pub struct ScatterTerm {
    /// The label.
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    /// Its value, or `*` for every value there is.
    #[serde(deserialize_with = "nullable")]
    pub value: String,
}

/// How new pods are served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct InjectionStrategy {
    /// New pods get nothing.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "is_zero")]
    pub paused: bool,
    /// An older revision that new pods get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<InjectRevision>,
}

/// A revision that new pods get; the name wins where both are given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct InjectRevision {
    /// Its custom version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_version: Option<String>,
    /// Name of its ControllerRevision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_name: Option<String>,
    /// Which of the new pods get it.
    #[serde(deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-published-default" = "Always"))]
    pub policy: Option<RevisionPolicy>,
}

open_enum! {
    /// Which of the new pods get an older revision.
    pub enum RevisionPolicy {
        /// All of them.
        Always = "Always",
        /// Those that an update would leave on it.
        Partial = "Partial",
    }
}

/// What is written into a pod's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PatchPodMetadata {
    /// The annotations.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// What happens to those that are there already. Retain, if not given.
    #[serde(deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub patch_policy: Option<PatchPolicy>,
}

open_enum! {
    /// What happens to an annotation that is there already.
    pub enum PatchPolicy {
        /// It stays.
        Retain = "Retain",
        /// It is replaced.
        Overwrite = "Overwrite",
        /// It is JSON, and the new value is merged into it.
        MergePatchJson = "MergePatchJson",
    }
}
