//! Requests follow what is used: up with CPU and memory, up after kills, and back after a start.

use anyhow::{Result, ensure};
use common::{
    api::{k8s::Deployment, vpa::VerticalPodAutoscaler},
    gates::Gate,
};
use futures::FutureExt as _;
use serde_json::{Value, json};

use super::super::{
    super::{Look, Need, Scenario, World},
    install_crds,
    updater::{
        Updater, admission::Admission, admitted, change_vpa, fresh_lease, pods, ready, recommend, vpa,
    },
};
use super::{Daemons, requests};
use crate::sandbox::world::load;

const MI: i64 = 1 << 20;

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "requests-follow-usage",
            about: "requests grow with the CPU and the memory that is used, by eviction and in place, for the default \
                    recommender and nobody else's VPAs",
            needs: &[Need::Node, Need::LocalWebhooks],
            run: |world| grow(world).boxed_local(),
        },
        Scenario {
            name: "requests-follow-kills",
            about: "a workload that is killed for want of memory gets more until it is not",
            needs: &[Need::Node, Need::LocalWebhooks],
            run: |world| kills(world).boxed_local(),
        },
        Scenario {
            name: "startup-boosts-end",
            about: "all containers, or those that a policy names, start with more CPU and give it back in place, each when its \
                    time is over",
            needs: &[Need::Node, Need::LocalWebhooks],
            run: |world| boosts(world).boxed_local(),
        },
    ]
}

/// A Deployment of two pods that use so much from their start on, whoever runs them.
async fn deploy(world: &World, name: &str, cpu: &str, memory: &str, resources: Value) -> Result<()> {
    let load = json!({"containers": {"app": {"cpu": cpu, "memory": memory}}}).to_string();
    let container = json!({
        "name": "app", "image": world.image, "resources": resources,
        "args": ["load", "--cpu", cpu, "--memory", memory, "--listen", ""],
    });
    world
        .create_object::<Deployment>(json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": 2, "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}, "annotations": {load::ANNOTATION: load}},
                    "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
                },
            },
        }))
        .await?;
    Ok(())
}

async fn grow(world: &World) -> Result<()> {
    install_crds(world).await?;
    let small = json!({
        "requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "200m", "memory": "256Mi"},
    });
    let acting = [("evicted", "Recreate"), ("resized", "InPlaceOrRecreate")];
    for (name, mode) in acting {
        vpa(world, "Deployment", name, json!({"updateMode": mode})).await?;
    }
    let named = json!({"spec": {"recommenders": [{"name": "default"}]}});
    change_vpa(world, "evicted", named).await?;
    // What another recommender has said long ago.
    vpa(world, "Deployment", "foreign", json!({"updateMode": "Recreate"})).await?;
    let another = json!({"spec": {"recommenders": [{"name": "another"}]}});
    change_vpa(world, "foreign", another).await?;
    recommend(world, "foreign", &[("app", "10m", "16Mi")]).await?;
    let seeded = world.api::<VerticalPodAutoscaler>().get("foreign").await?;

    let daemons = Daemons::start(world, &[]).await?;
    let outcome = async {
        for name in ["evicted", "resized", "foreign"] {
            deploy(world, name, "80m", "48Mi", small.clone()).await?;
        }
        // Young pods that admission has not seen may come from an eviction, and are waited with.
        for name in ["evicted", "resized", "foreign"] {
            admitted(world, name, 2).await?;
        }
        for (name, _) in acting {
            // A busy machine may not let them use all the CPU they want.
            until_requests(world, name, (11, 400), (48 * MI, 160 * MI)).await?;
        }
        let foreign = world.api::<VerticalPodAutoscaler>().get("foreign").await?;
        ensure!(
            foreign.status == seeded.status,
            "the status of another's VPA was changed: {:?}",
            foreign.status
        );
        for pod in pods(world, "foreign").await?.values() {
            let has = requests(pod, "app");
            ensure!(has == Some((10, 16 * MI)), "another's pod has {has:?}");
        }
        Ok(())
    };
    let outcome = outcome.await;
    outcome.and(daemons.stop(world).await)
}

