//! The injector as it registers itself: webhooks and conversion, and nothing of them once it injects no more.

use std::net::{Ipv4Addr, TcpListener};

use admission::sidecarset::settings::{Mode, Settings};
use anyhow::{Context as _, Result, bail, ensure};
use common::{
    api::{
        k8s::{CustomResourceDefinition, MutatingWebhookConfiguration, Pod},
        sidecarset::SidecarSet,
    },
    clock::Clock,
    daemon::{Context as Daemon, DaemonError, Namespaces, Shutdown},
    gates::{Gate, Gates},
    sidecarset::{record::HASH, revision::CUSTOM_VERSION, sizing},
};
use futures::FutureExt as _;
use http::Method;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::super::{Look, Need, Scenario, World};
use super::{
    SETS_ARE_SHARED, install_crds,
    sidecarset_inject::{deployment, set},
    sidecarset_size::{pods_of, recommend, resources, vpa},
};

const DEFINITION: &str = "sidecarsets.apps.kruise.io";
const ALPHA: &str = "/apis/apps.kruise.io/v1alpha1/sidecarsets";
const BETA: &str = "/apis/apps.kruise.io/v1beta1/sidecarsets";

pub(super) fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "sidecarset-registers",
        about: "the injector registers its webhooks and the conversion of SidecarSets; a pod gets its sidecar, sized by what \
                its app is recommended, and a mesh beside them; back in mode size nothing is left of it",
        needs: &[Need::Node, Need::LocalWebhooks],
        run: |world| alone(world).boxed_local(),
    }]
}

/// The component on a port that it comes back to.
struct Admission {
    shutdown: Shutdown,
    running: JoinHandle<Result<(), DaemonError>>,
}

impl Admission {
    fn start(world: &World, mode: Mode, port: u16) -> Result<(Self, u16)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let port = listener.local_addr()?.port();
        let gates = Gates::default().with(Gate::NativeSidecar, true);
        let mut config = admission::Config::local(gates, listener)?;
        config.namespaces = Namespaces::Only(world.namespace.clone());
        config.webhook.configuration = names(world)[1].clone();
        config.webhook.sidecarset_configuration = names(world)[0].clone();
        config.lease.namespace = world.namespace.clone();
        config.sidecarsets = Settings {
            namespace: world.namespace.clone(),
            ..Settings::new(mode, "default")
        };
        let shutdown = Shutdown::new();
        let context = Daemon::new(world.client.clone(), Clock::system(), shutdown.clone());
        let running = tokio::spawn(admission::run(config, context));
        Ok((Self { shutdown, running }, port))
    }

    async fn stop(mut self) -> Result<()> {
        self.shutdown.request();
        Ok((&mut self.running).await??)
    }
}

/// One that a failed scenario left would register itself again, and change the sets of others.
impl Drop for Admission {
    fn drop(&mut self) {
        self.shutdown.request();
    }
}

/// The names of its webhook configurations, in the order in which they are called.
fn names(world: &World) -> [String; 2] {
    ["inject", "size"].map(|name| format!("{name}-{}", world.namespace))
}

/// Runs the scenario while no other has SidecarSets, and removes what is left of it outside its namespace.
async fn alone(world: &World) -> Result<()> {
    let _alone = SETS_ARE_SHARED.write().await;
    install_crds(world).await?;
    let result = registers(world).await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(world.client.clone());
    for name in names(world) {
        if configurations.get_opt(&name).await?.is_some() {
            configurations.delete(&name, &DeleteParams::default()).await?;
        }
    }
    let sets: Api<SidecarSet> = Api::all(world.client.clone());
    for name in [world.namespace.clone(), old_set(world)] {
        if sets.get_opt(&name).await?.is_some() {
            sets.delete(&name, &DeleteParams::default()).await?;
        }
    }
    result
}

