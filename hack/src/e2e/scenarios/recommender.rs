//! The recommender at work: from usage to statuses and checkpoints, over restarts and with the gate on and off.

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
use crate::daemon::{Daemon, Process};

mod history;
mod kinds;
mod oom;
mod policy;

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "recommends-for-sidecars",
            about: "app and native sidecar get recommendations with the gate on, the app alone with it off, and restarts lose nothing",
            needs: &[Need::Node],
            run: |world| sidecars(world).boxed_local(),
        },
        Scenario {
            name: "recommends-for-every-kind",
            about: "a Deployment, a StatefulSet, a DaemonSet, a CronJob and a custom resource with scale get recommendations",
            needs: &[Need::Node],
            run: |world| kinds::every_kind(world).boxed_local(),
        },
        Scenario {
            name: "recommends-more-after-oom",
            about: "a container that is killed for want of memory is recommended more than it ever used, by its VPA's own ratio if it \
                    has one",
            needs: &[Need::Node],
            run: |world| oom::killed(world).boxed_local(),
        },
        Scenario {
            name: "recommender-minds-policies",
            about: "least and most allowed, containers that are switched off, foreign namespaces and other recommenders' VPAs \
                    are minded, and checkpoints of nobody removed",
            needs: &[Need::Node],
            run: |world| policy::minded(world).boxed_local(),
        },
        Scenario {
            name: "recommender-ignores-namespaces",
            about: "VPAs in a namespace that is to be ignored get no status, and all others do",
            needs: &[Need::Node, Need::VirtualTime],
            run: |world| policy::ignored(world).boxed_local(),
        },
        Scenario {
            name: "sidecar-keeps-its-history",
            about: "a container that moves from containers to initContainers keeps its recommendation and its checkpoint",
            needs: &[Need::Node],
            run: |world| history::kept(world).boxed_local(),
        },
    ]
}

async fn sidecars(world: &World) -> Result<()> {
    crds::install(world).await?;
    workload::deploy(world, 2).await?;
    watch_over(world, "apps/v1", "Deployment", "web").await?;

    let recommender = Recommender::start(world, &[GATE_ON]).await?;
    let first = recommended(world, "web", &["app", "proxy"]).await?;
    recommender.stop().await?;
    let app = checkpoint(world, "web-app").await?;
    let proxy = checkpoint(world, "web-proxy").await?;
    for (name, checkpoint) in [("web-app", &app), ("web-proxy", &proxy)] {
        ensure!(
            checkpoint.total_samples_count > 0 && checkpoint.first_sample_start.is_some(),
            "{name} was not written when the recommender stopped: {checkpoint:?}"
        );
    }

    explained(world, &app).await?;

    let recommender = Recommender::start(world, &["--feature-gates=NativeSidecar=false"]).await?;
    recommended(world, "web", &["app"]).await?;
    recommender.stop().await?;
    let untouched = checkpoint(world, "web-proxy").await?;
    ensure!(
        untouched == proxy,
        "with the gate off the sidecar's checkpoint was written: {untouched:?}, not {proxy:?}"
    );

    let recommender = Recommender::start(world, &[GATE_ON]).await?;
    for (name, before) in [("web-app", app), ("web-proxy", proxy)] {
        let after = more_samples(world, name, before.total_samples_count).await?;
        // A pod that is measured late may have an older sample; a history that was lost would begin later.
        ensure!(
            after.first_sample_start.is_some() && after.first_sample_start <= before.first_sample_start,
            "{name} begins at {:?} and not at {:?}",
            after.first_sample_start,
            before.first_sample_start
        );
    }
    let last = recommended(world, "web", &["app", "proxy"]).await?;
    recommender.stop().await?;
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

/// A VPA over a controller that changes nothing.
pub(super) async fn watch_over(world: &World, api_version: &str, kind: &str, name: &str) -> Result<()> {
    let vpa = json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": {"name": name},
        "spec": {
            "targetRef": {"apiVersion": api_version, "kind": kind, "name": name},
            "updatePolicy": {"updateMode": "Off"},
        },
    });
    world
        .create_object::<VerticalPodAutoscaler>(vpa)
        .await
        .map(|_: VerticalPodAutoscaler| ())
}

