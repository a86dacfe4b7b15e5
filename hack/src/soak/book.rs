//! What the daemons write, as it happens: counted, and each deed on a pod compared with what the pod and its group have.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use chrono::{DateTime, TimeDelta, Utc};
use common::{
    clock::Clock,
    pod::{Phase, Pod},
};
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use serde_json::Value;
use tower::{Layer, Service};

use super::town;
use crate::sandbox::{Key, Store};

/// More resizes of one pod in a day are a loop.
const RESIZES_A_DAY: u32 = 60;
/// More evictions of one workload in a day, for each of its replicas, are a loop.
const EVICTIONS_A_DAY: u32 = 10;
/// The flags' defaults of how much of a group may be disrupted, as `spec/vpa.md` 3.3 has them.
const MIN_REPLICAS: usize = 2;

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Daemon {
    Recommender,
    Updater,
    Admission,
}

impl Daemon {
    pub(super) const ALL: [Self; 3] = [Self::Recommender, Self::Updater, Self::Admission];
}

impl fmt::Display for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Recommender => "recommender",
            Self::Updater => "updater",
            Self::Admission => "admission",
        })
    }
}

/// Everything that was seen. Cloning gives another handle to the same.
#[derive(Clone)]
pub(super) struct Book {
    store: Arc<Store>,
    clock: Clock,
    pages: Arc<Mutex<Pages>>,
}

#[derive(Default)]
struct Pages {
    sums: Sums,
    /// What must not be.
    broken: Vec<String>,
    /// By uid, how often a pod was resized since when.
    resized: HashMap<String, Tally>,
    evicted: HashMap<String, DateTime<Utc>>,
    /// By workload.
    evictions: HashMap<String, Tally>,
    /// What was refused, and how.
    refused: BTreeMap<(&'static str, u16), u64>,
    quiet: Option<Quiet>,
}

/// A stretch in which nothing should be written.
#[derive(Default)]
pub(super) struct Quiet {
    /// What was written all the same, leases aside: how often, and what and when last.
    pub(super) writes: BTreeMap<Written, (u64, String)>,
    /// The workloads of which a pod was acted on.
    pub(super) acted_on: BTreeSet<String>,
}

/// What was written, and by whom.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Written {
    pub(super) daemon: Daemon,
    pub(super) resource: String,
    /// The workload that it is about; empty for new events.
    pub(super) workload: String,
}

/// How much was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) resizes: u64,
    pub(super) evictions: u64,
    /// Of either, by the API server or a fault.
    pub(super) refusals: u64,
    /// Writes that are neither of leases nor events.
    pub(super) writes: u64,
}

#[derive(Clone, Copy)]
struct Tally {
    count: u32,
    since: DateTime<Utc>,
}

impl Tally {
    fn add(tallies: &mut HashMap<String, Self>, key: &str, now: DateTime<Utc>) -> u32 {
        let tally = tallies
            .entry(key.to_owned())
            .or_insert(Self { count: 0, since: now });
        if now - tally.since >= TimeDelta::days(1) {
            *tally = Self { count: 0, since: now };
        }
        tally.count += 1;
        tally.count
    }
}

impl Book {
    pub(super) fn new(store: Arc<Store>, clock: Clock) -> Self {
        Self {
            store,
            clock,
            pages: Arc::default(),
        }
    }

    /// What daemons are to talk through.
    pub(super) fn tap(&self) -> Tap {
        Tap {
            daemon: Daemon::Recommender,
            book: self.clone(),
        }
    }

    pub(super) fn sums(&self) -> Sums {
        self.lock().sums
    }

    /// What was refused, and with which HTTP code; 0 without an answer.
    pub(super) fn refused(&self) -> BTreeMap<(&'static str, u16), u64> {
        self.lock().refused.clone()
    }

