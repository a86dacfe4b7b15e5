//! Keeps SidecarSets while this updater leads: watches them, their revisions and their pods, and does what
//! [`work`](super::work) finds, a set at a time.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Result;
use chrono::{DateTime, TimeDelta, Utc};
use common::{
    api::{
        k8s::{ControllerRevision, Namespace, Pod},
        sidecarset::SidecarSet,
    },
    daemon::{Handles, Namespaces},
    kube::{
        lease::Leadership,
        sidecarsets::{self, GuardedSet},
        watch::{WatchMetrics, WatchSet},
    },
    sidecarset::revision::{CUSTOM_VERSION, SET_NAME},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::watcher,
};
use serde_json::json;

use super::{
    Work,
    revise::{Registration, Step},
    rows::Rows,
    standing::{self, Standing},
    work,
};
use crate::events::{Teller, Told};

/// How often it is looked at what is to be done.
const ROUND: Duration = Duration::from_secs(5);
/// How long nothing may be heard of a pod that was updated.
const UNHEARD: TimeDelta = TimeDelta::seconds(60);

/// Keeps the sets.
pub(crate) struct Keeper {
    handles: Handles,
    /// For everything that a leader writes.
    client: Client,
    /// Where revisions are kept.
    namespace: String,
    served: Namespaces,
    metrics: WatchMetrics,
    teller: Teller,
    rows: Arc<Mutex<Rows>>,
    /// By set and uid: the pods that were updated, and of which nothing has been heard since.
    in_flight: BTreeMap<(String, String), DateTime<Utc>>,
}

impl Keeper {
    pub(crate) fn new(
        namespace: String,
        served: Namespaces,
        handles: Handles,
        leadership: &Leadership,
        metrics: WatchMetrics,
    ) -> Self {
        let rows = Rows::kept_in(&namespace);
        let client = leadership.guard(&handles.client);
        Self {
            teller: Teller::new(client.clone(), handles.clock.clone()),
            client,
            handles,
            namespace,
            served,
            metrics,
            rows: Arc::new(Mutex::new(rows)),
            in_flight: BTreeMap::new(),
        }
    }

    /// Keeps them until shutdown is requested.
    pub(crate) async fn work(mut self) -> Result<()> {
        let shutdown = self.handles.shutdown.clone();
        tokio::select! {
            () = sidecarsets::wait(&self.handles, &self.metrics, Some(&self.namespace), || {}) => {}
            () = shutdown.requested() => return Ok(()),
        }
        let mut watches = WatchSet::new(self.handles.clone(), self.served.clone(), self.metrics.clone());
        self.watch(&mut watches);
        if !watches.synced().await? {
            return Ok(());
        }
        loop {
            self.go_round().await;
            tokio::select! {
                () = self.handles.clock.sleep(ROUND) => {}
                () = shutdown.requested() => return Ok(()),
                ended = watches.ended() => return ended,
            }
        }
    }

    fn watch(&self, watches: &mut WatchSet) {
        let client = &self.handles.client;
        let all = watcher::Config::default;
        let rows = self.rows.clone();
        let sets: Api<GuardedSet> = Api::all(client.clone());
        watches.start_on("SidecarSets", sets, all(), move |change| {
            lock(&rows).set(change);
        });
        let rows = self.rows.clone();
        let revisions: Api<ControllerRevision> = Api::namespaced(client.clone(), &self.namespace);
        let of_sets = all().labels(SET_NAME);
        watches.start_on("revisions of SidecarSets", revisions, of_sets, move |change| {
            lock(&rows).revision(change);
        });
        let rows = self.rows.clone();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        watches.start_on("Namespaces", namespaces, all(), move |change| {
            lock(&rows).namespace(change);
        });
        let rows = self.rows.clone();
        watches.start("pods of SidecarSets", all(), move |change| {
            lock(&rows).pod(change);
        });
    }

    async fn go_round(&mut self) {
        let now = self.handles.clock.now();
        for (set, work, places) in self.all_work(now) {
            let name = set.name_any();
            if let Err(error) = self.done(&set, work, &places, now).await {
                tracing::warn!(%error, set = name, "cannot do all for a SidecarSet; trying again");
                lock(&self.rows).look_again(&name);
            }
        }
    }

