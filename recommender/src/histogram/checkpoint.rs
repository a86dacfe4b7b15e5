//! A histogram as a checkpoint carries it: whole parts of ten thousand of the largest bucket, and the total
//! (`spec/vpa.md` 2.6). What was lost in the rounding stays lost; the total does not change.

use super::{BUCKETS, HalfLife, Histogram, Resource, buckets::LAST, plain::sum};
use crate::{instant::NEVER, num};
use chrono::{DateTime, Utc};
use std::collections::BTreeMap;

/// The weight that the largest bucket gets.
const LARGEST: f64 = 10_000.0;

/// A histogram in the precision of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Saved {
    /// The time at which a sample has weight one.
    pub reference: Option<DateTime<Utc>>,
    /// Weights by bucket, in parts of the largest.
    pub weights: BTreeMap<i64, u32>,
    /// What the weights stand for in sum.
    pub total: f64,
}

/// Why a histogram cannot be read from a checkpoint.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SavedError {
    /// The total is negative.
    #[error("cannot load checkpoint with negative weight {0}")]
    NegativeWeight(f64),
    /// The total is no number.
    #[error("cannot load checkpoint with weight {0}")]
    UnsoundWeight(f64),
    /// A bucket that no histogram has.
    #[error("checkpoint has bucket {0} that is exceeding histogram buckets {BUCKETS}")]
    BucketTooLarge(i64),
    /// A bucket below the first.
    #[error("checkpoint has a negative bucket {0}")]
    NegativeBucket(i64),
}

impl Histogram {
    /// This histogram in the precision of a checkpoint.
    #[must_use]
    pub fn save(&self) -> Saved {
        let range = self.plain.min..=self.plain.max;
        let weights = || {
            self.plain
                .weights
                .iter()
                .filter(|(bucket, _)| range.contains(bucket))
        };
        let largest = weights().fold(0.0, |largest: f64, (_, weight)| largest.max(weight));
        let scale = LARGEST / largest;
        Saved {
            reference: self.reference(),
            weights: weights()
                .map(|(bucket, weight)| (i64::from(bucket), num::trunc(weight * scale + 0.5)))
                .filter_map(|(bucket, weight)| Some((bucket, u32::try_from(weight).ok().filter(|w| *w > 0)?)))
                .collect(),
            total: self.plain.total,
        }
    }

    /// The histogram that a checkpoint carries.
    ///
    /// # Errors
    /// When a bucket is not one of ours or the total is not a weight.
    pub fn load(resource: Resource, half_life: HalfLife, saved: &Saved) -> Result<Self, SavedError> {
        if saved.total < 0.0 {
            return Err(SavedError::NegativeWeight(saved.total));
        }
        if !saved.total.is_finite() {
            return Err(SavedError::UnsoundWeight(saved.total));
        }
        let weights = saved
            .weights
            .iter()
            .map(|(bucket, weight)| Ok((bucket_of(*bucket)?, *weight)))
            .collect::<Result<Vec<(u8, u32)>, SavedError>>()?;

        let mut histogram = Self::new(resource, half_life);
        histogram.reference = saved.reference.unwrap_or(NEVER);
        let parts: i64 = weights.iter().map(|(_, weight)| i64::from(*weight)).sum();
        if parts == 0 {
            return Ok(histogram);
        }
        let part = saved.total / num::float(parts);
        let plain = &mut histogram.plain;
        for (bucket, weight) in weights {
            plain
                .weights
                .update(bucket, |old| sum(old, f64::from(weight) * part));
            plain.min = plain.min.min(bucket);
            plain.max = plain.max.max(bucket);
        }
        plain.total = saved.total;
        plain.shrink();
        Ok(histogram)
    }
}

fn bucket_of(index: i64) -> Result<u8, SavedError> {
    if index < 0 {
        return Err(SavedError::NegativeBucket(index));
    }
    u8::try_from(index)
        .ok()
        .filter(|bucket| *bucket <= LAST)
        .ok_or(SavedError::BucketTooLarge(index))
}
