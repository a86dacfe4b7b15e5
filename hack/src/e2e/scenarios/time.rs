//! A day in a few seconds: the daemons live in the sandbox's time, so what takes hours is seen by a test.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use common::{
    api::{
        checkpoint::VerticalPodAutoscalerCheckpoint,
        vpa::{RecommendedContainerResources, VerticalPodAutoscaler},
    },
    quantity::{Bytes, MilliCpu, Quantity},
};
use futures::FutureExt as _;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use serde_json::json;

use super::super::{Look, Need, Running, Scenario, World};
use super::{crds, workload};

pub(super) fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "a-day-passes",
        about: "after a day of load the recommendation knows its peak, and its bounds are closer than after an hour",
        needs: &[Need::Node, Need::VirtualTime],
        run: |world| day(world).boxed_local(),
    }]
}

async fn day(world: &World) -> Result<()> {
    crds::install(world).await?;
    workload::deploy(world, 2).await?;
    autoscale(world).await?;
    // 10m at two in the morning, 150m at two in the afternoon.
    world
        .usage("web", "app", "daily(10m, 150m, 14h)", "daily(10Mi, 40Mi, 14h)")
        .await?;
    let config = recommender::Config::from_flags([])?;
    let daemon = Running::start(world, |context| recommender::run(config, context));
    world
        .until("the recommender is at work", async || {
            Ok(match recommendation(world).await? {
                Some(_) => Look::Done(()),
                None => Look::NotYet("no recommendation".to_owned()),
            })
        })
        .await?;
    world.pass(Duration::from_secs(3600)).await?;
    let hour = recommendation(world).await?.context("none after an hour")?;
    world.pass(Duration::from_secs(23 * 3600)).await?;
    let day = recommendation(world).await?.context("none after a day")?;
    daemon.stop().await?;

    let samples = samples(world).await?.context("no checkpoint")?;
    // Two pods, each minute, and a few from before the day began.
    ensure!(
        (2 * 1440..2 * 1450).contains(&samples),
        "{samples} samples in a day"
    );
    ensure!(
        day.upper.0 < hour.upper.0,
        "the upper bound was {:?} after an hour and is {:?} after a day",
        hour.upper,
        day.upper
    );
    // The 90th percentile of the day's curve, with the safety margin of 15 %.
    ensure!(
        (150..190).contains(&day.target.0.0) && hour.target.0.0 < 50,
        "the target was {:?} after an hour and is {:?} after a day",
        hour.target,
        day.target
    );
    ensure!(
        day.lower.0 <= day.target.0 && day.target.0 <= day.upper.0,
        "the bounds do not hold the target: {day:?}"
    );
    Ok(())
}

/// A VPA for [`workload::deploy`]'s Deployment that only recommends.
pub(super) async fn autoscale(world: &World) -> Result<()> {
    world
        .create_object::<VerticalPodAutoscaler>(json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": {"name": "web"},
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "updatePolicy": {"updateMode": "Off"},
            },
        }))
        .await?;
    Ok(())
}

/// How many samples of the app were written.
pub(super) async fn samples(world: &World) -> Result<Option<i64>> {
    let checkpoints = world.api::<VerticalPodAutoscalerCheckpoint>();
    let status = checkpoints
        .get_opt("web-app")
        .await?
        .and_then(|checkpoint| checkpoint.status);
    Ok(status.map(|status| status.total_samples_count))
}

/// What is recommended for the app.
#[derive(Debug)]
pub(super) struct Recommendation {
    pub(super) lower: (MilliCpu, Bytes),
    pub(super) target: (MilliCpu, Bytes),
    pub(super) upper: (MilliCpu, Bytes),
}

pub(super) async fn recommendation(world: &World) -> Result<Option<Recommendation>> {
    let vpa = world.api::<VerticalPodAutoscaler>().get("web").await?;
    let list = vpa.status.unwrap_or_default().recommendation.unwrap_or_default();
    let Some(RecommendedContainerResources {
        lower_bound,
        target,
        upper_bound,
        ..
    }) = list
        .container_recommendations
        .into_iter()
        .find(|container| container.container_name == "app")
    else {
        return Ok(None);
    };
    let read = |list: &std::collections::BTreeMap<String, Wire>| -> Result<_> {
        let amount = |name: &str| -> Result<_> {
            Ok(Quantity::try_from(
                list.get(name).with_context(|| format!("no {name}"))?,
            )?)
        };
        Ok((
            MilliCpu::from_quantity(&amount("cpu")?),
            Bytes::from_quantity(&amount("memory")?),
        ))
    };
    Ok(Some(Recommendation {
        lower: read(&lower_bound)?,
        target: read(&target)?,
        upper: read(&upper_bound)?,
    }))
}
