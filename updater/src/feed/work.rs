//! What a VPA's turn is made of, and what is kept of it until the next one.

use std::{fmt, sync::Arc};

use chrono::{DateTime, Utc};
use common::{
    plan::LimitRanges,
    pod::Pod,
    sidecarset::FormulaIndex,
    target::{ControllerKey, ScaleLookup, WellKnown},
};

use super::{Feed, Group, Place, VpaRow};
use crate::{
    decide::Fate,
    eligible::differs,
    evidence::{Newcomer, Shape, Workload},
    formula::is_formula_alone,
    group::{GroupKey, Replicas},
    reason::Skip,
    settings::Settings,
    vpa::Vpa,
};

/// Names a VPA.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VpaKey {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl fmt::Display for VpaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl VpaKey {
    /// The same as evidence knows it.
    #[must_use]
    pub fn workload(&self) -> Workload {
        Workload {
            namespace: self.namespace.to_string(),
            vpa: self.name.to_string(),
        }
    }
}

impl From<&Workload> for VpaKey {
    fn from(workload: &Workload) -> Self {
        Self {
            namespace: workload.namespace.as_str().into(),
            name: workload.vpa.as_str().into(),
        }
    }
}

/// All that one turn needs.
#[derive(Debug)]
pub struct Work {
    /// Whose turn it is.
    pub key: VpaKey,
    /// The UID of the object.
    pub uid: String,
    /// What it says.
    pub vpa: Arc<Vpa>,
    /// Its live pods, the oldest first.
    pub pods: Vec<Pod>,
    /// What holds in its namespace.
    pub limit_ranges: LimitRanges,
    replicas: Vec<(ControllerKey, Option<i64>)>,
}

impl Replicas for Work {
    fn wanted(&self, controller: &GroupKey<'_>) -> Option<i64> {
        let of = |key: &ControllerKey| key.kind == controller.kind && key.name == controller.name;
        let (_, wanted) = self.replicas.iter().find(|(key, _)| of(key))?;
        *wanted
    }
}

impl Work {
    /// What the workload of a pod looks like, so that its replacement can be compared.
    #[must_use]
    pub fn shape(&self, pod: &Pod) -> Shape {
        let key = GroupKey::of(pod);
        let label = |name: &str| pod.metadata.labels.as_ref()?.get(name).map(String::as_str);
        let hash = label("controller-revision-hash").or_else(|| label("pod-template-hash"));
        Shape {
            template: format!("{}/{}/{}", key.kind, key.name, hash.unwrap_or_default()),
            replicas: self.wanted(&key).unwrap_or_default(),
        }
    }
}

/// What came of a VPA's last turn, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Its live pods.
    pub pods: usize,
    /// Those that were due and may be evicted.
    pub evictable: usize,
    /// Those that were due and may be resized.
    pub updatable: usize,
    /// Those that were evicted.
    pub evicted: usize,
    /// Those that were resized.
    pub resized: usize,
    /// Those that were left as they are, by reason.
    pub skipped: Vec<(Skip, usize)>,
}

impl Tally {
    /// Counts fates.
    pub fn count(&mut self, fates: &[Fate]) {
        for fate in fates {
            match fate {
                Fate::Evicted => self.evicted += 1,
                Fate::Resized => self.resized += 1,
                Fate::Unboosted => {}
                Fate::Skipped(skip) => match self.skipped.iter_mut().find(|(known, _)| known == skip) {
                    Some((_, count)) => *count += 1,
                    None => self.skipped.push((*skip, 1)),
                },
            }
        }
    }
}

impl Feed {
    /// The VPAs that a turn may give something new for, in their order.
    #[must_use]
    pub fn due(&self, now: DateTime<Utc>) -> Vec<VpaKey> {
        let mut due = Vec::new();
        for (namespace, place) in &self.places {
            let rows = place.vpas.iter();
            let mut rows = rows
                .filter(|(_, row)| row.changed || row.quiet_until <= now)
                .map(|(name, _)| name)
                .peekable();
            if rows.peek().is_some() {
                let namespace: Arc<str> = namespace.as_str().into();
                due.extend(rows.map(|name| VpaKey {
                    namespace: namespace.clone(),
                    name: name.clone(),
                }));
            }
        }
        due.sort_unstable();
        due
    }

    /// Whether there is such a VPA that acts.
    #[must_use]
    pub fn acts(&self, key: &VpaKey) -> bool {
        self.row(key).is_some()
    }

    /// The UID of a VPA that acts.
    #[must_use]
    pub fn uid(&self, key: &VpaKey) -> Option<String> {
        Some(self.row(key)?.uid.clone())
    }

