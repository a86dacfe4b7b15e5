//! The admission component, registered by URL, on real pods. Each scenario has a webhook configuration of its own for its
//! own namespace, so that they run side by side.

mod kinds;
pub(super) mod process;
mod reinvocation;
mod rotation;
mod table;

use std::{
    net::{Ipv4Addr, TcpListener},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use common::{
    api::k8s::{MutatingWebhookConfiguration, Pod, ReplicaSet},
    clock::Clock,
    daemon::{Context, DaemonError, Namespaces, Shutdown},
    gates::{Gate, Gates},
};
use http::Method;
use kube::{Api, ResourceExt as _, api::DeleteParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::super::{Look, Scenario, World};
use super::install_crds;

pub(super) fn all() -> Vec<Scenario> {
    [
        kinds::all(),
        table::all(),
        reinvocation::all(),
        rotation::all(),
        process::all(),
    ]
    .concat()
}

/// The component, running in this process.
struct Admission {
    shutdown: Shutdown,
    running: JoinHandle<Result<(), DaemonError>>,
}

impl Admission {
    /// What it is to do for the scenario's namespace alone, with certificates that it keeps there.
    fn config(world: &World, gates: Gates) -> Result<admission::Config> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut config = admission::Config::local(gates, listener)?;
        config.namespaces = Namespaces::Only(world.namespace.clone());
        config.certificates = admission::config::Certificates::Own {
            namespace: world.namespace.clone(),
        };
        config.webhook.configuration = configuration(world);
        config.lease.namespace = world.namespace.clone();
        config.lease.interval = Duration::from_secs(1);
        Ok(config)
    }

    /// Starts it. It lives in the machine's time also where the place does not: whoever calls it checks its certificate by
    /// that.
    fn start(world: &World, config: admission::Config) -> Self {
        Self::start_in(world, config, Clock::system())
    }

    fn start_in(world: &World, config: admission::Config, clock: Clock) -> Self {
        let shutdown = Shutdown::new();
        let context = Context::new(world.client.clone(), clock, shutdown.clone());
        Self {
            shutdown,
            running: tokio::spawn(admission::run(config, context)),
        }
    }

    async fn stop(self) -> Result<()> {
        self.shutdown.request();
        Ok(self.running.await??)
    }
}

fn native_sidecars(enabled: bool) -> Gates {
    Gates::default().with(Gate::NativeSidecar, enabled)
}

/// The name of the scenario's webhook configuration.
fn configuration(world: &World) -> String {
    format!("{}-a-vpa", world.namespace)
}

/// Removes a webhook configuration, if it came to be.
async fn unregister(world: &World, name: &str) -> Result<()> {
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(world.client.clone());
    match configurations.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error).context("removing the webhook configuration"),
    }
}

fn vpas(world: &World) -> String {
    format!(
        "/apis/autoscaling.k8s.io/v1/namespaces/{}/verticalpodautoscalers",
        world.namespace
    )
}

fn vpa_object(name: &str, kind: &str, mut spec: Value) -> Value {
    let api_version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    spec["targetRef"] = json!({"apiVersion": api_version, "kind": kind, "name": name});
    json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": {"name": name}, "spec": spec,
    })
}

/// A VPA for the controller of its name, with these recommendations if there are any.
async fn vpa(world: &World, name: &str, kind: &str, spec: Value, recommended: &Value) -> Result<()> {
    let path = vpas(world);
    let object = vpa_object(name, kind, spec);
    let made = world
        .send(Method::POST, &path, "application/json", &object)
        .await?;
    ensure!(made.code == 201, "the VPA {name} was answered by {made:?}");
    if recommended.is_null() {
        return Ok(());
    }
    let status = json!({"status": {"recommendation": {"containerRecommendations": recommended}}});
    let path = format!("{path}/{name}/status");
    let set = world
        .send(Method::PATCH, &path, "application/merge-patch+json", &status)
        .await?;
    ensure!(set.code == 200, "the status of {name} was answered by {set:?}");
    Ok(())
}

/// A ReplicaSet that wants no pods, so that those of the scenario have an owner and nobody makes others.
struct Owner {
    name: String,
    uid: String,
}

impl Owner {
    async fn create(world: &World, name: &str) -> Result<Self> {
        let template = json!({
            "metadata": {"labels": {"row": name}},
            "spec": {"containers": [{"name": "app", "image": world.image}]},
        });
        let made = world
            .create_object::<ReplicaSet>(json!({
                "metadata": {"name": name},
                "spec": {"replicas": 0, "selector": {"matchLabels": {"row": name}}, "template": template},
            }))
            .await?;
        Ok(Self {
            name: name.to_owned(),
            uid: made.uid().context("a ReplicaSet without uid")?,
        })
    }

    /// Creates a pod of these containers, and gives it as the API server has it; or why not.
    async fn pod(&self, world: &World, spec: &Value) -> Result<Result<Value, String>> {
        let mut spec = spec.clone();
        for list in ["initContainers", "containers"] {
            for container in spec[list].as_array_mut().into_iter().flatten() {
                container["image"] = json!(world.image);
            }
        }
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "generateName": format!("{}-", self.name), "labels": {"row": self.name},
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": self.name, "uid": self.uid, "controller": true,
                }],
            },
            "spec": spec,
        });
        let path = format!("/api/v1/namespaces/{}/pods", world.namespace);
        let made = world.send(Method::POST, &path, "application/json", &pod).await?;
        Ok(if made.code == 201 {
            Ok(made.body)
        } else {
            Err(made.message().to_owned())
        })
    }

    /// Creates pods until one is as it should be. A new registration, VPA or LimitRange is known a moment later.
    async fn until(
        &self,
        world: &World,
        what: &str,
        spec: &Value,
        is_so: impl Fn(&Value) -> Result<(), String>,
    ) -> Result<Value> {
        world
            .until(what, async || {
                Ok(match self.pod(world, spec).await? {
                    Err(refused) => Look::NotYet(refused),
                    Ok(pod) => match is_so(&pod) {
                        Ok(()) => Look::Done(pod),
                        Err(seen) => {
                            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                            let gone = DeleteParams::default().grace_period(0);
                            world.api::<Pod>().delete(name, &gone).await?;
                            Look::NotYet(seen)
                        }
                    },
                })
            })
            .await
    }
}

/// Whether the first container requests this.
fn first_requests(pod: &Value, expected: &Value) -> Result<(), String> {
    let found = &pod["spec"]["containers"][0]["resources"]["requests"];
    if found == expected {
        Ok(())
    } else {
        Err(format!("a pod with {found}"))
    }
}
