//! What the API server has told: VPAs that act, pods, controllers, LimitRanges and admission's lease, as rows that cost little
//! and know what has changed since their VPA last had a turn. Plain values: who watches is [`watches`]'s business.

#[cfg(test)]
mod laws;
mod matching;
mod rows;
pub(crate) mod watches;
mod work;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use common::{
    api::{
        k8s::{Lease, LimitRange},
        vpa::VerticalPodAutoscaler,
    },
    daemon::Namespaces,
    kube::watch::{Change, WatchedController},
    plan::LimitRangeIndex,
    pod::Pod,
    target::{ControllerIndex, ControllerKey, VpaIndex, controlling_owner},
};
use kube::{Resource as _, core::DeserializeGuard};

use self::rows::{Forms, GroupName, PodRow};
pub use self::work::{Tally, VpaKey, Work};
use crate::{config::LastShown, vpa::Vpa};

/// What is known of the cluster.
#[derive(Debug, Default)]
pub struct Feed {
    namespaces: Namespaces,
    places: HashMap<String, Place>,
    vpas: VpaIndex,
    controllers: ControllerIndex,
    limit_ranges: LimitRangeIndex,
    admission: Option<LastShown>,
    /// The namespaces in which pods wait to be matched.
    unsettled: BTreeSet<String>,
    /// The UIDs of pods that are gone.
    gone: Vec<Box<str>>,
    /// Pods that came into being and were not looked at for evidence.
    newcomers: Vec<(String, Arc<str>)>,
}

/// One namespace.
#[derive(Debug, Default)]
struct Place {
    vpas: BTreeMap<Arc<str>, VpaRow>,
    pods: HashMap<Arc<str>, PodRow>,
    groups: HashMap<Arc<GroupName>, Group>,
    /// Whether all pods are to be matched anew, or those of a list alone.
    rematch: bool,
    unmatched: Vec<Arc<str>>,
    /// The scales that matching depends on.
    scales: HashSet<ControllerKey>,
}

/// The pods of one controller.
#[derive(Debug)]
struct Group {
    controller: ControllerKey,
    members: HashSet<Arc<str>>,
    forms: Forms,
}

/// A VPA that acts.
#[derive(Debug)]
struct VpaRow {
    vpa: Arc<Vpa>,
    uid: String,
    matching: MatchingPart,
    /// The controllers of its pods.
    groups: BTreeSet<Arc<GroupName>>,
    /// Whether something has changed since its last turn.
    changed: bool,
    /// Until when a turn could only give what the last one gave, if nothing changes.
    quiet_until: DateTime<Utc>,
    tally: Tally,
    /// What it said since a pod of its was last evicted, for as long as that matters.
    said: Vec<Arc<Vpa>>,
}

/// What matching reads of a VPA.
#[derive(Debug, PartialEq)]
struct MatchingPart {
    target: Option<common::api::vpa::CrossVersionObjectReference>,
    created: Option<common::api::k8s::Time>,
}

/// So many of a VPA's words are remembered while a replacement is waited for.
const SAID: usize = 32;

type GuardedVpa = DeserializeGuard<VerticalPodAutoscaler>;

impl Feed {
    /// Nothing yet; only these namespaces are ever looked at.
    #[must_use]
    pub fn new(namespaces: Namespaces) -> Self {
        Self {
            namespaces,
            ..Self::default()
        }
    }

    /// Something happened to a VPA. One that cannot be read does not hide the others, and what was known of it stays known.
    pub fn vpa(&mut self, change: Change<'_, GuardedVpa>) {
        match change {
            Change::Applied(DeserializeGuard(Ok(vpa))) => self.apply_vpa(&vpa),
            Change::Applied(DeserializeGuard(Err(invalid))) => {
                tracing::warn!(
                    namespace = invalid.metadata.namespace,
                    name = invalid.metadata.name,
                    error = %invalid.error,
                    "a VPA cannot be read; what was known of it stays"
                );
            }
            Change::Deleted(vpa) => {
                let meta = vpa.meta();
                let namespace = meta.namespace.as_deref().unwrap_or_default();
                self.remove_vpa(namespace, meta.name.as_deref().unwrap_or_default());
            }
            Change::Relisted(seen) => {
                let known = self.places.iter();
                let known =
                    known.flat_map(|(namespace, place)| place.vpas.keys().map(move |name| (namespace, name)));
                let gone: Vec<_> = known
                    .filter(|(namespace, name)| !seen.contains(namespace, name))
                    .map(|(namespace, name)| (namespace.clone(), name.clone()))
                    .collect();
                for (namespace, name) in gone {
                    self.remove_vpa(&namespace, &name);
                }
            }
        }
    }

