//! `hack sandbox`: starts a sandbox for kubectl and for daemons by hand, filled with as many pods and autoscalers as asked
//! for, and says what that costs.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};

use crate::{interrupt::interrupted, proc::Of};

use super::{
    Api, Object, Options, Sandbox, Write,
    measured::{Amount, Container, Measured, Usage, Used},
    world::{NodeSpec, World, WorldOptions},
};

/// Start an API server for trying things out.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Where to write the kubeconfig; a new file in the temporary directory when not given.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Start without our CustomResourceDefinitions.
    #[arg(long)]
    no_crds: bool,
    /// How many simulated nodes of 8 cores and 32Gi run pods, with controllers and metrics; 0 leaves the server alone.
    #[arg(long, default_value_t = 3)]
    nodes: u16,
    /// Create this many pods, bound to nodes and running as far as their status goes.
    #[arg(long, default_value_t = 0)]
    pods: usize,
    /// Create this many VerticalPodAutoscalers.
    #[arg(long, default_value_t = 0)]
    vpas: usize,
    /// Stop after filling and measuring instead of waiting for Ctrl-C.
    #[arg(long)]
    once: bool,
}

/// Runs the command.
///
/// # Errors
/// When the port is taken or the kubeconfig cannot be written.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let Args {
        port,
        kubeconfig,
        no_crds,
        nodes,
        pods,
        vpas,
        once,
    } = args;
    let options = Options {
        port,
        ..Options::default()
    };
    let sandbox = Sandbox::start(options).await?;
    if !no_crds || vpas > 0 {
        install_crds(sandbox.api()).await?;
    }
    if pods + vpas > 0 {
        fill(sandbox.api(), pods, vpas).await?;
        serve_metrics(sandbox.api());
        measure(&sandbox).await?;
    }
    if once {
        return Ok(());
    }
    // The filling stands still, and has its own metrics.
    let world = match pods + vpas {
        0 if nodes > 0 => Some(World::start(&sandbox, live(nodes)).await?),
        _ => None,
    };
    let path = match kubeconfig {
        Some(path) => path,
        None => std::env::temp_dir().join(format!("outrigger-sandbox-{}.kubeconfig", std::process::id())),
    };
    std::fs::write(&path, sandbox.kubeconfig())
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("sandbox at {}", sandbox.url());
    println!("  export KUBECONFIG={}", path.display());
    println!("  kubectl get pods --all-namespaces");
    println!(
        "  curl -d '{{\"verbs\":[\"watch\"],\"effect\":{{\"type\":\"dropWatch\",\"afterEvents\":3}}}}' {}/sandbox/faults",
        sandbox.url()
    );
    println!("Ctrl-C stops it.");
    interrupted().await?;
    drop(world);
    // The file is of no use any more, and nothing is lost when it has been taken away already.
    drop(std::fs::remove_file(&path));
    Ok(())
}

/// For people: pods are ready within a second.
fn live(nodes: u16) -> WorldOptions {
    WorldOptions {
        nodes: (1..=nodes)
            .map(|n| NodeSpec::new(&format!("node-{n}"), "8", "32Gi"))
            .collect(),
        tick: Duration::from_millis(200),
        init_time: Duration::from_millis(200),
        startup_time: Duration::from_millis(200),
        ..WorldOptions::default()
    }
}

/// Creates our CustomResourceDefinitions.
///
/// # Errors
/// When the sandbox refuses one.
pub async fn install_crds(api: &Api) -> anyhow::Result<()> {
    let kind = api.kind("customresourcedefinitions.apiextensions.k8s.io")?;
    for definition in crate::crds::values()? {
        api.create(&kind, "", definition.clone(), &Write::default())
            .await?;
    }
    Ok(())
}

const PODS_PER_NODE: usize = 30;
const PODS_PER_NAMESPACE: usize = 500;

