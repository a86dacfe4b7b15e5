//! The gate on and off in each of the three daemons: whatever the mixture, pods settle and nothing is evicted for ever.

use anyhow::{Result, ensure};
use common::api::k8s::Deployment;
use futures::FutureExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::{
    super::super::{Look, Need, Scenario, World},
    super::install_crds,
    Updater,
    admission::Admission,
    admitted, fresh_lease, pods, ready, recommend, template, uids, vpa,
};

pub(super) fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "updater-gates-mix",
        about: "with the sidecar gate on and off in each of the three daemons pods come to rest, and nothing is evicted in a loop",
        needs: &[Need::Node, Need::LocalWebhooks],
        run: |world| mix(world).boxed_local(),
    }]
}

async fn mix(world: &World) -> Result<()> {
    install_crds(world).await?;
    fresh_lease(world).await?;
    for admission in [true, false] {
        let component = Admission::start(world, admission).await?;
        let outcome = async {
            for updater in [true, false] {
                round(world, admission, updater).await?;
            }
            anyhow::Ok(())
        };
        let outcome = outcome.await;
        component.stop(world).await?;
        outcome?;
    }
    Ok(())
}

/// One admission, one updater, and recommendations with and without the sidecar.
async fn round(world: &World, admission: bool, updater: bool) -> Result<()> {
    let app = ("app", "30m", "24Mi");
    let proxy = ("proxy", "10m", "20Mi");
    let cases = [("on", vec![app, proxy]), ("off", vec![app])];
    let name_of = |recommender: &str| format!("web-{admission}-{updater}-{recommender}");
    for (recommender, recommended) in &cases {
        let name = name_of(recommender);
        // Made before there is a recommendation, so that they have to be evicted.
        vpa(world, "Deployment", &name, json!({"updateMode": "Recreate"})).await?;
        world
            .create_object::<Deployment>(json!({
                "metadata": {"name": name},
                "spec": {
                    "replicas": 2, "selector": {"matchLabels": {"app": name}},
                    "template": template(world, &name, false),
                },
            }))
            .await?;
        let pods = admitted(world, &name, 2).await?;
        let observed = if admission { "app, proxy" } else { "app" };
        for pod in pods.values() {
            ensure!(
                pod["metadata"]["annotations"]["vpaObservedContainers"] == observed,
                "admission left {}",
                pod["metadata"]["annotations"]
            );
        }
        recommend(world, &name, recommended).await?;
    }
    let running = Updater::start(world, &[&format!("--feature-gates=NativeSidecar={updater}")]).await?;
    for (recommender, _) in &cases {
        let sized = admission && *recommender == "on";
        let proxy = if sized { "10m" } else { "5m" };
        until_sized(world, &name_of(recommender), proxy).await?;
    }
    running.loops(world, 1).await?;
    let mut before = Vec::new();
    for (recommender, _) in &cases {
        before.push(ready(world, &name_of(recommender), 2).await?);
    }
    running.loops(world, 4).await?;
    for ((recommender, _), before) in cases.iter().zip(&before) {
        let after = pods(world, &name_of(recommender)).await?;
        ensure!(
            uids(before) == uids(&after),
            "evicted again: admission {admission}, updater {updater}, recommender {recommender}"
        );
    }
    running.stop().await?;
    for (recommender, _) in &cases {
        let deployments = world.api::<Deployment>();
        deployments
            .delete(&name_of(recommender), &DeleteParams::background())
            .await?;
    }
    Ok(())
}

async fn until_sized(world: &World, name: &str, proxy: &str) -> Result<()> {
    world
        .until(
            &format!("{name} has its size, and its proxy {proxy}"),
            async || {
                let pods = pods(world, name).await?;
                let cpu = |container: &Value| container["resources"]["requests"]["cpu"].clone();
                let has = pods.values().map(|pod| {
                    (
                        cpu(&pod["spec"]["containers"][0]),
                        cpu(&pod["spec"]["initContainers"][1]),
                    )
                });
                let has: Vec<_> = has.collect();
                Ok(
                    if has.len() == 2
                        && has
                            .iter()
                            .all(|(app, sidecar)| *app == "30m" && *sidecar == proxy)
                    {
                        Look::Done(())
                    } else {
                        Look::NotYet(format!("{has:?}"))
                    },
                )
            },
        )
        .await
}
