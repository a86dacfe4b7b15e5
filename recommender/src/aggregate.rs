//! The usage history of one container name under one label set, or of several of them merged: two histograms and
//! when their samples were taken (`spec/vpa.md` 2.4).

use crate::{
    histogram::{HalfLife, Histogram, Resource},
    instant, num,
    peaks::Peaks,
};
use chrono::{DateTime, TimeDelta, Utc};
use common::quantity::{Bytes, MilliCpu};

/// The weight of every CPU sample.
pub(crate) const CPU_WEIGHT: f64 = 0.1;

/// The weight of every memory peak.
const PEAK_WEIGHT: f64 = 1.0;

/// How fast the two histograms fade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfLives {
    /// Of CPU samples.
    pub cpu: HalfLife,
    /// Of memory peaks.
    pub memory: HalfLife,
}

/// What the policy of a VPA may set for each container.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The length of the window that has one memory peak.
    pub interval: TimeDelta,
    /// How many such windows count.
    pub interval_count: i64,
    /// By how much an OOM raises what was used.
    pub oom_ratio: f64,
    /// By how many bytes it does so at least.
    pub oom_min_bump: f64,
    /// The most memory that can be given, if there is a limit to it.
    pub memory_cap: Option<Bytes>,
}

impl Settings {
    /// How far back usage counts.
    #[must_use]
    pub fn window(&self) -> TimeDelta {
        instant::times(self.interval, self.interval_count)
    }

    /// How far back memory peaks count: the youngest always does.
    #[must_use]
    pub fn memory_window(&self) -> TimeDelta {
        self.window().max(TimeDelta::nanoseconds(1))
    }
}

/// What is known of the usage of a container.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// CPU use, in cores.
    pub cpu: Histogram,
    /// Memory peaks, in bytes.
    pub memory: Histogram,
    /// The first CPU sample.
    pub first_sample: Option<DateTime<Utc>>,
    /// The last CPU sample.
    pub last_sample: Option<DateTime<Utc>>,
    /// How many CPU samples there were.
    pub samples: i64,
}

impl History {
    /// No usage at all.
    #[must_use]
    pub fn new(half_lives: HalfLives) -> Self {
        Self {
            cpu: Histogram::new(Resource::Cpu, half_lives.cpu),
            memory: Histogram::new(Resource::Memory, half_lives.memory),
            first_sample: None,
            last_sample: None,
            samples: 0,
        }
    }

    /// Adds a CPU sample.
    pub fn add_cpu(&mut self, usage: MilliCpu, time: DateTime<Utc>) {
        self.cpu.add(num::float(usage.0) / 1000.0, CPU_WEIGHT, time);
        self.last_sample = self.last_sample.max(Some(time));
        self.first_sample = earliest(self.first_sample, Some(time));
        self.samples = self.samples.saturating_add(1);
    }

    /// Adds the memory peak of a window that ends at this time.
    pub fn add_peak(&mut self, peak: Bytes, end: DateTime<Utc>) {
        self.memory.add(num::float(peak.0), PEAK_WEIGHT, end);
    }

    /// Takes the memory peak of a window out again.
    pub fn subtract_peak(&mut self, peak: Bytes, end: DateTime<Utc>) {
        self.memory.subtract(num::float(peak.0), PEAK_WEIGHT, end);
    }

    /// Adds everything that another history knows.
    pub fn merge(&mut self, other: &Self) {
        self.memory.merge(&other.memory);
        self.cpu.merge(&other.cpu);
        self.last_sample = self.last_sample.max(other.last_sample);
        self.first_sample = earliest(self.first_sample, other.first_sample);
        self.samples = self.samples.saturating_add(other.samples);
    }
}

fn earliest(a: Option<DateTime<Utc>>, b: Option<DateTime<Utc>>) -> Option<DateTime<Utc>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// A history that new samples go into.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    /// What is known.
    pub history: History,
    /// When each part of the memory histogram was seen; empty where nothing is ever forgotten.
    pub peaks: Peaks,
    /// The end of the latest window that has a peak in it.
    pub last_peak: Option<DateTime<Utc>>,
    /// When it was set up.
    pub created: DateTime<Utc>,
    /// Where it differs from the recommender's own.
    settings: Option<Box<Settings>>,
}

impl Aggregate {
    /// An aggregate without samples.
    #[must_use]
    pub fn new(half_lives: HalfLives, created: DateTime<Utc>) -> Self {
        Self {
            history: History::new(half_lives),
            peaks: Peaks::default(),
            last_peak: None,
            created,
            settings: None,
        }
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self, defaults: &Settings) -> Settings {
        self.settings.as_deref().copied().unwrap_or(*defaults)
    }

    /// Puts settings in force.
    pub fn configure(&mut self, settings: Settings, defaults: &Settings) {
        self.settings = (settings != *defaults).then(|| Box::new(settings));
    }

    /// Adds the memory peak of a window, and forgets what lies too far before it unless nothing is to be forgotten.
    pub fn add_peak(&mut self, peak: Bytes, end: DateTime<Utc>, settings: &Settings, forget: bool) {
        self.history.add_peak(peak, end);
        self.last_peak = self.last_peak.max(Some(end));
        if forget {
            self.peaks
                .add(peak, end, settings, self.history.memory.half_life());
            for old in self.peaks.expire(settings.memory_window()) {
                self.history.memory.forget(&old);
            }
        }
    }

    /// Takes the memory peak of a window out again.
    pub fn subtract_peak(&mut self, peak: Bytes, end: DateTime<Utc>, settings: &Settings, forget: bool) {
        self.history.subtract_peak(peak, end);
        if forget {
            self.peaks
                .subtract(peak, end, settings, self.history.memory.half_life());
        }
    }
}
