//! Resizes in place: granted or not by the node's room, then carried out, with the conditions and events of a real kubelet
//! (1.36).

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::containers::{Container, Containers, Ended, Role, State, Step, Surroundings, resources};
use crate::sandbox::{
    pod::all_containers,
    quantity,
    tree::{items, text},
    world::index::Room,
};

/// What is the matter with the resize of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Resize {
    /// Reason and message.
    pub(super) pending: Option<(&'static str, String)>,
    /// Granted and not yet carried out; the error of the last attempt, if any.
    pub(super) progress: Option<Option<String>>,
    /// The generation of the pod that was granted.
    pub(super) generation: i64,
}

/// A node, as far as a resize looks at it.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeRoom {
    pub(super) allocatable: Room,
    /// What the other pods take.
    pub(super) others: Room,
}

/// How many ticks an attempt that failed is waited with.
const RETRY_TICKS: i32 = 5;

impl Resize {
    /// Goes one step towards what the specification asks for.
    pub(super) fn step(
        &mut self,
        pod: &Value,
        containers: &mut Containers,
        node: NodeRoom,
        around: &Surroundings<'_>,
        step: &mut Step,
    ) {
        // A grant is carried out at the next tick, so that whoever watches can see it in progress.
        if self.progress.is_some() {
            self.carry_out(pod, containers, around, step);
        }
        self.grant(pod, containers, node, around, step);
    }

    fn grant(
        &mut self,
        pod: &Value,
        containers: &mut Containers,
        node: NodeRoom,
        around: &Surroundings<'_>,
        step: &mut Step,
    ) {
        let wanted: Vec<_> = all_containers(&pod["spec"]).map(resources).collect();
        let granted = containers.all.iter().map(|one| &one.allocated).eq(&wanted);
        if granted {
            self.pending = None;
            return;
        }
        if let Some((reason, message)) = refusal(Room::of(&pod["spec"]), node) {
            if reason == "Deferred" {
                step.due(around.now + around.tick);
            }
            let pending = Some((reason, message.clone()));
            if self.pending != pending {
                let event = format!("Resize{reason}");
                let text = summary(pod, &format!("Pod resize {reason}"), Some(&message));
                step.events.push((true, kept(&event), text));
                self.pending = pending;
            }
            return;
        }
        self.pending = None;
        self.generation = pod["metadata"]["generation"].as_i64().unwrap_or_default();
        for (one, wanted) in containers.all.iter_mut().zip(wanted) {
            one.allocated = wanted;
            if !matches!(one.state, State::Running { .. }) {
                one.actuate();
            }
        }
        self.progress = None;
        if containers.all.iter().any(|one| one.actual != one.allocated) {
            self.progress = Some(None);
            step.events
                .push((false, "ResizeStarted", summary(pod, "Pod resize started", None)));
            step.due(around.now + around.tick);
        }
    }

    fn carry_out(
        &mut self,
        pod: &Value,
        containers: &mut Containers,
        around: &Surroundings<'_>,
        step: &mut Step,
    ) {
        if let Some(why) = too_small(containers, around) {
            if self.progress == Some(None) {
                let text = summary(pod, "Pod resize error", Some(&why));
                step.events.push((true, "ResizeError", text));
            }
            self.progress = Some(Some(why));
            step.due(around.now + around.tick * RETRY_TICKS);
            return;
        }
        for (one, spec) in containers.all.iter_mut().zip(all_containers(&pod["spec"])) {
            if one.actual == one.allocated {
                continue;
            }
            match one.state {
                State::Running { since } if needs_restart(one, spec) => {
                    let event = format!("Container {} resize requires restart", one.name);
                    step.events.push((false, "Killing", event));
                    let ended = Ended {
                        reason: "Error",
                        code: 137,
                        since,
                        at: around.now,
                    };
                    one.restart(ended, around, step);
                }
                _ => one.actuate(),
            }
        }
        self.progress = None;
        step.events.push((
            false,
            "ResizeCompleted",
            summary(pod, "Pod resize completed", None),
        ));
    }
}

/// Why a node cannot grant this now, or ever.
fn refusal(wanted: Room, node: NodeRoom) -> Option<(&'static str, String)> {
    let NodeRoom { allocatable, others } = node;
    let rows = [
        ("cpu", wanted.cpu, others.cpu, allocatable.cpu),
        ("memory", wanted.memory, others.memory, allocatable.memory),
    ];
    for (name, wanted, _, allocatable) in rows {
        if wanted > allocatable {
            let message = format!(
                "Node didn't have enough capacity: {name}, requested: {wanted}, capacity: {allocatable}"
            );
            return Some(("Infeasible", message));
        }
    }
    for (name, wanted, others, allocatable) in rows {
        if wanted.saturating_add(others) > allocatable {
            let message = format!(
                "Node didn't have enough resource: {name}, requested: {wanted}, used: {others}, capacity: {allocatable}"
            );
            return Some(("Deferred", message));
        }
    }
    None
}

/// A memory limit is not lowered below what is in use.
fn too_small(containers: &Containers, around: &Surroundings<'_>) -> Option<String> {
    let problem = |one: &Container| {
        let limit = quantity::at(&one.allocated["limits"]["memory"])?;
        let lowered = one
            .memory_limit()
            .is_none_or(|before| limit.approximate_f64() < before);
        let used = (around.memory)(one, around.now);
        let running = matches!(one.state, State::Running { .. });
        (running && lowered && used >= limit.approximate_f64()).then(|| {
            let (name, limit) = (&one.name, limit.units().unwrap_or(i64::MAX));
            format!("attempting to set container \"{name}\" memory limit ({limit}) below current usage ({used:.0})")
        })
    };
    let problems: Vec<_> = containers.all.iter().filter_map(problem).collect();
    (!problems.is_empty()).then(|| format!("cannot decrease memory limits: {}", problems.join(", ")))
}

fn needs_restart(one: &Container, spec: &Value) -> bool {
    let same = |name: &str| {
        ["requests", "limits"].iter().all(|field| {
            let at = |value: &Value| quantity::at(&value[field][name]);
            match (at(&one.actual), at(&one.allocated)) {
                (Some(before), Some(after)) => before.cmp_value(&after) == Ordering::Equal,
                (before, after) => before.is_none() && after.is_none(),
            }
        })
    };
    one.role != Role::Init
        && items(spec, "/resizePolicy").any(|policy| {
            policy["restartPolicy"] == "RestartContainer" && !same(text(policy, "/resourceName"))
        })
}

fn kept(reason: &str) -> &'static str {
    match reason {
        "ResizeInfeasible" => "ResizeInfeasible",
        _ => "ResizeDeferred",
    }
}

/// What the kubelet's events about resizes say.
fn summary(pod: &Value, what: &str, error: Option<&str>) -> String {
    let list = |name: &str| -> Vec<Value> {
        items(pod, &format!("/spec/{name}"))
            .map(|one| json!({"name": one["name"], "resources": resources(one)}))
            .collect()
    };
    let mut summary = json!({"containers": list("containers"), "generation": pod["metadata"]["generation"]});
    let init = list("initContainers");
    if !init.is_empty() {
        summary["initContainers"] = init.into();
    }
    if let Some(error) = error {
        summary["error"] = error.into();
    }
    format!("{what}: {summary}")
}
