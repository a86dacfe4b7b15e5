//! What the world knows of pods and nodes: small rows kept up to date from the store's history, asked by the controllers,
//! the scheduler, the kubelet and the metrics. Reading it costs as much as has changed since the last time.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use chrono::{DateTime, Utc};
use common::quantity::Quantity;
use serde_json::Value;

use super::load::{ANNOTATION, PodLoad};
use crate::sandbox::{
    pod::total,
    quantity,
    store::{Change, Event, Key, Object, Range, Store, Watch},
    tree::{items, text},
};

/// A pod.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) object: Arc<Object>,
    pub(super) phase: Phase,
    pub(super) ready_since: Option<DateTime<Utc>>,
    pub(super) terminating: bool,
    pub(super) created: DateTime<Utc>,
    pub(super) node: Box<str>,
    pub(super) owner: Option<Owner>,
    pub(super) workload: Arc<Workload>,
    pub(super) load: Arc<PodLoad>,
    pub(super) running: Box<[Running]>,
    /// What it takes of its node: the larger of what it wants and what it has.
    pub(super) needs: Room,
    /// Whether it waits for a scheduler.
    pub(super) unscheduled: bool,
}

impl Pod {
    /// Whether it counts as one of its owner's pods.
    pub(super) fn is_active(&self) -> bool {
        !self.terminating && !self.phase.is_final()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready_since.is_some() && !self.terminating
    }
}

/// `status.phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    pub(super) fn is_final(self) -> bool {
        self >= Self::Succeeded
    }
}

/// The controller in the owner references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
}

/// What somebody deployed: the topmost controller, or the pod itself.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) name: Box<str>,
    pub(super) since: DateTime<Utc>,
}

/// A container that runs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) name: Box<str>,
    pub(super) since: DateTime<Utc>,
    pub(super) cpu_limit: Option<f64>,
}

/// Thousandths of cores, bytes, and pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) cpu: i64,
    pub(super) memory: i64,
    pub(super) pods: i64,
}

impl Room {
    /// What a pod specification asks for.
    pub(super) fn of(spec: &Value) -> Self {
        Self {
            cpu: milli(&total(spec, "requests", "cpu")),
            memory: units(&total(spec, "requests", "memory")),
            pods: 1,
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_add(other.cpu),
            memory: self.memory.saturating_add(other.memory),
            pods: self.pods.saturating_add(other.pods),
        }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(other.cpu),
            memory: self.memory.saturating_sub(other.memory),
            pods: self.pods.saturating_sub(other.pods),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.max(other.cpu),
            memory: self.memory.max(other.memory),
            pods: self.pods.max(other.pods),
        }
    }
}

/// A node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) object: Arc<Object>,
    pub(super) allocatable: Room,
    pub(super) schedulable: bool,
    /// Whether the simulated kubelet runs its pods.
    pub(super) simulated: bool,
}

/// A node with this annotation has a simulated kubelet.
pub(super) const SIMULATED: &str = "sandbox.outrigger.dev/simulated";

/// See the module. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Index(Arc<Mutex<Rows>>);

/// What is known now.
#[derive(Debug)]
pub(super) struct Rows {
    store: Arc<Store>,
    seen: u64,
    pod_feed: Feed,
    node_feed: Feed,
    pub(super) pods: BTreeMap<Arc<Key>, Arc<Pod>>,
    pub(super) nodes: BTreeMap<Box<str>, Arc<Node>>,
    taken: HashMap<Box<str>, Room>,
    ready: HashMap<(Arc<str>, Box<str>), usize>,
    workloads: HashMap<String, Arc<Workload>>,
    loads: HashMap<String, Result<Arc<PodLoad>, String>>,
    /// What the world has not yet been told; nothing is kept when nobody asks.
    news: Option<Vec<Event>>,
}

impl Index {
    /// Knows everything in the store. With `listening`, changes are kept for [`Rows::news`].
    pub(super) fn new(store: &Arc<Store>, listening: bool) -> Self {
        Self(Arc::new(Mutex::new(Rows {
            store: store.clone(),
            seen: 0,
            pod_feed: Feed::new("pods"),
            node_feed: Feed::new("nodes"),
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            taken: HashMap::new(),
            ready: HashMap::new(),
            workloads: HashMap::new(),
            loads: HashMap::new(),
            news: listening.then(Vec::new),
        })))
    }

