//! The gate of native sidecars, switched on and off under a running workload, in all three daemons.

use anyhow::{Context as _, Result, ensure};
use common::{
    api::{
        checkpoint::VerticalPodAutoscalerCheckpoint,
        k8s::{Deployment, Pod},
    },
    gates::Gate,
};
use futures::FutureExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::super::{
    super::{Look, Need, Scenario, World},
    install_crds,
    recommender::{checkpoint, recommended},
    updater::{
        Updater, admission::Admission, admitted, fresh_lease, pods, ready, recommend, restarts, template,
        uids, vpa,
    },
    workload,
};
use super::{Daemons, requests};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "sidecar-gate-on-and-off",
            about: "off, all three daemons leave native sidecars alone; on, they are recommended for, resized in place and \
                    sized at creation; off again, they keep what they have and their checkpoint stays",
            needs: &[Need::Node, Need::LocalWebhooks],
            run: |world| on_and_off(world).boxed_local(),
        },
        Scenario {
            name: "sidecar-alone-is-evicted-for",
            about: "in mode Recreate a pod of which only the native sidecar differs is evicted with the gate on, and left \
                    with it off",
            needs: &[Need::Node, Need::LocalWebhooks],
            run: |world| evicted_for(world).boxed_local(),
        },
    ]
}

/// Requests of the three kinds of container in a pod, as they were written.
fn sidecar(pod: &Value) -> &Value {
    &pod["spec"]["initContainers"][1]["resources"]
}

async fn on_and_off(world: &World) -> Result<()> {
    install_crds(world).await?;
    workload::deploy(world, 2).await?;
    vpa(
        world,
        "Deployment",
        "web",
        json!({"updateMode": "InPlaceOrRecreate"}),
    )
    .await?;
    busy(world).await?;

    let daemons = Daemons::start(world, &[]).await?;
    let outcome = gate_off(world).await.context("with the gate off");
    daemons.stop(world).await?;
    outcome?;

    let daemons = Daemons::start(world, &[Gate::NativeSidecar]).await?;
    let outcome = gate_on(world).await.context("with the gate on");
    daemons.stop(world).await?;
    outcome?;

    let daemons = Daemons::start(world, &[]).await?;
    let outcome = off_again(world, &daemons)
        .await
        .context("with the gate off again");
    daemons.stop(world).await?;
    outcome
}

/// Both use far more than they ask for.
async fn busy(world: &World) -> Result<()> {
    for container in ["app", "proxy"] {
        world.usage("web", container, "50m", "40Mi").await?;
    }
    Ok(())
}

/// Waits until a container of both pods really has more than it came with. A busy machine may give it hardly any CPU to use.
async fn until_more(world: &World, container: &str) -> Result<()> {
    world
        .until(&format!("{container} has more"), async || {
            let pods = ready(world, "web", 2).await?;
            let has: Vec<_> = pods.values().map(|pod| requests(pod, container)).collect();
            let more =
                |has: &Option<(i64, i64)>| has.is_some_and(|(cpu, memory)| cpu > 10 && memory > 32 << 20);
            Ok(if has.iter().all(more) {
                Look::Done(())
            } else {
                Look::NotYet(format!("{has:?}"))
            })
        })
        .await
}

/// Deletes a pod, and gives the one that comes for it.
async fn replaced(world: &World) -> Result<Value> {
    let before = ready(world, "web", 2).await?;
    let (gone, _) = before.first_key_value().context("two pods")?;
    let soon = DeleteParams::default().grace_period(1);
    world.api::<Pod>().delete(gone, &soon).await?;
    world
        .until("a new pod is ready", async || {
            let now = ready(world, "web", 2).await?;
            let new = now.into_iter().find(|(name, _)| !before.contains_key(name));
            Ok(match new {
                Some((_, pod)) => Look::Done(pod),
                None => Look::NotYet("none".to_owned()),
            })
        })
        .await
}

