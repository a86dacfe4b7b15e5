//! metrics-server is down, stale, or lies.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;

use super::super::super::{Look, Need, Running, Scenario, World};
use super::super::{crds, time, workload};
use super::error;
use crate::sandbox::{Effect, Fault};

pub(super) fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "metrics-lie",
        about: "usage that is nothing, negative, absurd, no number, stale or missing for minutes leaves an hour's recommendation \
                where it was, is counted once at most, and the truth is counted again at once",
        needs: &[Need::Node, Need::Faults, Need::VirtualTime],
        run: |world| lies(world).boxed_local(),
    }]
}

fn lie(cpu: &str, memory: &str) -> Effect {
    Effect::MetricsLie {
        cpu: Some(cpu.to_owned()),
        memory: Some(memory.to_owned()),
        timestamp: None,
    }
}

async fn lies(world: &World) -> Result<()> {
    crds::install(world).await?;
    workload::deploy(world, 2).await?;
    time::autoscale(world).await?;
    world.usage("web", "app", "60m", "40Mi").await?;
    let config = recommender::Config::from_flags(["--checkpoint-max-age=1m"])?;
    let daemon = Running::start(world, |context| recommender::run(config, context));
    counted(world, 0).await?;
    world.pass(Duration::from_secs(3600)).await?;
    let before = time::recommendation(world).await?.context("none after an hour")?;

    let stale = Effect::MetricsLie {
        cpu: None,
        memory: None,
        timestamp: Some(world.clock().now().format("%Y-%m-%dT%H:%M:%SZ").to_string()),
    };
    // The day's peak of memory is what was measured most: it is lied down only.
    let all = [
        (lie("0", "0"), true),
        (lie("-5", "-1Gi"), false),
        (lie("90000000000000000000", "1Ki"), true),
        (lie("much", "more"), false),
        (stale, false),
        (error(503, Some(1)), false),
        (Effect::MetricsGap { part: 1.0 }, false),
    ];
    let faults = world.faults()?;
    for (effect, is_counted) in all {
        let what = format!("{effect:?}");
        let start = samples(world).await?;
        let id = faults.add(Fault::new(effect).on(&["pods.metrics.k8s.io"]));
        world.pass(Duration::from_secs(180)).await?;
        let struck = faults.struck(id);
        faults.remove(id);
        ensure!(struck > 0, "{what} has struck nobody");
        let more = samples(world).await? - start;
        // One loop's samples may have been on their way.
        ensure!(is_counted || more <= 4, "{more} samples of {what} were counted");
        counted(world, samples(world).await?)
            .await
            .with_context(|| format!("after {what}"))?;
        let now = time::recommendation(world)
            .await?
            .with_context(|| format!("none after {what}"))?;
        ensure!(
            now.lower.0 <= now.target.0
                && now.target.0 <= now.upper.0
                && now.target.0.0 <= before.target.0.0.saturating_mul(5) / 4
                && now.target.1 == before.target.1,
            "{what} made {now:?} of {before:?}"
        );
    }
    daemon.stop().await
}

async fn samples(world: &World) -> Result<i64> {
    Ok(time::samples(world).await?.unwrap_or_default())
}

/// Waits until more samples than that are written.
async fn counted(world: &World, least: i64) -> Result<()> {
    world
        .until("more samples are written", async || {
            let seen = samples(world).await?;
            Ok(if seen > least {
                Look::Done(())
            } else {
                Look::NotYet(format!("{seen}, as before"))
            })
        })
        .await
}
