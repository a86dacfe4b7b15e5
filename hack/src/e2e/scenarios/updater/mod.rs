//! The updater at work: what it does to running pods, and what it leaves alone.

mod actuation;
pub(super) mod admission;
mod eviction;
pub(super) mod kubelet;
mod leader;
mod place;
mod sidecars;
mod surroundings;

use std::{collections::BTreeMap, net::Ipv4Addr};

use anyhow::{Context as _, Result, ensure};
use common::{
    api::k8s::{Deployment, Event, Lease, Pod},
    daemon::{Context, DaemonError, Shutdown},
};
use http::Method;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

use super::super::{Look, Scenario, World, is_busy};
use super::pod_spec;

const MERGE: &str = "application/merge-patch+json";

pub(super) fn all() -> Vec<Scenario> {
    [
        place::all(),
        eviction::all(),
        kubelet::all(),
        sidecars::all(),
        leader::all(),
        actuation::all(),
        surroundings::all(),
    ]
    .concat()
}

/// An updater in this process, for the scenario's namespace.
pub(super) struct Updater {
    shutdown: Shutdown,
    running: JoinHandle<Result<(), DaemonError>>,
    url: String,
}

impl Updater {
    /// Starts one that looks every five seconds for the admission lease of the scenario's own namespace.
    pub(super) async fn start(world: &World, flags: &[&str]) -> Result<Self> {
        let own = own_flags(world);
        let flags = own.iter().map(String::as_str).chain(flags.iter().copied());
        let config = updater::Config::from_flags(flags)?;
        let shutdown = Shutdown::new();
        let mut context = Context::new(world.client.clone(), world.clock(), shutdown.clone());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}/metrics", listener.local_addr()?);
        context.admin = Some(listener);
        Ok(Self {
            shutdown,
            running: tokio::spawn(updater::run(config, context)),
            url,
        })
    }

    pub(super) async fn stop(self) -> Result<()> {
        self.shutdown.request();
        self.running.await?.context("the updater did not end well")
    }

    /// One of its metrics, by name and labels; zero if it is not there.
    pub(super) async fn metric(&self, name: &str) -> Result<f64> {
        let text = crate::http::get(&self.url).await?.text().await?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(line.map(str::parse).transpose()?.unwrap_or_default())
    }

    /// Why it leaves how many pods as they are.
    pub(super) async fn reasons(&self) -> Result<String> {
        let text = crate::http::get(&self.url).await?.text().await?;
        let reasons = text
            .lines()
            .filter(|line| line.starts_with("outrigger_updater_skipped_pods{") && !line.ends_with(" 0"));
        Ok(reasons.collect::<Vec<_>>().join(", "))
    }

    /// How many pods it left as they are for a reason.
    pub(super) async fn skipped(&self, reason: &str) -> Result<f64> {
        self.metric(&format!("outrigger_updater_skipped_pods{{reason=\"{reason}\"}}"))
            .await
    }

    /// Waits until so many more loops are done.
    pub(super) async fn loops(&self, world: &World, more: u32) -> Result<()> {
        let name = "vpa_updater_execution_latency_seconds_count{step=\"total\"}";
        let before = self.metric(name).await?;
        world
            .until(&format!("the updater has gone round {more} times"), async || {
                let done = self.metric(name).await? - before;
                Ok(if done >= f64::from(more) {
                    Look::Done(())
                } else {
                    Look::NotYet(format!("{done} times"))
                })
            })
            .await
    }

    /// Waits until so many pods are left as they are for a reason.
    pub(super) async fn until_skipped(&self, world: &World, reason: &str, pods: u32) -> Result<()> {
        world
            .until(&format!("{pods} pods are left for {reason}"), async || {
                let found = self.skipped(reason).await?;
                Ok(if found >= f64::from(pods) {
                    Look::Done(())
                } else {
                    Look::NotYet(self.reasons().await?)
                })
            })
            .await
    }
}

pub(super) fn own_flags(world: &World) -> [String; 3] {
    [
        "--updater-interval=5s".to_owned(),
        format!("--vpa-object-namespace={}", world.namespace),
        format!(
            "--admission-controller-status-lease-namespace={}",
            world.namespace
        ),
    ]
}