async fn gate_off(world: &World) -> Result<()> {
    recommended(world, "web", &["app"]).await?;
    until_more(world, "app").await?;
    let new = replaced(world).await?;
    busy(world).await?;
    ensure!(
        new["metadata"]["annotations"]["vpaObservedContainers"] == "app",
        "observed: {}",
        new["metadata"]["annotations"]
    );
    let original =
        json!({"requests": {"cpu": "5m", "memory": "16Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}});
    for pod in pods(world, "web").await?.values() {
        ensure!(
            *sidecar(pod) == original,
            "a sidecar was touched: {}",
            sidecar(pod)
        );
    }
    let written = world.api::<VerticalPodAutoscalerCheckpoint>();
    ensure!(
        written.get_opt("web-proxy").await?.is_none(),
        "a checkpoint was written"
    );
    Ok(())
}

async fn gate_on(world: &World) -> Result<()> {
    let before = ready(world, "web", 2).await?;
    recommended(world, "web", &["app", "proxy"]).await?;
    until_more(world, "proxy").await?;
    let after = pods(world, "web").await?;
    ensure!(uids(&before) == uids(&after), "some pod is another one");
    ensure!(
        restarts(&before) == restarts(&after),
        "some container was restarted"
    );
    let new = replaced(world).await?;
    busy(world).await?;
    let observed = &new["metadata"]["annotations"]["vpaObservedContainers"];
    ensure!(
        observed == "app, proxy" || observed == "proxy, app",
        "observed: {observed}"
    );
    ensure!(
        requests(&new, "proxy").is_some_and(|(_, memory)| memory > 16 << 20),
        "a new sidecar was not sized: {}",
        sidecar(&new)
    );
    for pod in pods(world, "web").await?.values() {
        let ordinary = &pod["spec"]["initContainers"][0]["resources"]["requests"];
        ensure!(
            *ordinary == json!({"cpu": "10m", "memory": "16Mi"}),
            "an ordinary init container was touched: {ordinary}"
        );
    }
    world
        .until("the sidecar's checkpoint is written", async || {
            Ok(match checkpoint(world, "web-proxy").await {
                Ok(written) if written.total_samples_count > 0 => Look::Done(()),
                other => Look::NotYet(format!("{other:?}")),
            })
        })
        .await
}

async fn off_again(world: &World, daemons: &Daemons) -> Result<()> {
    let written = checkpoint(world, "web-proxy").await?;
    let before = ready(world, "web", 2).await?;
    recommended(world, "web", &["app"]).await?;
    daemons.updater.loops(world, 2).await?;
    let after = pods(world, "web").await?;
    ensure!(uids(&before) == uids(&after), "some pod is another one");
    for (name, pod) in &after {
        ensure!(
            before.get(name).map(sidecar) == Some(sidecar(pod)),
            "a sidecar was touched: {}",
            sidecar(pod)
        );
    }
    let now = checkpoint(world, "web-proxy").await?;
    ensure!(
        now == written,
        "the checkpoint was written: {now:?}, not {written:?}"
    );
    Ok(())
}

async fn evicted_for(world: &World) -> Result<()> {
    install_crds(world).await?;
    fresh_lease(world).await?;
    let admission = Admission::start(world, true).await?;
    let outcome = alone(world).await;
    outcome.and(admission.stop(world).await)
}

async fn alone(world: &World) -> Result<()> {
    vpa(world, "Deployment", "web", json!({"updateMode": "Recreate"})).await?;
    let template = template(world, "web", false);
    world
        .create_object::<Deployment>(json!({
            "metadata": {"name": "web"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        }))
        .await?;
    let before = admitted(world, "web", 2).await?;
    recommend(world, "web", &[("app", "10m", "16Mi"), ("proxy", "20m", "24Mi")]).await?;
    let updater = Updater::start(world, &["--feature-gates=NativeSidecar=false"]).await?;
    updater.until_skipped(world, "NoChange", 2).await?;
    updater.loops(world, 2).await?;
    ensure!(
        uids(&before) == uids(&pods(world, "web").await?),
        "evicted for a sidecar with the gate off"
    );
    updater.stop().await?;
    let updater = Updater::start(world, &["--feature-gates=NativeSidecar=true"]).await?;
    world
        .until("all pods are others, with the sidecar sized", async || {
            let now = ready(world, "web", 2).await?;
            let sized = now
                .values()
                .all(|pod| requests(pod, "proxy") == Some((20, 24 << 20)));
            let other = now.keys().all(|name| !before.contains_key(name));
            Ok(if sized && other {
                Look::Done(())
            } else {
                Look::NotYet(format!("{:?}, not {:?}", now.keys(), before.keys()))
            })
        })
        .await?;
    updater.stop().await
}
