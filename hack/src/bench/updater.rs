//! The updater's memory and the time its decisions take, on a cluster of any size that is not there.

use std::process::{Command, Stdio};

use ::updater::{
    decide::{Evictions, Outcome, Turn},
    feed::{Feed, Tally},
    memory::Memory,
    settings::Settings,
};
use anyhow::{Context as _, Result, ensure};
use chrono::{DateTime, TimeDelta, Utc};
use clap::Args as ClapArgs;
use common::{
    api::{
        k8s::{Deployment, ReplicaSet},
        vpa::VerticalPodAutoscaler,
    },
    kube::watch::{Change, SlimSelecting},
    pod::Pod,
    target::{ControllerKey, ScaleLookup},
};
use serde_json::{Value, json};

use crate::proc::Of;

const VPAS_PER_NAMESPACE: usize = 500;

/// Measure the updater: memory, the first load, and loops
///
/// Decodes the JSON of as many pods of 7 KB (two containers and a native sidecar), VPAs and controllers as are asked for, one
/// after the other as a watch brings them, and goes round its loop: with nothing to do, with nothing to do though every VPA has
/// a new status, with 1 % and with 100 % of the pods due. Decisions only: nothing is sent. The same is done in a process of its own
/// at 10,000 pods and 1,000 VPAs, where VPA was measured (762 MiB, 0.91 s a loop).
///
///   cargo run --release -p hack -- bench updater --pods 150000 --vpas 20000
#[derive(ClapArgs, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// How many pods there are
    #[arg(long, default_value_t = 150_000)]
    pods: usize,
    /// How many VPAs there are
    #[arg(long, default_value_t = 20_000)]
    vpas: usize,
    /// Leave out the smaller cluster
    #[arg(long)]
    only: bool,
}

impl Args {
    /// Measures it.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn run(self) -> Result<()> {
        ensure!(
            self.vpas > 0 && self.pods >= self.vpas,
            "there must be at least one VPA, and a pod for each"
        );
        if !self.only {
            println!(
                "{:>8} {:>7} {:>9} {:>10} {:>9} {:>9} {:>9} {:>9}  (CPU seconds)",
                "pods", "VPAs", "peak MiB", "first load", "idle", "restated", "1 % due", "100 % due"
            );
            // Memory that was once had is not given back: the smaller one is measured by itself.
            let smaller = Command::new(std::env::current_exe()?)
                .args(["bench", "updater", "--only", "--pods", "10000", "--vpas", "1000"])
                .stdout(Stdio::inherit())
                .status()?;
            ensure!(smaller.success(), "the smaller cluster could not be measured");
        }
        measure(self.pods, self.vpas)
    }
}

fn measure(pods: usize, vpas: usize) -> Result<()> {
    let now = DateTime::from_timestamp(1_772_323_200, 0).context("a time in 2026")?;
    let mut bench = Bench {
        feed: Feed::default(),
        memory: Memory::default(),
        settings: Settings {
            gates: "NativeSidecar=true".parse()?,
            ..Settings::default()
        },
        now,
        vpas,
        acts: 0,
    };
    let before = Of::Ourselves.cpu_seconds()?;
    for vpa in 0..vpas {
        bench.controllers(vpa, pods / vpas)?;
        bench.vpa(vpa, "100m")?;
    }
    for pod in 0..pods {
        bench.pod(pod)?;
    }
    let load = Of::Ourselves.cpu_seconds()? - before;
    let first = bench.timed(0)?;
    // The first turn of all is part of the first load: what follows is every day's.
    let idle = bench.timed(0)?;
    bench.restate("101m", vpas)?;
    let restated = bench.timed(0)?;
    bench.restate("400m", (vpas / 100).max(1))?;
    let some = bench.timed((pods / 1000).max(1))?;
    bench.restate("400m", vpas)?;
    let all = bench.timed((pods / 10).max(1))?;
    println!(
        "{pods:>8} {vpas:>7} {:>9.0} {:>10.2} {idle:>9.3} {restated:>9.3} {some:>9.3} {all:>9.3}",
        Of::Ourselves.peak_mib()?,
        load + first,
    );
    Ok(())
}

struct Bench {
    feed: Feed,
    memory: Memory,
    settings: Settings,
    now: DateTime<Utc>,
    vpas: usize,
    acts: usize,
}

impl Bench {
    /// One loop; gives its CPU seconds. At least so many pods must have been acted on.
    fn timed(&mut self, at_least: usize) -> Result<f64> {
        self.now += TimeDelta::minutes(1);
        let before = Of::Ourselves.cpu_seconds()?;
        self.acts = 0;
        let no_scale = |_: &ControllerKey| ScaleLookup::NotFound("no");
        ensure!(self.feed.settle(no_scale).is_empty(), "a scale is asked for");
        for key in self.feed.due(self.now) {
            let Some(work) = self.feed.take(&key, no_scale) else {
                continue;
            };
            let pods: Vec<&Pod> = work.pods.iter().collect();
            let mut turn = Turn::begin(
                &pods,
                &work.vpa,
                &work,
                &work.limit_ranges,
                &self.settings,
                Evictions::Allowed,
                self.now,
            );
            while turn.next(&mut self.memory, self.now).is_some() {
                self.acts += 1;
                turn.done(Outcome::Done, &mut self.memory);
            }
            let mut tally = Tally::default();
            tally.count(turn.fates());
            self.feed.note(&key, tally, turn.quiet_until());
        }
        let took = Of::Ourselves.cpu_seconds()? - before;
        ensure!(
            self.acts >= at_least && (at_least > 0 || self.acts == 0),
            "{} pods were acted on, not {at_least}",
            self.acts
        );
        Ok(took)
    }

