//! The rows: what the world remembers of a pod and of a node, and how it is read from the objects.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use chrono::{DateTime, Utc};
use common::quantity::Quantity;
use serde_json::Value;

use crate::sandbox::{
    pod::total,
    quantity,
    store::Object,
    tree::{items, text},
    world::load::PodLoad,
};

/// A pod.
#[derive(Debug)]
pub(in crate::sandbox::world) struct Pod {
    pub(in crate::sandbox::world) object: Arc<Object>,
    pub(in crate::sandbox::world) phase: Phase,
    pub(in crate::sandbox::world) ready_since: Option<DateTime<Utc>>,
    pub(in crate::sandbox::world) terminating: bool,
    pub(in crate::sandbox::world) created: DateTime<Utc>,
    pub(in crate::sandbox::world) node: Box<str>,
    pub(in crate::sandbox::world) owner: Option<Owner>,
    pub(in crate::sandbox::world) workload: Arc<Workload>,
    /// How many pods of its workload are ready.
    pub(in crate::sandbox::world) crew: Arc<AtomicUsize>,
    pub(in crate::sandbox::world) load: Arc<PodLoad>,
    pub(in crate::sandbox::world) running: Box<[Running]>,
    /// What it takes of its node: the larger of what it wants and what it has.
    pub(in crate::sandbox::world) needs: Room,
    /// Whether it waits for a scheduler.
    pub(in crate::sandbox::world) unscheduled: bool,
}

impl Pod {
    /// Whether it counts as one of its owner's pods.
    pub(in crate::sandbox::world) fn is_active(&self) -> bool {
        !self.terminating && !self.phase.is_final()
    }

    /// How many pods share the traffic of its workload.
    pub(in crate::sandbox::world) fn replicas(&self) -> usize {
        self.crew.load(Ordering::Relaxed)
    }

    pub(in crate::sandbox::world) fn is_ready(&self) -> bool {
        self.ready_since.is_some() && !self.terminating
    }
}

/// `status.phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::sandbox::world) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    pub(in crate::sandbox::world) fn is_final(self) -> bool {
        self >= Self::Succeeded
    }
}

/// The controller in the owner references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::sandbox::world) struct Owner {
    pub(in crate::sandbox::world) kind: String,
    pub(in crate::sandbox::world) name: String,
    pub(in crate::sandbox::world) uid: String,
}

/// What somebody deployed: the topmost controller, or the pod itself.
#[derive(Debug)]
pub(in crate::sandbox::world) struct Workload {
    pub(in crate::sandbox::world) name: Arc<str>,
    pub(in crate::sandbox::world) since: DateTime<Utc>,
}

/// A container that runs.
#[derive(Debug)]
pub(in crate::sandbox::world) struct Running {
    pub(in crate::sandbox::world) name: Arc<str>,
    pub(in crate::sandbox::world) since: DateTime<Utc>,
    pub(in crate::sandbox::world) cpu_limit: Option<f64>,
}

/// Thousandths of cores, bytes, and pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::sandbox::world) struct Room {
    pub(in crate::sandbox::world) cpu: i64,
    pub(in crate::sandbox::world) memory: i64,
    pub(in crate::sandbox::world) pods: i64,
}

impl Room {
    /// What a pod specification asks for.
    pub(in crate::sandbox::world) fn of(spec: &Value) -> Self {
        Self {
            cpu: milli(&total(spec, "requests", "cpu")),
            memory: units(&total(spec, "requests", "memory")),
            pods: 1,
        }
    }

    pub(in crate::sandbox::world) fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_add(other.cpu),
            memory: self.memory.saturating_add(other.memory),
            pods: self.pods.saturating_add(other.pods),
        }
    }

    pub(in crate::sandbox::world) fn minus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(other.cpu),
            memory: self.memory.saturating_sub(other.memory),
            pods: self.pods.saturating_sub(other.pods),
        }
    }

    pub(super) fn max(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.max(other.cpu),
            memory: self.memory.max(other.memory),
            pods: self.pods.max(other.pods),
        }
    }
}

