//! The driver on a virtual clock, against a lease store behind a real client.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use axum::{
    body::{Body, to_bytes},
    http::{Method, Request, Response, StatusCode},
};
use chrono::DateTime;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::clock::VirtualClock;

/// An API server that knows one lease.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    lease: Option<Value>,
    version: u64,
    down: bool,
}

impl Store {
    fn client(&self) -> Client {
        let store = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let store = store.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = to_bytes(Body::new(body), 1 << 20).await.unwrap();
                let (status, answer) = store.answer(&parts.method, &body);
                let response = Response::builder()
                    .status(status)
                    .body(Body::from(answer.to_string()));
                Ok::<_, Infallible>(response.unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn answer(&self, method: &Method, body: &[u8]) -> (StatusCode, Value) {
        let mut state = self.0.lock().unwrap();
        let refuse = |status: StatusCode, reason: &str| {
            let code = status.as_u16();
            (
                status,
                json!({"kind": "Status", "status": "Failure", "reason": reason, "message": reason, "code": code}),
            )
        };
        if state.down {
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable");
        }
        if *method == Method::GET {
            return match &state.lease {
                Some(lease) => (StatusCode::OK, lease.clone()),
                None => refuse(StatusCode::NOT_FOUND, "NotFound"),
            };
        }
        let mut lease: Value = serde_json::from_slice(body).unwrap();
        let stands = state
            .lease
            .as_ref()
            .map(|lease| lease["metadata"]["resourceVersion"].clone());
        let expected = (*method == Method::PUT).then(|| lease["metadata"]["resourceVersion"].clone());
        if stands != expected {
            return refuse(StatusCode::CONFLICT, "Conflict");
        }
        state.version += 1;
        lease["metadata"]["resourceVersion"] = json!(state.version.to_string());
        state.lease = Some(lease.clone());
        (StatusCode::OK, lease)
    }

    fn holder(&self) -> Value {
        let state = self.0.lock().unwrap();
        state
            .lease
            .as_ref()
            .map_or(Value::Null, |lease| lease["spec"]["holderIdentity"].clone())
    }
}

/// A candidate that runs, and what it tells of its work.
struct Runner {
    shutdown: Shutdown,
    told: mpsc::UnboundedReceiver<&'static str>,
    leadership: Arc<Mutex<Option<Leadership>>>,
    running: tokio::task::JoinHandle<Result<(), LeaseError>>,
    registry: Registry,
}

struct Told(mpsc::UnboundedSender<&'static str>);

impl Drop for Told {
    fn drop(&mut self) {
        let _nobody_listens = self.0.send("dropped");
    }
}

fn start(identity: &str, store: &Store, time: &VirtualClock) -> Runner {
    let mut registry = Registry::default();
    let shutdown = Shutdown::new();
    let election = Election {
        settings: LeaseSettings {
            namespace: "kube-system".to_owned(),
            name: "vpa-updater".to_owned(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        },
        identity: identity.to_owned(),
        client: store.client(),
        clock: time.clock(),
        shutdown: shutdown.clone(),
        metrics: LeaseMetrics::register(&mut registry),
    };
    let (tell, told) = mpsc::unbounded_channel();
    let leadership = Arc::new(Mutex::new(None));
    let (asked, shared) = (shutdown.clone(), leadership.clone());
    let running = tokio::spawn(election.lead(move |leadership| async move {
        let told = Told(tell);
        let _receiver_gone = told.0.send("started");
        *shared.lock().unwrap() = Some(leadership);
        asked.requested().await;
        let _receiver_gone = told.0.send("stopped");
        Ok(())
    }));
    Runner {
        shutdown,
        told,
        leadership,
        running,
        registry,
    }
}

impl Runner {
    fn metric(&self) -> String {
        let text = crate::daemon::metrics::encode(&self.registry).unwrap();
        text.lines().last().unwrap_or_default().to_owned()
    }
}

fn noon() -> VirtualClock {
    VirtualClock::starting_at(DateTime::from_timestamp(1_772_366_400, 0).unwrap())
}

/// Lets everybody do what can be done without time passing.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

async fn pass(time: &VirtualClock, seconds: u64) {
    for _ in 0..seconds {
        time.advance(Duration::from_secs(1)).await;
        settle().await;
    }
}

#[tokio::test]
async fn one_leads_until_it_stops_and_then_the_other_does() {
    let (store, time) = (Store::default(), noon());
    let mut first = start("first", &store, &time);
    settle().await;
    assert_eq!(first.told.recv().await, Some("started"));
    assert_eq!(
        first.metric(),
        "outrigger_leader{lease=\"kube-system/vpa-updater\"} 1"
    );
    let mut second = start("second", &store, &time);
    pass(&time, 600).await;
    assert_eq!(store.holder(), "first");
    assert!(second.told.try_recv().is_err(), "nobody else works");
    assert_eq!(
        second.metric(),
        "outrigger_leader{lease=\"kube-system/vpa-updater\"} 0"
    );
    first.shutdown.request();
    first.running.await.unwrap().unwrap();
    assert_eq!(
        first.told.recv().await,
        Some("stopped"),
        "before the lease is given back"
    );
    assert_eq!(store.holder(), "");
    // One retry with its jitter.
    pass(&time, 5).await;
    assert_eq!(second.told.recv().await, Some("started"));
    assert_eq!(store.holder(), "second");
    second.shutdown.request();
    second.running.await.unwrap().unwrap();
}

#[tokio::test]
async fn one_that_only_waits_stops_at_once() {
    let (store, time) = (Store::default(), noon());
    let _first = start("first", &store, &time);
    settle().await;
    let mut second = start("second", &store, &time);
    pass(&time, 10).await;
    second.shutdown.request();
    second.running.await.unwrap().unwrap();
    assert_eq!(second.told.recv().await, None, "its work never started");
    assert_eq!(store.holder(), "first");
}

#[tokio::test]
async fn a_lease_that_cannot_be_renewed_ends_the_work_and_is_fatal() {
    let (store, time) = (Store::default(), noon());
    let mut runner = start("first", &store, &time);
    settle().await;
    pass(&time, 60).await;
    let leadership = runner.leadership.lock().unwrap().clone().unwrap();
    assert!(leadership.lasts());
    let guarded = leadership.guard(&store.client());
    let leases: Api<Lease> = Api::namespaced(guarded, "kube-system");
    leases.get("vpa-updater").await.unwrap();
    store.0.lock().unwrap().down = true;
    pass(&time, 12).await;
    let error = runner.running.await.unwrap().unwrap_err().to_string();
    assert_eq!(
        error,
        "lost master: lease kube-system/vpa-updater could not be renewed within 10s"
    );
    assert_eq!(runner.told.recv().await, Some("started"));
    assert_eq!(runner.told.recv().await, Some("dropped"), "where it stood");
    assert!(!leadership.lasts());
    leadership.over().await;
    store.0.lock().unwrap().down = false;
    let error = leases.get("vpa-updater").await.unwrap_err().to_string();
    assert!(error.contains("does not lead any more"), "{error}");
    assert_eq!(store.holder(), "first", "it expires by itself");
}

#[tokio::test]
async fn a_lease_that_somebody_took_is_fatal() {
    let (store, time) = (Store::default(), noon());
    let runner = start("first", &store, &time);
    settle().await;
    {
        let mut state = store.0.lock().unwrap();
        let lease = state.lease.as_mut().unwrap();
        lease["spec"]["holderIdentity"] = json!("thief");
        lease["metadata"]["resourceVersion"] = json!("stolen");
    }
    pass(&time, 3).await;
    let error = runner.running.await.unwrap().unwrap_err().to_string();
    assert_eq!(
        error,
        "lost master: lease kube-system/vpa-updater is held by somebody else"
    );
}

#[tokio::test]
async fn work_that_fails_gives_the_lease_back() {
    let (store, time) = (Store::default(), noon());
    let mut registry = Registry::default();
    let election = |identity: &str, registry: &mut Registry| Election {
        settings: LeaseSettings {
            namespace: "kube-system".to_owned(),
            name: "vpa-updater".to_owned(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        },
        identity: identity.to_owned(),
        client: store.client(),
        clock: time.clock(),
        shutdown: Shutdown::new(),
        metrics: LeaseMetrics::register(registry),
    };
    let failed = election("first", &mut registry)
        .lead(|_| async { anyhow::bail!("no disk") })
        .await;
    assert_eq!(failed.unwrap_err().to_string(), "no disk");
    assert_eq!(store.holder(), "");
    let panicked = election("second", &mut registry)
        .lead(|_| async { panic!("a bug") })
        .await;
    assert_eq!(
        panicked.unwrap_err().to_string(),
        "the leader's work panicked: a bug"
    );
    assert_eq!(store.holder(), "");
}

#[test]
fn an_identity_is_the_host_and_a_uuid_and_never_the_same() {
    let (first, second) = (identity(), identity());
    assert_ne!(first, second);
    let (host, uuid) = first.rsplit_once('_').unwrap();
    assert!(!host.is_empty());
    let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12], "{uuid}");
    assert_eq!(uuid.chars().nth(14), Some('4'), "{uuid}");
    assert!(uuid.chars().nth(19).is_some_and(|c| "89ab".contains(c)), "{uuid}");
}
