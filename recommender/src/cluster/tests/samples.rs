//! Which samples count, and as what.

use super::*;

#[test]
fn cpu_samples_come_in_order() {
    let mut story = Story::new(config(Quirks::none()));
    story.pod("p0", "app=x", &["a"]);
    for (milli, minutes, expected) in [
        (100, 10, Ok(())),
        (100, 10, Err(Rejected::OutOfOrder)),
        (100, 9, Err(Rejected::OutOfOrder)),
        (-1, 11, Err(Rejected::Negative)),
        (0, 11, Ok(())),
        (i64::MAX, 12, Ok(())),
    ] {
        assert_eq!(story.cpu("p0", milli, minutes), expected, "{milli} at {minutes}");
    }
    let history = story.history();
    assert_eq!(
        (history.samples, history.first_sample, history.last_sample),
        (3, Some(at(10)), Some(at(12)))
    );
}

#[test]
fn memory_samples_may_share_a_time() {
    let mut story = Story::new(config(Quirks::none()));
    story.pod("p0", "app=x", &["a"]);
    for (bytes, minutes, expected) in [
        (MIB, 10, Ok(())),
        (MIB, 10, Ok(())),
        (MIB, 9, Err(Rejected::OutOfOrder)),
        (-1, 11, Err(Rejected::Negative)),
        (i64::MAX, 11, Ok(())),
    ] {
        assert_eq!(
            story.memory("p0", bytes, minutes),
            expected,
            "{bytes} at {minutes}"
        );
    }
}

#[test]
fn who_is_not_known_is_not_counted() {
    let mut story = Story::new(config(Quirks::none()));
    story.pod("p0", "app=x", &["a", "setup:init", "proxy:sidecar"]);
    let usage = Usage::Cpu(MilliCpu(1));
    for (pod, container, expected) in [
        ("p1", "a", Rejected::UnknownPod),
        ("p0", "b", Rejected::UnknownContainer),
        ("p0", "setup", Rejected::InitContainer),
        ("p0", "proxy", Rejected::InitContainer),
    ] {
        assert_eq!(
            story.sample(pod, container, usage, 1),
            Err(expected),
            "{pod} {container}"
        );
    }
    let tomorrow = at(DAY + 1);
    let early = story
        .cluster
        .add_sample(("ns", "p0", "a"), usage, tomorrow, at(0));
    assert_eq!(early, Err(Rejected::FromTheFuture));
}

#[test]
fn a_window_has_one_peak() {
    let mut story = Story::new(config(Quirks::none()));
    story.pod("p0", "app=x", &["a"]);
    for (mib, minutes) in [(100, 10), (300, 20), (200, 30)] {
        story.memory("p0", mib * MIB, minutes).unwrap();
    }
    let window = story.window("p0").unwrap();
    assert_eq!((window.end, window.peak()), (at(DAY + 10), Bytes(300 * MIB)));
    assert_eq!(
        memory_weights(&story.history(), DAY + 10),
        [(bucket(300 * MIB), 1.0)]
    );

    // Two and a half windows later the next one ends on a whole window.
    story.memory("p0", 50 * MIB, 3 * DAY + 700).unwrap();
    let window = story.window("p0").unwrap();
    assert_eq!((window.end, window.peak()), (at(4 * DAY + 10), Bytes(50 * MIB)));
    assert_eq!(
        memory_weights(&story.history(), 4 * DAY + 10),
        [(bucket(50 * MIB), 1.0), (bucket(300 * MIB), 0.125)]
    );
}

#[test]
fn an_oom_raises_what_was_used() {
    for (requested, used, expected) in [
        (500 * MIB, 100 * MIB, 600 * MIB),
        (100 * MIB, 500 * MIB, 600 * MIB),
        (1000 * MIB, 100 * MIB, 1200 * MIB),
        (0, 0, 100 * MIB),
        (-5, 0, 100 * MIB),
        (i64::MAX, 0, i64::MAX),
    ] {
        let mut story = Story::new(config(Quirks::none()));
        story.pod("p0", "app=x", &["a"]);
        story.memory("p0", used, 10).unwrap();
        story.oom("p0", requested, 20).unwrap();
        assert_eq!(
            story.window("p0").unwrap().peak(),
            Bytes(expected),
            "{requested} {used}"
        );
    }
}

