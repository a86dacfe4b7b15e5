//! Keeps the [`Index`] in step with the cluster: watches of VPAs, LimitRanges and the well-known controllers, and the
//! scales of other controllers, asked for when a pod needs one.

use std::{
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use common::{
    api::{
        k8s::{DaemonSet, Deployment, Job, LimitRange, ReplicaSet, StatefulSet},
        vpa::VerticalPodAutoscaler,
    },
    daemon::{Handles, Namespaces, Shell},
    kube::{
        scale::Scales,
        watch::{
            Change, SlimCronJob, SlimReplicationController, SlimSelecting, Synced, Watch, WatchMetrics,
            WatchedController,
        },
    },
    target::ControllerKey,
};
use futures::future::join_all;
use kube::{Api, Resource, core::DeserializeGuard, core::NamespaceResourceScope, runtime::watcher};
use tokio::sync::{mpsc, watch};

use crate::index::Index;

/// How many scales are asked for side by side.
const SCALE_WORKERS: usize = 8;
/// How many pods may wait for a scale to be asked for.
const SCALE_QUEUE: usize = 256;
/// How often scales that are in use are looked at again.
const SCALE_REFRESH: Duration = Duration::from_secs(60);

/// What is known, shared by all who review. Cloning gives another handle to the same.
#[derive(Clone)]
pub(crate) struct Known {
    index: Arc<RwLock<Index>>,
    /// Grows with every change to what is known of controllers.
    changes: watch::Sender<u64>,
    /// Whether everything was listed once.
    synced: watch::Sender<bool>,
    scales: mpsc::Sender<ControllerKey>,
}

impl Known {
    /// Nothing yet; and where wishes for scales arrive.
    pub(crate) fn new() -> (Self, mpsc::Receiver<ControllerKey>) {
        let (scales, wishes) = mpsc::channel(SCALE_QUEUE);
        let known = Self {
            index: Arc::default(),
            changes: watch::Sender::new(0),
            synced: watch::Sender::new(false),
            scales,
        };
        (known, wishes)
    }

    /// For a look. Not to be held while waiting for anything.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a change.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those who wait that more is known of controllers.
    pub(crate) fn changed(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// To wait for more to be known of controllers. What changes after this call is not missed.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Whether everything was listed once.
    pub(crate) fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Says that everything was listed once.
    pub(crate) fn set_synced(&self) {
        self.synced.send_replace(true);
    }

    /// Waits until everything was listed once.
    pub(crate) async fn wait_synced(&self) {
        let mut synced = self.synced.subscribe();
        // The sender is in here, so there is no error.
        let _seen = synced.wait_for(|synced| *synced).await;
    }

    /// Wishes for a scale; false if too many do.
    pub(crate) fn wish(&self, key: ControllerKey) -> bool {
        self.scales.try_send(key).is_ok()
    }
}

/// Starts all watches as tasks of the shell, and the task that asks for scales.
pub(crate) fn start(
    shell: &mut Shell,
    metrics: &WatchMetrics,
    namespaces: &Namespaces,
    known: &Known,
    wishes: mpsc::Receiver<ControllerKey>,
) {
    let mut feed = Feed {
        handles: shell.handles(),
        metrics,
        namespaces,
        known,
        shell,
        synced: Vec::new(),
    };
    feed.watch("VPAs", vpa_change(namespaces.clone()));
    feed.watch("LimitRanges", limit_range_change);
    feed.controllers::<SlimSelecting<Deployment>>("Deployments");
    feed.controllers::<SlimSelecting<ReplicaSet>>("ReplicaSets");
    feed.controllers::<SlimSelecting<StatefulSet>>("StatefulSets");
    feed.controllers::<SlimSelecting<DaemonSet>>("DaemonSets");
    feed.controllers::<SlimSelecting<Job>>("Jobs");
    feed.controllers::<SlimCronJob>("CronJobs");
    feed.controllers::<SlimReplicationController>("ReplicationControllers");
    let Feed { handles, synced, .. } = feed;
    let waiting = known.clone();
    let asking = handles.clone();
    shell.spawn("first lists", async move {
        let shutdown = &asking.shutdown;
        if !asking.connect().await {
            return Ok(());
        }
        tokio::select! {
            _ = join_all(synced.into_iter().map(|mut synced| async move { synced.wait().await })) => waiting.set_synced(),
            () = shutdown.requested() => return Ok(()),
        }
        tracing::info!("everything is listed");
        shutdown.requested().await;
        Ok(())
    });
    let known = known.clone();
    shell.spawn("scales", async move {
        ask_for_scales(&handles, &known, wishes).await;
        Ok(())
    });
}

struct Feed<'a> {
    handles: Handles,
    metrics: &'a WatchMetrics,
    namespaces: &'a Namespaces,
    known: &'a Known,
    shell: &'a mut Shell,
    synced: Vec<Synced>,
}

impl Feed<'_> {
    fn watch<K>(&mut self, name: &'static str, mut tell: impl FnMut(&Known, Change<'_, K>) + Send + 'static)
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned
            + Send
            + 'static,
    {
        let client = self.handles.client.clone();
        let api: Api<K> = match self.namespaces {
            Namespaces::Only(namespace) => Api::namespaced(client, namespace),
            Namespaces::All | Namespaces::Except(_) => Api::all(client),
        };
        let part = self.handles.readiness.part(name);
        let (watch, synced, _) = Watch::new(name, part, self.metrics);
        self.synced.push(synced);
        let known = self.known.clone();
        let shutdown = self.handles.shutdown.clone();
        self.shell.spawn(name, async move {
            let index = |change: Change<'_, K>| tell(&known, change);
            watch.run(api, watcher::Config::default(), shutdown, index).await;
            Ok(())
        });
    }

    fn controllers<K: WatchedController>(&mut self, name: &'static str) {
        self.watch(name, |known: &Known, change: Change<'_, K>| {
            {
                let mut index = known.write();
                let controllers = &mut index.owners.well_known;
                match change {
                    Change::Applied(object) => {
                        let (namespace, name) = object.key();
                        controllers.apply(K::KIND, namespace, name, object.controller());
                    }
                    Change::Deleted(object) => {
                        let (namespace, name) = object.key();
                        controllers.remove(K::KIND, namespace, name);
                    }
                    Change::Relisted(seen) => {
                        controllers.retain(K::KIND, |namespace, name| seen.contains(namespace, name));
                    }
                }
            }
            known.changed();
        });
    }
}

