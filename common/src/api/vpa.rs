//! `autoscaling.k8s.io/v1` VerticalPodAutoscaler (`spec/vpa.md` 1.2 to 1.5).
//! Checking what the schema cannot say is admission's work, not that of these types.

mod status;

use super::{
    k8s::{Quantity, ResourceList},
    open_enum::open_enum,
    schema,
    wire::{go_struct, non_empty, nullable},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use status::{
    ConditionStatus, ConditionType, RecommendedContainerResources, RecommendedPodResources,
    VerticalPodAutoscalerCondition, VerticalPodAutoscalerStatus,
};

/// Which pods are sized, and how.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "autoscaling.k8s.io",
    version = "v1",
    kind = "VerticalPodAutoscaler",
    plural = "verticalpodautoscalers",
    shortname = "vpa",
    namespaced,
    status = "VerticalPodAutoscalerStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Sizes the containers of one controller's pods by what they were seen to use.",
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".spec.updatePolicy.updateMode"}"#,
    printcolumn = r#"{"name":"CPU","type":"string","jsonPath":".status.recommendation.containerRecommendations[0].target.cpu"}"#,
    printcolumn = r#"{"name":"Mem","type":"string","jsonPath":".status.recommendation.containerRecommendations[0].target.memory"}"#,
    printcolumn = r#"{"name":"Provided","type":"string","jsonPath":".status.conditions[?(@.type=='RecommendationProvided')].status"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"MinReplicas","type":"integer","jsonPath":".spec.updatePolicy.minReplicas","priority":1}"#,
    printcolumn = r#"{"name":"OOMSeconds","type":"integer","jsonPath":".spec.updatePolicy.evictAfterOOMSeconds","priority":1}"#
)]
#[serde(remote = "Self", rename_all = "camelCase", default)]
#[schemars(extend("required" = ["targetRef"]))]
pub struct VerticalPodAutoscalerSpec {
    /// The controller whose pods are sized.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<CrossVersionObjectReference>,
    /// How recommendations reach the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_policy: Option<PodUpdatePolicy>,
    /// What is recommended, container by container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_policy: Option<PodResourcePolicy>,
    /// Which recommender serves this object: none for the default one, or exactly one.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub recommenders: Vec<RecommenderSelector>,
    /// More resources while a pod starts, for every container without an own setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_boost: Option<StartupBoost>,
}

go_struct!(VerticalPodAutoscalerSpec);

impl VerticalPodAutoscalerSpec {
    /// The update mode in force: absent and empty mean `Recreate`.
    #[must_use]
    pub fn update_mode(&self) -> &UpdateMode {
        match self
            .update_policy
            .as_ref()
            .and_then(|policy| policy.update_mode.as_ref())
        {
            None => &UpdateMode::Recreate,
            Some(UpdateMode::Other(text)) if text.is_empty() => &UpdateMode::Recreate,
            Some(mode) => mode,
        }
    }

    /// The policy for a container: the first that names it, otherwise the last for `*`.
    #[must_use]
    pub fn container_policy(&self, container: &str) -> Option<&ContainerResourcePolicy> {
        let policies = &self.resource_policy.as_ref()?.container_policies;
        policies
            .iter()
            .find(|policy| policy.container_name == container)
            .or_else(|| {
                policies
                    .iter()
                    .rfind(|policy| policy.container_name == ANY_CONTAINER)
            })
    }
}

/// The container name that stands for every container without an own policy.
pub const ANY_CONTAINER: &str = "*";

/// A reference to an object of any kind in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["kind", "name"], "x-kubernetes-map-type" = "atomic"))]
pub struct CrossVersionObjectReference {
    /// API version of the object.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Kind of the object.
    #[serde(deserialize_with = "nullable")]
    pub kind: String,
    /// Name of the object.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
}

/// How recommendations reach the pods.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodUpdatePolicy {
    /// When pods get the recommended resources. Recreate, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_mode: Option<UpdateMode>,
    /// Fewer live replicas than this are not disrupted; overrides the updater's flag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<i32>,
    /// Conditions on the change a disruption would bring; all must hold.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub eviction_requirements: Vec<EvictionRequirement>,
    /// An OOM within this many seconds of the start is a reason to act; overrides the updater's flag.
    #[serde(rename = "evictAfterOOMSeconds", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 1))]
    pub evict_after_oom_seconds: Option<i32>,
}