    /// What was broken since the last time.
    pub(super) fn broken(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().broken)
    }

    /// From now on nothing should be written.
    pub(super) fn begin_quiet(&self) {
        self.lock().quiet = Some(Quiet::default());
    }

    /// What was written since it was to be quiet.
    pub(super) fn end_quiet(&self) -> Quiet {
        self.lock().quiet.take().unwrap_or_default()
    }

    /// Forgets pods that nobody will hear of again.
    pub(super) fn forget_old(&self) {
        let now = self.clock.now();
        let is_young = |at: DateTime<Utc>| now - at < TimeDelta::days(1);
        let mut pages = self.lock();
        pages.evicted.retain(|_, at| is_young(*at));
        pages.resized.retain(|_, tally| is_young(tally.since));
        pages.evictions.retain(|_, tally| is_young(tally.since));
    }

    fn lock(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pod that a write is about, as it is now.
    fn pod(&self, deed: &Deed) -> Option<Value> {
        let key = Key::new(&deed.namespace, &deed.pod);
        Some(self.store.get("pods", &key)?.value())
    }

    /// How many pods the whole workload wants, of which a group in the middle of a rollout has only a part.
    fn replicas(&self, deed: &Deed) -> u32 {
        let key = Key::new(&deed.namespace, workload(&deed.pod));
        let mut controllers = ["deployments.apps", "statefulsets.apps"].into_iter();
        let found = controllers.find_map(|resource| self.store.get(resource, &key));
        let wanted = found.and_then(|found| found.value()["spec"]["replicas"].as_u64());
        wanted
            .and_then(|wanted| u32::try_from(wanted).ok())
            .unwrap_or(u32::MAX)
            .max(1)
    }

    fn wrote(&self, daemon: Daemon, path: &str) {
        let resource = resource(path);
        if resource == "leases" {
            return;
        }
        let mut pages = self.lock();
        if resource != "events" {
            pages.sums.writes += 1;
        }
        if let Some(quiet) = &mut pages.quiet {
            let written = Written {
                daemon,
                resource: resource.to_owned(),
                workload: workload(path).to_owned(),
            };
            let (count, last) = quiet.writes.entry(written).or_default();
            *count += 1;
            *last = format!("{path} at {}", self.clock.now().format("%H:%M:%S"));
        }
    }

    fn did(&self, deed: &Deed, before: Option<&Value>, code: u16) {
        if !(200..300).contains(&code) {
            let mut pages = self.lock();
            pages.sums.refusals += 1;
            *pages.refused.entry((deed.what.name(), code)).or_default() += 1;
            return;
        }
        if let Some(quiet) = &mut self.lock().quiet {
            quiet.acted_on.insert(workload(&deed.pod).to_owned());
        }
        match deed.what {
            What::Resize => self.resized(deed, before),
            What::Eviction => self.evicted(deed, before),
            What::Deletion => {
                let pod = &deed.pod;
                self.lock()
                    .broken
                    .push(format!("pod {pod} was deleted and not evicted"));
            }
        }
    }

    fn resized(&self, deed: &Deed, before: Option<&Value>) {
        let after = self.pod(deed);
        let now = self.clock.now();
        let mut pages = self.lock();
        pages.sums.resizes += 1;
        let (Some(before), Some(after)) = (before, &after) else {
            return;
        };
        if resources(before) == resources(after) {
            let pod = &deed.pod;
            pages.broken.push(format!("pod {pod} was resized to what it has"));
        }
        let count = Tally::add(&mut pages.resized, uid(before), now);
        if count == RESIZES_A_DAY {
            let pod = &deed.pod;
            pages
                .broken
                .push(format!("pod {pod} was resized {count} times in a day"));
        }
    }

    fn evicted(&self, deed: &Deed, before: Option<&Value>) {
        let now = self.clock.now();
        let Some(before) = before else {
            self.lock().sums.evictions += 1;
            return;
        };
        let group = Group::of(before, &self.store);
        let replicas = self.replicas(deed);
        let mut pages = self.lock();
        pages.sums.evictions += 1;
        let (pod, owner) = (&deed.pod, &group.name);
        if pages.evicted.insert(uid(before).to_owned(), now).is_some() {
            pages.broken.push(format!("pod {pod} was evicted twice"));
        }
        if before["status"]["phase"] == "Running" && group.live < group.floor {
            pages.broken.push(format!(
                "pod {pod} was evicted, which left {} of {} of {owner}: {} is the least",
                group.live, group.wanted, group.floor
            ));
        }
        if group.live + 1 < MIN_REPLICAS {
            pages
                .broken
                .push(format!("pod {pod} was evicted, the only one of {owner}"));
        }
        let key = format!("{}/{}", deed.namespace, workload(pod));
        let count = Tally::add(&mut pages.evictions, &key, now);
        if count == EVICTIONS_A_DAY.saturating_mul(replicas) {
            pages
                .broken
                .push(format!("{count} pods of {key} were evicted in a day: a loop"));
        }
    }
}

