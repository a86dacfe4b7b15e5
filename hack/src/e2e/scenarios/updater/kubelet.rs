//! What a kubelet says of resizes, kills and starts, written by the scenario where no kubelet runs, and what the updater
//! makes of it.

use anyhow::{Result, ensure};
use chrono::{DateTime, TimeDelta, Utc};
use common::api::k8s::{Node, Pod, ReplicaSet};
use futures::FutureExt as _;
use http::Method;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

use super::{
    super::super::{Look, Need, Scenario, World},
    super::install_crds,
    MERGE, Updater, change_vpa, fresh_lease, recommend, vpa,
};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "updater-believes-kubelets",
            about: "resizes that wait, fail or are stuck, quick kills for memory, and startup boosts that are over, by what the \
                    pod's status says",
            needs: &[Need::NoControllers],
            run: |world| with_node(world, believes).boxed_local(),
        },
        Scenario {
            name: "updater-minds-quick-kills",
            about: "a VPA says itself how soon after its start a container must be killed for memory to be a reason to evict",
            needs: &[Need::NoControllers],
            run: |world| with_node(world, quick_kills).boxed_local(),
        },
    ]
}

/// A pod, and what becomes of it in mode InPlaceOrRecreate.
struct Case {
    name: &'static str,
    condition: Value,
    change: fn(&mut Value, DateTime<Utc>),
    expected: Expected,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) enum Expected {
    Evicted,
    Resized,
    Left,
}

