//! Objects that nobody should make: giant ones, owners in a circle, quantities at the edge of what is one, a thousand
//! containers.

use anyhow::{Context as _, Result, ensure};
use common::api::{
    checkpoint::VerticalPodAutoscalerCheckpoint,
    k8s::{Pod, ReplicaSet},
    vpa::VerticalPodAutoscaler,
};
use futures::FutureExt as _;
use http::Method;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::super::super::{Look, Need, Scenario, World};
use super::super::{
    recommender::Recommender,
    updater::{
        Updater,
        admission::Admission,
        fresh_lease,
        kubelet::{Expected, pod, running, until_became, with_node},
        recommend, vpa,
    },
};

pub(super) fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "hostile-objects",
        about: "giant objects, owners in a circle, odd quantities, spoilt checkpoints and a thousand containers keep no daemon \
                from its work on the others, and cause no panic",
        needs: &[Need::NoControllers, Need::LocalWebhooks],
        run: |world| with_node(world, hostile).boxed_local(),
    }]
}

const MANY: usize = 1000;

async fn hostile(world: &World, node: &str) -> Result<()> {
    fresh_lease(world).await?;
    circle(world, node).await?;
    odd(world, node).await?;
    giant(world).await?;
    spoilt(world).await?;
    nowhere(world).await?;
    let admission = Admission::start(world, true).await?;
    let gates = "--feature-gates=NativeSidecar=true,InPlace=true,CPUStartupBoost=true,PerVPAConfig=true";
    let recommender = Recommender::start(world, &[gates]).await?;
    let updater = Updater::start(world, &["--min-replicas=1", "--quirks=Q37", gates]).await?;
    let outcome = good(world, node, &updater).await;
    let panics = updater.metric("outrigger_updater_panics_total").await?;
    let left = updater.reasons().await?;
    updater.stop().await?;
    recommender.stop().await?;
    admission.stop(world).await?;
    outcome.with_context(|| format!("left as they are: {left}"))?;
    ensure!(panics < 0.5, "the updater panicked {panics} times");
    Ok(())
}

/// Pods and VPAs as they should be are served all the same.
async fn good(world: &World, node: &str, updater: &Updater) -> Result<()> {
    let status = running(world.clock().now());
    // Ours would write down that it knows nothing of this one, over what is recommended here.
    world
        .create_object::<VerticalPodAutoscaler>(json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": {"name": "good"},
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "good"},
                "updatePolicy": {"updateMode": "InPlaceOrRecreate"}, "recommenders": [{"name": "e2e"}],
            },
        }))
        .await?;
    pod(world, node, "good", &json!({}), &status).await?;
    recommend(world, "good", &[("app", "200m", "200Mi")]).await?;
    until_became(world, "good", Expected::Resized).await?;
    updater.loops(world, 2).await?;
    let vpas = world.api::<VerticalPodAutoscaler>();
    world
        .until("the recommender has looked at all VPAs", async || {
            let all = vpas.list(&ListParams::default()).await?;
            let own = all
                .iter()
                .filter(|vpa| !matches!(vpa.metadata.name.as_deref(), Some("good" | "wide")));
            let silent = own.filter(|vpa| {
                let conditions = vpa.status.as_ref().map(|status| status.conditions.len());
                conditions.unwrap_or_default() == 0
            });
            let silent: Vec<_> = silent.map(|vpa| vpa.metadata.name.clone()).collect();
            Ok(if silent.is_empty() {
                Look::Done(())
            } else {
                Look::NotYet(format!("not at {silent:?}"))
            })
        })
        .await?;
    wide(world).await
}

/// Two owners that own each other, one that owns itself, and pods under them.
async fn circle(world: &World, node: &str) -> Result<()> {
    let status = running(world.clock().now());
    let sets = world.api::<ReplicaSet>();
    for name in ["left", "right", "itself"] {
        pod(world, node, name, &json!({}), &status).await?;
        vpa(world, "ReplicaSet", name, json!({"updateMode": "Recreate"})).await?;
    }
    for (name, owner) in [("left", "right"), ("right", "left"), ("itself", "itself")] {
        let uid = sets.get(owner).await?.metadata.uid.context("no uid")?;
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": uid, "controller": true,
        });
        let patch = json!({"metadata": {"ownerReferences": [owner]}});
        sets.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
    }
    for name in ["left", "right", "itself"] {
        recommend(world, name, &[("app", "200m", "200Mi")]).await?;
    }
    Ok(())
}

/// Recommendations at the edge of what is a quantity, and beyond sense.
async fn odd(world: &World, node: &str) -> Result<()> {
    let status = running(world.clock().now());
    let quantities = [
        "0",
        "-5",
        "1n",
        "1e-9",
        "0.0000000001",
        "9E",
        "8Ei",
        "1e30",
        "99999999999999999999999",
        "+1",
        ".5",
        "1e3",
    ];
    for (number, amount) in quantities.iter().enumerate() {
        let name = format!("odd-{number}");
        pod(world, node, &name, &json!({}), &status).await?;
        let mode = ["Recreate", "InPlaceOrRecreate", "InPlace"][number % 3];
        vpa(world, "ReplicaSet", &name, json!({"updateMode": mode})).await?;
        let set = set_status(world, &name, &[recommendation("app", amount)]).await?;
        ensure!(set == 200 || set == 422, "{amount} was answered by {set}");
    }
    Ok(())
}

