//! What is dropped, and what is not.

use super::*;

#[test]
fn what_has_no_samples_goes_with_its_pod() {
    let mut story = Story::new(config(Quirks::none()));
    story.pod("p0", "app=x", &["a"]);
    story.cluster.collect_garbage(at(0), |_, _| false);
    assert_eq!(story.cluster.aggregates(), 1);
    story.cluster.remove_pod("ns", "p0", at(1));
    story.cluster.collect_garbage(at(59), |_, _| false);
    assert_eq!(story.cluster.aggregates(), 1, "within the hour nobody looks");
    story.cluster.collect_garbage(at(60), |_, _| false);
    assert_eq!(story.cluster.aggregates(), 0);
}

#[test]
fn a_pod_at_its_end_counts_as_long_as_its_controller_is_there() {
    for (found, expected) in [(true, 1), (false, 0)] {
        let mut story = Story::new(config(Quirks::none()));
        story.pod_in_phase("p0", "app=x", &["a"], true);
        story.cluster.collect_garbage(at(0), |namespace, vpa| {
            assert_eq!((namespace, vpa), ("ns", "v"));
            found
        });
        assert_eq!(story.cluster.aggregates(), expected);
    }
}

#[test]
fn what_is_too_old_goes_though_the_pod_is_there() {
    let mut story = Story::new(config(Quirks::none()));
    story.pod("p0", "app=x", &["a"]);
    story.cpu("p0", 100, 0).unwrap();
    story.cluster.collect_garbage(at(8 * DAY - 1), |_, _| true);
    assert_eq!(story.cluster.aggregates(), 1);
    story.cluster.collect_garbage(at(8 * DAY + 60), |_, _| true);
    assert_eq!(story.cluster.aggregates(), 0);
    // The next sample begins again.
    story.cpu("p0", 100, 8 * DAY + 61).unwrap();
    assert_eq!((story.cluster.aggregates(), story.history().samples), (1, 1));
}

/// VPA asks its aggregate only once a sample is accepted, and for an OOM always.
#[test]
fn what_is_refused_brings_nothing_back() {
    let mut story = Story::new(config(Quirks::none()));
    story.pod("p0", "app=x", &["a"]);
    story.cpu("p0", 100, 0).unwrap();
    story.memory("p0", 100 * MIB, 0).unwrap();
    story.cluster.collect_garbage(at(8 * DAY), |_, _| true);
    assert_eq!(story.cpu("p0", 100, 0), Err(Rejected::OutOfOrder));
    assert_eq!(story.cpu("p0", -1, 9 * DAY), Err(Rejected::Negative));
    assert_eq!(story.memory("p0", 100 * MIB, -1), Err(Rejected::OutOfOrder));
    assert_eq!(story.memory("p0", -1, 9 * DAY), Err(Rejected::Negative));
    assert_eq!(story.cluster.aggregates(), 0);
    assert_eq!(story.oom("p0", 100 * MIB, -2 * DAY), Err(Rejected::TooOld));
    assert_eq!(story.cluster.aggregates(), 1);
}

/// An open window whose peak went with its aggregate is not taken out of what others have seen.
#[test]
fn a_checkpoint_lacks_only_windows_that_are_in_it() {
    let mut story = Story::new(config(Quirks::all()));
    story.pod("old", "app=x,hash=1", &["a"]);
    story.pod("new", "app=x,hash=2", &["a"]);
    story.cpu("old", 100, 0).unwrap();
    story.cpu("new", 100, 8 * DAY).unwrap();
    story.memory("new", 100 * MIB, 7 * DAY).unwrap();
    story.memory("old", 100 * MIB, 8 * DAY - 1).unwrap();
    let weights = |story: &Story| story.checkpoint(8 * DAY).status.memory_histogram.bucket_weights;
    let seen = weights(&story);
    assert_ne!(seen, BTreeMap::new().into());
    story.cluster.collect_garbage(at(8 * DAY), |_, _| true);
    assert_eq!(story.cluster.aggregates(), 1);
    assert_eq!(weights(&story), seen);
}

/// kubernetes/autoscaler#10211: jobs that are killed before anybody can measure their CPU.
#[test]
fn memory_alone_is_worth_keeping() {
    for (quirks, expected) in [(Quirks::none(), 1), (Quirks::all(), 0)] {
        let mut story = Story::new(config(quirks));
        story.pod("p0", "app=x", &["a"]);
        story.oom("p0", 32 * MIB, 0).unwrap();
        story.cluster.remove_pod("ns", "p0", at(1));
        story.cluster.collect_garbage(at(2), |_, _| false);
        assert_eq!(story.cluster.aggregates(), expected, "{quirks}");
    }
    // But not for ever: its window ends after a day, and counts for eight more.
    let mut story = Story::new(config(Quirks::none()));
    story.pod("p0", "app=x", &["a"]);
    story.oom("p0", 32 * MIB, 0).unwrap();
    story.cluster.remove_pod("ns", "p0", at(1));
    for (day, expected) in [(8, 1), (9, 0)] {
        story.cluster.collect_garbage(at(day * DAY), |_, _| false);
        assert_eq!(story.cluster.aggregates(), expected, "day {day}");
    }
}
