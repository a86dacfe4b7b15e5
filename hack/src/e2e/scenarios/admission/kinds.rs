//! Pods of Deployments, of Jobs and of nobody, with the gate and without.

use anyhow::{Result, ensure};
use common::api::k8s::{Deployment, Job, Lease, Pod};
use futures::FutureExt as _;
use http::Method;
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};

use super::super::super::{Look, Need, Scenario, World};
use super::super::{pod, pod_spec};
use super::{Admission, configuration, first_requests, install_crds, native_sidecars, unregister, vpa, vpas};

pub(super) fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "admission-sizes-new-pods",
        about: "new pods of a Deployment and of a Job get what their VPA recommends, sidecars with the gate only, bare pods \
                nothing; bad VPAs are denied; and without the webhook pods are still created",
        needs: &[Need::Node, Need::LocalWebhooks],
        run: |world| sizes(world).boxed_local(),
    }]
}

async fn sizes(world: &World) -> Result<()> {
    install_crds(world).await?;
    let result = sized(world).await;
    result.and(unregister(world, &configuration(world)).await)
}

async fn sized(world: &World) -> Result<()> {
    let targets = json!([
        {"containerName": "app", "target": {"cpu": "30m", "memory": "40Mi"}},
        {"containerName": "proxy", "target": {"cpu": "20m", "memory": "24Mi"}},
        {"containerName": "setup", "target": {"cpu": "99m", "memory": "99Mi"}},
    ]);
    vpa(world, "web", "Deployment", json!({}), &targets).await?;
    vpa(world, "batch", "Job", json!({}), &targets).await?;
    let recommended = json!({"cpu": "30m", "memory": "40Mi"});
    let sidecar = json!({"cpu": "20m", "memory": "24Mi"});
    let before = json!({"cpu": "5m", "memory": "16Mi"});

    let with_gate = Admission::start(world, Admission::config(world, native_sidecars(true))?);
    let pod = until_sized(world, "gate-on", &recommended).await?;
    ensure!(
        pod["spec"]["initContainers"][1]["resources"]["requests"] == sidecar,
        "the sidecar did not get its recommendation: {}",
        pod["spec"]["initContainers"][1]
    );
    ensure!(
        pod["spec"]["initContainers"][0]["resources"]["requests"]["cpu"] == "10m",
        "an ordinary init container was touched: {}",
        pod["spec"]["initContainers"][0]
    );
    let annotations = &pod["metadata"]["annotations"];
    ensure!(
        annotations["vpaObservedContainers"] == "app, proxy"
            || annotations["vpaObservedContainers"] == "proxy, app",
        "observed: {annotations}"
    );
    job_and_bare_pod(world, "gate-on", &recommended, &sidecar).await?;
    denied(world).await?;
    leased(world).await?;
    with_gate.stop().await?;

    let without_gate = Admission::start(world, Admission::config(world, native_sidecars(false))?);
    let pod = world
        .until("the webhook is the one without the gate", async || {
            let pod = new_pod(world, "gate-off").await?;
            let proxy = &pod["spec"]["initContainers"][1]["resources"]["requests"];
            let app = &pod["spec"]["containers"][0]["resources"]["requests"];
            if *app == recommended && *proxy == before {
                Ok(Look::Done(pod))
            } else {
                Ok(Look::NotYet(format!("app {app}, proxy {proxy}")))
            }
        })
        .await?;
    ensure!(
        pod["metadata"]["annotations"]["vpaObservedContainers"] == "app",
        "observed: {}",
        pod["metadata"]["annotations"]
    );
    job_and_bare_pod(world, "gate-off", &recommended, &before).await?;
    without_gate.stop().await?;

    let pod = new_pod(world, "stopped").await?;
    ensure!(
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "10m",
        "sized by nobody: {}",
        pod["spec"]["containers"][0]
    );
    Ok(())
}