    /// Takes in a VPA that is new or has changed.
    pub fn apply_vpa(&mut self, object: &VerticalPodAutoscaler) {
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let mut vpa = Vpa::from(object);
        if !self.namespaces.include(&namespace) || !vpa.acts() {
            self.remove_vpa(&namespace, name);
            return;
        }
        for recommended in vpa.sizing.recommendation.iter_mut().flatten() {
            recommended.uncapped_target = None;
        }
        let matching = MatchingPart {
            target: object.spec.target_ref.clone(),
            created: object.metadata.creation_timestamp.clone(),
        };
        let place = self.places.entry(namespace.clone()).or_default();
        match place.vpas.get_mut(name) {
            Some(row) if row.matching == matching => {
                if *row.vpa != vpa {
                    row.say(vpa);
                }
                return;
            }
            Some(row) => {
                row.matching = matching;
                row.say(vpa);
            }
            None => {
                let uid = object.metadata.uid.clone().unwrap_or_default();
                place.vpas.insert(name.into(), VpaRow::new(vpa, uid, matching));
            }
        }
        // Matching needs no more of it than its target.
        self.vpas.apply(&VerticalPodAutoscaler {
            metadata: object.metadata.clone(),
            spec: common::api::vpa::VerticalPodAutoscalerSpec {
                target_ref: object.spec.target_ref.clone(),
                ..Default::default()
            },
            status: None,
        });
        self.rematch(&namespace);
    }

    fn remove_vpa(&mut self, namespace: &str, name: &str) {
        let known = self
            .places
            .get_mut(namespace)
            .and_then(|place| place.vpas.remove(name));
        if known.is_some() {
            self.vpas.remove(namespace, name);
            self.rematch(namespace);
        }
    }

    /// Something happened to a pod.
    pub fn pod(&mut self, change: Change<'_, Pod>) {
        match change {
            Change::Applied(pod) => self.apply_pod(pod),
            Change::Deleted(pod) => {
                let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                self.remove_pod(namespace, pod.metadata.name.as_deref().unwrap_or_default());
            }
            Change::Relisted(seen) => {
                let known = self.places.iter();
                let known =
                    known.flat_map(|(namespace, place)| place.pods.keys().map(move |name| (namespace, name)));
                let gone: Vec<_> = known
                    .filter(|(namespace, name)| !seen.contains(namespace, name))
                    .map(|(namespace, name)| (namespace.clone(), name.clone()))
                    .collect();
                for (namespace, name) in gone {
                    self.remove_pod(&namespace, &name);
                }
            }
        }
    }

    /// Takes in a pod that is new or has changed. One that ends, has ended, or has no controller is as good as gone.
    pub fn apply_pod(&mut self, pod: Pod) {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let ends = pod.metadata.deletion_timestamp.is_some() || pod.status.phase.is_terminal();
        let controller = controlling_owner(&pod, &namespace).filter(|_| !ends);
        let Some(controller) = controller.filter(|_| self.namespaces.include(&namespace)) else {
            self.remove_pod(&namespace, pod.metadata.name.as_deref().unwrap_or_default());
            return;
        };
        let place = self.places.entry(namespace.clone()).or_default();
        let group_name = Arc::new(GroupName {
            kind: controller.kind.as_str().into(),
            name: controller.name.as_str().into(),
        });
        let (group_name, group) = place.group(group_name, controller.clone());
        let (name, mut row) = PodRow::read(pod, group_name, &mut group.forms);
        if let Some(known) = place.pods.get_mut(&*name)
            && known.uid == row.uid
            && known.matches_like(&row)
        {
            if !known.looks_like(&row)
                && let Some(vpa) = &known.vpa
                && let Some(vpa) = place.vpas.get_mut(&**vpa)
            {
                vpa.changed = true;
            }
            row.vpa = known.vpa.take();
            row.told = known.told;
            *known = row;
            return;
        }
        self.remove_pod(&namespace, &name);
        let place = self.places.entry(namespace.clone()).or_default();
        let (_, group) = place.group(row.group.clone(), controller);
        group.members.insert(name.clone());
        place.pods.insert(name.clone(), row);
        place.unmatched.push(name.clone());
        self.unsettled.insert(namespace.clone());
        self.newcomers.push((namespace, name));
    }

