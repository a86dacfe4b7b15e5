//! Evictions: when they are made, when they are not, and what stops them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use common::api::k8s::{Deployment, Job, ReplicaSet, StatefulSet};
use futures::FutureExt as _;
use http::Method;
use k8s_openapi::api::{
    batch::v1::CronJob, core::v1::ReplicationController, policy::v1::PodDisruptionBudget,
};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{
    super::super::{Look, Need, Scenario, World},
    super::install_crds,
    MERGE, Updater,
    admission::Admission,
    admitted, change_vpa, events, fresh_lease, no_lease, pods, ready, recommend, template, uids, vpa,
};
use crate::sandbox::{Effect, Fault, world::load};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "updater-evicts",
            about: "pods are evicted up and down while the admission lease is fresh and the VPA's requirements are met, and \
                    not otherwise",
            needs: &[Need::Node, Need::LocalWebhooks],
            run: |world| evicts(world).boxed_local(),
        },
        Scenario {
            name: "updater-minds-replicas",
            about: "groups of two are evicted whatever controls them, single pods only if the VPA says so",
            needs: &[Need::Node, Need::LocalWebhooks],
            run: |world| replicas(world).boxed_local(),
        },
        Scenario {
            name: "updater-breaker",
            about: "a replacement that admission did not size stops evictions, with an event on the VPA and a metric",
            needs: &[Need::Node],
            run: |world| breaker(world).boxed_local(),
        },
        Scenario {
            name: "updater-counts-lost-answers",
            about: "evictions that are carried out while their answers are lost count: no more than the budget, and a replacement \
                    that admission did not size stops them",
            needs: &[Need::Node, Need::Faults],
            run: |world| lost_answers(world).boxed_local(),
        },
        Scenario {
            name: "updater-minds-disruption-budgets",
            about: "a PodDisruptionBudget refuses evictions for as long as it likes, and the reason is told; when it allows some, \
                    all ten pods have their turn",
            needs: &[Need::Node, Need::LocalWebhooks],
            run: |world| budget(world).boxed_local(),
        },
    ]
}

/// Waits until no pod is left of those there were.
async fn all_replaced(world: &World, app: &str, before: &[&str]) -> Result<()> {
    world
        .until(&format!("all pods of {app} are others"), async || {
            let now = pods(world, app).await?;
            let left = uids(&now).into_iter().filter(|uid| before.contains(uid)).count();
            Ok(if left == 0 && now.len() >= before.len() {
                Look::Done(())
            } else {
                Look::NotYet(format!("{left} of {} are left", before.len()))
            })
        })
        .await
}

fn workload(world: &World, name: &str, replicas: usize) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": template(world, name, false),
        },
    })
}

async fn evicts(world: &World) -> Result<()> {
    install_crds(world).await?;
    let admission = Admission::start(world, false).await?;
    let outcome = evicted(world).await;
    admission.stop(world).await?;
    outcome
}

