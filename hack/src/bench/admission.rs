//! The admission component under load: a process of its own, over TLS on loopback, against a sandbox full of VPAs.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args as ClapArgs;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    daemon::{Daemon, Process},
    sandbox::{Options, Sandbox, install_crds},
};

/// What the others are compared with.
const FEW: usize = 10;
const VPAS_PER_NAMESPACE: usize = 500;

/// Measure the admission component: latency, CPU and memory
///
/// Starts the admission component as a process of its own, a sandbox with VPAs, their Deployments and ReplicaSets, and sends
/// pod reviews at a steady rate over TLS. The same is done with 10 VPAs: the time of a review must not grow with their
/// number.
///
///   cargo run --release -p hack -- bench admission --vpas 10000 --rps 500
///   make release && cargo run --release -p hack -- bench admission --vpas 1000 --program target/release/admission
#[derive(ClapArgs, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// How many VPAs there are; several numbers are measured one after the other
    #[arg(long, default_value = "10000", value_delimiter = ',')]
    vpas: Vec<usize>,
    /// How many reviews a second
    #[arg(long, default_value_t = 500)]
    rps: u32,
    /// How long, in seconds
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Over how many connections
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// Measure this program, as `make release` has built it, and not what of it is in this one
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
}

impl Args {
    /// Measures it.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn run(self) -> Result<()> {
        ensure!(
            self.rps > 0 && self.seconds > 0 && self.connections > 0 && !self.vpas.contains(&0),
            "nothing to measure: every number must be at least 1"
        );
        println!(
            "{:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>12} {:>9}",
            "VPAs", "reviews", "req/s", "p50 ms", "p99 ms", "p99.9 ms", "CPU ms/req", "RSS MiB"
        );
        let few = self.measure(FEW).await?;
        for &vpas in &self.vpas {
            let many = self.measure(vpas).await?;
            println!(
                "with {vpas} VPAs a review takes {:.2} times the CPU that it takes with {FEW}, and its p99 is {:.2} times theirs",
                many.cpu_ms / few.cpu_ms,
                many.p99_ms / few.p99_ms,
            );
        }
        Ok(())
    }

    async fn measure(&self, vpas: usize) -> Result<Figures> {
        let bench = Bench::start(vpas, self.program.as_deref()).await?;
        // Connections are made, and what is made once is made.
        bench.load(50, 1, self.connections, vpas).await?;
        let process = bench.daemon.taken()?;
        let before = process.cpu_seconds()?;
        let started = Instant::now();
        let mut times = bench.load(self.rps, self.seconds, self.connections, vpas).await?;
        let took = started.elapsed().as_secs_f64();
        let cpu = process.cpu_seconds()? - before;
        let resident = process.peak_mib()?;
        times.sort_unstable();
        let count = times.len();
        let at = |per_mille: usize| -> f64 {
            let index = (count * per_mille / 1000).min(count.saturating_sub(1));
            times.get(index).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
        };
        let reviews = f64::from(u32::try_from(count)?);
        let figures = Figures {
            cpu_ms: cpu * 1e3 / reviews,
            p99_ms: at(990),
        };
        println!(
            "{vpas:>8} {count:>9} {:>9.0} {:>9.2} {:>9.2} {:>9.2} {:>12.3} {resident:>9.1}",
            reviews / took,
            at(500),
            figures.p99_ms,
            at(999),
            figures.cpu_ms,
        );
        Ok(figures)
    }
}

struct Figures {
    cpu_ms: f64,
    p99_ms: f64,
}

/// The component and what it needs.
struct Bench {
    _sandbox: Sandbox,
    _directory: TempDir,
    daemon: Process,
    url: String,
    ca: reqwest::Certificate,
}

impl Bench {
    async fn start(vpas: usize, program: Option<&Path>) -> Result<Self> {
        let sandbox = Sandbox::start(Options::default()).await?;
        install_crds(sandbox.api()).await?;
        fill(&sandbox, vpas).await?;
        let directory = tempfile::tempdir()?;
        let file = |name: &str, text: &str| -> Result<PathBuf> {
            let path = directory.path().join(name);
            std::fs::write(&path, text)?;
            Ok(path)
        };
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let certificate = made.cert.pem();
        let kubeconfig = file("kubeconfig", &sandbox.kubeconfig())?;
        let certificate_file = file("crt", &certificate)?;
        let key_file = file("key", &made.signing_key.serialize_pem())?;
        let [ca, certificate_flag, key] = [
            ("client-ca-file", &certificate_file),
            ("tls-cert-file", &certificate_file),
            ("tls-private-key", &key_file),
        ]
        .map(|(flag, file)| format!("--{flag}={}", file.display()));
        // Nobody but this program calls it.
        let flags = [
            &ca,
            &certificate_flag,
            &key,
            "--register-webhook=false",
            "--port=0",
            "--v=2",
        ];
        let mut daemon = match program {
            Some(program) => Process::start_program(program, &kubeconfig, &flags).await?,
            None => Process::start(Daemon::Admission, &kubeconfig, &flags).await?,
        };
        daemon.ready().await?;
        let serving = daemon
            .logged("serving the webhook")
            .context("it does not say where")?;
        let address: SocketAddr = serving["address"].as_str().unwrap_or_default().parse()?;
        Ok(Self {
            _sandbox: sandbox,
            _directory: directory,
            daemon,
            url: format!("https://127.0.0.1:{}/", address.port()),
            ca: reqwest::Certificate::from_pem(certificate.as_bytes())?,
        })
    }

