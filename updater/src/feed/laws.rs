//! What holds for a feed whatever happens in whatever order: who is left out of a loop would only have had the same turn
//! again, pods that are alike need one look only, and the order in which things are told does not matter.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use common::{
    api::k8s::{Deployment, ReplicaSet},
    kube::watch::{Change, SlimSelecting},
    pod::Pod,
    target::{ControllerKey, ScaleLookup},
};
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

use super::{Feed, Tally};
use crate::{
    decide::{Evictions, Outcome, Turn},
    memory::Memory,
    settings::Settings,
    testing::{noon, recommended, requests},
};

const SETS: usize = 2;

/// Something that happens.
#[derive(Clone, Debug)]
enum Step {
    Pod {
        pod: usize,
        cpu: &'static str,
        phase: &'static str,
        condition: Option<&'static str>,
        age: i64,
    },
    Gone(usize),
    Vpa {
        vpa: usize,
        mode: &'static str,
        cpu: &'static str,
        /// Whether what pods have is within bounds.
        is_wide: bool,
    },
    NoVpa(usize),
    Replicas(usize, i32),
    NoReplicaSet(usize),
    Limit(&'static str),
    Loop(i64),
}

fn step() -> impl Strategy<Value = Step> {
    let cpu = select(vec!["100m", "200m", "210m", "300m"]);
    let phase = select(vec!["Running", "Pending", "Succeeded"]);
    let condition = select(vec![None, None, Some("Deferred"), Some("Infeasible")]);
    let mode = select(vec!["Recreate", "InPlaceOrRecreate", "InPlace", "Off"]);
    prop_oneof![
        8 => (0..6_usize, cpu.clone(), phase, condition, 0..1000_i64)
            .prop_map(|(pod, cpu, phase, condition, age)| Step::Pod { pod, cpu, phase, condition, age }),
        1 => (0..6_usize).prop_map(Step::Gone),
        4 => (0..SETS, mode, cpu, any::<bool>())
            .prop_map(|(vpa, mode, cpu, is_wide)| Step::Vpa { vpa, mode, cpu, is_wide }),
        1 => (0..SETS).prop_map(Step::NoVpa),
        2 => (0..SETS, 0..5).prop_map(|(set, replicas)| Step::Replicas(set, replicas)),
        1 => (0..SETS).prop_map(Step::NoReplicaSet),
        1 => select(vec!["150m", "1"]).prop_map(Step::Limit),
        6 => (0..400_i64).prop_map(Step::Loop),
    ]
}

/// A cluster, each of its objects once.
fn cluster() -> impl Strategy<Value = Vec<Step>> {
    let cpu = || select(vec!["100m", "200m", "210m"]);
    let pods = vec((cpu(), select(vec!["Running", "Pending"]), 0..1000_i64), 0..6);
    let modes = select(vec!["Recreate", "InPlaceOrRecreate"]);
    let vpas = vec((modes, cpu(), any::<bool>()), 0..=SETS);
    let sets = vec(0..5_i32, 0..=SETS);
    (pods, vpas, sets, proptest::option::of(Just("150m"))).prop_map(|(pods, vpas, sets, limit)| {
        let pods = pods
            .into_iter()
            .enumerate()
            .map(|(pod, (cpu, phase, age))| Step::Pod {
                pod,
                cpu,
                phase,
                condition: None,
                age,
            });
        let vpas = vpas
            .into_iter()
            .enumerate()
            .map(|(vpa, (mode, cpu, is_wide))| Step::Vpa {
                vpa,
                mode,
                cpu,
                is_wide,
            });
        let sets = sets
            .into_iter()
            .enumerate()
            .map(|(set, replicas)| Step::Replicas(set, replicas));
        let limit = limit.map(Step::Limit);
        pods.chain(vpas).chain(sets).chain(limit).collect()
    })
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn owned(kind: &str, name: &str) -> Value {
    json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": true}])
}

/// A feed, and what its loops have done.
struct World {
    feed: Feed,
    memory: Memory,
    settings: Settings,
    now: DateTime<Utc>,
    /// Whether every loop looks at everything.
    looks_at_all: bool,
    /// Whether no two pods are known to be alike.
    looks_at_each: bool,
}

impl World {
    fn new() -> Self {
        Self {
            feed: Feed::default(),
            memory: Memory::default(),
            settings: Settings {
                gates: "InPlace=true".parse().unwrap(),
                ..Settings::default()
            },
            now: noon(),
            looks_at_all: false,
            looks_at_each: false,
        }
    }

    /// Takes a step; a loop gives what it did and how many pods it left for which reason.
    fn take(&mut self, step: &Step) -> Vec<String> {
        match step {
            Step::Pod {
                pod,
                cpu,
                phase,
                condition,
                age,
            } => self.feed.apply_pod(self.pod(*pod, cpu, phase, *condition, *age)),
            Step::Gone(pod) => {
                let gone = self.pod(*pod, "100m", "Running", None, 0);
                self.feed.pod(Change::Deleted(gone));
            }
            Step::Vpa {
                vpa,
                mode,
                cpu,
                is_wide,
            } => {
                let name = format!("web-{vpa}");
                let mut recommended = recommended("app", cpu, "100Mi");
                if *is_wide {
                    recommended["lowerBound"]["cpu"] = "50m".into();
                    recommended["upperBound"]["cpu"] = "1".into();
                }
                self.feed.apply_vpa(&read(json!({
                    "metadata": {"name": name, "namespace": "shop"},
                    "spec": {
                        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                        "updatePolicy": {"updateMode": mode},
                    },
                    "status": {"recommendation": {"containerRecommendations": [recommended]}},
                })));
            }
            Step::NoVpa(vpa) => self.feed.remove_vpa("shop", &format!("web-{vpa}")),
            Step::Replicas(set, replicas) => {
                let name = format!("web-{set}");
                let spec = json!({"selector": {"matchLabels": {"app": name}}, "replicas": replicas});
                self.feed
                    .controller(Change::Applied(read::<SlimSelecting<Deployment>>(
                        json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec}),
                    )));
                self.feed.controller(Change::Applied(read::<SlimSelecting<ReplicaSet>>(json!({
                    "metadata": {"name": name, "namespace": "shop", "ownerReferences": owned("Deployment", &name)},
                    "spec": spec,
                }))));
            }
            Step::NoReplicaSet(set) => {
                self.feed
                    .controller(Change::Deleted(read::<SlimSelecting<ReplicaSet>>(
                        json!({"metadata": {"name": format!("web-{set}"), "namespace": "shop"}}),
                    )));
            }
            Step::Limit(max) => self.feed.limit_range(Change::Applied(read(json!({
                "metadata": {"name": "l", "namespace": "shop"},
                "spec": {"limits": [{"type": "Container", "max": {"cpu": max}}]},
            })))),
            Step::Loop(minutes) => {
                self.now += TimeDelta::minutes(*minutes);
                return self.go_round();
            }
        }
        Vec::new()
    }

