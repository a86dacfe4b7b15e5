//! Checkpoint objects: read at the start, written when they are due, collected when their VPA is gone
//! (`spec/vpa.md` 2.6). What they contain is [`crate::checkpoint`]'s business.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use anyhow::Result;
use chrono::{DateTime, TimeDelta, Utc};
use common::{
    api::{
        checkpoint::{VerticalPodAutoscalerCheckpoint, VerticalPodAutoscalerCheckpointSpec},
        k8s::ObjectMeta,
        vpa::{ConditionType, VerticalPodAutoscaler},
    },
    clock::Clock,
    daemon::{Namespaces, Shutdown},
};
use futures::{StreamExt as _, stream};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, json};

use crate::{
    checkpoint::ANNOTATION,
    cluster::{Checkpoint, Dirty, Name},
    conditions::Conditions,
    feed::{Feed, Shared, page, vpas::Key},
    metrics::Metrics,
    write::{is_not_found, patiently},
};

/// What works on checkpoints needs.
#[derive(Clone)]
pub(crate) struct Checkpoints {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) feed: Shared,
    pub(crate) namespaces: Namespaces,
    pub(crate) metrics: Metrics,
    pub(crate) workers: usize,
    pub(crate) shutdown: Shutdown,
}

impl Checkpoints {
    /// Reads all checkpoints of our VPAs into the model. Tries until they could be read, since going on without them
    /// would mean to overwrite them with nothing; false if shutdown is requested first.
    pub(crate) async fn load(&self) -> bool {
        {
            let mut feed = self.feed.lock();
            let Feed { cluster, vpas, .. } = &mut *feed;
            // Those whose target could not be asked for yet are not there to take theirs.
            for ((namespace, name), row) in &mut vpas.ours {
                row.unread = cluster.vpa(namespace, name).is_none();
            }
            vpas.late = true;
        }
        let mut pause = Duration::from_secs(1);
        loop {
            let listed = tokio::select! {
                listed = list(&self.client, &self.namespaces, |checkpoint| {
                    load_one(&self.feed, &checkpoint, self.clock.now());
                }) => listed,
                () = self.shutdown.requested() => return false,
            };
            match listed {
                Ok(count) => {
                    tracing::info!(count, "read the checkpoints");
                    return true;
                }
                Err(error) => tracing::warn!(%error, "cannot read the checkpoints, and tries again"),
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.shutdown.requested() => return false,
            }
            pause = (pause * 2).min(Duration::from_secs(30));
        }
    }

    /// Reads the checkpoints of VPAs that came after all of them were read; none of theirs is written before. What the
    /// model knows of their pods anyway is not counted again.
    pub(crate) async fn load_late(&self) {
        let late: BTreeSet<Key> = {
            let feed = self.feed.lock();
            let unread = feed.vpas.ours.iter().filter(|(_, row)| row.unread);
            let known = unread.filter(|((namespace, name), _)| feed.cluster.vpa(namespace, name).is_some());
            known.map(|(key, _)| key.clone()).collect()
        };
        let namespaces: BTreeSet<&String> = late.iter().map(|(namespace, _)| namespace).collect();
        for namespace in namespaces {
            let only = Namespaces::Only(namespace.clone());
            let listed = list(&self.client, &only, |checkpoint| {
                let key = (namespace.clone(), checkpoint.spec.vpa_object_name.clone());
                if late.contains(&key) && self.is_news(&key, &checkpoint) {
                    load_one(&self.feed, &checkpoint, self.clock.now());
                }
            });
            if let Err(error) = listed.await {
                tracing::warn!(namespace, %error, "cannot read the checkpoints of new VPAs, and tries again");
                return;
            }
            let mut feed = self.feed.lock();
            let read = late.iter().filter(|(of, _)| of == namespace);
            for key in read {
                if let Some(row) = feed.vpas.ours.get_mut(key) {
                    row.unread = false;
                }
            }
        }
    }

    fn is_news(&self, (namespace, vpa): &Key, checkpoint: &VerticalPodAutoscalerCheckpoint) -> bool {
        let container = &checkpoint.spec.container_name;
        checkpoint.status.as_ref().is_some_and(|status| {
            let feed = self.feed.lock();
            feed.cluster.is_news((namespace, vpa), container, status)
        })
    }

