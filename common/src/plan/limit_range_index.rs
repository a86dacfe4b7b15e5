//! The LimitRanges of all namespaces, merged by namespace as they come and go.

use std::collections::{BTreeMap, HashMap};

use super::LimitRanges;
use crate::api::k8s::LimitRange;

/// What LimitRanges say, by namespace.
#[derive(Debug, Default)]
pub struct LimitRangeIndex {
    merged: HashMap<String, LimitRanges>,
    /// What was merged into these.
    objects: HashMap<String, BTreeMap<String, LimitRange>>,
}

impl LimitRangeIndex {
    /// What holds in a namespace; nothing if it has no LimitRange.
    #[must_use]
    pub fn get(&self, namespace: &str) -> Option<&LimitRanges> {
        self.merged.get(namespace)
    }

    /// What holds in all namespaces that have one.
    #[must_use]
    pub fn merged(&self) -> &HashMap<String, LimitRanges> {
        &self.merged
    }

    /// Takes in a LimitRange that is new or has changed.
    pub fn apply(&mut self, mut object: LimitRange) {
        let namespace = object.metadata.namespace.take().unwrap_or_default();
        let name = object.metadata.name.take().unwrap_or_default();
        object.metadata = Default::default();
        let objects = self.objects.entry(namespace.clone()).or_default();
        objects.insert(name, object);
        self.merge(&namespace);
    }

    /// Forgets one that is gone.
    pub fn remove(&mut self, namespace: &str, name: &str) {
        if let Some(objects) = self.objects.get_mut(namespace) {
            objects.remove(name);
            self.merge(namespace);
        }
    }

    /// Forgets those of which `keep`, given namespace and name, says no.
    pub fn retain(&mut self, keep: impl Fn(&str, &str) -> bool) {
        let namespaces: Vec<_> = self.objects.keys().cloned().collect();
        for namespace in namespaces {
            if let Some(objects) = self.objects.get_mut(&namespace) {
                objects.retain(|name, _| keep(&namespace, name));
            }
            self.merge(&namespace);
        }
    }

    fn merge(&mut self, namespace: &str) {
        let objects = self.objects.get(namespace);
        match objects.filter(|objects| !objects.is_empty()) {
            Some(objects) => {
                let merged = LimitRanges::merge(objects.values());
                self.merged.insert(namespace.to_owned(), merged);
            }
            None => {
                self.objects.remove(namespace);
                self.merged.remove(namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn limit_range(namespace: &str, name: &str, max: &str) -> LimitRange {
        serde_json::from_value(json!({
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"limits": [{"type": "Container", "max": {"cpu": max}}]},
        }))
        .unwrap()
    }

    fn most(index: &LimitRangeIndex, namespace: &str) -> Option<String> {
        let container = index.get(namespace)?.container.clone()?;
        Some(container.max?.get("cpu")?.to_string())
    }

    #[test]
    fn limit_ranges_are_merged_by_namespace_and_forgotten() {
        let mut index = LimitRangeIndex::default();
        index.apply(limit_range("a", "one", "2"));
        index.apply(limit_range("a", "two", "1"));
        index.apply(limit_range("b", "one", "3"));
        assert_eq!(most(&index, "a").as_deref(), Some("1"));
        assert_eq!(most(&index, "b").as_deref(), Some("3"));
        index.remove("a", "two");
        assert_eq!(most(&index, "a").as_deref(), Some("2"));
        index.retain(|namespace, _| namespace == "b");
        assert_eq!(most(&index, "a"), None);
        assert_eq!(most(&index, "b").as_deref(), Some("3"));
    }
}
