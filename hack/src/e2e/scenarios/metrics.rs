//! Usage is served as metrics-server serves it.

use anyhow::{Result, ensure};
use common::{api::metrics::PodMetrics, quantity::Quantity};
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Pod;

use super::super::{Look, Need, Scenario, World};
use super::pod;

pub(super) fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "metrics-served",
        about: "metrics.k8s.io lists the usage of the app and of its native sidecar, and of no ordinary init container",
        needs: &[Need::Node],
        run: |world| served(world).boxed_local(),
    }]
}

async fn served(world: &World) -> Result<()> {
    world.create_object::<Pod>(pod(world, "busy")).await?;
    world.ready("busy").await?;
    let metrics = world.api::<PodMetrics>();
    let seen = world
        .until("the pod's metrics are served", async || {
            Ok(match metrics.get_opt("busy").await? {
                Some(seen) if seen.containers.len() == 2 => Look::Done(seen),
                other => Look::NotYet(format!("{other:?}")),
            })
        })
        .await?;
    let mut names: Vec<_> = seen
        .containers
        .iter()
        .map(|container| container.name.as_str())
        .collect();
    names.sort_unstable();
    ensure!(names == ["app", "proxy"], "usage of {names:?}");
    for container in &seen.containers {
        let memory = container
            .usage
            .memory
            .as_ref()
            .map(Quantity::try_from)
            .transpose()?
            .unwrap_or_default();
        ensure!(
            memory.units() > Some(0),
            "{} uses no memory: {:?}",
            container.name,
            container.usage
        );
    }
    Ok(())
}
