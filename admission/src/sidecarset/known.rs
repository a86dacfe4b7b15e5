//! What is known of SidecarSets when a review comes in, as plain rows.

use std::collections::HashMap;

use common::{
    api::sidecarset::SidecarSet,
    sidecarset::{Labels, Revisions, Sets, matching::NAMESPACE_NAME},
};

/// The sets, their revisions, and the labels of namespaces.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) sets: Sets,
    pub(crate) revisions: Revisions,
    namespaces: HashMap<String, Labels>,
}

impl Known {
    /// Nothing yet, of revisions that are kept in this namespace.
    pub(crate) fn kept_in(namespace: &str) -> Self {
        Self {
            revisions: Revisions::kept_in(namespace),
            ..Self::default()
        }
    }

    /// Takes in a set.
    pub(crate) fn apply_set(&mut self, set: &SidecarSet) {
        self.sets.apply(set.clone());
    }

    /// Takes in a namespace.
    pub(crate) fn apply_namespace(&mut self, name: &str, labels: Labels) {
        self.namespaces.insert(name.to_owned(), labels);
    }

    /// Forgets a namespace.
    pub(crate) fn remove_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
    }

    /// Forgets the namespaces of which `keep` says no.
    pub(crate) fn retain_namespaces(&mut self, keep: impl Fn(&str) -> bool) {
        self.namespaces.retain(|name, _| keep(name));
    }

    /// The labels of a namespace. One that is too new to be known has its name at least.
    pub(crate) fn namespace(&self, name: &str) -> Labels {
        let labels = self.namespaces.get(name).cloned();
        labels.unwrap_or_else(|| Labels::from([(NAMESPACE_NAME.to_owned(), name.to_owned())]))
    }
}