    /// Takes in how a pod is after it was resized, unless the watch was faster: it may have told of a later state, or that the
    /// pod is gone, and will not say so again.
    pub fn resized(&mut self, pod: Pod) {
        let metadata = &pod.metadata;
        let place = self.places.get(metadata.namespace.as_deref().unwrap_or_default());
        let known = place.and_then(|place| place.pods.get(metadata.name.as_deref()?));
        let is_news = known.is_some_and(|known| {
            metadata.uid.as_deref() == Some(&*known.uid) && known.version <= rows::version(metadata)
        });
        if is_news {
            self.apply_pod(pod);
        }
    }

    fn remove_pod(&mut self, namespace: &str, name: &str) {
        let Some(place) = self.places.get_mut(namespace) else {
            return;
        };
        let Some(row) = place.pods.remove(name) else {
            return;
        };
        let mut is_last = false;
        if let Some(group) = place.groups.get_mut(&row.group) {
            group.members.remove(name);
            is_last = group.members.is_empty();
        }
        if is_last {
            place.groups.remove(&row.group);
        }
        if let Some(vpa) = &row.vpa
            && let Some(vpa) = place.vpas.get_mut(&**vpa)
        {
            vpa.changed = true;
            if is_last {
                vpa.groups.remove(&row.group);
            }
        }
        self.gone.push(row.uid);
    }

    /// A pod was evicted: it is as good as gone before the watch says so.
    pub fn evicted(&mut self, key: &VpaKey, pod: &str) {
        self.remove_pod(&key.namespace, pod);
    }

    /// What a VPA says from now on may have given a pod that comes its size.
    pub fn await_replacement(&mut self, key: &VpaKey) {
        if let Some(row) = self.row_mut(key) {
            row.said = vec![row.vpa.clone()];
        }
    }

    /// Something happened to a controller.
    pub fn controller<C: WatchedController>(&mut self, change: Change<'_, C>) {
        match change {
            Change::Applied(object) => {
                let (namespace, name) = object.key();
                let controller = object.controller();
                let known = self.controllers.get(C::KIND, namespace, name);
                let same_chain = known.is_some_and(|known| {
                    known.owner == controller.owner && known.selector == controller.selector
                });
                let same_count = known.is_some_and(|known| known.replicas == controller.replicas);
                self.controllers.apply(C::KIND, namespace, name, controller);
                if !same_chain {
                    self.rematch(namespace);
                }
                if !same_count {
                    self.recount(namespace, C::KIND.name(), name);
                }
            }
            Change::Deleted(object) => {
                let (namespace, name) = object.key();
                self.controllers.remove(C::KIND, namespace, name);
                self.rematch(namespace);
            }
            Change::Relisted(seen) => {
                self.controllers
                    .retain(C::KIND, |namespace, name| seen.contains(namespace, name));
                let places: Vec<_> = self.places.keys().cloned().collect();
                places.iter().for_each(|namespace| self.rematch(namespace));
            }
        }
    }

    /// Something else is known of these scales.
    pub fn scales_changed(&mut self, changed: &[ControllerKey]) {
        for key in changed {
            self.rematch(&key.namespace);
            self.recount(&key.namespace, &key.kind, &key.name);
        }
    }

    /// Something happened to a LimitRange.
    pub fn limit_range(&mut self, change: Change<'_, LimitRange>) {
        let touched = |place: &mut Place| place.vpas.values_mut().for_each(|row| row.changed = true);
        match change {
            Change::Applied(object) => {
                let namespace = object.metadata.namespace.clone().unwrap_or_default();
                self.limit_ranges.apply(object);
                self.places.get_mut(&namespace).map(touched);
            }
            Change::Deleted(object) => {
                let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
                let name = object.metadata.name.as_deref().unwrap_or_default();
                self.limit_ranges.remove(namespace, name);
                self.places.get_mut(namespace).map(touched);
            }
            Change::Relisted(seen) => {
                self.limit_ranges
                    .retain(|namespace, name| seen.contains(namespace, name));
                self.places.values_mut().for_each(touched);
            }
        }
    }

