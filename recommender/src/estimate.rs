//! From histories to numbers: target, bounds, confidence and the minimum that the containers of a pod share
//! (`spec/vpa.md` 2.9).

use crate::{
    aggregate::History,
    histogram::{Histogram, powi},
    instant, num,
    policy::PerResource,
    window::amount,
};
use chrono::TimeDelta;
use common::quantity::{Bytes, MilliCpu};

/// How recommendations are made from histories.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EstimatorConfig {
    /// What is added for safety, as a share.
    pub margin: f64,
    /// The least CPU of a pod, in millicores.
    pub pod_min_cpu_millicores: f64,
    /// The least memory of a pod, in MiB.
    pub pod_min_memory_mb: f64,
    /// For CPU.
    pub cpu: Percentiles,
    /// For memory.
    pub memory: Percentiles,
}

/// Which percentiles become target and bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentiles {
    /// Of the target.
    pub target: f64,
    /// Of the lower bound.
    pub lower: f64,
    /// Of the upper bound.
    pub upper: f64,
    /// The history that gives a confidence of one.
    pub confidence_interval: TimeDelta,
}

/// What a container should have of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds<T> {
    /// The best guess.
    pub target: T,
    /// What it should have at least.
    pub lower: T,
    /// What is more than it needs.
    pub upper: T,
}

/// What a container should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Of CPU.
    pub cpu: Bounds<MilliCpu>,
    /// Of memory.
    pub memory: Bounds<Bytes>,
}

/// How one number was made, step by step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Derivation {
    /// Which part of the weight lies below.
    pub fraction: f64,
    /// The usage there, in millicores or bytes.
    pub percentile: i64,
    /// The same with the margin on top.
    pub with_margin: i64,
    /// What the confidence makes of it, where it counts.
    pub factor: Option<f64>,
    /// The least that the container gets.
    pub minimum: i64,
}

impl Derivation {
    /// The number after the confidence, before the minimum.
    #[must_use]
    pub fn scaled(&self) -> i64 {
        self.factor.map_or(self.with_margin, |factor| {
            amount(num::float(self.with_margin) * factor)
        })
    }

    /// The number.
    #[must_use]
    pub fn amount(&self) -> i64 {
        self.scaled().max(self.minimum)
    }
}

impl EstimatorConfig {
    /// What one of a pod's containers should have.
    #[must_use]
    pub fn estimate(&self, history: &History, containers: usize) -> Estimate {
        let PerResource { cpu, memory } = self.derive(history, containers);
        Estimate {
            cpu: cpu.map(|derivation| MilliCpu(derivation.amount())),
            memory: memory.map(|derivation| Bytes(derivation.amount())),
        }
    }

    /// How the numbers of one of a pod's containers are made.
    #[must_use]
    pub fn derive(&self, history: &History, containers: usize) -> PerResource<Bounds<Derivation>> {
        let min = self.minimum(containers);
        PerResource {
            cpu: self.bounds(history, &history.cpu, 1000.0, &self.cpu, min.cpu.0),
            memory: self.bounds(history, &history.memory, 1.0, &self.memory, min.memory.0),
        }
    }

    /// The least that each of a pod's containers gets.
    #[must_use]
    pub fn minimum(&self, containers: usize) -> Minimum {
        let share = 1.0 / num::float(i64::try_from(containers.max(1)).unwrap_or(i64::MAX));
        let part = |whole: f64| amount(num::float(amount(whole)) * share);
        Minimum {
            cpu: MilliCpu(part(self.pod_min_cpu_millicores * 0.001 * 1000.0)),
            memory: Bytes(part(self.pod_min_memory_mb * 1024.0 * 1024.0)),
        }
    }

    fn bounds(
        &self,
        history: &History,
        histogram: &Histogram,
        unit: f64,
        percentiles: &Percentiles,
        minimum: i64,
    ) -> Bounds<Derivation> {
        let derive = |fraction: f64, factor: Option<f64>| {
            let percentile = amount(histogram.percentile(fraction) * unit);
            Derivation {
                fraction,
                percentile,
                with_margin: percentile.saturating_add(amount(num::float(percentile) * self.margin)),
                factor,
                minimum,
            }
        };
        let confidence = confidence(history, percentiles.confidence_interval);
        Bounds {
            target: derive(percentiles.target, None),
            lower: derive(percentiles.lower, Some(powi(1.0 + 0.001 / confidence, -2))),
            upper: derive(percentiles.upper, Some(powi(1.0 + 1.0 / confidence, 1))),
        }
    }
}

impl<T> Bounds<T> {
    /// The same of something else.
    pub(crate) fn map<U>(self, change: impl Fn(T) -> U) -> Bounds<U> {
        Bounds {
            target: change(self.target),
            lower: change(self.lower),
            upper: change(self.upper),
        }
    }
}

/// The least that each container gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Minimum {
    /// Of CPU.
    pub cpu: MilliCpu,
    /// Of memory.
    pub memory: Bytes,
}

/// How much history there is, in intervals: the time it spans, or its samples at one a minute, whichever is less.
#[must_use]
pub fn confidence(history: &History, interval: TimeDelta) -> f64 {
    let span = match (history.first_sample, history.last_sample) {
        (Some(first), Some(last)) => instant::since(last, first),
        _ => 0,
    };
    let interval = instant::length(interval);
    let by_time = num::float(span) / num::float(interval);
    let by_count = num::float(history.samples) / minutes(interval);
    by_time.min(by_count)
}

