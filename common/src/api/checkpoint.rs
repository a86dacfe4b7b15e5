//! `autoscaling.k8s.io/v1` VerticalPodAutoscalerCheckpoint (`spec/vpa.md` 1.6): the history of one container of one
//! VPA, as it survives a restart. What the numbers mean is the recommender's business.

use super::{
    schema,
    wire::{go_struct, is_zero, nullable, optional_time},
};
use chrono::{DateTime, Utc};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// Whose history this is.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "autoscaling.k8s.io",
    version = "v1",
    kind = "VerticalPodAutoscalerCheckpoint",
    plural = "verticalpodautoscalercheckpoints",
    shortname = "vpacheckpoint",
    namespaced,
    status = "VerticalPodAutoscalerCheckpointStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "The usage history of one container, kept over restarts of the recommender."
)]
#[serde(remote = "Self", rename_all = "camelCase", default)]
pub struct VerticalPodAutoscalerCheckpointSpec {
    /// Name of the VerticalPodAutoscaler.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub vpa_object_name: String,
    /// Name of the container.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub container_name: String,
}

go_struct!(VerticalPodAutoscalerCheckpointSpec);

/// The history.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VerticalPodAutoscalerCheckpointStatus {
    /// When it was written.
    #[serde(with = "optional_time")]
    #[schemars(schema_with = "schema::nullable_time")]
    pub last_update_time: Option<DateTime<Utc>>,
    /// Version of the format.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// CPU use.
    #[serde(deserialize_with = "nullable")]
    pub cpu_histogram: HistogramCheckpoint,
    /// Peaks of memory use.
    #[serde(deserialize_with = "nullable")]
    pub memory_histogram: HistogramCheckpoint,
    /// Time of the first sample.
    #[serde(with = "optional_time")]
    #[schemars(schema_with = "schema::nullable_time")]
    pub first_sample_start: Option<DateTime<Utc>>,
    /// Time of the last sample.
    #[serde(with = "optional_time")]
    #[schemars(schema_with = "schema::nullable_time")]
    pub last_sample_start: Option<DateTime<Utc>>,
    /// How many samples there were.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::integer")]
    pub total_samples_count: i64,
}

/// A histogram.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HistogramCheckpoint {
    /// The time at which a sample has weight one.
    #[serde(with = "optional_time")]
    #[schemars(schema_with = "schema::nullable_time")]
    pub reference_timestamp: Option<DateTime<Utc>>,
    /// Weight of each bucket, in parts of the largest.
    #[serde(
        deserialize_with = "nullable",
        skip_serializing_if = "BucketWeights::is_empty"
    )]
    #[schemars(schema_with = "schema::unchecked_object")]
    pub bucket_weights: BucketWeights,
    /// What the weights add up to before scaling.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::number")]
    pub total_weight: f64,
}

/// Weights by bucket index. The schema lets anything through here, so what cannot be read is kept as it came: it
/// costs that histogram, and not the list it arrived in.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketWeights(Result<BTreeMap<i64, u32>, Malformed>);

#[derive(Clone, Debug, PartialEq)]
struct Malformed {
    json: Value,
    error: BucketWeightsError,
}

impl BucketWeights {
    /// The weights, or why they cannot be read.
    ///
    /// # Errors
    /// When the object holds something else than indexes and weights.
    pub fn get(&self) -> Result<&BTreeMap<i64, u32>, &BucketWeightsError> {
        self.0.as_ref().map_err(|malformed| &malformed.error)
    }

    /// Whether there is nothing at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_ok_and(BTreeMap::is_empty)
    }
}

/// Why the weights of a checkpoint cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketWeightsError {
    /// Not even an object.
    #[error("bucket weights are not an object: delete the checkpoint")]
    NotAnObject,
    /// A key that is no integer.
    #[error("bucket index {0:?} is not an integer: delete the checkpoint")]
    Index(String),
    /// A value that is no weight.
    #[error(
        "weight {weight} of bucket {index} is not an integer from 0 to 4294967295: delete the checkpoint"
    )]
    Weight {
        /// The bucket.
        index: i64,
        /// What stands there.
        weight: Value,
    },
}

impl Default for BucketWeights {
    fn default() -> Self {
        Self(Ok(BTreeMap::new()))
    }
}

impl From<BTreeMap<i64, u32>> for BucketWeights {
    fn from(weights: BTreeMap<i64, u32>) -> Self {
        Self(Ok(weights))
    }
}

