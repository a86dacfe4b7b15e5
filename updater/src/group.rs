//! Replica groups: the pods of one controller, and how many of them may be disrupted at once (`spec/vpa.md` 3.3).

use std::collections::HashMap;

use common::{
    pod::{Phase, Pod},
    quirks::Quirk,
};

use crate::{
    num::{to_f64, truncated},
    reason::Skip,
    settings::Settings,
    unboost,
    vpa::{Vpa, Way},
};

/// The controller of a group. Pods without one are a group by themselves, with an empty kind and name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey<'p> {
    /// Its namespace.
    pub namespace: &'p str,
    /// Its kind.
    pub kind: &'p str,
    /// Its name.
    pub name: &'p str,
}

impl<'p> GroupKey<'p> {
    /// The controlling owner of a pod. References that do not say whether they control are passed over, where VPA
    /// crashes (`spec/vpa.md` 10, Q19).
    #[must_use]
    pub fn of(pod: &'p Pod) -> Self {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let mut owners = pod.metadata.owner_references.iter().flatten();
        let (kind, name) = owners
            .find(|owner| owner.controller == Some(true))
            .map_or(("", ""), |owner| (&owner.kind, &owner.name));
        Self {
            namespace,
            kind,
            name,
        }
    }
}

/// How many pods a controller wants.
pub trait Replicas {
    /// `spec.replicas` of a ReplicaSet, a StatefulSet, a ReplicationController or of any scale, `status.numberReady` of a
    /// DaemonSet; none if that is not known.
    fn wanted(&self, controller: &GroupKey<'_>) -> Option<i64>;
}

impl<F: Fn(&GroupKey<'_>) -> Option<i64>> Replicas for F {
    fn wanted(&self, controller: &GroupKey<'_>) -> Option<i64> {
        self(controller)
    }
}

/// The pods of one controller, counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group<'p> {
    /// The controller.
    pub key: GroupKey<'p>,
    /// How many pods it wants.
    pub configured: i64,
    /// How many have not started.
    pub pending: i64,
    /// The rest.
    pub running: i64,
    /// How many may be disrupted at once.
    pub tolerance: i64,
    /// How many were evicted in this loop.
    pub evicted: i64,
    /// How many resizes were started in this loop.
    pub resized: i64,
    /// Whether it is so small that only what disrupts nothing is done to it.
    pub below_min_replicas: bool,
    /// Whether it is here for the boosts of its pods alone.
    pub unboost_only: bool,
}

impl Group<'_> {
    /// Whether one more pod may be disrupted in this loop.
    #[must_use]
    pub fn is_disruptable(&self) -> bool {
        let disrupted = self.evicted + self.resized;
        self.running - disrupted > self.configured - self.tolerance
            || (self.configured == self.running && self.tolerance == 0 && disrupted == 0)
    }
}

/// The groups of one VPA's pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Groups<'p> {
    /// Those that may be acted on, and why the others may not.
    groups: Vec<Result<Group<'p>, (GroupKey<'p>, Skip)>>,
    of_pod: Vec<usize>,
}

impl<'p> Groups<'p> {
    /// Counts the live pods of a VPA.
    pub fn count(pods: &[&'p Pod], vpa: &Vpa, replicas: &impl Replicas, settings: &Settings) -> Self {
        let mut members: Vec<Members<'p>> = Vec::new();
        let mut by_key: HashMap<GroupKey<'p>, usize> = HashMap::new();
        let of_pod = pods
            .iter()
            .map(|pod| {
                let key = GroupKey::of(pod);
                let index = *by_key.entry(key).or_insert_with(|| {
                    members.push(Members::new(key));
                    members.len() - 1
                });
                if let Some(members) = members.get_mut(index) {
                    members.add(pod);
                }
                index
            })
            .collect();
        let groups = members.into_iter().map(|members| {
            members
                .group(vpa, replicas, settings)
                .map_err(|skip| (members.key, skip))
        });
        Self {
            groups: groups.collect(),
            of_pod,
        }
    }

    /// The group of a pod, by its place among the pods that were counted.
    ///
    /// # Errors
    /// Why its group is not acted on.
    pub fn of(&self, pod: usize) -> Result<&Group<'p>, Skip> {
        let group = self.of_pod.get(pod).and_then(|index| self.groups.get(*index));
        match group {
            Some(Ok(group)) => Ok(group),
            Some(Err((_, skip))) => Err(*skip),
            None => Err(Skip::NoController),
        }
    }

