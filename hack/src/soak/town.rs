//! What lives there: workloads with their VPAs and disruption budgets, in a few namespaces.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::luck::Luck;
use crate::sandbox::{Api, DeleteOptions, Key, Part, Patch, Write, world::load};

const SIZES: [usize; 7] = [3, 5, 10, 20, 40, 80, 160];
const MODES: [&str; 5] = [
    "InPlaceOrRecreate",
    "Recreate",
    "InPlaceOrRecreate",
    "Initial",
    "Recreate",
];
const NAMESPACES: usize = 10;
/// What the names of workloads begin with; a number follows.
pub(super) const HOUSE: &str = "house-";
/// Takes room on the nodes when it is asked to.
const BALLAST: &str = "ballast";

/// One workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Workload {
    pub(super) namespace: String,
    pub(super) name: String,
    replicas: usize,
    is_stateful: bool,
    mode: &'static str,
}

/// All of them.
pub(super) struct Town {
    api: Arc<Api>,
    pub(super) workloads: Vec<Workload>,
    /// How many there have ever been.
    founded: usize,
    rollouts: usize,
}

impl Town {
    /// Builds one with about so many pods.
    ///
    /// # Errors
    /// When the sandbox refuses an object.
    pub(super) async fn found(api: Arc<Api>, pods: usize, luck: &mut Luck) -> Result<Self> {
        let mut town = Self {
            api,
            workloads: Vec::new(),
            founded: 0,
            rollouts: 0,
        };
        for index in 0..NAMESPACES {
            let namespace = json!({"metadata": {"name": format!("quarter-{index}")}});
            town.create("namespaces", "", namespace).await?;
        }
        let mut left = pods;
        while left > 1 {
            let largest = SIZES.iter().rposition(|size| *size <= left.max(SIZES[0]));
            let sizes = SIZES.get(..=largest.unwrap_or_default()).unwrap_or_default();
            let replicas = luck.one_of(sizes).copied().unwrap_or(1).min(left);
            town.settle(replicas).await?;
            left -= replicas;
        }
        let ballast = json!({
            "metadata": {"name": BALLAST},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"app": BALLAST}},
                "template": {
                    "metadata": {"labels": {"app": BALLAST}},
                    "spec": {"containers": [{
                        "name": "weight", "image": "workload",
                        "resources": {"requests": {"cpu": "6", "memory": "12Gi"}},
                    }]},
                },
            },
        });
        town.create("deployments.apps", "default", ballast).await?;
        Ok(town)
    }

    /// One more workload.
    async fn settle(&mut self, replicas: usize) -> Result<()> {
        let number = self.founded;
        self.founded += 1;
        let workload = Workload {
            namespace: format!("quarter-{}", number % NAMESPACES),
            name: format!("{HOUSE}{number}"),
            replicas,
            is_stateful: number % 7 == 3,
            mode: MODES[number % MODES.len()],
        };
        let namespace = workload.namespace.clone();
        self.create(workload.resource(), &namespace, workload.controller(number))
            .await?;
        self.create(
            "verticalpodautoscalers.autoscaling.k8s.io",
            &namespace,
            workload.vpa(),
        )
        .await?;
        self.create("poddisruptionbudgets.policy", &namespace, workload.budget(number))
            .await?;
        self.workloads.push(workload);
        Ok(())
    }

    /// A workload goes with all it has, and one of the same size comes.
    ///
    /// # Errors
    /// When the sandbox refuses it.
    pub(super) async fn replace(&mut self, luck: &mut Luck) -> Result<()> {
        let at = luck.below(self.workloads.len());
        let gone = self.workloads.swap_remove(at);
        for resource in [
            gone.resource(),
            "verticalpodautoscalers.autoscaling.k8s.io",
            "poddisruptionbudgets.policy",
        ] {
            let kind = self.api.kind(resource)?;
            let key = Key::new(&gone.namespace, &gone.name);
            self.api
                .delete(&kind, &key, &DeleteOptions::default(), &Write::default())
                .await?;
        }
        self.settle(gone.replicas).await
    }

    /// All pods of a workload are to be made anew.
    ///
    /// # Errors
    /// When the sandbox refuses it.
    pub(super) async fn roll_out(&mut self, workload: &Workload) -> Result<()> {
        self.rollouts += 1;
        let annotations = json!({"soak/rollout": self.rollouts.to_string()});
        let patch = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
        self.patch(workload.resource(), &workload.namespace, &workload.name, patch)
            .await
    }

    /// So many pods take room from now on.
    ///
    /// # Errors
    /// When the sandbox refuses it.
    pub(super) async fn weigh_down(&self, pods: usize) -> Result<()> {
        let patch = json!({"spec": {"replicas": pods}});
        self.patch("deployments.apps", "default", BALLAST, patch).await
    }

    async fn create(&self, resource: &str, namespace: &str, value: Value) -> Result<()> {
        let kind = self.api.kind(resource)?;
        let made = self.api.create(&kind, namespace, value, &Write::default()).await;
        made.map(drop).with_context(|| format!("creating {resource}"))
    }

    async fn patch(&self, resource: &str, namespace: &str, name: &str, patch: Value) -> Result<()> {
        let kind = self.api.kind(resource)?;
        let (key, patch) = (Key::new(namespace, name), Patch::Merge(patch));
        let patched = self
            .api
            .patch(&kind, &key, Part::Main, &patch, &Write::default())
            .await;
        patched
            .map(drop)
            .with_context(|| format!("patching {resource} {name}"))
    }
}