    /// The rows, up to date.
    pub(super) fn read(&self) -> MutexGuard<'_, Rows> {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.refresh();
        rows
    }

    /// One pod.
    pub(super) fn pod(&self, key: &Key) -> Option<Arc<Pod>> {
        self.read().pods.get(key).cloned()
    }

    /// The pods of a controller, by name.
    pub(super) fn pods_of(&self, uid: &str) -> Vec<Arc<Pod>> {
        let rows = self.read();
        let places = rows.store.dependents(uid);
        let keys = places
            .iter()
            .filter(|(resource, _)| &**resource == "pods")
            .map(|(_, key)| key);
        keys.filter_map(|key| rows.pods.get(key))
            .filter(|pod| pod.owner.as_ref().is_some_and(|owner| owner.uid == uid))
            .cloned()
            .collect()
    }
}

impl Rows {
    /// What happened to pods and nodes since this was asked last.
    pub(super) fn news(&mut self) -> Vec<Event> {
        self.news.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// What the pods on a node take together.
    pub(super) fn taken(&self, node: &str) -> Room {
        self.taken.get(node).copied().unwrap_or_default()
    }

    /// How many pods share the traffic of a pod's workload.
    pub(super) fn replicas(&self, pod: &Pod) -> usize {
        let key = (pod.object.key.namespace.clone(), pod.workload.name.clone());
        self.ready.get(&key).copied().unwrap_or_default()
    }

    /// What is wrong with the load that a pod tells.
    pub(super) fn load_problem(&self, annotation: &str) -> Option<&str> {
        self.loads.get(annotation)?.as_ref().err().map(String::as_str)
    }

    fn refresh(&mut self) {
        let store = self.store.clone();
        // Read before the feeds, so that what comes meanwhile is seen the next time.
        let revision = store.revision();
        if revision == self.seen {
            return;
        }
        self.seen = revision;
        let nodes = self.node_feed.drain(&store);
        if nodes.complete {
            self.nodes.clear();
        }
        for event in nodes.events {
            let name: Box<str> = (&*event.object.key.name).into();
            match event.change {
                Change::Deleted => self.nodes.remove(&name),
                Change::Added | Change::Modified => {
                    self.nodes.insert(name, Arc::new(node(event.object.clone())))
                }
            };
            self.tell(event);
        }
        let pods = self.pod_feed.drain(&store);
        let known = if pods.complete {
            self.taken.clear();
            self.ready.clear();
            std::mem::take(&mut self.pods)
        } else {
            BTreeMap::new()
        };
        for event in pods.events {
            if let Some(old) = self.pods.remove(&event.object.key) {
                self.count(&old, false);
            }
            if event.change != Change::Deleted {
                let pod = Arc::new(self.pod(event.object.clone()));
                self.count(&pod, true);
                self.pods.insert(event.object.key.clone(), pod);
            }
            self.tell(event);
        }
        for (key, gone) in known {
            if !self.pods.contains_key(&key) {
                self.tell(Event {
                    change: Change::Deleted,
                    object: gone.object.clone(),
                    before: None,
                });
            }
        }
    }

    fn tell(&mut self, event: Event) {
        if let Some(news) = &mut self.news {
            news.push(event);
        }
    }

    fn count(&mut self, pod: &Pod, there: bool) {
        if !pod.node.is_empty() && !pod.phase.is_final() {
            let taken = self.taken.entry(pod.node.clone()).or_default();
            *taken = if there {
                taken.plus(pod.needs)
            } else {
                taken.minus(pod.needs)
            };
        }
        if pod.is_ready() {
            let key = (pod.object.key.namespace.clone(), pod.workload.name.clone());
            let ready = self.ready.entry(key).or_default();
            *ready = if there {
                *ready + 1
            } else {
                ready.saturating_sub(1)
            };
        }
    }

    fn pod(&mut self, object: Arc<Object>) -> Pod {
        let value = object.value();
        let (spec, status) = (&value["spec"], &value["status"]);
        let created = time(&value, "/metadata/creationTimestamp").unwrap_or_default();
        let owner = controller(&value);
        let condition = |name: &str, status: &str| {
            items(&value, "/status/conditions").find(|one| one["type"] == name && one["status"] == status)
        };
        let pending = condition("PodResizePending", "True");
        let refused = pending.is_some_and(|one| one["reason"] == "Infeasible");
        let wants = Room::of(spec);
        let has = with_allocated(spec, status).map_or(wants, |granted| Room::of(&granted));
        let node: Box<str> = text(spec, "/nodeName").into();
        let running = ["/initContainerStatuses", "/containerStatuses"]
            .iter()
            .flat_map(|list| items(status, list))
            .filter_map(running);
        Pod {
            phase: match text(status, "/phase") {
                "Running" => Phase::Running,
                "Succeeded" => Phase::Succeeded,
                "Failed" => Phase::Failed,
                _ => Phase::Pending,
            },
            ready_since: condition("Ready", "True")
                .map(|one| time(one, "/lastTransitionTime").unwrap_or(created)),
            terminating: value["metadata"].get("deletionTimestamp").is_some(),
            workload: self.workload(owner.as_ref(), &object, created),
            load: self.load(value["metadata"]["annotations"][ANNOTATION].as_str()),
            running: running.collect(),
            needs: if refused { has } else { has.max(wants) },
            unscheduled: node.is_empty()
                && text(spec, "/schedulerName") == "default-scheduler"
                && items(spec, "/schedulingGates").next().is_none(),
            created,
            node,
            owner,
            object,
        }
    }

    fn load(&mut self, annotation: Option<&str>) -> Arc<PodLoad> {
        let Some(text) = annotation else {
            return Arc::default();
        };
        if let Some(known) = self.loads.get(text) {
            return known.clone().unwrap_or_default();
        }
        let load = PodLoad::parse(text).map(Arc::new);
        if let Err(problem) = &load {
            tracing::warn!(problem, "the annotation {ANNOTATION} is not understood");
        }
        self.loads.insert(text.to_owned(), load.clone());
        load.unwrap_or_default()
    }

    fn workload(&mut self, owner: Option<&Owner>, pod: &Object, created: DateTime<Utc>) -> Arc<Workload> {
        let Some(owner) = owner else {
            let name = (&*pod.key.name).into();
            return Arc::new(Workload { name, since: created });
        };
        if let Some(known) = self.workloads.get(&owner.uid) {
            return known.clone();
        }
        let (mut top, mut since) = (owner.clone(), created);
        while let Some(resource) = resource_of(&top.kind) {
            let key = Key::new(&pod.key.namespace, &top.name);
            let found = self.store.get(resource, &key).filter(|one| *one.uid == *top.uid);
            let Some(parent) = found.map(|parent| parent.value()) else {
                break;
            };
            since = time(&parent, "/metadata/creationTimestamp").unwrap_or(created);
            match controller(&parent) {
                Some(above) => top = above,
                None => break,
            }
        }
        let workload = Arc::new(Workload {
            name: top.name.into(),
            since,
        });
        self.workloads.insert(owner.uid.clone(), workload.clone());
        workload
    }
}

/// Follows one resource of the store, beginning with everything there is.
#[derive(Debug)]
pub(super) struct Feed {
    resource: &'static str,
    watch: Option<Watch>,
}

impl Feed {
    pub(super) fn new(resource: &'static str) -> Self {
        Self {
            resource,
            watch: None,
        }
    }

