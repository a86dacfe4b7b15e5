//! What a scenario says that a container uses is what is measured.

use anyhow::{Result, ensure};
use common::{
    api::metrics::PodMetrics,
    quantity::{Bytes, MilliCpu, Quantity},
};
use futures::FutureExt as _;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::api::resource::Quantity as Wire};
use kube::Api;

use super::super::{Look, Need, Scenario, World};
use super::pod;

pub(super) fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "usage-is-measured",
        about: "a container that is told to use more does, and its sidecar does not",
        needs: &[Need::Node],
        run: |world| measured(world).boxed_local(),
    }]
}

async fn measured(world: &World) -> Result<()> {
    world.create_object::<Pod>(pod(world, "busy")).await?;
    world.ready("busy").await?;
    world.usage("busy", "app", "60m", "32Mi").await?;
    let metrics = world.api::<PodMetrics>();
    let (_, proxy) = world
        .until("the app is seen to use more", async || {
            let seen = (usage(&metrics, "app").await?, usage(&metrics, "proxy").await?);
            Ok(match seen {
                // A busy machine may not let it use all the CPU it wants.
                (Some(app), Some(proxy)) if app.0.0 >= 20 && app.1.0 >= 32 << 20 => Look::Done((app, proxy)),
                other => Look::NotYet(format!("{other:?}")),
            })
        })
        .await?;
    ensure!(
        proxy.0.0 < 20 && proxy.1.0 < 32 << 20,
        "the sidecar uses more too: {proxy:?}"
    );
    Ok(())
}

async fn usage(metrics: &Api<PodMetrics>, name: &str) -> Result<Option<(MilliCpu, Bytes)>> {
    let Some(pod) = metrics.get_opt("busy").await? else {
        return Ok(None);
    };
    let container = pod.containers.iter().find(|container| container.name == name);
    // The sidecar is measured before the app has started.
    let Some(container) = container else {
        return Ok(None);
    };
    let usage = &container.usage;
    let read = |wire: &Option<Wire>| wire.as_ref().map(Quantity::try_from).transpose();
    let (cpu, memory) = (read(&usage.cpu)?, read(&usage.memory)?);
    Ok(Some((
        MilliCpu::from_quantity(&cpu.unwrap_or_default()),
        Bytes::from_quantity(&memory.unwrap_or_default()),
    )))
}
