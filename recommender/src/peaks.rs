//! When the parts of a memory histogram were seen, so that what is older than the aggregation window can be taken
//! out of it again (kubernetes/autoscaler#10255). About eight slots of time, whatever the window.

use crate::{
    aggregate::Settings,
    histogram::{HalfLife, Part, Resource},
    instant, num,
};
use chrono::{DateTime, TimeDelta, Utc};
use common::quantity::Bytes;

/// How many slots a window is cut into, if it has that many intervals.
const SLOTS: i64 = 8;

/// Below this share of one peak a rest is an error of rounding.
const NOTHING: f64 = 1e-9;

/// The parts of a memory histogram by the time they were seen, sorted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peaks(Vec<Part>);

impl Peaks {
    /// All parts.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.0
    }

    /// The end of the youngest slot.
    #[must_use]
    pub fn newest(&self) -> Option<DateTime<Utc>> {
        self.0.iter().map(|part| part.time).max()
    }

    pub(crate) fn add(&mut self, peak: Bytes, end: DateTime<Utc>, settings: &Settings, half_life: HalfLife) {
        self.change(peak, end, settings, half_life, 1.0);
    }

    pub(crate) fn subtract(
        &mut self,
        peak: Bytes,
        end: DateTime<Utc>,
        settings: &Settings,
        half_life: HalfLife,
    ) {
        self.change(peak, end, settings, half_life, -1.0);
    }

    /// Takes out the parts that are older than the window, counted from the youngest: where nothing new comes in,
    /// nothing is forgotten.
    pub(crate) fn expire(&mut self, window: TimeDelta) -> Vec<Part> {
        let Some(newest) = self.newest() else {
            return Vec::new();
        };
        let oldest = instant::minus(newest, window);
        let (kept, expired) = self.0.drain(..).partition(|part| part.time > oldest);
        self.0 = kept;
        expired
    }

    fn change(
        &mut self,
        peak: Bytes,
        end: DateTime<Utc>,
        settings: &Settings,
        half_life: HalfLife,
        weight: f64,
    ) {
        let bucket = Resource::Memory.bucket(num::float(peak.0));
        let time = slot_end(end, settings);
        let weight = weight * half_life.growth(time, end);
        let key = |part: &Part| (part.time, part.bucket);
        match self.0.binary_search_by_key(&(time, bucket), key) {
            Ok(at) => {
                self.0[at].weight += weight;
                if self.0[at].weight <= NOTHING {
                    self.0.remove(at);
                }
            }
            Err(at) if weight > 0.0 => {
                self.0.reserve_exact(1);
                self.0.insert(at, Part { time, bucket, weight });
            }
            Err(_) => {}
        }
    }
}

impl FromIterator<Part> for Peaks {
    /// Parts of one slot and bucket are summed up.
    fn from_iter<I: IntoIterator<Item = Part>>(parts: I) -> Self {
        let mut parts: Vec<Part> = parts.into_iter().collect();
        parts.sort_by_key(|part| (part.time, part.bucket));
        parts.dedup_by(|later, earlier| {
            let same = (later.time, later.bucket) == (earlier.time, earlier.bucket);
            if same {
                earlier.weight += later.weight;
            }
            same
        });
        Self(parts)
    }
}

/// The end of the slot that a window's end lies in.
fn slot_end(end: DateTime<Utc>, settings: &Settings) -> DateTime<Utc> {
    let intervals = settings.interval_count.max(1).div_euclid(SLOTS).max(1);
    let slot = i128::from(instant::length(instant::times(settings.interval, intervals)).max(1));
    let nanos = instant::nanos(end);
    instant::at(nanos + (-nanos).rem_euclid(slot))
}
