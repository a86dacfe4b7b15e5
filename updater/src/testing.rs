//! Builders for the tests of decisions: a workload with its VPA, and turns over it.

use chrono::{DateTime, TimeDelta, Utc};
use common::{api::vpa::VerticalPodAutoscaler, plan::LimitRanges, pod::Pod, sidecarset::FormulaIndex};
use serde_json::{Value, json};

use crate::{
    decide::{Act, Evictions, Fate, Outcome, Turn},
    formula::Formulary,
    group::GroupKey,
    memory::Memory,
    settings::Settings,
    vpa::Vpa,
};

pub(crate) fn noon() -> DateTime<Utc> {
    "2026-03-10T12:00:00Z".parse().unwrap()
}

/// A workload `web` of equal pods, its VPA and the updater's flags.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) vpa: Value,
    pub(crate) pods: Vec<Value>,
    pub(crate) kind: &'static str,
    pub(crate) wanted: Option<i64>,
    pub(crate) settings: Settings,
    pub(crate) evictions: Evictions,
    /// Pods whose resize is refused.
    pub(crate) resize_fails: Vec<(&'static str, Outcome)>,
    /// Pods whose eviction is refused.
    pub(crate) evict_fails: Vec<(&'static str, Outcome)>,
    pub(crate) now: DateTime<Utc>,
    pub(crate) memory: Memory,
    /// The sets that are known.
    pub(crate) formulas: FormulaIndex,
}

/// As many pods as said that request 100m and 100Mi, recommended 200m and 200Mi.
pub(crate) fn workload(mode: &str, pods: usize) -> Workload {
    Workload {
        vpa: json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "updatePolicy": {"updateMode": mode},
            },
            "status": {"recommendation": {"containerRecommendations": [recommended("app", "200m", "200Mi")]}},
        }),
        pods: (0..pods).map(pod).collect(),
        kind: "ReplicaSet",
        wanted: i64::try_from(pods).ok(),
        settings: Settings {
            gates: "InPlace=true,CPUStartupBoost=true,PerVPAConfig=true"
                .parse()
                .unwrap(),
            ..Settings::default()
        },
        evictions: Evictions::Allowed,
        resize_fails: Vec::new(),
        evict_fails: Vec::new(),
        now: noon(),
        memory: Memory::default(),
        formulas: FormulaIndex::default(),
    }
}

/// A recommendation whose bounds are its target.
pub(crate) fn recommended(container: &str, cpu: &str, memory: &str) -> Value {
    let amounts = json!({"cpu": cpu, "memory": memory});
    json!({"containerName": container, "target": amounts, "lowerBound": amounts, "upperBound": amounts})
}

fn pod(index: usize) -> Value {
    json!({
        "metadata": {
            "name": format!("web-{index}"), "namespace": "shop", "uid": format!("uid-{index}"),
            "annotations": {"vpaObservedContainers": "app"},
        },
        "spec": {"containers": [{"name": "app", "resources": requests("100m", "100Mi")}]},
        "status": {"phase": "Running", "startTime": "2026-03-08T12:00:00Z"},
    })
}

pub(crate) fn requests(cpu: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": cpu, "memory": memory}})
}

/// A native sidecar that requests 10m and 10Mi.
pub(crate) fn native_sidecar(name: &str) -> Value {
    json!({"name": name, "restartPolicy": "Always", "resources": requests("10m", "10Mi")})
}

impl Workload {
    /// Changes every pod.
    pub(crate) fn each(mut self, change: impl Fn(&mut Value)) -> Self {
        self.pods.iter_mut().for_each(change);
        self
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub(crate) fn gate(self, gates: &str) -> Self {
        let gates = gates.parse().unwrap();
        self.with(|workload| workload.settings.gates = gates)
    }

    pub(crate) fn quirks(self, quirks: &str) -> Self {
        let quirks = quirks.parse().unwrap();
        self.with(|workload| workload.settings.quirks = quirks)
    }

    pub(crate) fn later(&mut self, minutes: i64) {
        self.now += TimeDelta::minutes(minutes);
    }

    /// One turn: what was done, in order, evictions that were refused among it, and what became of each pod.
    pub(crate) fn turn(&mut self) -> (Vec<String>, Vec<Fate>) {
        let (kind, wanted) = (self.kind, self.wanted);
        let pods: Vec<Pod> = self
            .pods
            .iter()
            .cloned()
            .map(|mut pod| {
                pod["metadata"]["ownerReferences"] =
                    json!([{"apiVersion": "v1", "kind": kind, "name": "web", "uid": "u", "controller": true}]);
                serde_json::from_value(pod).unwrap()
            })
            .collect();
        let pods: Vec<&Pod> = pods.iter().collect();
        let vpa: VerticalPodAutoscaler = serde_json::from_value(self.vpa.clone()).unwrap();
        let vpa = Vpa::from(&vpa);
        let ranges = LimitRanges::default();
        let replicas = move |_: &GroupKey<'_>| wanted;
        let formulary = Formulary::new(self.formulas.clone(), pods.iter().copied());
        let formulas: Vec<_> = pods.iter().map(|pod| formulary.of(pod)).collect();
        let mut turn = Turn::begin(
            &pods,
            &vpa,
            &replicas,
            &ranges,
            &self.settings,
            self.evictions,
            self.now,
        )
        .with_formulas(&formulas);
        let mut done = Vec::new();
        while let Some(command) = turn.next(&mut self.memory, self.now) {
            let name = command.pod.metadata.name.as_deref().unwrap();
            let fails = match &command.act {
                Act::Resize(_) | Act::Unboost(_) => &self.resize_fails,
                Act::Evict => &self.evict_fails,
            };
            let refusal = fails.iter().find(|(fails, _)| *fails == name);
            let outcome = refusal.map_or(Outcome::Done, |(_, outcome)| *outcome);
            match (&command.act, outcome) {
                (Act::Unboost(_), Outcome::Done) => done.push(format!("unboost {name}")),
                (Act::Resize(_), Outcome::Done) => done.push(format!("resize {name}")),
                (Act::Evict, Outcome::Done) => done.push(format!("evict {name}")),
                (Act::Evict, _) => done.push(format!("cannot evict {name}")),
                _ => {}
            }
            turn.done(outcome, &mut self.memory);
        }
        (done, turn.fates().to_vec())
    }

    /// What one turn did.
    pub(crate) fn done(&mut self) -> Vec<String> {
        self.turn().0
    }

    /// What became of the first pod in one turn: what was done to it, or why nothing.
    pub(crate) fn first(&mut self) -> String {
        match self.turn().1.first() {
            Some(Fate::Skipped(skip)) => skip.name().to_owned(),
            Some(fate) => format!("{fate:?}").to_lowercase(),
            None => String::new(),
        }
    }
}