/// Waits until both pods run with so much CPU and memory.
async fn until_requests(world: &World, name: &str, cpu: (i64, i64), memory: (i64, i64)) -> Result<()> {
    let between = |(low, high): (i64, i64), amount: i64| low <= amount && amount <= high;
    world
        .until(
            &format!("pods of {name} request {cpu:?} and {memory:?}"),
            async || {
                let pods = ready(world, name, 2).await?;
                let has: Vec<_> = pods.values().map(|pod| requests(pod, "app")).collect();
                let done = has
                    .iter()
                    .all(|has| has.is_some_and(|(c, m)| between(cpu, c) && between(memory, m)));
                Ok(if done {
                    Look::Done(())
                } else {
                    Look::NotYet(format!("{has:?}"))
                })
            },
        )
        .await
}

async fn kills(world: &World) -> Result<()> {
    install_crds(world).await?;
    let tight = json!({
        "requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"},
    });
    vpa(
        world,
        "Deployment",
        "greedy",
        json!({"updateMode": "InPlaceOrRecreate"}),
    )
    .await?;
    let daemons = Daemons::start(world, &[]).await?;
    deploy(world, "greedy", "5m", "100Mi", tight).await?;
    let outcome = until_requests(world, "greedy", (1, 100), (110 * MI, 400 * MI)).await;
    outcome.and(daemons.stop(world).await)
}

/// The boost of each workload, of the whole pod and of its containers.
fn boosted() -> [(&'static str, Value); 3] {
    let boost = |seconds: u32| json!({"cpu": {"type": "Factor", "factor": 10, "durationSeconds": seconds}});
    let policy = |name: &str, seconds: u32| json!({"containerName": name, "startupBoost": boost(seconds)});
    [
        ("all", json!({"startupBoost": boost(5)})),
        (
            "some",
            json!({"resourcePolicy": {"containerPolicies": [policy("app", 5)]}}),
        ),
        (
            "each",
            json!({"resourcePolicy": {"containerPolicies": [policy("app", 5), policy("second", 60)]}}),
        ),
    ]
}

async fn boosts(world: &World) -> Result<()> {
    install_crds(world).await?;
    fresh_lease(world).await?;
    let gates = super::set(&[Gate::CPUStartupBoost]);
    let admission = Admission::start_as(world, |config| config.pods.gates = gates).await?;
    let outcome = boosts_end(world).await;
    outcome.and(admission.stop(world).await)
}

async fn boosts_end(world: &World) -> Result<()> {
    for (name, spec) in boosted() {
        vpa(
            world,
            "Deployment",
            name,
            json!({"updateMode": "InPlaceOrRecreate"}),
        )
        .await?;
        change_vpa(world, name, json!({"spec": spec})).await?;
        recommend(world, name, &[("app", "10m", "16Mi"), ("second", "10m", "16Mi")]).await?;
        let container = |name: &str| {
            json!({
                "name": name, "image": world.image, "args": ["sleep", "1h"],
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
            })
        };
        world
            .create_object::<Deployment>(json!({
                "metadata": {"name": name},
                "spec": {
                    "replicas": 1, "selector": {"matchLabels": {"app": name}},
                    "template": {
                        "metadata": {"labels": {"app": name}},
                        "spec": {
                            "terminationGracePeriodSeconds": 1,
                            "containers": [container("app"), container("second")],
                        },
                    },
                },
            }))
            .await?;
    }
    let cpu = |pod: &Value| ["app", "second"].map(|name| requests(pod, name).map_or(0, |(cpu, _)| cpu));
    for (name, expected) in [("all", [100, 100]), ("some", [100, 10]), ("each", [100, 100])] {
        for pod in admitted(world, name, 1).await?.values() {
            ensure!(cpu(pod) == expected, "{name} starts with {:?}", cpu(pod));
        }
    }
    let updater = Updater::start(world, &["--feature-gates=CPUStartupBoost=true"]).await?;
    // Each resize makes a generation of the pod: the one whose containers differ in time has two, unless both were over when
    // the updater began.
    for (name, most) in [("all", 2), ("some", 2), ("each", 3)] {
        world
            .until(&format!("the boosts of {name} are over"), async || {
                let pods = ready(world, name, 1).await?;
                let done = pods.values().all(|pod| cpu(pod) == [10, 10]);
                let seen: Vec<_> = pods.values().map(|pod| (cpu(pod), &pod["metadata"])).collect();
                if done {
                    for pod in pods.values() {
                        let now = &pod["metadata"]["generation"];
                        ensure!(
                            now.as_u64().is_some_and(|now| (2..=most).contains(&now)),
                            "{name} was resized up to generation {now}"
                        );
                    }
                }
                Ok(if done {
                    Look::Done(())
                } else {
                    Look::NotYet(format!("{seen:?}"))
                })
            })
            .await?;
    }
    updater.stop().await
}
