//! What `pods/eviction` answers, with and without a PodDisruptionBudget.

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;
use http::Method;
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use serde_json::{Value, json};

use super::super::{Answer, Look, Need, Scenario, World};
use super::{
    pod,
    workload::{deploy, replicas_ready},
};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "eviction-answers",
            about: "an eviction removes the pod, obeys its preconditions, and is refused by an exhausted disruption budget",
            needs: &[Need::Node],
            run: |world| answers(world).boxed_local(),
        },
        Scenario {
            name: "eviction-waits-for-the-budget",
            about: "a disruption budget that no controller has looked at yet refuses evictions for ten seconds",
            needs: &[Need::NoControllers],
            run: |world| unobserved(world).boxed_local(),
        },
    ]
}

async fn evict(world: &World, name: &str, options: Value) -> Result<Answer> {
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": name, "namespace": world.namespace}, "deleteOptions": options,
    });
    world
        .send(
            Method::POST,
            &world.pod_path(name, "eviction"),
            "application/json",
            &eviction,
        )
        .await
}

fn budget(app: &str, max_unavailable: u32) -> Value {
    json!({"metadata": {"name": app}, "spec": {"maxUnavailable": max_unavailable, "selector": {"matchLabels": {"app": app}}}})
}

async fn answers(world: &World) -> Result<()> {
    let missing = evict(world, "nobody", json!({})).await?;
    ensure!(missing.code == 404, "a missing pod: {missing:?}");

    let pods = deploy(world, 2).await?;
    let name = |pod: &Pod| pod.metadata.name.clone().context("a pod has a name");
    let first = name(pods.first().context("two pods")?)?;
    for (precondition, wrong, named) in [
        ("uid", "00000000-0000-0000-0000-000000000000", "UID"),
        ("resourceVersion", "1", "ResourceVersion"),
    ] {
        let refused = evict(world, &first, json!({"preconditions": {precondition: wrong}})).await?;
        ensure!(
            refused.code == 409 && refused.message().contains(named),
            "another {precondition}: {refused:?}"
        );
    }

    let api = world.api::<Pod>();
    world
        .until("the pod is evicted as it was seen", async || {
            let Some(Pod { metadata, .. }) = api.get_opt(&first).await? else {
                // Evicted, and the answer was lost.
                return Ok(Look::Done(()));
            };
            let seen = json!({"uid": metadata.uid, "resourceVersion": metadata.resource_version});
            let answer = evict(world, &first, json!({"preconditions": seen})).await?;
            Ok(match answer.code {
                201 => Look::Done(()),
                409 => Look::NotYet(answer.message().to_owned()),
                _ => anyhow::bail!("without a budget: {answer:?}"),
            })
        })
        .await?;
    world
        .until("the evicted pod is gone", async || {
            Ok(match api.get_opt(&first).await? {
                None => Look::Done(()),
                Some(pod) => Look::NotYet(format!("deletionTimestamp {:?}", pod.metadata.deletion_timestamp)),
            })
        })
        .await?;
    let pods = replicas_ready(world, 2).await?;

    world
        .create_object::<PodDisruptionBudget>(budget("web", 0))
        .await?;
    let budgets = world.api::<PodDisruptionBudget>();
    world
        .until("the budget has seen the pods", async || {
            let status = budgets.get("web").await?.status.unwrap_or_default();
            let done = status.observed_generation == Some(1) && status.current_healthy == Some(2);
            Ok(if done {
                Look::Done(())
            } else {
                Look::NotYet(format!("{status:?}"))
            })
        })
        .await?;
    let refused = evict(world, &name(pods.first().context("two pods")?)?, json!({})).await?;
    ensure!(
        refused.code == 429 && refused.has_cause("DisruptionBudget"),
        "an exhausted budget: {refused:?}"
    );
    ensure!(
        refused.message() == "Cannot evict pod as it would violate the pod's disruption budget.",
        "an exhausted budget: {}",
        refused.message()
    );
    Ok(())
}

async fn unobserved(world: &World) -> Result<()> {
    world.create_object::<Pod>(pod(world, "web")).await?;
    // Evicting a pod that is neither bound nor running asks no budget.
    let running =
        json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let set = world
        .send(
            Method::PATCH,
            &world.pod_path("web", "status"),
            "application/merge-patch+json",
            &running,
        )
        .await?;
    ensure!(set.code == 200, "the status was not set: {set:?}");
    world
        .create_object::<PodDisruptionBudget>(budget("web", 1))
        .await?;
    let refused = evict(world, "web", json!({})).await?;
    ensure!(
        refused.code == 429 && refused.has_cause("DisruptionBudget"),
        "answered {refused:?}"
    );
    ensure!(
        refused.body["details"]["retryAfterSeconds"] == 10,
        "no word on when to try again: {}",
        refused.body
    );
    Ok(())
}
