//! SidecarSets where Outrigger injects them, in this process and registered by URL, on real pods.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, TcpListener},
};

use admission::{
    config::{Certificates, Client, Webhook},
    sidecarset::{
        register::configuration,
        settings::{Mode, Settings},
    },
};
use anyhow::{Context as _, Result, bail, ensure};
use common::{
    api::{
        k8s::{ControllerRevision, Deployment, LabelSelector, MutatingWebhookConfiguration, Pod},
        sidecarset::SidecarSet,
    },
    clock::Clock,
    daemon::{Context, DaemonError, Namespaces, Shutdown},
    gates::{Gate, Gates},
    sidecarset::{
        record::{HASH, records},
        revision::new_revision,
    },
};
use futures::FutureExt as _;
use http::Method;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::super::{Look, Need, Scenario, World};
use super::{SETS_ARE_SHARED, install_crds, pod_spec};

pub(super) const SETS: &str = "/apis/apps.kruise.io/v1beta1/sidecarsets";

pub(super) fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "sidecarset-injects",
        about: "pods of a Deployment get the sidecars of a SidecarSet, or of an older revision of it; bad sets are \
                    denied; and without the webhook there are no such pods, but others are",
        needs: &[Need::Node, Need::LocalWebhooks],
        run: |world| in_scope(world, injects).boxed_local(),
    }]
}

/// Where pods come up whatever happens: where the cluster lives, and where the component would run.
const EXCLUDED: [&str; 2] = ["kube-system", "default"];

/// The component, running as the injector for the scenario's namespace.
pub(super) struct Injector {
    url: String,
    certificate: String,
    shutdown: Shutdown,
    running: JoinHandle<Result<(), DaemonError>>,
}

impl Injector {
    /// Starts it. It registers nothing: other scenarios have webhooks of the same names.
    pub(super) fn start(world: &World) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let url = format!("https://127.0.0.1:{}", listener.local_addr()?.port());
        let gates = Gates::default().with(Gate::NativeSidecar, true);
        let mut config = admission::Config::local(gates, listener)?;
        config.namespaces = Namespaces::Only(world.namespace.clone());
        config.webhook.register = false;
        config.lease.namespace = world.namespace.clone();
        config.sidecarsets = Settings {
            excluded: EXCLUDED.map(str::to_owned).into(),
            exact_partition: true,
            ..Settings::new(Mode::Inject, &world.namespace)
        };
        let Certificates::Given { certificate, .. } = &config.certificates else {
            bail!("no certificate was made");
        };
        let certificate = certificate.clone();
        let shutdown = Shutdown::new();
        let context = Context::new(world.client.clone(), Clock::system(), shutdown.clone());
        Ok(Self {
            url,
            certificate,
            shutdown,
            running: tokio::spawn(admission::run(config, context)),
        })
    }

    /// Tells the API server of it, as it would itself, for the objects with these labels.
    pub(super) async fn register(&self, world: &World, name: &str, labels: &Value) -> Result<()> {
        let webhook = Webhook {
            client: Client::Url(self.url.clone()),
            timeout_seconds: 30,
            ..Webhook::default()
        };
        let excluded = EXCLUDED.map(str::to_owned);
        let mut configuration =
            configuration(&webhook, &Namespaces::All, &excluded, self.certificate.as_bytes());
        configuration.metadata.name = Some(format!("{name}-{}", world.namespace));
        let selector: LabelSelector = serde_json::from_value(json!({"matchLabels": labels}))?;
        for webhook in configuration.webhooks.iter_mut().flatten() {
            webhook.object_selector = Some(selector.clone());
        }
        let api: Api<MutatingWebhookConfiguration> = Api::all(world.client.clone());
        api.create(&PostParams::default(), &configuration).await?;
        Ok(())
    }

    pub(super) async fn stop(self) -> Result<()> {
        self.shutdown.request();
        Ok(self.running.await??)
    }
}