/// Makes the admission component's lease look fresh for hours.
pub(super) async fn fresh_lease(world: &World) -> Result<()> {
    let renewed = world.clock().now() + chrono::TimeDelta::hours(10 * 365 * 24);
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "vpa-admission-controller"},
        "spec": {"holderIdentity": "e2e", "renewTime": renewed.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()},
    });
    world
        .api::<Lease>()
        .patch(
            "vpa-admission-controller",
            &PatchParams::apply("e2e").force(),
            &Patch::Apply(&lease),
        )
        .await?;
    Ok(())
}

async fn no_lease(world: &World) -> Result<()> {
    world
        .api::<Lease>()
        .delete("vpa-admission-controller", &DeleteParams::default())
        .await?;
    Ok(())
}

fn vpas(world: &World) -> String {
    format!(
        "/apis/autoscaling.k8s.io/v1/namespaces/{}/verticalpodautoscalers",
        world.namespace
    )
}

/// A Deployment of [`template`] with a sidecar.
pub(super) async fn deployment(world: &World, name: &str, replicas: usize) -> Result<()> {
    world
        .create_object::<Deployment>(json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": name}},
                "template": template(world, name, true),
            },
        }))
        .await?;
    Ok(())
}

/// A VPA of that name for the controller of that name.
pub(super) async fn vpa(world: &World, kind: &str, name: &str, update_policy: Value) -> Result<()> {
    let version = match kind {
        "ReplicationController" => "v1",
        "Job" | "CronJob" => "batch/v1",
        _ => "apps/v1",
    };
    let vpa = json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": {"name": name},
        "spec": {
            "targetRef": {"apiVersion": version, "kind": kind, "name": name}, "updatePolicy": update_policy,
        },
    });
    let made = world
        .send(Method::POST, &vpas(world), "application/json", &vpa)
        .await?;
    ensure!(made.code == 201, "the VPA was answered by {made:?}");
    Ok(())
}

/// Changes a VPA.
pub(super) async fn change_vpa(world: &World, name: &str, change: Value) -> Result<()> {
    merge(world, &format!("{}/{name}", vpas(world)), &change).await
}

/// Changes an object; a busy API server is asked again.
async fn merge(world: &World, path: &str, change: &Value) -> Result<()> {
    world
        .until(&format!("{path} is changed"), async || {
            let answer = world.send(Method::PATCH, path, MERGE, change).await?;
            if is_busy(answer.code) {
                return Ok(Look::NotYet(format!("{answer:?}")));
            }
            ensure!(answer.code == 200, "the change was answered by {answer:?}");
            Ok(Look::Done(()))
        })
        .await
}

/// Recommends amounts, with bounds that are the target itself.
pub(super) async fn recommend(world: &World, name: &str, containers: &[(&str, &str, &str)]) -> Result<()> {
    let recommended = containers.iter().map(|(container, cpu, memory)| {
        let amounts = json!({"cpu": cpu, "memory": memory});
        json!({"containerName": container, "target": amounts, "lowerBound": amounts, "upperBound": amounts})
    });
    let status = json!({"status": {"recommendation": {
        "containerRecommendations": recommended.collect::<Vec<_>>(),
    }}});
    merge(world, &format!("{}/{name}/status", vpas(world)), &status).await
}

/// What a controller of any kind makes its pods from. As if admission had seen them, if they are marked.
pub(super) fn template(world: &World, app: &str, is_marked: bool) -> Value {
    let annotations = if is_marked {
        json!({"vpaObservedContainers": "app"})
    } else {
        json!({})
    };
    json!({"metadata": {"labels": {"app": app}, "annotations": annotations}, "spec": pod_spec(world)})
}