    /// Writes the checkpoints that are due, or all that changed for an age of zero, as many as fit into the time.
    pub(crate) async fn write(&self, max_age: TimeDelta, budget: Duration) {
        let due = self
            .feed
            .lock()
            .cluster
            .due_checkpoints(self.clock.now(), max_age);
        let started = tokio::time::Instant::now();
        stream::iter(due)
            .for_each_concurrent(self.workers, async |id| {
                if started.elapsed() < budget {
                    self.write_one(id).await;
                }
            })
            .await;
    }

    async fn write_one(&self, (namespace, vpa, container): (Name, Name, Name)) {
        // One that we cannot compute, because of a mistake of ours, costs the others nothing.
        let taken = catch_unwind(AssertUnwindSafe(|| self.take((&namespace, &vpa), &container)));
        let Ok(taken) = taken else {
            tracing::error!(%namespace, %vpa, %container, "cannot compute a checkpoint: this is a bug");
            self.metrics.write("checkpoint", "bug");
            return;
        };
        let Some((checkpoint, mark)) = taken else { return };
        let outcome = self.save(&namespace, &vpa, &container, &checkpoint).await;
        match outcome {
            Ok(()) => self.metrics.write("checkpoint", "written"),
            Err(error) => {
                tracing::warn!(%namespace, %vpa, %container, %error, "cannot write a checkpoint");
                self.metrics.write("checkpoint", "failed");
                if let Some(mark) = mark {
                    let mut feed = self.feed.lock();
                    feed.cluster.mark_dirty((&namespace, &vpa), &container, mark);
                }
            }
        }
    }

    /// What is to be written now, if it is ours to write and has been read before.
    fn take(&self, id: (&str, &str), container: &str) -> Option<(Checkpoint, Option<Dirty>)> {
        let now = self.clock.now();
        let mut feed = self.feed.lock();
        let row = feed.vpas.ours.get(&(id.0.to_owned(), id.1.to_owned()));
        let fetching = row.is_some_and(|row| {
            let conditions: Conditions = row.observed.conditions.iter().cloned().collect();
            row.unread || conditions.is_true(&ConditionType::FetchingHistory)
        });
        if fetching {
            return None;
        }
        feed.cluster.take_checkpoint(id, container, now)
    }