type GuardedVpa = DeserializeGuard<VerticalPodAutoscaler>;

/// One VPA that cannot be read must not hide the others; what was known of it stays known.
fn vpa_change(namespaces: Namespaces) -> impl FnMut(&Known, Change<'_, GuardedVpa>) {
    move |known, change| match change {
        Change::Applied(DeserializeGuard(Ok(mut vpa))) => {
            let namespace = vpa.metadata.namespace.as_deref().unwrap_or_default();
            if namespaces.include(namespace) {
                keep_targets_alone(&mut vpa);
                known.write().vpas.apply(&vpa);
            }
        }
        Change::Applied(DeserializeGuard(Err(invalid))) => {
            tracing::warn!(
                namespace = invalid.metadata.namespace,
                name = invalid.metadata.name,
                error = %invalid.error,
                "a VPA cannot be read; what was known of it stays"
            );
        }
        Change::Deleted(vpa) => {
            let meta = vpa.meta();
            let namespace = meta.namespace.as_deref().unwrap_or_default();
            let name = meta.name.as_deref().unwrap_or_default();
            known.write().vpas.remove(namespace, name);
        }
        Change::Relisted(seen) => known
            .write()
            .vpas
            .retain(|namespace, name| seen.contains(namespace, name)),
    }
}

/// New pods get the target; the three other amounts of a recommendation are for the updater and for people, and would be
/// most of what is kept here.
fn keep_targets_alone(vpa: &mut VerticalPodAutoscaler) {
    let recommendation = vpa
        .status
        .as_mut()
        .and_then(|status| status.recommendation.as_mut());
    for container in recommendation
        .into_iter()
        .flat_map(|recommendation| &mut recommendation.container_recommendations)
    {
        container.lower_bound.clear();
        container.upper_bound.clear();
        container.uncapped_target.clear();
    }
}

fn limit_range_change(known: &Known, change: Change<'_, LimitRange>) {
    let mut index = known.write();
    match change {
        Change::Applied(object) => index.limit_ranges.apply(object),
        Change::Deleted(object) => {
            let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
            let name = object.metadata.name.as_deref().unwrap_or_default();
            index.limit_ranges.remove(namespace, name);
        }
        Change::Relisted(seen) => {
            index
                .limit_ranges
                .retain(|namespace, name| seen.contains(namespace, name));
        }
    }
}