/// The live pods with this label, by name.
pub(super) async fn pods(world: &World, app: &str) -> Result<BTreeMap<String, Value>> {
    let label = ListParams::default().labels(&format!("app={app}"));
    let pods = world.api::<Pod>().list(&label).await?.items;
    // A Job keeps the pods that have failed, beside those that it makes instead.
    let is_over = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Failed" | "Succeeded"))
    };
    let live = pods
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none() && !is_over(pod));
    live.map(|pod| {
        Ok((
            pod.metadata.name.clone().unwrap_or_default(),
            serde_json::to_value(pod)?,
        ))
    })
    .collect()
}

/// Waits until there are so many live pods and all are ready.
pub(super) async fn ready(world: &World, app: &str, count: usize) -> Result<BTreeMap<String, Value>> {
    world
        .until(&format!("{count} pods of {app} are ready"), async || {
            let pods = pods(world, app).await?;
            let ready = pods.values().filter(|pod| is_ready(pod)).count();
            Ok(if ready == count && pods.len() == count {
                Look::Done(pods)
            } else {
                Look::NotYet(format!("{ready} of {} pods are ready", pods.len()))
            })
        })
        .await
}

/// The same, once admission has seen all of them: a new registration reaches the API server's cache a moment later, and pods
/// that were made before it are made again.
pub(super) async fn admitted(world: &World, app: &str, count: usize) -> Result<BTreeMap<String, Value>> {
    let now = DeleteParams::default().grace_period(0);
    world
        .until(
            &format!("{count} pods of {app} are ready, and known to admission"),
            async || {
                let pods = pods(world, app).await?;
                let unknown = |pod: &Value| pod["metadata"]["annotations"]["vpaObservedContainers"].is_null();
                let unknown: Vec<_> = pods.iter().filter(|(_, pod)| unknown(pod)).collect();
                for (name, _) in &unknown {
                    world.api::<Pod>().delete(name, &now).await?;
                }
                let ready = pods.values().filter(|pod| is_ready(pod)).count();
                Ok(if unknown.is_empty() && ready == count && pods.len() == count {
                    Look::Done(pods)
                } else {
                    let (all, again) = (pods.len(), unknown.len());
                    Look::NotYet(format!("{ready} of {all} are ready, {again} were made again"))
                })
            },
        )
        .await
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .into_iter()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Waits until all pods' container of that list and place really has these requests.
pub(super) async fn until_requests(
    world: &World,
    app: &str,
    container: (&str, usize),
    requests: Value,
) -> Result<()> {
    let (list, index) = container;
    let statuses = match list {
        "containers" => "containerStatuses",
        _ => "initContainerStatuses",
    };
    world
        .until(&format!("{app}'s {list} {index} have {requests}"), async || {
            let pods = pods(world, app).await?;
            let has = |pod: &Value| {
                let spec = pod["spec"][list][index]["resources"]["requests"].clone();
                (
                    spec,
                    pod["status"][statuses][index]["resources"]["requests"].clone(),
                )
            };
            let all: Vec<_> = pods.values().map(has).collect();
            let done = !all.is_empty()
                && all
                    .iter()
                    .all(|(spec, status)| *spec == requests && *status == requests);
            Ok(if done {
                Look::Done(())
            } else {
                Look::NotYet(format!("{all:?}"))
            })
        })
        .await
}

pub(super) fn uids(pods: &BTreeMap<String, Value>) -> Vec<&str> {
    pods.values()
        .filter_map(|pod| pod["metadata"]["uid"].as_str())
        .collect()
}

pub(super) fn restarts(pods: &BTreeMap<String, Value>) -> i64 {
    let statuses = ["containerStatuses", "initContainerStatuses"];
    let all = pods
        .values()
        .flat_map(|pod| statuses.map(|list| pod["status"][list].as_array().cloned().unwrap_or_default()));
    all.flatten()
        .filter_map(|status| status["restartCount"].as_i64())
        .sum()
}

/// The events of a reason, by the name of what they are about.
pub(super) async fn events(world: &World, reason: &str) -> Result<Vec<String>> {
    let all = world.api::<Event>().list(&ListParams::default()).await?.items;
    let of = all
        .into_iter()
        .filter(|event| event.reason.as_deref() == Some(reason));
    Ok(of.filter_map(|event| event.involved_object.name).collect())
}