    fn pod(&self, pod: usize, cpu: &str, phase: &str, condition: Option<&str>, age: i64) -> Pod {
        let set = format!("web-{}", pod % SETS);
        let started = (noon() - TimeDelta::minutes(age)).to_rfc3339();
        let conditions = condition.map(|reason| {
            json!({"type": "PodResizePending", "status": "True", "reason": reason, "lastTransitionTime": started})
        });
        read(json!({
            "metadata": {
                "name": format!("pod-{pod}"), "namespace": "shop", "uid": format!("uid-{pod}"), "labels": {"app": set},
                "ownerReferences": owned("ReplicaSet", &set),
            },
            "spec": {"nodeName": "n", "containers": [{"name": "app", "resources": requests(cpu, "100Mi")}]},
            "status": {"phase": phase, "startTime": started, "conditions": conditions.map(|one| json!([one]))},
        }))
    }

    fn go_round(&mut self) -> Vec<String> {
        let no_scale = |_: &ControllerKey| ScaleLookup::NotFound("no");
        if self.looks_at_all {
            self.feed.everything_changed();
        }
        assert_eq!(self.feed.settle(no_scale), []);
        for uid in self.feed.take_gone() {
            self.memory.forget(&uid);
        }
        let mut done = Vec::new();
        for key in self.feed.due(self.now) {
            let mut work = self.feed.take(&key, no_scale).unwrap();
            if self.looks_at_each {
                for pod in &mut work.pods {
                    pod.spec = Arc::new((*pod.spec).clone());
                }
            }
            let pods: Vec<&Pod> = work.pods.iter().collect();
            let allowed = Evictions::Allowed;
            let mut turn = Turn::begin(
                &pods,
                &work.vpa,
                &work,
                &work.limit_ranges,
                &self.settings,
                allowed,
                self.now,
            );
            while let Some(command) = turn.next(&mut self.memory, self.now) {
                done.push(format!("{:?} {:?}", command.pod.metadata.name, command.act));
                turn.done(Outcome::Done, &mut self.memory);
            }
            let mut tally = Tally {
                pods: pods.len(),
                ..Tally::default()
            };
            tally.count(turn.fates());
            self.feed.note(&key, tally, turn.quiet_until());
        }
        let tallies = self.feed.tallies().map(|(vpa, tally)| {
            let mut skipped = tally.skipped.clone();
            skipped.sort_unstable();
            format!("{} {} {skipped:?}", vpa.sizing.name, tally.pods)
        });
        done.extend(tallies);
        done.sort_unstable();
        done
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn who_is_left_out_would_have_had_the_same_turn(steps in vec(step(), 1..60)) {
        let mut lazy = World::new();
        let mut eager = World { looks_at_all: true, ..World::new() };
        for step in &steps {
            prop_assert_eq!(lazy.take(step), eager.take(step), "{:?}", step);
        }
    }

    #[test]
    fn pods_that_are_alike_need_one_look(steps in cluster()) {
        let outcome = |mut world: World| {
            steps.iter().for_each(|step| drop(world.take(step)));
            [1, 300].map(|minutes| world.take(&Step::Loop(minutes)))
        };
        let each = World { looks_at_each: true, ..World::new() };
        prop_assert_eq!(outcome(World::new()), outcome(each));
    }

    #[test]
    fn the_order_in_which_things_are_told_does_not_matter(
        (told, shuffled) in cluster().prop_flat_map(|steps| (Just(steps.clone()), Just(steps).prop_shuffle())),
    ) {
        let outcome = |steps: &[Step]| {
            let mut world = World::new();
            steps.iter().for_each(|step| drop(world.take(step)));
            world.take(&Step::Loop(1))
        };
        prop_assert_eq!(outcome(&told), outcome(&shuffled));
    }
}
