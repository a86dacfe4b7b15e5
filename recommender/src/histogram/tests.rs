//! The worked numbers of the specification, and the laws that hold for every histogram.

use super::*;
use proptest::{collection::vec, prelude::*};
use std::collections::BTreeMap;

const DAY: HalfLife = HalfLife(86_400_000_000_000);

fn time(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn bits(values: impl Iterator<Item = (u8, f64)>) -> Vec<(u8, u64)> {
    values
        .map(|(bucket, weight)| (bucket, weight.to_bits()))
        .collect()
}

#[test]
fn a_sample_weighs_by_its_distance_from_the_nearest_midnight() {
    let mut histogram = Histogram::new(Resource::Cpu, DAY);
    histogram.add(0.3, 0.1, time("2026-03-01T13:30:00Z"));
    assert_eq!(histogram.reference(), Some(time("2026-03-02T00:00:00Z")));
    assert_eq!(
        bits(histogram.weights()),
        [(18, 0.073_841_307_296_974_97_f64.to_bits())]
    );

    let mut far = histogram.clone();
    histogram.add(0.5, 0.1, time("2026-03-03T01:30:00Z"));
    assert_eq!(
        histogram.save(),
        Saved {
            reference: Some(time("2026-03-02T00:00:00Z")),
            weights: BTreeMap::from([(18, 3536), (25, 10_000)]),
            total: 0.282_696_063_782_457_7,
        }
    );
    for fraction in [0.5, 0.9] {
        assert_eq!(
            histogram.percentile(fraction).to_bits(),
            0.511_134_537_588_870_6_f64.to_bits()
        );
    }

    far.add(0.5, 0.1, time("2026-06-10T13:30:00Z"));
    assert_eq!(far.reference(), Some(time("2026-06-11T00:00:00Z")));
    assert_eq!(far.range(), (25, 25));
}

#[test]
fn the_reference_is_a_multiple_of_the_half_life() {
    for (hours, reference) in [
        (7, "2026-03-01T17:00:00Z"),
        (36, "2026-03-01T12:00:00Z"),
        (50, "2026-03-01T00:00:00Z"),
    ] {
        let half_life = HalfLife::new(TimeDelta::hours(hours)).unwrap();
        let mut histogram = Histogram::new(Resource::Cpu, half_life);
        histogram.add(0.3, 0.1, time("2026-03-01T13:30:00Z"));
        assert_eq!(histogram.reference(), Some(time(reference)), "{hours} h");
    }
}

#[test]
fn half_lives_are_positive() {
    assert_eq!(HalfLife::new(TimeDelta::zero()), None);
    assert_eq!(HalfLife::new(TimeDelta::MIN), None);
    assert_eq!(HalfLife::new(TimeDelta::MAX), None);
}

#[test]
fn a_merge_leaves_the_other_histogram_alone() {
    let mut old = Histogram::new(Resource::Cpu, DAY);
    old.add(0.3, 1.0, time("2026-03-01T00:00:00Z"));
    let before = old.clone();
    let mut young = Histogram::new(Resource::Cpu, DAY);
    young.add(0.5, 1.0, time("2026-03-04T00:00:00Z"));
    young.merge(&old);
    assert_eq!(old, before);
    assert_eq!(young.weights().collect::<Vec<_>>(), [(18, 0.125), (25, 1.0)]);
}

/// Seconds around the year 2026, within five half-lives of each other.
fn moment() -> impl Strategy<Value = DateTime<Utc>> {
    (0_i64..5 * 86_400).prop_map(|s| DateTime::from_timestamp(1_772_323_200 + s, 0).unwrap())
}

fn any_time() -> impl Strategy<Value = DateTime<Utc>> {
    prop_oneof![
        any::<i64>().prop_map(DateTime::from_timestamp_nanos),
        Just(DateTime::<Utc>::MIN_UTC),
        Just(DateTime::<Utc>::MAX_UTC),
        Just(NEVER),
        moment(),
    ]
}

fn cpu(samples: &[(f64, f64, DateTime<Utc>)]) -> Histogram {
    let mut histogram = Histogram::new(Resource::Cpu, DAY);
    for (value, weight, time) in samples {
        histogram.add(*value, *weight, *time);
    }
    histogram
}

proptest! {
    #[test]
    fn percentiles_grow_with_the_fraction(
        samples in vec((0.0_f64..2000.0, 0.1_f64..10.0, moment()), 0..50),
        mut fractions in vec(0.0_f64..=1.0, 2..10),
    ) {
        let histogram = cpu(&samples);
        fractions.sort_by(f64::total_cmp);
        let percentiles: Vec<f64> = fractions.iter().map(|f| histogram.percentile(*f)).collect();
        prop_assert!(percentiles.is_sorted(), "{percentiles:?}");
    }

    /// With every weight one the sums are whole, so the exact answer is known: the smallest value up to which the
    /// fraction lies. Ours is the upper end of its bucket: never below it, and above it by no more than 5 % or the
    /// width of the first bucket.
    #[test]
    fn percentiles_are_exact_but_for_the_bucket(
        mut values in vec(0.0_f64..1000.0, 1..60),
        fraction in 0.0_f64..=1.0,
    ) {
        let midnight = time("2026-03-02T00:00:00Z");
        let samples: Vec<_> = values.iter().map(|value| (*value, 1.0, midnight)).collect();
        let ours = cpu(&samples).percentile(fraction);
        values.sort_by(f64::total_cmp);
        let threshold = fraction * num::float(i64::try_from(values.len()).unwrap());
        let exact = values
            .iter()
            .zip(1..)
            .find(|(_, count)| f64::from(*count) >= threshold)
            .map(|(value, _)| *value)
            .unwrap();
        prop_assert!(exact <= ours * (1.0 + 1e-12), "{exact} above {ours}");
        prop_assert!(ours <= exact * 1.05 + 0.0106, "{ours} too far above {exact}");
    }

    #[test]
    fn merging_is_adding_all_samples(
        ours in vec((0.0_f64..2000.0, 1.0_f64..10.0, moment()), 0..30),
        theirs in vec((0.0_f64..2000.0, 1.0_f64..10.0, moment()), 0..30),
    ) {
        let mut merged = cpu(&ours);
        merged.merge(&cpu(&theirs));
        let mut all = cpu(&[ours, theirs].concat());
        merged.align(&mut all);
        prop_assert_eq!(merged.range(), all.range());
        for (merged, all) in merged.weights().zip(all.weights()) {
            prop_assert_eq!(merged.0, all.0);
            prop_assert!((merged.1 - all.1).abs() <= 1e-9 * all.1, "{merged:?} {all:?}");
        }
        prop_assert!((merged.total() - all.total()).abs() <= 1e-9 * all.total());
    }

    #[test]
    fn what_was_added_can_be_taken_out(
        samples in vec((0.0_f64..2000.0, 1.0_f64..10.0, moment()), 1..30),
    ) {
        let mut histogram = cpu(&samples);
        for (value, weight, time) in &samples {
            histogram.subtract(*value, *weight, *time);
        }
        prop_assert!(histogram.is_empty());
        prop_assert!(histogram.total() < plain::EPSILON);
    }

    #[test]
    fn a_saved_histogram_comes_back_as_it_was_saved(
        samples in vec((0.0_f64..2000.0, 2.0_f64..10.0, moment()), 0..50),
    ) {
        let saved = cpu(&samples).save();
        let loaded = Histogram::load(Resource::Cpu, DAY, &saved).unwrap();
        prop_assert_eq!(loaded.save(), saved);
    }

    #[test]
    fn nothing_poisons_a_histogram(
        actions in vec((any::<f64>(), any::<f64>(), any_time(), any::<bool>()), 0..30),
        total in any::<f64>(),
        buckets in prop::collection::btree_map(any::<i64>(), any::<u32>(), 0..3),
        saved_weights in prop::collection::btree_map(0_i64..176, any::<u32>(), 0..9),
        reference in prop::option::of(any_time()),
    ) {
        let _ = Histogram::load(Resource::Cpu, DAY, &Saved { reference, weights: buckets, total });
        let saved = Saved { reference, weights: saved_weights, total };
        let mut histogram = Histogram::load(Resource::Memory, DAY, &saved)
            .unwrap_or_else(|_| Histogram::new(Resource::Memory, DAY));
        let other = histogram.clone();
        for (value, weight, time, add) in actions {
            if add {
                histogram.add(value, weight, time);
            } else {
                histogram.subtract(value, weight, time);
            }
        }
        histogram.merge(&other);
        prop_assert!(histogram.total().is_finite() && histogram.total() >= 0.0);
        for (_, weight) in histogram.weights() {
            prop_assert!(weight.is_finite() && weight >= 0.0);
        }
        for fraction in [0.0, 0.5, 1.0, f64::NAN, -1.0, 7.0] {
            prop_assert!(histogram.percentile(fraction).is_finite());
        }
        let _ = Histogram::load(Resource::Memory, DAY, &histogram.save()).unwrap();
    }
}
