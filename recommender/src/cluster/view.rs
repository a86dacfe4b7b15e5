//! Looking at one VPA: the merged history of each of its containers, and what its checkpoints should contain.

use super::{
    ModelConfig, Namespace,
    labels::LabelSet,
    pods::{Place, Pod},
    pool::Name,
    vpas::{ContainerRecord, Initial, Vpa},
};
use crate::{
    aggregate::{Aggregate, History},
    checkpoint,
    histogram::{Part, Resource},
    instant, num,
    peaks::Peaks,
    policy::Policies,
    window::Window,
};
use chrono::{DateTime, Utc};
use common::{api::checkpoint::VerticalPodAutoscalerCheckpointStatus, quirks::Quirk};
use std::collections::{BTreeMap, BTreeSet};

/// A VPA with everything that belongs to it.
#[derive(Clone, Copy, Debug)]
pub struct VpaView<'a> {
    config: &'a ModelConfig,
    /// Its namespace.
    pub namespace: &'a Name,
    /// Its name.
    pub name: &'a Name,
    content: &'a Namespace,
    vpa: &'a Vpa,
}

/// What a checkpoint object should contain.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Its status.
    pub status: VerticalPodAutoscalerCheckpointStatus,
    /// The value of the annotation that carries what VPA has no field for; without one it should go.
    pub annotation: Option<String>,
}

impl<'a> VpaView<'a> {
    pub(super) fn new(
        config: &'a ModelConfig,
        namespace: &'a Name,
        name: &'a Name,
        content: &'a Namespace,
        vpa: &'a Vpa,
    ) -> Self {
        Self {
            config,
            namespace,
            name,
            content,
            vpa,
        }
    }

