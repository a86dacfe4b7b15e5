//! What stands around a pod and changes what the updater may want of it: LimitRanges, and sidecars that others put in.

use anyhow::{Context as _, Result, ensure};
use common::api::k8s::{Deployment, LimitRange, MutatingWebhookConfiguration};
use futures::FutureExt as _;
use kube::{Api, api::DeleteParams};
use serde_json::{Value, json};

use super::{
    super::super::{Look, Need, Scenario, World, webhook::Webhook},
    super::install_crds,
    Updater,
    admission::Admission,
    change_vpa, events, fresh_lease, pods, ready, recommend, template, uids, vpa,
};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "updater-minds-limit-ranges",
            about: "pods that have what a LimitRange leaves of their recommendation are not evicted, until it is gone",
            needs: &[Need::Node],
            run: |world| limit_ranges(world).boxed_local(),
        },
        Scenario {
            name: "updater-leaves-injected-sidecars",
            about: "a sidecar that was put in after admission had looked is no reason to evict",
            needs: &[Need::Node, Need::LocalWebhooks],
            run: |world| injected(world).boxed_local(),
        },
    ]
}

/// What a LimitRange makes of a recommendation for pods of one container with 10m and 16Mi of 200m and 64Mi.
const CASES: [(&str, &str, &str, &str, [&str; 2]); 4] = [
    ("container-max", "Container", "max", "cpu=200m", ["30m", "16Mi"]),
    ("container-min", "Container", "min", "memory=16Mi", ["10m", "8Mi"]),
    ("pod-max", "Pod", "max", "cpu=200m", ["30m", "16Mi"]),
    ("pod-min", "Pod", "min", "memory=16Mi", ["10m", "8Mi"]),
];

async fn limit_ranges(world: &World) -> Result<()> {
    install_crds(world).await?;
    fresh_lease(world).await?;
    for (name, ..) in CASES {
        let mut template = template(world, name, true);
        template["spec"]["initContainers"] = Value::Null;
        world
            .create_object::<Deployment>(json!({
                "metadata": {"name": name},
                "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template},
            }))
            .await?;
    }
    let updater = Updater::start(world, &[]).await?;
    for (name, kind, end, amount, [cpu, memory]) in CASES {
        let before = ready(world, name, 2).await?;
        let (resource, amount) = amount.split_once('=').context("a resource and its amount")?;
        let limit = json!({"type": kind, end: {resource: amount}});
        let range = json!({"metadata": {"name": name}, "spec": {"limits": [limit]}});
        world.create_object::<LimitRange>(range).await?;
        // Time to hear of it: the first may have been under way, and the second is a whole one.
        updater.loops(world, 3).await?;
        vpa(world, "Deployment", name, json!({"updateMode": "Recreate"})).await?;
        recommend(world, name, &[("app", cpu, memory)]).await?;
        updater.until_skipped(world, "NoChange", 2).await?;
        updater.loops(world, 2).await?;
        ensure!(
            uids(&before) == uids(&pods(world, name).await?),
            "evicted for what a LimitRange of {name} does not allow"
        );
        let ranges = world.api::<LimitRange>();
        ranges.delete(name, &DeleteParams::default()).await?;
        until_evicted(world, name).await?;
        let off = json!({"spec": {"updatePolicy": {"updateMode": "Off"}}});
        change_vpa(world, name, off).await?;
    }
    updater.stop().await
}

/// Waits until a pod whose name begins so was evicted.
async fn until_evicted(world: &World, name: &str) -> Result<()> {
    world
        .until(&format!("a pod of {name} is evicted"), async || {
            let evicted = events(world, "EvictedByVPA").await?;
            Ok(if evicted.iter().any(|pod| pod.starts_with(name)) {
                Look::Done(())
            } else {
                Look::NotYet(format!("evicted: {evicted:?}"))
            })
        })
        .await
}

/// Adds a container, once.
fn inject(review: &Value) -> Value {
    let spec = &review["request"]["object"]["spec"];
    if spec["containers"][1].is_object() {
        return json!({"allowed": true});
    }
    let sidecar = json!({
        "name": "agent", "image": spec["containers"][0]["image"], "args": ["sleep", "1h"],
        "resources": {"requests": {"cpu": "5m", "memory": "16Mi"}},
    });
    json!({"allowed": true, "patch": [{"op": "add", "path": "/spec/containers/-", "value": sidecar}]})
}

async fn injected(world: &World) -> Result<()> {
    install_crds(world).await?;
    fresh_lease(world).await?;
    let injector = Webhook::serve(inject).await?;
    let late = format!("{}-b-injector", world.namespace);
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(world.client.clone());
    injector.register_for_pods(world, &late).await?;
    let outcome = late_sidecar(world).await;
    configurations.delete(&late, &DeleteParams::default()).await?;
    outcome
}

async fn late_sidecar(world: &World) -> Result<()> {
    vpa(world, "Deployment", "web", json!({"updateMode": "Recreate"})).await?;
    world
        .create_object::<Deployment>(json!({
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template(world, "web", false),
            },
        }))
        .await?;
    let agent = ("agent", "50m", "64Mi");
    for (reinvocation, observed) in [("Never", "app"), ("IfNeeded", "agent, app")] {
        let policy = reinvocation.parse()?;
        let differ = |config: &mut admission::Config| config.pods.reinvocation = policy;
        let admission = Admission::start_as(world, differ).await?;
        let outcome = async {
            recommend(world, "web", &[("app", "10m", "16Mi")]).await?;
            let before = until_observed(world, observed).await?;
            recommend(world, "web", &[("app", "10m", "16Mi"), agent]).await?;
            let updater = Updater::start(world, &[]).await?;
            if reinvocation == "Never" {
                updater.until_skipped(world, "NoChange", 2).await?;
                updater.loops(world, 2).await?;
                ensure!(
                    before == uids(&pods(world, "web").await?),
                    "evicted for a sidecar that admission does not know of"
                );
            } else {
                until_evicted(world, "web").await?;
            }
            updater.stop().await
        };
        let outcome = outcome.await;
        admission.stop(world).await?;
        outcome.with_context(|| format!("reinvocation {reinvocation}"))?;
    }
    Ok(())
}

/// Makes the pods anew until all have the sidecar, and admission has seen these containers; gives their uids.
async fn until_observed(world: &World, observed: &str) -> Result<Vec<String>> {
    let api = world.api::<common::api::k8s::Pod>();
    let sorted = |text: &str| {
        let mut names: Vec<_> = text.split(", ").map(str::to_owned).collect();
        names.sort();
        names
    };
    world
        .until(&format!("admission has seen {observed}"), async || {
            let pods = ready(world, "web", 2).await?;
            let is_so = |pod: &Value| {
                let seen = &pod["metadata"]["annotations"]["vpaObservedContainers"];
                pod["spec"]["containers"][1].is_object()
                    && seen.as_str().is_some_and(|seen| sorted(seen) == sorted(observed))
            };
            let others: Vec<_> = pods.iter().filter(|(_, pod)| !is_so(pod)).collect();
            for (name, _) in &others {
                let now = DeleteParams::default().grace_period(0);
                api.delete(name, &now).await?;
            }
            Ok(if others.is_empty() {
                Look::Done(uids(&pods).into_iter().map(str::to_owned).collect())
            } else {
                Look::NotYet(format!("{} were made again", others.len()))
            })
        })
        .await
}
