//! Keeps what is known of SidecarSets in step with the cluster, as soon as there are any.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use common::{
    api::k8s::{ControllerRevision, Namespace},
    daemon::{Handles, Part, Shell},
    kube::{
        sidecarsets::{self, GuardedSet},
        watch::{Change, Synced, Watch, WatchMetrics},
    },
    pod::Pod,
    sidecarset::revision::SET_NAME,
};
use futures::future::{BoxFuture, FutureExt as _, join_all};
use kube::{Api, Resource, ResourceExt as _, core::DeserializeGuard, runtime::watcher};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::{
    known::Known as Rows,
    quota::Quotas,
    settings::{Mode, Settings},
};
use crate::feed::Known;

/// Starts the watches as one task of the shell. Tells when it is known what there is.
pub(crate) fn start(
    shell: &mut Shell,
    metrics: &WatchMetrics,
    known: &Known,
    settings: &Arc<Settings>,
    quotas: Option<&Arc<Mutex<Quotas>>>,
) -> watch::Receiver<bool> {
    let (settled, is_settled) = watch::channel(settings.mode == Mode::Off);
    if settings.mode == Mode::Off {
        return is_settled;
    }
    known.write().sidecarsets = Rows::kept_in(&settings.namespace);
    let handles = shell.handles();
    let part = |name| handles.readiness.part(name);
    let parts = Parts {
        sets: part("SidecarSets"),
        revisions: part("revisions of SidecarSets"),
        namespaces: (settings.mode == Mode::Inject).then(|| part("Namespaces")),
        pods: quotas.map(|_| part("pods of SidecarSets")),
    };
    let feed = Feed {
        handles: handles.clone(),
        metrics: metrics.clone(),
        known: known.clone(),
        settings: Arc::clone(settings),
        quotas: quotas.cloned(),
    };
    shell.spawn("SidecarSets", async move {
        let shutdown = handles.shutdown.clone();
        tokio::select! {
            () = feed.run(parts, settled) => {}
            () = shutdown.requested() => {}
        }
        Ok(())
    });
    is_settled
}

struct Parts {
    sets: Part,
    revisions: Part,
    namespaces: Option<Part>,
    pods: Option<Part>,
}

impl Parts {
    fn ready(&self) {
        let others = [&self.namespaces, &self.pods];
        [&self.sets, &self.revisions]
            .into_iter()
            .chain(others.into_iter().flatten())
            .for_each(Part::ready);
    }
}

struct Feed {
    handles: Handles,
    metrics: WatchMetrics,
    known: Known,
    settings: Arc<Settings>,
    quotas: Option<Arc<Mutex<Quotas>>>,
}

impl Feed {
    async fn run(self, parts: Parts, settled: watch::Sender<bool>) {
        if !self.handles.connect().await {
            return;
        }
        sidecarsets::wait(
            &self.handles,
            &self.metrics,
            Some(&self.settings.namespace),
            || {
                parts.ready();
                settled.send_replace(true);
            },
        )
        .await;
        self.watch(parts, settled).await;
    }

    async fn watch(self, parts: Parts, settled: watch::Sender<bool>) {
        let client = &self.handles.client;
        let injects = self.settings.mode == Mode::Inject;
        let mut running: Vec<BoxFuture<'static, ()>> = Vec::new();
        let mut synced: Vec<Synced> = Vec::new();
        let all = watcher::Config::default;

        let known = self.known.clone();
        let sets: Api<GuardedSet> = Api::all(client.clone());
        self.add(
            "SidecarSets",
            parts.sets,
            sets,
            all(),
            &mut running,
            &mut synced,
            move |change| {
                set_change(&known, injects, &change);
            },
        );

        let known = self.known.clone();
        let revisions: Api<ControllerRevision> = Api::namespaced(client.clone(), &self.settings.namespace);
        let of_sets = all().labels(SET_NAME);
        self.add(
            "revisions of SidecarSets",
            parts.revisions,
            revisions,
            of_sets,
            &mut running,
            &mut synced,
            move |change| revision_change(&known, injects, &change),
        );

        if let Some(part) = parts.namespaces {
            let known = self.known.clone();
            let namespaces: Api<Namespace> = Api::all(client.clone());
            self.add(
                "Namespaces",
                part,
                namespaces,
                all(),
                &mut running,
                &mut synced,
                move |change| {
                    namespace_change(&known, change);
                },
            );
        }
        if let (Some(part), Some(quotas)) = (parts.pods, self.quotas.clone()) {
            let pods: Api<Pod> = Api::all(client.clone());
            self.add(
                "pods of SidecarSets",
                part,
                pods,
                all(),
                &mut running,
                &mut synced,
                move |change| pod_change(&mut locked(&quotas), change),
            );
        }
        let settling = async move {
            join_all(
                synced
                    .into_iter()
                    .map(|mut synced| async move { synced.wait().await }),
            )
            .await;
            settled.send_replace(true);
        };
        tokio::join!(join_all(running), settling);
    }

    #[allow(clippy::too_many_arguments)]
    fn add<K>(
        &self,
        name: &'static str,
        part: Part,
        api: Api<K>,
        config: watcher::Config,
        running: &mut Vec<BoxFuture<'static, ()>>,
        synced: &mut Vec<Synced>,
        tell: impl FnMut(Change<'_, K>) + Send + 'static,
    ) where
        K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let (watch, is_synced, _) = Watch::new(name, part, &self.metrics);
        synced.push(is_synced);
        running.push(
            watch
                .run(api, config, self.handles.shutdown.clone(), tell)
                .boxed(),
        );
    }
}

fn locked(quotas: &Mutex<Quotas>) -> MutexGuard<'_, Quotas> {
    quotas.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set_change(known: &Known, injects: bool, change: &Change<'_, GuardedSet>) {
    let mut index = known.write();
    sidecarsets::set_changed(&mut index.formulas, change);
    match change {
        Change::Applied(DeserializeGuard(Ok(set))) if injects => index.sidecarsets.apply_set(set),
        Change::Applied(_) => {}
        Change::Deleted(set) => index.sidecarsets.sets.remove(&set.name_any()),
        Change::Relisted(seen) => index.sidecarsets.sets.retain(|name| seen.contains("", name)),
    }
}

fn revision_change(known: &Known, injects: bool, change: &Change<'_, ControllerRevision>) {
    let mut index = known.write();
    sidecarsets::revision_changed(&mut index.formulas, change);
    let revisions = &mut index.sidecarsets.revisions;
    match change {
        Change::Applied(revision) if injects => revisions.apply(revision.clone()),
        Change::Applied(_) => {}
        Change::Deleted(revision) => revisions.remove(&revision.name_any()),
        Change::Relisted(seen) => revisions.retain(|name| seen.contains_name(name)),
    }
}

fn namespace_change(known: &Known, change: Change<'_, Namespace>) {
    let rows = &mut known.write().sidecarsets;
    match change {
        Change::Applied(namespace) => {
            let name = namespace.name_any();
            rows.apply_namespace(&name, namespace.metadata.labels.unwrap_or_default());
        }
        Change::Deleted(namespace) => rows.remove_namespace(&namespace.name_any()),
        Change::Relisted(seen) => rows.retain_namespaces(|name| seen.contains("", name)),
    }
}

fn pod_change(quotas: &mut Quotas, change: Change<'_, Pod>) {
    match change {
        Change::Applied(pod) => quotas.apply(&pod),
        Change::Deleted(pod) => {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            quotas.remove(namespace, pod.metadata.name.as_deref().unwrap_or_default());
        }
        Change::Relisted(seen) => quotas.retain(|namespace, name| seen.contains(namespace, name)),
    }
}