async fn evicted(world: &World) -> Result<()> {
    world
        .create_object::<Deployment>(workload(world, "web", 3))
        .await?;
    let requirement = json!([{"resources": ["cpu"], "changeRequirement": "TargetHigherThanRequests"}]);
    vpa(
        world,
        "Deployment",
        "web",
        json!({"updateMode": "Recreate", "evictionRequirements": requirement}),
    )
    .await?;
    let before = admitted(world, "web", 3).await?;
    recommend(world, "web", &[("app", "5m", "8Mi")]).await?;

    // Down, and the VPA wants up only.
    fresh_lease(world).await?;
    let updater = Updater::start(world, &[]).await?;
    updater.until_skipped(world, "Requirements", 3).await?;
    // Up, and the admission component is gone.
    no_lease(world).await?;
    world
        .until("the updater knows that the lease is gone", async || {
            let fresh = updater.metric("outrigger_updater_admission_fresh").await?;
            Ok(if fresh < 0.5 {
                Look::Done(())
            } else {
                Look::NotYet("it is fresh".to_owned())
            })
        })
        .await?;
    recommend(world, "web", &[("app", "30m", "24Mi")]).await?;
    updater.until_skipped(world, "AdmissionStale", 3).await?;
    updater.loops(world, 2).await?;
    ensure!(
        uids(&before) == uids(&pods(world, "web").await?),
        "something was evicted"
    );
    let told = events(world, "AdmissionStale").await?;
    ensure!(told.len() == 3, "each pod is told of once, not {told:?}");
    explained(world).await?;
    // The fallback from a resize that cannot be is an eviction too.
    change_vpa(
        world,
        "web",
        json!({"spec": {"updatePolicy": {"updateMode": "InPlaceOrRecreate"}}}),
    )
    .await?;
    recommend(world, "web", &[("app", "999", "24Mi")]).await?;
    updater.until_skipped(world, "AdmissionStale", 3).await?;
    updater.loops(world, 2).await?;
    ensure!(
        uids(&before) == uids(&pods(world, "web").await?),
        "something was evicted"
    );

    recommend(world, "web", &[("app", "30m", "24Mi")]).await?;
    change_vpa(
        world,
        "web",
        json!({"spec": {"updatePolicy": {"updateMode": "Recreate"}}}),
    )
    .await?;
    // The resize may have come first; whatever they have now is not what is recommended next.
    recommend(world, "web", &[("app", "50m", "32Mi")]).await?;
    fresh_lease(world).await?;
    all_replaced(world, "web", &uids(&before)).await?;
    world
        .until("all three evictions are told of", async || {
            let told = events(world, "EvictedByVPA").await?;
            let of_vpa = events(world, "EvictedPod").await?;
            ensure!(of_vpa.iter().all(|name| name == "web"), "told of {of_vpa:?}");
            Ok(if told.len() >= 3 && of_vpa.len() >= 3 {
                Look::Done(())
            } else {
                Look::NotYet(format!("{told:?} {of_vpa:?}"))
            })
        })
        .await?;

    // Down, which the VPA takes now.
    let before = ready(world, "web", 3).await?;
    change_vpa(
        world,
        "web",
        json!({"spec": {"updatePolicy": {"evictionRequirements": null}}}),
    )
    .await?;
    recommend(world, "web", &[("app", "5m", "8Mi")]).await?;
    all_replaced(world, "web", &uids(&before)).await?;

    // Off means off.
    change_vpa(
        world,
        "web",
        json!({"spec": {"updatePolicy": {"updateMode": "Off"}}}),
    )
    .await?;
    updater.loops(world, 1).await?;
    let before = ready(world, "web", 3).await?;
    updater.loops(world, 2).await?;
    ensure!(
        uids(&before) == uids(&pods(world, "web").await?),
        "something was evicted in mode Off"
    );
    updater.stop().await
}

/// Whoever asks gets the reason, and the numbers.
async fn explained(world: &World) -> Result<()> {
    let flags = super::own_flags(world);
    let config = updater::Config::from_flags(flags.iter().map(String::as_str))?;
    let clock = world.clock();
    let asked = updater::explain::explain(&world.client, &clock, &config, &world.namespace, "web");
    let answer = serde_json::to_value(asked.await?)?;
    let pods = answer["pods"].as_array().context("no pods")?;
    ensure!(
        pods.len() == 3 && pods.iter().all(|pod| pod["reason"] == "AdmissionStale"),
        "explained by {answer}"
    );
    let app = &answer["pods"][0]["containers"][0];
    ensure!(
        app["requests"]["cpu"] == "10m" && app["plannedRequests"]["cpu"] == "30m",
        "explained by {app}"
    );
    Ok(())
}

async fn replicas(world: &World) -> Result<()> {
    install_crds(world).await?;
    fresh_lease(world).await?;
    let admission = Admission::start(world, false).await?;
    let outcome = of_all_kinds(world).await;
    admission.stop(world).await?;
    outcome
}

