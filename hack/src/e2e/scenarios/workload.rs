//! A Deployment with a native sidecar lives as on every cluster.

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use super::super::{Look, Need, Scenario, World, in_short, is_ready};
use super::pod_spec;

pub(super) fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "sidecar-deployment-runs",
        about: "a Deployment with an init container, a native sidecar and an app becomes ready, and keeps its replicas",
        needs: &[Need::Node],
        run: |world| runs(world).boxed_local(),
    }]
}

/// Creates a Deployment named `web` and waits until its replicas are ready.
pub(super) async fn deploy(world: &World, replicas: usize) -> Result<Vec<Pod>> {
    world
        .create_object::<Deployment>(json!({
            "metadata": {"name": "web"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod_spec(world)},
            },
        }))
        .await?;
    replicas_ready(world, replicas).await
}

pub(super) async fn replicas_ready(world: &World, replicas: usize) -> Result<Vec<Pod>> {
    let pods = world.api::<Pod>();
    world
        .until(&format!("{replicas} pods of web are ready"), async || {
            let live = pods.list(&ListParams::default().labels("app=web")).await?.items;
            let live: Vec<_> = live
                .into_iter()
                .filter(|pod| pod.metadata.deletion_timestamp.is_none())
                .collect();
            let done = live.len() == replicas && live.iter().all(is_ready);
            let seen = live.iter().map(in_short).collect::<Vec<_>>().join(" | ");
            Ok(if done {
                Look::Done(live)
            } else {
                Look::NotYet(seen)
            })
        })
        .await
}

async fn runs(world: &World) -> Result<()> {
    let pods = deploy(world, 2).await?;
    for pod in &pods {
        let pod = serde_json::to_value(pod)?;
        ensure!(
            pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet",
            "no owner: {}",
            pod["metadata"]
        );
        ensure!(
            pod["status"]["qosClass"] == "Burstable",
            "QoS class {}",
            pod["status"]["qosClass"]
        );
        let init = &pod["status"]["initContainerStatuses"];
        ensure!(
            init[0]["state"]["terminated"]["reason"] == "Completed",
            "setup did not end well: {}",
            init[0]
        );
        ensure!(
            init[1]["state"]["running"].is_object() && init[1]["started"] == true,
            "proxy does not run: {}",
            init[1]
        );
        let app = &pod["status"]["containerStatuses"][0];
        ensure!(app["state"]["running"].is_object(), "app does not run: {app}");
        ensure!(
            time(&init[1]["state"]["running"]) <= time(&app["state"]["running"]),
            "the sidecar started after the app: {init} {app}"
        );
        for (status, spec) in [
            (&init[1], &pod["spec"]["initContainers"][1]),
            (app, &pod["spec"]["containers"][0]),
        ] {
            ensure!(
                status["resources"] == spec["resources"],
                "status has other resources than the spec: {status} {spec}"
            );
        }
    }
    let gone = pods
        .first()
        .and_then(|pod| pod.metadata.name.clone())
        .context("a pod has a name")?;
    world.api::<Pod>().delete(&gone, &DeleteParams::default()).await?;
    let pods = replicas_ready(world, 2).await?;
    ensure!(
        pods.iter().all(|pod| pod.metadata.name.as_ref() != Some(&gone)),
        "{gone} is still there"
    );
    Ok(())
}

fn time(running: &Value) -> &str {
    running["startedAt"].as_str().unwrap_or_default()
}
