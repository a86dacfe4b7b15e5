//! A VPA as the model sees it: the label sets it selects, its policies, the history it began with, and which of its
//! checkpoints are no longer up to date.

use super::{ModelConfig, labels::SetId, pool::Name};
use crate::{
    aggregate::{Aggregate, History},
    histogram::Resource,
    peaks::Peaks,
    policy::{PerResource, Policies},
    window::Window,
};
use chrono::{DateTime, TimeDelta, Utc};
use common::{api::vpa::UpdateMode, selector::Selector};
use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
};

/// A VPA.
#[derive(Debug)]
pub(crate) struct Vpa {
    pub(crate) selector: Selector,
    pub(crate) policies: Policies,
    pub(crate) sets: BTreeSet<SetId>,
    pub(crate) containers: BTreeMap<Name, ContainerRecord>,
    /// Something changed since its recommendation was last asked for.
    pub(crate) stale: bool,
    /// How its recommendations are used, as told with the last one.
    pub(crate) mode: UpdateMode,
}

/// What a VPA remembers of a container beside the aggregates.
#[derive(Debug, Default)]
pub(crate) struct ContainerRecord {
    /// What the checkpoint held.
    pub(crate) initial: Option<Box<Initial>>,
    /// Windows from before a restart whose pods have not been seen yet.
    pub(crate) pending: BTreeMap<Name, Window>,
    pub(crate) dirty: Option<Dirty>,
    /// The uncapped target that was last computed.
    pub(crate) target: PerResource<Option<i64>>,
}

/// How a sample compares with what was recommended when it came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quality<'a> {
    /// How recommendations are used.
    pub mode: &'a UpdateMode,
    /// Of what.
    pub resource: Resource,
    /// The container was killed.
    pub oom: bool,
    /// What it used, or needs after having been killed: millicores or bytes.
    pub usage: i64,
    /// The uncapped target, if there was one.
    pub recommended: Option<i64>,
}

/// The history that a VPA began with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Initial {
    pub(crate) history: History,
    pub(crate) peaks: Peaks,
}

/// A checkpoint that is not up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirty {
    /// Since when.
    since: DateTime<Utc>,
    /// It should be written at once: somebody was killed for want of what it says.
    urgent: bool,
}

impl Dirty {
    /// Both marks in one.
    fn and(self, other: Self) -> Self {
        Self {
            since: self.since.min(other.since),
            urgent: self.urgent || other.urgent,
        }
    }

    /// Whether the time to write has come. Each checkpoint has its own phase within the age, so that the writes of
    /// many are spread evenly, and none waits longer than that age.
    fn is_due(self, now: DateTime<Utc>, max_age: TimeDelta, key: impl Hash) -> bool {
        let age = max_age.num_milliseconds();
        if self.urgent || age <= 0 {
            return true;
        }
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let phase = i64::try_from(hasher.finish() >> 1).unwrap_or(0) % age;
        let round = |time: DateTime<Utc>| time.timestamp_millis().saturating_sub(phase).div_euclid(age);
        round(now) > round(self.since)
    }
}

impl Vpa {
    pub(crate) fn new(selector: Selector, policies: Policies) -> Self {
        Self {
            selector,
            policies,
            sets: BTreeSet::new(),
            containers: BTreeMap::new(),
            stale: true,
            mode: UpdateMode::Recreate,
        }
    }

    /// How a sample of a container compares with what is recommended; nothing for a container that nothing is
    /// recommended for.
    pub(crate) fn quality(
        &self,
        container: &str,
        resource: Resource,
        usage: i64,
        oom: bool,
    ) -> Option<Quality<'_>> {
        if self.policies.is_off(container) {
            return None;
        }
        let target = self.containers.get(container).map(|record| &record.target);
        let recommended = target.and_then(|target| match resource {
            Resource::Cpu => target.cpu,
            Resource::Memory => target.memory,
        });
        Some(Quality {
            mode: &self.mode,
            resource,
            oom,
            usage,
            recommended: recommended.filter(|amount| *amount > 0),
        })
    }

    /// Puts its settings for a container in force on one of the container's aggregates.
    pub(crate) fn configure(&self, config: &ModelConfig, container: &str, aggregate: &mut Aggregate) {
        let current = aggregate.settings(&config.settings);
        let settings = self.policies.settings(container, current, config);
        aggregate.configure(settings, &config.settings);
    }

    /// Notes that there is something new about a container.
    pub(crate) fn touch(&mut self, container: &Name, now: DateTime<Utc>, urgent: bool) {
        self.stale = true;
        let mark = Dirty { since: now, urgent };
        self.mark(container, mark);
    }

    pub(crate) fn mark(&mut self, container: &Name, mark: Dirty) {
        // Almost always there already: look before making another handle on the name.
        if !self.containers.contains_key(container) {
            self.containers
                .insert(Name::clone(container), ContainerRecord::default());
        }
        if let Some(record) = self.containers.get_mut(container) {
            record.dirty = Some(record.dirty.map_or(mark, |dirty| dirty.and(mark)));
        }
    }

    /// Drops the records that say nothing.
    pub(crate) fn forget_unused(&mut self) {
        self.containers.retain(|_, record| {
            let recommended = record.target != PerResource::default();
            record.initial.is_some() || !record.pending.is_empty() || record.dirty.is_some() || recommended
        });
    }

    /// The containers whose checkpoints should be written by now.
    pub(crate) fn due<'a>(
        &'a self,
        id: (&'a str, &'a str),
        now: DateTime<Utc>,
        max_age: TimeDelta,
    ) -> impl Iterator<Item = &'a Name> {
        // While its pods cannot be found, what we could write would lack all they did.
        let known = self.selector != Selector::Nothing;
        self.containers
            .iter()
            .filter(move |_| known)
            .filter_map(move |(name, record)| {
                let due = record.dirty?.is_due(now, max_age, (id, name));
                due.then_some(name)
            })
    }
}