async fn of_all_kinds(world: &World) -> Result<()> {
    let mut before = Vec::new();
    // A Job gives up on its pods when many are deleted, so its kinds come when admission is known to be asked.
    for kinds in [
        vec!["Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"],
        vec!["Job", "CronJob"],
    ] {
        for (name, count) in controllers(world, &kinds).await? {
            let pods = admitted(world, &name, count).await?;
            before.push((name, count, pods));
        }
    }
    for (name, _, _) in &before {
        recommend(world, name, &[("app", "30m", "24Mi")]).await?;
    }
    let updater = Updater::start(world, &[]).await?;
    for (name, _, pods) in before.iter().filter(|(_, count, _)| *count == 2) {
        all_replaced(world, name, &uids(pods)).await?;
    }
    updater.until_skipped(world, "TooFewReplicas", 6).await?;
    for (name, _, known) in before.iter().filter(|(_, count, _)| *count == 1) {
        ensure!(
            uids(known) == uids(&pods(world, name).await?),
            "the only pod of {name} is gone"
        );
        change_vpa(world, name, json!({"spec": {"updatePolicy": {"minReplicas": 1}}})).await?;
    }
    for (name, _, pods) in before.iter().filter(|(_, count, _)| *count == 1) {
        all_replaced(world, name, &uids(pods)).await?;
    }
    updater.stop().await
}

/// Two controllers of each kind, with two pods and with one, and their VPAs.
async fn controllers(world: &World, kinds: &[&str]) -> Result<Vec<(String, usize)>> {
    let mut apps = Vec::new();
    for &kind in kinds {
        for (suffix, count) in [("two", 2), ("one", 1)] {
            let name = format!("{}-{suffix}", kind.to_lowercase());
            // Before its pods, so that admission knows it when they come.
            vpa(world, kind, &name, json!({"updateMode": "Recreate"})).await?;
            let mut object = workload(world, &name, count);
            match kind {
                "Deployment" => drop(world.create_object::<Deployment>(object).await?),
                "ReplicaSet" => drop(world.create_object::<ReplicaSet>(object).await?),
                "StatefulSet" => {
                    object["spec"]["serviceName"] = json!(name);
                    object["spec"]["podManagementPolicy"] = json!("Parallel");
                    drop(world.create_object::<StatefulSet>(object).await?);
                }
                "Job" => drop(world.create_object::<Job>(job(world, &name, count)).await?),
                "CronJob" => {
                    let spec = json!({
                        "schedule": "* * * * *", "concurrencyPolicy": "Forbid",
                        "jobTemplate": {"spec": job(world, &name, count)["spec"]},
                    });
                    let cron_job = json!({"metadata": {"name": name}, "spec": spec});
                    drop(world.create_object::<CronJob>(cron_job).await?);
                }
                _ => {
                    object["spec"]["selector"] = json!({"app": name});
                    drop(world.create_object::<ReplicationController>(object).await?);
                }
            }
            apps.push((name, count));
        }
    }
    Ok(apps)
}

