//! Family `eviction`: what may be done to a VPA's pods one after the other, within the disruption budget.

use std::{collections::BTreeMap, iter};

use ::updater::{
    group::{Group, GroupKey, Groups},
    inplace::{Decision, Restrictions},
    memory::Memory,
    reason::Skip,
    resize::resize,
    settings::Settings,
    vpa::Vpa,
};
use anyhow::{Context as _, bail};
use chrono::{DateTime, TimeDelta, Utc};
use common::{
    api::vpa::{RecommendedPodResources, VerticalPodAutoscaler},
    patch::Operation,
    plan::{LimitRanges, PlanInput, Stage, plan},
    pod::Pod,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{admission::gates, family::Context, priority::amounts};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    #[serde(default)]
    gates: BTreeMap<String, bool>,
    #[serde(flatten)]
    budget: Budget,
    vpa: VerticalPodAutoscaler,
    pods: Vec<Pod>,
    #[serde(default)]
    controllers: Vec<Value>,
    #[serde(default)]
    infeasible: BTreeMap<String, RecommendedPodResources>,
    #[serde(default)]
    evict_fails: Vec<String>,
    #[serde(default)]
    resize_fails: Vec<String>,
    now: DateTime<Utc>,
    actions: Vec<Action>,
}

/// The flags that say how much may be done at once.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Budget {
    min_replicas: i64,
    eviction_tolerance: f64,
    in_place_skip_disruption_budget: bool,
}

#[derive(Deserialize)]
struct Action {
    op: String,
    #[serde(default)]
    pod: String,
    #[serde(default)]
    seconds: i64,
}

pub(super) fn answer(input: &Value, context: &Context) -> anyhow::Result<Value> {
    let input = Input::deserialize(input).context("cannot read the input")?;
    let mut settings = Settings {
        gates: gates(&input.gates, &context.gates)?,
        quirks: context.quirks,
        ..Settings::default()
    };
    input.budget.apply(&mut settings);
    let vpa = Vpa::from(&input.vpa);
    let pods: Vec<&Pod> = input.pods.iter().collect();
    let replicas = |key: &GroupKey<'_>| replicas(&input.controllers, key);
    let restrictions = || Restrictions {
        pods: &pods,
        groups: Groups::count(&pods, &vpa, &replicas, &settings),
        vpa: &vpa,
        settings: &settings,
    };
    let mut memory = Memory::default();
    for pod in &pods {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if let Some(recommendation) = input.infeasible.get(uid) {
            memory.remember_infeasible(pod, &amounts(recommendation));
        }
    }
    let mut sequence = Sequence {
        input: &input,
        now: input.now,
        memory,
        restrictions: restrictions(),
        evicted: Vec::new(),
    };
    let before = sequence.groups();
    let mut results = Vec::new();
    for action in &input.actions {
        results.push(match action.op.as_str() {
            "newLoop" => {
                sequence.restrictions = restrictions();
                json!({})
            }
            "advance" => {
                sequence.now += TimeDelta::seconds(action.seconds);
                json!({})
            }
            _ => sequence.act(action)?,
        });
    }
    Ok(json!({
        "groups": before,
        "groupsAfter": sequence.groups(),
        "results": results,
        "evicted": sequence.evicted,
    }))
}

impl Budget {
    pub(super) fn apply(&self, settings: &mut Settings) {
        settings.min_replicas = self.min_replicas;
        settings.eviction_tolerance = self.eviction_tolerance;
        settings.in_place_skip_disruption_budget = self.in_place_skip_disruption_budget;
    }
}

struct Sequence<'a> {
    input: &'a Input,
    now: DateTime<Utc>,
    memory: Memory,
    restrictions: Restrictions<'a>,
    evicted: Vec<&'a str>,
}

impl<'a> Sequence<'a> {
    fn act(&mut self, action: &'a Action) -> anyhow::Result<Value> {
        let mut pods = self.input.pods.iter();
        let index = pods.position(|pod| pod.metadata.name.as_ref() == Some(&action.pod));
        let index = index.with_context(|| format!("no pod {:?}", action.pod))?;
        let Self {
            now,
            memory,
            restrictions,
            ..
        } = self;
        Ok(match action.op.as_str() {
            "canEvict" => json!({"result": restrictions.can_evict(index, memory, *now).is_ok()}),
            "canInPlace" => json!({"result": name(restrictions.can_resize(index, memory, *now))}),
            "canUnboost" => json!({"result": restrictions.can_unboost(index, *now).is_ok()}),
            "evict" => self.evict(index, &action.pod),
            "inPlace" => self.resize(index, &action.pod),
            other => bail!("unknown action {other:?}"),
        })
    }