#[test]
fn an_oom_counts_late_but_not_too_late() {
    let mut story = Story::new(config(Quirks::none()));
    story.pod("p0", "app=x", &["a"]);
    story.memory("p0", MIB, 2 * DAY).unwrap();
    assert_eq!(story.oom("p0", MIB, DAY - 1), Err(Rejected::TooOld));
    assert_eq!(story.oom("p0", MIB, DAY), Ok(()));
    // It moved the time of the last sample back.
    assert_eq!(story.memory("p0", MIB, DAY + 1), Ok(()));
}

#[test]
fn a_first_sample_of_nothing_does_not_freeze_the_window() {
    for (quirks, peak) in [(Quirks::none(), 300 * MIB), (Quirks::all(), 0)] {
        let mut story = Story::new(config(quirks));
        story.pod("p0", "app=x", &["a"]);
        story.memory("p0", 0, 10).unwrap();
        story.memory("p0", 300 * MIB, 20).unwrap();
        assert_eq!(story.window("p0").unwrap().peak(), Bytes(peak), "Q8: {quirks}");
        assert_eq!(memory_weights(&story.history(), DAY + 10), [(bucket(peak), 1.0)]);
    }
}

/// kubernetes/autoscaler#9521: the pod gets what its policy allows, needs more, and is killed again and again.
#[test]
fn ooms_at_the_cap_do_not_run_away() {
    let capped = |quirks| {
        let mut story = Story::new(config(quirks));
        story.vpa(
            "v",
            "app=x",
            policies(&json!([{"containerName": "a", "maxAllowed": {"memory": "1Gi"}}])),
        );
        story.pod("p0", "app=x", &["a"]);
        for day in 0..20 {
            story.memory("p0", 1000 * MIB, day * DAY + 5).unwrap();
            story.oom("p0", 1024 * MIB, day * DAY + 10).unwrap();
        }
        story.history().memory.percentile(0.9)
    };
    let gib = 1_073_741_824.0;
    assert!(capped(Quirks::none()) < gib * 1.05);
    assert!(capped(Quirks::all()) > gib * 1.2);

    // What was really used is not cut.
    let mut story = Story::new(config(Quirks::none()));
    story.vpa(
        "v",
        "app=x",
        policies(&json!([{"containerName": "a", "maxAllowed": {"memory": "1Gi"}}])),
    );
    story.pod("p0", "app=x", &["a"]);
    story.memory("p0", 2048 * MIB, 5).unwrap();
    story.oom("p0", 1024 * MIB, 10).unwrap();
    assert_eq!(story.window("p0").unwrap().peak(), Bytes(2048 * MIB));
}

#[test]
fn the_global_cap_bounds_ooms_where_the_policy_does_not_say() {
    let mut config = config(Quirks::none());
    config.settings.memory_cap = Some(Bytes(512 * MIB));
    for (policy, expected) in [
        (json!([]), 512 * MIB),
        (
            json!([{"containerName": "a", "maxAllowed": {"cpu": "1"}}]),
            512 * MIB,
        ),
        (
            json!([{"containerName": "a", "maxAllowed": {"memory": "550Mi"}}]),
            550 * MIB,
        ),
        (
            json!([{"containerName": "a", "maxAllowed": {"memory": "0"}}]),
            600 * MIB,
        ),
    ] {
        let mut story = Story::empty(config);
        story.vpa("v", "app=x", policies(&policy));
        story.pod("p0", "app=x", &["a"]);
        story.oom("p0", 500 * MIB, 10).unwrap();
        assert_eq!(story.window("p0").unwrap().peak(), Bytes(expected), "{policy}");
    }
}

