//! SidecarSets where Outrigger keeps them: revisions, status, and new images for running pods.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use common::{
    api::{
        k8s::{ControllerRevision, Event, Pod},
        sidecarset::{SidecarSet, SidecarSetStatus},
    },
    sidecarset::revision::SET_NAME,
};
use futures::FutureExt as _;
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::super::{Look, Need, Scenario, World};
use super::{
    sidecarset_inject::{Injector, deployment, in_scope, made, record, set},
    updater::Updater,
};

const PODS: usize = 3;

pub(super) fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "sidecarset-keeps",
        about: "a SidecarSet gets its revisions and its status; a new image reaches running pods within pause, partition and \
                maxUnavailable; what they cannot take they say; and new pods get an older revision",
        needs: &[Need::Node, Need::LocalWebhooks],
        run: |world| in_scope(world, keeps).boxed_local(),
    }]
}

async fn keeps(world: &World) -> Result<()> {
    let injector = Injector::start(world)?;
    injector
        .register(world, "one", &json!({"of": world.namespace}))
        .await?;
    made(world, &set(world)).await?;
    let revisions = format!("--sidecarset-revision-namespace={}", world.namespace);
    let updater = Updater::start(world, &["--sidecarset-mode=inject", &revisions]).await?;
    let status = until_status(world, "the first revision is named", |status| {
        !status.latest_revision.is_empty()
    })
    .await?;
    let first = status.latest_revision;
    ensure!(
        revisions_of(world).await? == [(1, first.clone())],
        "not one revision"
    );

    deployment(world, u32::try_from(PODS)?).await?;
    let before = until_injected(world).await?;
    until_status(world, "all pods count", |status| {
        counts(status) == (PODS, PODS, PODS, PODS)
    })
    .await?;

    // While it is paused a new image is a revision and no more.
    let image = world.image.replace("workload", "pause");
    change(
        world,
        json!({
            "updateStrategy": {"paused": true, "partition": 2, "maxUnavailable": 1},
            "containers": [with(world, "image", json!(image))],
        }),
    )
    .await?;
    let status = until_status(world, "the second revision is named", |status| {
        status.latest_revision != first && counts(status) == (PODS, 0, PODS, 0)
    })
    .await?;
    let second = status.latest_revision;
    ensure!(
        revisions_of(world).await? == [(1, first.clone()), (2, second.clone())],
        "not two revisions"
    );
    updater.loops(world, 2).await?;
    ensure!(
        with_image(world, &image).await? == 0,
        "a paused set has reached a pod"
    );

    // The partition keeps two of three.
    change(world, json!({"updateStrategy": {"paused": false}})).await?;
    until_status(world, "one pod is updated", |status| {
        counts(status) == (PODS, 1, PODS, 1)
    })
    .await?;
    updater.loops(world, 3).await?;
    ensure!(
        with_image(world, &image).await? == 1,
        "more than the partition lets go"
    );

    // One at a time.
    change(world, json!({"updateStrategy": {"partition": 0}})).await?;
    until_one_by_one(world, &image).await?;
    until_status(world, "all pods are updated", |status| {
        counts(status) == (PODS, PODS, PODS, PODS)
    })
    .await?;
    let pods = pods(world).await?;
    ensure!(
        pods.keys().eq(before.keys()),
        "some pods are not the same: {:?} and {:?}",
        before.keys(),
        pods.keys()
    );
    for pod in pods.values() {
        ensure!(
            record(pod, world)?.1 == second,
            "noted: {}",
            pod["metadata"]["annotations"]
        );
    }

    // More than an image: they say that they cannot take it.
    let env = json!([{"name": "REVISION", "value": "third"}]);
    change(world, json!({"containers": [with(world, "env", env)]})).await?;
    until_told(world).await?;

    // New pods get what was first, as its revision kept it.
    change(
        world,
        json!({"injectionStrategy": {"revision": {"revisionName": first, "policy": "Always"}}}),
    )
    .await?;
    until_older(world, &first).await?;
    updater.stop().await?;
    injector.stop().await
}

/// The scenario's sidecar with one field changed.
fn with(world: &World, field: &str, value: Value) -> Value {
    let mut sidecar = set(world)["spec"]["containers"][0].clone();
    sidecar[field] = value;
    sidecar
}

async fn change(world: &World, spec: Value) -> Result<()> {
    let api: Api<SidecarSet> = Api::all(world.client.clone());
    let patch = Patch::Merge(json!({"spec": spec}));
    api.patch(&world.namespace, &PatchParams::default(), &patch)
        .await
        .context("changing the set")?;
    Ok(())
}

/// Matched, updated, ready, and both of these.
fn counts(status: &SidecarSetStatus) -> (usize, usize, usize, usize) {
    let count = |count: i32| usize::try_from(count).unwrap_or_default();
    (
        count(status.matched_pods),
        count(status.updated_pods),
        count(status.ready_pods),
        count(status.updated_ready_pods),
    )
}

