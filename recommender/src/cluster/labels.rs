//! The label sets of a namespace and which VPAs select them. Aggregates and pods hang on a label set, so a VPA is
//! matched once with each set, found through one of the labels both have, and never with each pod.

use super::pool::{Name, Pool};
use crate::aggregate::Aggregate;
use common::selector::Selector;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A label set of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SetId(u64);

/// The pods that carry exactly these labels, and the usage of their containers by name.
#[derive(Debug)]
pub(crate) struct LabelSet {
    /// `key=value`, sorted.
    labels: Box<[Name]>,
    pub(crate) pods: BTreeSet<Name>,
    pub(crate) aggregates: Vec<(Name, Aggregate)>,
    /// The VPAs that select it.
    pub(crate) vpas: Vec<Name>,
}

impl LabelSet {
    pub(crate) fn aggregate(&self, container: &str) -> Option<&Aggregate> {
        let found = self.aggregates.iter().find(|(name, _)| **name == *container);
        found.map(|(_, aggregate)| aggregate)
    }

    /// Whether neither a pod nor an aggregate needs it, as when it is new.
    pub(crate) fn is_unused(&self) -> bool {
        self.pods.is_empty() && self.aggregates.is_empty()
    }

    fn matches(&self, selector: &Selector) -> bool {
        selector.matches(|key| {
            self.labels
                .iter()
                .find_map(|label| label.strip_prefix(key)?.strip_prefix('='))
        })
    }
}

/// All label sets of a namespace.
#[derive(Debug, Default)]
pub(crate) struct LabelSets {
    sets: BTreeMap<SetId, LabelSet>,
    ids: HashMap<Box<[Name]>, SetId>,
    /// Which sets have a label.
    with_label: HashMap<Name, BTreeSet<SetId>>,
    /// The selectors of the VPAs, each under one label that it asks for.
    selectors: BTreeMap<Name, Indexed>,
    selectors_by_label: HashMap<Name, BTreeSet<Name>>,
    selectors_without_label: BTreeSet<Name>,
    next: u64,
}

#[derive(Debug)]
struct Indexed {
    selector: Selector,
    label: Option<Name>,
}

impl LabelSets {
    pub(crate) fn get(&self, id: SetId) -> Option<&LabelSet> {
        self.sets.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: SetId) -> Option<&mut LabelSet> {
        self.sets.get_mut(&id)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = SetId> {
        self.sets.keys().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.selectors.is_empty()
    }

    pub(crate) fn aggregates(&self) -> usize {
        self.sets.values().map(|set| set.aggregates.len()).sum()
    }

    /// The set with these labels; a new one comes with the VPAs that select it.
    pub(crate) fn intern(&mut self, labels: &BTreeMap<String, String>, pool: &mut Pool) -> SetId {
        // A map is sorted by key, so the same labels give the same list.
        let labels: Box<[Name]> = labels
            .iter()
            .map(|(k, v)| pool.name(&format!("{k}={v}")))
            .collect();
        if let Some(id) = self.ids.get(&labels) {
            return *id;
        }
        let id = SetId(self.next);
        self.next += 1;
        for label in &labels {
            self.with_label.entry(Name::clone(label)).or_default().insert(id);
        }
        let mut set = LabelSet {
            labels: labels.clone(),
            pods: BTreeSet::new(),
            aggregates: Vec::new(),
            vpas: Vec::new(),
        };
        let indexed = labels
            .iter()
            .filter_map(|label| self.selectors_by_label.get(label))
            .flatten();
        let candidates: BTreeSet<&Name> = indexed.chain(&self.selectors_without_label).collect();
        set.vpas = candidates
            .into_iter()
            .filter(|vpa| {
                self.selectors
                    .get(*vpa)
                    .is_some_and(|indexed| set.matches(&indexed.selector))
            })
            .cloned()
            .collect();
        self.ids.insert(labels, id);
        self.sets.insert(id, set);
        id
    }

    /// Drops a set that neither a pod nor an aggregate needs; says whether it is gone.
    pub(crate) fn release(&mut self, id: SetId) -> bool {
        if !self.sets.get(&id).is_some_and(LabelSet::is_unused) {
            return false;
        }
        let Some(set) = self.sets.remove(&id) else {
            return false;
        };
        self.ids.remove(&set.labels);
        for label in &set.labels {
            drop_from(&mut self.with_label, label, &id);
        }
        true
    }

    /// Enters a VPA's selector, and answers with the sets it selects.
    pub(crate) fn select(&mut self, vpa: &Name, selector: Selector, pool: &mut Pool) -> BTreeSet<SetId> {
        let exact: Vec<Name> = selector
            .exact_labels()
            .map(|(k, v)| pool.name(&format!("{k}={v}")))
            .collect();
        let sets_with = |label: &Name| self.with_label.get(label).map_or(0, BTreeSet::len);
        let selectors_with = |label: &Name| self.selectors_by_label.get(label).map_or(0, BTreeSet::len);

        let selected: BTreeSet<SetId> = if selector == Selector::Nothing {
            BTreeSet::new()
        } else if let Some(rarest) = exact.iter().min_by_key(|label| sets_with(label)) {
            let candidates = self.with_label.get(rarest).into_iter().flatten().copied();
            candidates
                .filter(|id| self.sets.get(id).is_some_and(|set| set.matches(&selector)))
                .collect()
        } else {
            let all = self.sets.iter();
            all.filter(|(_, set)| set.matches(&selector))
                .map(|(id, _)| *id)
                .collect()
        };
        for id in &selected {
            if let Some(set) = self.sets.get_mut(id) {
                set.vpas.push(Name::clone(vpa));
            }
        }

        let label = exact.iter().min_by_key(|label| selectors_with(label)).cloned();
        match &label {
            Some(label) => {
                self.selectors_by_label
                    .entry(Name::clone(label))
                    .or_default()
                    .insert(Name::clone(vpa));
            }
            None if selector == Selector::Nothing => {}
            None => {
                self.selectors_without_label.insert(Name::clone(vpa));
            }
        }
        self.selectors
            .insert(Name::clone(vpa), Indexed { selector, label });
        selected
    }

    /// Takes a VPA's selector out, with its links to the sets.
    pub(crate) fn unselect(&mut self, vpa: &str, sets: &BTreeSet<SetId>) {
        for id in sets {
            if let Some(set) = self.sets.get_mut(id) {
                set.vpas.retain(|name| **name != *vpa);
            }
        }
        if let Some(Indexed {
            label: Some(label), ..
        }) = self.selectors.remove(vpa)
        {
            drop_from(&mut self.selectors_by_label, &label, vpa);
        }
        self.selectors_without_label.remove(vpa);
    }

    /// Gives back room that sets of the past took.
    pub(crate) fn shrink(&mut self) {
        self.ids.shrink_to_fit();
        self.with_label.shrink_to_fit();
        self.selectors_by_label.shrink_to_fit();
    }
}

fn drop_from<T, Q>(index: &mut HashMap<Name, BTreeSet<T>>, label: &str, entry: &Q)
where
    T: Ord + std::borrow::Borrow<Q>,
    Q: Ord + ?Sized,
{
    if let Some(entries) = index.get_mut(label) {
        entries.remove(entry);
        if entries.is_empty() {
            index.remove(label);
        }
    }
}