async fn fill(api: &Api, pods: usize, vpas: usize) -> anyhow::Result<()> {
    let write = Write::default();
    let (namespaces, nodes) = (api.kind("namespaces")?, api.kind("nodes")?);
    let started = Instant::now();
    for n in 0..pods.max(vpas).div_ceil(PODS_PER_NAMESPACE) {
        let namespace = json!({"metadata": {"name": format!("ns-{n}")}});
        api.create(&namespaces, "", namespace, &write).await?;
    }
    for n in 0..pods.div_ceil(PODS_PER_NODE) {
        api.create(&nodes, "", node(n), &write).await?;
    }
    let kind = api.kind("pods")?;
    let dry_run = Write {
        dry_run: true,
        ..Write::default()
    };
    let template = api.create(&kind, "default", pod(0), &dry_run).await?.value();
    for n in 0..pods {
        let mut value = template.clone();
        value["metadata"] = pod_metadata(n);
        value["spec"]["nodeName"] = format!("node-{}", n / PODS_PER_NODE).into();
        value["status"] = running_status(n);
        api.plant(&kind, &format!("ns-{}", n / PODS_PER_NAMESPACE), value)?;
    }
    if vpas > 0 {
        let kind = api.kind("verticalpodautoscalers.autoscaling.k8s.io")?;
        for n in 0..vpas {
            let namespace = format!("ns-{}", n / PODS_PER_NAMESPACE);
            api.create(&kind, &namespace, vpa(n), &write).await?;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{pods} pods and {vpas} VPAs created in {seconds:.1} s; resident {:.0} MiB",
        Of::Ourselves.resident_mib()?
    );
    Ok(())
}

/// Every container uses half of what it asks for.
fn serve_metrics(api: &Arc<Api>) {
    let (store, weak) = (api.store().clone(), Arc::downgrade(api));
    api.serve_pod_metrics(Arc::new(move || {
        let now = weak.upgrade().map_or_else(String::new, |api| api.now());
        let (now, window): (Arc<str>, Arc<str>) = (now.into(), "15s".into());
        let [app, proxy] = ["app", "proxy"].map(|name| Container {
            name: name.into(),
            usage: Usage {
                cpu: Amount::Of(50, "m"),
                memory: Amount::Of(64, "Mi"),
            },
        });
        let metrics = |pod: &Arc<Object>| Measured {
            object: pod.clone(),
            asked: now.clone(),
            timestamp: now.clone(),
            window: window.clone(),
            used: Used::Containers(vec![app.clone(), proxy.clone()]),
        };
        store.all("pods", None).iter().map(metrics).collect()
    }));
}

/// Reads every list as a daemon does, over HTTP, without decoding it.
async fn measure(sandbox: &Sandbox) -> anyhow::Result<()> {
    let client = crate::http::client()?;
    for (what, path, accept) in [
        ("pods", "/api/v1/pods", "application/json"),
        (
            "pods, metadata",
            "/api/v1/pods",
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        ),
        (
            "pod metrics",
            "/apis/metrics.k8s.io/v1beta1/pods",
            "application/json",
        ),
        (
            "VPAs",
            "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers",
            "application/json",
        ),
    ] {
        let started = Instant::now();
        let answer = client
            .get(format!("{}{path}", sandbox.url()))
            .header("accept", accept)
            .send()
            .await?;
        let mut size = 0_u64;
        let mut body = futures::stream::unfold(answer, async |mut answer| {
            let chunk = answer.chunk().await.transpose()?;
            Some((chunk, answer))
        })
        .boxed();
        while let Some(chunk) = body.try_next().await? {
            size += u64::try_from(chunk.len())?;
        }
        let (seconds, mib) = (started.elapsed().as_secs_f64(), size / 1024 / 1024);
        println!(
            "list of {what}: {mib} MiB in {seconds:.2} s; resident {:.0} MiB",
            Of::Ourselves.resident_mib()?
        );
    }
    Ok(())
}

fn node(n: usize) -> Value {
    let resources = json!({"cpu": "64", "memory": "256Gi", "pods": "110"});
    json!({
        "metadata": {"name": format!("node-{n}"), "labels": {"kubernetes.io/os": "linux"}},
        "status": {
            "allocatable": resources, "capacity": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// About as large as pods are: an app and a native sidecar with probes, variables, mounts.
fn pod(n: usize) -> Value {
    let workload = n / 10;
    let variables: Vec<_> = (0..12)
        .map(|i| json!({"name": format!("SETTING_{i}"), "value": format!("value-{i}-{workload}")}))
        .collect();
    let container = |name: &str| {
        json!({
            "name": name, "image": format!("registry.example.com/team/{name}:v1.{workload}"),
            "env": variables,
            "resources": {
                "requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "512Mi"},
            },
            "ports": [{"name": "http", "containerPort": 8080}],
            "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}},
            "livenessProbe": {"httpGet": {"path": "/live", "port": 8080}},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/config"}, {"name": "tmp", "mountPath": "/tmp"}],
            "securityContext": {"runAsNonRoot": true, "readOnlyRootFilesystem": true},
        })
    };
    let mut sidecar = container("proxy");
    sidecar["restartPolicy"] = "Always".into();
    json!({
        "metadata": pod_metadata(n),
        "spec": {
            "nodeName": format!("node-{}", n / PODS_PER_NODE),
            "initContainers": [sidecar],
            "containers": [container("app")],
            "volumes": [{"name": "config", "configMap": {"name": "config"}}, {"name": "tmp", "emptyDir": {}}],
        },
    })
}

fn pod_metadata(n: usize) -> Value {
    let workload = n / 10;
    json!({
        "name": format!("web-{workload}-7d4b9c6f5-{n}"),
        "generateName": format!("web-{workload}-7d4b9c6f5-"),
        "labels": {
            "app.kubernetes.io/name": format!("web-{workload}"), "app.kubernetes.io/part-of": "shop",
            "pod-template-hash": "7d4b9c6f5", "team": format!("team-{}", workload % 50),
        },
        "annotations": {"prometheus.io/scrape": "true", "checksum/config": format!("{workload:064x}")},
        "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("web-{workload}-7d4b9c6f5"),
            "uid": format!("{workload:08x}-0000-4000-8000-000000000000"), "controller": true,
        }],
    })
}

fn running_status(n: usize) -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": format!("registry.example.com/team/{name}:v1"), "imageID": format!("sha256:{n:064x}"),
            "containerID": format!("containerd://{n:064x}"), "ready": true, "started": true, "restartCount": 0,
            "state": {"running": {"startedAt": "2026-03-01T12:00:00Z"}},
            "resources": {
                "requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "512Mi"},
            },
        })
    };
    let conditions: Vec<_> = ["Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .iter()
        .map(|name| json!({"type": name, "status": "True", "lastTransitionTime": "2026-03-01T12:00:00Z"}))
        .collect();
    json!({
        "phase": "Running", "qosClass": "Burstable", "podIP": "10.0.0.1", "startTime": "2026-03-01T12:00:00Z",
        "conditions": conditions,
        "initContainerStatuses": [container("proxy")], "containerStatuses": [container("app")],
    })
}

fn vpa(n: usize) -> Value {
    json!({
        "metadata": {"name": format!("web-{n}")},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": format!("web-{n}")},
            "updatePolicy": {"updateMode": "Auto"},
            "resourcePolicy": {"containerPolicies": [{"containerName": "*", "maxAllowed": {"memory": "4Gi"}}]},
        },
    })
}
