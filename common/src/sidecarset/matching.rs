//! Which sets a pod is for: by its namespace and its labels, a canary before the set it stands in for
//! (`spec/sidecarset.md` 2.2, 2.3). In order of their names, where Kruise has none.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    api::{k8s::LabelSelector, sidecarset::SidecarSet},
    selector::{Selector, SelectorError},
};

/// The annotation of a canary.
pub const CANARY: &str = "apps.kruise.io/sidecarset-canary";
/// The annotation with the name of the set that a canary stands in for.
pub const BASE: &str = "apps.kruise.io/sidecarset-base";
/// The label that every namespace has, with its name.
pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// The labels of an object.
pub type Labels = BTreeMap<String, String>;

/// A set, read once.
#[derive(Clone, Debug)]
pub struct Set {
    /// The object.
    pub object: Arc<SidecarSet>,
    pods: Result<Selector, SelectorError>,
    namespaces: Result<Option<Selector>, SelectorError>,
}

/// Why nobody can say whether a set is for a pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("SidecarSet {set}: spec.selector: {error}")]
pub struct MatchError {
    set: String,
    error: SelectorError,
}

impl Set {
    /// Of an object.
    #[must_use]
    pub fn new(object: SidecarSet) -> Self {
        let pods = match &object.spec.selector {
            Some(selector) if !is_empty(selector) => Selector::try_from(selector),
            _ => Ok(Selector::Nothing),
        };
        let namespaces = object
            .spec
            .namespace_selector
            .as_ref()
            .map(Selector::try_from)
            .transpose();
        Self {
            object: Arc::new(object),
            pods,
            namespaces,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// The set that it stands in for, if it is a canary.
    #[must_use]
    pub fn base(&self) -> Option<&str> {
        base(&self.object)
    }

    /// Whether the pods of a namespace may be meant. What cannot be read selects no namespace.
    #[must_use]
    pub fn is_for_namespace(&self, labels: &Labels) -> bool {
        match &self.namespaces {
            Ok(None) => true,
            Ok(Some(selector)) => selector.matches(|key| labels.get(key).map(String::as_str)),
            Err(_) => false,
        }
    }

    /// Whether a pod with these labels is meant, in one of its namespaces.
    ///
    /// # Errors
    /// If the selector cannot be read.
    pub fn selects(&self, labels: &Labels) -> Result<bool, MatchError> {
        match &self.pods {
            Ok(selector) => Ok(selector.matches(|key| labels.get(key).map(String::as_str))),
            Err(error) => Err(MatchError {
                set: self.name().to_owned(),
                error: error.clone(),
            }),
        }
    }
}

/// The set that a set stands in for, if it is a canary.
#[must_use]
pub fn base(set: &SidecarSet) -> Option<&str> {
    let annotations = set.metadata.annotations.as_ref()?;
    let is_canary = annotations.get(CANARY).is_some_and(|value| value == "true");
    let base = annotations.get(BASE).filter(|base| !base.is_empty());
    base.filter(|_| is_canary).map(String::as_str)
}

fn is_empty(selector: &LabelSelector) -> bool {
    let labels = selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty);
    let expressions = selector.match_expressions.as_ref().is_none_or(Vec::is_empty);
    labels && expressions
}

/// The sets that are known.
#[derive(Clone, Debug, Default)]
pub struct Sets(BTreeMap<String, Set>);

impl Sets {
    /// Takes in one that is new or has changed.
    pub fn apply(&mut self, mut object: SidecarSet) {
        object.metadata.managed_fields = None;
        let set = Set::new(object);
        self.0.insert(set.name().to_owned(), set);
    }

    /// Forgets one.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Forgets those of which `keep` says no.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| keep(name));
    }

    /// The one of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Set> {
        self.0.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Set> {
        self.0.values()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that a new pod is for, and that inject.
    ///
    /// # Errors
    /// If the selector of one cannot be read.
    pub fn matching(&self, pod: &Labels, namespace: &Labels) -> Result<Vec<&Set>, MatchError> {
        let mut found = Vec::new();
        for set in self.iter() {
            if !set.object.spec.injection_strategy.paused
                && set.is_for_namespace(namespace)
                && set.selects(pod)?
            {
                found.push(set);
            }
        }
        let bases: Vec<&str> = found.iter().filter_map(|set| set.base()).collect();
        found.retain(|set| !bases.contains(&set.name()));
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn sets(objects: &[(&str, Value, Value)]) -> Sets {
        let mut sets = Sets::default();
        for (name, annotations, spec) in objects {
            let object = json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec});
            sets.apply(serde_json::from_value(object).unwrap());
        }
        sets
    }

    fn names(sets: &Sets) -> Result<String, MatchError> {
        let labels = |key: &str, value: &str| Labels::from([(key.to_owned(), value.to_owned())]);
        let found = sets.matching(&labels("app", "web"), &labels(NAMESPACE_NAME, "shop"))?;
        Ok(found.iter().map(|set| set.name()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_pod_is_for_the_sets_that_select_it_and_its_namespace() {
        let web = json!({"matchLabels": {"app": "web"}});
        let none = json!({});
        let shop = json!({"matchLabels": {NAMESPACE_NAME: "shop"}});
        let other =
            json!({"matchExpressions": [{"key": NAMESPACE_NAME, "operator": "In", "values": ["other"]}]});
        let bad = json!({"matchExpressions": [{"key": "a", "operator": "badOp"}]});
        let found = sets(&[
            ("z-everywhere", none.clone(), json!({"selector": web})),
            (
                "here",
                none.clone(),
                json!({"selector": web, "namespaceSelector": shop}),
            ),
            (
                "elsewhere",
                none.clone(),
                json!({"selector": web, "namespaceSelector": other}),
            ),
            (
                "unreadable-namespace",
                none.clone(),
                json!({"selector": web, "namespaceSelector": bad}),
            ),
            (
                "other-label",
                none.clone(),
                json!({"selector": {"matchLabels": {"app": "db"}}}),
            ),
            ("empty-selector", none.clone(), json!({"selector": {}})),
            ("no-selector", none.clone(), json!({})),
            (
                "paused",
                none.clone(),
                json!({"selector": web, "injectionStrategy": {"paused": true}}),
            ),
        ]);
        assert_eq!(names(&found).unwrap(), "here z-everywhere");
        let broken = sets(&[("broken", none, json!({"selector": bad}))]);
        assert_eq!(
            names(&broken).unwrap_err().to_string(),
            "SidecarSet broken: spec.selector: unknown operator \"badOp\": use In, NotIn, Exists or DoesNotExist"
        );
    }

    #[test]
    fn a_canary_takes_the_place_of_its_base() {
        let web = json!({"selector": {"matchLabels": {"app": "web"}}});
        let elsewhere = json!({"selector": {"matchLabels": {"app": "db"}}});
        for (annotations, spec, expected) in [
            (json!({CANARY: "true", BASE: "base"}), &web, "canary other"),
            (json!({CANARY: "true", BASE: "base"}), &elsewhere, "base other"),
            (json!({CANARY: "TRUE", BASE: "base"}), &web, "base canary other"),
            (json!({CANARY: "1", BASE: "base"}), &web, "base canary other"),
            (json!({CANARY: "true"}), &web, "base canary other"),
            (json!({CANARY: "true", BASE: ""}), &web, "base canary other"),
        ] {
            let sets = sets(&[
                ("base", json!({}), web.clone()),
                ("canary", annotations.clone(), spec.clone()),
                ("other", json!({}), web.clone()),
            ]);
            assert_eq!(names(&sets).unwrap(), expected, "{annotations}");
        }
    }
}
