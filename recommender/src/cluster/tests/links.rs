//! Which usage belongs to which VPA.

use super::*;
use proptest::{collection::vec, prelude::*};

#[test]
fn usage_is_kept_by_name_and_whole_label_set() {
    let mut story = Story::new(config(Quirks::none()));
    story.pod("p0", "app=x,hash=1", &["a", "b"]);
    story.pod("p1", "app=x,hash=1", &["a"]);
    assert_eq!(story.cluster.aggregates(), 2);
    story.pod("p2", "app=x,hash=2", &["a"]);
    assert_eq!(story.cluster.aggregates(), 3);
    for (pod, time) in [("p0", 1), ("p1", 1), ("p2", 1)] {
        story.cpu(pod, 100, time).unwrap();
    }
    assert_eq!(story.history().samples, 3);
    assert_eq!(story.view().pod_count(), 3);
    assert_eq!(story.names(), ["a", "b"]);
}

#[test]
fn new_labels_start_a_new_aggregate_and_the_old_one_stays() {
    let mut story = Story::new(config(Quirks::none()));
    story.pod("p0", "app=x", &["a"]);
    story.cpu("p0", 100, 1).unwrap();
    story.pod("p0", "app=x,new=yes", &["a"]);
    assert_eq!(story.cluster.aggregates(), 2);
    assert_eq!(story.cpu("p0", 100, 1), Err(Rejected::OutOfOrder));
    story.cpu("p0", 100, 2).unwrap();
    assert_eq!((story.history().samples, story.view().pod_count()), (2, 1));
    story.pod("p0", "app=z", &["a"]);
    assert_eq!((story.history().samples, story.view().pod_count()), (2, 0));
}

#[test]
fn several_vpas_may_select_one_pod() {
    let mut story = Story::new(config(Quirks::none()));
    story.vpa("w", "tier in (web,db)", Policies::default());
    story.pod("p0", "app=x,tier=web", &["a"]);
    story.cpu("p0", 100, 1).unwrap();
    for vpa in ["v", "w"] {
        assert_eq!(story.cluster.vpa("ns", vpa).unwrap().history("a").samples, 1);
    }
    story.cluster.remove_vpa("ns", "w");
    assert!(story.cluster.vpa("ns", "w").is_none());
    assert_eq!(story.history().samples, 1);
}

#[test]
fn namespaces_do_not_see_each_other() {
    let mut story = Story::new(config(Quirks::none()));
    let update = PodUpdate {
        namespace: "other",
        name: "p0",
        labels: &labels("app=x"),
        terminal: false,
        containers: &[],
    };
    story.cluster.upsert_pod(&update, at(0));
    assert_eq!(story.view().pod_count(), 0);
}

#[test]
fn a_change_of_selector_keeps_what_the_checkpoint_held() {
    let mut before = Story::new(config(Quirks::none()));
    before.pod("p0", "app=x", &["a"]);
    before.cpu("p0", 100, 1).unwrap();
    let status = before.checkpoint(2).status;
    for (quirks, kept) in [(Quirks::none(), 1), (Quirks::all(), 0)] {
        let mut story = Story::new(config(quirks));
        assert_eq!(
            story
                .cluster
                .load_checkpoint(("ns", "v"), "a", &status, None, at(3)),
            Ok(true)
        );
        story
            .cluster
            .upsert_vpa("ns", "v", Selector::Nothing, Policies::default());
        story.vpa("v", "app=x", Policies::default());
        assert_eq!(story.history().samples, kept);
    }
}

