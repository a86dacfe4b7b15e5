//! What holds whatever comes in.

use super::*;
use crate::histogram::Histogram;
use proptest::{collection::vec, prelude::*};

fn any_usage() -> impl Strategy<Value = Usage> {
    let amount = prop_oneof![any::<i64>(), 0..2_000 * MIB, Just(0)];
    (0..3, amount).prop_map(|(kind, amount)| match kind {
        0 => Usage::Cpu(MilliCpu(amount)),
        1 => Usage::Memory(Bytes(amount)),
        _ => Usage::Oom(Bytes(amount)),
    })
}

fn any_time() -> impl Strategy<Value = DateTime<Utc>> {
    prop_oneof![
        (-DAY * 30..DAY * 30).prop_map(at),
        any::<i64>().prop_map(DateTime::from_timestamp_nanos),
        Just(DateTime::<Utc>::MIN_UTC),
        Just(DateTime::<Utc>::MAX_UTC),
    ]
}

fn any_quirks() -> impl Strategy<Value = Quirks> {
    any::<u32>().prop_map(|bits| {
        let picked = Quirk::ALL
            .into_iter()
            .enumerate()
            .filter(|(index, _)| bits >> index & 1 == 1);
        picked.map(|(_, quirk)| quirk).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_breaks_or_poisons_the_model(
        quirks in any_quirks(),
        samples in vec((any_usage(), any_time(), any_time()), 0..40),
        interval in prop_oneof![Just(24 * 3600), any::<i32>()],
        count in prop_oneof![Just(8), any::<i64>()],
        now in any_time(),
    ) {
        let policy = json!([{
            "containerName": "a",
            "memoryAggregationIntervalSeconds": interval,
            "memoryAggregationIntervalCount": count,
        }]);
        let mut story = Story::empty(config(quirks));
        story.vpa("v", "app=x", policies(&policy));
        story.pod("p0", "app=x", &["a"]);
        for (usage, time, told) in samples {
            let _ = story.cluster.add_sample(("ns", "p0", "a"), usage, time, told);
        }
        story.cluster.collect_garbage(now, |_, _| false);
        let history = story.history();
        for histogram in [&history.cpu, &history.memory] {
            prop_assert!(histogram.total().is_finite() && histogram.total() >= 0.0);
            prop_assert!(histogram.percentile(0.9).is_finite());
        }
        if let Some(Checkpoint { status, annotation }) = story.view().checkpoint("a", now) {
            let mut again = Story::new(config(quirks));
            let loaded = again.cluster.load_checkpoint(("ns", "v"), "a", &status, annotation.as_deref(), now);
            prop_assert_eq!(loaded, Ok(true));
            again.pod("p0", "app=x", &["a"]);
            prop_assert!(again.history().memory.percentile(0.9).is_finite());
        }
    }

    /// As long as everything lies within the window, remembering when it was seen changes no bit of it.
    #[test]
    fn within_the_window_nothing_is_forgotten(
        samples in vec((0..2_i64, 1..2_000 * MIB, 0..6 * DAY), 1..40),
    ) {
        let mut bounded = Story::new(config(Quirks::none()));
        let mut unbounded = Story::new(config(Quirks::none().with(Quirk::UnboundedMemoryWindow)));
        for story in [&mut bounded, &mut unbounded] {
            story.pod("p0", "app=x", &["a"]);
            story.pod("p1", "app=x,other=yes", &["a"]);
            for (pod, bytes, minutes) in &samples {
                let _ = story.memory(&format!("p{pod}"), *bytes, *minutes);
            }
        }
        prop_assert_eq!(bounded.history(), unbounded.history());
    }

    /// What is merged for a VPA is what one aggregate would hold that had got all samples.
    #[test]
    fn label_sets_do_not_change_the_sum(
        samples in vec((0..3_i64, 0..5_000_i64), 1..40),
    ) {
        let mut split = Story::new(config(Quirks::none()));
        let mut one = Story::new(config(Quirks::none()));
        for number in 0..3 {
            split.pod(&format!("p{number}"), &format!("app=x,set={number}"), &["a"]);
            one.pod(&format!("p{number}"), "app=x", &["a"]);
        }
        for (minutes, (pod, milli)) in (0..).zip(&samples) {
            for story in [&mut split, &mut one] {
                story.cpu(&format!("p{pod}"), *milli, minutes).unwrap();
            }
        }
        let (split, one) = (split.history(), one.history());
        prop_assert_eq!((split.samples, split.first_sample, split.last_sample), (one.samples, one.first_sample, one.last_sample));
        prop_assert_eq!(split.cpu.range(), one.cpu.range());
        prop_assert!((split.cpu.total() - one.cpu.total()).abs() <= 1e-9);
    }

    /// A restart loses nothing but the digits that a checkpoint does not have.
    #[test]
    fn a_restart_changes_nothing_that_matters(
        samples in vec((0..2_i64, 20 * MIB..2_000 * MIB, 0..4_000_i64, 0..2 * DAY), 1..30),
        stop in 2 * DAY..4 * DAY,
    ) {
        let mut before = Story::new(config(Quirks::none()));
        for pod in ["p0", "p1"] {
            before.pod(pod, "app=x", &["a"]);
        }
        for (pod, bytes, milli, minutes) in &samples {
            let _ = before.memory(&format!("p{pod}"), *bytes, *minutes);
            let _ = before.cpu(&format!("p{pod}"), *milli, *minutes);
        }
        let Checkpoint { status, annotation } = before.checkpoint(stop);
        let mut after = Story::new(config(Quirks::none()));
        after.cluster.load_checkpoint(("ns", "v"), "a", &status, annotation.as_deref(), at(stop)).unwrap();
        for pod in ["p0", "p1"] {
            after.pod(pod, "app=x", &["a"]);
            let (before, after) = (before.window(pod), after.window(pod));
            prop_assert_eq!(after, before.filter(|window| at(stop) < window.end));
        }
        let (before, after) = (before.history(), after.history());
        prop_assert_eq!((before.samples, before.first_sample, before.last_sample), (after.samples, after.first_sample, after.last_sample));
        for (before, after) in [(&before.cpu, &after.cpu), (&before.memory, &after.memory)] {
            let weights = |histogram: &Histogram| -> BTreeMap<u8, f64> {
                histogram.parts(at(stop)).map(|part| (part.bucket, part.weight)).collect()
            };
            let (before, after) = (weights(before), weights(after));
            let total: f64 = before.values().sum();
            for bucket in before.keys().chain(after.keys()) {
                let [before, after] = [&before, &after].map(|side| side.get(bucket).copied().unwrap_or(0.0));
                prop_assert!((before - after).abs() <= 2e-4 * total, "bucket {bucket}: {before} {after}");
            }
        }
    }
}
