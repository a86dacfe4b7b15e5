//! From a plan to a JSON patch: the operations and annotations that VPA writes, in its order, cpu before memory
//! (`spec/vpa.md` 4.5), or of those what the pod does not have yet.

use std::collections::BTreeMap;

use common::{
    patch::set_amounts,
    plan::{ContainerPlan, PlanInput, PodPlan},
    pod::{Pod, ResourceList, Resources, Side},
    quantity::Quantity,
    sidecarset::sizing,
};
use serde::Serialize;

use super::memory::{self, Memory};
use crate::review::Operation;

const ANNOTATIONS: &str = "/metadata/annotations";
const UPDATES: &str = "vpaUpdates";
const OBSERVED_CONTAINERS: &str = "vpaObservedContainers";
const CPU_BOOST: &str = "vpaCpuStartupBoost/";
const BOTH_SIDES: [(Side, &str); 2] = [(Side::Requests, "request"), (Side::Limits, "limit")];

/// Everything that VPA would write.
pub(super) fn whole(pod: &Pod, plan: &PodPlan<'_>) -> Vec<Operation> {
    let mut patch = Patch::of(pod, false);
    patch.resources(plan, &Memory::None);
    patch.operations
}

/// Of all that, what the pod does not have yet, and back again what an earlier call set and nothing asks for any more;
/// besides, what has to be remembered for the next call. Nothing at all for a pod that comes back as it went.
pub(super) fn what_is_new(
    pod: &Pod,
    plan: &PodPlan<'_>,
    input: &PlanInput<'_>,
    memory: &Memory,
) -> Vec<Operation> {
    let mut patch = Patch::of(pod, true);
    patch.resources(plan, memory);
    match memory::text(plan, input, patch.annotation_bytes) {
        Some(text) => patch.annotate(memory::ANNOTATION, text),
        None => patch.take_back(memory::ANNOTATION),
    }
    patch.operations
}

/// What the formulas of a pod ask for that no VPA controls. Nothing of VPA's is written.
pub(super) fn formulas_alone(pod: &Pod, plan: &PodPlan<'_>) -> Vec<Operation> {
    let mut patch = Patch::of(pod, true);
    for container in plan.containers.iter().filter(|plan| plan.is_by_formula()) {
        patch.amounts(container);
    }
    patch.sizing(plan);
    patch.operations
}

struct Patch<'a> {
    annotations: Option<&'a BTreeMap<String, String>>,
    /// How much all annotations take up with the patch applied.
    annotation_bytes: usize,
    only_new: bool,
    operations: Vec<Operation>,
}

impl<'a> Patch<'a> {
    fn of(pod: &'a Pod, only_new: bool) -> Self {
        let annotations = pod.metadata.annotations.as_ref();
        let sizes = annotations.into_iter().flatten();
        let mut operations = Vec::new();
        if annotations.is_none() {
            operations.push(Operation::make(ANNOTATIONS.to_owned()));
        }
        Self {
            annotations,
            annotation_bytes: sizes.map(|(key, value)| key.len() + value.len()).sum(),
            only_new,
            operations,
        }
    }

    fn resources(&mut self, plan: &PodPlan<'_>, memory: &Memory) {
        for container in plan.containers.iter().filter(|plan| !plan.is_left_alone()) {
            let name = container.container.name();
            let boost = format!("{CPU_BOOST}{name}");
            match boost_annotation(container) {
                Some(original) => self.annotate(&boost, original),
                None if memory.knows(name) => self.take_back(&boost),
                None => {}
            }
            self.amounts(container);
            self.back(container, memory);
        }
        match updates_annotation(plan) {
            Some(updates) => self.annotate(UPDATES, updates),
            None if matches!(memory, Memory::Kept(_)) => self.take_back(UPDATES),
            None => {}
        }
        let names: Vec<_> = plan.containers.iter().map(|plan| plan.container.name()).collect();
        self.annotate(OBSERVED_CONTAINERS, names.join(", "));
        self.sizing(plan);
    }

    /// What the pod remembers of its formulas.
    fn sizing(&mut self, plan: &PodPlan<'_>) {
        match sizing::text(plan) {
            Some(text) => self.annotate(sizing::ANNOTATION, text),
            None if self.only_new => self.take_back(sizing::ANNOTATION),
            None => {}
        }
    }

