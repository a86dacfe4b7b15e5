//! Whether a set can be what it says (`spec/sidecarset.md` 1.8, 3.9). Containers and volumes are checked as far as injection
//! depends on it; the rest of what the core API asks of them it says itself when the first pod comes.

mod conflict;
mod containers;
mod policy;
mod strategy;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use common::{
    api::{
        k8s::LabelSelector,
        sidecarset::{SidecarContainer, SidecarSet, UpdateStrategyType},
    },
    gates::Gates,
    selector::Selector,
    sidecarset::{
        Revisions, Sets, hot,
        matching::{BASE, base},
        revision::Wanted,
    },
};
use regex::Regex;

/// What is known when a set comes in.
#[derive(Clone, Copy, Debug)]
pub struct World<'w> {
    /// The other sets, and itself as it was.
    pub sets: &'w Sets,
    /// The revisions.
    pub revisions: &'w Revisions,
    /// The gates.
    pub gates: &'w Gates,
    /// Which annotations sets may write into pods.
    pub annotations: &'w AnnotationKeys,
}

/// Which annotations sets may write into pods.
#[derive(Clone, Debug, Default)]
pub enum AnnotationKeys {
    /// None: whoever may write sets would get a say in every pod's annotations.
    #[default]
    None,
    /// Those that one of these finds something in.
    Matching(Vec<Regex>),
}

impl AnnotationKeys {
    fn allow(&self, key: &str) -> bool {
        match self {
            Self::None => false,
            Self::Matching(keys) => keys.iter().any(|regex| regex.is_match(key)),
        }
    }
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The field: `spec.containers[0].podInjectPolicy`.
    pub field: String,
    /// What is wrong with it, as the API server words such things.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// What is found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// What keeps the set from being written.
    pub faults: Vec<Fault>,
    /// What people should know.
    pub warnings: Vec<String>,
}

/// Checks a set, after its defaults are filled in; `old` is the one that it replaces.
#[must_use]
pub fn validate(set: &SidecarSet, old: Option<&SidecarSet>, world: &World<'_>) -> Findings {
    let mut faults = Faults::default();
    check_name(set, &mut faults);
    check_spec(set, old, world, &mut faults);
    check_canary(set, old, world.sets, &mut faults);
    if faults.0.is_empty() {
        conflict::check(set, world.sets, &mut faults);
    }
    let hot = set.spec.containers.iter().chain(&set.spec.init_containers);
    let warnings = hot.filter(|sidecar| hot::is_hot(sidecar)).map(|sidecar| {
        format!(
            "container {} has upgradeType HotUpgrade: it is injected as a pair, but Outrigger does not update the pair in \
             running pods; new pods get the new image",
            sidecar.name()
        )
    });
    Findings {
        warnings: warnings.collect(),
        faults: faults.0,
    }
}

#[derive(Debug, Default)]
struct Faults(Vec<Fault>);

impl Faults {
    fn required(&mut self, field: impl Into<String>, detail: &str) {
        self.push(field.into(), format!("Required value: {detail}"));
    }

    fn invalid(&mut self, field: impl Into<String>, value: impl fmt::Debug, detail: impl fmt::Display) {
        self.push(field.into(), format!("Invalid value: {value:?}: {detail}"));
    }

    fn forbidden(&mut self, field: impl Into<String>, detail: impl fmt::Display) {
        self.push(field.into(), format!("Forbidden: {detail}"));
    }

    fn not_supported(&mut self, field: impl Into<String>, value: &str, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let supported = supported.join(", ");
        self.push(
            field.into(),
            format!("Unsupported value: {value:?}: supported values: {supported}"),
        );
    }

    fn duplicate(&mut self, field: impl Into<String>, value: &str) {
        self.push(field.into(), format!("Duplicate value: {value:?}"));
    }

    fn push(&mut self, field: String, message: String) {
        self.0.push(Fault { field, message });
    }
}

fn check_name(set: &SidecarSet, faults: &mut Faults) {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let is_simple = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if name.is_empty() || !name.chars().all(is_simple) {
        faults.invalid(
            "metadata.name",
            name,
            "a SidecarSet's name consists of letters, digits and '-'",
        );
    }
    if name.len() > 63 {
        faults.invalid("metadata.name", name, "must be no more than 63 characters");
    }
}