/// Runs so many pods at once for hours, and others when they are evicted: one that ends well when it is told to end counts as
/// completed.
fn job(world: &World, name: &str, pods: usize) -> Value {
    let mut template = template(world, name, false);
    template["metadata"]["annotations"] = json!({load::ANNOTATION: r#"{"runs": "2h"}"#});
    template["spec"]["restartPolicy"] = json!("Never");
    json!({
        "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": 50, "backoffLimit": 50, "template": template},
    })
}

/// Four pods that are to be evicted, and that nobody marks or sizes.
async fn left_by_admission(world: &World) -> Result<BTreeMap<String, Value>> {
    install_crds(world).await?;
    fresh_lease(world).await?;
    world
        .create_object::<Deployment>(workload(world, "web", 4))
        .await?;
    vpa(world, "Deployment", "web", json!({"updateMode": "Recreate"})).await?;
    recommend(world, "web", &[("app", "30m", "24Mi")]).await?;
    ready(world, "web", 4).await
}

async fn breaker(world: &World) -> Result<()> {
    let before = left_by_admission(world).await?;
    // Young pods without a mark may come from an eviction of its own, for all that a new updater knows.
    let updater = Updater::start(world, &[]).await?;
    updater.until_skipped(world, "ProbePending", 4).await?;
    ensure!(
        uids(&before) == uids(&pods(world, "web").await?),
        "evicted though pods are new"
    );
    updater.stop().await?;
    mark(world, &before).await?;
    let updater = Updater::start(world, &[]).await?;
    updater.until_skipped(world, "BreakerOpen", 2).await?;
    let told = events(world, "EvictionBreakerOpen").await?;
    ensure!(told == ["web"], "the VPA is told of, not {told:?}");
    updater.loops(world, 3).await?;
    let evicted = events(world, "EvictedByVPA").await?;
    // One, where the first took as long as a loop may: then the next loop has seen what became of it.
    ensure!(
        (1..=2).contains(&evicted.len()),
        "what the budget allows and no more, not {evicted:?}"
    );
    let open = updater.metric("outrigger_updater_open_breakers").await?;
    ensure!(open > 0.5, "{open} breakers are open");
    updater.stop().await
}

async fn lost_answers(world: &World) -> Result<()> {
    let before = left_by_admission(world).await?;
    mark(world, &before).await?;
    let lost = Fault::new(Effect::LoseAnswer)
        .verbs(&["create"])
        .on(&["pods/eviction"]);
    world.faults()?.add(lost);
    let updater = Updater::start(world, &[]).await?;
    updater.until_skipped(world, "BreakerOpen", 2).await?;
    updater.loops(world, 3).await?;
    updater.stop().await?;
    let after = pods(world, "web").await?;
    let gone = before.keys().filter(|name| !after.contains_key(*name)).count();
    ensure!(gone <= 2, "{gone} of four are gone: the budget is two");
    Ok(())
}

/// As if admission had sized these; those that come after them are not.
async fn mark(world: &World, pods: &BTreeMap<String, Value>) -> Result<()> {
    let mark = json!({"metadata": {"annotations": {"vpaObservedContainers": "app"}}});
    for name in pods.keys() {
        let marked = world
            .send(Method::PATCH, &world.pod_path(name, ""), MERGE, &mark)
            .await?;
        ensure!(marked.code == 200, "not marked: {marked:?}");
    }
    Ok(())
}

async fn budget(world: &World) -> Result<()> {
    install_crds(world).await?;
    fresh_lease(world).await?;
    let admission = Admission::start(world, false).await?;
    let outcome = refused(world).await;
    admission.stop(world).await?;
    outcome
}

async fn refused(world: &World) -> Result<()> {
    world
        .create_object::<Deployment>(workload(world, "web", 10))
        .await?;
    world
        .create_object::<PodDisruptionBudget>(json!({
            "metadata": {"name": "web"},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
        }))
        .await?;
    vpa(world, "Deployment", "web", json!({"updateMode": "Recreate"})).await?;
    let before = admitted(world, "web", 10).await?;
    recommend(world, "web", &[("app", "30m", "24Mi")]).await?;
    let budgets = world.api::<PodDisruptionBudget>();
    world
        .until("the budget has seen the pods", async || {
            let status = budgets.get("web").await?.status.context("no status")?;
            Ok(if status.current_healthy == Some(10) {
                Look::Done(())
            } else {
                Look::NotYet(format!("{status:?}"))
            })
        })
        .await?;
    let updater = Updater::start(world, &[]).await?;
    updater.until_skipped(world, "DisruptionBudget", 1).await?;
    updater.loops(world, 2).await?;
    ensure!(
        uids(&before) == uids(&pods(world, "web").await?),
        "the budget was not minded"
    );
    ensure!(
        !events(world, "DisruptionBudget").await?.is_empty(),
        "nobody was told"
    );
    let wider = Patch::Merge(json!({"spec": {"maxUnavailable": 7}}));
    budgets.patch("web", &PatchParams::default(), &wider).await?;
    all_replaced(world, "web", &uids(&before)).await?;
    updater.stop().await
}
