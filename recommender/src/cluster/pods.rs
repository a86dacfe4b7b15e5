//! Pods and their containers in the model, and the samples of these. A pod's containers are kept apart by where they
//! stand: only managed ones are sampled, and the samples of the others are dropped.

use super::{
    Cluster, ModelConfig, Namespace,
    labels::{LabelSet, SetId},
    pool::{Name, Pool},
    vpas::{Quality, Vpa},
};
use crate::{
    aggregate::Aggregate,
    histogram::Resource,
    instant,
    window::{Accepted, Rejected, Rules, Samples},
};
use chrono::{DateTime, TimeDelta, Utc};
use common::quantity::{Bytes, MilliCpu};
use std::collections::BTreeMap;

/// How far a sample may be ahead of our clock. A clock that is wrong by more than that would move the histograms
/// into its own time, and everybody else's samples would count for nothing.
const MAX_AHEAD: TimeDelta = TimeDelta::days(1);

/// Where a container stands in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// One of `containers`.
    Regular,
    /// One of `initContainers` that runs as long as the pod.
    NativeSidecar,
    /// Any other of `initContainers`.
    Init,
}

/// A container of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerUpdate<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where it stands.
    pub place: Place,
}

/// A pod as it is now.
#[derive(Clone, Copy, Debug)]
pub struct PodUpdate<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// All its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// It has succeeded or failed, and will not run again.
    pub terminal: bool,
    /// All its containers.
    pub containers: &'a [ContainerUpdate<'a>],
}

/// What was seen of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// The CPU it used.
    Cpu(MilliCpu),
    /// The memory it used.
    Memory(Bytes),
    /// It was killed for want of memory, having asked for this much.
    Oom(Bytes),
}

#[derive(Debug)]
pub(crate) struct Pod {
    pub(crate) set: SetId,
    pub(crate) terminal: bool,
    /// The managed ones.
    pub(crate) containers: Vec<Container>,
    /// The others.
    pub(crate) unmanaged: Box<[Unmanaged]>,
}

#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) name: Name,
    pub(crate) samples: Samples,
}

#[derive(Debug)]
pub(crate) struct Unmanaged {
    pub(crate) name: Name,
    pub(crate) place: Place,
}

impl Cluster {
    /// A pod is there, or has changed.
    pub fn upsert_pod(&mut self, update: &PodUpdate<'_>, now: DateTime<Utc>) {
        let config = self.config;
        let (pool, content) = self.namespace_mut(update.namespace);
        let name = pool.name(update.name);
        let set = content.enter(update.labels, pool);
        let mut known = content.pods.remove(&name);
        let left = known.as_ref().map(|pod| pod.set).filter(|left| *left != set);

        let is_managed = |place: Place| match place {
            Place::Regular => true,
            Place::NativeSidecar => config.native_sidecars,
            Place::Init => false,
        };
        let mut containers = Vec::with_capacity(update.containers.len());
        let mut unmanaged = Vec::new();
        for ContainerUpdate { name, place } in update.containers {
            let name = pool.name(name);
            if !is_managed(*place) {
                unmanaged.push(Unmanaged { name, place: *place });
                continue;
            }
            let samples = known
                .as_mut()
                .and_then(|pod| pod.containers.iter().find(|container| container.name == name))
                .map(|container| container.samples)
                .unwrap_or_default();
            containers.push(Container { name, samples });
        }
        containers.shrink_to_fit();

        let Namespace { sets, vpas, pods } = content;
        if let Some(set) = sets.get_mut(set) {
            let appeared = set.pods.insert(Name::clone(&name));
            for container in &containers {
                aggregate_of(&config, set, vpas, &container.name, now);
            }
            if appeared {
                each_vpa(vpas, set, |vpa| vpa.stale = true);
            }
        }
        pods.insert(
            Name::clone(&name),
            Pod {
                set,
                terminal: update.terminal,
                containers,
                unmanaged: unmanaged.into(),
            },
        );
        if let Some(left) = left {
            content.leave(&name, left);
        }
        content.resume_windows(&config, &name);
    }