/// Those that one controller owns, after an eviction.
struct Group {
    name: String,
    wanted: usize,
    /// Running, and not about to go.
    live: usize,
    /// What the disruption budget of the updater leaves at least.
    floor: usize,
}

impl Group {
    fn of(pod: &Value, store: &Store) -> Self {
        let owner = &pod["metadata"]["ownerReferences"][0];
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let name = owner["name"].as_str().unwrap_or_default().to_owned();
        let resource = match owner["kind"].as_str() {
            Some("StatefulSet") => "statefulsets.apps",
            _ => "replicasets.apps",
        };
        let found = store.get(resource, &Key::new(namespace, &name));
        let wanted = found.and_then(|found| found.value()["spec"]["replicas"].as_u64());
        let wanted = wanted
            .and_then(|wanted| usize::try_from(wanted).ok())
            .unwrap_or(0);
        let owner_uid = owner["uid"].as_str().unwrap_or_default();
        let live = store
            .all("pods", Some(namespace))
            .into_iter()
            .filter(|pod| pod.owners.iter().any(|uid| **uid == *owner_uid))
            .filter_map(|pod| serde_json::from_slice::<Pod>(&pod.bytes).ok())
            .filter(|pod| pod.status.phase == Phase::Running && pod.metadata.deletion_timestamp.is_none())
            .count();
        Self {
            name,
            wanted,
            live,
            floor: wanted - (wanted / 2).max(1).min(wanted),
        }
    }
}

fn uid(pod: &Value) -> &str {
    pod["metadata"]["uid"].as_str().unwrap_or_default()
}

/// What the containers of a pod ask for.
fn resources(pod: &Value) -> Vec<&Value> {
    let lists = ["initContainers", "containers"];
    let lists = lists.iter().filter_map(|list| pod["spec"][list].as_array());
    lists.flatten().map(|container| &container["resources"]).collect()
}

/// What is done to a pod.
struct Deed {
    what: What,
    namespace: String,
    pod: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Resize,
    Eviction,
    Deletion,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            Self::Resize => "resizes",
            Self::Eviction => "evictions",
            Self::Deletion => "deletions",
        }
    }
}

impl Deed {
    fn of(method: &Method, path: &str) -> Option<Self> {
        let rest = path.strip_prefix("/api/v1/namespaces/")?;
        let parts: Vec<&str> = rest.split('/').collect();
        let (what, namespace, pod) = match (method.as_str(), parts.as_slice()) {
            ("PATCH" | "PUT", [namespace, "pods", pod, "resize"]) => (What::Resize, namespace, pod),
            ("POST", [namespace, "pods", pod, "eviction"]) => (What::Eviction, namespace, pod),
            ("DELETE", [namespace, "pods", pod]) => (What::Deletion, namespace, pod),
            _ => return None,
        };
        Some(Self {
            what,
            namespace: (*namespace).to_owned(),
            pod: (*pod).to_owned(),
        })
    }
}