    /// Writes one object: a patch where it is there already, and a new object where not.
    async fn save(
        &self,
        namespace: &str,
        vpa: &str,
        container: &str,
        checkpoint: &Checkpoint,
    ) -> Result<(), kube::Error> {
        let api: Api<VerticalPodAutoscalerCheckpoint> = Api::namespaced(self.client.clone(), namespace);
        let name = format!("{vpa}-{container}");
        let parameters = PatchParams::default();
        let mut refused = None;
        for operations in patches(checkpoint) {
            let patch =
                Patch::<()>::Json(serde_json::from_value(operations).map_err(kube::Error::SerdeError)?);
            match patiently(|| api.patch(&name, &parameters, &patch)).await {
                Ok(_) => return Ok(()),
                Err(error) if is_not_found(&error) => {
                    return self.create(&api, &name, (vpa, container), checkpoint).await;
                }
                // The object has no annotations to add one to, or none to remove.
                Err(error) if is_invalid(&error) => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        refused.map_or(Ok(()), Err)
    }

    async fn create(
        &self,
        api: &Api<VerticalPodAutoscalerCheckpoint>,
        name: &str,
        (vpa, container): (&str, &str),
        checkpoint: &Checkpoint,
    ) -> Result<(), kube::Error> {
        let annotation = checkpoint.annotation.clone();
        let object = VerticalPodAutoscalerCheckpoint {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                annotations: annotation.map(|text| BTreeMap::from([(ANNOTATION.to_owned(), text)])),
                ..ObjectMeta::default()
            },
            spec: VerticalPodAutoscalerCheckpointSpec {
                vpa_object_name: vpa.to_owned(),
                container_name: container.to_owned(),
            },
            status: Some(checkpoint.status.clone()),
        };
        let parameters = PostParams::default();
        patiently(|| api.create(&parameters, &object)).await.map(drop)
    }

    /// Deletes the checkpoints whose VPA is gone. Everybody's VPAs count, and the API server is asked once more before
    /// anything is deleted: what we have not heard of may be there all the same.
    pub(crate) async fn collect(&self) -> Result<(), kube::Error> {
        let mut orphans = Vec::new();
        list(&self.client, &self.namespaces, |checkpoint| {
            let namespace = checkpoint.namespace().unwrap_or_default();
            let key = (namespace, checkpoint.spec.vpa_object_name.clone());
            if !self.feed.lock().vpas.exists(&key) {
                orphans.push((key, checkpoint.metadata));
            }
        })
        .await?;
        for ((namespace, vpa), metadata) in orphans {
            let vpas: Api<VerticalPodAutoscaler> = Api::namespaced(self.client.clone(), &namespace);
            if !vpa.is_empty() && vpas.get_metadata_opt(&vpa).await?.is_some() {
                continue;
            }
            let api: Api<VerticalPodAutoscalerCheckpoint> = Api::namespaced(self.client.clone(), &namespace);
            let name = metadata.name.unwrap_or_default();
            let unchanged = DeleteParams::default().preconditions(Preconditions {
                uid: metadata.uid,
                resource_version: metadata.resource_version,
            });
            match api.delete(&name, &unchanged).await {
                Ok(_) => {
                    tracing::info!(namespace, name, "deleted a checkpoint whose VPA is gone");
                    self.metrics.write("checkpoint", "deleted");
                }
                Err(error) if is_not_found(&error) => {}
                Err(error) => tracing::warn!(namespace, name, %error, "cannot delete a checkpoint"),
            }
        }
        Ok(())
    }
}

/// Begins the history of one of our VPAs' containers with its checkpoint.
pub(crate) fn load_one(feed: &Shared, checkpoint: &VerticalPodAutoscalerCheckpoint, now: DateTime<Utc>) {
    let namespace = checkpoint.namespace().unwrap_or_default();
    let VerticalPodAutoscalerCheckpointSpec {
        vpa_object_name,
        container_name,
    } = &checkpoint.spec;
    let Some(status) = &checkpoint.status else { return };
    let annotation = checkpoint.annotations().get(ANNOTATION).map(String::as_str);
    let id = (namespace.as_str(), vpa_object_name.as_str());
    let loaded = feed
        .lock()
        .cluster
        .load_checkpoint(id, container_name, status, annotation, now);
    if let Err(error) = loaded {
        let name = checkpoint.name_any();
        tracing::warn!(namespace, name, %error, "a checkpoint cannot be read and is left out");
    }
}

/// Lists the checkpoints of the namespaces we serve, page by page; gives how many there are.
pub(crate) async fn list(
    client: &Client,
    namespaces: &Namespaces,
    mut tell: impl FnMut(VerticalPodAutoscalerCheckpoint),
) -> Result<usize, kube::Error> {
    let api: Api<VerticalPodAutoscalerCheckpoint> = match namespaces {
        Namespaces::Only(namespace) => Api::namespaced(client.clone(), namespace),
        Namespaces::All | Namespaces::Except(_) => Api::all(client.clone()),
    };
    let mut next: Option<String> = None;
    let mut count = 0;
    loop {
        let list = api.list(&page(next.as_deref())).await?;
        for checkpoint in list.items {
            let namespace = checkpoint.metadata.namespace.as_deref().unwrap_or_default();
            if namespaces.include(namespace) {
                count += 1;
                tell(checkpoint);
            }
        }
        next = list.metadata.continue_.filter(|token| !token.is_empty());
        if next.is_none() {
            return Ok(count);
        }
    }
}

/// The patches to try one after the other: a JSON patch can neither add to annotations that are not there nor remove
/// what is not there, and a merge patch would mix the weights of old and new histograms.
fn patches(checkpoint: &Checkpoint) -> Vec<Value> {
    let path = format!("/metadata/annotations/{}", ANNOTATION.replace('/', "~1"));
    let status = json!({"op": "add", "path": "/status", "value": checkpoint.status});
    match &checkpoint.annotation {
        Some(text) => vec![
            json!([{"op": "add", "path": path, "value": text}, status]),
            json!([{"op": "add", "path": "/metadata/annotations", "value": {ANNOTATION: text}}, status]),
        ],
        None => vec![json!([{"op": "remove", "path": path}, status]), json!([status])],
    }
}

fn is_invalid(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 400 | 422))
}