async fn registers(world: &World) -> Result<()> {
    let (injector, port) = Admission::start(world, Mode::Inject, 0)?;
    until_registered(world, true).await?;

    converts(world).await?;
    is_set(world, BETA, &set(world)).await?;
    vpa(world).await?;
    recommend(world, "40m", "40Mi").await?;
    deployment(world, 1).await?;
    let expected = json!({
        "app": {"requests": {"cpu": "40m", "memory": "40Mi"}, "limits": {"cpu": "800m", "memory": "160Mi"}},
        // A tenth of the limit, and half of the request.
        "agent": {"requests": {"cpu": "20m", "memory": "16Mi"}, "limits": {"cpu": "80m"}},
        "proxy": {"requests": {"cpu": "5m", "memory": "16Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}},
        "setup": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    });
    until_sized(world, &expected).await?;

    injector.stop().await?;
    let refused = lone_pod(world, "refused").await;
    ensure!(refused.is_err(), "a pod came without its sidecars: {refused:?}");

    let (sizer, _) = Admission::start(world, Mode::Size, port)?;
    until_registered(world, false).await?;
    world
        .until("pods come without an injector", async || {
            Ok(match lone_pod(world, "let-be").await {
                Ok(_) => Look::Done(()),
                Err(error) => Look::NotYet(error.to_string()),
            })
        })
        .await?;
    sizer.stop().await
}

/// Waits until the API server knows the injector, or knows it no more.
async fn until_registered(world: &World, injects: bool) -> Result<()> {
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(world.client.clone());
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let strategy = if injects { "Webhook" } else { "None" };
    world
        .until("the API server knows who injects", async || {
            let [inject, size] = names(world);
            let is_there = configurations.get_opt(&inject).await?.is_some();
            let sizes = configurations.get_opt(&size).await?.is_some();
            let definition = definitions.get(DEFINITION).await?;
            let conversion = definition.spec.conversion.map(|conversion| conversion.strategy);
            let found = (is_there, sizes, conversion.as_deref());
            Ok(if found == (injects, true, Some(strategy)) {
                Look::Done(())
            } else {
                Look::NotYet(format!("{found:?}"))
            })
        })
        .await
}

fn old_set(world: &World) -> String {
    format!("{}-old", world.namespace)
}

/// Makes a set as soon as the webhook is heard of, so that it gets its hash.
async fn is_set(world: &World, path: &str, set: &Value) -> Result<()> {
    let name = set["metadata"]["name"].as_str().context("a set has a name")?;
    world
        .until("the set has a hash", async || {
            let answer = world.send(Method::POST, path, "application/json", set).await?;
            if answer.code != 201 {
                return Ok(Look::NotYet(format!("{answer:?}")));
            }
            if answer.body["metadata"]["annotations"].get(HASH).is_some() {
                return Ok(Look::Done(()));
            }
            let api: Api<SidecarSet> = Api::all(world.client.clone());
            api.delete(name, &DeleteParams::default()).await?;
            Ok(Look::NotYet("no hash".to_owned()))
        })
        .await
}

/// A set of the older version is one of the newer, and back again, where the API server asks for that.
async fn converts(world: &World) -> Result<()> {
    let name = old_set(world);
    let old = json!({
        "apiVersion": "apps.kruise.io/v1alpha1", "kind": "SidecarSet",
        "metadata": {"name": name, "labels": {CUSTOM_VERSION: "7"}},
        "spec": {
            "namespace": "somewhere", "selector": {"matchLabels": {"nobody": "is"}},
            // As the proposal spelled it.
            "containers": [{"name": "other", "image": world.image, "resourcesPolicy": {
                "targetContainerMode": "max", "resourceExpr": {"requests": {"cpu": "cpu*50%"}},
            }}],
        },
    });
    is_set(world, ALPHA, &old).await?;
    if !world.converts() {
        return Ok(());
    }
    let get = async |path: &str| -> Result<Value> {
        let path = format!("{path}/{name}");
        let answer = world
            .send(Method::GET, &path, "application/json", &Value::Null)
            .await?;
        ensure!(answer.code == 200, "{path} was answered by {answer:?}");
        Ok(answer.body)
    };
    let beta = get(BETA).await?;
    ensure!(
        beta["spec"]["namespaceSelector"]
            == json!({"matchLabels": {"kubernetes.io/metadata.name": "somewhere"}})
            && beta["spec"]["customVersion"] == "7"
            && beta["metadata"]["labels"].get(CUSTOM_VERSION).is_none(),
        "as v1beta1 it is {beta}"
    );
    let policy = json!({
        "targetContainersMode": "max", "targetContainersNameRegex": ".*",
        "resourcesExpr": {"requests": {"cpu": "cpu*50%"}},
    });
    let found = &beta["spec"]["containers"][0]["resourcesPolicy"];
    ensure!(*found == policy, "its formula is {found}");
    let alpha = get(ALPHA).await?;
    ensure!(
        alpha["metadata"]["labels"][CUSTOM_VERSION] == "7"
            && alpha["spec"]["namespaceSelector"] == beta["spec"]["namespaceSelector"]
            && alpha["spec"].get("customVersion").is_none()
            && alpha["metadata"]["annotations"] == beta["metadata"]["annotations"],
        "as v1alpha1 it is {alpha}"
    );
    Ok(())
}

/// Waits until the pod of the Deployment went through both webhooks and is sized; one that came before they, or the VPA,
/// were heard of is made again.
async fn until_sized(world: &World, expected: &Value) -> Result<()> {
    world
        .until("a pod goes through both webhooks", async || {
            let mut found = Vec::new();
            for pod in pods_of(world, &format!("of={}", world.namespace)).await? {
                let annotations = &pod["metadata"]["annotations"];
                let marks = [HASH, sizing::ANNOTATION];
                let sized = resources(&pod);
                if marks.iter().all(|mark| annotations.get(mark).is_some()) && sized == *expected {
                    return Ok(Look::Done(()));
                }
                found.push(format!("{annotations} {sized}"));
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                world
                    .api::<Pod>()
                    .delete(name, &DeleteParams::default().grace_period(0))
                    .await?;
            }
            Ok(Look::NotYet(found.join(" | ")))
        })
        .await
}

/// A pod that nobody schedules.
async fn lone_pod(world: &World, name: &str) -> Result<Pod> {
    let pod = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"of": world.namespace}},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "app", "image": world.image}]},
    }))?;
    match world.api::<Pod>().create(&PostParams::default(), &pod).await {
        Ok(pod) => Ok(pod),
        Err(error) => bail!("{error}"),
    }
}
