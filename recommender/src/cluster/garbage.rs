//! Dropping aggregates that nobody will ask for again (`spec/vpa.md` 2.7), with the label sets and names that only
//! they needed.

use super::{Cluster, Namespace, pods::Pod, pool::Name};
use crate::{
    aggregate::{Aggregate, Settings},
    instant,
};
use chrono::{DateTime, TimeDelta, Utc};
use common::quirks::{Quirk, Quirks};
use std::collections::HashSet;

/// How often it is worth looking.
const INTERVAL: TimeDelta = TimeDelta::hours(1);

impl Cluster {
    /// Drops the aggregates that are too old, and those without samples that no pod needs; at most once an hour. A
    /// pod that has come to its end still needs them if the controller of a VPA over it is found.
    pub fn collect_garbage(&mut self, now: DateTime<Utc>, controller_found: impl Fn(&str, &str) -> bool) {
        if self
            .last_garbage
            .is_some_and(|last| now < instant::plus(last, INTERVAL))
        {
            return;
        }
        self.last_garbage = Some(now);
        let (settings, quirks) = (self.config.settings, self.config.quirks);
        for (name, content) in &mut self.namespaces {
            content.collect_garbage(now, &settings, quirks, |vpa| controller_found(name, vpa));
        }
        for namespace in self.namespaces.keys().cloned().collect::<Vec<_>>() {
            self.drop_if_empty(&namespace);
        }
        self.pool.sweep();
    }
}

impl Namespace {
    fn collect_garbage(
        &mut self,
        now: DateTime<Utc>,
        settings: &Settings,
        quirks: Quirks,
        controller_found: impl Fn(&str) -> bool,
    ) {
        for id in self.sets.ids().collect::<Vec<_>>() {
            let Self { pods, sets, vpas } = self;
            let Some(set) = sets.get_mut(id) else { continue };
            let controlled = || set.vpas.iter().any(|vpa| controller_found(vpa));
            let contributes = |pod: &&Pod| !pod.terminal || controlled();
            let contributing = set
                .pods
                .iter()
                .filter_map(|name| pods.get(name))
                .filter(contributes);
            let needed: HashSet<&Name> = contributing
                .flat_map(|pod| &pod.containers)
                .map(|container| &container.name)
                .collect();

            let before = set.aggregates.len();
            set.aggregates.retain(|(name, aggregate)| {
                let empty = is_empty(aggregate, quirks);
                (needed.contains(name) || !empty) && !is_expired(aggregate, empty, now, settings)
            });
            if set.aggregates.len() < before {
                for vpa in &set.vpas {
                    if let Some(vpa) = vpas.get_mut(vpa) {
                        vpa.stale = true;
                    }
                }
                set.aggregates.shrink_to_fit();
                self.release(id);
            }
        }
        for vpa in self.vpas.values_mut() {
            vpa.forget_unused();
        }
        self.pods.shrink_to_fit();
        self.sets.shrink();
    }
}

/// Whether there was no sample. VPA looks at CPU alone, and so throws away what containers left behind that were
/// killed for want of memory before anybody could measure them (kubernetes/autoscaler#10211).
fn is_empty(aggregate: &Aggregate, quirks: Quirks) -> bool {
    let memory_counts = !quirks.has(Quirk::MemoryOnlyIsEmpty);
    aggregate.history.samples == 0 && !(memory_counts && aggregate.last_peak.is_some())
}

fn is_expired(aggregate: &Aggregate, empty: bool, now: DateTime<Utc>, settings: &Settings) -> bool {
    let last = if empty {
        Some(aggregate.created)
    } else if aggregate.history.samples > 0 {
        aggregate.history.last_sample
    } else {
        aggregate.last_peak
    };
    let window = aggregate.settings(settings).window();
    last.is_none_or(|last| now >= instant::plus(last, window))
}