    /// Sends reviews at a steady rate; a review that is late because the one before it was is counted from when it was due.
    async fn load(&self, rps: u32, seconds: u32, connections: usize, vpas: usize) -> Result<Vec<Duration>> {
        let started = tokio::time::Instant::now();
        let gap = Duration::from_secs(1) / rps;
        let total = usize::try_from(rps * seconds)?;
        let senders = (0..connections).map(|sender| {
            let client = reqwest::Client::builder()
                .tls_certs_only([self.ca.clone()])
                .http1_only()
                .no_proxy()
                .build();
            let url = self.url.clone();
            tokio::spawn(async move {
                let client = client?;
                let mut times = Vec::new();
                for n in (sender..total).step_by(connections) {
                    let due = started + gap * u32::try_from(n)?;
                    let body = review(n % vpas).to_string();
                    tokio::time::sleep_until(due).await;
                    let answer = client
                        .post(&url)
                        .header(CONTENT_TYPE, "application/json")
                        .body(body)
                        .send()
                        .await?;
                    let answer: Value = answer.json().await?;
                    times.push(due.elapsed());
                    ensure!(answer["response"]["patch"].is_string(), "not patched: {answer}");
                }
                Ok(times)
            })
        });
        let mut times = Vec::with_capacity(total);
        for sender in futures::future::join_all(senders).await {
            times.extend(sender??);
        }
        Ok(times)
    }
}

async fn fill(sandbox: &Sandbox, vpas: usize) -> Result<()> {
    let api = sandbox.api();
    let namespaces = api.kind("namespaces")?;
    for n in 0..vpas.div_ceil(VPAS_PER_NAMESPACE) {
        api.create(
            &namespaces,
            "",
            json!({"metadata": {"name": format!("ns-{n}")}}),
            &Default::default(),
        )
        .await?;
    }
    let [deployments, replica_sets, autoscalers] = [
        "deployments.apps",
        "replicasets.apps",
        "verticalpodautoscalers.autoscaling.k8s.io",
    ]
    .map(|kind| api.kind(kind));
    let (deployments, replica_sets, autoscalers) = (deployments?, replica_sets?, autoscalers?);
    for n in 0..vpas {
        let namespace = namespace(n);
        let name = format!("web-{n}");
        let spec = json!({"selector": {"matchLabels": {"app": name}}});
        api.plant(
            &deployments,
            &namespace,
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}),
        )?;
        api.plant(
            &replica_sets,
            &namespace,
            json!({
                "apiVersion": "apps/v1", "kind": "ReplicaSet",
                "metadata": {"name": format!("{name}-7d4b9c6f5"), "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": "u", "controller": true},
                ]},
                "spec": spec,
            }),
        )?;
        let target = |container: &str| {
            json!({
                "containerName": container,
                "lowerBound": {"cpu": "25m", "memory": "262144k"}, "target": {"cpu": "250m", "memory": "524288k"},
                "uncappedTarget": {"cpu": "250m", "memory": "524288k"}, "upperBound": {"cpu": "2", "memory": "4Gi"},
            })
        };
        api.plant(
            &autoscalers,
            &namespace,
            json!({
                "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": {"name": name},
                "spec": {
                    "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                    "resourcePolicy": {"containerPolicies": [{"containerName": "*", "maxAllowed": {"memory": "4Gi"}}]},
                },
                "status": {"recommendation": {"containerRecommendations": [target("app"), target("worker")]}},
            }),
        )?;
    }
    Ok(())
}

fn namespace(n: usize) -> String {
    format!("ns-{}", n / VPAS_PER_NAMESPACE)
}

/// A pod of 4 KB, as the API server sends it: two containers and a native sidecar.
fn review(n: usize) -> Value {
    let name = format!("web-{n}");
    let container = |container: &str| {
        let env: Vec<_> = (0..12)
            .map(|n| json!({"name": format!("SETTING_{n}"), "value": format!("a value of some length, number {n}")}))
            .collect();
        json!({
            "name": container, "image": "registry.example.org/shop/web:1.2.3", "env": env,
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
        })
    };
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "0c4d7a52-0000-4000-8000-000000000000", "operation": "CREATE", "namespace": namespace(n),
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": {
            "metadata": {
                "generateName": format!("{name}-7d4b9c6f5-"), "namespace": namespace(n), "labels": {"app": name},
                "annotations": {"prometheus.io/scrape": "true"},
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{name}-7d4b9c6f5"), "uid": "u",
                    "controller": true,
                }],
            },
            "spec": {
                "initContainers": [{"name": "proxy", "image": "proxy", "restartPolicy": "Always"}],
                "containers": [container("app"), container("worker")],
            },
        },
    }})
}
