//! Admission and updater together: what each update mode does to running pods and to those that come after, and where they
//! stop.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use common::api::k8s::{Deployment, Pod};
use futures::FutureExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::{
    super::super::{Look, Need, Scenario, World},
    super::install_crds,
    Updater,
    admission::Admission,
    admitted, events, fresh_lease, pods, ready, recommend, template, uids, until_requests, vpa,
};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "updater-minds-modes",
            about: "Off changes nothing, Initial only pods that are made anew, InPlaceOrRecreate all containers of all pods \
                    without an eviction",
            needs: &[Need::Node, Need::LocalWebhooks],
            run: |world| beside_admission(world, modes).boxed_local(),
        },
        Scenario {
            name: "updater-stops-at-pending-pods",
            about: "when a replacement fits no node, the other pods are left running",
            needs: &[Need::Node, Need::LocalWebhooks],
            run: |world| beside_admission(world, pending).boxed_local(),
        },
        Scenario {
            name: "updater-waits-for-deferred-resizes",
            about: "a resize that its node defers is waited for five minutes, and then the pod is evicted",
            needs: &[Need::Node, Need::VirtualTime],
            run: |world| deferred(world).boxed_local(),
        },
    ]
}

/// Runs a part of a scenario while new pods are sized.
async fn beside_admission(world: &World, part: impl AsyncFn(&World) -> Result<()>) -> Result<()> {
    install_crds(world).await?;
    fresh_lease(world).await?;
    let admission = Admission::start(world, false).await?;
    let outcome = part(world).await;
    admission.stop(world).await?;
    outcome
}

/// A Deployment of pods with two containers, `app` and `second`.
async fn deploy(world: &World, name: &str, replicas: usize) -> Result<()> {
    let mut template = template(world, name, false);
    let mut second = template["spec"]["containers"][0].clone();
    second["name"] = json!("second");
    second["args"] = json!(["sleep", "1h"]);
    let containers = template["spec"]["containers"].as_array_mut();
    containers.context("containers are a list")?.push(second);
    world
        .create_object::<Deployment>(json!({
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
        }))
        .await?;
    Ok(())
}

async fn modes(world: &World) -> Result<()> {
    let modes = [
        ("acts", "InPlaceOrRecreate"),
        ("initial", "Initial"),
        ("off", "Off"),
    ];
    for (name, mode) in modes {
        vpa(world, "Deployment", name, json!({"updateMode": mode})).await?;
        deploy(world, name, 3).await?;
    }
    // Nobody marks the pods of a VPA that is off.
    let mut before = [
        admitted(world, "acts", 3).await?,
        admitted(world, "initial", 3).await?,
        ready(world, "off", 3).await?,
    ];
    for (name, _) in modes {
        recommend(world, name, &[("app", "30m", "24Mi"), ("second", "20m", "32Mi")]).await?;
    }
    let updater = Updater::start(world, &[]).await?;
    let first = json!({"cpu": "30m", "memory": "24Mi"});
    until_requests(world, "acts", ("containers", 0), first).await?;
    let second = json!({"cpu": "20m", "memory": "32Mi"});
    until_requests(world, "acts", ("containers", 1), second).await?;
    updater.loops(world, 2).await?;
    for ((name, _), before) in modes.iter().zip(&mut before) {
        let now = ready(world, name, 3).await?;
        ensure!(
            uids(before) == uids(&now),
            "something was evicted in mode of {name}"
        );
        let (gone, _) = before.pop_first().context("three pods")?;
        let soon = DeleteParams::default().grace_period(1);
        world.api::<Pod>().delete(&gone, &soon).await?;
    }
    for ((name, _), (before, sized)) in modes.iter().zip(before.iter().zip([3, 1, 0])) {
        let now = ready(world, name, 3).await?;
        let old = uids(before).iter().filter(|uid| uids(&now).contains(uid)).count();
        ensure!(
            old == 2,
            "{old} of the two that were left alone are left of {name}"
        );
        let has = now.values().filter(|pod| {
            let cpu = |index: usize| &pod["spec"]["containers"][index]["resources"]["requests"]["cpu"];
            *cpu(0) == "30m" && *cpu(1) == "20m"
        });
        let has = has.count();
        ensure!(has == sized, "{has} pods of {name} are sized, not {sized}");
    }
    updater.stop().await
}

async fn pending(world: &World) -> Result<()> {
    vpa(world, "Deployment", "web", json!({"updateMode": "Recreate"})).await?;
    deploy(world, "web", 3).await?;
    admitted(world, "web", 3).await?;
    recommend(world, "web", &[("app", "9999", "24Mi")]).await?;
    let updater = Updater::start(world, &[]).await?;
    world
        .until("a replacement waits for a node", async || {
            let waiting = waiting(world).await?;
            Ok(if waiting > 0 {
                Look::Done(())
            } else {
                Look::NotYet("all run".to_owned())
            })
        })
        .await?;
    for _ in 0..4 {
        updater.loops(world, 1).await?;
        let waiting = waiting(world).await?;
        ensure!(waiting <= 1, "{waiting} pods wait for a node that is nowhere");
    }
    updater.stop().await
}

async fn waiting(world: &World) -> Result<usize> {
    let pods = pods(world, "web").await?;
    let waits = |pod: &&Value| pod["status"]["phase"] == "Pending" && pod["spec"]["nodeName"].is_null();
    Ok(pods.values().filter(waits).count())
}

/// Of two pods on a node of 16 cores only one can have 10.
async fn deferred(world: &World) -> Result<()> {
    install_crds(world).await?;
    fresh_lease(world).await?;
    let mode = json!({"updateMode": "InPlaceOrRecreate"});
    vpa(world, "Deployment", "web", mode).await?;
    let template = template(world, "web", true);
    world
        .create_object::<Deployment>(json!({
            "metadata": {"name": "web"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        }))
        .await?;
    let before = ready(world, "web", 2).await?;
    recommend(world, "web", &[("app", "10", "24Mi")]).await?;
    let updater = Updater::start(world, &[]).await?;
    updater.until_skipped(world, "ResizeDeferred", 1).await?;
    world.pass(Duration::from_secs(280)).await?;
    ensure!(
        uids(&before) == uids(&pods(world, "web").await?),
        "evicted before five minutes were over"
    );
    world.pass(Duration::from_secs(60)).await?;
    let evicted = events(world, "EvictedByVPA").await?;
    ensure!(evicted.len() == 1, "evicted: {evicted:?}");
    updater.stop().await
}