    /// What is to be done for each set that something has changed for, and where its pods are.
    #[allow(clippy::type_complexity)]
    fn all_work(
        &mut self,
        now: DateTime<Utc>,
    ) -> Vec<(Arc<SidecarSet>, Work, HashMap<String, (String, String)>)> {
        let mut rows = lock(&self.rows);
        let mut names = rows.take_changed();
        names.extend(self.in_flight.keys().map(|(set, _)| set.clone()));
        self.in_flight
            .retain(|_, since| now.signed_duration_since(*since) < UNHEARD);
        let mut found = Vec::new();
        for set in names.iter().filter_map(|name| rows.sets.get(name)) {
            let pods = rows.pods_of(set);
            for pod in &pods {
                // The watch has caught up with the update.
                if Standing::of(&set.object, pod, false).is_updated {
                    self.in_flight
                        .remove(&(set.name().to_owned(), pod.uid().to_owned()));
                }
            }
            let in_flight: BTreeSet<String> = self
                .in_flight
                .keys()
                .filter(|(name, _)| name == set.name())
                .map(|(_, uid)| uid.clone())
                .collect();
            let work = work(
                &set.object,
                &pods,
                &rows.revisions,
                &self.namespace,
                &in_flight,
                now,
            );
            let places = pods.iter().map(|pod| {
                let place = (pod.metadata.namespace.clone(), pod.metadata.name.clone());
                let place = (place.0.unwrap_or_default(), place.1.unwrap_or_default());
                (pod.uid().to_owned(), place)
            });
            found.push((Arc::clone(&set.object), work, places.collect()));
        }
        found
    }

    async fn done(
        &mut self,
        set: &SidecarSet,
        work: Work,
        places: &HashMap<String, (String, String)>,
        now: DateTime<Utc>,
    ) -> kube::Result<()> {
        let name = set.name_any();
        let has_revision = work.registration.step == Step::Keep;
        self.register(&work.registration).await?;
        if let Some(status) = &work.status {
            let api: Api<SidecarSet> = Api::all(self.client.clone());
            let patch = standing::patch(status);
            api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await?;
        }
        if !has_revision {
            // The rest waits until the revision has been heard of.
            lock(&self.rows).look_again(&name);
            return Ok(());
        }
        let params = PatchParams::default();
        for (uid, patch) in work.updates {
            let Some((namespace, pod)) = places.get(&uid) else {
                continue;
            };
            let patch = match patch {
                Ok(patch) => patch,
                Err(error) => {
                    tracing::warn!(%error, namespace, pod, set = name, "a pod cannot be updated");
                    continue;
                }
            };
            let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
            match api.patch(pod, &params, &Patch::Strategic(patch)).await {
                Ok(_) => {
                    tracing::info!(
                        namespace,
                        pod,
                        set = name,
                        "gave a pod the newest images of its sidecars"
                    );
                    self.in_flight.insert((name.clone(), uid), now);
                }
                // It has changed, or is gone: the next round sees it as it is.
                Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        for told in work.conditions {
            let Some((namespace, pod)) = places.get(&told.uid) else {
                continue;
            };
            let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
            match api
                .patch_status(pod, &params, &Patch::Strategic(told.patch))
                .await
            {
                Err(kube::Error::Api(status)) if status.is_not_found() => continue,
                answer => drop(answer?),
            }
            if !told.is_upgradable && self.teller.may_tell() {
                let about = Told::not_upgradable(namespace, pod, &told.uid, &name);
                self.teller.tell(about).await;
            }
        }
        let revisions: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &self.namespace);
        for name in work.prune {
            match revisions.delete(&name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                answer => drop(answer?),
            }
        }
        Ok(())
    }

    async fn register(&self, registration: &Registration) -> kube::Result<()> {
        let api: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = PatchParams::default();
        let name = &registration.name;
        match &registration.step {
            Step::Keep => {}
            Step::Create(revision) => match api.create(&PostParams::default(), revision).await {
                // The watch is behind; the next round knows it.
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                answer => drop(answer?),
            },
            Step::Renumber { number } => {
                let patch = json!({"revision": number});
                api.patch(name, &params, &Patch::Merge(patch)).await?;
            }
            Step::Relabel { version } => {
                let patch = json!({"metadata": {"labels": {CUSTOM_VERSION: version}}});
                api.patch(name, &params, &Patch::Merge(patch)).await?;
            }
        }
        Ok(())
    }
}

fn lock(rows: &Mutex<Rows>) -> MutexGuard<'_, Rows> {
    rows.lock().unwrap_or_else(PoisonError::into_inner)
}
