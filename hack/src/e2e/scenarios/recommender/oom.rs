//! A container that is killed before anybody could measure what it needs.

use std::time::Duration;

use anyhow::Result;
use common::{
    api::vpa::VerticalPodAutoscaler,
    quantity::{Bytes, Quantity},
};
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::json;

use super::{
    super::{super::Look, crds},
    Recommender, World, watch_over,
};

/// What it asks for and may have; it wants more.
const REQUEST: &str = "64Mi";
/// What it asks for, and the least that a kill adds to that.
const NEEDED: Bytes = Bytes((64 + 100) * 1024 * 1024);

pub(super) async fn killed(world: &World) -> Result<()> {
    crds::install(world).await?;
    watch_over(world, "apps/v1", "Deployment", "greedy").await?;
    // The least of a pod would hide what one kill makes of 64 MiB.
    let recommender = Recommender::start(world, &["--pod-recommendation-min-memory-mb=10"]).await?;
    world
        .create_object::<Deployment>(json!({
            "metadata": {"name": "greedy"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "greedy"}},
                "template": {
                    "metadata": {
                        "labels": {"app": "greedy"},
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
    let vpas = world.api::<VerticalPodAutoscaler>();
    world
        .until(
            "the kill is answered with more memory",
            Duration::from_secs(300),
            async || {
                let status = vpas.get("greedy").await?.status.unwrap_or_default();
                let recommendation = status.recommendation.clone().unwrap_or_default();
                let target = recommendation
                    .container_recommendations
                    .first()
                    .and_then(|container| container.target.get("memory"))
                    .map(Quantity::try_from)
                    .transpose()?;
                Ok(match target {
                    Some(target) if Bytes::from_quantity(&target) >= NEEDED => Look::Done(()),
                    _ => Look::NotYet(serde_json::to_string(&status)?),
                })
            },
        )
        .await?;
    recommender.stop().await
}
