//! What the containers of the sandbox use. It is told in an annotation of the pod template:
//!
//! ```yaml
//! sandbox.outrigger.dev/load: |
//!   {"traffic": "daily(20, 200, 14h)",
//!    "containers": {"app":   {"cpu": "50m + 4m * traffic", "memory": "200Mi + 1Mi * traffic"},
//!                   "proxy": {"cpu": "(5m + 1m * traffic) * noise(10%)", "memory": "leak(40Mi, 5Mi)"}}}
//! ```
//!
//! or, while a scenario runs, by [`Loads::set`] and [`Loads::set_traffic`], which win over the annotation.
//!
//! - A load is a sum of products of amounts (`100m`, `64Mi`, `5%`), `daily(low, high, hour)`, `ramp(from, to, time)`,
//!   `burst(low, high, every, time)`, `leak(start, perHour)`, `noise(part)` and `traffic`: the workload's, divided by its
//!   ready pods; a pod that is not ready has none. Times are `90s`, `10min`, `2h`, `1d`.
//! - Ramps and bursts count from the creation of the workload (or from the call of `set`), so that they survive the pods;
//!   leaks from the start of the container; the noise is drawn from the pod's uid.
//! - `"runs": "2min"` says how long the pods of Jobs run (10 s when not given).
//! - CPU is cut at the container's limit, as throttling does; memory is not: see the kubelet's OOM kills.
//! - A container of which nothing is told uses 5m and 10Mi.

mod parse;
mod shape;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use common::clock::Clock;
use serde::Deserialize;

pub use self::{
    parse::LoadError,
    shape::{Load, Moment, NOISE_SECONDS},
};
use super::index::Pod;
use crate::sandbox::api::mix;

/// The annotation on pods.
pub const ANNOTATION: &str = "sandbox.outrigger.dev/load";

/// What one container uses.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerLoad {
    /// In cores.
    pub cpu: Load,
    /// In bytes.
    pub memory: Load,
}

impl ContainerLoad {
    /// From the text form of both.
    ///
    /// # Errors
    /// When one does not parse.
    pub fn parse(cpu: &str, memory: &str) -> Result<Self, LoadError> {
        Ok(Self {
            cpu: cpu.parse()?,
            memory: memory.parse()?,
        })
    }
}

impl Default for ContainerLoad {
    fn default() -> Self {
        Self {
            cpu: Load::Constant(0.005),
            memory: Load::Constant(10.0 * 1024.0 * 1024.0),
        }
    }
}

/// What a pod's annotation says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PodLoad {
    traffic: Option<Arc<Load>>,
    pub(super) runs: Option<Duration>,
    containers: BTreeMap<String, Arc<ContainerLoad>>,
}

impl PodLoad {
    /// Reads the annotation.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub(super) fn parse(annotation: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Text {
            traffic: Option<String>,
            runs: Option<String>,
            #[serde(default)]
            containers: BTreeMap<String, ContainerText>,
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct ContainerText {
            cpu: Option<String>,
            memory: Option<String>,
        }
        let text: Text = serde_json::from_str(annotation).map_err(|error| error.to_string())?;
        let load = |text: Option<String>| text.map(|text| text.parse::<Load>()).transpose();
        let traffic = load(text.traffic).map_err(|error| error.to_string())?;
        if traffic.as_ref().is_some_and(Load::follows_traffic) {
            return Err("the traffic cannot follow the traffic".into());
        }
        let runs = text.runs.map(|text| parse::duration(&text)).transpose();
        let mut containers = BTreeMap::new();
        for (name, text) in text.containers {
            let default = ContainerLoad::default();
            let load = |text| load(text).map_err(|error| format!("container {name}: {error}"));
            let both = ContainerLoad {
                cpu: load(text.cpu)?.unwrap_or(default.cpu),
                memory: load(text.memory)?.unwrap_or(default.memory),
            };
            containers.insert(name, Arc::new(both));
        }
        Ok(Self {
            traffic: traffic.map(Arc::new),
            runs: runs.map_err(|error| error.to_string())?,
            containers,
        })
    }
}

/// What a container uses at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// In cores.
    pub cpu: f64,
    /// In bytes.
    pub memory: f64,
}

/// The loads of all workloads. Clones share them.
#[derive(Clone, Debug)]
pub struct Loads(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    seed: u64,
    default: Arc<ContainerLoad>,
    version: AtomicU64,
    told: RwLock<Told>,
}

/// Something told, and when.
type Since<T> = (Arc<T>, DateTime<Utc>);

#[derive(Debug, Default)]
struct Told {
    /// Of each container by its name.
    containers: ByWorkload<HashMap<String, Since<ContainerLoad>>>,
    traffic: ByWorkload<Since<Load>>,
}

/// By namespace and name, each a map of its own, so that to ask costs no new text.
type ByWorkload<T> = HashMap<String, HashMap<String, T>>;

impl Loads {
    pub(super) fn new(clock: Clock, seed: u64) -> Self {
        Self(Arc::new(Inner {
            clock,
            seed,
            default: Arc::default(),
            version: AtomicU64::new(0),
            told: RwLock::default(),
        }))
    }