/// The pod of a Job is sized as any other, and a pod that nobody controls never is.
async fn job_and_bare_pod(world: &World, round: &str, app: &Value, proxy: &Value) -> Result<()> {
    let mut spec = pod_spec(world);
    spec["restartPolicy"] = json!("Never");
    world
        .create_object::<Job>(json!({
            "metadata": {"name": "batch"},
            "spec": {"backoffLimit": 100, "template": {"metadata": {"labels": {"round": round}}, "spec": spec}},
        }))
        .await?;
    let pods = world.api::<Pod>();
    let label = format!("batch.kubernetes.io/job-name=batch,round={round}");
    let now = DeleteParams::default().grace_period(0);
    world
        .until("there is a pod of the Job, and it is sized", async || {
            let found = pods.list(&ListParams::default().labels(&label)).await?.items;
            let live = found.iter().find(|pod| pod.metadata.deletion_timestamp.is_none());
            let Some(pod) = live else {
                return Ok(Look::NotYet("none".to_owned()));
            };
            let value = serde_json::to_value(pod)?;
            let requests = |list: &str, at: usize| value["spec"][list][at]["resources"]["requests"].clone();
            let (of_app, of_proxy) = (requests("containers", 0), requests("initContainers", 1));
            if of_app == *app && of_proxy == *proxy {
                return Ok(Look::Done(()));
            }
            // The Job may not have been heard of in time; it makes another pod.
            pods.delete(&pod.name_any(), &now).await?;
            Ok(Look::NotYet(format!("{of_app} {of_proxy}")))
        })
        .await?;
    world
        .api::<Job>()
        .delete("batch", &DeleteParams::background())
        .await?;

    let mut bare = pod(world, &format!("bare-{round}"));
    bare["metadata"]["labels"] = json!({"app": "web"});
    let bare = serde_json::to_value(world.create_object::<Pod>(bare).await?)?;
    ensure!(
        bare["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "10m"
            && bare["metadata"]["annotations"]["vpaObservedContainers"].is_null(),
        "a bare pod was touched: {bare}"
    );
    pods.delete(&format!("bare-{round}"), &now).await?;
    world
        .until("the Job and its pod are gone", async || {
            let of_job = ListParams::default().labels(&label);
            pods.delete_collection(&now, &of_job).await?;
            let left = pods.list(&of_job).await?.items;
            let job = world.api::<Job>().get_opt("batch").await?;
            Ok(if left.is_empty() && job.is_none() {
                Look::Done(())
            } else {
                Look::NotYet(format!("{} pods", left.len()))
            })
        })
        .await
}

/// Makes new pods until one comes with this request of its app: a new registration reaches the API server's cache a moment
/// later.
async fn until_sized(world: &World, round: &str, expected: &Value) -> Result<Value> {
    world
        .until("new pods are sized", async || {
            let pod = new_pod(world, round).await?;
            Ok(match first_requests(&pod, expected) {
                Ok(()) => Look::Done(pod),
                Err(seen) => Look::NotYet(seen),
            })
        })
        .await
}

/// The pod of a new Deployment `web`.
async fn new_pod(world: &World, round: &str) -> Result<Value> {
    let deployments = world.api::<Deployment>();
    let pods = world.api::<Pod>();
    if deployments.get_opt("web").await?.is_some() {
        deployments.delete("web", &DeleteParams::background()).await?;
    }
    world
        .until("there is no pod of web", async || {
            pods.delete_collection(
                &DeleteParams::default().grace_period(0),
                &ListParams::default().labels("app=web"),
            )
            .await?;
            let left = pods.list(&ListParams::default().labels("app=web")).await?.items;
            let gone = deployments.get_opt("web").await?.is_none() && left.is_empty();
            Ok(if gone {
                Look::Done(())
            } else {
                Look::NotYet(format!("{} pods", left.len()))
            })
        })
        .await?;
    let labels = json!({"app": "web", "round": round});
    world
        .create_object::<Deployment>(json!({
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": labels}, "spec": pod_spec(world)},
            },
        }))
        .await?;
    let label = format!("app=web,round={round}");
    world
        .until("there is a pod of web", async || {
            let found = pods.list(&ListParams::default().labels(&label)).await?.items;
            Ok(match found.first() {
                Some(pod) => Look::Done(serde_json::to_value(pod)?),
                None => Look::NotYet("none".to_owned()),
            })
        })
        .await
}

/// What the schema lets through and VPA's webhook does not.
async fn denied(world: &World) -> Result<()> {
    let bad = json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": {"name": "bad"},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "resourcePolicy": {"containerPolicies": [
                {"containerName": "app", "minAllowed": {"cpu": "2"}, "maxAllowed": {"cpu": "1"}},
            ]},
        },
    });
    let answer = world
        .send(Method::POST, &vpas(world), "application/json", &bad)
        .await?;
    ensure!(
        answer.code >= 400
            && answer
                .message()
                .starts_with("admission webhook \"vpa.k8s.io\" denied the request: "),
        "a bad VPA was answered by {answer:?}"
    );
    Ok(())
}

/// The updater can see that new pods are served.
async fn leased(world: &World) -> Result<()> {
    let leases = world.api::<Lease>();
    world
        .until("the status lease is renewed", async || {
            let lease = leases.get_opt("vpa-admission-controller").await?;
            let renewed = lease.and_then(|lease| lease.spec?.renew_time);
            Ok(match renewed {
                Some(_) => Look::Done(()),
                None => Look::NotYet("no lease".to_owned()),
            })
        })
        .await
}
