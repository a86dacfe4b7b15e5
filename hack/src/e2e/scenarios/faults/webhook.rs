//! The webhook is slow, down, or shows an expired certificate, while its lease says that all is well.

use std::time::Duration;

use admission::config::Certificates;
use anyhow::{Result, ensure};
use common::api::k8s::Deployment;
use futures::FutureExt as _;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::{Value, json};

use super::super::super::{Look, Need, Scenario, World};
use super::super::{
    install_crds,
    updater::{Updater, admission::Admission, events, fresh_lease, pods, ready, recommend, template, vpa},
};
use super::error;
use crate::sandbox::{Effect, Fault};

pub(super) fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "webhook-outages-end-evictions",
        about: "whether the webhook is slow, down or shows an expired certificate: pods are still created, evictions stop after \
                what the budget allows and the reason is told, and when it works again they go on by themselves",
        needs: &[Need::Node, Need::LocalWebhooks, Need::Faults, Need::VirtualTime],
        run: |world| outages(world).boxed_local(),
    }]
}

async fn outages(world: &World) -> Result<()> {
    install_crds(world).await?;
    fresh_lease(world).await?;
    let admission = Admission::start_as(world, |config| config.webhook.fail = false).await?;
    for (name, effect) in [("slow", Effect::WebhookTimeout), ("down", error(503, None))] {
        prepare(world, name).await?;
        let faults = world.faults()?;
        faults.add(Fault::new(effect).verbs(&["webhook"]));
        let updater = stopped(world, name).await?;
        faults.clear();
        resumed(world, name).await?;
        updater.stop().await?;
    }
    prepare(world, "expired").await?;
    admission.stop(world).await?;
    let (certificate, key) = expired()?;
    let useless = Admission::start_as(world, |config| {
        config.webhook.fail = false;
        config.certificates = Certificates::Given { certificate, key };
    })
    .await?;
    let updater = stopped(world, "expired").await?;
    useless.stop(world).await?;
    let admission = Admission::start_as(world, |config| config.webhook.fail = false).await?;
    resumed(world, "expired").await?;
    updater.stop().await?;
    admission.stop(world).await
}

/// A workload whose pods admission has sized.
async fn prepare(world: &World, name: &str) -> Result<()> {
    vpa(world, "Deployment", name, json!({"updateMode": "Recreate"})).await?;
    recommend(world, name, &[("app", "10m", "16Mi")]).await?;
    world
        .create_object::<Deployment>(json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": 4, "selector": {"matchLabels": {"app": name}}, "template": template(world, name, false),
            },
        }))
        .await?;
    super::super::updater::admitted(world, name, 4).await?;
    Ok(())
}

/// Recommends more while nobody sizes new pods, and sees evictions stop.
async fn stopped(world: &World, name: &str) -> Result<Updater> {
    recommend(world, name, &[("app", "30m", "24Mi")]).await?;
    let updater = Updater::start(world, &[]).await?;
    updater.until_skipped(world, "BreakerOpen", 2).await?;
    world.pass(Duration::from_secs(300)).await?;
    let evicted = evicted(world, name).await?;
    ensure!(evicted <= 2, "{evicted} of four pods were evicted for nothing");
    ready(world, name, 4).await?;
    let told = events(world, "EvictionBreakerOpen").await?;
    ensure!(
        told.iter().any(|vpa| vpa == name),
        "{name} was not told: {told:?}"
    );
    Ok(updater)
}

async fn evicted(world: &World, name: &str) -> Result<usize> {
    let evicted = events(world, "EvictedByVPA").await?;
    Ok(evicted.iter().filter(|pod| pod.starts_with(name)).count())
}

/// Sees the rest done once the breaker has closed by itself.
async fn resumed(world: &World, name: &str) -> Result<()> {
    world
        .until(&format!("all pods of {name} are sized"), async || {
            world.pass(Duration::from_secs(60)).await?;
            let pods = pods(world, name).await?;
            let sized = |pod: &&Value| pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "30m";
            let sized = pods.values().filter(sized).count();
            Ok(if sized == 4 {
                Look::Done(())
            } else {
                Look::NotYet(format!("{sized} are"))
            })
        })
        .await
}

/// A certificate that was good years ago.
fn expired() -> Result<(String, String)> {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()])?;
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2021, 1, 1);
    let key = KeyPair::generate()?;
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}
