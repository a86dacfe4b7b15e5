//! The shop: what is deployed, and how it is looked at.

use anyhow::{Context as _, Result};
use common::{
    api::{metrics::PodMetrics, vpa::VerticalPodAutoscaler},
    pod::Pod,
};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Event};
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

use super::table::Snapshot;
use crate::{
    e2e::{Stage, World},
    sandbox::world::load,
};

/// The open shop, in a namespace of its own.
pub(super) struct Shop {
    world: World,
}

impl Shop {
    pub(super) async fn open(stage: &Stage) -> Result<Self> {
        let world = stage.world("demo").await?;
        crate::e2e::install_crds(&world).await?;
        world.create_object::<Deployment>(deployment(&world)).await?;
        world.create_object::<VerticalPodAutoscaler>(vpa()).await?;
        Ok(Self { world })
    }

    /// Where no annotation drives the load: the shop gets busy.
    pub(super) async fn rush(&self) -> Result<()> {
        self.world.usage("shop", "app", "250m", "320Mi").await?;
        self.world.usage("shop", "mesh-proxy", "120m", "70Mi").await
    }

    pub(super) async fn close(self) -> Result<()> {
        self.world.remove().await
    }

    pub(super) async fn look(&self) -> Result<Snapshot> {
        let all = ListParams::default();
        let pods = self
            .world
            .api::<Pod>()
            .list(&all)
            .await
            .context("listing pods")?
            .items;
        let metrics = self
            .world
            .api::<PodMetrics>()
            .list(&all)
            .await
            .context("listing metrics")?
            .items;
        let vpa = self.world.api::<VerticalPodAutoscaler>().get("shop").await?;
        let events: Api<Event> = self.world.api();
        let events = events.list(&all).await?.items;
        Ok(Snapshot::of(&pods, &metrics, &vpa, &events))
    }
}

fn vpa() -> Value {
    json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "shop"},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"},
            "updatePolicy": {"updateMode": "InPlaceOrRecreate"},
        },
    })
}

/// On the sandbox the annotation says what the containers use, through the day; on a real node the arguments do, and
/// later [`Shop::rush`].
fn deployment(world: &World) -> Value {
    let container = |name: &str, port: u16, cpu: &str, memory: &str, resources: Value| {
        let listen = format!(":{port}");
        json!({
            "name": name, "image": world.image, "resources": resources,
            "args": ["load", "--cpu", cpu, "--memory", memory, "--listen", listen],
        })
    };
    let load = json!({
        "traffic": "daily(60, 600, 14h)",
        "containers": {
            "app": {"cpu": "(20m + 2m * traffic) * noise(10%)", "memory": "180Mi + 1Mi * traffic"},
            "mesh-proxy": {"cpu": "(5m + 1m * traffic) * noise(10%)", "memory": "45Mi"},
            "log-agent": {"cpu": "3m + 0.1m * traffic", "memory": "30Mi"},
        },
    });
    let mut proxy = container(
        "mesh-proxy",
        8081,
        "60m",
        "40Mi",
        json!({
            "requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "2", "memory": "1Gi"},
        }),
    );
    proxy["restartPolicy"] = json!("Always");
    json!({
        "metadata": {"name": "shop"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "shop"}},
            "template": {
                "metadata": {"labels": {"app": "shop"}, "annotations": {load::ANNOTATION: load.to_string()}},
                "spec": {
                    "terminationGracePeriodSeconds": 2,
                    "initContainers": [proxy],
                    "containers": [
                        container("app", 8080, "150m", "200Mi", json!({
                            "requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "2Gi"},
                        })),
                        container("log-agent", 8082, "5m", "20Mi", json!({
                            "requests": {"cpu": "200m", "memory": "256Mi"}, "limits": {"cpu": "400m", "memory": "512Mi"},
                        })),
                    ],
                },
            },
        },
    })
}