    /// Says what a container of a workload uses from now on, in all its pods. The workload is the Deployment, the CronJob and
    /// so on, or a pod that stands alone.
    pub fn set(&self, namespace: &str, workload: &str, container: &str, load: ContainerLoad) {
        let load = (Arc::new(load), self.0.clock.now());
        self.change(|told| {
            let quarter = told.containers.entry(namespace.to_owned()).or_default();
            let loads = quarter.entry(workload.to_owned()).or_default();
            loads.insert(container.to_owned(), load)
        });
    }

    /// Says what traffic a workload has from now on, all its pods together.
    pub fn set_traffic(&self, namespace: &str, workload: &str, traffic: Load) {
        let traffic = (Arc::new(traffic), self.0.clock.now());
        self.change(|told| {
            let quarter = told.traffic.entry(namespace.to_owned()).or_default();
            quarter.insert(workload.to_owned(), traffic)
        });
    }

    /// Forgets what was set for a workload; its annotation counts again.
    pub fn clear(&self, namespace: &str, workload: &str) {
        self.change(|told| {
            told.containers
                .get_mut(namespace)
                .and_then(|quarter| quarter.remove(workload));
            told.traffic
                .get_mut(namespace)
                .and_then(|quarter| quarter.remove(workload))
        });
    }

    /// Counts the changes.
    pub(super) fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }

    /// What a container uses that started at `started`, in a pod that shares the traffic with `replicas` ready ones.
    pub(super) fn usage(
        &self,
        pod: &Pod,
        container: &str,
        started: DateTime<Utc>,
        replicas: usize,
        now: DateTime<Utc>,
    ) -> Usage {
        let (load, told) = self.container(pod, container);
        let seed = mix(self.0.seed ^ text_number(&pod.object.uid)) ^ text_number(container);
        let mut moment = Moment {
            now,
            told,
            started,
            traffic: 0.0,
            seed,
        };
        // A pod that is not ready gets no traffic.
        if pod.is_ready()
            && let Some((traffic, told)) = self.traffic(pod)
        {
            let share = f64::from(u32::try_from(replicas.max(1)).unwrap_or(u32::MAX));
            moment.traffic = traffic.at(&Moment { told, ..moment }) / share;
        }
        let cpu = load.cpu.at(&moment).max(0.0);
        moment.seed = mix(seed);
        let memory = load.memory.at(&moment).max(0.0);
        Usage { cpu, memory }
    }

    /// The most memory that a container can ever use.
    pub(super) fn memory_ceiling(&self, pod: &Pod, container: &str) -> f64 {
        let traffic = self.traffic(pod).map_or(0.0, |(traffic, _)| traffic.ceiling(0.0));
        self.container(pod, container).0.memory.ceiling(traffic)
    }

    fn container(&self, pod: &Pod, container: &str) -> Since<ContainerLoad> {
        let told = self.0.told.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(quarter) = told.containers.get(&*pod.object.key.namespace)
            && let Some(loads) = quarter.get(&*pod.workload.name)
            && let Some((load, since)) = loads.get(container)
        {
            return (load.clone(), *since);
        }
        let load = pod.load.containers.get(container);
        let load = load.unwrap_or(&self.0.default);
        (load.clone(), pod.workload.since)
    }

    fn traffic(&self, pod: &Pod) -> Option<Since<Load>> {
        let told = self.0.told.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(quarter) = told.traffic.get(&*pod.object.key.namespace)
            && let Some((load, since)) = quarter.get(&*pod.workload.name)
        {
            return Some((load.clone(), *since));
        }
        Some((pod.load.traffic.clone()?, pod.workload.since))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Told) -> T) {
        change(&mut self.0.told.write().unwrap_or_else(PoisonError::into_inner));
        self.0.version.fetch_add(1, Ordering::AcqRel);
    }
}

/// A number for each text (FNV-1a).
pub(super) fn text_number(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_says_what_is_wrong_with_it() {
        let table = [
            ("{", "EOF while parsing an object at line 1 column 1"),
            (
                r#"{"app": {}}"#,
                "unknown field `app`, expected one of `traffic`, `runs`, `containers` at line 1 column 6",
            ),
            (
                r#"{"traffic": "traffic"}"#,
                "the traffic cannot follow the traffic",
            ),
            (
                r#"{"runs": "5m"}"#,
                "in the load \"5m\" at column 3: a time such as 90s, 10min, 2h or 1d is expected",
            ),
            (
                r#"{"containers": {"app": {"cpu": "1 +"}}}"#,
                "container app: in the load \"1 +\" at column 4: write an amount",
            ),
        ];
        for (annotation, expected) in table {
            let error = PodLoad::parse(annotation).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn what_is_not_told_is_small_and_constant() {
        let load = PodLoad::parse(r#"{"containers": {"app": {"cpu": "1"}}}"#).unwrap();
        let expected = ContainerLoad::parse("1", "10Mi").unwrap();
        assert_eq!(
            load.containers,
            BTreeMap::from([("app".to_owned(), Arc::new(expected))])
        );
    }
}
