//! What the recommender says about a VerticalPodAutoscaler (`spec/vpa.md` 1.5).

use crate::api::{
    k8s::ResourceList,
    open_enum::open_enum,
    schema,
    wire::{is_zero, nullable, optional_time, text},
};
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is recommended now.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VerticalPodAutoscalerStatus {
    /// The latest recommendation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recommendation: Option<RecommendedPodResources>,
    /// What is to be said about it.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<VerticalPodAutoscalerCondition>,
    /// The generation this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub observed_generation: Option<i64>,
}

/// A recommendation for the containers of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RecommendedPodResources {
    /// One entry for each container, sorted by name.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub container_recommendations: Vec<RecommendedContainerResources>,
}

/// A recommendation for one container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["target"]))]
pub struct RecommendedContainerResources {
    /// Name of the container.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub container_name: String,
    /// What the container should request.
    #[serde(deserialize_with = "nullable")]
    #[schemars(schema_with = "schema::resource_list")]
    pub target: ResourceList,
    /// Below this the container is likely to suffer.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "ResourceList::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub lower_bound: ResourceList,
    /// What is above this is likely to be wasted.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "ResourceList::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub upper_bound: ResourceList,
    /// The target before the policy's bounds were applied.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "ResourceList::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub uncapped_target: ResourceList,
}

/// One thing to be said about an object.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["status", "type"]))]
pub struct VerticalPodAutoscalerCondition {
    /// What it is about.
    #[serde(rename = "type", deserialize_with = "text")]
    #[schemars(with = "String")]
    pub type_: ConditionType,
    /// True, False or Unknown.
    #[serde(deserialize_with = "text")]
    #[schemars(with = "String")]
    pub status: ConditionStatus,
    /// When the status last changed.
    #[serde(with = "optional_time", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_transition_time: Option<DateTime<Utc>>,
    /// Why, in one word.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, for people.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The generation this condition is about.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "is_zero")]
    #[schemars(extend("minimum" = 0))]
    pub observed_generation: i64,
}

impl Default for VerticalPodAutoscalerCondition {
    fn default() -> Self {
        Self {
            type_: String::new().into(),
            status: String::new().into(),
            last_transition_time: None,
            reason: String::new(),
            message: String::new(),
            observed_generation: 0,
        }
    }
}

open_enum! {
    /// What a condition is about (`spec/vpa.md` 1.5).
    pub enum ConditionType {
        /// Whether the status holds a recommendation.
        RecommendationProvided = "RecommendationProvided",
        /// There is little history behind the recommendation.
        LowConfidence = "LowConfidence",
        /// No pod matches.
        NoPodsMatched = "NoPodsMatched",
        /// History is being loaded.
        FetchingHistory = "FetchingHistory",
        /// The object says something that will not work for much longer.
        ConfigDeprecated = "ConfigDeprecated",
        /// The target cannot be sized.
        ConfigUnsupported = "ConfigUnsupported",
    }
}

open_enum! {
    /// Whether a condition holds.
    pub enum ConditionStatus {
        /// It holds.
        True = "True",
        /// It does not hold.
        False = "False",
        /// Nobody knows.
        Unknown = "Unknown",
    }
}
