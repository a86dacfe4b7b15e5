//! What a scenario sees of the place it runs on: a client, a namespace of its own, and waiting that never is a fixed
//! sleep.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use common::clock::{Clock, VirtualClock};
use http::{Method, Request, header};
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{Namespace, Pod},
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{DeleteParams, ListParams, PostParams},
    client::Body,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::Stage;
use crate::{
    cluster::Parts,
    sandbox::{
        Faults,
        world::load::{ContainerLoad, Loads},
    },
};

/// How soon a condition is looked at again where time is the machine's.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// How seldom it is looked at in the end: a look is a request, and many scenarios look at once.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long anything may take, where two cores have five clusters to run; on an idle machine it is seconds.
const PATIENCE: Duration = Duration::from_secs(600);
/// How far virtual time goes between two looks.
const STEP: Duration = Duration::from_secs(1);

/// One scenario's view of its place.
pub struct World {
    /// Talks to the API server, with all rights.
    pub client: Client,
    /// The file by which a process reaches it, with all rights.
    pub kubeconfig: PathBuf,
    /// The scenario's own namespace.
    pub namespace: String,
    /// The image of test workloads.
    pub image: String,
    time: Option<VirtualClock>,
    faults: Option<Faults>,
    loads: Option<Loads>,
    parts: Option<Parts>,
}

/// What a look at a condition gave.
pub enum Look<T> {
    /// It holds.
    Done(T),
    /// It does not hold yet; what was seen instead, for the message when time is up.
    NotYet(String),
}

/// An answer of the API server, as it is on the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The HTTP status.
    pub code: u16,
    /// The object, or the `Status`.
    pub body: Value,
}

impl Answer {
    /// The message of a `Status`.
    #[must_use]
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    /// Whether a `Status` names this cause.
    #[must_use]
    pub fn has_cause(&self, reason: &str) -> bool {
        self.body["details"]["causes"]
            .as_array()
            .is_some_and(|causes| causes.iter().any(|c| c["reason"] == reason))
    }
}

impl World {
    /// A world in a new namespace. Where time is virtual, waiting moves it.
    ///
    /// # Errors
    /// When the namespace cannot be made.
    pub(super) async fn create(stage: &Stage, name: &str) -> Result<Self> {
        let namespaces: Api<Namespace> = Api::all(stage.client.clone());
        let namespace: Namespace = serde_json::from_value(json!({
            "metadata": {"generateName": format!("e2e-{name}-"), "labels": {"outrigger.dev/e2e": name}}
        }))?;
        let made = namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .context("creating a namespace")?;
        let world = Self {
            client: stage.client.clone(),
            kubeconfig: stage.kubeconfig.clone(),
            namespace: made.name_any(),
            image: stage.image.clone(),
            time: stage.time.clone(),
            faults: stage.faults().cloned(),
            loads: stage.loads().cloned(),
            parts: stage.parts(),
        };
        // Bare pods are refused until the controller-manager has made it; where none runs, we do.
        world.default_service_account().await?;
        Ok(world)
    }

