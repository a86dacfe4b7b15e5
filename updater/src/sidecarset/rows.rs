//! What is known where sets are kept, and for which of them something may be to do since they were last looked at: work
//! grows with what has changed, not with sets and pods.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use common::{
    api::k8s::{ControllerRevision, Namespace},
    kube::{sidecarsets::GuardedSet, watch::Change},
    sidecarset::{
        Labels, Revisions, Set, Sets,
        matching::NAMESPACE_NAME,
        record::injected_sets,
        revision::{SET_NAME, label},
    },
};
use kube::{ResourceExt as _, core::DeserializeGuard};

use super::{pod::SidecarPod, standing::is_of};

/// A pod's namespace and name.
type Key = (String, String);

/// What is known.
#[derive(Debug, Default)]
pub struct Rows {
    /// The sets.
    pub sets: Sets,
    /// Their revisions.
    pub revisions: Revisions,
    namespaces: HashMap<String, Labels>,
    /// Those that some set has injected.
    pods: BTreeMap<Key, SidecarPod>,
    /// The same, by the names of the sets.
    injected: HashMap<String, BTreeSet<Key>>,
    changed: BTreeSet<String>,
}

impl Rows {
    /// Nothing yet, of revisions that are kept in this namespace.
    #[must_use]
    pub fn kept_in(namespace: &str) -> Self {
        Self {
            revisions: Revisions::kept_in(namespace),
            ..Self::default()
        }
    }

    /// The pods of a set. A namespace that is not known has its name at least.
    #[must_use]
    pub fn pods_of(&self, set: &Set) -> Vec<&SidecarPod> {
        let keys = self.injected.get(set.name()).into_iter().flatten();
        let pods = keys.filter_map(|key| Some((key, self.pods.get(key)?)));
        pods.filter(|((namespace, _), pod)| match self.namespaces.get(namespace) {
            Some(labels) => is_of(set, pod, labels),
            None => {
                let named = Labels::from([(NAMESPACE_NAME.to_owned(), namespace.clone())]);
                is_of(set, pod, &named)
            }
        })
        .map(|(_, pod)| pod)
        .collect()
    }

