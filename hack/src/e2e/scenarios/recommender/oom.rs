//! A container that is killed before anybody could measure what it needs.

use anyhow::Result;
use common::{
    api::vpa::VerticalPodAutoscaler,
    quantity::{Bytes, Quantity},
};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{
    super::{super::Look, crds},
    Recommender, World, watch_over,
};

/// What it asks for and may have; it wants more.
const REQUEST: &str = "64Mi";
/// What it asks for, and the least that a kill adds to that.
const NEEDED: Bytes = Bytes((64 + 100) * 1024 * 1024);
/// What it asks for, by the ratio that its VPA wants, and the safety margin of 15 %; without that ratio it is less.
const THREE_TIMES: Bytes = Bytes(3 * 64 * 1024 * 1024 * 115 / 100);

pub(super) async fn killed(world: &World) -> Result<()> {
    crds::install(world).await?;
    watch_over(world, "apps/v1", "Deployment", "greedy").await?;
    watch_over(world, "apps/v1", "Deployment", "greedier").await?;
    let ratio = json!({"spec": {"resourcePolicy": {"containerPolicies": [
        {"containerName": "app", "oomBumpUpRatio": "3"},
    ]}}});
    let vpas = world.api::<VerticalPodAutoscaler>();
    vpas.patch("greedier", &PatchParams::default(), &Patch::Merge(&ratio))
        .await?;
    // The least of a pod would hide what one kill makes of 64 MiB.
    let flags = [
        "--pod-recommendation-min-memory-mb=10",
        "--feature-gates=PerVPAConfig=true",
    ];
    let recommender = Recommender::start(world, &flags).await?;
    for name in ["greedy", "greedier"] {
        deploy(world, name).await?;
    }
    until_recommended(world, "greedy", NEEDED).await?;
    until_recommended(world, "greedier", THREE_TIMES).await?;
    recommender.stop().await
}

async fn deploy(world: &World, name: &str) -> Result<()> {
    world
        .create_object::<Deployment>(json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {
                        "labels": {"app": name},
                        "annotations": {"sandbox.outrigger.dev/load":
                            r#"{"containers": {"app": {"cpu": "5m", "memory": "100Mi"}}}"#},
                    },
                    "spec": {"terminationGracePeriodSeconds": 1, "containers": [{
                        "name": "app", "image": world.image,
                        "args": ["load", "--cpu", "5m", "--memory", "100Mi", "--listen", ""],
                        "resources": {
                            "requests": {"cpu": "10m", "memory": REQUEST},
                            "limits": {"cpu": "200m", "memory": REQUEST},
                        },
                    }]},
                },
            },
        }))
        .await?;
    Ok(())
}

async fn until_recommended(world: &World, name: &str, least: Bytes) -> Result<()> {
    let vpas = world.api::<VerticalPodAutoscaler>();
    world
        .until(
            &format!("the kill of {name} is answered with more memory"),
            async || {
                let status = vpas.get(name).await?.status.unwrap_or_default();
                let recommendation = status.recommendation.clone().unwrap_or_default();
                let target = recommendation
                    .container_recommendations
                    .first()
                    .and_then(|container| container.target.get("memory"))
                    .map(Quantity::try_from)
                    .transpose()?;
                Ok(match target {
                    Some(target) if Bytes::from_quantity(&target) >= least => Look::Done(()),
                    _ => Look::NotYet(serde_json::to_string(&status)?),
                })
            },
        )
        .await
}
