//! A VPA as its validation reads it: text where the API has an enumeration, because an unknown value is an answer to
//! give, and exact quantities, because one that cannot be read is another.

use std::collections::BTreeMap;

use common::{api::k8s::ObjectMeta, quantity::Quantity};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::decode::{amounts, object, objects, optional_amount, optional_object, optional_texts, text};

/// The object.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Vpa {
    #[serde(rename = "apiVersion", deserialize_with = "text")]
    _api_version: String,
    #[serde(rename = "kind", deserialize_with = "text")]
    _kind: String,
    #[serde(rename = "metadata", deserialize_with = "object")]
    _metadata: ObjectMeta,
    #[serde(deserialize_with = "object")]
    pub(super) spec: Spec,
    #[serde(rename = "status", deserialize_with = "object")]
    _status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    #[serde(rename = "targetRef", deserialize_with = "optional_object")]
    _target_ref: Option<TargetRef>,
    #[serde(deserialize_with = "optional_object")]
    pub(super) update_policy: Option<UpdatePolicy>,
    #[serde(deserialize_with = "optional_object")]
    pub(super) resource_policy: Option<ResourcePolicy>,
    #[serde(deserialize_with = "objects")]
    pub(super) recommenders: Vec<Named>,
    #[serde(deserialize_with = "optional_object")]
    pub(super) startup_boost: Option<StartupBoost>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TargetRef {
    #[serde(rename = "kind", deserialize_with = "text")]
    _kind: String,
    #[serde(rename = "name", deserialize_with = "text")]
    _name: String,
    #[serde(rename = "apiVersion", deserialize_with = "text")]
    _api_version: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct UpdatePolicy {
    pub(super) update_mode: Option<String>,
    pub(super) min_replicas: Option<i32>,
    #[serde(rename = "evictAfterOOMSeconds")]
    pub(super) evict_after_oom_seconds: Option<i32>,
    #[serde(rename = "evictionRequirements", deserialize_with = "objects")]
    _eviction_requirements: Vec<EvictionRequirement>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EvictionRequirement {
    #[serde(rename = "resources", deserialize_with = "optional_texts")]
    _resources: Option<Vec<String>>,
    #[serde(rename = "changeRequirement", deserialize_with = "text")]
    _change_requirement: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ResourcePolicy {
    #[serde(deserialize_with = "objects")]
    pub(super) container_policies: Vec<ContainerPolicy>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerPolicy {
    #[serde(deserialize_with = "text")]
    pub(super) container_name: String,
    pub(super) mode: Option<String>,
    #[serde(deserialize_with = "amounts")]
    pub(super) min_allowed: BTreeMap<String, Quantity>,
    #[serde(deserialize_with = "amounts")]
    pub(super) max_allowed: BTreeMap<String, Quantity>,
    #[serde(deserialize_with = "optional_texts")]
    pub(super) controlled_resources: Option<Vec<String>>,
    pub(super) controlled_values: Option<String>,
    #[serde(deserialize_with = "optional_amount")]
    pub(super) oom_bump_up_ratio: Option<Quantity>,
    #[serde(deserialize_with = "optional_amount")]
    pub(super) oom_min_bump_up: Option<Quantity>,
    pub(super) memory_aggregation_interval_seconds: Option<i32>,
    pub(super) memory_aggregation_interval_count: Option<i64>,
    #[serde(deserialize_with = "optional_object")]
    pub(super) startup_boost: Option<StartupBoost>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct StartupBoost {
    #[serde(deserialize_with = "optional_object")]
    pub(super) cpu: Option<GenericBoost>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct GenericBoost {
    #[serde(rename = "type", deserialize_with = "text")]
    pub(super) type_: String,
    pub(super) factor: Option<i32>,
    #[serde(deserialize_with = "optional_amount")]
    pub(super) quantity: Option<Quantity>,
    #[serde(rename = "durationSeconds")]
    _duration_seconds: Option<i32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Named {
    #[serde(rename = "name", deserialize_with = "text")]
    _name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(rename = "recommendation", deserialize_with = "optional_object")]
    _recommendation: Option<Recommendation>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Recommendation {
    #[serde(rename = "containerRecommendations", deserialize_with = "objects")]
    _containers: Vec<ContainerRecommendation>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerRecommendation {
    #[serde(rename = "target", deserialize_with = "amounts")]
    _target: BTreeMap<String, Quantity>,
    #[serde(rename = "lowerBound", deserialize_with = "amounts")]
    _lower_bound: BTreeMap<String, Quantity>,
    #[serde(rename = "upperBound", deserialize_with = "amounts")]
    _upper_bound: BTreeMap<String, Quantity>,
    #[serde(rename = "uncappedTarget", deserialize_with = "amounts")]
    _uncapped_target: BTreeMap<String, Quantity>,
}

impl Vpa {
    /// Decodes an object; the error is for people.
    pub(super) fn decode(raw: Option<&RawValue>) -> Result<Self, String> {
        let raw = raw.ok_or("unexpected end of JSON input")?;
        let mut json = serde_json::Deserializer::from_str(raw.get());
        object(&mut json).map_err(|error: serde_json::Error| {
            // The place is one in the review, which nobody sees.
            let text = error.to_string();
            match text.rsplit_once(" at line ") {
                Some((what, _)) => what.to_owned(),
                None => text,
            }
        })
    }
}