    /// Notes an eviction.
    pub(crate) fn evicted(&mut self, pod: usize) {
        if let Some(group) = self.of_mut(pod) {
            group.evicted += 1;
        }
    }

    /// Notes a resize.
    pub(crate) fn resized(&mut self, pod: usize) {
        if let Some(group) = self.of_mut(pod) {
            group.resized += 1;
        }
    }

    /// Those that may be acted on.
    pub fn iter(&self) -> impl Iterator<Item = &Group<'p>> {
        self.groups.iter().filter_map(|group| group.as_ref().ok())
    }

    fn of_mut(&mut self, pod: usize) -> Option<&mut Group<'p>> {
        let index = self.of_pod.get(pod)?;
        self.groups.get_mut(*index)?.as_mut().ok()
    }
}

/// Whether resizes that restart nothing are outside the budget.
fn skips_budget(vpa: &Vpa, settings: &Settings) -> bool {
    vpa.way().is_some_and(Way::resizes) && (settings.in_place_skip_disruption_budget || vpa.skips_budget)
}

struct Members<'p> {
    key: GroupKey<'p>,
    live: i64,
    pending: i64,
    has_boosted: bool,
}

impl<'p> Members<'p> {
    fn new(key: GroupKey<'p>) -> Self {
        Self {
            key,
            live: 0,
            pending: 0,
            has_boosted: false,
        }
    }

    fn add(&mut self, pod: &Pod) {
        self.live += 1;
        self.pending += i64::from(pod.status.phase == Phase::Pending);
        self.has_boosted |= unboost::is_boosted(pod);
    }

    fn group(&self, vpa: &Vpa, replicas: &impl Replicas, settings: &Settings) -> Result<Group<'p>, Skip> {
        let too_few = self.live < vpa.min_replicas.unwrap_or(settings.min_replicas);
        let skips_budget = skips_budget(vpa, settings);
        if too_few && !self.has_boosted && !skips_budget {
            return Err(Skip::TooFewReplicas);
        }
        let frees_group = settings.quirks.has(Quirk::BoostedPodFreesGroup);
        let configured = self.configured(replicas, settings)?;
        Ok(Group {
            key: self.key,
            configured,
            pending: self.pending,
            running: self.live - self.pending,
            tolerance: truncated(to_f64(configured) * settings.eviction_tolerance),
            evicted: 0,
            resized: 0,
            below_min_replicas: too_few && (skips_budget || !frees_group),
            unboost_only: too_few && !skips_budget && !frees_group,
        })
    }

    /// A controller that is gone, or wants nothing, has pods that go by themselves.
    fn configured(&self, replicas: &impl Replicas, settings: &Settings) -> Result<i64, Skip> {
        match self.key.kind {
            "Job" => Ok(self.live),
            "ReplicaSet" | "ReplicationController" | "StatefulSet" | "DaemonSet" => {
                match replicas.wanted(&self.key) {
                    None => Err(Skip::NoController),
                    Some(wanted) if wanted <= 0 => Err(Skip::NoReplicas),
                    Some(wanted) => Ok(wanted),
                }
            }
            _ if settings.quirks.has(Quirk::UnknownOwnerHasNoBudget) => Ok(0),
            _ => Ok(replicas.wanted(&self.key).unwrap_or(0).max(self.live)),
        }
    }
}