/// Nanoseconds in minutes, summed as upstream sums them.
fn minutes(nanos: i64) -> f64 {
    const MINUTE: i64 = 60_000_000_000;
    num::float(nanos / MINUTE) + num::float(nanos % MINUTE) / 6e10
}

/// For which resources there was a sample at all. An OOM is one of memory.
#[must_use]
pub fn sampled(history: &History) -> PerResource<bool> {
    PerResource {
        cpu: history.samples > 0 || !history.cpu.is_empty(),
        memory: !history.memory.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{aggregate::HalfLives, histogram::HalfLife};
    use chrono::{DateTime, Utc};
    use proptest::prelude::*;

    fn defaults() -> EstimatorConfig {
        let percentiles = Percentiles {
            target: 0.9,
            lower: 0.5,
            upper: 0.95,
            confidence_interval: TimeDelta::days(1),
        };
        EstimatorConfig {
            margin: 0.15,
            pod_min_cpu_millicores: 25.0,
            pod_min_memory_mb: 250.0,
            cpu: percentiles,
            memory: percentiles,
        }
    }

    fn history() -> History {
        let day = HalfLife::new(TimeDelta::days(1)).unwrap();
        History::new(HalfLives {
            cpu: day,
            memory: day,
        })
    }

    fn start() -> DateTime<Utc> {
        "2026-03-01T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_pods_minimum_is_shared() {
        for (containers, cpu, memory) in [(0, 25, 262_144_000), (1, 25, 262_144_000), (3, 8, 87_381_333)] {
            let expected = Minimum {
                cpu: MilliCpu(cpu),
                memory: Bytes(memory),
            };
            assert_eq!(defaults().minimum(containers), expected);
        }
    }

    #[test]
    fn without_samples_all_is_the_minimum() {
        let Estimate { cpu, memory } = defaults().estimate(&history(), 1);
        assert_eq!([cpu.target, cpu.lower, cpu.upper], [MilliCpu(25); 3]);
        assert_eq!(
            [memory.target, memory.lower, memory.upper],
            [Bytes(262_144_000); 3]
        );
    }

    #[test]
    fn one_sample_gives_a_target_and_no_confidence() {
        let mut history = history();
        history.add_cpu(MilliCpu(200), start());
        history.add_peak(Bytes(300_000_000), start());
        let Estimate { cpu, memory } = defaults().estimate(&history, 1);
        assert_eq!(
            [cpu.target.0, cpu.lower.0, cpu.upper.0],
            [247, 25, 100_000_000_000_000]
        );
        assert_eq!(
            [memory.target.0, memory.lower.0, memory.upper.0],
            [351_198_544, 262_144_000, 100_000_000_000_000]
        );
    }

    #[test]
    fn confidence_is_time_or_count_whichever_is_less() {
        let mut history = history();
        assert_eq!(confidence(&history, TimeDelta::days(1)), 0.0);
        for minute in 0..=720 {
            history.add_cpu(MilliCpu(200), start() + TimeDelta::minutes(minute));
        }
        assert_eq!(confidence(&history, TimeDelta::days(1)), 0.5);
        history.samples = 144;
        assert_eq!(confidence(&history, TimeDelta::days(1)), 0.1);
    }

    #[test]
    fn an_oom_is_a_sample_of_memory_alone() {
        let mut history = history();
        assert_eq!(
            sampled(&history),
            PerResource {
                cpu: false,
                memory: false
            }
        );
        history.add_peak(Bytes(1), start());
        assert_eq!(
            sampled(&history),
            PerResource {
                cpu: false,
                memory: true
            }
        );
        history.add_cpu(MilliCpu(0), start());
        assert_eq!(
            sampled(&history),
            PerResource {
                cpu: true,
                memory: true
            }
        );
    }

    proptest! {
        #[test]
        fn bounds_enclose_the_target(
            samples in prop::collection::vec((0_i64..10_000, 1_i64..2000), 1..100),
            containers in 1_usize..5,
        ) {
            let mut history = history();
            let mut time = start();
            for (milli, minutes) in samples {
                time += TimeDelta::minutes(minutes);
                history.add_cpu(MilliCpu(milli), time);
            }
            let Estimate { cpu, .. } = defaults().estimate(&history, containers);
            prop_assert!(cpu.lower <= cpu.target && cpu.target <= cpu.upper, "{cpu:?}");
        }

        /// Whatever a checkpoint said, there is an answer between nothing and the most.
        #[test]
        fn any_history_is_answered(
            value in any::<f64>(),
            samples in any::<i64>(),
            first in any::<i64>(),
            last in any::<i64>(),
            margin in any::<f64>(),
            interval in any::<i64>(),
        ) {
            let mut history = history();
            history.cpu.add(value, 1.0, start());
            history.samples = samples;
            history.first_sample = Some(DateTime::from_timestamp_nanos(first));
            history.last_sample = Some(DateTime::from_timestamp_nanos(last));
            let mut config = EstimatorConfig { margin, ..defaults() };
            config.cpu.confidence_interval = TimeDelta::nanoseconds(interval);
            let Estimate { cpu, .. } = config.estimate(&history, 1);
            for bound in [cpu.target, cpu.lower, cpu.upper] {
                prop_assert!((25..=200_000_000_000_000).contains(&bound.0), "{cpu:?}");
            }
        }
    }
}