    /// What has happened since the last call.
    pub(super) fn drain(&mut self, store: &Arc<Store>) -> Drained {
        if let Some(Ok((events, _))) = self.watch.as_mut().map(Watch::catch_up) {
            return Drained {
                events,
                complete: false,
            };
        }
        let page = store
            .list(self.resource, &Range::default(), &|_| true)
            .unwrap_or_default();
        self.watch = Some(store.watch(self.resource, page.revision));
        let added = |object| Event {
            change: Change::Added,
            object,
            before: None,
        };
        Drained {
            events: page.objects.into_iter().map(added).collect(),
            complete: true,
        }
    }
}

/// See [`Feed::drain`].
pub(super) struct Drained {
    pub(super) events: Vec<Event>,
    /// These are all objects there are, because it is the first time or too much has happened since the last.
    pub(super) complete: bool,
}

/// The controller among the owners of an object.
pub(super) fn controller(value: &Value) -> Option<Owner> {
    let reference = items(value, "/metadata/ownerReferences").find(|one| one["controller"] == true)?;
    Some(Owner {
        kind: text(reference, "/kind").to_owned(),
        name: text(reference, "/name").to_owned(),
        uid: text(reference, "/uid").to_owned(),
    })
}

/// Where the store keeps a controller's kind.
pub(super) fn resource_of(kind: &str) -> Option<&'static str> {
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
pub(super) fn time(value: &Value, pointer: &str) -> Option<DateTime<Utc>> {
    let time = DateTime::parse_from_rfc3339(text(value, pointer)).ok()?;
    Some(time.with_timezone(&Utc))
}

fn node(object: Arc<Object>) -> Node {
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

fn running(status: &Value) -> Option<Running> {
    let since = time(status, "/state/running/startedAt")?;
    let limit = quantity::at(&status["resources"]["limits"]["cpu"]);
    Some(Running {
        name: text(status, "/name").into(),
        since,
        cpu_limit: limit.map(|limit| limit.approximate_f64()),
    })
}

/// The specification with the requests that the kubelet has granted, where those are others.
fn with_allocated(spec: &Value, status: &Value) -> Option<Value> {
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
