//! Every kind of controller that a VPA may name: those that are well known, and one that only its scale makes known.

use anyhow::{Context as _, Result};
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment, StatefulSet},
        batch::v1::CronJob,
        core::v1::Pod,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    super::{super::Look, crds, pod, pod_spec},
    GATE_ON, Recommender, World, recommended, watch_over,
};

const CRD: &str = "robots.e2e.outrigger.dev";

pub(super) async fn every_kind(world: &World) -> Result<()> {
    crds::install(world).await?;
    let outcome = with_robots(world).await;
    // Not the scenario's namespace's: it would stay behind.
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let removed = definitions.delete(CRD, &DeleteParams::default()).await;
    outcome.and(removed.map(drop).context("removing the custom resource"))
}

async fn with_robots(world: &World) -> Result<()> {
    let workload = |name: &str, extra: Value| {
        let mut spec = json!({
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod_spec(world)},
        });
        merge(&mut spec, extra);
        json!({"metadata": {"name": name}, "spec": spec})
    };
    let one = json!({"replicas": 1});
    world
        .create_object::<Deployment>(workload("deployment", one.clone()))
        .await?;
    let mut named = one;
    merge(&mut named, json!({"serviceName": "statefulset"}));
    world
        .create_object::<StatefulSet>(workload("statefulset", named))
        .await?;
    world
        .create_object::<DaemonSet>(workload("daemonset", json!({})))
        .await?;
    world.create_object::<CronJob>(cron_job(world)).await?;
    robot(world).await?;

    let targets = [
        ("apps/v1", "Deployment", "deployment"),
        ("apps/v1", "StatefulSet", "statefulset"),
        ("apps/v1", "DaemonSet", "daemonset"),
        ("batch/v1", "CronJob", "cronjob"),
        ("e2e.outrigger.dev/v1", "Robot", "robot"),
    ];
    for (api_version, kind, name) in targets {
        watch_over(world, api_version, kind, name).await?;
    }
    let recommender = Recommender::start(world, &[GATE_ON]).await?;
    for (_, _, name) in targets {
        recommended(world, name, &["app", "proxy"]).await?;
    }
    recommender.stop().await
}

/// Runs every minute, and long enough to be measured.
fn cron_job(world: &World) -> Value {
    let mut spec = pod_spec(world);
    merge(&mut spec, json!({"restartPolicy": "Never"}));
    spec["containers"][0]["args"] = json!(["sleep", "120s"]);
    json!({
        "metadata": {"name": "cronjob"},
        "spec": {
            "schedule": "* * * * *",
            "concurrencyPolicy": "Forbid",
            "jobTemplate": {"spec": {"template": {
                "metadata": {
                    "labels": {"app": "cronjob"},
                    "annotations": {"sandbox.outrigger.dev/load": r#"{"runs": "2min"}"#},
                },
                "spec": spec,
            }}},
        },
    })
}

/// A custom resource of which nobody knows anything but its scale, and a pod that it selects.
async fn robot(world: &World) -> Result<()> {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": CRD},
        "spec": {
            "group": "e2e.outrigger.dev", "scope": "Namespaced",
            "names": {"plural": "robots", "singular": "robot", "kind": "Robot", "listKind": "RobotList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
                    "status": {"type": "object", "properties": {
                        "replicas": {"type": "integer"}, "selector": {"type": "string"},
                    }},
                }}},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                }},
            }],
        },
    });
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let ours = PatchParams::apply("outrigger-e2e").force();
    let path = format!("/apis/e2e.outrigger.dev/v1/namespaces/{}/robots", world.namespace);
    let object = json!({
        "apiVersion": "e2e.outrigger.dev/v1", "kind": "Robot", "metadata": {"name": "robot"}, "spec": {"replicas": 1},
    });
    world
        .until("robots are served", async || {
            // That of a run before may only now be gone.
            definitions.patch(CRD, &ours, &Patch::Apply(&definition)).await?;
            let answer = world
                .send(http::Method::POST, &path, "application/json", &object)
                .await;
            Ok(match answer {
                Ok(answer) if answer.code == 201 || answer.code == 409 => Look::Done(()),
                other => Look::NotYet(format!("{other:?}")),
            })
        })
        .await?;
    let status = json!({"status": {"replicas": 1, "selector": "app=robot"}});
    let path = format!("{path}/robot/status");
    let merge = "application/merge-patch+json";
    let answer = world.send(http::Method::PATCH, &path, merge, &status).await?;
    anyhow::ensure!(answer.code == 200, "the robot's status is refused: {answer:?}");
    world.create_object::<Pod>(pod(world, "robot")).await?;
    Ok(())
}

fn merge(object: &mut Value, extra: Value) {
    if let (Value::Object(object), Value::Object(extra)) = (object, extra) {
        object.extend(extra);
    }
}
