//! What the world knows of pods and nodes: small rows kept up to date from the store's history, asked by the controllers,
//! the scheduler, the kubelet and the metrics. Reading it costs as much as has changed since the last time.

mod feed;
mod row;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use chrono::{DateTime, Utc};

use self::row::{node, running, with_allocated};
pub(super) use self::{
    feed::Feed,
    row::{Node, Owner, Phase, Pod, Room, Running, SIMULATED, Workload, controller, resource_of, time},
};
use super::load::{ANNOTATION, PodLoad};
use crate::sandbox::{
    store::{Change, Event, Key, Object, Store},
    tree::{items, text},
};

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
    ready: HashMap<(Arc<str>, Arc<str>), Arc<AtomicUsize>>,
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
        if pod.is_ready() && there {
            pod.crew.fetch_add(1, Ordering::Relaxed);
        } else if pod.is_ready() {
            pod.crew.fetch_sub(1, Ordering::Relaxed);
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
        let workload = self.workload(owner.as_ref(), &object, created);
        let team = (object.key.namespace.clone(), workload.name.clone());
        Pod {
            crew: self.ready.entry(team).or_default().clone(),
            phase: match text(status, "/phase") {
                "Running" => Phase::Running,
                "Succeeded" => Phase::Succeeded,
                "Failed" => Phase::Failed,
                _ => Phase::Pending,
            },
            ready_since: condition("Ready", "True")
                .map(|one| time(one, "/lastTransitionTime").unwrap_or(created)),
            terminating: value["metadata"].get("deletionTimestamp").is_some(),
            workload,
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
