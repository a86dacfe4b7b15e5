//! How sure a percentile is: an interval that holds the true one whatever the distribution of usage, found by counting
//! samples (order statistics). Samples count as independent; those of one container a minute apart are not quite, so
//! the true interval is wider rather than narrower.

use crate::{
    aggregate::{CPU_WEIGHT, History},
    histogram::{HalfLife, Histogram, Part},
    num,
};
use statrs::distribution::{Binomial, DiscreteCDF as _};

/// Beyond this many samples the interval is one bucket wide anyway.
const MOST: i64 = 1_000_000_000;

/// Where a percentile lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Not below this.
    pub low: f64,
    /// Not above this; nothing if there are too few samples to say.
    pub high: Option<f64>,
}

/// The interval that holds a percentile with this probability at least, given what the samples of a histogram are
/// worth. Nothing where there is no sample, or no such percentile.
#[must_use]
pub fn interval(histogram: &Histogram, fraction: f64, worth: f64, level: f64) -> Option<Interval> {
    let samples = u64::try_from(num::trunc(worth).min(MOST))
        .ok()
        .filter(|n| *n > 0)?;
    if histogram.is_empty() || !(fraction > 0.0 && fraction < 1.0) {
        return None;
    }
    let Ranks { low, high } = Ranks::of(samples, fraction, level)?;
    let resource = histogram.resource();
    // Any fraction between two ranks gives the upper one; the middle is safe from rounding.
    let bucket = |rank: u64| histogram.bucket_at((count(rank) - 0.5) / count(samples));
    let low = low.map_or(0.0, |rank| {
        bucket(rank).map_or(0.0, |bucket| resource.start(bucket))
    });
    let high = high.and_then(bucket).and_then(|bucket| {
        (resource.start(bucket + 1) > resource.start(bucket)).then(|| resource.start(bucket + 1))
    });
    Some(Interval { low, high })
}

/// Between which of the sorted samples a percentile lies, counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ranks {
    low: Option<u64>,
    high: Option<u64>,
}

impl Ranks {
    /// The number of samples below a percentile is binomial, whatever the distribution.
    fn of(samples: u64, fraction: f64, level: f64) -> Option<Self> {
        let below = Binomial::new(fraction, samples).ok()?;
        let tail = (1.0 - level) / 2.0;
        let low = first(samples, |count| below.cdf(count) > tail);
        let high = first(samples, |count| below.cdf(count) >= 1.0 - tail) + 1;
        Some(Self {
            low: Some(low).filter(|rank| *rank > 0),
            high: Some(high).filter(|rank| *rank <= samples),
        })
    }
}

/// The first number up to `end` of which something holds that holds for all after it; otherwise `end`.
fn first(end: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut from, mut to) = (0, end);
    while from < to {
        let middle = from + (to - from) / 2;
        if holds(middle) {
            to = middle;
        } else {
            from = middle + 1;
        }
    }
    from
}

fn count(value: u64) -> f64 {
    num::float(i64::try_from(value).unwrap_or(i64::MAX))
}

/// What fading CPU samples are worth in samples that do not fade: the square of the sum of their weights over the sum
/// of the squares (Kish). Of the weights only the sum is known; the squares follow if samples came evenly.
#[must_use]
pub fn worth_of_cpu(history: &History) -> f64 {
    let (Some(first), Some(last)) = (history.first_sample, history.last_sample) else {
        return 0.0;
    };
    let Some(reference) = history.cpu.reference() else {
        return 0.0;
    };
    let half_life = history.cpu.half_life();
    let sum = history.cpu.total() / CPU_WEIGHT * half_life.growth(last, reference);
    let faded = half_life.growth(last, first);
    let worth = 2.0 * sum / (1.0 + faded);
    worth.min(num::float(history.samples)).max(0.0)
}

/// What fading memory peaks are worth in peaks that do not fade, given when they were seen. Where nobody noted that, the
/// sum of their weights, which is less.
#[must_use]
pub fn worth_of_memory(history: &History, parts: &[Part]) -> f64 {
    let half_life = history.memory.half_life();
    match parts.iter().map(|part| part.time).max() {
        Some(newest) => worth_of_parts(parts, newest, half_life),
        None => history
            .last_sample
            .or(history.memory.reference())
            .zip(history.memory.reference())
            .map_or(0.0, |(last, reference)| {
                history.memory.total() * half_life.growth(last, reference)
            }),
    }
}

