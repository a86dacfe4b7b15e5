//! An API server without a network: it answers the recommender's client in this process, on threads of its own, from a
//! cluster that is made up while it is sent.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use anyhow::{Context as _, Result};
use axum::body::Body;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use common::clock::Clock;
use futures::{FutureExt as _, future::BoxFuture, stream};
use http::{Method, Request, Response, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::{runtime::Handle, sync::mpsc};
use tower::Service;

use super::cluster::{Cluster, Kind, separated};

/// How much is sent at once.
const CHUNK: usize = 64 * 1024;
/// What a checkpoint is a page of.
const PAGE: usize = 500;

/// The server. Clones are the same one.
#[derive(Clone)]
pub(super) struct Server(Arc<State>);

struct State {
    cluster: RwLock<Cluster>,
    clock: Clock,
    runtime: Handle,
    /// Watches that stay open, by path.
    watches: Mutex<BTreeMap<String, Sender>>,
    /// All pods have been sent.
    listed: AtomicBool,
    turns: AtomicU64,
    statuses: AtomicU64,
    checkpoints: AtomicU64,
    unknown: Mutex<Option<String>>,
}

type Sender = mpsc::Sender<Result<Bytes, Infallible>>;

/// How much was written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Writes {
    pub(super) statuses: u64,
    pub(super) checkpoints: u64,
}

impl Server {
    pub(super) fn new(cluster: Cluster, clock: Clock, runtime: Handle) -> Self {
        Self(Arc::new(State {
            cluster: RwLock::new(cluster),
            clock,
            runtime,
            watches: Mutex::default(),
            listed: AtomicBool::new(false),
            turns: AtomicU64::new(0),
            statuses: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            unknown: Mutex::default(),
        }))
    }

    pub(super) fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    /// How often the usage of all pods was read.
    pub(super) fn turns(&self) -> u64 {
        self.0.turns.load(Ordering::Relaxed)
    }

    /// Whether all pods have been sent.
    pub(super) fn has_listed(&self) -> bool {
        self.0.listed.load(Ordering::Relaxed)
    }

    pub(super) fn writes(&self) -> Writes {
        Writes {
            statuses: self.0.statuses.load(Ordering::Relaxed),
            checkpoints: self.0.checkpoints.load(Ordering::Relaxed),
        }
    }

    /// A request that nobody here understands.
    pub(super) fn unknown(&self) -> Option<String> {
        lock(&self.0.unknown).clone()
    }

    /// Replaces this many pods, as rollouts do.
    pub(super) async fn roll(&self, count: usize) -> Result<()> {
        let turn = usize::try_from(self.turns())?;
        let events: Vec<String> = {
            let mut cluster = self.0.cluster.write().unwrap_or_else(PoisonError::into_inner);
            let pods = cluster.size.pods;
            (0..count)
                .flat_map(|n| {
                    let pod = (turn * count + n) * 7919 % pods;
                    let gone = event("DELETED", |text| cluster.pod(pod, text));
                    cluster.replace(pod);
                    [gone, event("ADDED", |text| cluster.pod(pod, text))]
                })
                .collect()
        };
        let sender = lock(&self.0.watches).get("/api/v1/pods").cloned();
        let sender = sender.context("nobody watches pods")?;
        for event in events {
            sender.send(Ok(Bytes::from(event))).await?;
        }
        Ok(())
    }
}

impl Service<Request<kube::client::Body>> for Server {
    type Response = Response<Body>;
    type Error = tower::BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, tower::BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), tower::BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let server = self.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let runtime = server.0.runtime.clone();
            let query = parts.uri.query().unwrap_or_default().to_owned();
            let path = parts.uri.path().to_owned();
            let answered = runtime.spawn(async move { server.answer(&parts.method, &path, &query, &body) });
            Ok(answered.await?)
        }
        .boxed()
    }
}