impl Workload {
    fn resource(&self) -> &'static str {
        if self.is_stateful {
            "statefulsets.apps"
        } else {
            "deployments.apps"
        }
    }

    fn controller(&self, number: usize) -> Value {
        let Self { name, replicas, .. } = self;
        // Traffic grows with the replicas, so that each has about the same; it peaks at another hour for each workload.
        let (low, high, hour) = (20 * replicas, (60 + 20 * (number % 5)) * replicas, number % 24);
        let usage = json!({
            "traffic": format!("daily({low}, {high}, {hour}h)"),
            "containers": {
                "app": {"cpu": "(5m + 1m * traffic) * noise(10%)", "memory": "90Mi + 0.5Mi * traffic"},
                "proxy": {"cpu": "(2m + 0.3m * traffic) * noise(10%)", "memory": "40Mi"},
                "agent": {"cpu": "3m", "memory": "25Mi"},
            },
        });
        let container = |name: &str, cpu: &str, memory: &str, limits: Value| {
            json!({
                "name": name, "image": "workload",
                "resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": limits},
            })
        };
        let mut proxy = container("proxy", "100m", "64Mi", json!({"memory": "128Mi"}));
        proxy["restartPolicy"] = json!("Always");
        let app = container("app", "50m", "128Mi", json!({"cpu": "1", "memory": "384Mi"}));
        let agent = container("agent", "50m", "100Mi", json!({"memory": "200Mi"}));
        let initials = if number.is_multiple_of(2) {
            json!([proxy])
        } else {
            json!([])
        };
        json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "serviceName": name,
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}, "annotations": {load::ANNOTATION: usage.to_string()}},
                    "spec": {
                        "terminationGracePeriodSeconds": 5,
                        "initContainers": initials,
                        "containers": [app, agent],
                    },
                },
            },
        })
    }

    fn vpa(&self) -> Value {
        let Self { name, mode, .. } = self;
        let kind = if self.is_stateful {
            "StatefulSet"
        } else {
            "Deployment"
        };
        json!({
            "metadata": {"name": name},
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": kind, "name": name},
                "updatePolicy": {"updateMode": mode},
                "resourcePolicy": {"containerPolicies": [{
                    "containerName": "*",
                    "minAllowed": {"cpu": MIN_ALLOWED.0, "memory": MIN_ALLOWED.1},
                    "maxAllowed": {"cpu": MAX_ALLOWED.0, "memory": MAX_ALLOWED.1},
                }]},
            },
        })
    }

    fn budget(&self, number: usize) -> Value {
        let name = &self.name;
        let most = if number.is_multiple_of(2) {
            json!(1)
        } else {
            json!("30%")
        };
        json!({
            "metadata": {"name": name},
            "spec": {"maxUnavailable": most, "selector": {"matchLabels": {"app": name}}},
        })
    }
}

/// The bounds of every VPA: CPU and memory.
pub(super) const MIN_ALLOWED: (&str, &str) = ("10m", "32Mi");
/// See [`MIN_ALLOWED`].
pub(super) const MAX_ALLOWED: (&str, &str) = ("1", "1Gi");