    /// Everything for a VPA's turn. What changes from now on is for the next one.
    pub fn take<'s>(
        &mut self,
        key: &VpaKey,
        scale: impl Fn(&ControllerKey) -> ScaleLookup<'s>,
    ) -> Option<Work> {
        let place = self.places.get_mut(&*key.namespace)?;
        let row = place.vpas.get_mut(&*key.name)?;
        row.changed = false;
        let place = self.places.get(&*key.namespace)?;
        let row = place.vpas.get(&*key.name)?;
        let replicas = row.groups.iter().filter_map(|group| place.groups.get(group));
        let replicas = replicas.map(|group| (group.controller.clone(), self.wanted(group, &scale)));
        Some(Work {
            key: key.clone(),
            uid: row.uid.clone(),
            vpa: row.vpa.clone(),
            pods: place.pods_of(key, row),
            limit_ranges: self.limit_ranges.get(&key.namespace).cloned().unwrap_or_default(),
            replicas: replicas.collect(),
        })
    }

    /// Keeps what came of a turn, and until when it could only come out the same.
    pub fn note(&mut self, key: &VpaKey, tally: Tally, quiet_until: DateTime<Utc>) {
        if let Some(row) = self.row_mut(key) {
            row.tally = tally;
            row.quiet_until = quiet_until;
        }
    }

    /// What came of the last turn of every VPA.
    pub fn tallies(&self) -> impl Iterator<Item = (&Vpa, &Tally)> {
        let rows = self.places.values().flat_map(|place| place.vpas.values());
        rows.map(|row| (&*row.vpa, &row.tally))
    }

    /// Notes the reason for leaving a pod as it is; gives whether that is another one than before.
    pub fn tell(&mut self, key: &VpaKey, pod: &str, reason: Option<Skip>) -> bool {
        let place = self.places.get_mut(&*key.namespace);
        let Some(row) = place.and_then(|place| place.pods.get_mut(pod)) else {
            return false;
        };
        std::mem::replace(&mut row.told, reason) != reason
    }

    /// The pods that came into being since this was last asked and are younger than `since`, and what they tell of
    /// admission. Those that belong to nobody yet are for later.
    pub fn take_newcomers<'s>(
        &mut self,
        since: DateTime<Utc>,
        settings: &Settings,
        scale: impl Fn(&ControllerKey) -> ScaleLookup<'s>,
    ) -> Vec<(Workload, Newcomer)> {
        let mut found = Vec::new();
        let mut later = Vec::new();
        for (namespace, name) in std::mem::take(&mut self.newcomers) {
            let Some(place) = self.places.get(&namespace) else {
                continue;
            };
            let Some(pod) = place.pods.get(&name) else {
                continue;
            };
            let Some(created) = pod.created.filter(|created| *created > since) else {
                continue;
            };
            let Some((vpa, row)) = pod.vpa.as_ref().and_then(|vpa| place.vpas.get_key_value(vpa)) else {
                later.push((namespace, name));
                continue;
            };
            let said = row.said.iter().chain(std::iter::once(&row.vpa));
            let is_sized = pod.is_marked() || {
                let pod = pod.pod(&namespace, &name);
                let limit_ranges = self.limit_ranges.get(&namespace).cloned().unwrap_or_default();
                let mut said = said.rev();
                said.any(|vpa| has_its_size(&pod, vpa, &limit_ranges, settings))
            };
            let group = place.groups.get(&pod.group);
            let workload = Workload {
                namespace: namespace.clone(),
                vpa: vpa.to_string(),
            };
            let newcomer = Newcomer {
                created,
                shape: Shape {
                    template: pod.template(),
                    replicas: group
                        .and_then(|group| self.wanted(group, &scale))
                        .unwrap_or_default(),
                },
                is_sized,
            };
            found.push((workload, newcomer));
        }
        self.newcomers = later;
        found
    }

    /// How many pods a controller wants.
    fn wanted<'s>(&self, group: &Group, scale: &impl Fn(&ControllerKey) -> ScaleLookup<'s>) -> Option<i64> {
        let key = &group.controller;
        match WellKnown::from_name(&key.kind) {
            Some(kind) => {
                let controller = self.controllers.get(kind, &key.namespace, &key.name)?;
                Some(controller.replicas.unwrap_or_default().into())
            }
            None => match scale(key) {
                ScaleLookup::Found(scale) => scale.replicas.map(i64::from),
                ScaleLookup::NotFound(_) | ScaleLookup::Failed(_) | ScaleLookup::Unasked => None,
            },
        }
    }
}

impl Place {
    fn pods_of(&self, key: &VpaKey, row: &VpaRow) -> Vec<Pod> {
        let groups = row.groups.iter().filter_map(|group| self.groups.get(group));
        let names = groups.flat_map(|group| &group.members);
        let rows = names.filter_map(|name| Some((name, self.pods.get(name)?)));
        let own = rows.filter(|(_, pod)| pod.is_bound && pod.vpa.as_ref() == Some(&key.name));
        let mut own: Vec<_> = own.collect();
        // Of equals those go first that have waited longest.
        own.sort_unstable_by_key(|(name, pod)| (pod.created, *name));
        own.into_iter()
            .map(|(name, pod)| pod.pod(&key.namespace, name))
            .collect()
    }
}

/// Whether a pod has, to the letter, what a VPA gives it.
fn has_its_size(pod: &Pod, vpa: &Vpa, limit_ranges: &LimitRanges, settings: &Settings) -> bool {
    // Beside a formula a container may have more, or less, than what is recommended.
    let formulas = FormulaIndex::default().remembered(pod);
    let plan = vpa.plan(pod, formulas.as_ref(), limit_ranges, settings);
    let mut planned = plan
        .containers
        .iter()
        .filter(|container| !container.requests.is_empty() && !is_formula_alone(&plan, container))
        .peekable();
    planned.peek().is_some()
        && planned.all(|plan| !differs(&plan.requests, &plan.limits, plan.container.spec_resources()))
}
