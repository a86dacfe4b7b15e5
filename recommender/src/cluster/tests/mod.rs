//! The model told small stories, in the words of the specification.

mod garbage;
mod laws;
mod links;
mod restart;
mod samples;
mod sidecars;

use super::*;
use crate::{aggregate::History, histogram::HalfLife, window::Rejected};
use common::quantity::{Bytes, MilliCpu};
use serde_json::json;

const MIB: i64 = 1024 * 1024;

fn config(quirks: Quirks) -> ModelConfig {
    let day = HalfLife::new(TimeDelta::days(1)).unwrap();
    ModelConfig {
        half_lives: HalfLives {
            cpu: day,
            memory: day,
        },
        settings: Settings {
            interval: TimeDelta::days(1),
            interval_count: 8,
            oom_ratio: 1.2,
            oom_min_bump: 104_857_600.0,
            memory_cap: None,
        },
        per_vpa_settings: true,
        native_sidecars: false,
        quirks,
    }
}

/// Minutes after some midnight.
fn at(minutes: i64) -> DateTime<Utc> {
    "2026-03-02T00:00:00Z".parse::<DateTime<Utc>>().unwrap() + TimeDelta::minutes(minutes)
}

const DAY: i64 = 24 * 60;

fn labels(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn policies(json: &serde_json::Value) -> Policies {
    Policies::from(&serde_json::from_value(json!({ "containerPolicies": json })).unwrap())
}

/// A model in namespace `ns`, with a VPA `v` over `app=x` unless a story says otherwise.
struct Story {
    cluster: Cluster,
}

impl Story {
    fn empty(config: ModelConfig) -> Self {
        Self {
            cluster: Cluster::new(config),
        }
    }

    fn new(config: ModelConfig) -> Self {
        let mut story = Self::empty(config);
        story.vpa("v", "app=x", Policies::default());
        story
    }

    fn vpa(&mut self, name: &str, selector: &str, policies: Policies) {
        self.cluster
            .upsert_vpa("ns", name, selector.parse().unwrap(), policies);
    }

    /// A pod with these containers: `a` is a regular one, `a:sidecar` and `a:init` are not.
    fn pod(&mut self, name: &str, labelled: &str, containers: &[&str]) {
        self.pod_in_phase(name, labelled, containers, false);
    }

    fn pod_in_phase(&mut self, name: &str, labelled: &str, containers: &[&str], terminal: bool) {
        let containers: Vec<ContainerUpdate<'_>> = containers
            .iter()
            .map(|text| match text.split_once(':') {
                None => (*text, Place::Regular),
                Some((name, "sidecar")) => (name, Place::NativeSidecar),
                Some((name, _)) => (name, Place::Init),
            })
            .map(|(name, place)| ContainerUpdate { name, place })
            .collect();
        let update = PodUpdate {
            namespace: "ns",
            name,
            labels: &labels(labelled),
            terminal,
            containers: &containers,
        };
        self.cluster.upsert_pod(&update, at(0));
    }

    fn sample(&mut self, pod: &str, container: &str, usage: Usage, minutes: i64) -> Result<(), Rejected> {
        self.cluster
            .add_sample(("ns", pod, container), usage, at(minutes), at(minutes))
    }

    fn cpu(&mut self, pod: &str, milli: i64, minutes: i64) -> Result<(), Rejected> {
        self.sample(pod, "a", Usage::Cpu(MilliCpu(milli)), minutes)
    }

    fn memory(&mut self, pod: &str, bytes: i64, minutes: i64) -> Result<(), Rejected> {
        self.sample(pod, "a", Usage::Memory(Bytes(bytes)), minutes)
    }

    fn oom(&mut self, pod: &str, requested: i64, minutes: i64) -> Result<(), Rejected> {
        self.sample(pod, "a", Usage::Oom(Bytes(requested)), minutes)
    }

    fn view(&self) -> VpaView<'_> {
        self.cluster.vpa("ns", "v").unwrap()
    }

    fn names(&self) -> Vec<String> {
        self.view()
            .containers()
            .into_iter()
            .map(ToString::to_string)
            .collect()
    }

    fn history(&self) -> History {
        self.view().history("a")
    }

    fn window(&self, pod: &str) -> Option<crate::window::Window> {
        self.cluster.samples("ns", pod, "a").unwrap().window()
    }

    fn checkpoint(&self, minutes: i64) -> Checkpoint {
        self.view().checkpoint("a", at(minutes)).unwrap()
    }
}

/// The memory peaks of a history by bucket, as they weigh at a time: each counts one at the end of its window, and half
/// of that a day later.
fn memory_weights(history: &History, minutes: i64) -> Vec<(u8, f64)> {
    let parts = history.memory.parts(at(minutes));
    parts
        .filter(|part| part.weight > 1e-6)
        .map(|part| (part.bucket, (part.weight * 1000.0).round() / 1000.0))
        .collect()
}

fn bucket(bytes: i64) -> u8 {
    crate::histogram::Resource::Memory.bucket(crate::num::float(bytes))
}