impl Serialize for BucketWeights {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Ok(weights) => weights.serialize(serializer),
            Err(malformed) => malformed.json.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for BucketWeights {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Value::deserialize(deserializer)?;
        Ok(Self(
            read_weights(&json).map_err(|error| Malformed { json, error }),
        ))
    }
}

fn read_weights(json: &Value) -> Result<BTreeMap<i64, u32>, BucketWeightsError> {
    let entries = json.as_object().ok_or(BucketWeightsError::NotAnObject)?;
    entries
        .iter()
        .map(|(index, weight)| {
            let index: i64 = index
                .parse()
                .map_err(|_| BucketWeightsError::Index(index.clone()))?;
            let read = weight.as_u64().and_then(|weight| u32::try_from(weight).ok());
            let weight = read.ok_or_else(|| BucketWeightsError::Weight {
                index,
                weight: weight.clone(),
            })?;
            Ok((index, weight))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn zero_times_are_null_and_other_zeros_are_left_out() {
        assert_eq!(
            serde_json::to_value(HistogramCheckpoint::default()).unwrap(),
            json!({ "referenceTimestamp": null })
        );
        assert_eq!(
            serde_json::to_value(VerticalPodAutoscalerCheckpointStatus::default()).unwrap(),
            json!({
                "lastUpdateTime": null,
                "cpuHistogram": { "referenceTimestamp": null },
                "memoryHistogram": { "referenceTimestamp": null },
                "firstSampleStart": null,
                "lastSampleStart": null,
            })
        );
    }

    #[test]
    fn null_and_absent_are_the_same() {
        let nulls = json!({
            "lastUpdateTime": null, "version": null, "cpuHistogram": null, "memoryHistogram": {
                "referenceTimestamp": null, "bucketWeights": null, "totalWeight": null,
            },
            "firstSampleStart": null, "lastSampleStart": null, "totalSamplesCount": null,
        });
        for json in [nulls, json!({})] {
            let status: VerticalPodAutoscalerCheckpointStatus = serde_json::from_value(json).unwrap();
            assert_eq!(status, VerticalPodAutoscalerCheckpointStatus::default());
        }
    }

    #[test]
    fn a_checkpoint_needs_neither_spec_nor_status() {
        for json in [
            json!({ "metadata": {} }),
            json!({ "metadata": {}, "spec": null, "status": null }),
        ] {
            let checkpoint: VerticalPodAutoscalerCheckpoint = serde_json::from_value(json).unwrap();
            assert_eq!(checkpoint, VerticalPodAutoscalerCheckpoint::default());
        }
    }

    #[test]
    fn weights_that_cannot_be_read_are_kept_and_explained() {
        for (json, expected) in [
            (
                json!([]),
                "bucket weights are not an object: delete the checkpoint",
            ),
            (
                json!({ "one": 1 }),
                "bucket index \"one\" is not an integer: delete the checkpoint",
            ),
            (
                json!({ "3": -1 }),
                "weight -1 of bucket 3 is not an integer from 0 to 4294967295: delete the checkpoint",
            ),
            (
                json!({ "3": 4_294_967_296_u64 }),
                "weight 4294967296 of bucket 3 is not an integer from 0 to 4294967295: delete the checkpoint",
            ),
            (
                json!({ "3": "7" }),
                "weight \"7\" of bucket 3 is not an integer from 0 to 4294967295: delete the checkpoint",
            ),
        ] {
            let weights: BucketWeights = serde_json::from_value(json.clone()).unwrap();
            assert_eq!(weights.get().unwrap_err().to_string(), expected);
            assert!(!weights.is_empty());
            assert_eq!(serde_json::to_value(&weights).unwrap(), json);
        }
    }

    proptest! {
        #[test]
        fn histograms_come_back_as_they_went_in(
            seconds in prop::option::of(0_i64..4_000_000_000),
            weights in prop::collection::btree_map(-2_i64..200, any::<u32>(), 0..20),
            total_weight in prop::num::f64::NORMAL | prop::num::f64::ZERO,
        ) {
            let histogram = HistogramCheckpoint {
                reference_timestamp: seconds.and_then(|seconds| DateTime::from_timestamp(seconds, 0)),
                bucket_weights: weights.into(),
                total_weight,
            };
            let text = serde_json::to_string(&histogram).unwrap();
            let again: HistogramCheckpoint = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&again, &histogram, "{}", text);
            // -0.0 equals 0.0 and is left out like it.
            prop_assert!(again.total_weight.to_bits() == histogram.total_weight.to_bits() || total_weight == 0.0);
        }
    }
}