fn recommendation(container: &str, amount: &str) -> Value {
    let both = json!({"cpu": amount, "memory": amount, "example.org/odd": amount});
    json!({"containerName": container, "target": both, "lowerBound": both, "upperBound": both, "uncappedTarget": both})
}

async fn set_status(world: &World, name: &str, recommended: &[Value]) -> Result<u16> {
    let path = format!(
        "/apis/autoscaling.k8s.io/v1/namespaces/{}/verticalpodautoscalers/{name}/status",
        world.namespace
    );
    let status = json!({"status": {"recommendation": {"containerRecommendations": recommended}}});
    let merge = "application/merge-patch+json";
    Ok(world.send(Method::PATCH, &path, merge, &status).await?.code)
}

/// VPAs with a thousand policies, all the annotations that fit, and a thousand recommendations of somebody else's.
async fn giant(world: &World) -> Result<()> {
    let policies: Vec<_> = (0..MANY)
        .map(|number| {
            let name = format!("c-{number}");
            json!({"containerName": name, "minAllowed": {"cpu": "1m"}, "maxAllowed": {"cpu": "9"}})
        })
        .collect();
    let text = "x".repeat(200 * 1024);
    for (name, recommenders) in [("giant", json!([])), ("wide", json!([{"name": "e2e"}]))] {
        world
            .create_object::<VerticalPodAutoscaler>(json!({
                "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
                "metadata": {"name": name, "annotations": {"text": text}},
                "spec": {
                    "targetRef": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name},
                    "updatePolicy": {"updateMode": "Recreate"}, "recommenders": recommenders,
                    "resourcePolicy": {"containerPolicies": policies},
                },
            }))
            .await?;
    }
    let recommended: Vec<_> = (0..MANY)
        .map(|number| json!({"containerName": format!("c-{number}"), "target": {"cpu": "5", "memory": "5"}}))
        .collect();
    let set = set_status(world, "wide", &recommended).await?;
    ensure!(set == 200, "a thousand recommendations were answered by {set}");
    Ok(())
}

/// Checkpoints whose numbers are none.
async fn spoilt(world: &World) -> Result<()> {
    let histogram = json!({
        "referenceTimestamp": "0001-01-01T00:00:00Z", "totalWeight": -1e308,
        "bucketWeights": {"-1": 5, "99999": 2_000_000_000, "7": -3},
    });
    for (name, version) in [("left", "v3"), ("right", "v999")] {
        let checkpoint = world
            .create_object::<VerticalPodAutoscalerCheckpoint>(json!({
                "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscalerCheckpoint",
                "metadata": {"name": format!("{name}-app")},
                "spec": {"vpaObjectName": name, "containerName": "app"},
                "status": {
                    "version": version, "totalSamplesCount": -7, "cpuHistogram": histogram, "memoryHistogram": histogram,
                    "firstSampleStart": "9999-12-31T23:59:59Z", "lastSampleStart": "0001-01-01T00:00:00Z",
                },
            }))
            .await;
        // A server may refuse it; what it takes must do no harm.
        drop(checkpoint);
    }
    Ok(())
}

/// VPAs whose target is no controller, or cannot be.
async fn nowhere(world: &World) -> Result<()> {
    let targets = [
        ("v1", "Pod", "left-0"),
        ("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", "nowhere-1"),
        ("a/b/c", "Nothing", "x"),
        ("", "", ""),
    ];
    for (number, (api_version, kind, name)) in targets.into_iter().enumerate() {
        world
            .create_object::<VerticalPodAutoscaler>(json!({
                "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
                "metadata": {"name": format!("nowhere-{number}")},
                "spec": {"targetRef": {"apiVersion": api_version, "kind": kind, "name": name}},
            }))
            .await?;
    }
    Ok(())
}

/// A new pod with a thousand containers goes through admission.
async fn wide(world: &World) -> Result<()> {
    let template = json!({
        "metadata": {"labels": {"app": "wide"}}, "spec": {"containers": [{"name": "app", "image": "app"}]},
    });
    let set: ReplicaSet = world
        .create_object(json!({
            "metadata": {"name": "wide"},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "wide"}}, "template": template},
        }))
        .await?;
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "wide", "uid": set.metadata.uid, "controller": true,
    });
    let containers: Vec<_> = (0..MANY)
        .map(|number| {
            let requests = json!({"requests": {"cpu": "1m", "memory": "1Mi"}});
            json!({"name": format!("c-{number}"), "image": "app", "resources": requests})
        })
        .collect();
    world
        .until("all containers are sized", async || {
            let pod = world
                .create_object::<Pod>(json!({
                    "metadata": {
                        "generateName": "wide-", "labels": {"app": "wide"}, "ownerReferences": [owner],
                    },
                    "spec": {"containers": containers},
                }))
                .await;
            let pod = match pod {
                Ok(pod) => serde_json::to_value(pod)?,
                Err(error) => return Ok(Look::NotYet(format!("{error:#}"))),
            };
            let made = pod["spec"]["containers"].as_array().context("no containers")?;
            let sized = made
                .iter()
                .filter(|container| container["resources"]["requests"]["cpu"] == "5");
            let sized = sized.count();
            Ok(if sized == MANY {
                Look::Done(())
            } else {
                Look::NotYet(format!("{sized} of {MANY} are"))
            })
        })
        .await
}