/// Runs a scenario, and removes what is left of it outside its namespace.
pub(super) async fn in_scope(world: &World, scenario: impl AsyncFn(&World) -> Result<()>) -> Result<()> {
    let _others = SETS_ARE_SHARED.read().await;
    install_crds(world).await?;
    let result = scenario(world).await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(world.client.clone());
    for name in ["one", "two"] {
        let name = format!("{name}-{}", world.namespace);
        if configurations.get_opt(&name).await?.is_some() {
            configurations.delete(&name, &DeleteParams::default()).await?;
        }
    }
    let sets: Api<SidecarSet> = Api::all(world.client.clone());
    if sets.get_opt(&world.namespace).await?.is_some() {
        sets.delete(&world.namespace, &DeleteParams::default()).await?;
    }
    result
}

/// The scenario's set, as its author writes it.
pub(super) fn set(world: &World) -> Value {
    json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "SidecarSet",
        "metadata": {"name": world.namespace, "labels": {"of": world.namespace}},
        "spec": {
            "selector": {"matchLabels": {"of": world.namespace}},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
            "containers": [{
                "name": "agent", "image": world.image, "args": ["load", "--cpu", "1m", "--memory", "4Mi", "--listen", ":8090"],
                "podInjectPolicy": "AfterAppContainer", "env": [{"name": "REVISION", "value": "new"}],
                "resourcesPolicy": {"targetContainersMode": "sum", "targetContainersNameRegex": "^app$",
                    "resourcesExpr": {"limits": {"cpu": "cpu*10%"}, "requests": {"cpu": "cpu*50%", "memory": "16Mi"}}},
            }],
        },
    })
}

/// Makes the set, as soon as the webhook is heard of: it gets its hash then.
pub(super) async fn made(world: &World, set: &Value) -> Result<SidecarSet> {
    let api: Api<SidecarSet> = Api::all(world.client.clone());
    world
        .until("the set has a hash", async || {
            let answer = world.send(Method::POST, SETS, "application/json", set).await?;
            if answer.code != 201 {
                return Ok(Look::NotYet(format!("{answer:?}")));
            }
            let found: SidecarSet = serde_json::from_value(answer.body)?;
            if found
                .metadata
                .annotations
                .as_ref()
                .is_some_and(|found| found.contains_key(HASH))
            {
                return Ok(Look::Done(found));
            }
            api.delete(&world.namespace, &DeleteParams::default()).await?;
            Ok(Look::NotYet("no hash".to_owned()))
        })
        .await
}

/// Keeps the set as it would have been before, as a revision, and has new pods get that.
pub(super) async fn older_revision(world: &World, set: &SidecarSet, strategy: Value) -> Result<String> {
    let mut old = set.clone();
    let env = json!([{"name": "REVISION", "value": "old"}]);
    for sidecar in &mut old.spec.containers {
        sidecar.core.insert("env".to_owned(), env.clone());
    }
    let revision = new_revision(&old, &world.namespace, 1, 0);
    let name = revision
        .metadata
        .name
        .clone()
        .context("a revision without a name")?;
    world
        .api::<ControllerRevision>()
        .create(&PostParams::default(), &revision)
        .await?;
    let api: Api<SidecarSet> = Api::all(world.client.clone());
    let mut spec = json!({"spec": strategy});
    spec["spec"]["injectionStrategy"]["revision"]["revisionName"] = name.clone().into();
    world
        .until("the revision is heard of", async || {
            let patch = Patch::Merge(&spec);
            Ok(
                match api.patch(&world.namespace, &PatchParams::default(), &patch).await {
                    Ok(_) => Look::Done(()),
                    Err(error) => Look::NotYet(error.to_string()),
                },
            )
        })
        .await?;
    Ok(name)
}

