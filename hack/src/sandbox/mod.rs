//! An API server in this process, with the behaviour that our daemons and kubectl rely on, for tests, for trying things
//! out, for faults on demand and for scale. It is never the proof that something works: a real cluster is.
//!
//! - [`Sandbox::start`] serves plain HTTP on a free loopback port; [`Sandbox::client`] and [`Sandbox::kubeconfig`] reach it.
//! - [`Sandbox::api`] has every verb as a function, with the same rules and webhooks, for controllers and a kubelet in
//!   this process: [`Api::create`], [`Api::modify`], [`Api::update`], [`Api::patch`], [`Api::delete`], [`Api::bind`],
//!   [`Api::evict`], [`Api::rescale`].
//! - [`Store::watch`] and [`Store::all`] read in-process: objects are JSON bytes with an index, [`Object::value`] decodes.
//! - [`Api::serve_pod_metrics`] and [`Api::serve_node_metrics`] hook `metrics.k8s.io`; [`Api::on_pod`] is told of pods that
//!   come and go; [`Webhooks::serve`] says where the Service of a webhook really listens; [`Faults::add`] breaks things.
//! - Objects live in the time of the given clock; connections, time-outs and latencies in the machine's.

mod admission;
mod api;
mod call;
mod command;
mod crd;
mod defaults;
mod delete;
mod discovery;
mod error;
mod events;
mod faults;
mod limits;
mod measured;
mod object;
mod patch;
mod pod;
mod quantity;
mod registry;
mod scale;
mod schema;
mod selector;
mod server;
mod store;
mod table;
mod tree;
mod view;
mod watch;
pub mod world;
mod write;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;
use axum::serve::ListenerExt;
use common::clock::Clock;
use serde_json::json;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

pub(crate) use self::api::mix;
pub use self::{
    admission::Webhooks,
    api::{Api, FieldValidation, Part, PodHook, Write},
    command::{Args, install_crds, run},
    delete::{DeleteOptions, Deleted, Preconditions, Propagation},
    error::{ApiError, Cause},
    faults::{Effect, Fault, Faults},
    measured::{Amount, Container, Measured, MetricsProvider, Usage, Used},
    patch::Patch,
    registry::{Form, Kind, Registry},
    selector::Selector,
    store::{Change, Event, Expect, Expired, Key, Object, Page, Place, Range, Store, Watch},
};

/// How to start a sandbox.
#[derive(Clone, Debug)]
pub struct Options {
    /// The time in which its objects live.
    pub clock: Clock,
    /// The port to listen on; 0 takes a free one.
    pub port: u16,
    /// Decides uids, generated names and the luck of faults.
    pub seed: u64,
    /// How many events each resource keeps for watches and pages.
    pub history: usize,
    /// Whether watches may ask for initial events, as servers from 1.34 on allow.
    pub watch_list: bool,
    /// How often watches get bookmarks.
    pub bookmark_every: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            port: 0,
            seed: 0,
            history: 20_000,
            watch_list: true,
            bookmark_every: Duration::from_secs(60),
        }
    }
}

/// A running sandbox; it stops when dropped.
#[derive(Debug)]
pub struct Sandbox {
    api: Arc<Api>,
    address: SocketAddr,
    stop: CancellationToken,
    server: JoinHandle<()>,
}

impl Sandbox {
    /// Starts serving.
    ///
    /// # Errors
    /// When the port is taken.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        // Somebody else in this process may have chosen already, and there is only one to choose.
        drop(rustls::crypto::ring::default_provider().install_default());
        let store = Arc::new(Store::new(options.history));
        let faults = Faults::new(options.seed);
        let api = Arc::new(Api::new(
            store,
            options.clock,
            faults,
            Webhooks::default(),
            options.seed,
        ));
        let kind = api.kind("namespaces")?;
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            api.create(&kind, "", json!({"metadata": {"name": name}}), &Write::default())
                .await?;
        }
        let listener = TcpListener::bind(("127.0.0.1", options.port))
            .await
            .with_context(|| format!("cannot listen on port {}", options.port))?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let router = server::router(server::Server {
            api: api.clone(),
            stop: stop.clone(),
            watch_list: options.watch_list,
            bookmark_every: options.bookmark_every,
        });
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        let stopped = stop.clone().cancelled_owned();
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router)
                .with_graceful_shutdown(stopped)
                .await
            {
                tracing::error!(%error, "the sandbox's server ended");
            }
        });
        Ok(Self {
            api,
            address,
            stop,
            server,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The verbs, for use in this process.
    #[must_use]
    pub fn api(&self) -> &Arc<Api> {
        &self.api
    }

    /// The objects.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        self.api.store()
    }

    /// Faults on demand.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.api.faults
    }

    /// A client that does not retry by itself.
    ///
    /// # Errors
    /// When the TLS provider is missing, which it is not.
    pub fn client(&self) -> anyhow::Result<kube::Client> {
        let mut config = kube::Config::new(self.url().parse()?);
        config.default_retry = false;
        // Nothing here is encrypted, and reading the machine's authorities takes a while.
        config.root_cert = Some(Vec::new());
        Ok(kube::Client::try_from(config)?)
    }

    /// A kubeconfig for kubectl.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "sandbox",
            "clusters": [{"name": "sandbox", "cluster": {"server": self.url()}}],
            "users": [{"name": "sandbox", "user": {}}],
            "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox"}}],
        });
        format!("{config:#}\n")
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.stop.cancel();
        self.server.abort();
    }
}