    /// The amounts, after the maps they stand in.
    fn amounts(&mut self, plan: &ContainerPlan<'_>) {
        let container = &plan.container;
        let present = if self.only_new {
            container.spec_resources()
        } else {
            plan.base
        };
        let only_new = self.only_new;
        let to_set = BOTH_SIDES.map(|(side, _)| {
            let now = amounts(present, side);
            let differs = move |name: &str, amount: &Quantity| {
                now.and_then(|now| now.get(name))
                    .is_none_or(|now| !now.same_value(amount))
            };
            planned(plan, side)
                .iter()
                .filter(move |(name, amount)| !only_new || differs(name, amount))
                .collect::<Vec<_>>()
        });
        let [requests, limits] = to_set;
        self.operations
            .extend(set_amounts(container, present, requests, limits, !only_new));
        let dropped = plan.dropped.iter().map(|field| Operation::Remove {
            path: container.resource_path(field.side, field.resource.name()),
        });
        self.operations.extend(dropped);
    }

    /// What an earlier call set, and this one does not, is again what it was.
    fn back(&mut self, plan: &ContainerPlan<'_>, memory: &Memory) {
        for (side, _) in BOTH_SIDES {
            for (name, before) in memory.set_on(plan.container.name(), side) {
                let mut dropped = plan.dropped.iter();
                let is_dropped = dropped.any(|field| field.side == side && field.resource.name() == name);
                if is_dropped || planned(plan, side).contains_key(name) {
                    continue;
                }
                let path = plan.container.resource_path(side, name);
                self.operations.push(match before {
                    Some(before) => Operation::set(path, before.to_string()),
                    None => Operation::Remove { path },
                });
            }
        }
    }

    fn annotate(&mut self, key: &str, value: String) {
        let now = self.annotations.and_then(|annotations| annotations.get(key));
        if self.only_new && now == Some(&value) {
            return;
        }
        self.annotation_bytes += key.len() + value.len();
        self.operations.push(Operation::set(annotation_path(key), value));
    }

    /// Removes an annotation of an earlier call that is not true any more.
    fn take_back(&mut self, key: &str) {
        if self
            .annotations
            .is_some_and(|annotations| annotations.contains_key(key))
        {
            let path = annotation_path(key);
            self.operations.push(Operation::Remove { path });
        }
    }
}

fn annotation_path(key: &str) -> String {
    format!("{ANNOTATIONS}/{}", key.replace('~', "~0").replace('/', "~1"))
}

fn planned<'p>(plan: &'p ContainerPlan<'_>, side: Side) -> &'p ResourceList {
    match side {
        Side::Requests => &plan.requests,
        Side::Limits => &plan.limits,
    }
}

fn amounts(resources: &Resources, side: Side) -> Option<&ResourceList> {
    match side {
        Side::Requests => resources.requests.as_ref(),
        Side::Limits => resources.limits.as_ref(),
    }
}

fn has_neither(resources: &Resources) -> bool {
    resources.requests.is_none() && resources.limits.is_none()
}

/// `Pod resources updated by VPA: container 0: NOTE, cpu request; …`, with an entry for every container that VPA has an
/// operation for, or that has a formula.
fn updates_annotation(plan: &PodPlan<'_>) -> Option<String> {
    let containers = plan.containers.iter().filter(|plan| !plan.is_left_alone());
    let entries: Vec<String> = containers
        .filter(|plan| {
            let is_set = !plan.requests.is_empty() || !plan.limits.is_empty();
            has_neither(plan.base) || is_set || plan.formula.is_some()
        })
        .map(|plan| {
            let notes = plan.reasons.iter().filter(|reason| reason.is_annotated());
            let mut items: Vec<String> = notes.map(ToString::to_string).collect();
            for (side, noun) in BOTH_SIDES {
                items.extend(planned(plan, side).keys().map(|name| format!("{name} {noun}")));
            }
            format!("{}: {}", plan.container, items.join(", "))
        })
        .collect();
    (!entries.is_empty()).then(|| format!("Pod resources updated by {}: {}", plan.vpa, entries.join("; ")))
}

/// What the updater goes back to when the start is over.
fn boost_annotation(plan: &ContainerPlan<'_>) -> Option<String> {
    #[derive(Serialize)]
    struct Original<'a> {
        requests: BTreeMap<&'a str, &'a Quantity>,
        limits: BTreeMap<&'a str, &'a Quantity>,
    }
    let original = plan.boosted_from.as_deref()?;
    let [requests, limits] = BOTH_SIDES.map(|(side, _)| {
        let list = amounts(original, side).into_iter().flatten();
        list.map(|(name, amount)| (name.as_str(), amount))
            .filter(|(name, _)| ["cpu", "memory"].contains(name))
            .collect()
    });
    serde_json::to_string(&Original { requests, limits }).ok()
}