    /// So many VPAs recommend something else.
    fn restate(&mut self, cpu: &str, vpas: usize) -> Result<()> {
        (0..vpas).try_for_each(|vpa| self.vpa(vpa, cpu))
    }

    fn controllers(&mut self, vpa: usize, replicas: usize) -> Result<()> {
        let (namespace, name) = (namespace(vpa), format!("web-{vpa}"));
        let spec = json!({"selector": {"matchLabels": {"app": name}}, "replicas": replicas});
        let deployment: SlimSelecting<Deployment> =
            decoded(&json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec}))?;
        self.feed.controller(Change::Applied(deployment));
        let set: SlimSelecting<ReplicaSet> = decoded(&json!({
            "metadata": {"name": format!("{name}-7d4b9c6f5"), "namespace": namespace, "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": "u", "controller": true},
            ]},
            "spec": spec,
        }))?;
        self.feed.controller(Change::Applied(set));
        Ok(())
    }

    fn vpa(&mut self, vpa: usize, cpu: &str) -> Result<()> {
        let name = format!("web-{vpa}");
        let recommended = |container: &str| {
            // Wide for what is near, so that only what is far off is due.
            let (lower, upper) = if cpu == "400m" {
                ("300m", "500m")
            } else {
                ("50m", "200m")
            };
            json!({
                "containerName": container, "target": {"cpu": cpu, "memory": "128Mi"},
                "lowerBound": {"cpu": lower, "memory": "64Mi"}, "uncappedTarget": {"cpu": cpu, "memory": "128Mi"},
                "upperBound": {"cpu": upper, "memory": "1Gi"},
            })
        };
        let recommendations = ["app", "worker", "proxy"].map(recommended);
        let object: VerticalPodAutoscaler = decoded(&json!({
            "metadata": {"name": name, "namespace": namespace(vpa), "uid": uid(vpa)},
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "updatePolicy": {"updateMode": "InPlaceOrRecreate"},
            },
            "status": {"recommendation": {"containerRecommendations": recommendations}},
        }))?;
        self.feed.apply_vpa(&object);
        Ok(())
    }

    fn pod(&mut self, index: usize) -> Result<()> {
        let text = pod(index, index % self.vpas).to_string();
        let pod: Pod = serde_json::from_str(&text)?;
        self.feed.apply_pod(pod);
        Ok(())
    }
}

fn decoded<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T> {
    Ok(serde_json::from_str(&value.to_string())?)
}

fn namespace(vpa: usize) -> String {
    format!("ns-{}", vpa / VPAS_PER_NAMESPACE)
}

fn uid(index: usize) -> String {
    format!("0c4d7a52-0000-4000-8000-{index:012}")
}

/// A pod as it is stored, with its status and managed fields.
fn pod(index: usize, vpa: usize) -> Value {
    let name = format!("web-{vpa}");
    let resources =
        json!({"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}});
    let container = |container: &str| {
        let env: Vec<_> = (0..12)
            .map(|n| json!({"name": format!("SETTING_{n}"), "value": format!("a value of some length, number {n}")}))
            .collect();
        json!({
            "name": container, "image": "registry.example.org/shop/web:1.2.3", "env": env, "resources": resources,
            "terminationMessagePath": "/dev/termination-log", "imagePullPolicy": "IfNotPresent",
        })
    };
    let status = |container: &str| {
        json!({
            "name": container, "ready": true, "started": true, "restartCount": index % 3, "resources": resources,
            "image": "registry.example.org/shop/web:1.2.3", "imageID": format!("sha256:{index:064x}"),
            "containerID": format!("containerd://{index:064x}"),
            "state": {"running": {"startedAt": "2026-02-27T10:00:00Z"}}, "allocatedResources": resources["requests"],
        })
    };
    let mut proxy = container("proxy");
    proxy["restartPolicy"] = json!("Always");
    let condition =
        |type_: &str| json!({"type": type_, "status": "True", "lastTransitionTime": "2026-02-27T10:00:00Z"});
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{name}-7d4b9c6f5-{index:06}"), "generateName": format!("{name}-7d4b9c6f5-"),
            "namespace": namespace(vpa), "uid": uid(index), "resourceVersion": index.to_string(),
            "creationTimestamp": "2026-02-27T10:00:00Z",
            "labels": {"app": name, "pod-template-hash": "7d4b9c6f5", "tier": "web", "team": "shop"},
            "annotations": {
                "vpaObservedContainers": "app, worker, proxy", "prometheus.io/scrape": "true",
                "checksum/config": format!("{vpa:064x}"),
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{name}-7d4b9c6f5"), "uid": uid(vpa),
                "controller": true, "blockOwnerDeletion": true,
            }],
            "managedFields": [{
                "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:labels": {"f:app": {}, "f:tier": {}}}, "f:spec": {"f:containers": {
                    "k:{\"name\":\"app\"}": {"f:image": {}, "f:env": {}, "f:resources": {"f:requests": {}, "f:limits": {}}},
                    "k:{\"name\":\"worker\"}": {"f:image": {}, "f:env": {}, "f:resources": {"f:requests": {}, "f:limits": {}}},
                }}},
            }],
        },
        "spec": {
            "nodeName": format!("node-{}", index % 5000), "initContainers": [proxy],
            "containers": [container("app"), container("worker")],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        },
        "status": {
            "phase": "Running", "startTime": "2026-02-27T10:00:00Z", "podIP": "10.0.0.1", "qosClass": "Burstable",
            "conditions": conditions,
            "initContainerStatuses": [status("proxy")], "containerStatuses": [status("app"), status("worker")],
        },
    })
}
