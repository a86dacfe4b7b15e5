//! Resizes in place: up, down, again, sidecars, and what a node has no room for.

use anyhow::{Result, ensure};
use futures::FutureExt as _;
use serde_json::json;

use super::{
    super::super::{Need, Scenario, World},
    super::install_crds,
    Updater, change_vpa, deployment, events, fresh_lease, pods, ready, recommend, restarts, uids,
    until_requests, vpa,
};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "updater-resizes-in-place",
            about: "pods go up, down and up again in place, without the admission lease, a restart or an eviction; with \
                    the gate their native sidecars too, though admission never saw them",
            needs: &[Need::Node],
            run: |world| resizes(world).boxed_local(),
        },
        Scenario {
            name: "updater-node-too-small",
            about: "what no node has room for is tried once in mode InPlace, and evicted for in mode InPlaceOrRecreate",
            needs: &[Need::Node],
            run: |world| too_small(world).boxed_local(),
        },
    ]
}

async fn resizes(world: &World) -> Result<()> {
    install_crds(world).await?;
    deployment(world, "web", 3).await?;
    vpa(
        world,
        "Deployment",
        "web",
        json!({"updateMode": "InPlaceOrRecreate"}),
    )
    .await?;
    recommend(world, "web", &[("app", "30m", "24Mi"), ("proxy", "10m", "20Mi")]).await?;
    let before = ready(world, "web", 3).await?;
    let (app, proxy) = (("containers", 0), ("initContainers", 1));

    // No lease: resizes need no admission.
    let updater = Updater::start(world, &[]).await?;
    until_requests(world, "web", app, json!({"cpu": "30m", "memory": "24Mi"})).await?;
    updater.until_skipped(world, "NoChange", 3).await?;
    let untouched = pods(world, "web").await?;
    for pod in untouched.values() {
        ensure!(
            pod["spec"]["initContainers"][1]["resources"]["requests"]
                == json!({"cpu": "5m", "memory": "16Mi"}),
            "a sidecar was touched with the gate off: {}",
            pod["spec"]["initContainers"][1]
        );
        ensure!(
            pod["spec"]["containers"][0]["resources"]["limits"] == json!({"cpu": "600m", "memory": "96Mi"}),
            "limits are not in proportion: {}",
            pod["spec"]["containers"][0]
        );
        ensure!(
            pod["metadata"]["annotations"]["vpaInPlaceUpdated"] == "true",
            "not annotated: {}",
            pod["metadata"]["annotations"]
        );
    }
    updater.stop().await?;

    // The gate is switched on under running pods.
    let flags = ["--feature-gates=NativeSidecar=true,InPlace=true"];
    let updater = Updater::start(world, &flags).await?;
    change_vpa(
        world,
        "web",
        json!({"spec": {"updatePolicy": {"updateMode": "InPlace"}}}),
    )
    .await?;
    until_requests(world, "web", proxy, json!({"cpu": "10m", "memory": "20Mi"})).await?;
    recommend(world, "web", &[("app", "20m", "20Mi"), ("proxy", "8m", "18Mi")]).await?;
    until_requests(world, "web", app, json!({"cpu": "20m", "memory": "20Mi"})).await?;
    until_requests(world, "web", proxy, json!({"cpu": "8m", "memory": "18Mi"})).await?;
    recommend(world, "web", &[("app", "25m", "24Mi"), ("proxy", "8m", "18Mi")]).await?;
    until_requests(world, "web", app, json!({"cpu": "25m", "memory": "24Mi"})).await?;
    updater.until_skipped(world, "NoChange", 3).await?;
    updater.loops(world, 2).await?;
    updater.stop().await?;

    let after = pods(world, "web").await?;
    ensure!(uids(&before) == uids(&after), "some pod is another one");
    ensure!(restarts(&after) == 0, "some container was restarted");
    for pod in after.values() {
        let setup = &pod["spec"]["initContainers"][0]["resources"]["requests"];
        ensure!(
            *setup == json!({"cpu": "10m", "memory": "16Mi"}),
            "an ordinary init container was touched: {setup}"
        );
    }
    let told = events(world, "InPlaceResizedByVPA").await?;
    ensure!(told.len() >= 9, "only told of {told:?}");
    ensure!(
        events(world, "EvictedByVPA").await?.is_empty(),
        "something was evicted"
    );
    Ok(())
}

async fn too_small(world: &World) -> Result<()> {
    install_crds(world).await?;
    fresh_lease(world).await?;
    for (name, mode) in [("stay", "InPlace"), ("leave", "InPlaceOrRecreate")] {
        deployment(world, name, 2).await?;
        vpa(world, "Deployment", name, json!({"updateMode": mode})).await?;
        recommend(world, name, &[("app", "999", "24Mi")]).await?;
    }
    let stay = ready(world, "stay", 2).await?;
    let leave = ready(world, "leave", 2).await?;
    let updater = Updater::start(world, &["--feature-gates=InPlace=true"]).await?;
    updater.until_skipped(world, "InfeasibleBefore", 2).await?;
    world
        .until("a pod was evicted", async || {
            let evicted = events(world, "EvictedByVPA").await?;
            Ok(if evicted.is_empty() {
                super::Look::NotYet("none".to_owned())
            } else {
                super::Look::Done(())
            })
        })
        .await?;
    updater.loops(world, 2).await?;
    let evicted = events(world, "EvictedByVPA").await?;
    ensure!(
        evicted
            .iter()
            .all(|name| leave.contains_key(name) || name.starts_with("leave")),
        "evicted {evicted:?}"
    );
    ensure!(
        uids(&stay) == uids(&pods(world, "stay").await?),
        "a pod in mode InPlace is gone"
    );
    let skipped = events(world, "InPlaceResizeSkipped").await?;
    ensure!(skipped.len() == 2, "told of {skipped:?}");
    // What fits is tried again.
    recommend(world, "stay", &[("app", "20m", "24Mi")]).await?;
    until_requests(
        world,
        "stay",
        ("containers", 0),
        json!({"cpu": "20m", "memory": "24Mi"}),
    )
    .await?;
    updater.stop().await
}
