//! The watches that fill the feed, each a task of its own that is never left unwatched.

use anyhow::{Context as _, Result};
use common::{
    api::{
        k8s::{DaemonSet, Deployment, Event, Job, ReplicaSet, StatefulSet},
        vpa::VerticalPodAutoscaler,
    },
    clock::Clock,
    daemon::{Handles, Namespaces},
    kube::watch::{
        Change, Relist, SlimCronJob, SlimReplicationController, SlimSelecting, Synced, Watch, WatchMetrics,
        WatchedController,
    },
    pod::Pod,
};
use kube::{Api, Resource, api::ListParams, core::NamespaceResourceScope, runtime::watcher};
use tokio::task::JoinSet;

use super::Shared;

/// How many objects a page of a list has.
const PAGE: u32 = 500;

/// Parameters of one page of a list.
pub(crate) fn page(next: Option<&str>) -> ListParams {
    let first = ListParams::default().limit(PAGE);
    match next {
        Some(token) => first.continue_token(token),
        None => first,
    }
}

/// The watches of a recommender at work.
pub(crate) struct Watches {
    handles: Handles,
    namespaces: Namespaces,
    metrics: WatchMetrics,
    feed: Shared,
    tasks: JoinSet<&'static str>,
    syncing: Vec<Synced>,
}

impl Watches {
    pub(crate) fn new(handles: Handles, namespaces: Namespaces, metrics: WatchMetrics, feed: Shared) -> Self {
        Self {
            handles,
            namespaces,
            metrics,
            feed,
            tasks: JoinSet::new(),
            syncing: Vec::new(),
        }
    }

    /// Watches VPAs and the well-known controllers.
    pub(crate) fn start_targets(&mut self) {
        let (watch, synced, _) = self.watch("VPAs");
        self.syncing.push(synced);
        let (feed, api) = (self.feed.clone(), self.api::<VerticalPodAutoscaler>());
        let shutdown = self.handles.shutdown.clone();
        self.tasks.spawn(async move {
            let index = |change: Change<'_, _>| feed.lock().vpa(change);
            watch.run(api, watcher::Config::default(), shutdown, index).await;
            "VPAs"
        });
        self.start_controllers::<SlimSelecting<DaemonSet>>("DaemonSets");
        self.start_controllers::<SlimSelecting<Deployment>>("Deployments");
        self.start_controllers::<SlimSelecting<ReplicaSet>>("ReplicaSets");
        self.start_controllers::<SlimSelecting<StatefulSet>>("StatefulSets");
        self.start_controllers::<SlimSelecting<Job>>("Jobs");
        self.start_controllers::<SlimCronJob>("CronJobs");
        self.start_controllers::<SlimReplicationController>("ReplicationControllers");
    }

    fn start_controllers<C: WatchedController>(&mut self, name: &'static str) {
        let (watch, synced, _) = self.watch(name);
        self.syncing.push(synced);
        let (feed, api) = (self.feed.clone(), self.api::<C>());
        let shutdown = self.handles.shutdown.clone();
        self.tasks.spawn(async move {
            let index = |change: Change<'_, C>| feed.lock().controller(change);
            watch.run(api, watcher::Config::default(), shutdown, index).await;
            name
        });
    }

    /// Watches pods; the handle makes the watch list them all again.
    pub(crate) fn start_pods(&mut self) -> Relist {
        let (watch, synced, relist) = self.watch("pods");
        // History from Prometheus may have brought pods that are gone.
        let watch = watch.into_filled_index();
        self.syncing.push(synced);
        let (feed, api) = (self.feed.clone(), self.api::<Pod>());
        let shutdown = self.handles.shutdown.clone();
        let clock: Clock = self.handles.clock.clone();
        self.tasks.spawn(async move {
            let config = watcher::Config::default().fields("status.phase!=Pending");
            let index = |change: Change<'_, _>| feed.lock().pod(change, clock.now());
            watch.run(api, config, shutdown, index).await;
            "pods"
        });
        relist
    }

    /// Watches the events that tell of evictions.
    pub(crate) fn start_evictions(&mut self) {
        let (watch, synced, _) = self.watch("evictions");
        self.syncing.push(synced);
        let (feed, api) = (self.feed.clone(), self.api::<Event>());
        let shutdown = self.handles.shutdown.clone();
        let clock: Clock = self.handles.clock.clone();
        self.tasks.spawn(async move {
            let config = watcher::Config::default().fields("reason=Evicted");
            let index = |change: Change<'_, _>| feed.lock().eviction(change, clock.now());
            watch.run(api, config, shutdown, index).await;
            "evictions"
        });
    }

    /// Waits until everything that is watched has been listed once; false if shutdown is requested first.
    ///
    /// # Errors
    /// When a watch ends.
    pub(crate) async fn synced(&mut self) -> Result<bool> {
        let mut syncing = std::mem::take(&mut self.syncing);
        let shutdown = self.handles.shutdown.clone();
        let all = async {
            for synced in &mut syncing {
                synced.wait().await;
            }
        };
        tokio::select! {
            () = all => Ok(true),
            () = shutdown.requested() => Ok(false),
            ended = self.ended() => ended.map(|()| false),
        }
    }

    /// Waits until a watch ends, which none should before shutdown is requested.
    ///
    /// # Errors
    /// When one does.
    pub(crate) async fn ended(&mut self) -> Result<()> {
        match self.tasks.join_next().await {
            None => std::future::pending().await,
            Some(_) if self.handles.shutdown.is_requested() => Ok(()),
            Some(ended) => {
                let name = ended.context("a watch panicked")?;
                anyhow::bail!("the watch of {name} ended before it was asked to")
            }
        }
    }

    fn watch(&self, name: &'static str) -> (Watch, Synced, Relist) {
        Watch::new(name, self.handles.readiness.part(name), &self.metrics)
    }

    fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        let client = self.handles.client.clone();
        match &self.namespaces {
            Namespaces::Only(namespace) => Api::namespaced(client, namespace),
            Namespaces::All | Namespaces::Except(_) => Api::all(client),
        }
    }
}