fn worth_of_parts(parts: &[Part], newest: chrono::DateTime<chrono::Utc>, half_life: HalfLife) -> f64 {
    // The peaks of one part weigh at most one each when they were seen, so the sum of their squares is at most that of
    // their weights.
    let (sum, squares) = parts.iter().fold((0.0, 0.0), |(sum, squares), part| {
        let faded = half_life.growth(newest, part.time);
        (sum + part.weight * faded, squares + part.weight * faded * faded)
    });
    if squares > 0.0 { sum * sum / squares } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{aggregate::HalfLives, histogram::Resource};
    use chrono::{DateTime, TimeDelta, Utc};
    use common::quantity::MilliCpu;

    const LEVEL: f64 = 0.95;

    /// The textbook's table: for the median of ten values the second and the ninth.
    #[test]
    fn ranks_are_those_of_the_textbook() {
        for (samples, fraction, low, high) in [
            (1, 0.5, None, None),
            (5, 0.5, None, None),
            (6, 0.5, Some(1), Some(6)),
            (10, 0.5, Some(2), Some(9)),
            (20, 0.5, Some(6), Some(15)),
            (100, 0.5, Some(40), Some(61)),
            (10, 0.9, Some(7), None),
            (50, 0.9, Some(41), Some(50)),
            (59, 0.95, Some(52), None),
        ] {
            assert_eq!(
                Ranks::of(samples, fraction, LEVEL),
                Some(Ranks { low, high }),
                "{samples} {fraction}"
            );
        }
    }

    fn start() -> DateTime<Utc> {
        "2026-03-01T00:00:00Z".parse().unwrap()
    }

    /// Numbers that look random and are the same every time (splitmix64).
    struct Random(u64);

    impl Random {
        /// From 0 to 1.
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^= mixed >> 31;
            f64::from(u32::try_from(mixed >> 32).unwrap()) / f64::from(u32::MAX)
        }
    }

    /// A distribution by its quantiles.
    type Quantile = fn(f64) -> f64;

    /// Samples of a distribution, one a minute, that fade with this half-life.
    fn history(random: &mut Random, quantile: Quantile, samples: i64, half_life: TimeDelta) -> History {
        let half_life = HalfLife::new(half_life).unwrap();
        let mut history = History::new(HalfLives {
            cpu: half_life,
            memory: half_life,
        });
        for minute in 0..samples {
            let milli = num::trunc(quantile(random.next()) * 1000.0);
            history.add_cpu(MilliCpu(milli), start() + TimeDelta::minutes(minute));
        }
        history
    }

    /// The part of many simulations in which the interval holds the true percentile, for each fraction.
    fn coverage<const N: usize>(
        quantile: Quantile,
        fractions: [f64; N],
        samples: i64,
        half_life: TimeDelta,
        worth: impl Fn(&History) -> f64,
    ) -> [f64; N] {
        const TRIALS: u32 = 200;
        let mut random = Random(7);
        let mut held = [0_u32; N];
        for _ in 0..TRIALS {
            let history = history(&mut random, quantile, samples, half_life);
            let worth = worth(&history);
            for (held, fraction) in held.iter_mut().zip(fractions) {
                let truth = quantile(fraction);
                let Interval { low, high } = interval(&history.cpu, fraction, worth, LEVEL).unwrap();
                *held += u32::from(low <= truth && high.is_none_or(|high| truth <= high));
            }
        }
        held.map(|held| f64::from(held) / f64::from(TRIALS))
    }

    #[test]
    fn intervals_hold_the_percentile_as_often_as_they_say() {
        let distributions: [(&str, Quantile); 3] = [
            ("even", |p| 4.0 * p),
            ("long tail", |p| 0.2 / (1.0 - 0.99 * p)),
            ("mostly idle", |p| if p < 0.8 { 0.02 } else { 2.0 * p }),
        ];
        for (name, quantile) in distributions {
            for (samples, half_life) in [
                (60, TimeDelta::days(30)),
                // Eight half-lives: the first sample weighs 1/256.
                (200, TimeDelta::minutes(25)),
            ] {
                let fractions = [0.5, 0.9, 0.95];
                let held = coverage(quantile, fractions, samples, half_life, worth_of_cpu);
                let rarest = held.into_iter().fold(1.0, f64::min);
                assert!(
                    rarest >= 0.94,
                    "{name} {samples} {half_life}: {fractions:?} in {held:?}"
                );
            }
        }
    }

    /// Why the worth is needed: counted one by one, fading samples promise more than they hold.
    #[test]
    fn fading_samples_are_worth_less_than_their_number() {
        let half_life = TimeDelta::minutes(25);
        let [naive] = coverage(
            |p| 4.0 * p,
            [0.5],
            200,
            half_life,
            |history| num::float(history.samples),
        );
        assert!(naive < 0.93, "{naive}");
        let history = history(&mut Random(7), |p| 4.0 * p, 200, half_life);
        let worth = worth_of_cpu(&history);
        assert!((70.0..75.0).contains(&worth), "{worth}");
    }

    #[test]
    fn samples_that_do_not_fade_are_worth_their_number_and_narrow_the_interval() {
        let width = |samples| {
            let history = history(&mut Random(7), |p| 4.0 * p, samples, TimeDelta::days(3000));
            let worth = worth_of_cpu(&history);
            assert!((worth - num::float(samples)).abs() < 1.0, "{worth} {samples}");
            let Interval { low, high } = interval(&history.cpu, 0.5, worth, LEVEL).unwrap();
            high.unwrap() - low
        };
        let (few, many) = (width(50), width(1000));
        assert!(many < few / 2.0, "{many} {few}");
    }

    #[test]
    fn memory_peaks_are_worth_what_they_weigh() {
        let day = HalfLife::new(TimeDelta::days(1)).unwrap();
        let mut history = History::new(HalfLives {
            cpu: day,
            memory: day,
        });
        assert_eq!(worth_of_memory(&history, &[]), 0.0);
        let part = |days: i64, weight: f64| Part {
            time: start() + TimeDelta::days(days),
            bucket: 30,
            weight,
        };
        // Three pods on one day.
        assert_eq!(worth_of_memory(&history, &[part(0, 3.0)]), 3.0);
        // One peak a day: (1 + ½ + ¼)² / (1 + ¼ + 1/16).
        let days = [part(0, 1.0), part(1, 1.0), part(2, 1.0)];
        let worth = worth_of_memory(&history, &days);
        assert!((worth - 3.0625 / 1.3125).abs() < 1e-9, "{worth}");
        // Nobody noted when: the weights alone.
        history.memory.add(1e8, 1.0, start());
        history.memory.add(1e8, 1.0, start() + TimeDelta::days(1));
        history.last_sample = Some(start() + TimeDelta::days(1));
        let worth = worth_of_memory(&history, &[]);
        assert!((worth - 1.5).abs() < 1e-9, "{worth}");
    }

    #[test]
    fn no_sample_and_no_such_percentile_give_no_interval() {
        let day = HalfLife::new(TimeDelta::days(1)).unwrap();
        let mut histogram = Histogram::new(Resource::Cpu, day);
        assert_eq!(interval(&histogram, 0.5, 10.0, LEVEL), None);
        histogram.add(1.0, 0.1, start());
        for (fraction, worth) in [
            (0.0, 10.0),
            (1.0, 10.0),
            (f64::NAN, 10.0),
            (0.5, 0.5),
            (0.5, f64::NAN),
            (0.5, -1.0),
        ] {
            assert_eq!(
                interval(&histogram, fraction, worth, LEVEL),
                None,
                "{fraction} {worth}"
            );
        }
        let one = Interval { low: 0.0, high: None };
        assert_eq!(interval(&histogram, 0.5, 1.0, LEVEL), Some(one));
        assert!(interval(&histogram, 0.5, f64::INFINITY, LEVEL).is_some());
    }
}