    /// A pod is gone. What its containers used stays known.
    pub fn remove_pod(&mut self, namespace: &str, name: &str, now: DateTime<Utc>) {
        let Some(content) = self.namespaces.get_mut(namespace) else {
            return;
        };
        if let Some(pod) = content.pods.remove(name) {
            // The peak of its last window is final now, so the checkpoint is no longer up to date.
            for container in pod
                .containers
                .iter()
                .filter(|container| container.samples.window().is_some())
            {
                if let Some(set) = content.sets.get(pod.set) {
                    each_vpa(&mut content.vpas, set, |vpa| {
                        vpa.touch(&container.name, now, false);
                    });
                }
            }
            content.leave(name, pod.set);
        }
        self.drop_if_empty(namespace);
    }

    /// The pods of the model: namespace and name.
    pub fn pods(&self) -> impl Iterator<Item = (&Name, &Name)> {
        self.namespaces
            .iter()
            .flat_map(|(namespace, content)| content.pods.keys().map(move |name| (namespace, name)))
    }

    /// Whether a pod is in the model.
    #[must_use]
    pub fn has_pod(&self, namespace: &str, name: &str) -> bool {
        self.namespaces
            .get(namespace)
            .is_some_and(|content| content.pods.contains_key(name))
    }

    /// The samples of a container so far, to compare and to show.
    #[must_use]
    pub fn samples(&self, namespace: &str, pod: &str, container: &str) -> Option<Samples> {
        let pod = self.namespaces.get(namespace)?.pods.get(pod)?;
        let found = pod
            .containers
            .iter()
            .find(|candidate| *candidate.name == *container);
        found.map(|container| container.samples)
    }