/// kubernetes/autoscaler#10255, counted from the youngest peak: where nothing new is seen, nothing is forgotten.
#[test]
fn peaks_older_than_the_window_are_forgotten() {
    let peaks = |quirks| {
        let mut story = Story::new(config(quirks));
        story.pod("p0", "app=x", &["a"]);
        story.memory("p0", 800 * MIB, 0).unwrap();
        let alone = memory_weights(&story.history(), DAY);
        for day in 1..=8 {
            story.memory("p0", 100 * MIB, day * DAY).unwrap();
        }
        (alone, story.history().memory.percentile(1.0))
    };
    let end_of = |bytes| crate::histogram::Resource::Memory.start(bucket(bytes) + 1);
    assert_eq!(
        peaks(Quirks::none()),
        (vec![(bucket(800 * MIB), 1.0)], end_of(100 * MIB))
    );
    assert_eq!(
        peaks(Quirks::all()),
        (vec![(bucket(800 * MIB), 1.0)], end_of(800 * MIB))
    );
}

#[test]
fn old_peaks_go_though_the_labels_have_changed_since() {
    let mut story = Story::new(config(Quirks::none()));
    story.pod("p0", "app=x,hash=1", &["a"]);
    story.memory("p0", 800 * MIB, 0).unwrap();
    story.pod("p0", "app=x,hash=2", &["a"]);
    for day in 1..=8 {
        story.memory("p0", 100 * MIB, day * DAY).unwrap();
    }
    let highest = story.history().memory.percentile(1.0);
    assert_eq!(
        highest,
        crate::histogram::Resource::Memory.start(bucket(100 * MIB) + 1)
    );
}

#[test]
fn samples_are_compared_with_the_last_uncapped_target() {
    use crate::{cluster::Quality, histogram::Resource, recommend::Recommended};
    use common::api::vpa::UpdateMode;

    let mut story = Story::new(config(Quirks::none()));
    story.pod("p", "app=x", &["a", "off"]);
    let told = |story: &mut Story, container: &str, usage: Usage, minute: i64| {
        let mut told = Vec::new();
        let id = ("ns", "p", container);
        let counted = story
            .cluster
            .add_sample_and_tell(id, usage, at(minute), at(minute), |seen| {
                let Quality {
                    mode,
                    resource,
                    oom,
                    usage,
                    recommended,
                } = seen;
                told.push((mode.clone(), resource, oom, usage, recommended));
            });
        counted.unwrap();
        told
    };
    let cpu = |milli| Usage::Cpu(MilliCpu(milli));
    assert_eq!(
        told(&mut story, "a", cpu(100), 1),
        [(UpdateMode::Recreate, Resource::Cpu, false, 100, None)]
    );

    let recommended = Recommended {
        target: crate::recommend::Amounts::default(),
        uncapped: crate::recommend::Amounts {
            cpu: Some("250m".parse().unwrap()),
            memory: None,
        },
        ..Recommended::default()
    };
    let recommendation = crate::recommend::Recommendation::from([("a".into(), recommended)]);
    story
        .cluster
        .note_recommendation(("ns", "v"), &UpdateMode::Off, &recommendation);
    assert_eq!(
        told(&mut story, "a", cpu(300), 2),
        [(UpdateMode::Off, Resource::Cpu, false, 300, Some(250))]
    );
    let (requested, needed) = (Bytes(100 * MIB), 200 * MIB);
    assert_eq!(
        told(&mut story, "a", Usage::Oom(requested), 3),
        [(UpdateMode::Off, Resource::Memory, true, needed, None)]
    );

    // What is not recommended any more is not compared with, and who is off is not compared at all.
    let off = policies(&json!([{"containerName": "off", "mode": "Off"}]));
    story.vpa("v", "app=x", off);
    story
        .cluster
        .note_recommendation(("ns", "v"), &UpdateMode::Off, &Default::default());
    assert_eq!(
        told(&mut story, "a", cpu(300), 4),
        [(UpdateMode::Off, Resource::Cpu, false, 300, None)]
    );
    assert_eq!(told(&mut story, "off", cpu(300), 4), []);
}
