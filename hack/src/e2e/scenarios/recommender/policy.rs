//! What VPAs say of the numbers they want, and whose VPAs they are.

use anyhow::{Context as _, Result, ensure};
use common::{
    api::{
        checkpoint::VerticalPodAutoscalerCheckpoint,
        vpa::{RecommendedContainerResources, VerticalPodAutoscaler},
    },
    quantity::{MilliCpu, Quantity},
};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Namespace};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

use super::{
    super::{super::Look, crds},
    Recommender, World, recommended, watch_over,
};
use crate::e2e::Running;

/// A Deployment of one pod with two containers, `app` and `second`, and what a VPA for it says besides.
async fn deploy(world: &World, name: &str, spec: Value) -> Result<()> {
    let container = |name: &str| {
        json!({
            "name": name, "image": world.image, "args": ["load", "--cpu", "5m", "--memory", "8Mi", "--listen", ""],
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        })
    };
    let containers = [container("app"), container("second")];
    world
        .create_object::<Deployment>(json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"terminationGracePeriodSeconds": 1, "containers": containers},
                },
            },
        }))
        .await?;
    let mut vpa = json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": {"name": name},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "updatePolicy": {"updateMode": "Off"},
        },
    });
    if let (Some(all), Value::Object(more)) = (vpa["spec"].as_object_mut(), spec) {
        all.extend(more);
    }
    world.create_object::<VerticalPodAutoscaler>(vpa).await?;
    Ok(())
}

fn policies(policies: &Value) -> Value {
    json!({"resourcePolicy": {"containerPolicies": policies}})
}

pub(super) async fn minded(world: &World) -> Result<()> {
    crds::install(world).await?;
    let any = |what: &str, cpu: &str| policies(&json!([{"containerName": "*", what: {"cpu": cpu}}]));
    deploy(world, "least", any("minAllowed", "10000")).await?;
    deploy(world, "most", any("maxAllowed", "1m")).await?;
    deploy(world, "both", json!({})).await?;
    let off = policies(&json!([{"containerName": "app", "mode": "Off"}]));
    deploy(world, "one", off).await?;
    deploy(world, "named", json!({"recommenders": [{"name": "default"}]})).await?;
    deploy(world, "foreign", json!({"recommenders": [{"name": "another"}]})).await?;
    orphan(world).await?;
    let elsewhere = Elsewhere::create(world).await?;

    let recommender = Recommender::start(world, &["--checkpoints-gc-interval=1s"]).await?;
    let outcome = numbers(world, &elsewhere).await;
    recommender.stop().await?;
    elsewhere.remove().await?;
    outcome
}

async fn numbers(world: &World, elsewhere: &Elsewhere) -> Result<()> {
    for container in recommended(world, "least", &["app", "second"]).await? {
        let (target, uncapped) = cpu(&container)?;
        ensure!(
            target >= 10_000_000 && uncapped < 10_000_000,
            "at least 10,000 cores: {container:?}"
        );
    }
    for container in recommended(world, "most", &["app", "second"]).await? {
        let (target, uncapped) = cpu(&container)?;
        ensure!(target <= 1 && uncapped > 1, "at most 1m: {container:?}");
    }
    recommended(world, "both", &["app", "second"]).await?;
    recommended(world, "one", &["second"]).await?;
    recommended(world, "named", &["app", "second"]).await?;

    let vpas = world.api::<VerticalPodAutoscaler>();
    let foreign = vpas.get("foreign").await?;
    ensure!(foreign.status.is_none(), "another's VPA: {:?}", foreign.status);
    let other = elsewhere.vpas.get("web").await?;
    ensure!(other.status.is_none(), "a VPA elsewhere: {:?}", other.status);
    let both = vpas.get("both").await?;
    let observed = both.status.as_ref().and_then(|status| status.observed_generation);
    ensure!(
        observed == both.metadata.generation,
        "observed generation {observed:?} of {:?}",
        both.metadata.generation
    );
    let checkpoints = world.api::<VerticalPodAutoscalerCheckpoint>();
    world
        .until("the checkpoint of nobody is removed", async || {
            Ok(match checkpoints.get_opt("gone-app").await? {
                None => Look::Done(()),
                Some(_) => Look::NotYet("it is there".to_owned()),
            })
        })
        .await
}

/// Target and uncapped target, in thousandths of a core.
fn cpu(container: &RecommendedContainerResources) -> Result<(i64, i64)> {
    let amount = |list: &std::collections::BTreeMap<String, _>| -> Result<i64> {
        let cpu = list.get("cpu").context("no cpu")?;
        Ok(MilliCpu::from_quantity(&Quantity::try_from(cpu)?).0)
    };
    Ok((amount(&container.target)?, amount(&container.uncapped_target)?))
}

/// A checkpoint whose VPA does not exist.
async fn orphan(world: &World) -> Result<()> {
    world
        .create_object::<VerticalPodAutoscalerCheckpoint>(json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscalerCheckpoint",
            "metadata": {"name": "gone-app"}, "spec": {"vpaObjectName": "gone", "containerName": "app"},
        }))
        .await?;
    Ok(())
}

/// A VPA in another namespace.
struct Elsewhere {
    namespaces: Api<Namespace>,
    name: String,
    vpas: Api<VerticalPodAutoscaler>,
}

impl Elsewhere {
    async fn create(world: &World) -> Result<Self> {
        let namespaces: Api<Namespace> = Api::all(world.client.clone());
        let namespace = json!({"metadata": {"generateName": "e2e-elsewhere-"}});
        let namespace = serde_json::from_value(namespace)?;
        let made = namespaces.create(&PostParams::default(), &namespace).await?;
        let name = made.name_any();
        let vpas: Api<VerticalPodAutoscaler> = Api::namespaced(world.client.clone(), &name);
        let vpa = serde_json::from_value(json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": {"name": "web"},
            "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
        }))?;
        vpas.create(&PostParams::default(), &vpa).await?;
        Ok(Self {
            namespaces,
            name,
            vpas,
        })
    }

    async fn remove(self) -> Result<()> {
        self.namespaces
            .delete(&self.name, &DeleteParams::background())
            .await?;
        Ok(())
    }
}

pub(super) async fn ignored(world: &World) -> Result<()> {
    crds::install(world).await?;
    watch_over(world, "apps/v1", "Deployment", "web").await?;
    let elsewhere = Elsewhere::create(world).await?;
    let ignored = format!("--ignored-vpa-object-namespaces={}", world.namespace);
    let config = recommender::Config::from_flags(["--recommender-interval=10s", &ignored])?;
    let daemon = Running::start(world, |context| recommender::run(config, context));
    world
        .until("the VPA elsewhere is looked at", async || {
            let status = elsewhere.vpas.get("web").await?.status.unwrap_or_default();
            Ok(if status.conditions.is_empty() {
                Look::NotYet("no condition".to_owned())
            } else {
                Look::Done(())
            })
        })
        .await?;
    let own = world.api::<VerticalPodAutoscaler>().get("web").await?;
    ensure!(
        own.status.is_none(),
        "a VPA that is to be ignored: {:?}",
        own.status
    );
    daemon.stop().await
}