    /// The names of the sets for which something has changed since this was last asked.
    pub fn take_changed(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.changed)
    }

    /// Has a set looked at again.
    pub fn look_again(&mut self, set: &str) {
        self.changed.insert(set.to_owned());
    }

    fn look_at_all(&mut self) {
        let names = self.sets.iter().map(|set| set.name().to_owned());
        self.changed.extend(names);
    }

    /// Something happened to a set. One that cannot be read stays what it was.
    pub fn set(&mut self, change: Change<'_, GuardedSet>) {
        match change {
            Change::Applied(DeserializeGuard(Ok(set))) => {
                self.changed.insert(set.name_any());
                self.sets.apply(set);
            }
            Change::Applied(DeserializeGuard(Err(invalid))) => {
                tracing::warn!(name = invalid.metadata.name, error = %invalid.error, "a SidecarSet cannot be read");
            }
            Change::Deleted(set) => self.sets.remove(&set.name_any()),
            Change::Relisted(seen) => self.sets.retain(|name| seen.contains("", name)),
        }
    }

    /// Something happened to a revision.
    pub fn revision(&mut self, change: Change<'_, ControllerRevision>) {
        match change {
            Change::Applied(revision) => {
                self.changed.extend(label(&revision, SET_NAME).map(str::to_owned));
                self.revisions.apply(revision);
            }
            Change::Deleted(revision) => {
                self.changed.extend(label(&revision, SET_NAME).map(str::to_owned));
                self.revisions.remove(&revision.name_any());
            }
            Change::Relisted(seen) => {
                // All are of one namespace, so their names tell them apart.
                self.revisions.retain(|name| seen.contains_name(name));
                self.look_at_all();
            }
        }
    }

    /// Something happened to a namespace.
    pub fn namespace(&mut self, change: Change<'_, Namespace>) {
        match change {
            Change::Applied(namespace) => {
                let name = namespace.name_any();
                let labels = namespace.metadata.labels.unwrap_or_default();
                if self.namespaces.get(&name) == Some(&labels) {
                    return;
                }
                self.namespaces.insert(name, labels);
            }
            Change::Deleted(namespace) => {
                self.namespaces.remove(&namespace.name_any());
            }
            Change::Relisted(seen) => self.namespaces.retain(|name, _| seen.contains("", name)),
        }
        self.look_at_all();
    }

    /// Something happened to a pod.
    pub fn pod(&mut self, change: Change<'_, SidecarPod>) {
        let key = |pod: &SidecarPod| (pod.namespace().unwrap_or_default(), pod.name_any());
        match change {
            Change::Applied(mut pod) => {
                let key = key(&pod);
                self.forget(&key);
                if pod.is_active() {
                    pod.metadata.managed_fields = None;
                    let mut is_injected = false;
                    for set in injected_sets(pod.annotations()) {
                        is_injected = true;
                        self.changed.insert(set.to_owned());
                        self.injected
                            .entry(set.to_owned())
                            .or_default()
                            .insert(key.clone());
                    }
                    if is_injected {
                        self.pods.insert(key, pod);
                    }
                }
            }
            Change::Deleted(pod) => self.forget(&key(&pod)),
            Change::Relisted(seen) => {
                let known = self.pods.keys();
                let gone: Vec<Key> = known
                    .filter(|(namespace, name)| !seen.contains(namespace, name))
                    .cloned()
                    .collect();
                gone.iter().for_each(|key| self.forget(key));
            }
        }
    }

    fn forget(&mut self, key: &Key) {
        let Some(pod) = self.pods.remove(key) else {
            return;
        };
        for set in injected_sets(pod.annotations()) {
            self.changed.insert(set.to_owned());
            if let Some(keys) = self.injected.get_mut(set) {
                keys.remove(key);
                if keys.is_empty() {
                    self.injected.remove(set);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::sidecarset::record::INJECTED_LIST;
    use serde_json::{Value, json};

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn set(name: &str) -> Change<'static, GuardedSet> {
        let set = json!({"metadata": {"name": name}, "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "namespaceSelector": {"matchExpressions": [{"key": "secret", "operator": "DoesNotExist"}]},
        }});
        Change::Applied(DeserializeGuard(Ok(read(set))))
    }

    fn pod(name: &str, sets: &str, phase: &str) -> Change<'static, SidecarPod> {
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "shop", "labels": {"app": "web"}},
            "status": {"phase": phase},
        });
        pod["metadata"]["annotations"][INJECTED_LIST] = json!(sets);
        Change::Applied(read(pod))
    }

    fn changed(rows: &mut Rows) -> String {
        rows.take_changed().into_iter().collect::<Vec<_>>().join(" ")
    }

    fn pods(rows: &Rows, set: &str) -> Vec<String> {
        let pods = rows.sets.get(set).map(|set| rows.pods_of(set));
        pods.into_iter()
            .flatten()
            .map(kube::ResourceExt::name_any)
            .collect()
    }

    #[test]
    fn only_what_has_changed_is_looked_at() {
        let mut rows = Rows::kept_in("outrigger");
        rows.set(set("log"));
        rows.set(set("mesh"));
        assert_eq!(changed(&mut rows), "log mesh");
        assert_eq!(changed(&mut rows), "", "once");

        rows.pod(pod("a", "log,mesh", "Running"));
        rows.pod(pod("b", "log", "Running"));
        rows.pod(pod("stranger", "", "Running"));
        assert_eq!(changed(&mut rows), "log mesh");
        assert_eq!(
            (pods(&rows, "log").len(), pods(&rows, "mesh")),
            (2, vec!["a".to_owned()])
        );

        rows.pod(pod("b", "log", "Running"));
        assert_eq!(changed(&mut rows), "log");
        rows.pod(pod("a", "log", "Running"));
        assert_eq!(changed(&mut rows), "log mesh", "of one that it was of, too");
        assert_eq!(pods(&rows, "mesh"), Vec::<String>::new());
        rows.pod(pod("b", "log", "Succeeded"));
        assert_eq!(changed(&mut rows), "log");
        assert_eq!(pods(&rows, "log"), ["a"]);

        let revision = json!({"metadata": {"name": "log-1", "labels": {SET_NAME: "log"}}, "revision": 1});
        rows.revision(Change::Applied(read(revision)));
        assert_eq!(changed(&mut rows), "log");
        let namespace = |labels: Value| read(json!({"metadata": {"name": "shop", "labels": labels}}));
        rows.namespace(Change::Applied(namespace(json!({"secret": "yes"}))));
        assert_eq!(changed(&mut rows), "log mesh");
        assert_eq!(pods(&rows, "log"), Vec::<String>::new());
        rows.namespace(Change::Applied(namespace(json!({"secret": "yes"}))));
        assert_eq!(changed(&mut rows), "", "the same again");
        rows.look_again("log");
        assert_eq!(changed(&mut rows), "log");
    }
}