impl Server {
    pub(super) fn answer(&self, method: &Method, path: &str, query: &str, body: &Bytes) -> Response<Body> {
        if *method == Method::PATCH {
            return self.patch(path, body);
        }
        if query.contains("watch=true") {
            return Response::new(self.watch(path, query));
        }
        match path {
            "/version" => json(r#"{"major":"1","minor":"36","gitVersion":"v1.36.0","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#.to_owned()),
            "/apis/metrics.k8s.io/v1beta1/pods" => Response::new(self.metrics()),
            "/apis/autoscaling.k8s.io/v1/verticalpodautoscalercheckpoints" => json(self.checkpoint_page(query)),
            _ => {
                lock(&self.0.unknown).get_or_insert_with(|| format!("{method} {path}?{query}"));
                let mut answer = json(r#"{"kind":"Status","status":"Failure","reason":"NotFound","code":404}"#.to_owned());
                *answer.status_mut() = StatusCode::NOT_FOUND;
                answer
            }
        }
    }

    /// Everything there is, one by one, and then what happens.
    fn watch(&self, path: &str, query: &str) -> Body {
        let (sender, body) = channel();
        lock(&self.0.watches).insert(path.to_owned(), sender.clone());
        if !query.contains("sendInitialEvents=true") {
            return body;
        }
        let state = Arc::clone(&self.0);
        let (path, runtime) = (path.to_owned(), self.0.runtime.clone());
        runtime.spawn_blocking(move || {
            let mut chunks = Chunks::new(sender);
            let cluster = state.cluster.read().unwrap_or_else(PoisonError::into_inner);
            let workloads = 0..cluster.size.vpas;
            let of = |kind: Kind| workloads.clone().filter(move |workload| Cluster::kind(*workload) == kind);
            let mut controllers = |kind: Kind| {
                for workload in of(kind) {
                    chunks.push(&event("ADDED", |text| Cluster::controller(workload, text)));
                }
            };
            match path.rsplit('/').next().unwrap_or_default() {
                "deployments" => controllers(Kind::Deployment),
                "statefulsets" => controllers(Kind::StatefulSet),
                "daemonsets" => controllers(Kind::DaemonSet),
                "jobs" => controllers(Kind::Job),
                "verticalpodautoscalers" => {
                    for workload in workloads {
                        chunks.push(&event("ADDED", |text| Cluster::vpa(workload, None, text)));
                    }
                }
                "pods" => {
                    for pod in 0..cluster.size.pods {
                        chunks.push(&event("ADDED", |text| cluster.pod(pod, text)));
                    }
                }
                _ => {}
            }
            chunks.push("{\"type\":\"BOOKMARK\",\"object\":{\"apiVersion\":\"v1\",\"kind\":\"Any\",\"metadata\":{\"resourceVersion\":\"1000000\",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}},\"spec\":{}}}\n");
            chunks.flush();
            if path == "/api/v1/pods" {
                state.listed.store(true, Ordering::Relaxed);
            }
        });
        body
    }

    fn metrics(&self) -> Body {
        let turn = self.0.turns.fetch_add(1, Ordering::Relaxed) + 1;
        let now = self.0.clock.now();
        let (sender, body) = channel();
        let state = Arc::clone(&self.0);
        self.0.runtime.spawn_blocking(move || {
            let mut chunks = Chunks::new(sender);
            let cluster = state.cluster.read().unwrap_or_else(PoisonError::into_inner);
            chunks.push(
                r#"{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":["#,
            );
            let mut text = String::new();
            for pod in 0..cluster.size.pods {
                text.clear();
                if pod > 0 {
                    text.push(',');
                }
                cluster.pod_metrics(pod, now, turn, &mut text);
                chunks.push(&text);
            }
            chunks.push("]}");
            chunks.flush();
        });
        body
    }

    fn checkpoint_page(&self, query: &str) -> String {
        let from = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("continue=")?.parse::<usize>().ok())
            .unwrap_or(0);
        let cluster = self.0.cluster.read().unwrap_or_else(PoisonError::into_inner);
        let now: DateTime<Utc> = self.0.clock.now();
        let containers = cluster.size.containers;
        let all = cluster.size.vpas * containers;
        let to = (from + PAGE).min(all);
        let next = if to < all { to.to_string() } else { String::new() };
        let mut text = format!(
            r#"{{"kind":"VerticalPodAutoscalerCheckpointList","apiVersion":"autoscaling.k8s.io/v1","metadata":{{"resourceVersion":"1","continue":"{next}"}},"items":["#
        );
        separated(&mut text, from..to, |text, n| {
            cluster.checkpoint(n / containers, n % containers, now, text);
        });
        text.push_str("]}");
        text
    }

    /// Takes a write, and answers with the object as it is now. Who watches VPAs hears of it.
    fn patch(&self, path: &str, body: &Bytes) -> Response<Body> {
        let operations: Vec<Operation<'_>> = serde_json::from_slice(body).unwrap_or_default();
        let status = operations.iter().find(|operation| operation.path == "/status");
        let status = status
            .and_then(|operation| operation.value)
            .map_or("{}", RawValue::get);
        let mut segments = path.trim_end_matches("/status").rsplit('/');
        let name = segments.next().unwrap_or_default();
        let kind = segments.next().unwrap_or_default();
        if kind == "verticalpodautoscalers" {
            self.0.statuses.fetch_add(1, Ordering::Relaxed);
            let workload = name
                .rsplit('-')
                .next()
                .and_then(|number| number.parse().ok())
                .unwrap_or(0);
            let mut object = String::new();
            Cluster::vpa(workload, Some(status), &mut object);
            let echo = event("MODIFIED", |text| text.push_str(&object));
            let watch = "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers";
            if let Some(sender) = lock(&self.0.watches).get(watch).cloned() {
                self.0
                    .runtime
                    .spawn(async move { drop(sender.send(Ok(Bytes::from(echo))).await) });
            }
            return json(object);
        }
        self.0.checkpoints.fetch_add(1, Ordering::Relaxed);
        json(format!(
            r#"{{"apiVersion":"autoscaling.k8s.io/v1","kind":"VerticalPodAutoscalerCheckpoint","metadata":{{"name":"{name}","resourceVersion":"2"}},"spec":{{"vpaObjectName":"","containerName":""}},"status":{status}}}"#
        ))
    }
}

#[derive(Deserialize)]
struct Operation<'b> {
    path: String,
    #[serde(borrow)]
    value: Option<&'b RawValue>,
}

fn event(kind: &str, object: impl FnOnce(&mut String)) -> String {
    let mut text = format!(r#"{{"type":"{kind}","object":"#);
    object(&mut text);
    text.push_str("}\n");
    text
}

fn json(text: String) -> Response<Body> {
    Response::new(Body::from(text))
}

fn channel() -> (Sender, Body) {
    let (sender, receiver) = mpsc::channel(64);
    let chunks = stream::unfold(receiver, |mut receiver| async {
        let chunk = receiver.recv().await?;
        Some((chunk, receiver))
    });
    (sender, Body::from_stream(chunks))
}

/// Sends text in pieces of some size, no faster than it is read.
struct Chunks {
    sender: Sender,
    text: String,
}

impl Chunks {
    fn new(sender: Sender) -> Self {
        Self {
            sender,
            text: String::new(),
        }
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        if self.text.len() >= CHUNK {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let chunk = Bytes::from(std::mem::take(&mut self.text));
        // Whoever has gone wants no more.
        let _sent = self.sender.blocking_send(Ok(chunk));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