    fn evict(&mut self, index: usize, pod: &'a str) -> Value {
        let id = format!(
            "{}/{pod}",
            self.input.vpa.metadata.namespace.as_deref().unwrap_or_default()
        );
        if self.restrictions.groups.of(index).is_err() {
            return json!({"error": format!("pod not suitable for eviction {id}: not in replicated pods map")});
        }
        if self
            .restrictions
            .can_evict(index, &mut self.memory, self.now)
            .is_err()
        {
            return json!({"error": format!("cannot evict pod {id}: eviction budget exceeded")});
        }
        if self.input.evict_fails.iter().any(|fails| fails == pod) {
            return json!({"error": "eviction refused"});
        }
        self.restrictions.evicted(index);
        self.evicted.push(pod);
        json!({"ok": true, "events": eviction_events(pod)})
    }

    fn resize(&mut self, index: usize, name: &str) -> Value {
        if self.restrictions.groups.of(index).is_err() {
            return json!({"error": format!("pod not suitable for in-place update {name}: not in replicated pods map")});
        }
        let Restrictions { vpa, settings, .. } = self.restrictions;
        let pod = &self.input.pods[index];
        let no_limit_ranges = LimitRanges::default();
        let plan = plan(&PlanInput {
            pod,
            sizing: &vpa.sizing,
            formulas: None,
            limit_ranges: &no_limit_ranges,
            stage: Stage::Running,
            remembered: None,
            even_if_off: false,
            max_cpu_boost: None,
            gates: &settings.gates,
            quirks: settings.quirks,
        });
        let resize = match resize(pod, vpa, &plan, settings, self.now) {
            Ok(resize) => resize,
            Err(Skip::NoChange) => return json!({"error": "no resource patches were calculated to apply"}),
            Err(skip) => return json!({"error": skip.name()}),
        };
        if self.input.resize_fails.iter().any(|fails| fails == name) {
            return json!({"error": "resize refused"});
        }
        self.restrictions.resized(index);
        json!({
            "ok": true,
            "patches": patches(name, &resize.resources, &resize.annotations),
            "events": [RESIZED],
        })
    }

    fn groups(&self) -> Vec<Value> {
        let mut groups: Vec<&Group<'_>> = self.restrictions.groups.iter().collect();
        groups.sort_by_key(|group| (group.key.kind, group.key.name));
        let print = |group: &Group<'_>| {
            json!({
                "kind": group.key.kind,
                "name": group.key.name,
                "configured": group.configured,
                "pending": group.pending,
                "running": group.running,
                "tolerance": group.tolerance,
                "evicted": group.evicted,
                "inPlaceInitiated": group.resized,
                "belowMinReplicas": group.below_min_replicas,
            })
        };
        groups.into_iter().map(print).collect()
    }
}

pub(super) const RESIZED: &str = "Normal InPlaceResizedByVPA Pod was resized in place by VPA Updater.";

pub(super) fn eviction_events(pod: &str) -> [String; 2] {
    [
        "Normal EvictedByVPA Pod was evicted by VPA Updater to apply resource recommendation.".to_owned(),
        format!("Normal EvictedPod VPA Updater evicted Pod {pod} to apply resource recommendation."),
    ]
}

pub(super) fn patches(pod: &str, resources: &[Operation], annotations: &[Operation]) -> Vec<Value> {
    iter::zip(["resize", ""], [resources, annotations])
        .map(|(subresource, patch)| json!({"pod": pod, "subresource": subresource, "patch": patch}))
        .collect()
}

/// How many pods a controller wants, of those that are in the caches.
pub(super) fn replicas(controllers: &[Value], key: &GroupKey<'_>) -> Option<i64> {
    let controller = controllers.iter().find(|controller| {
        let text = |pointer: &str| controller.pointer(pointer).and_then(Value::as_str);
        text("/kind") == Some(key.kind)
            && text("/metadata/name") == Some(key.name)
            && text("/metadata/namespace").unwrap_or_default() == key.namespace
    })?;
    let count = match key.kind {
        "DaemonSet" => "/status/numberReady",
        _ => "/spec/replicas",
    };
    Some(controller.pointer(count).and_then(Value::as_i64).unwrap_or(0))
}

fn name(decision: Decision) -> &'static str {
    match decision {
        Decision::Approved => "InPlaceApproved",
        Decision::Deferred(_) => "InPlaceDeferred",
        Decision::Evict => "InPlaceEvict",
        Decision::Infeasible => "InPlaceInfeasible",
        Decision::InfeasibleCached => "InPlaceInfeasibleCached",
    }
}