#[test]
fn what_goes_leaves_nothing_behind() {
    let mut story = Story::new(config(Quirks::none()));
    for number in 0..100 {
        let pod = format!("p{number}");
        story.pod(&pod, &format!("app=x,pod={number}"), &["a"]);
        story.cpu(&pod, 100, 1).unwrap();
    }
    for number in 0..100 {
        story.cluster.remove_pod("ns", &format!("p{number}"), at(2));
    }
    assert_eq!(story.history().samples, 100);
    story.cluster.collect_garbage(at(9 * DAY), |_, _| false);
    assert_eq!(story.cluster.aggregates(), 0);
    story.cluster.remove_vpa("ns", "v");
    assert!(story.cluster.namespaces.is_empty());
    assert_eq!(story.cluster.pods().count() + story.cluster.vpas().count(), 0);
}

#[test]
fn only_what_changed_is_looked_at_again() {
    let mut story = Story::new(config(Quirks::none()));
    story.vpa("w", "app=y", Policies::default());
    story.pod("p0", "app=x", &["a"]);
    assert_eq!(story.cluster.take_stale().len(), 2);
    assert_eq!(story.cluster.take_stale(), []);
    story.cpu("p0", 100, 1).unwrap();
    let stale: Vec<String> = story
        .cluster
        .take_stale()
        .iter()
        .map(|(_, vpa)| vpa.to_string())
        .collect();
    assert_eq!(stale, ["v"]);
    story.vpa("w", "app=y", Policies::default());
    assert_eq!(story.cluster.take_stale(), []);
    story.vpa(
        "w",
        "app=y",
        policies(&json!([{"containerName": "a", "mode": "Off"}])),
    );
    assert_eq!(story.cluster.take_stale().len(), 1);
}

#[test]
fn settings_follow_the_policy() {
    for (quirks, hours) in [(Quirks::none(), 24), (Quirks::all(), 1)] {
        let mut story = Story::new(config(quirks));
        story.pod("p0", "app=x", &["a"]);
        let hourly = json!([{"containerName": "*", "memoryAggregationIntervalSeconds": 3600}]);
        story.vpa("v", "app=x", policies(&hourly));
        story.vpa("v", "app=x", Policies::default());
        story.memory("p0", MIB, 0).unwrap();
        assert_eq!(story.window("p0").unwrap().end, at(60 * hours), "Q6: {quirks}");
    }
}

proptest! {
    /// The index against matching everything with everything, whatever came first and whatever went again.
    #[test]
    fn the_index_finds_what_a_full_match_finds(
        steps in vec((0_usize..4, 0_usize..4, 0_usize..6, any::<bool>()), 1..40),
    ) {
        const SETS: [&str; 6] = ["app=x", "app=y", "app=x,tier=web", "app=y,tier=web", "tier=db", "none="];
        const SELECTORS: [&str; 6] = ["app=x", "app=y,tier=web", "app in (x,y)", "!app", "app,tier!=web", ""];
        let mut story = Story::empty(config(Quirks::none()));
        let mut pods = BTreeMap::new();
        let mut vpas = BTreeMap::new();
        for (kind, number, choice, gone) in steps {
            let name = format!("n{number}");
            match (kind % 2, gone) {
                (0, false) => {
                    story.pod(&name, SETS[choice], &["a"]);
                    pods.insert(name, SETS[choice]);
                }
                (0, true) => {
                    story.cluster.remove_pod("ns", &name, at(0));
                    pods.remove(&name);
                }
                (_, false) => {
                    story.vpa(&name, SELECTORS[choice], Policies::default());
                    vpas.insert(name, SELECTORS[choice]);
                }
                (_, true) => {
                    story.cluster.remove_vpa("ns", &name);
                    vpas.remove(&name);
                }
            }
            if kind == 3 {
                story.cluster.collect_garbage(at(0), |_, _| true);
                story.cluster.last_garbage = None;
            }
        }
        for (vpa, selector) in vpas {
            let selector: Selector = selector.parse().unwrap();
            let matching = pods.values().filter(|set| {
                let labels = labels(set);
                selector.matches(|key| labels.get(key).map(String::as_str))
            });
            prop_assert_eq!(story.cluster.vpa("ns", &vpa).unwrap().pod_count(), matching.count());
        }
    }
}