    /// Something happened to the lease of the admission component, the only one that is watched.
    pub fn lease(&mut self, change: Change<'_, Lease>) {
        match change {
            Change::Applied(lease) => self.admission = Some(LastShown::from(&lease)),
            Change::Deleted(_) => self.admission = None,
            Change::Relisted(seen) => {
                if seen.is_empty() {
                    self.admission = None;
                }
            }
        }
    }

    /// When the admission component last showed that it works, if it ever did.
    #[must_use]
    pub fn admission(&self) -> Option<LastShown> {
        self.admission
    }

    /// All turns could give something else than the last.
    pub fn everything_changed(&mut self) {
        let rows = self.places.values_mut().flat_map(|place| place.vpas.values_mut());
        rows.for_each(|row| row.changed = true);
    }

    /// The pods that were sized by formulas, as far as counting reads them.
    #[must_use]
    pub fn sized(&self) -> Vec<Pod> {
        let rows = self.places.values().flat_map(|place| place.pods.values());
        rows.filter_map(PodRow::sized).collect()
    }

    /// Formulas have changed: turns with pods that were sized by some could give something else than the last.
    pub fn formulas_changed(&mut self) {
        for place in self.places.values_mut() {
            let sized = place.pods.values().filter(|row| row.is_sized());
            for vpa in sized.filter_map(|row| row.vpa.as_ref()) {
                if let Some(vpa) = place.vpas.get_mut(&**vpa) {
                    vpa.changed = true;
                }
            }
        }
    }

    /// The UIDs of pods that are gone since this was last asked.
    pub fn take_gone(&mut self) -> Vec<Box<str>> {
        std::mem::take(&mut self.gone)
    }

    fn rematch(&mut self, namespace: &str) {
        if let Some(place) = self.places.get_mut(namespace)
            && !place.rematch
        {
            place.rematch = true;
            self.unsettled.insert(namespace.to_owned());
        }
    }

    /// A controller wants another number of pods.
    fn recount(&mut self, namespace: &str, kind: &str, name: &str) {
        let Some(place) = self.places.get_mut(namespace) else {
            return;
        };
        let group = GroupName {
            kind: kind.into(),
            name: name.into(),
        };
        let members = place
            .groups
            .get(&group)
            .into_iter()
            .flat_map(|group| &group.members);
        for name in members {
            if let Some(vpa) = place.pods.get(name).and_then(|row| row.vpa.as_deref())
                && let Some(vpa) = place.vpas.get_mut(vpa)
            {
                vpa.changed = true;
            }
        }
    }

    fn row(&self, key: &VpaKey) -> Option<&VpaRow> {
        self.places.get(&*key.namespace)?.vpas.get(&*key.name)
    }

    fn row_mut(&mut self, key: &VpaKey) -> Option<&mut VpaRow> {
        self.places.get_mut(&*key.namespace)?.vpas.get_mut(&*key.name)
    }
}

impl Place {
    fn group(&mut self, name: Arc<GroupName>, controller: ControllerKey) -> (Arc<GroupName>, &mut Group) {
        let name = match self.groups.get_key_value(&name) {
            Some((known, _)) => known.clone(),
            None => name,
        };
        let group = self.groups.entry(name.clone()).or_insert_with(|| Group {
            controller,
            members: HashSet::new(),
            forms: Forms::default(),
        });
        (name, group)
    }
}

impl VpaRow {
    fn new(vpa: Vpa, uid: String, matching: MatchingPart) -> Self {
        Self {
            vpa: Arc::new(vpa),
            uid,
            matching,
            groups: BTreeSet::new(),
            changed: true,
            quiet_until: DateTime::<Utc>::MIN_UTC,
            tally: Tally::default(),
            said: Vec::new(),
        }
    }

    fn say(&mut self, vpa: Vpa) {
        self.vpa = Arc::new(vpa);
        self.changed = true;
        if !self.said.is_empty() && self.said.len() < SAID {
            self.said.push(self.vpa.clone());
        }
    }
}
