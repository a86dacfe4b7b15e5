//! The recommender is killed again and again, and hardly anything that was measured is lost.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;

use super::super::super::{Look, Need, Scenario, World};
use super::super::{
    crds,
    recommender::{Recommender, checkpoint, watch_over},
    workload,
};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "recommender-is-killed",
            about: "killed without a chance to write, a recommender goes on from its last checkpoint, which never goes back",
            needs: &[Need::Node],
            run: |world| {
                async {
                    prepare(world).await?;
                    again_and_again(world).await
                }
                .boxed_local()
            },
        },
        Scenario {
            name: "recommender-is-killed-and-counts",
            about: "each kill costs no more samples than one checkpoint's age holds",
            needs: &[Need::Node, Need::VirtualTime],
            run: |world| counts(world).boxed_local(),
        },
    ]
}

const KILLS: u32 = 4;
const PODS: i64 = 2;
/// How often usage is measured.
const RESOLUTION: i64 = 15;

async fn prepare(world: &World) -> Result<()> {
    crds::install(world).await?;
    workload::deploy(world, 2).await?;
    watch_over(world, "apps/v1", "Deployment", "web").await
}

async fn again_and_again(world: &World) -> Result<()> {
    let mut first = None;
    let mut last = 0;
    for round in 0..=KILLS {
        let recommender = Recommender::start(world, &[]).await?;
        let written = world
            .until("the checkpoint goes on", async || {
                let Ok(written) = checkpoint(world, "web-app").await else {
                    return Ok(Look::NotYet("none".to_owned()));
                };
                let count = written.total_samples_count;
                ensure!(count >= last, "{count} samples after {last}");
                // Each time a little later in the life of a checkpoint.
                Ok(if count > last + i64::from(round) {
                    Look::Done(written)
                } else {
                    Look::NotYet(format!("{count} samples"))
                })
            })
            .await?;
        recommender.kill().await?;
        last = written.total_samples_count;
        let begin = first.get_or_insert(written.first_sample_start);
        // A pod that is measured late may have an older sample; a history that was lost would begin later.
        ensure!(
            written.first_sample_start.is_some() && written.first_sample_start <= *begin,
            "it begins at {:?} and not at {begin:?}",
            written.first_sample_start
        );
        *begin = written.first_sample_start;
    }
    Ok(())
}

async fn counts(world: &World) -> Result<()> {
    prepare(world).await?;
    again_and_again(world).await?;
    let recommender = Recommender::start(world, &[]).await?;
    world.pass(Duration::from_secs(120)).await?;
    recommender.stop().await?;
    let written = checkpoint(world, "web-app").await?;
    let begin = written.first_sample_start.context("it has begun")?;
    let passed = world.clock().now() - begin;
    let measured = PODS * passed.num_seconds() / RESOLUTION;
    // What one checkpoint's age of ten seconds holds, what one loop of five has read, and the one under way.
    let lost_each = PODS * 2;
    let least = measured - i64::from(KILLS + 1) * lost_each - PODS;
    ensure!(
        written.total_samples_count >= least,
        "{} samples of {measured} after {} kills",
        written.total_samples_count,
        KILLS + 1
    );
    Ok(())
}
