//! The watches of a daemon at work, each a task of its own that is never left unwatched.

use std::fmt::Debug;

use anyhow::{Context as _, Result};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
        batch::v1::Job,
    },
};
use kube::{Api, Resource, runtime::watcher};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::{
    Change, Relist, SlimCronJob, SlimReplicationController, SlimSelecting, Synced, Watch, WatchMetrics,
    WatchedController,
};
use crate::daemon::{Handles, Namespaces};

/// The watches of a daemon at work. Dropping it ends them.
pub struct WatchSet {
    handles: Handles,
    namespaces: Namespaces,
    metrics: WatchMetrics,
    tasks: JoinSet<&'static str>,
    syncing: Vec<Synced>,
}

/// Is told of all well-known controllers.
pub trait ControllerSink: Clone + Send + 'static {
    /// Something happened to one.
    fn tell<C: WatchedController>(&self, change: Change<'_, C>);
}

impl WatchSet {
    /// No watches yet.
    #[must_use]
    pub fn new(handles: Handles, namespaces: Namespaces, metrics: WatchMetrics) -> Self {
        Self {
            handles,
            namespaces,
            metrics,
            tasks: JoinSet::new(),
            syncing: Vec::new(),
        }
    }

    /// Watches the objects of one kind in all namespaces that are served; the handle makes the watch list them all again.
    pub fn start<K>(
        &mut self,
        name: &'static str,
        config: watcher::Config,
        index: impl FnMut(Change<'_, K>) + Send + 'static,
    ) -> Relist
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let api = self.api();
        self.start_on(name, api, config, index)
    }

    /// The same for an index that knows things already, which are gone if the first list does not have them.
    pub fn start_filled<K>(
        &mut self,
        name: &'static str,
        config: watcher::Config,
        index: impl FnMut(Change<'_, K>) + Send + 'static,
    ) -> Relist
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let (watch, relist) = self.watch(name);
        let api = self.api();
        self.spawn(name, watch.into_filled_index(), api, config, index);
        relist
    }

    /// Watches what an API has.
    pub fn start_on<K>(
        &mut self,
        name: &'static str,
        api: Api<K>,
        config: watcher::Config,
        index: impl FnMut(Change<'_, K>) + Send + 'static,
    ) -> Relist
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let (watch, relist) = self.watch(name);
        self.spawn(name, watch, api, config, index);
        relist
    }

    /// Watches the well-known controllers.
    pub fn start_controllers(&mut self, sink: &impl ControllerSink) {
        self.start_controller::<SlimSelecting<DaemonSet>>("DaemonSets", sink);
        self.start_controller::<SlimSelecting<Deployment>>("Deployments", sink);
        self.start_controller::<SlimSelecting<ReplicaSet>>("ReplicaSets", sink);
        self.start_controller::<SlimSelecting<StatefulSet>>("StatefulSets", sink);
        self.start_controller::<SlimSelecting<Job>>("Jobs", sink);
        self.start_controller::<SlimCronJob>("CronJobs", sink);
        self.start_controller::<SlimReplicationController>("ReplicationControllers", sink);
    }

    fn start_controller<C: WatchedController>(&mut self, name: &'static str, sink: &impl ControllerSink) {
        let sink = sink.clone();
        self.start(name, watcher::Config::default(), move |change: Change<'_, C>| {
            sink.tell(change);
        });
    }

    fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        let client = self.handles.client.clone();
        match &self.namespaces {
            Namespaces::Only(namespace) => Api::namespaced(client, namespace),
            Namespaces::All | Namespaces::Except(_) => Api::all(client),
        }
    }

    fn watch(&mut self, name: &'static str) -> (Watch, Relist) {
        let part = self.handles.readiness.part(name);
        let (watch, synced, relist) = Watch::new(name, part, &self.metrics);
        self.syncing.push(synced);
        (watch, relist)
    }

    fn spawn<K>(
        &mut self,
        name: &'static str,
        watch: Watch,
        api: Api<K>,
        config: watcher::Config,
        index: impl FnMut(Change<'_, K>) + Send + 'static,
    ) where
        K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let shutdown = self.handles.shutdown.clone();
        self.tasks.spawn(async move {
            watch.run(api, config, shutdown, index).await;
            name
        });
    }

    /// Waits until everything that is watched has been listed once; false if shutdown is requested first.
    ///
    /// # Errors
    /// When a watch ends.
    pub async fn synced(&mut self) -> Result<bool> {
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
    pub async fn ended(&mut self) -> Result<()> {
        match self.tasks.join_next().await {
            None => std::future::pending().await,
            Some(_) if self.handles.shutdown.is_requested() => Ok(()),
            Some(ended) => {
                let name = ended.context("a watch panicked")?;
                anyhow::bail!("the watch of {name} ended before it was asked to")
            }
        }
    }
}