/// The resource that a path is of, without its group.
fn resource(path: &str) -> &str {
    let mut parts = path.trim_start_matches('/').split('/');
    // `api/v1` or `apis/GROUP/VERSION`.
    let skipped = if parts.next() == Some("api") { 1 } else { 2 };
    let mut parts = parts.skip(skipped);
    match (parts.next(), parts.next(), parts.next()) {
        (Some("namespaces"), Some(_), Some(resource)) => resource,
        (first, _, _) => first.unwrap_or_default(),
    }
}

/// The workload whose name what a path ends in begins with; nothing for paths of new objects.
fn workload(path: &str) -> &str {
    let mut names = path.split('/').filter(|part| part.starts_with(town::HOUSE));
    let Some(name) = names.next() else { return "" };
    let number = name.get(town::HOUSE.len()..).unwrap_or_default();
    let digits = number.bytes().take_while(u8::is_ascii_digit).count();
    name.get(..town::HOUSE.len() + digits).unwrap_or_default()
}

/// A layer of a daemon's client that writes into the book.
#[derive(Clone)]
pub(super) struct Tap {
    daemon: Daemon,
    book: Book,
}

impl Tap {
    /// The same for a daemon.
    pub(super) fn of(&self, daemon: Daemon) -> Self {
        Self {
            daemon,
            book: self.book.clone(),
        }
    }
}

impl<S> Layer<S> for Tap {
    type Service = Tapped<S>;

    fn layer(&self, inner: S) -> Tapped<S> {
        let tap = self.clone();
        Tapped { inner, tap }
    }
}

/// See [`Tap`].
#[derive(Clone)]
pub(super) struct Tapped<S> {
    inner: S,
    tap: Tap,
}

impl<S, A, B> Service<Request<A>> for Tapped<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        if request.method() == Method::GET {
            return Box::pin(self.inner.call(request));
        }
        let Tap { daemon, book } = self.tap.clone();
        let path = request.uri().path().to_owned();
        let deed = Deed::of(request.method(), &path);
        let before = deed.as_ref().and_then(|deed| book.pod(deed));
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            book.wrote(daemon, &path);
            if let Some(deed) = deed {
                let code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
                book.did(&deed, before.as_ref(), code);
            }
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_path_is_about() {
        for (path, expected) in [
            ("/api/v1/namespaces/a/pods/b/eviction", "pods"),
            ("/api/v1/nodes/n", "nodes"),
            ("/apis/coordination.k8s.io/v1/namespaces/a/leases/b", "leases"),
            (
                "/apis/autoscaling.k8s.io/v1/namespaces/a/verticalpodautoscalers/b/status",
                "verticalpodautoscalers",
            ),
        ] {
            assert_eq!(resource(path), expected, "{path}");
        }
        for (path, expected) in [
            ("/api/v1/namespaces/a/pods/house-12-5f7-x/eviction", "house-12"),
            (
                "/apis/autoscaling.k8s.io/v1/namespaces/a/verticalpodautoscalercheckpoints/house-3-app",
                "house-3",
            ),
            ("/api/v1/namespaces/a/events", ""),
            ("house-7-0", "house-7"),
        ] {
            assert_eq!(workload(path), expected, "{path}");
        }
        for (method, path, expected) in [
            (
                Method::POST,
                "/api/v1/namespaces/a/pods/b/eviction",
                Some(What::Eviction),
            ),
            (
                Method::PATCH,
                "/api/v1/namespaces/a/pods/b/resize",
                Some(What::Resize),
            ),
            (
                Method::DELETE,
                "/api/v1/namespaces/a/pods/b",
                Some(What::Deletion),
            ),
            (Method::PATCH, "/api/v1/namespaces/a/pods/b", None),
            (Method::POST, "/api/v1/namespaces/a/events", None),
        ] {
            let deed = Deed::of(&method, path);
            assert!(deed.map(|deed| deed.what) == expected, "{method} {path}");
        }
    }
}