/// Waits until the status is of the set as it is now, and like this.
async fn until_status(
    world: &World,
    what: &str,
    is: impl Fn(&SidecarSetStatus) -> bool,
) -> Result<SidecarSetStatus> {
    let api: Api<SidecarSet> = Api::all(world.client.clone());
    world
        .until(what, async || {
            let set = api.get(&world.namespace).await?;
            let generation = set.metadata.generation.unwrap_or_default();
            Ok(match set.status {
                Some(status) if status.observed_generation == generation && is(&status) => Look::Done(status),
                status => Look::NotYet(format!("generation {generation}, {status:?}")),
            })
        })
        .await
}

async fn revisions_of(world: &World) -> Result<Vec<(i64, String)>> {
    let params = ListParams::default().labels(&format!("{SET_NAME}={}", world.namespace));
    let found = world.api::<ControllerRevision>().list(&params).await?;
    let mut found: Vec<_> = found
        .into_iter()
        .map(|revision| (revision.revision, revision.metadata.name.unwrap_or_default()))
        .collect();
    found.sort();
    Ok(found)
}

/// The live pods by uid.
async fn pods(world: &World) -> Result<BTreeMap<String, Value>> {
    let found = world.api::<Pod>().list(&ListParams::default()).await?;
    found
        .into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .map(|pod| {
            Ok((
                pod.metadata.uid.clone().unwrap_or_default(),
                serde_json::to_value(pod)?,
            ))
        })
        .collect()
}

fn agent(pod: &Value) -> &Value {
    let mut containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    containers
        .find(|container| container["name"] == "agent")
        .unwrap_or(&Value::Null)
}

async fn with_image(world: &World, image: &str) -> Result<usize> {
    let pods = pods(world).await?;
    Ok(pods.values().filter(|pod| agent(pod)["image"] == image).count())
}

/// Waits until all pods have the agent; those that came before the webhook was heard of are made again.
async fn until_injected(world: &World) -> Result<BTreeMap<String, Value>> {
    let now = DeleteParams::default().grace_period(0);
    world
        .until("all pods have the agent", async || {
            let pods = pods(world).await?;
            let without: Vec<_> = pods.values().filter(|pod| agent(pod).is_null()).collect();
            for pod in &without {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                world.api::<Pod>().delete(name, &now).await?;
            }
            Ok(if without.is_empty() && pods.len() == PODS {
                Look::Done(pods)
            } else {
                Look::NotYet(format!("{} pods, {} of them without", pods.len(), without.len()))
            })
        })
        .await
}

/// Waits until all pods have the image. On the way at most one of them runs another than it should.
async fn until_one_by_one(world: &World, image: &str) -> Result<()> {
    world
        .until("all pods have the new image", async || {
            let pods = pods(world).await?;
            let is_under_way = |pod: &Value| {
                let statuses = pod["status"]["containerStatuses"].as_array();
                let mut statuses = statuses.into_iter().flatten();
                let status = statuses.find(|status| status["name"] == "agent");
                agent(pod)["image"] == image
                    && status.is_none_or(|status| {
                        status["ready"] != true
                            || !status["image"].as_str().unwrap_or_default().ends_with(image)
                    })
            };
            let under_way = pods.values().filter(|pod| is_under_way(pod)).count();
            ensure!(under_way <= 1, "{under_way} pods are updated at once");
            let done = pods.values().filter(|pod| agent(pod)["image"] == image).count();
            Ok(if done == PODS {
                Look::Done(())
            } else {
                Look::NotYet(format!("{done} pods"))
            })
        })
        .await
}

/// Waits until all pods say that they cannot be updated, and events do.
async fn until_told(world: &World) -> Result<()> {
    world
        .until("the pods say that they cannot take it", async || {
            let pods = pods(world).await?;
            let tells = |pod: &&Value| {
                let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
                conditions.into_iter().any(|condition| {
                    condition["type"] == "SidecarSetUpgradable"
                        && condition["status"] == "False"
                        && condition["reason"] == "UpdateImmutableField"
                })
            };
            let told = pods.values().filter(tells).count();
            let events = world.api::<Event>().list(&ListParams::default()).await?;
            let events = events
                .into_iter()
                .filter(|event| event.reason.as_deref() == Some("UpdateImmutableField"));
            let events = events.count();
            Ok(if told == PODS && events >= PODS {
                Look::Done(())
            } else {
                Look::NotYet(format!("{told} conditions, {events} events"))
            })
        })
        .await
}

/// Makes pods anew until they come with the revision and what it had.
async fn until_older(world: &World, revision: &str) -> Result<()> {
    let env = json!({"name": "REVISION", "value": "new"});
    world
        .until("new pods have the first revision", async || {
            let pods = pods(world).await?;
            let is_first = |pod: &&Value| {
                agent(pod)["image"] == world.image.as_str()
                    && agent(pod)["env"]
                        .as_array()
                        .is_some_and(|found| found.contains(&env))
                    && record(pod, world).is_ok_and(|(_, found)| found == revision)
            };
            let first = pods.values().filter(is_first).count();
            if first == PODS {
                return Ok(Look::Done(()));
            }
            for pod in pods.values().filter(|pod| !is_first(pod)) {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                world
                    .api::<Pod>()
                    .delete(name, &DeleteParams::default().grace_period(0))
                    .await?;
            }
            Ok(Look::NotYet(format!("{first} of {} pods", pods.len())))
        })
        .await
}
