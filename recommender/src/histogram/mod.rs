//! Histograms in which every sample loses half its weight with every half-life (`spec/vpa.md` 2.5). They cost what
//! they contain, and every number in them equals VPA's bit for bit.

mod buckets;
mod checkpoint;
mod plain;
mod power;
#[cfg(test)]
mod tests;
mod weights;

pub use buckets::{BUCKETS, Resource};
pub use checkpoint::{Saved, SavedError};
pub(crate) use power::powi;

use crate::{
    instant::{NEVER, at, nanos, since},
    num,
};
use chrono::{DateTime, TimeDelta, Utc};
use plain::Plain;

/// The time after which a sample counts half: at least a nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfLife(i64);

impl HalfLife {
    /// A half-life of this length, if it is positive and shorter than 292 years.
    #[must_use]
    pub fn new(length: TimeDelta) -> Option<Self> {
        length.num_nanoseconds().filter(|nanos| *nanos > 0).map(Self)
    }

    /// What a sample at one time weighs in terms of one at another.
    pub(crate) fn growth(self, from: DateTime<Utc>, to: DateTime<Utc>) -> f64 {
        power::exp2(num::float(since(to, from)) / num::float(self.0))
    }
}

/// A histogram whose samples fade.
///
/// Instead of shrinking all old weights as time goes by, new samples weigh more: `2^((t − reference)/half-life)`. The
/// reference moves on, and the weights are scaled down, when a sample comes more than 100 half-lives after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    half_life: HalfLife,
    /// The time at which a sample has weight one; [`NEVER`] until there was one.
    reference: DateTime<Utc>,
    plain: Plain,
}

/// A share of a histogram: a weight in one bucket, as it was at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// The time at which the weight is meant.
    pub time: DateTime<Utc>,
    /// The bucket it lies in.
    pub bucket: u8,
    /// The weight.
    pub weight: f64,
}

impl Histogram {
    /// A histogram without samples.
    #[must_use]
    pub fn new(resource: Resource, half_life: HalfLife) -> Self {
        Self {
            half_life,
            reference: NEVER,
            plain: Plain::new(resource),
        }
    }

    /// Adds a sample. One whose value or weight is not a finite number, or whose weight is negative, is ignored.
    pub fn add(&mut self, value: f64, weight: f64, time: DateTime<Utc>) {
        if is_sound(value, weight) {
            let weight = weight * self.factor(time);
            self.plain.add(value, weight);
        }
    }

    /// Takes a sample out again; nothing falls below zero.
    pub fn subtract(&mut self, value: f64, weight: f64, time: DateTime<Utc>) {
        if is_sound(value, weight) {
            let weight = weight * self.factor(time);
            self.plain.subtract(value, weight);
        }
    }

    /// Adds all samples of another histogram of the same resource and half-life.
    pub fn merge(&mut self, other: &Self) {
        if self.reference < other.reference {
            self.shift(other.reference);
            self.plain.merge(&other.plain);
        } else if self.reference > other.reference {
            let mut other = other.clone();
            other.shift(self.reference);
            self.plain.merge(&other.plain);
        } else {
            self.plain.merge(&other.plain);
        }
    }

    /// Brings the older of two histograms to the reference of the younger, as a merge does first.
    pub fn align(&mut self, other: &mut Self) {
        if self.reference < other.reference {
            self.shift(other.reference);
        } else if self.reference > other.reference {
            other.shift(self.reference);
        }
    }

    /// The value below which this fraction of the weight lies, rounded up to the end of its bucket; 0 when empty.
    #[must_use]
    pub fn percentile(&self, fraction: f64) -> f64 {
        self.plain.percentile(fraction)
    }

    /// The bucket that the percentile is the end of; none when empty.
    #[must_use]
    pub fn bucket_at(&self, fraction: f64) -> Option<u8> {
        self.plain.bucket_at(fraction)
    }

    /// What it counts.
    #[must_use]
    pub fn resource(&self) -> Resource {
        self.plain.resource
    }

    /// Whether there is no noticeable weight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.plain.is_empty()
    }

    /// The sum of all weights.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.plain.total
    }

    /// The time at which a sample has weight one, once there was a sample.
    #[must_use]
    pub fn reference(&self) -> Option<DateTime<Utc>> {
        Some(self.reference).filter(|reference| *reference != NEVER)
    }

    /// The lowest and the highest bucket of noticeable weight; the other way round when there is none.
    #[must_use]
    pub fn range(&self) -> (u8, u8) {
        (self.plain.min, self.plain.max)
    }

    /// Every bucket that has a weight, however small, lowest first.
    pub fn weights(&self) -> impl Iterator<Item = (u8, f64)> + '_ {
        self.plain.weights.iter().filter(|(_, weight)| *weight != 0.0)
    }

    /// How fast it fades.
    #[must_use]
    pub fn half_life(&self) -> HalfLife {
        self.half_life
    }

    /// Everything in it, as parts of one time.
    pub fn parts(&self, time: DateTime<Utc>) -> impl Iterator<Item = Part> + '_ {
        let faded = self.half_life.growth(time, self.reference);
        let sound = faded.is_finite();
        self.weights()
            .filter(move |_| sound)
            .map(move |(bucket, weight)| Part {
                time,
                bucket,
                weight: weight * faded,
            })
    }

    /// Takes a part out. What is left in its bucket by rounding alone goes with it.
    pub fn forget(&mut self, part: &Part) {
        let weight = part.weight * self.half_life.growth(self.reference, part.time);
        if !is_sound(0.0, weight) {
            return;
        }
        let rest = self.plain.weights.get(part.bucket) - weight;
        let weight = if rest < weight * 1e-9 {
            weight + rest.max(0.0)
        } else {
            weight
        };
        self.plain.take(part.bucket, weight);
    }

    /// What a sample at this time weighs more than one at the reference, which moves on first if it is too far back.
    fn factor(&mut self, time: DateTime<Utc>) -> f64 {
        let far = nanos(self.reference) + 100 * i128::from(self.half_life.0);
        if nanos(time) > far {
            self.shift(time);
        }
        self.half_life.growth(self.reference, time)
    }

    /// Moves the reference to the multiple of the half-life nearest to a time, counted from the year 1.
    fn shift(&mut self, time: DateTime<Utc>) {
        let half_life = i128::from(self.half_life.0);
        let elapsed = nanos(time) - nanos(NEVER);
        let over = elapsed.rem_euclid(half_life);
        let rounded = if 2 * over < half_life {
            elapsed - over
        } else {
            elapsed - over + half_life
        };
        let reference = at(rounded + nanos(NEVER));
        let steps = num::float(since(self.reference, reference)) / num::float(self.half_life.0);
        self.plain.scale(power::exp2((steps + 0.5).floor()));
        self.reference = reference;
    }
}

fn is_sound(value: f64, weight: f64) -> bool {
    value.is_finite() && weight.is_finite() && weight >= 0.0
}
