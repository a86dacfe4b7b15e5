//! The recommender at work: from usage to statuses and checkpoints, over restarts and with the gate on and off.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use common::{
    api::{
        checkpoint::{VerticalPodAutoscalerCheckpoint, VerticalPodAutoscalerCheckpointStatus},
        vpa::{ConditionStatus, ConditionType, RecommendedContainerResources, VerticalPodAutoscaler},
    },
    daemon::{Context, DaemonError, Shutdown},
    quantity::{MilliCpu, Quantity},
};
use futures::FutureExt as _;
use serde_json::json;
use tokio::task::JoinHandle;

use super::super::{Look, Need, Scenario, World};
use super::{crds, workload};

pub(super) fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "recommends-for-sidecars",
        about: "app and native sidecar get recommendations with the gate on, the app alone with it off, and restarts lose nothing",
        needs: &[Need::Node],
        run: |world| sidecars(world).boxed_local(),
    }]
}

async fn sidecars(world: &World) -> Result<()> {
    crds::install(world).await?;
    workload::deploy(world, 2).await?;
    world
        .create_object::<VerticalPodAutoscaler>(json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": {"name": "web"},
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "updatePolicy": {"updateMode": "Off"},
            },
        }))
        .await?;

    let recommender = Recommender::start(world, true)?;
    let first = recommended(world, &["app", "proxy"]).await?;
    recommender.stop().await?;
    let app = checkpoint(world, "web-app").await?;
    let proxy = checkpoint(world, "web-proxy").await?;
    for (name, checkpoint) in [("web-app", &app), ("web-proxy", &proxy)] {
        ensure!(
            checkpoint.total_samples_count > 0 && checkpoint.first_sample_start.is_some(),
            "{name} was not written when the recommender stopped: {checkpoint:?}"
        );
    }

    let recommender = Recommender::start(world, false)?;
    recommended(world, &["app"]).await?;
    recommender.stop().await?;
    let untouched = checkpoint(world, "web-proxy").await?;
    ensure!(
        untouched == proxy,
        "with the gate off the sidecar's checkpoint was written: {untouched:?}, not {proxy:?}"
    );

    let recommender = Recommender::start(world, true)?;
    let last = recommended(world, &["app", "proxy"]).await?;
    recommender.stop().await?;
    for (name, before) in [("web-app", app), ("web-proxy", proxy)] {
        let after = checkpoint(world, name).await?;
        ensure!(
            after.first_sample_start == before.first_sample_start,
            "{name} begins at {:?} and not at {:?}",
            after.first_sample_start,
            before.first_sample_start
        );
        ensure!(
            after.total_samples_count > before.total_samples_count,
            "{name} has {} samples after {}",
            after.total_samples_count,
            before.total_samples_count
        );
    }
    for (before, after) in first.iter().zip(&last) {
        let (before, after) = (upper_cpu(before)?, upper_cpu(after)?);
        // Usage may have moved by a bucket; a history that was lost would give a bound many times as high.
        ensure!(
            after.0 <= before.0.saturating_mul(5) / 4,
            "the upper bound was widened from {before:?} to {after:?}"
        );
    }
    Ok(())
}

fn upper_cpu(container: &RecommendedContainerResources) -> Result<MilliCpu> {
    let cpu = container
        .upper_bound
        .get("cpu")
        .context("there is no upper bound")?;
    Ok(MilliCpu::from_quantity(&Quantity::try_from(cpu)?))
}

/// Waits until these containers, and no others, have a recommendation.
async fn recommended(world: &World, containers: &[&str]) -> Result<Vec<RecommendedContainerResources>> {
    let vpas = world.api::<VerticalPodAutoscaler>();
    world
        .until(
            &format!("there is a recommendation for {containers:?} alone"),
            Duration::from_secs(180),
            async || {
                let status = vpas.get("web").await?.status.unwrap_or_default();
                let provided = status.conditions.iter().any(|condition| {
                    condition.type_ == ConditionType::RecommendationProvided
                        && condition.status == ConditionStatus::True
                });
                let recommendation = status.recommendation.clone().unwrap_or_default();
                let list = recommendation.container_recommendations;
                let names: Vec<_> = list
                    .iter()
                    .map(|container| container.container_name.as_str())
                    .collect();
                let complete = list.iter().all(|container| container.target.len() == 2);
                Ok(if provided && complete && names == containers {
                    Look::Done(list)
                } else {
                    Look::NotYet(serde_json::to_string(&status)?)
                })
            },
        )
        .await
}

async fn checkpoint(world: &World, name: &str) -> Result<VerticalPodAutoscalerCheckpointStatus> {
    let checkpoint = world.api::<VerticalPodAutoscalerCheckpoint>().get(name).await?;
    checkpoint.status.with_context(|| format!("{name} has no status"))
}

/// A recommender in this process, for the scenario's namespace.
struct Recommender {
    shutdown: Shutdown,
    running: JoinHandle<Result<(), DaemonError>>,
}

impl Recommender {
    fn start(world: &World, native_sidecars: bool) -> Result<Self> {
        let namespace = format!("--vpa-object-namespace={}", world.namespace);
        let gate = format!("--feature-gates=NativeSidecar={native_sidecars}");
        let config = recommender::Config::from_flags([
            "--recommender-interval=5s",
            "--checkpoint-max-age=10s",
            &namespace,
            &gate,
        ])?;
        let shutdown = Shutdown::new();
        let context = Context::new(world.client.clone(), world.clock(), shutdown.clone());
        let running = tokio::spawn(recommender::run(config, context));
        Ok(Self { shutdown, running })
    }

    async fn stop(self) -> Result<()> {
        self.shutdown.request();
        self.running.await?.context("the recommender did not end well")
    }
}
