//! A mesh moves its proxy from `containers` to `initContainers`, as each does one day, and nothing is forgotten.

use anyhow::{Context as _, Result, ensure};
use common::api::vpa::VerticalPodAutoscaler;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{
    super::{super::Look, crds, pod_spec, workload},
    GATE_ON, Recommender, World, checkpoint, recommended, watch_over,
};

pub(super) async fn kept(world: &World) -> Result<()> {
    crds::install(world).await?;
    watch_over(world, "apps/v1", "Deployment", "web").await?;
    let native = pod_spec(world);
    let mut regular = native.clone();
    let mut proxy = native["initContainers"][1].clone();
    let fields = proxy.as_object_mut().context("a container")?;
    fields.remove("restartPolicy");
    let containers = regular["containers"].as_array_mut();
    containers.context("containers are a list")?.push(proxy);
    regular["initContainers"] = Value::Null;
    world
        .create_object::<Deployment>(json!({
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": regular},
            },
        }))
        .await?;
    workload::replicas_ready(world, 2).await?;
    let recommender = Recommender::start(world, &[GATE_ON]).await?;
    recommended(world, "web", &["app", "proxy"]).await?;
    let before = world
        .until("the proxy's checkpoint is written", async || {
            Ok(match checkpoint(world, "web-proxy").await {
                Ok(written) if written.total_samples_count > 0 => Look::Done(written),
                other => Look::NotYet(format!("{other:?}")),
            })
        })
        .await?;

    let template = json!({"spec": {"template": {"spec": {
        "initContainers": native["initContainers"], "containers": native["containers"],
    }}}});
    let patch = Patch::Merge(&template);
    let deployments = world.api::<Deployment>();
    deployments.patch("web", &PatchParams::default(), &patch).await?;
    let vpas = world.api::<VerticalPodAutoscaler>();
    let after = world
        .until(
            "the checkpoint goes on while all pods are other ones",
            async || {
                let status = vpas.get("web").await?.status.unwrap_or_default();
                let recommendation = status.recommendation.unwrap_or_default();
                let names = recommendation.container_recommendations;
                let names: Vec<_> = names.iter().map(|one| one.container_name.as_str()).collect();
                ensure!(
                    names == ["app", "proxy"],
                    "recommended on the way for {names:?} alone"
                );
                let status = deployments.get("web").await?.status.unwrap_or_default();
                let moved = status.observed_generation == Some(2)
                    && status.updated_replicas == Some(2)
                    && status.replicas == Some(2)
                    && status.ready_replicas == Some(2);
                let now = checkpoint(world, "web-proxy").await?;
                // More than what was on its way when they moved.
                Ok(
                    if moved && now.total_samples_count >= before.total_samples_count + 6 {
                        Look::Done(now)
                    } else {
                        Look::NotYet(format!("{status:?}, {} samples", now.total_samples_count))
                    },
                )
            },
        )
        .await?;
    recommender.stop().await?;
    // A pod that is measured late may have an older sample; a history that was lost would begin later.
    ensure!(
        after.first_sample_start.is_some() && after.first_sample_start <= before.first_sample_start,
        "it begins at {:?} and not at {:?}",
        after.first_sample_start,
        before.first_sample_start
    );
    Ok(())
}
