//! The admission component, in this process and registered by URL, on real pods.

use std::{
    net::{Ipv4Addr, TcpListener},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use common::{
    api::k8s::{Deployment, Lease, MutatingWebhookConfiguration, Pod},
    clock::Clock,
    daemon::{Context, DaemonError, Namespaces, Shutdown},
    gates::{Gate, Gates},
};
use futures::FutureExt as _;
use http::Method;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::super::{Look, Need, Scenario, World};
use super::{install_crds, pod_spec};

const PATIENCE: Duration = Duration::from_secs(60);
const CONFIGURATION: &str = "vpa-webhook-config";

pub(super) fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "admission-sizes-new-pods",
        about: "new pods of a Deployment get what its VPA recommends, sidecars with the gate only; bad VPAs are denied; \
                and without the webhook pods are still created",
        needs: &[Need::Node, Need::LocalWebhooks],
        run: |world| sizes(world).boxed_local(),
    }]
}

/// The component, running.
struct Admission {
    shutdown: Shutdown,
    running: JoinHandle<Result<(), DaemonError>>,
}

impl Admission {
    /// Starts it for the scenario's namespace alone, with certificates that it keeps there. It lives in the machine's time
    /// also where the place does not: whoever calls it checks its certificate by that.
    fn start(world: &World, gate: bool) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let gates = Gates::default().with(Gate::NativeSidecar, gate);
        let mut config = admission::Config::local(gates, listener)?;
        config.namespaces = Namespaces::Only(world.namespace.clone());
        config.certificates = admission::config::Certificates::Own {
            namespace: world.namespace.clone(),
        };
        config.lease.namespace = world.namespace.clone();
        config.lease.interval = Duration::from_secs(1);
        let shutdown = Shutdown::new();
        let context = Context::new(world.client.clone(), Clock::system(), shutdown.clone());
        Ok(Self {
            shutdown,
            running: tokio::spawn(admission::run(config, context)),
        })
    }

    async fn stop(self) -> Result<()> {
        self.shutdown.request();
        Ok(self.running.await??)
    }
}

async fn sizes(world: &World) -> Result<()> {
    install_crds(world).await?;
    let result = sized(world).await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(world.client.clone());
    let removed = configurations
        .delete(CONFIGURATION, &DeleteParams::default())
        .await;
    result.and(removed.map(drop).context("removing the webhook configuration"))
}

async fn sized(world: &World) -> Result<()> {
    vpa(world).await?;
    let recommended = json!({"cpu": "30m", "memory": "40Mi"});
    let sidecar = json!({"cpu": "20m", "memory": "24Mi"});
    let before = json!({"cpu": "5m", "memory": "16Mi"});

    let with_gate = Admission::start(world, true)?;
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
    denied(world).await?;
    leased(world).await?;
    with_gate.stop().await?;

    let without_gate = Admission::start(world, false)?;
    let pod = world
        .until("the webhook is the one without the gate", PATIENCE, async || {
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
    without_gate.stop().await?;

    let pod = new_pod(world, "stopped").await?;
    ensure!(
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "10m",
        "sized by nobody: {}",
        pod["spec"]["containers"][0]
    );
    Ok(())
}

/// A VPA for the Deployment `web` with a recommendation.
async fn vpa(world: &World) -> Result<()> {
    let path = vpas(world);
    let vpa = json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
    });
    let made = world.send(Method::POST, &path, "application/json", &vpa).await?;
    ensure!(made.code == 201, "the VPA was answered by {made:?}");
    let status = json!({"status": {"recommendation": {"containerRecommendations": [
        {"containerName": "app", "target": {"cpu": "30m", "memory": "40Mi"}},
        {"containerName": "proxy", "target": {"cpu": "20m", "memory": "24Mi"}},
        {"containerName": "setup", "target": {"cpu": "99m", "memory": "99Mi"}},
    ]}}});
    let merge = "application/merge-patch+json";
    let set = world
        .send(Method::PATCH, &format!("{path}/web/status"), merge, &status)
        .await?;
    ensure!(set.code == 200, "the status was answered by {set:?}");
    Ok(())
}

fn vpas(world: &World) -> String {
    format!(
        "/apis/autoscaling.k8s.io/v1/namespaces/{}/verticalpodautoscalers",
        world.namespace
    )
}

/// Makes new pods until one comes with this request of its app: a new registration reaches the API server's cache a moment
/// later.
async fn until_sized(world: &World, round: &str, expected: &Value) -> Result<Value> {
    world
        .until("new pods are sized", PATIENCE, async || {
            let pod = new_pod(world, round).await?;
            let requests = &pod["spec"]["containers"][0]["resources"]["requests"];
            Ok(if requests == expected {
                Look::Done(pod)
            } else {
                Look::NotYet(format!("a pod with {requests}"))
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
        .until("there is no pod of web", PATIENCE, async || {
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
        .until("there is a pod of web", PATIENCE, async || {
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
        .until("the status lease is renewed", PATIENCE, async || {
            let lease = leases.get_opt("vpa-admission-controller").await?;
            let renewed = lease.and_then(|lease| lease.spec?.renew_time);
            Ok(match renewed {
                Some(_) => Look::Done(()),
                None => Look::NotYet("no lease".to_owned()),
            })
        })
        .await
}