open_enum! {
    /// When pods get the recommended resources (`spec/vpa.md` 1.7).
    pub enum UpdateMode {
        /// Never.
        Off = "Off",
        /// When they are created.
        Initial = "Initial",
        /// When they are created, and by eviction.
        Recreate = "Recreate",
        /// When they are created, by a resize, and by eviction where a resize will not do.
        InPlaceOrRecreate = "InPlaceOrRecreate",
        /// When they are created, and by a resize.
        InPlace = "InPlace",
        /// The deprecated name of `Recreate`.
        Auto = "Auto",
    }
}

/// A condition on the change a disruption would bring: it holds if any of the resources changes as wanted.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["changeRequirement", "resources"]))]
pub struct EvictionRequirement {
    /// The resources it looks at.
    #[serde(deserialize_with = "nullable")]
    pub resources: Vec<String>,
    /// The wanted direction of the change.
    #[serde(deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    pub change_requirement: Option<ChangeRequirement>,
}

open_enum! {
    /// The wanted direction of a change.
    pub enum ChangeRequirement {
        /// The target is higher than the request.
        TargetHigherThanRequests = "TargetHigherThanRequests",
        /// The target is lower than the request.
        TargetLowerThanRequests = "TargetLowerThanRequests",
    }
}

/// What is recommended, container by container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResourcePolicy {
    /// One entry for each container with an own policy, and one for all others.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub container_policies: Vec<ContainerResourcePolicy>,
}

/// What is recommended for one container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerResourcePolicy {
    /// Name of the container, or `*` for every container without an own entry.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub container_name: String,
    /// Whether the container is sized at all. Auto, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<ContainerScalingMode>,
    /// Nothing below this is recommended.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "ResourceList::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub min_allowed: ResourceList,
    /// Nothing above this is recommended.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "ResourceList::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub max_allowed: ResourceList,
    /// The resources that are recommended: cpu and memory, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controlled_resources: Option<Vec<String>>,
    /// Whether limits follow the requests. RequestsAndLimits, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controlled_values: Option<ContainerControlledValues>,
    /// Memory after an OOM is at least the used memory times this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub oom_bump_up_ratio: Option<Quantity>,
    /// Memory after an OOM is at least the used memory plus this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub oom_min_bump_up: Option<Quantity>,
    /// Length of the window of which the highest memory use is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 1))]
    pub memory_aggregation_interval_seconds: Option<i32>,
    /// How many such windows are looked back at.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 1))]
    pub memory_aggregation_interval_count: Option<i64>,
    /// More resources while the pod starts, instead of the pod's setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_boost: Option<StartupBoost>,
}

impl ContainerResourcePolicy {
    /// The mode in force: absent means `Auto`.
    #[must_use]
    pub fn scaling_mode(&self) -> &ContainerScalingMode {
        self.mode.as_ref().unwrap_or(&ContainerScalingMode::Auto)
    }

    /// What is controlled: absent means `RequestsAndLimits`.
    #[must_use]
    pub fn values_controlled(&self) -> &ContainerControlledValues {
        self.controlled_values
            .as_ref()
            .unwrap_or(&ContainerControlledValues::RequestsAndLimits)
    }
}

open_enum! {
    /// Whether a container is sized.
    pub enum ContainerScalingMode {
        /// It is.
        Auto = "Auto",
        /// It is not, and there is no recommendation for it.
        Off = "Off",
    }
}

open_enum! {
    /// Whether limits follow the requests.
    pub enum ContainerControlledValues {
        /// They do, in proportion.
        RequestsAndLimits = "RequestsAndLimits",
        /// They stay as they are.
        RequestsOnly = "RequestsOnly",
    }
}

/// Names a recommender.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct RecommenderSelector {
    /// The name it was started with.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
}

/// More resources while a pod starts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StartupBoost {
    /// More CPU while the pod starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<GenericStartupBoost>,
}

/// How much more of a resource, and for how long.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = ["type"],
    "x-kubernetes-validations" = [
        {
            "rule": "(self.type == 'Factor') == has(self.factor)",
            "message": "factor is required when type is Factor and forbidden otherwise",
        },
        {
            "rule": "(self.type == 'Quantity') == has(self.quantity)",
            "message": "quantity is required when type is Quantity and forbidden otherwise",
        },
    ],
))]
pub struct GenericStartupBoost {
    /// Whether the boost is a factor or a quantity.
    #[serde(
        rename = "type",
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub type_: Option<StartupBoostType>,
    /// The request is multiplied by this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<i32>,
    /// This is added to the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub quantity: Option<Quantity>,
    /// How long the boost stays once the pod is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<i32>,
}

open_enum! {
    /// How a boost is given.
    pub enum StartupBoostType {
        /// By `factor`.
        Factor = "Factor",
        /// By `quantity`.
        Quantity = "Quantity",
    }
}