    /// The time that a daemon of the scenario lives in.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.time.as_ref().map_or_else(Clock::system, VirtualClock::clock)
    }

    /// Lets time pass as fast as everybody in it can do their work.
    ///
    /// # Errors
    /// Where time is the machine's: scenarios that call this name [`Need::VirtualTime`](super::Need::VirtualTime).
    pub async fn pass(&self, span: Duration) -> Result<()> {
        self.time()?.advance(span).await;
        Ok(())
    }

    /// The clock, to be moved.
    ///
    /// # Errors
    /// As with [`World::pass`].
    pub fn time(&self) -> Result<&VirtualClock> {
        self.time
            .as_ref()
            .context("time is the machine's here; name Need::VirtualTime")
    }

    /// Whether the API server calls webhooks for the conversion of custom resources; the sandbox's does not.
    #[must_use]
    pub fn converts(&self) -> bool {
        self.faults.is_none()
    }

    /// Faults on demand.
    ///
    /// # Errors
    /// Where nothing fails on demand: scenarios that call this name [`Need::Faults`](super::Need::Faults).
    pub fn faults(&self) -> Result<&Faults> {
        self.faults
            .as_ref()
            .context("nothing fails on demand here; name Need::Faults")
    }

    /// The programs of the control plane.
    ///
    /// # Errors
    /// Where they are not ours to stop: scenarios that call this name [`Need::Outages`](super::Need::Outages).
    pub fn parts(&self) -> Result<&Parts> {
        let ours = self.parts.as_ref();
        ours.context("the control plane is not ours to stop; name Need::Outages")
    }

    /// Says what one container of a workload (a Deployment, or a pod that stands alone) uses from now on: CPU as `20m`,
    /// memory as `32Mi`. On a real node the running containers are told, through the port that their `--listen` names;
    /// those that start later use what their arguments say.
    ///
    /// # Errors
    /// When a container cannot be told.
    pub async fn usage(&self, workload: &str, container: &str, cpu: &str, memory: &str) -> Result<()> {
        if let Some(loads) = &self.loads {
            let load = ContainerLoad::parse(cpu, memory)?;
            loads.set(&self.namespace, workload, container, load);
            return Ok(());
        }
        let pods = self.api::<Pod>().list(&ListParams::default()).await?.items;
        let of_workload = |pod: &&Pod| {
            let name = pod.name_any();
            let rest = name.strip_prefix(workload);
            pod.metadata.deletion_timestamp.is_none()
                && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        for pod in pods.iter().filter(of_workload) {
            let name = pod.name_any();
            let port = listens_on(pod, container)
                .with_context(|| format!("{container} of {name} cannot be told: it has no --listen :PORT"))?;
            let path = format!(
                "{}?cpu={cpu}&memory={memory}",
                self.pod_path(&format!("{name}:{port}"), "proxy/load")
            );
            let what = format!("{container} of {name} takes the order to use {cpu} and {memory}");
            self.until(&what, async || {
                let request = Request::post(&path).body(Vec::new())?;
                match self.client.request_text(request).await {
                    Ok(_) => Ok(Look::Done(())),
                    Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Look::Done(())),
                    // A container counts as ready before its program listens.
                    Err(kube::Error::Api(status)) if status.code == 503 => Ok(Look::NotYet(status.message)),
                    Err(error) => Err(error.into()),
                }
            })
            .await?;
        }
        Ok(())
    }

    /// Removes what the scenario made.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn remove(&self) -> Result<()> {
        let now = DeleteParams::default().grace_period(0);
        let namespaces = Api::<Namespace>::all(self.client.clone());
        self.until("the namespace is being removed", async || {
            self.api::<Pod>()
                .delete_collection(&now, &Default::default())
                .await?;
            match namespaces
                .delete(&self.namespace, &DeleteParams::background())
                .await
            {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                answer => drop(answer?),
            }
            Ok(Look::Done(()))
        })
        .await
    }

    /// Objects of one type in the scenario's namespace.
    #[must_use]
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates an object in the scenario's namespace.
    ///
    /// # Errors
    /// When the JSON is not of the type, or the API server refuses it.
    pub async fn create_object<K>(&self, object: Value) -> Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + Serialize
            + std::fmt::Debug,
    {
        let object: K = serde_json::from_value(object)?;
        let name = object.name_any();
        self.api()
            .create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("creating {name}"))
    }

    /// Waits until a condition holds; looks again when the API server could not answer for a moment.
    ///
    /// # Errors
    /// When looking fails for good, or when it does not hold within [`PATIENCE`]; the message says what was seen last.
    pub async fn until<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Result<Look<T>>) -> Result<T> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let mut pause = FIRST_PAUSE;
        loop {
            let seen = match look().await {
                Ok(Look::Done(value)) => return Ok(value),
                Ok(Look::NotYet(seen)) => seen,
                Err(error) if passes(&error) => format!("{error:#}"),
                Err(error) => return Err(error.context(format!("waiting until {what}"))),
            };
            if tokio::time::Instant::now() > deadline {
                bail!("not within {} s: {what}; last seen: {seen}", PATIENCE.as_secs());
            }
            match &self.time {
                Some(time) => {
                    time.advance(STEP).await;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                None => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Sends a request as it is and gives the answer as it comes, refusals included.
    ///
    /// # Errors
    /// When no answer comes.
    pub async fn send(&self, method: Method, path: &str, content_type: &str, body: &Value) -> Result<Answer> {
        let body = if body.is_null() {
            Vec::new()
        } else {
            serde_json::to_vec(body)?
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content_type)
            .header(header::ACCEPT, "application/json")
            .body(Body::from(body))?;
        let response = self
            .client
            .send(request)
            .await
            .with_context(|| format!("asking for {path}"))?;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect_bytes().await?;
        let body = serde_json::from_slice(&bytes)
            .with_context(|| format!("{path} answered {code} with {}", String::from_utf8_lossy(&bytes)))?;
        Ok(Answer { code, body })
    }

    /// The path of a pod in the scenario's namespace, or of a subresource of it.
    #[must_use]
    pub fn pod_path(&self, name: &str, subresource: &str) -> String {
        let tail = if subresource.is_empty() {
            String::new()
        } else {
            format!("/{subresource}")
        };
        format!("/api/v1/namespaces/{}/pods/{name}{tail}", self.namespace)
    }

    /// Waits until a pod is Ready.
    ///
    /// # Errors
    /// When it does not become so.
    pub async fn ready(&self, name: &str) -> Result<Pod> {
        let pods = self.api::<Pod>();
        self.until(&format!("pod {name} is ready"), async || {
            let pod = pods.get(name).await?;
            Ok(if is_ready(&pod) {
                Look::Done(pod)
            } else {
                Look::NotYet(in_short(&pod))
            })
        })
        .await
    }

    async fn default_service_account(&self) -> Result<()> {
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = self.api();
        let account = serde_json::from_value(json!({"metadata": {"name": "default"}}))?;
        match accounts.create(&PostParams::default(), &account).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            Err(error) => Err(error).context("creating the default service account"),
        }
    }
}

/// The port of a container of the workload image that takes orders.
fn listens_on(pod: &Pod, container: &str) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let mut containers = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    let container = containers.find(|one| one.name == container)?;
    let mut args = container.args.iter().flatten();
    args.find(|arg| *arg == "--listen")?;
    Some(args.next()?.strip_prefix(':')?.to_owned())
}

/// Whether a pod's Ready condition is true.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    conditions
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// A pod's state in one line, for messages.
#[must_use]
pub fn in_short(pod: &Pod) -> String {
    let status = serde_json::to_value(&pod.status).unwrap_or_default();
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let false_ones = conditions
        .filter(|c| c["status"] != "True")
        .map(|c| format!("{} {}", c["type"], c["message"]));
    let lists = ["initContainerStatuses", "containerStatuses"].map(|list| status[list].as_array().cloned());
    let states = lists
        .into_iter()
        .flatten()
        .flatten()
        .map(|c| format!("{}: {}", c["name"], c["state"]));
    format!(
        "{} phase {} {}",
        pod.name_any(),
        status["phase"],
        false_ones.chain(states).collect::<Vec<_>>().join("; ")
    )
}

/// Whether an API server that answers with this code may be asked again.
pub(super) fn is_busy(code: u16) -> bool {
    code == 429 || code >= 500
}

/// Whether an error is one of a busy API server, which answers later.
fn passes(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => is_busy(status.code),
        Some(kube::Error::Service(_) | kube::Error::HyperError(_)) => true,
        _ => false,
    }
}