async fn injects(world: &World) -> Result<()> {
    let injector = Injector::start(world)?;
    injector
        .register(world, "one", &json!({"of": world.namespace}))
        .await?;
    let set = made(world, &self::set(world)).await?;

    let mut bad = self::set(world);
    bad["metadata"]["name"] = json!(format!("{}-bad", world.namespace));
    bad["spec"]["containers"][0]["resourcesPolicy"]["resourcesExpr"]["limits"]["cpu"] = json!("cpu*cpu");
    let answer = world.send(Method::POST, SETS, "application/json", &bad).await?;
    ensure!(
        answer.code == 422
            && answer
                .message()
                .contains("spec.containers[0].resourcesPolicy.resourcesExpr.limits.cpu"),
        "a bad set was answered by {answer:?}"
    );

    deployment(world, 2).await?;
    let pod = until_revision(world, "new").await?;
    let agent = &pod["spec"]["containers"][1];
    ensure!(agent["name"] == "agent", "the agent is not behind the app: {pod}");
    ensure!(
        agent["resources"] == json!({"limits": {"cpu": "20m"}, "requests": {"cpu": "5m", "memory": "16Mi"}}),
        "its formula gave {}",
        agent["resources"]
    );
    let hash = &set.metadata.annotations.as_ref().context("no annotations")?[HASH];
    ensure!(
        record(&pod, world)?.0 == *hash,
        "it has another hash: {}",
        pod["metadata"]["annotations"]
    );

    let revision = older_revision(
        world,
        &set,
        json!({"injectionStrategy": {"revision": {"policy": "Always"}}}),
    )
    .await?;
    let pod = until_revision(world, "old").await?;
    ensure!(
        record(&pod, world)?.1 == revision,
        "it has another revision: {}",
        pod["metadata"]["annotations"]
    );

    injector.stop().await?;
    let lone = lone_pod(world, "refused");
    let refused = world
        .api::<Pod>()
        .create(&PostParams::default(), &serde_json::from_value(lone)?)
        .await;
    let Err(error) = refused else {
        bail!("a pod without its sidecars was created");
    };
    ensure!(
        error.to_string().contains("mpod.sidecarset.outrigger.dev"),
        "refused for another reason: {error}"
    );
    let name = format!("{}-let-be", world.namespace);
    for namespace in EXCLUDED {
        let elsewhere: Api<Pod> = Api::namespaced(world.client.clone(), namespace);
        elsewhere
            .create(
                &PostParams::default(),
                &serde_json::from_value(lone_pod(world, &name))?,
            )
            .await
            .with_context(|| format!("a pod in {namespace}"))?;
        elsewhere
            .delete(&name, &DeleteParams::default().grace_period(0))
            .await?;
    }
    Ok(())
}

pub(super) async fn deployment(world: &World, replicas: u32) -> Result<()> {
    let labels = json!({"of": world.namespace});
    world
        .create_object::<Deployment>(json!({
            "metadata": {"name": "web"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod_spec(world)},
            },
        }))
        .await?;
    Ok(())
}

/// Deletes pods until new ones come with the agent of this revision.
async fn until_revision(world: &World, revision: &str) -> Result<Value> {
    let pods = world.api::<Pod>();
    let env = json!({"name": "REVISION", "value": revision});
    world
        .until("new pods have the sidecar", async || {
            let found = pods.list(&ListParams::default()).await?.items;
            for pod in &found {
                let pod = serde_json::to_value(pod)?;
                let has = pod["spec"]["containers"][1]["env"]
                    .as_array()
                    .is_some_and(|found| found.contains(&env));
                if has && pod["metadata"]["deletionTimestamp"].is_null() {
                    return Ok(Look::Done(pod));
                }
            }
            // Not all there are: a good one may have come meanwhile.
            for pod in &found {
                let gone = pods
                    .delete(&pod.name_any(), &DeleteParams::default().grace_period(0))
                    .await;
                match gone {
                    Err(kube::Error::Api(status)) if status.is_not_found() => {}
                    answer => drop(answer?),
                }
            }
            Ok(Look::NotYet(format!("{} pods without it", found.len())))
        })
        .await
}

/// The hash and the revision that a pod has of the scenario's set.
pub(super) fn record(pod: &Value, world: &World) -> Result<(String, String)> {
    let annotations: BTreeMap<String, String> =
        serde_json::from_value(pod["metadata"]["annotations"].clone())?;
    let record = records(Some(&annotations), HASH)?
        .remove(&world.namespace)
        .context("nothing is noted of the set")?;
    Ok((record.hash, record.controller_revision))
}

/// A pod that nobody schedules: that it is there is all that counts.
pub(super) fn lone_pod(world: &World, name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"of": world.namespace}},
        "spec": {"schedulerName": "nobody", "containers": [
            {"name": "app", "image": world.image, "resources": {"requests": {"cpu": "10m"}, "limits": {"cpu": "10m"}}},
        ]},
    })
}