/// Asks for the scales that pods need, and from time to time again for those in use. A pod waits for its answer a while and
/// no longer; the answer is there for the next one.
async fn ask_for_scales(handles: &Handles, known: &Known, mut wishes: mpsc::Receiver<ControllerKey>) {
    let mut scales = Scales::new(handles.client.clone(), handles.clock.clone());
    let mut wished = Vec::new();
    loop {
        let mut unused = Vec::new();
        tokio::select! {
            count = wishes.recv_many(&mut wished, SCALE_QUEUE) => if count == 0 { return },
            () = handles.clock.sleep(SCALE_REFRESH) => {
                (wished, unused) = known.read().owners.used_scales();
            }
            () = handles.shutdown.requested() => return,
        }
        tokio::select! {
            _ = scales.refresh(wished.iter().cloned(), SCALE_WORKERS) => {}
            () = handles.shutdown.requested() => return,
        }
        {
            let mut index = known.write();
            for key in wished.drain(..).chain(unused) {
                let found = scales.get(&key);
                index.owners.note_scale(&key, found);
            }
        }
        known.changed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reviewer::tests::{deployment, pod_review, reviewer};
    use common::api::vpa::ANY_CONTAINER;
    use serde_json::json;

    fn vpa(bounds: bool) -> VerticalPodAutoscaler {
        let mut recommended = json!({"containerName": "app", "target": {"cpu": "250m", "memory": "200Mi"}});
        if bounds {
            for (bound, cpu) in [("lowerBound", "1m"), ("upperBound", "9"), ("uncappedTarget", "8")] {
                recommended[bound] = json!({"cpu": cpu, "memory": "1Gi"});
            }
        }
        serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "resourcePolicy": {"containerPolicies": [{"containerName": ANY_CONTAINER, "maxAllowed": {"cpu": "200m"}}]},
            },
            "status": {"recommendation": {"containerRecommendations": [recommended]}},
        }))
        .unwrap()
    }

    /// What a pod gets once a VPA was heard of, in a namespace with a LimitRange for pods.
    async fn patch(vpa: VerticalPodAutoscaler) -> String {
        let (reviewer, _wishes) = reviewer("Deployment");
        deployment(&reviewer);
        let range = json!({
            "metadata": {"namespace": "shop", "name": "pods"},
            "spec": {"limits": [{"type": "Pod", "max": {"cpu": "150m", "memory": "100Mi"}}]},
        });
        limit_range_change(
            &reviewer.known,
            Change::Applied(serde_json::from_value(range).unwrap()),
        );
        vpa_change(Namespaces::All)(&reviewer.known, Change::Applied(DeserializeGuard(Ok(vpa))));
        let mut review = pod_review("Deployment");
        review["request"]["object"]["spec"]["containers"][0]["resources"] =
            json!({"requests": {"cpu": "1m"}, "limits": {"cpu": "2m"}});
        let response = reviewer.review(review.to_string().as_bytes()).await;
        assert!(!response.patch.is_empty());
        serde_json::to_string(&response.patch).unwrap()
    }

    #[tokio::test]
    async fn bounds_of_a_recommendation_are_not_kept_and_new_pods_do_not_miss_them() {
        assert_eq!(patch(vpa(true)).await, patch(vpa(false)).await);
        let mut kept = vpa(true);
        keep_targets_alone(&mut kept);
        assert_eq!(kept, vpa(false));
    }

    #[tokio::test]
    async fn a_vpa_that_cannot_be_read_leaves_what_was_known() {
        let (reviewer, _wishes) = reviewer("Deployment");
        deployment(&reviewer);
        let broken = serde_json::from_value(json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": {"namespace": "shop", "name": "web"}, "spec": [],
        }))
        .unwrap();
        let mut tell = vpa_change(Namespaces::All);
        tell(&reviewer.known, Change::Applied(broken));
        let review = pod_review("Deployment").to_string();
        assert!(!reviewer.review(review.as_bytes()).await.patch.is_empty());
        tell(&reviewer.known, Change::Deleted(DeserializeGuard(Ok(vpa(false)))));
        assert!(reviewer.review(review.as_bytes()).await.patch.is_empty());
    }

    #[tokio::test]
    async fn vpas_of_ignored_namespaces_are_not_kept() {
        let (reviewer, _wishes) = reviewer("StatefulSet");
        deployment(&reviewer);
        let ignored = Namespaces::Except(["shop".into()].into());
        vpa_change(ignored)(&reviewer.known, Change::Applied(DeserializeGuard(Ok(vpa(false)))));
        let review = pod_review("Deployment").to_string();
        assert!(reviewer.review(review.as_bytes()).await.patch.is_empty());
    }
}
