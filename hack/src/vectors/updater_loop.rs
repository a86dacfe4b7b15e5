//! Family `updater-loop`: whole loops of the updater over unchanging objects.

use std::collections::{BTreeMap, HashMap, HashSet};

use ::updater::{
    decide::{Act, Command, Evictions, Fate, Outcome, Turn},
    group::GroupKey,
    memory::Memory,
    reason::Skip,
    settings::Settings,
    vpa::Vpa,
};
use anyhow::Context as _;
use chrono::{DateTime, TimeDelta, Utc};
use common::{
    api::{k8s::LimitRange, vpa::VerticalPodAutoscaler},
    plan::LimitRanges,
    pod::Pod,
    target::{VpaIndex, controlling_vpa},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    admission::{Known, ScaleInput, by_namespace, gates},
    eviction::{Budget, RESIZED, eviction_events, patches, replicas},
    family::Context,
    priority::Thresholds,
};

const SKIPPED: &str = "Normal InPlaceResizeSkipped Previously recorded in-place update was infeasible, \
                       current recommendation is not lower than previous, skipping resize";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    #[serde(default)]
    gates: BTreeMap<String, bool>,
    #[serde(flatten)]
    budget: Budget,
    #[serde(flatten)]
    thresholds: Thresholds,
    #[serde(default)]
    ignored_namespaces: Vec<String>,
    vpas: Vec<VerticalPodAutoscaler>,
    pods: Vec<Pod>,
    #[serde(default)]
    controllers: Vec<Value>,
    #[serde(default)]
    scales: Vec<ScaleInput>,
    #[serde(default)]
    limit_ranges: Vec<LimitRange>,
    #[serde(default)]
    evict_fails: Vec<String>,
    #[serde(default)]
    resize_fails: Vec<String>,
    #[serde(default)]
    resize_node_capacity: Vec<String>,
    now: DateTime<Utc>,
    #[serde(default)]
    advance_seconds: Vec<i64>,
}

pub(super) fn answer(input: &Value, context: &Context) -> anyhow::Result<Value> {
    let input = Input::deserialize(input).context("cannot read the input")?;
    let mut settings = Settings {
        gates: gates(&input.gates, &context.gates)?,
        quirks: context.quirks,
        ..Settings::default()
    };
    input.budget.apply(&mut settings);
    input.thresholds.apply(&mut settings);
    let cluster = Cluster {
        controlled: controlled(&input)?,
        limit_ranges: by_namespace(&input.limit_ranges),
        input: &input,
        settings: &settings,
    };
    let mut memory = Memory::default();
    let mut now = input.now;
    let mut loops = vec![cluster.run(&mut memory, now)];
    for seconds in &input.advance_seconds {
        now += TimeDelta::seconds(*seconds);
        loops.push(cluster.run(&mut memory, now));
    }
    Ok(json!({ "loops": loops }))
}

/// The VPAs that act, each with the pods it controls.
fn controlled(input: &Input) -> anyhow::Result<Vec<(Vpa, Vec<&Pod>)>> {
    let known = Known::read(&input.controllers, &input.scales)?;
    let mut index = VpaIndex::default();
    let mut controlled: Vec<(Vpa, Vec<&Pod>)> = Vec::new();
    let mut places: HashMap<(&str, &str), usize> = HashMap::new();
    for object in &input.vpas {
        let vpa = Vpa::from(object);
        if vpa.acts() && !input.ignored_namespaces.contains(&vpa.namespace) {
            index.apply(object);
            let metadata = &object.metadata;
            let key = (
                metadata.namespace.as_deref().unwrap_or_default(),
                metadata.name.as_deref().unwrap_or_default(),
            );
            places.insert(key, controlled.len());
            controlled.push((vpa, Vec::new()));
        }
    }
    for pod in live(input) {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let vpa = controlling_vpa(pod, namespace, &index, &known, |_| true);
        if let Ok(Some(vpa)) = vpa
            && let Some(place) = places.get(&(namespace, vpa.sizing.name.as_str()))
        {
            controlled[*place].1.push(pod);
        }
    }
    Ok(controlled)
}

fn live(input: &Input) -> impl Iterator<Item = &Pod> {
    let pods = input.pods.iter();
    pods.filter(|pod| pod.metadata.deletion_timestamp.is_none())
}

struct Cluster<'a> {
    input: &'a Input,
    settings: &'a Settings,
    controlled: Vec<(Vpa, Vec<&'a Pod>)>,
    limit_ranges: HashMap<String, LimitRanges>,
}

/// What was done in one loop.
#[derive(Default)]
struct Done {
    evicted: Vec<String>,
    patches: Vec<Value>,
    events: Vec<String>,
}

impl Cluster<'_> {
    fn run(&self, memory: &mut Memory, now: DateTime<Utc>) -> Value {
        let live = live(self.input).filter_map(|pod| pod.metadata.uid.as_deref());
        memory.keep(&live.collect::<HashSet<_>>(), self.settings.quirks);
        let mut done = Done::default();
        let none = LimitRanges::default();
        let replicas = |key: &GroupKey<'_>| replicas(&self.input.controllers, key);
        for (vpa, pods) in self.controlled.iter().filter(|(_, pods)| !pods.is_empty()) {
            let limit_ranges = self.limit_ranges.get(&vpa.namespace).unwrap_or(&none);
            let allowed = Evictions::Allowed;
            let mut turn = Turn::begin(pods, vpa, &replicas, limit_ranges, self.settings, allowed, now);
            while let Some(command) = turn.next(memory, now) {
                let outcome = self.carry_out(&command, &mut done);
                turn.done(outcome, memory);
            }
            let skipped = turn.fates().iter();
            let skipped = skipped.filter(|fate| **fate == Fate::Skipped(Skip::InfeasibleBefore));
            done.events.extend(skipped.map(|_| SKIPPED.to_owned()));
        }
        let workload = |pod: &str| {
            pod.rsplit_once("-p")
                .map_or("", |(workload, _)| workload)
                .to_owned()
        };
        done.evicted.sort_by_key(|pod| workload(pod));
        done.patches
            .sort_by_key(|patch| workload(patch["pod"].as_str().unwrap_or_default()));
        done.events.sort();
        let mut infeasible: Vec<_> = memory.infeasible_uids().collect();
        infeasible.sort_unstable();
        json!({
            "evicted": done.evicted,
            "patches": done.patches,
            "events": done.events,
            "infeasible": infeasible,
        })
    }

    /// The API server's part.
    fn carry_out(&self, command: &Command<'_>, done: &mut Done) -> Outcome {
        let Command { pod, act } = command;
        let name = pod.metadata.name.clone().unwrap_or_default();
        match act {
            Act::Evict if self.input.evict_fails.contains(&name) => Outcome::Refused,
            Act::Evict => {
                done.events.extend(eviction_events(&name));
                done.evicted.push(name);
                Outcome::Done
            }
            Act::Unboost(_) | Act::Resize(_) if self.input.resize_fails.contains(&name) => Outcome::Refused,
            Act::Unboost(_) | Act::Resize(_) if self.input.resize_node_capacity.contains(&name) => {
                Outcome::NodeCapacity
            }
            Act::Unboost(resize) | Act::Resize(resize) => {
                done.events.push(RESIZED.to_owned());
                done.patches
                    .extend(patches(&name, &resize.resources, &resize.annotations));
                Outcome::Done
            }
        }
    }
}
