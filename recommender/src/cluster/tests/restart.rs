//! Checkpoints: what is in them, when they are written, and who can go on from them.

use super::*;

fn loaded(quirks: Quirks, checkpoint: &Checkpoint, minutes: i64) -> Story {
    let mut story = Story::new(config(quirks));
    let Checkpoint { status, annotation } = checkpoint;
    story
        .cluster
        .load_checkpoint(("ns", "v"), "a", status, annotation.as_deref(), at(minutes))
        .unwrap();
    story
}

/// VPA's recommender on the same object: it knows nothing of the annotation and leaves it where it is.
fn vpas_checkpoint(story: &Story, before: &Checkpoint, minutes: i64) -> Checkpoint {
    Checkpoint {
        annotation: before.annotation.clone(),
        ..story.checkpoint(minutes)
    }
}

#[test]
fn the_status_lacks_the_open_window_and_the_annotation_has_it() {
    let mut story = Story::new(config(Quirks::none()));
    story.pod("p0", "app=x", &["a"]);
    story.cpu("p0", 250, 10).unwrap();
    story.memory("p0", 300 * MIB, 10).unwrap();
    story.oom("p0", 300 * MIB, 20).unwrap();
    let checkpoint = story.checkpoint(30);
    assert_eq!(
        serde_json::to_value(&checkpoint.status).unwrap(),
        json!({
            "lastUpdateTime": "2026-03-02T00:30:00Z",
            "version": "v3",
            "cpuHistogram": {
                "referenceTimestamp": "2026-03-02T00:00:00Z",
                "bucketWeights": {"16": 10000},
                "totalWeight": 0.100_482_512_569_526_78,
            },
            "memoryHistogram": {"referenceTimestamp": "2026-03-03T00:00:00Z"},
            "firstSampleStart": "2026-03-02T00:10:00Z",
            "lastSampleStart": "2026-03-02T00:10:00Z",
            "totalSamplesCount": 1,
        })
    );
    let end = at(DAY + 10).timestamp();
    assert_eq!(
        checkpoint.annotation.unwrap(),
        format!(r#"{{"windows":{{"p0":[{end},314572800,419430400]}}}}"#)
    );
}

#[test]
fn an_open_window_goes_on_after_a_restart() {
    let mut before = Story::new(config(Quirks::none()));
    before.pod("p0", "app=x", &["a"]);
    before.memory("p0", 300 * MIB, 0).unwrap();
    let checkpoint = before.checkpoint(1);

    for pod_first in [true, false] {
        let mut after = Story::new(config(Quirks::none()));
        let load = |story: &mut Story| {
            let Checkpoint { status, annotation } = &checkpoint;
            story
                .cluster
                .load_checkpoint(("ns", "v"), "a", status, annotation.as_deref(), at(2))
                .unwrap();
        };
        if pod_first {
            after.pod("p0", "app=x", &["a"]);
            load(&mut after);
        } else {
            load(&mut after);
            assert_eq!(memory_weights(&after.history(), DAY), [(bucket(300 * MIB), 1.0)]);
            after.pod("p0", "app=x", &["a"]);
        }
        assert_eq!(after.window("p0"), before.window("p0"));
        assert_eq!(memory_weights(&after.history(), DAY), [(bucket(300 * MIB), 1.0)]);
        after.memory("p0", 200 * MIB, 3).unwrap();
        after.memory("p0", 500 * MIB, 4).unwrap();
        assert_eq!(memory_weights(&after.history(), DAY), [(bucket(500 * MIB), 1.0)]);
        assert_eq!(after.checkpoint(5).status.memory_histogram.total_weight, 0.0);
    }
}

#[test]
fn vpa_itself_loses_the_open_window() {
    let mut before = Story::new(config(Quirks::none()));
    before.pod("p0", "app=x", &["a"]);
    before.memory("p0", 300 * MIB, 0).unwrap();
    let mut vpa = loaded(Quirks::all(), &before.checkpoint(1), 2);
    vpa.pod("p0", "app=x", &["a"]);
    assert_eq!(vpa.window("p0"), None);
    assert_eq!(memory_weights(&vpa.history(), DAY), []);
    assert_eq!(vpa.checkpoint(3).annotation, None);
}

#[test]
fn the_window_of_a_pod_that_did_not_come_back_counts_once() {
    let mut before = Story::new(config(Quirks::none()));
    before.pod("p0", "app=x", &["a"]);
    before.memory("p0", 300 * MIB, 0).unwrap();

    let mut after = loaded(Quirks::none(), &before.checkpoint(1), 2);
    after.pod("p1", "app=x", &["a"]);
    after.cpu("p1", 100, 3).unwrap();
    assert_eq!(memory_weights(&after.history(), DAY), [(bucket(300 * MIB), 1.0)]);
    // While it is open it stays in the annotation, from one restart to the next.
    let open = after.checkpoint(4);
    assert_eq!(open.status.memory_histogram.total_weight, 0.0);
    let again = loaded(Quirks::none(), &open, 5);
    assert_eq!(memory_weights(&again.history(), DAY), [(bucket(300 * MIB), 1.0)]);
    // Once it has ended it is part of the status, and of nothing else.
    let ended = again.checkpoint(DAY);
    assert_eq!(
        ended.status.memory_histogram.bucket_weights.get().unwrap().len(),
        1
    );
    let last = loaded(Quirks::none(), &ended, DAY + 1);
    assert_eq!(memory_weights(&last.history(), DAY), [(bucket(300 * MIB), 1.0)]);
}

/// Ours, then VPA's recommender, then ours again, on one object.
#[test]
fn nothing_is_lost_and_nothing_counts_twice_with_vpa_in_between() {
    let mut ours = Story::new(config(Quirks::none()));
    ours.pod("p0", "app=x", &["a"]);
    ours.memory("p0", 100 * MIB, 0).unwrap();
    ours.memory("p0", 300 * MIB, DAY).unwrap();
    let first = ours.checkpoint(DAY + 1);

    // VPA takes over within the second window: it begins its own, which it finishes, and opens another.
    let mut vpa = loaded(Quirks::all(), &first, DAY + 2);
    vpa.pod("p0", "app=x", &["a"]);
    vpa.memory("p0", 500 * MIB, DAY + 10).unwrap();
    vpa.memory("p0", 700 * MIB, 2 * DAY + 10).unwrap();
    let second = vpas_checkpoint(&vpa, &first, 2 * DAY + 11);

    let mut back = loaded(Quirks::none(), &second, 2 * DAY + 12);
    back.pod("p0", "app=x", &["a"]);
    let half_past = 0.5_f64.powf(10.0 / 1440.0);
    let expected = [
        (bucket(100 * MIB), 0.5),
        (bucket(300 * MIB), 1.0),
        (bucket(500 * MIB), (1000.0 / half_past).round() / 1000.0),
    ];
    // Ours of the first day, ours that was open then, and the one that VPA finished; its open one it loses itself.
    assert_eq!(memory_weights(&back.history(), 2 * DAY), expected);
    let third = back.checkpoint(2 * DAY + 13);
    let again = loaded(Quirks::none(), &third, 2 * DAY + 14);
    assert_eq!(memory_weights(&again.history(), 2 * DAY), expected);
}

#[test]
fn two_vpas_over_one_pod_count_its_window_once_each() {
    let mut before = Story::new(config(Quirks::none()));
    before.vpa("w", "app=x", Policies::default());
    before.pod("p0", "app=x", &["a"]);
    before.memory("p0", 300 * MIB, 0).unwrap();
    let mut after = Story::new(config(Quirks::none()));
    after.vpa("w", "app=x", Policies::default());
    after.pod("p0", "app=x", &["a"]);
    for name in ["v", "w"] {
        let Checkpoint { status, annotation } = before
            .cluster
            .vpa("ns", name)
            .unwrap()
            .checkpoint("a", at(1))
            .unwrap();
        after
            .cluster
            .load_checkpoint(("ns", name), "a", &status, annotation.as_deref(), at(2))
            .unwrap();
    }
    for name in ["v", "w"] {
        let history = after.cluster.vpa("ns", name).unwrap().history("a");
        assert_eq!(memory_weights(&history, DAY), [(bucket(300 * MIB), 1.0)]);
    }
}

#[test]
fn the_window_of_eight_days_survives_restarts() {
    let mut story = Story::new(config(Quirks::none()));
    story.pod("p0", "app=x", &["a"]);
    story.memory("p0", 800 * MIB, 0).unwrap();
    let end_of = |bytes| crate::histogram::Resource::Memory.start(bucket(bytes) + 1);
    for day in 1..=8 {
        assert_eq!(
            story.history().memory.percentile(1.0),
            end_of(800 * MIB),
            "day {day}"
        );
        let checkpoint = story.checkpoint(day * DAY - 1);
        story = loaded(Quirks::none(), &checkpoint, day * DAY - 1);
        story.pod("p0", "app=x", &["a"]);
        story.memory("p0", 100 * MIB, day * DAY).unwrap();
    }
    assert!(story.history().memory.percentile(0.9999) <= end_of(100 * MIB));
}

#[test]
fn a_checkpoint_that_cannot_be_read_changes_nothing() {
    let mut story = Story::new(config(Quirks::none()));
    let mut status = story
        .cluster
        .vpa("ns", "v")
        .map(|_| crate::checkpoint::save(&story.history(), at(0)))
        .unwrap();
    assert_eq!(
        story
            .cluster
            .load_checkpoint(("ns", "w"), "a", &status, None, at(0)),
        Ok(false)
    );
    assert_eq!(
        story
            .cluster
            .load_checkpoint(("no", "v"), "a", &status, None, at(0)),
        Ok(false)
    );
    status.version = "v2".into();
    let error = story
        .cluster
        .load_checkpoint(("ns", "v"), "a", &status, None, at(0))
        .unwrap_err();
    assert_eq!(error.to_string(), "unsupported checkpoint version v2");
    assert_eq!(story.names(), [""; 0]);
}

#[test]
fn an_annotation_that_makes_no_sense_is_as_good_as_none() {
    let mut story = Story::new(config(Quirks::none()));
    let status = crate::checkpoint::save(&story.history(), at(0));
    let far = at(3 * DAY).timestamp();
    for text in [
        "".to_owned(),
        "[]".into(),
        "{\"windows\": 5}".into(),
        format!("{{\"windows\": {{\"p0\": [{far}, 5]}}}}"),
        format!("{{\"windows\": {{\"p0\": [{}, -5]}}}}", at(1).timestamp()),
        format!("{{\"windows\": {{\"p0\": [{}]}}}}", i64::MAX),
        format!(
            "{{\"peaks\": {{\"of\": {}, \"parts\": [[{far}, 200, 1e300]]}}}}",
            at(0).timestamp()
        ),
    ] {
        story
            .cluster
            .load_checkpoint(("ns", "v"), "a", &status, Some(&text), at(0))
            .unwrap();
        assert!(story.history().memory.is_empty(), "{text}");
    }
}

#[test]
fn the_annotation_is_bounded_and_keeps_the_highest_peaks() {
    let mut story = Story::new(config(Quirks::none()));
    for number in 0..5000 {
        let pod = format!("a-pod-with-a-rather-long-name-{number:05}");
        story.pod(&pod, "app=x", &["a"]);
        story.memory(&pod, (number + 1) * MIB, 0).unwrap();
    }
    let annotation = story.checkpoint(1).annotation.unwrap();
    assert!(
        (100_000..=128 * 1024).contains(&annotation.len()),
        "{}",
        annotation.len()
    );
    assert!(annotation.contains("name-04999") && !annotation.contains("name-00000"));
}

#[test]
fn only_what_changed_is_written() {
    let age = TimeDelta::minutes(10);
    let mut story = Story::new(config(Quirks::none()));
    story.pod("p0", "app=x", &["a", "b"]);
    assert_eq!(story.cluster.due_checkpoints(at(1000), age), []);
    story.cpu("p0", 100, 0).unwrap();
    let due = story.cluster.due_checkpoints(at(10), age);
    assert_eq!(due, [("ns".into(), "v".into(), "a".into())]);
    let (_, mark) = story.cluster.take_checkpoint(("ns", "v"), "a", at(10)).unwrap();
    assert_eq!(story.cluster.due_checkpoints(at(1000), age), []);
    // It could not be written.
    story.cluster.mark_dirty(("ns", "v"), "a", mark.unwrap());
    assert_eq!(story.cluster.due_checkpoints(at(10), age).len(), 1);
    story.cluster.take_checkpoint(("ns", "v"), "a", at(10)).unwrap();
    // A sample below the peak is nothing new.
    story.memory("p0", 200 * MIB, 11).unwrap();
    story.cluster.take_checkpoint(("ns", "v"), "a", at(11)).unwrap();
    story.memory("p0", 100 * MIB, 12).unwrap();
    assert_eq!(story.cluster.due_checkpoints(at(1000), age), []);
    // The end of the pod makes its last window final.
    story.cluster.remove_pod("ns", "p0", at(13));
    assert_eq!(story.cluster.due_checkpoints(at(1000), age).len(), 1);
}

#[test]
fn an_oom_is_written_at_once() {
    let mut story = Story::new(config(Quirks::none()));
    story.pod("p0", "app=x", &["a"]);
    story.oom("p0", 100 * MIB, 0).unwrap();
    assert_eq!(
        story.cluster.due_checkpoints(at(0), TimeDelta::minutes(10)).len(),
        1
    );
}

#[test]
fn nothing_is_written_while_the_pods_cannot_be_found() {
    let mut story = Story::new(config(Quirks::none()));
    story.pod("p0", "app=x", &["a"]);
    story.oom("p0", 100 * MIB, 0).unwrap();
    story
        .cluster
        .upsert_vpa("ns", "v", Selector::Nothing, Policies::default());
    assert_eq!(
        story.cluster.due_checkpoints(at(1000), TimeDelta::minutes(10)),
        []
    );
    story.vpa("v", "app=x", Policies::default());
    assert_eq!(
        story
            .cluster
            .due_checkpoints(at(1000), TimeDelta::minutes(10))
            .len(),
        1
    );
}

#[test]
fn writes_are_spread_over_the_age_and_none_waits_longer() {
    let age = TimeDelta::minutes(10);
    let mut story = Story::empty(config(Quirks::none()));
    for number in 0..1000 {
        story.vpa(
            &format!("v{number}"),
            &format!("app={number}"),
            Policies::default(),
        );
        story.pod(&format!("p{number}"), &format!("app={number}"), &["a"]);
        story.cpu(&format!("p{number}"), 100, 0).unwrap();
    }
    let mut written = 0;
    for minute in 1..=10 {
        let due = story.cluster.due_checkpoints(at(minute), age);
        assert!(
            (50..=150).contains(&due.len()),
            "{} in minute {minute}",
            due.len()
        );
        for (namespace, vpa, container) in due {
            written += 1;
            story
                .cluster
                .take_checkpoint((&namespace, &vpa), &container, at(minute))
                .unwrap();
        }
    }
    assert_eq!(written, 1000);
}

/// A VPA that is made anew finds the checkpoint of the old one, which has what the model has anyway.
#[test]
fn a_checkpoint_of_what_is_known_anyway_is_no_news() {
    let mut story = Story::new(config(Quirks::none()));
    story.pod("p", "app=x", &["a"]);
    let none = story.checkpoint(0).status;
    story.cpu("p", 100, 5).unwrap();
    story.cpu("p", 100, 6).unwrap();
    let status = |last: Option<DateTime<Utc>>| VerticalPodAutoscalerCheckpointStatus {
        last_sample_start: last,
        ..none.clone()
    };
    for (last, news) in [
        (None, true),
        (Some(at(4)), true),
        (Some(at(5)), false),
        (Some(at(60)), false),
    ] {
        assert_eq!(
            story.cluster.is_news(("ns", "v"), "a", &status(last)),
            news,
            "{last:?}"
        );
        assert!(story.cluster.is_news(("ns", "v"), "other", &status(last)));
    }
}
