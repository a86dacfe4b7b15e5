//! Conflicts between sets that may meet in one pod. Whether they may is guessed from their selectors as Kruise does, so that
//! whatever it has let in stays writable.

use std::collections::{BTreeMap, BTreeSet};

use common::{
    api::{
        k8s::{LabelSelector, LabelSelectorRequirement},
        sidecarset::{PatchPolicy, SidecarContainer, SidecarSet, SidecarSetSpec},
    },
    sidecarset::{Sets, matching::base},
};
use serde_json::Value;

use super::Faults;

pub(super) fn check(set: &SidecarSet, sets: &Sets, faults: &mut Faults) {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    for other in sets.iter().filter(|other| other.name() != name) {
        // Of a canary and its base a pod gets one.
        let is_pair = base(set) == Some(other.name()) || other.base() == Some(name);
        if is_pair || !may_meet(&set.spec, &other.object.spec) {
            continue;
        }
        check_pair(&set.spec, other.name(), &other.object.spec, faults);
    }
}

fn check_pair(spec: &SidecarSetSpec, other_name: &str, other: &SidecarSetSpec, faults: &mut Faults) {
    let with = |what: &str, name: &str| format!("{what} {name} already exists in SidecarSet {other_name}");
    for (list, ours, theirs) in [
        ("initContainers", &spec.init_containers, &other.init_containers),
        ("containers", &spec.containers, &other.containers),
    ] {
        let taken: BTreeSet<&str> = theirs.iter().map(SidecarContainer::name).collect();
        for sidecar in ours.iter().filter(|sidecar| taken.contains(sidecar.name())) {
            let name = sidecar.name();
            faults.invalid(format!("spec.{list}"), name, with("container", name));
        }
    }
    let volumes = |spec: &SidecarSetSpec| -> BTreeMap<String, Value> {
        let volumes = spec.volumes.as_ref().and_then(Value::as_array).cloned();
        let volumes = volumes.into_iter().flatten();
        volumes
            .map(|volume| (volume["name"].as_str().unwrap_or_default().to_owned(), volume))
            .collect()
    };
    let taken = volumes(other);
    for (name, volume) in volumes(spec) {
        if taken.get(&name).is_some_and(|other| *other != volume) {
            faults.invalid("spec.volumes", &name, with("another volume", &name));
        }
    }
    let keys = |spec: &SidecarSetSpec| -> BTreeMap<String, PatchPolicy> {
        let entries = spec.patch_pod_metadata.iter();
        entries
            .flat_map(|entry| {
                let policy = entry.patch_policy.clone().unwrap_or(PatchPolicy::Retain);
                entry
                    .annotations
                    .keys()
                    .map(move |key| (key.clone(), policy.clone()))
            })
            .filter(|(_, policy)| *policy != PatchPolicy::Retain)
            .collect()
    };
    let taken = keys(other);
    for (key, policy) in keys(spec) {
        let theirs = taken.get(&key);
        if theirs.is_some_and(|theirs| [theirs, &policy].contains(&&PatchPolicy::Overwrite)) {
            faults.invalid("spec.patchPodMetadata", &key, with("annotation", &key));
        }
    }
}

fn may_meet(one: &SidecarSetSpec, other: &SidecarSetSpec) -> bool {
    may_overlap(one.namespace_selector.as_ref(), other.namespace_selector.as_ref())
        && may_overlap(one.selector.as_ref(), other.selector.as_ref())
}

/// No selector is every object.
fn may_overlap(one: Option<&LabelSelector>, other: Option<&LabelSelector>) -> bool {
    let (Some(one), Some(other)) = (one, other) else {
        return true;
    };
    let (one, other) = (requirements(one), requirements(other));
    !excludes(&one, &other) && !excludes(&other, &one)
}

fn requirements(selector: &LabelSelector) -> Vec<LabelSelectorRequirement> {
    let labels = selector.match_labels.iter().flatten();
    let labels = labels.map(|(key, value)| LabelSelectorRequirement {
        key: key.clone(),
        operator: "In".to_owned(),
        values: Some(vec![value.clone()]),
    });
    let expressions = selector.match_expressions.iter().flatten().cloned();
    labels.chain(expressions).collect()
}

/// Whether nothing that satisfies the one can satisfy the other, as far as one key tells.
fn excludes(one: &[LabelSelectorRequirement], other: &[LabelSelectorRequirement]) -> bool {
    one.iter().any(|ours| {
        let values = |requirement: &LabelSelectorRequirement| -> BTreeSet<String> {
            requirement.values.iter().flatten().cloned().collect()
        };
        let same_key = || other.iter().filter(|theirs| theirs.key == ours.key);
        match ours.operator.as_str() {
            "In" => same_key().any(|theirs| match theirs.operator.as_str() {
                "In" => values(ours).is_disjoint(&values(theirs)),
                "NotIn" => values(ours).is_subset(&values(theirs)),
                "DoesNotExist" => true,
                _ => false,
            }),
            // That the other does not mention the key rules nothing out, but Kruise takes it so.
            "Exists" => {
                same_key().next().is_none() || same_key().any(|theirs| theirs.operator == "DoesNotExist")
            }
            _ => false,
        }
    })
}
