//! A histogram of weighted values without a notion of time. It keeps, besides the weights, their total and the range
//! of buckets that carry a noticeable weight, each moved by exactly the rules of `spec/vpa.md` 2.5.

use super::{
    buckets::{LAST, Resource},
    weights::Weights,
};

/// Below this a weight counts as nothing: a thousandth of the smallest weight of a sample.
pub(crate) const EPSILON: f64 = 0.001 * 0.1;

/// Weighted values of one resource.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plain {
    pub(crate) resource: Resource,
    pub(crate) min: u8,
    pub(crate) max: u8,
    pub(crate) total: f64,
    pub(crate) weights: Weights,
}

impl Plain {
    pub(crate) fn new(resource: Resource) -> Self {
        Self {
            resource,
            min: LAST,
            max: 0,
            total: 0.0,
            weights: Weights::default(),
        }
    }

    pub(crate) fn add(&mut self, value: f64, weight: f64) {
        let bucket = self.resource.bucket(value);
        let now = self.weights.update(bucket, |old| sum(old, weight));
        self.total = sum(self.total, weight);
        if now >= EPSILON {
            self.min = self.min.min(bucket);
            self.max = self.max.max(bucket);
        }
    }

    pub(crate) fn subtract(&mut self, value: f64, weight: f64) {
        self.take(self.resource.bucket(value), weight);
    }

    /// Takes a weight out of a bucket and out of the total; neither falls below nothing.
    pub(crate) fn take(&mut self, bucket: u8, weight: f64) {
        self.total = difference(self.total, weight);
        if self.weights.get(bucket) != 0.0 {
            self.weights.update(bucket, |old| difference(old, weight));
        }
        self.shrink();
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (bucket, weight) in other.weights.iter() {
            if (other.min..=other.max).contains(&bucket) {
                self.weights.update(bucket, |old| sum(old, weight));
            }
        }
        self.total = sum(self.total, other.total);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    pub(crate) fn scale(&mut self, factor: f64) {
        self.weights.scale(&(self.min..=self.max), factor);
        self.total *= factor;
        self.shrink();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.weights.get(self.min) < EPSILON
    }

    /// The upper end of the bucket where the running sum of weights reaches the fraction; 0 when empty.
    pub(crate) fn percentile(&self, fraction: f64) -> f64 {
        self.bucket_at(fraction)
            .map_or(0.0, |bucket| self.resource.start(bucket + 1))
    }

    /// The bucket where the running sum of weights reaches the fraction; none when empty.
    pub(crate) fn bucket_at(&self, fraction: f64) -> Option<u8> {
        if self.is_empty() {
            return None;
        }
        let threshold = fraction * self.total;
        let mut running = 0.0;
        // The highest bucket is the answer when no lower one is, so its weight is never looked at.
        let found = self
            .weights
            .iter()
            .filter(|(bucket, _)| (self.min..self.max).contains(bucket))
            .find(|(_, weight)| {
                running += weight;
                running >= threshold
            });
        Some(found.map_or(self.max, |(bucket, _)| bucket))
    }

    /// Moves the ends of the range inwards over buckets of no noticeable weight.
    pub(crate) fn shrink(&mut self) {
        let noticeable = || self.weights.iter().filter(|(_, weight)| *weight >= EPSILON);
        let min = noticeable()
            .map(|(bucket, _)| bucket)
            .find(|bucket| *bucket >= self.min);
        let max = noticeable()
            .map(|(bucket, _)| bucket)
            .filter(|bucket| *bucket <= self.max)
            .last();
        self.min = min.unwrap_or(LAST);
        self.max = max.unwrap_or(0);
    }
}

/// Beyond the largest double the sum stays there: an infinite weight would turn into no number at the next scaling.
pub(crate) fn sum(a: f64, b: f64) -> f64 {
    (a + b).min(f64::MAX)
}

fn difference(a: f64, b: f64) -> f64 {
    let rest = a - b;
    if rest < EPSILON { 0.0 } else { rest }
}