    /// Something was seen of a container at a time, and is told now.
    ///
    /// # Errors
    /// When it does not count.
    pub fn add_sample(
        &mut self,
        id: (&str, &str, &str),
        usage: Usage,
        time: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Result<(), Rejected> {
        self.add_sample_and_tell(id, usage, time, now, |_| {})
    }

    /// The same; tells how what counts compares with what is recommended.
    ///
    /// # Errors
    /// When it does not count.
    pub fn add_sample_and_tell(
        &mut self,
        id: (&str, &str, &str),
        usage: Usage,
        time: DateTime<Utc>,
        now: DateTime<Utc>,
        tell: impl FnOnce(Quality<'_>),
    ) -> Result<(), Rejected> {
        let (namespace, pod, container) = id;
        let config = &self.config;
        let content = self.namespaces.get_mut(namespace).ok_or(Rejected::UnknownPod)?;
        let Namespace { pods, sets, vpas } = content;
        let pod = pods.get_mut(pod).ok_or(Rejected::UnknownPod)?;
        if pod
            .unmanaged
            .iter()
            .any(|unmanaged| *unmanaged.name == *container)
        {
            return Err(Rejected::InitContainer);
        }
        let container = pod
            .containers
            .iter_mut()
            .find(|candidate| *candidate.name == *container)
            .ok_or(Rejected::UnknownContainer)?;
        if time > instant::plus(now, MAX_AHEAD) {
            return Err(Rejected::FromTheFuture);
        }
        // What is refused must not bring back an aggregate that was dropped; only an OOM does, since the aggregate says
        // how old it may be.
        match usage {
            Usage::Cpu(usage) => container.samples.check_cpu(usage, time)?,
            Usage::Memory(usage) => container.samples.check_memory(usage, time)?,
            Usage::Oom(_) => {}
        }
        let set = sets.get_mut(pod.set).ok_or(Rejected::UnknownPod)?;
        let aggregate = aggregate_of(config, set, vpas, &container.name, now);
        let settings = aggregate.settings(&config.settings);
        let rules = Rules {
            settings: &settings,
            quirks: config.quirks,
        };
        let accepted = match usage {
            Usage::Cpu(usage) => container.samples.add_cpu(usage, time, aggregate),
            Usage::Memory(usage) => container.samples.add_memory(usage, time, aggregate, rules),
            Usage::Oom(requested) => container.samples.add_oom(requested, time, aggregate, rules),
        }?;
        if accepted == Accepted::Changed {
            let urgent = matches!(usage, Usage::Oom(_));
            each_vpa(vpas, set, |vpa| vpa.touch(&container.name, now, urgent));
        }
        let (resource, amount, oom) = match usage {
            Usage::Cpu(usage) => (Resource::Cpu, usage.0, false),
            Usage::Memory(usage) => (Resource::Memory, usage.0, false),
            Usage::Oom(requested) => {
                let needed = container.samples.window().map(|window| window.oom_peak);
                (Resource::Memory, needed.unwrap_or(requested).0, true)
            }
        };
        let vpa = set.vpas.last().and_then(|name| vpas.get(name));
        if let Some(quality) = vpa.and_then(|vpa| vpa.quality(&container.name, resource, amount, oom)) {
            tell(quality);
        }
        Ok(())
    }
}

impl Namespace {
    /// The label set with these labels, linked with the VPAs that select it.
    fn enter(&mut self, labels: &BTreeMap<String, String>, pool: &mut Pool) -> SetId {
        let id = self.sets.intern(labels, pool);
        if let Some(set) = self.sets.get(id).filter(|set| set.is_unused()) {
            each_vpa(&mut self.vpas, set, |vpa| {
                vpa.sets.insert(id);
            });
        }
        id
    }

    /// Takes a pod out of a label set, which goes when it was the last to need it.
    fn leave(&mut self, pod: &str, set: SetId) {
        if let Some(left) = self.sets.get_mut(set) {
            left.pods.remove(pod);
            each_vpa(&mut self.vpas, left, |vpa| vpa.stale = true);
        }
        self.release(set);
    }

    /// Drops a label set that nobody needs, with the links to it.
    pub(crate) fn release(&mut self, set: SetId) {
        let Some(selected_by) = self.sets.get(set).map(|set| set.vpas.clone()) else {
            return;
        };
        if self.sets.release(set) {
            for vpa in selected_by {
                if let Some(vpa) = self.vpas.get_mut(&vpa) {
                    vpa.sets.remove(&set);
                }
            }
        }
    }

    /// Continues the windows that a pod had open before a restart, and that a checkpoint brought.
    pub(crate) fn resume_windows(&mut self, config: &ModelConfig, name: &str) {
        let Self { pods, sets, vpas } = self;
        let Some(pod) = pods.get_mut(name) else { return };
        let Some(set) = sets.get_mut(pod.set) else { return };
        let LabelSet {
            aggregates,
            vpas: selected_by,
            ..
        } = set;
        for vpa in selected_by.iter() {
            let Some(vpa) = vpas.get_mut(vpa) else { continue };
            for container in &mut pod.containers {
                let Some(record) = vpa.containers.get_mut(&container.name) else {
                    continue;
                };
                let Some(window) = record.pending.get(name) else {
                    continue;
                };
                let aggregate = aggregates.iter_mut().find(|(known, _)| *known == container.name);
                let resumed = aggregate.is_some_and(|(_, aggregate)| {
                    let settings = aggregate.settings(&config.settings);
                    let rules = Rules {
                        settings: &settings,
                        quirks: config.quirks,
                    };
                    container.samples.resume(*window, aggregate, rules)
                });
                if resumed {
                    record.pending.remove(name);
                }
            }
        }
    }
}

/// The aggregate of a container name under a label set: set up, and configured, where it is not there yet.
fn aggregate_of<'a>(
    config: &ModelConfig,
    set: &'a mut LabelSet,
    vpas: &BTreeMap<Name, Vpa>,
    container: &Name,
    now: DateTime<Utc>,
) -> &'a mut Aggregate {
    let LabelSet {
        aggregates,
        vpas: selected_by,
        ..
    } = set;
    let at = aggregates
        .iter()
        .position(|(name, _)| name == container)
        .unwrap_or_else(|| {
            let mut aggregate = Aggregate::new(config.half_lives, now);
            for vpa in selected_by.iter().filter_map(|name| vpas.get(name)) {
                vpa.configure(config, container, &mut aggregate);
            }
            aggregates.reserve_exact(1);
            aggregates.push((Name::clone(container), aggregate));
            aggregates.len() - 1
        });
    &mut aggregates[at].1
}

fn each_vpa(vpas: &mut BTreeMap<Name, Vpa>, set: &LabelSet, mut tell: impl FnMut(&mut Vpa)) {
    for name in &set.vpas {
        if let Some(vpa) = vpas.get_mut(name) {
            tell(vpa);
        }
    }
}