fn ago(now: DateTime<Utc>, minutes: i64) -> String {
    (now - TimeDelta::minutes(minutes))
        .format("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

fn cases(now: DateTime<Utc>) -> Vec<Case> {
    use Expected::{Evicted, Left, Resized};
    let said = |type_: &str, reason: &str, minutes: i64| json!({"type": type_, "status": "True", "reason": reason, "lastTransitionTime": ago(now, minutes)});
    let pending = |reason: &str, minutes| said("PodResizePending", reason, minutes);
    let progress = |reason: &str, minutes| said("PodResizeInProgress", reason, minutes);
    let case = |name, condition, expected| Case {
        name,
        condition,
        change: |_, _| {},
        expected,
    };
    let mut cases = vec![
        case("none", Value::Null, Resized),
        case("deferred", pending("Deferred", 0), Left),
        case("deferred-long", pending("Deferred", 6), Evicted),
        case("infeasible", pending("Infeasible", 0), Evicted),
        case("in-progress", progress("", 10), Left),
        case("in-progress-long", progress("", 61), Evicted),
        case("failing", progress("Error", 0), Evicted),
    ];
    // Within bounds, and only a kill soon after the start is a reason to act.
    cases.push(Case {
        change: |status, now| killed(status, now, 9),
        ..case("killed-soon", Value::Null, Resized)
    });
    cases.push(Case {
        change: |status, now| killed(status, now, 11),
        ..case("killed-late", Value::Null, Left)
    });
    cases
}

fn killed(status: &mut Value, now: DateTime<Utc>, after: i64) {
    status["containerStatuses"][0]["lastState"] = json!({"terminated": {
        "exitCode": 137, "reason": "OOMKilled", "startedAt": ago(now, after), "finishedAt": ago(now, 0),
    }});
}

/// Runs a part of a scenario with a node of which only its status is there.
pub(in super::super) async fn with_node(
    world: &World,
    part: impl AsyncFn(&World, &str) -> Result<()>,
) -> Result<()> {
    install_crds(world).await?;
    fresh_lease(world).await?;
    let node = format!("node-of-{}", world.namespace);
    let nodes: Api<Node> = Api::all(world.client.clone());
    let amounts = json!({"cpu": "8", "memory": "16Gi", "pods": "100"});
    let object: Node = serde_json::from_value(json!({"metadata": {"name": node}}))?;
    nodes.create(&PostParams::default(), &object).await?;
    let status = json!({"status": {"allocatable": amounts, "capacity": amounts}});
    let set = world
        .send(
            Method::PATCH,
            &format!("/api/v1/nodes/{node}/status"),
            MERGE,
            &status,
        )
        .await?;
    ensure!(set.code == 200, "the node was answered by {set:?}");
    let outcome = part(world, &node).await;
    nodes.delete(&node, &DeleteParams::default()).await?;
    outcome
}

async fn believes(world: &World, node: &str) -> Result<()> {
    let now = world.clock().now();
    for mode in ["InPlaceOrRecreate", "InPlace"] {
        for case in cases(now) {
            make(world, node, mode, &case, now).await?;
        }
    }
    boosted(world, node, now).await?;
    let flags = [
        "--min-replicas=1",
        "--feature-gates=InPlace=true,CPUStartupBoost=true",
        "--quirks=Q37",
    ];
    let updater = Updater::start(world, &flags).await?;
    updater.loops(world, 2).await?;
    for mode in ["InPlaceOrRecreate", "InPlace"] {
        for case in cases(now) {
            let expected = match (mode, case.expected) {
                ("InPlace", Expected::Evicted) if case.name == "infeasible" => Expected::Resized,
                ("InPlace", Expected::Evicted) => Expected::Left,
                (_, expected) => expected,
            };
            until_became(world, &name_of(mode, case.name), expected).await?;
        }
    }
    until_became(world, "boosted", Expected::Resized).await?;
    let annotations = world
        .api::<Pod>()
        .get("boosted-0")
        .await?
        .metadata
        .annotations
        .unwrap_or_default();
    ensure!(
        !annotations.contains_key("vpaCpuStartupBoost/app"),
        "the boost is still told of: {annotations:?}"
    );
    updater.stop().await
}

/// Both were killed nine minutes after their start, and what they request is within bounds.
async fn quick_kills(world: &World, node: &str) -> Result<()> {
    let now = world.clock().now();
    let mut status = running(now);
    killed(&mut status, now, 9);
    for (name, seconds) in [("soon", 600), ("late", 1)] {
        pod(world, node, name, &json!({}), &status).await?;
        let policy = json!({"updateMode": "Recreate", "evictAfterOOMSeconds": seconds});
        vpa(world, "ReplicaSet", name, policy).await?;
        within_bounds(world, name).await?;
    }
    let flags = [
        "--min-replicas=1",
        "--feature-gates=PerVPAConfig=true",
        "--quirks=Q37",
    ];
    let updater = Updater::start(world, &flags).await?;
    until_became(world, "soon", Expected::Evicted).await?;
    updater.loops(world, 2).await?;
    until_became(world, "late", Expected::Left).await?;
    updater.stop().await
}

fn name_of(mode: &str, case: &str) -> String {
    format!("{}-{case}", mode.to_lowercase())
}

/// A ReplicaSet with one pod that runs on the node, and its VPA.
async fn make(world: &World, node: &str, mode: &str, case: &Case, now: DateTime<Utc>) -> Result<()> {
    let name = name_of(mode, case.name);
    let mut status = running(now);
    if !case.condition.is_null() {
        status["conditions"] = json!([case.condition]);
    }
    (case.change)(&mut status, now);
    pod(world, node, &name, &json!({}), &status).await?;
    vpa(world, "ReplicaSet", &name, json!({"updateMode": mode})).await?;
    if case.name.starts_with("killed") {
        return within_bounds(world, &name).await;
    }
    recommend(world, &name, &[("app", "200m", "200Mi")]).await
}

/// Recommends more than is requested, though not so much that what is requested is out of bounds.
async fn within_bounds(world: &World, name: &str) -> Result<()> {
    let path = format!("{}/{name}/status", super::vpas(world));
    let recommended = json!({
        "containerName": "app", "target": {"memory": "200Mi"},
        "lowerBound": {"memory": "50Mi"}, "upperBound": {"memory": "300Mi"},
    });
    let status = json!({"status": {"recommendation": {"containerRecommendations": [recommended]}}});
    let set = world.send(Method::PATCH, &path, MERGE, &status).await?;
    ensure!(set.code == 200, "the status was answered by {set:?}");
    Ok(())
}

async fn boosted(world: &World, node: &str, now: DateTime<Utc>) -> Result<()> {
    let mut status = running(now);
    status["conditions"] = json!([{"type": "Ready", "status": "True", "lastTransitionTime": ago(now, 1)}]);
    let annotations = json!({"vpaCpuStartupBoost/app": "{\"requests\":{\"cpu\":\"50m\"},\"limits\":{}}"});
    pod(world, node, "boosted", &annotations, &status).await?;
    vpa(world, "ReplicaSet", "boosted", json!({"updateMode": "Auto"})).await?;
    let boost = json!({"cpu": {"type": "Factor", "factor": 2, "durationSeconds": 1}});
    change_vpa(world, "boosted", json!({"spec": {"startupBoost": boost}})).await?;
    recommend(world, "boosted", &[("app", "200m", "200Mi")]).await
}

pub(in super::super) fn running(now: DateTime<Utc>) -> Value {
    let amounts = json!({"cpu": "100m", "memory": "100Mi"});
    json!({
        "phase": "Running", "startTime": ago(now, 120),
        "containerStatuses": [{
            "name": "app", "ready": true, "started": true, "restartCount": 0, "image": "app", "imageID": "",
            "state": {"running": {"startedAt": ago(now, 120)}},
            "resources": {"requests": amounts, "limits": {"memory": "1Gi"}},
        }],
    })
}

pub(in super::super) async fn pod(
    world: &World,
    node: &str,
    name: &str,
    annotations: &Value,
    status: &Value,
) -> Result<()> {
    let labels = json!({"app": name});
    let resources = json!({"requests": {"cpu": "100m", "memory": "100Mi"}, "limits": {"memory": "1Gi"}});
    let containers = json!([{"name": "app", "image": "app", "resources": resources}]);
    let set: ReplicaSet = world
        .create_object(json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
            },
        }))
        .await?;
    let owner = json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": set.metadata.uid, "controller": true,
    }]);
    let pod = format!("{name}-0");
    world
        .create_object::<Pod>(json!({
            "metadata": {"name": pod, "labels": labels, "ownerReferences": owner, "annotations": annotations},
            "spec": {"nodeName": node, "containers": containers, "terminationGracePeriodSeconds": 30},
        }))
        .await?;
    let set = world
        .send(
            Method::PATCH,
            &world.pod_path(&pod, "status"),
            "application/strategic-merge-patch+json",
            &json!({"status": status}),
        )
        .await?;
    ensure!(set.code == 200, "the status of {pod} was answered by {set:?}");
    Ok(())
}

pub(in super::super) async fn until_became(world: &World, name: &str, expected: Expected) -> Result<()> {
    let pods = world.api::<Pod>();
    world
        .until(&format!("{name} is {expected:?}"), async || {
            let pod = pods.get_opt(&format!("{name}-0")).await?;
            let became = match pod {
                None => Expected::Evicted,
                Some(pod) if pod.metadata.deletion_timestamp.is_some() => Expected::Evicted,
                Some(pod) => {
                    let pod = serde_json::to_value(pod)?;
                    let requests = &pod["spec"]["containers"][0]["resources"]["requests"];
                    if *requests == json!({"cpu": "100m", "memory": "100Mi"}) {
                        Expected::Left
                    } else {
                        Expected::Resized
                    }
                }
            };
            Ok(if became == expected {
                Look::Done(())
            } else {
                Look::NotYet(format!("{became:?}"))
            })
        })
        .await
}