fn check_spec(set: &SidecarSet, old: Option<&SidecarSet>, world: &World<'_>, faults: &mut Faults) {
    let spec = &set.spec;
    let is_rolling = spec.update_strategy.type_ != Some(UpdateStrategyType::NotUpdate);
    if is_rolling && spec.init_containers.iter().any(SidecarContainer::restarts_always) {
        faults.required(
            "spec.updateStrategy",
            "The initContainer in-place upgrade is not currently supported.",
        );
    }
    match &spec.selector {
        None => faults.required("spec.selector", "no selector defined for SidecarSet"),
        Some(selector) => check_selector("spec.selector", selector, faults),
    }
    if let Some(selector) = &spec.namespace_selector {
        check_selector("spec.namespaceSelector", selector, faults);
    }
    check_revision(set, world.revisions, faults);
    strategy::check(&spec.update_strategy, faults);
    containers::check(set, faults);
    policy::check(spec, world.gates, faults);
    if let Some(old) = old {
        containers::check_update(set, old, faults);
    }
    check_metadata(set, world.annotations, faults);
}

fn check_selector(field: &str, selector: &LabelSelector, faults: &mut Faults) {
    let labels = selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty);
    let expressions = selector.match_expressions.as_ref().is_none_or(Vec::is_empty);
    if labels && expressions {
        faults.required(field, "empty selector is not valid for sidecarset.");
    } else if let Err(error) = Selector::try_from(selector) {
        let value = serde_json::to_string(selector).unwrap_or_default();
        faults.invalid(field, value, error);
    }
}

fn check_revision(set: &SidecarSet, revisions: &Revisions, faults: &mut Faults) {
    let field = "spec.injectionStrategy.revision";
    let Some(revision) = &set.spec.injection_strategy.revision else {
        return;
    };
    match Wanted::by(Some(revision)) {
        None => faults.required(
            field,
            "revisionName and customVersion cannot be empty simultaneously",
        ),
        Some(wanted) => {
            let name = set.metadata.name.as_deref().unwrap_or_default();
            if let Err(error) = revisions.find(name, wanted) {
                let value = match wanted {
                    Wanted::Name(name) => name,
                    Wanted::CustomVersion(version) => version,
                };
                faults.invalid(
                    field,
                    value,
                    format_args!("Cannot find specific ControllerRevision, err: {error}"),
                );
            }
        }
    }
    containers::check_enum(&format!("{field}.policy"), revision.policy.as_ref(), faults);
}

fn check_metadata(set: &SidecarSet, allowed: &AnnotationKeys, faults: &mut Faults) {
    let mut seen = BTreeSet::new();
    for (index, entry) in set.spec.patch_pod_metadata.iter().enumerate() {
        let field = format!("spec.patchPodMetadata[{index}].annotations");
        if entry.annotations.is_empty() {
            faults.required(&field, "no annotations defined for SidecarSet");
        }
        for key in entry.annotations.keys() {
            if !is_qualified_name(key) {
                faults.invalid(&field, key, "not a valid annotation key");
            }
            if !seen.insert(key) {
                faults.duplicate(&field, key);
            }
            if !allowed.allow(key) {
                faults.forbidden(
                    &field,
                    format_args!(
                        "annotation {key} is not allowed: let --sidecarset-annotation-keys have an expression for it"
                    ),
                );
            }
        }
    }
}

/// `name` or `prefix/name`, as the keys of labels and annotations are.
fn is_qualified_name(key: &str) -> bool {
    let (prefix, name) = key
        .split_once('/')
        .map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_name = |text: &str, length: usize, inner: &str| {
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        text.len() <= length
            && ends(text.chars().next())
            && ends(text.chars().last())
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || inner.contains(c))
    };
    is_name(name, 63, "-_.") && prefix.is_none_or(|prefix| is_name(prefix, 253, "-."))
}

fn check_canary(set: &SidecarSet, old: Option<&SidecarSet>, sets: &Sets, faults: &mut Faults) {
    let field = format!("metadata.annotations[{BASE}]");
    if let Some(old) = old.and_then(base)
        && base(set) != Some(old)
    {
        faults.forbidden(&field, format_args!("a canary stays one of SidecarSet {old}"));
    }
    let Some(base_name) = base(set) else {
        return;
    };
    if set.metadata.name.as_deref() == Some(base_name) {
        faults.invalid(&field, base_name, "a SidecarSet cannot be the canary of itself");
        return;
    }
    match sets.get(base_name) {
        None => faults.invalid(&field, base_name, "there is no SidecarSet of that name"),
        Some(base) if base.base().is_some() => {
            faults.invalid(&field, base_name, "that SidecarSet is a canary itself");
        }
        Some(_) => {}
    }
    if set.spec.update_strategy.type_ != Some(UpdateStrategyType::NotUpdate) {
        faults.forbidden("spec.updateStrategy.type", "of a canary must be NotUpdate");
    }
}