/// A node.
#[derive(Debug)]
pub(in crate::sandbox::world) struct Node {
    pub(in crate::sandbox::world) object: Arc<Object>,
    pub(in crate::sandbox::world) allocatable: Room,
    pub(in crate::sandbox::world) schedulable: bool,
    /// Whether the simulated kubelet runs its pods.
    pub(in crate::sandbox::world) simulated: bool,
}

/// A node with this annotation has a simulated kubelet.
pub(in crate::sandbox::world) const SIMULATED: &str = "sandbox.outrigger.dev/simulated";

/// The controller among the owners of an object.
pub(in crate::sandbox::world) fn controller(value: &Value) -> Option<Owner> {
    let reference = items(value, "/metadata/ownerReferences").find(|one| one["controller"] == true)?;
    Some(Owner {
        kind: text(reference, "/kind").to_owned(),
        name: text(reference, "/name").to_owned(),
        uid: text(reference, "/uid").to_owned(),
    })
}

/// Where the store keeps a controller's kind.
pub(in crate::sandbox::world) fn resource_of(kind: &str) -> Option<&'static str> {
    match kind {
        "Deployment" => Some("deployments.apps"),
        "ReplicaSet" => Some("replicasets.apps"),
        "StatefulSet" => Some("statefulsets.apps"),
        "DaemonSet" => Some("daemonsets.apps"),
        "Job" => Some("jobs.batch"),
        "CronJob" => Some("cronjobs.batch"),
        "ReplicationController" => Some("replicationcontrollers"),
        _ => None,
    }
}

/// A time in an object.
pub(in crate::sandbox::world) fn time(value: &Value, pointer: &str) -> Option<DateTime<Utc>> {
    let time = DateTime::parse_from_rfc3339(text(value, pointer)).ok()?;
    Some(time.with_timezone(&Utc))
}

pub(super) fn node(object: Arc<Object>) -> Node {
    let value = object.value();
    let allocatable = &value["status"]["allocatable"];
    let at = |name: &str| quantity::at(&allocatable[name]).unwrap_or_default();
    let ready =
        items(&value, "/status/conditions").any(|one| one["type"] == "Ready" && one["status"] == "True");
    Node {
        allocatable: Room {
            cpu: milli(&at("cpu")),
            memory: units(&at("memory")),
            pods: units(&at("pods")),
        },
        schedulable: ready && value["spec"]["unschedulable"] != true,
        simulated: value["metadata"]["annotations"].get(SIMULATED).is_some(),
        object,
    }
}

pub(super) fn running(status: &Value) -> Option<Running> {
    let since = time(status, "/state/running/startedAt")?;
    let limit = quantity::at(&status["resources"]["limits"]["cpu"]);
    Some(Running {
        name: text(status, "/name").into(),
        since,
        cpu_limit: limit.map(|limit| limit.approximate_f64()),
    })
}

/// The specification with the requests that the kubelet has granted, where those are others.
pub(super) fn with_allocated(spec: &Value, status: &Value) -> Option<Value> {
    let mut granted = None;
    for (list, statuses) in [
        ("initContainers", "/initContainerStatuses"),
        ("containers", "/containerStatuses"),
    ] {
        for (i, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            let status = items(status, statuses).find(|status| status["name"] == container["name"]);
            let has = status.and_then(|status| status.get("allocatedResources"));
            if let Some(has) = has.filter(|has| **has != container["resources"]["requests"]) {
                granted.get_or_insert_with(|| spec.clone())[list][i]["resources"]["requests"] = has.clone();
            }
        }
    }
    granted
}

fn milli(quantity: &Quantity) -> i64 {
    quantity.milli().unwrap_or(i64::MAX)
}

fn units(quantity: &Quantity) -> i64 {
    quantity.units().unwrap_or(i64::MAX)
}