/// What `explain` says agrees with the status and with the checkpoint.
async fn explained(world: &World, app: &VerticalPodAutoscalerCheckpointStatus) -> Result<()> {
    let config = recommender::Config::from_flags([GATE_ON])?;
    let (client, namespace) = (&world.client, &world.namespace);
    let explanation =
        recommender::explain::explain(client, &world.clock(), &config, namespace, "web").await?;
    let vpa = world.api::<VerticalPodAutoscaler>().get("web").await?;
    let published = vpa.status.unwrap_or_default().recommendation.unwrap_or_default();
    let explained: Vec<&str> = explanation
        .containers
        .iter()
        .map(|container| container.name.as_str())
        .collect();
    ensure!(explained == ["app", "proxy"], "{explained:?} were explained");
    let container = &explanation.containers[0];
    ensure!(
        container.cpu.samples.count == app.total_samples_count
            && container.cpu.samples.first == app.first_sample_start,
        "the samples of the checkpoint are not those explained: {:?} {app:?}",
        container.cpu.samples
    );
    let target = &published.container_recommendations[0].target;
    for (resource, number) in [
        ("cpu", &container.cpu.target),
        ("memory", &container.memory.target),
    ] {
        let said = number.published.as_ref().map(ToString::to_string);
        let status = target.get(resource).map(|amount| amount.0.clone());
        ensure!(
            said == status,
            "the status says {status:?} of {resource}, and explain {said:?}"
        );
        ensure!(number.recommended.is_some(), "nothing is recommended: {number:?}");
    }
    Ok(())
}

/// Waits until these containers, and no others, have a recommendation.
pub(super) async fn recommended(
    world: &World,
    vpa: &str,
    containers: &[&str],
) -> Result<Vec<RecommendedContainerResources>> {
    let vpas = world.api::<VerticalPodAutoscaler>();
    world
        .until(
            &format!("there is a recommendation for {containers:?} of {vpa} alone"),
            async || {
                let status = vpas.get(vpa).await?.status.unwrap_or_default();
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

/// The checkpoint when it has more samples than this: a recommender that has just read it has no new ones yet.
async fn more_samples(world: &World, name: &str, than: i64) -> Result<VerticalPodAutoscalerCheckpointStatus> {
    let what = format!("{name} has more than {than} samples");
    world
        .until(&what, async || {
            let checkpoint = checkpoint(world, name).await?;
            Ok(if checkpoint.total_samples_count > than {
                Look::Done(checkpoint)
            } else {
                Look::NotYet(format!("{checkpoint:?}"))
            })
        })
        .await
}

pub(super) async fn checkpoint(world: &World, name: &str) -> Result<VerticalPodAutoscalerCheckpointStatus> {
    let checkpoint = world.api::<VerticalPodAutoscalerCheckpoint>().get(name).await?;
    checkpoint.status.with_context(|| format!("{name} has no status"))
}

pub(super) const GATE_ON: &str = "--feature-gates=NativeSidecar=true";

/// A recommender for the scenario's namespace: a process of its own, or, where time is not the machine's, in this one.
pub(super) enum Recommender {
    Process(Box<Process>),
    Inside {
        shutdown: Shutdown,
        running: JoinHandle<Result<(), DaemonError>>,
    },
}

impl Recommender {
    /// Starts one that looks every five seconds.
    pub(super) async fn start(world: &World, flags: &[&str]) -> Result<Self> {
        let own = ["--recommender-interval=5s", "--checkpoint-max-age=10s"];
        Self::start_with(world, &[&own, flags].concat()).await
    }

    /// Starts one with these flags alone.
    pub(super) async fn start_with(world: &World, flags: &[&str]) -> Result<Self> {
        let namespace = format!("--vpa-object-namespace={}", world.namespace);
        let flags = [&[namespace.as_str()], flags].concat();
        if world.time().is_err() {
            let mut process = Process::start(Daemon::Recommender, &world.kubeconfig, &flags).await?;
            process.ready().await?;
            return Ok(Self::Process(Box::new(process)));
        }
        let config = recommender::Config::from_flags(flags)?;
        let shutdown = Shutdown::new();
        let context = Context::new(world.client.clone(), world.clock(), shutdown.clone());
        let running = tokio::spawn(recommender::run(config, context));
        Ok(Self::Inside { shutdown, running })
    }

    /// Kills it without a chance to write anything.
    pub(super) async fn kill(self) -> Result<()> {
        match self {
            Self::Process(process) => process.kill().await,
            Self::Inside { running, .. } => {
                running.abort();
                let ended = running.await;
                ensure!(
                    ended.as_ref().is_err_and(tokio::task::JoinError::is_cancelled),
                    "the recommender had ended before: {ended:?}"
                );
                Ok(())
            }
        }
    }

    pub(super) async fn stop(self) -> Result<()> {
        match self {
            Self::Process(process) => {
                let status = process.stop().await?;
                ensure!(status.success(), "the recommender ended with {status}");
                Ok(())
            }
            Self::Inside { shutdown, running } => {
                shutdown.request();
                running.await?.context("the recommender did not end well")
            }
        }
    }
}