    /// Its policies.
    #[must_use]
    pub fn policies(&self) -> &'a Policies {
        &self.vpa.policies
    }

    /// How many pods it selects.
    #[must_use]
    pub fn pod_count(&self) -> usize {
        self.sets().map(|set| set.pods.len()).sum()
    }

    /// The pods it selects.
    pub fn pod_names(&self) -> impl Iterator<Item = &'a Name> {
        self.pods().map(|(name, _)| name)
    }

    /// The containers it knows something of, those with mode `Off` included.
    #[must_use]
    pub fn containers(&self) -> BTreeSet<&'a Name> {
        let aggregated = self
            .sets()
            .flat_map(|set| set.aggregates.iter().map(|(name, _)| name));
        let records = self.vpa.containers.iter();
        let remembered = records
            .filter(|(_, record)| record.initial.is_some() || !record.pending.is_empty())
            .map(|(name, _)| name);
        let hidden = self.hidden();
        aggregated
            .chain(remembered)
            .filter(|name| !hidden.contains(name))
            .collect()
    }

    /// The merged history of every container that a recommendation is made for.
    #[must_use]
    pub fn histories(&self) -> BTreeMap<&'a Name, History> {
        let names = self.containers().into_iter();
        let wanted = names.filter(|name| !self.vpa.policies.is_off(name));
        wanted.map(|name| (name, self.history(name))).collect()
    }

    /// What is known of a container: all aggregates of its name, then what its checkpoint held.
    #[must_use]
    pub fn history(&self, container: &str) -> History {
        let mut merged = History::new(self.config.half_lives);
        for aggregate in self.aggregates(container) {
            merged.merge(&aggregate.history);
        }
        let record = self.vpa.containers.get(container);
        if let Some(initial) = initial_of(record) {
            merged.merge(&initial.history);
        }
        for window in record.iter().flat_map(|record| record.pending.values()) {
            merged.add_peak(window.peak(), window.end);
        }
        self.forget_old(container, &mut merged);
        merged
    }

    /// The checkpoint of a container. The peaks of windows that are still open are left out of the status, as VPA
    /// does, so that they are not counted twice after a restart; the annotation keeps them.
    #[must_use]
    pub fn checkpoint(&self, container: &str, now: DateTime<Utc>) -> Option<Checkpoint> {
        if !self.containers().iter().any(|name| ***name == *container) {
            return None;
        }
        let mut history = self.history(container);
        let pending = self.pending_windows(container);
        let open = self
            .pod_windows(container)
            .chain(pending)
            .filter(|(_, window)| now < window.end);
        let open: BTreeMap<&Name, Window> = open.collect();
        for window in open.values() {
            history.subtract_peak(window.peak(), window.end);
        }
        let status = checkpoint::save(&history, now);
        let windows = if self.config.quirks.has(Quirk::RestartLosesPeaks) {
            BTreeMap::new()
        } else {
            open
        };
        let annotation = checkpoint::annotate(&status, &windows, &self.settled_peaks(container, now));
        Some(Checkpoint { status, annotation })
    }

    /// The current windows of the pods' containers of this name, as far as there is an aggregate that has their peaks.
    fn pod_windows(&self, container: &str) -> impl Iterator<Item = (&'a Name, Window)> {
        let pods = &self.content.pods;
        let sets = self.sets().filter(move |set| set.aggregate(container).is_some());
        sets.flat_map(|set| &set.pods).filter_map(move |name| {
            let container = pods
                .get(name)?
                .containers
                .iter()
                .find(|candidate| *candidate.name == *container)?;
            Some((name, container.samples.window()?))
        })
    }

    /// The windows from before a restart whose pods have not been seen since.
    fn pending_windows(&self, container: &str) -> impl Iterator<Item = (&'a Name, Window)> {
        let record = self.vpa.containers.get(container).into_iter();
        record.flat_map(|record| record.pending.iter().map(|(name, window)| (name, *window)))
    }

    /// When the parts of a container's memory histogram were seen: without those that no longer count, and without
    /// the windows that are still open.
    fn settled_peaks(&self, container: &str, now: DateTime<Utc>) -> Peaks {
        let oldest = self.oldest_part(container);
        let parts = self.peak_sources(container).flat_map(Peaks::parts).copied();
        let counting = parts.filter(|part| oldest.is_none_or(|oldest| part.time > oldest));
        let mut peaks: Peaks = counting.collect();
        let settings = self
            .vpa
            .policies
            .settings(container, self.config.settings, self.config);
        for (_, window) in self.pod_windows(container).filter(|(_, window)| now < window.end) {
            peaks.subtract(
                window.peak(),
                window.end,
                &settings,
                self.config.half_lives.memory,
            );
        }
        peaks
    }

    /// When the memory peaks of a container were seen that count, open windows included; empty where nothing is ever
    /// forgotten, since then nobody notes it.
    #[must_use]
    pub fn peak_parts(&self, container: &str) -> Vec<Part> {
        if self.config.quirks.has(Quirk::UnboundedMemoryWindow) {
            return Vec::new();
        }
        let oldest = self.oldest_part(container);
        let noted = self.peak_sources(container).flat_map(Peaks::parts).copied();
        let counting = noted.filter(|part| oldest.is_none_or(|oldest| part.time > oldest));
        let pending = self.pending_windows(container).map(|(_, window)| Part {
            time: window.end,
            bucket: Resource::Memory.bucket(num::float(window.peak().0)),
            weight: 1.0,
        });
        counting.chain(pending).collect()
    }

    /// Takes out what is older than the window, counted from the youngest peak (kubernetes/autoscaler#10255).
    fn forget_old(&self, container: &str, merged: &mut History) {
        let Some(oldest) = self.oldest_part(container) else {
            return;
        };
        for part in self.peak_sources(container).flat_map(Peaks::parts) {
            if part.time <= oldest {
                merged.memory.forget(part);
            }
        }
    }

    fn oldest_part(&self, container: &str) -> Option<DateTime<Utc>> {
        if self.config.quirks.has(Quirk::UnboundedMemoryWindow) {
            return None;
        }
        let newest = self.peak_sources(container).filter_map(Peaks::newest).max()?;
        let window = self
            .vpa
            .policies
            .settings(container, self.config.settings, self.config)
            .memory_window();
        Some(instant::minus(newest, window))
    }

    fn peak_sources(&self, container: &str) -> impl Iterator<Item = &'a Peaks> {
        let initial = initial_of(self.vpa.containers.get(container));
        self.aggregates(container)
            .map(|aggregate| &aggregate.peaks)
            .chain(initial.map(|initial| &initial.peaks))
    }

    fn aggregates(&self, container: &str) -> impl Iterator<Item = &'a Aggregate> {
        self.sets().filter_map(move |set| set.aggregate(container))
    }

    fn sets(&self) -> impl Iterator<Item = &'a LabelSet> {
        let content = self.content;
        self.vpa.sets.iter().filter_map(move |id| content.sets.get(*id))
    }

    fn pods(&self) -> impl Iterator<Item = (&'a Name, &'a Pod)> {
        let content = self.content;
        self.sets()
            .flat_map(|set| &set.pods)
            .filter_map(move |name| Some((name, content.pods.get(name)?)))
    }

    /// With the gate off, the containers that the pods have only as native sidecars: not ours now, and what is known
    /// of them is left as it is for the day the gate is on again.
    fn hidden(&self) -> BTreeSet<&'a Name> {
        if self.config.native_sidecars {
            return BTreeSet::new();
        }
        let unmanaged = self.pods().flat_map(|(_, pod)| &pod.unmanaged);
        let sidecars = unmanaged.filter(|container| container.place == Place::NativeSidecar);
        let mut hidden: BTreeSet<&Name> = sidecars.map(|container| &container.name).collect();
        if !hidden.is_empty() {
            for container in self.pods().flat_map(|(_, pod)| &pod.containers) {
                hidden.remove(&container.name);
            }
        }
        hidden
    }
}

fn initial_of(record: Option<&ContainerRecord>) -> Option<&Initial> {
    record?.initial.as_deref()
}
