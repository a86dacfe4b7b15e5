//! The three daemons as processes, against a sandbox: they get ready, tell of themselves, hand over and stop.

use std::{
    future::Future,
    path::PathBuf,
    process::{ExitStatus, Output, Stdio},
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use hack::sandbox::{Effect, Fault, Options, Sandbox, install_crds};
use k8s_openapi::api::{admissionregistration::v1::MutatingWebhookConfiguration, coordination::v1::Lease};
use kube::Api;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

/// Far more than anything here takes; who is not there by then does not come.
const PATIENCE: Duration = Duration::from_secs(120);

/// Asks again and again until there is an answer.
async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    match tokio::time::timeout(PATIENCE, asking).await {
        Ok(answer) => answer,
        Err(_) => panic!("it never happened that {what}"),
    }
}

/// The path of a daemon's program. Cargo builds the programs of other packages for no test, so they are built here,
/// with the features of the whole workspace: that takes no time if they are up to date.
fn program(name: &str) -> PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let directory = test.parent().and_then(|deps| deps.parent()).unwrap().to_owned();
        let profile = match directory.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(profile) => profile,
        };
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = std::process::Command::new(cargo);
        build.args(["build", "--quiet", "--workspace", "--bins", "--profile", profile]);
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        // What cargo tells a test of its package is no business of other packages' build scripts, and some start over
        // when they see it.
        for (name, _) in std::env::vars_os() {
            let told = name.to_str().is_some_and(|name| {
                [
                    "CARGO_PKG_",
                    "CARGO_MANIFEST_",
                    "CARGO_CRATE_NAME",
                    "CARGO_PRIMARY_PACKAGE",
                ]
                .iter()
                .any(|prefix| name.starts_with(prefix))
            });
            if told {
                build.env_remove(name);
            }
        }
        let built = build.status().expect("cannot run cargo to build the daemons");
        assert!(
            built.success(),
            "cannot build the daemons: cargo build --workspace --bins failed"
        );
        directory
    });
    directory.join(name)
}

/// A sandbox, and a file that says where it is.
struct Cluster {
    sandbox: Sandbox,
    directory: TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let sandbox = Sandbox::start(Options::default()).await.unwrap();
        install_crds(sandbox.api()).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("kubeconfig"), sandbox.kubeconfig()).unwrap();
        Self { sandbox, directory }
    }

    async fn run(&self, name: &str, flags: &[&str]) -> Daemon {
        let kubeconfig = self.directory.path().join("kubeconfig");
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        Daemon::start(name, &[&[kubeconfig.as_str()], flags].concat()).await
    }

    async fn lease(&self, name: &str) -> Option<Lease> {
        let api: Api<Lease> = Api::namespaced(self.sandbox.client().unwrap(), "kube-system");
        api.get_opt(name).await.unwrap()
    }

    async fn holder(&self, name: &str) -> String {
        let lease = self.lease(name).await.and_then(|lease| lease.spec);
        lease.and_then(|spec| spec.holder_identity).unwrap_or_default()
    }
}

/// A daemon that runs; it is killed when dropped.
struct Daemon {
    child: Child,
    log: Arc<Mutex<Vec<Value>>>,
    url: String,
}

impl Daemon {
    async fn start(name: &str, flags: &[&str]) -> Self {
        let mut child = Command::new(program(name))
            .args(["--address=127.0.0.1:0", "--log-format=json"])
            .args(flags)
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let log: Arc<Mutex<Vec<Value>>> = Arc::default();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let written = log.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
                written.lock().unwrap().push(line);
            }
        });
        let mut daemon = Self {
            child,
            log,
            url: String::new(),
        };
        let address = eventually("the daemon says where it listens", async || {
            let line = daemon.logged("serving metrics and health")?;
            line["address"].as_str().map(str::to_owned)
        });
        daemon.url = format!("http://{}", address.await);
        daemon
    }

    fn logged(&self, message: &str) -> Option<Value> {
        let log = self.log.lock().unwrap();
        let says = |line: &&Value| {
            line["message"]
                .as_str()
                .is_some_and(|text| text.contains(message))
        };
        log.iter().find(says).cloned()
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let answer = hack::http::get(&format!("{}{path}", self.url)).await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    async fn is_ready(&self) {
        eventually("the daemon is ready", async || {
            (self.get("/readyz").await.0 == 200).then_some(())
        })
        .await;
    }

    async fn leads(&self) -> bool {
        let (_, metrics) = self.get("/metrics").await;
        metrics
            .lines()
            .any(|line| line.starts_with("outrigger_leader{") && line.ends_with(" 1"))
    }

    async fn comes_to_lead(&self) {
        eventually("the daemon leads", async || self.leads().await.then_some(())).await;
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok());
        kill_process(pid.and_then(Pid::from_raw).unwrap(), signal).unwrap();
    }

    async fn ends(&mut self) -> ExitStatus {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        ended.expect("the daemon did not end").unwrap()
    }
}

async fn output(name: &str, flags: &[&str]) -> Output {
    Command::new(program(name)).args(flags).output().await.unwrap()
}

#[tokio::test]
async fn a_daemon_gets_ready_tells_of_itself_and_stops() {
    let cluster = Cluster::start().await;
    for (name, flags) in [
        (
            "recommender",
            &["--recommender-interval=1s", "--v=4", "--stderrthreshold=info"][..],
        ),
        (
            "updater",
            &[
                "-updater-interval=1s",
                "-v=4",
                "--feature_gates=NativeSidecar=true",
            ],
        ),
        (
            "admission",
            &["--ignored-vpa-object-namespaces=kube-system", "--port=0"],
        ),
    ] {
        let mut daemon = cluster.run(name, flags).await;
        daemon.is_ready().await;
        assert!(daemon.logged("connected to the API server").is_some(), "{name}");
        let metrics = daemon.get("/metrics").await.1;
        for metric in [
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_virtual_memory_bytes",
            "process_open_fds",
            "process_max_fds",
            "process_start_time_seconds",
            "outrigger_build_info",
            "outrigger_client_requests_total",
        ] {
            let sample = |line: &str| {
                line.starts_with(&format!("{metric} ")) || line.starts_with(&format!("{metric}{{"))
            };
            assert!(
                metrics.lines().any(sample),
                "{name}: {metric} is missing from\n{metrics}"
            );
        }
        let ok = (200, "OK".to_owned());
        assert_eq!(
            (daemon.get("/health-check").await, daemon.get("/livez").await),
            (ok.clone(), ok),
            "{name}"
        );
        daemon.signal(Signal::TERM);
        assert_eq!(daemon.ends().await.code(), Some(0), "{name}: {:?}", daemon.log);
        eventually("the log says so", async || daemon.logged("stopped")).await;
    }
}

const ELECTION: [&str; 4] = [
    "--leader-elect",
    "--leader-elect-lease-duration=6s",
    "--leader-elect-renew-deadline=5s",
    "--leader-elect-retry-period=200ms",
];

#[tokio::test]
async fn one_of_two_leads_and_the_other_takes_over() {
    let cluster = Cluster::start().await;
    let lease = "vpa-recommender-lease";
    let mut first = cluster.run("recommender", &ELECTION).await;
    first.comes_to_lead().await;
    let mut second = cluster.run("recommender", &ELECTION).await;
    second.is_ready().await;
    let first_holder = cluster.holder(lease).await;
    eventually("the second has read the lease and waits", async || {
        let metrics = second.get("/metrics").await.1;
        metrics
            .contains("outrigger_leader{lease=\"kube-system/vpa-recommender-lease\"} 0")
            .then_some(())
    })
    .await;
    assert!(first.leads().await, "exactly one leads");

    // Without a word: the second waits until the lease has expired.
    first.child.kill().await.unwrap();
    second.comes_to_lead().await;
    let second_holder = cluster.holder(lease).await;
    assert_ne!(second_holder, first_holder);
    assert_eq!(
        cluster
            .lease(lease)
            .await
            .unwrap()
            .spec
            .unwrap()
            .lease_transitions,
        Some(1)
    );

    // Stopped: the lease is given back before the process ends, and the third has it at once.
    let third = cluster.run("recommender", &ELECTION).await;
    third.is_ready().await;
    assert!(!third.leads().await);
    second.signal(Signal::TERM);
    assert_eq!(second.ends().await.code(), Some(0), "{:?}", second.log);
    assert_ne!(cluster.holder(lease).await, second_holder, "given back");
    third.comes_to_lead().await;
    assert_eq!(
        cluster
            .lease(lease)
            .await
            .unwrap()
            .spec
            .unwrap()
            .lease_transitions,
        Some(2)
    );
}

#[tokio::test]
async fn losing_the_lease_is_fatal() {
    let cluster = Cluster::start().await;
    let mut updater = cluster.run("updater", &ELECTION).await;
    updater.comes_to_lead().await;
    assert!(cluster.lease("vpa-updater").await.is_some());
    cluster.sandbox.faults().add(Fault {
        verbs: vec!["update".to_owned(), "get".to_owned()],
        resources: vec!["leases.coordination.k8s.io".to_owned()],
        names: Vec::new(),
        probability: 1.0,
        count: None,
        effect: Effect::Error {
            code: 500,
            retry_after_seconds: None,
        },
    });
    assert_eq!(updater.ends().await.code(), Some(1));
    eventually("the log says why", async || {
        updater.logged("lost master: lease kube-system/vpa-updater")
    })
    .await;
}

#[tokio::test]
async fn a_second_signal_does_not_wait() {
    let cluster = Cluster::start().await;
    let flags = [
        "--leader-elect",
        "--leader-elect-lease-duration=600s",
        "--leader-elect-renew-deadline=500s",
    ];
    let mut updater = cluster.run("updater", &flags).await;
    updater.comes_to_lead().await;
    cluster.sandbox.faults().add(Fault {
        verbs: vec!["update".to_owned()],
        resources: vec!["leases.coordination.k8s.io".to_owned()],
        names: Vec::new(),
        probability: 1.0,
        count: None,
        effect: Effect::Latency {
            milliseconds: 600_000,
        },
    });
    updater.signal(Signal::TERM);
    eventually("the updater is on its way out", async || {
        updater.logged("stopping")
    })
    .await;
    updater.signal(Signal::INT);
    assert_eq!(updater.ends().await.code(), Some(130));
}

#[tokio::test]
async fn without_an_api_server_a_daemon_is_alive_and_not_ready() {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    {
        let gone = Cluster::start().await;
        std::fs::write(&kubeconfig, gone.sandbox.kubeconfig()).unwrap();
    }
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let mut admission = Daemon::start("admission", &[&kubeconfig, "--port=0"]).await;
    eventually("the log says why", async || {
        admission.logged("cannot reach the API server")
    })
    .await;
    let (code, text) = admission.get("/readyz").await;
    let missing: Vec<_> = text.trim_start_matches("not ready: ").split(", ").collect();
    assert_eq!(code, 503, "{text}");
    // What is waited for, and what waits for it: nothing that a pod needs may count as there.
    for part in [
        "API server",
        "VPAs",
        "certificate",
        "registration",
        "webhook server",
    ] {
        assert!(missing.contains(&part), "{part}: {text}");
    }
    assert_eq!(admission.get("/livez").await, (200, "OK".to_owned()));
    admission.signal(Signal::TERM);
    assert_eq!(admission.ends().await.code(), Some(0));
}

#[tokio::test]
async fn the_log_level_changes_while_it_runs() {
    let cluster = Cluster::start().await;
    let daemon = cluster.run("recommender", &["--v=2"]).await;
    let url = format!("{}/log-level", daemon.url);
    assert_eq!(daemon.get("/log-level").await, (200, "info".to_owned()));
    let answer = hack::http::client()
        .unwrap()
        .put(&url)
        .body("debug")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    assert_eq!(daemon.get("/log-level").await, (200, "debug".to_owned()));
}

#[tokio::test]
async fn what_a_command_line_gets() {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    for (flags, code, expected) in [
        (
            &["--vpa-object-namespace=a", "--ignored-vpa-object-namespaces=b"][..],
            1,
            "are mutually exclusive",
        ),
        (
            &["--kubeconfig=/nonexistent"],
            1,
            "cannot use --kubeconfig /nonexistent",
        ),
        (&["--kubecfg=x"], 2, "a similar argument exists: '--kubeconfig'"),
        (
            &["--feature-gates=Nothing=true"],
            2,
            "unrecognized feature gate \"Nothing\"",
        ),
    ] {
        let output = output("updater", flags).await;
        assert_eq!(output.status.code(), Some(code), "{flags:?}");
        assert!(
            text(&output.stderr).contains(expected),
            "{flags:?}: {}",
            text(&output.stderr)
        );
    }
    let version = output("updater", &["--version"]).await;
    let version = text(&version.stdout);
    for expected in ["updater 0.", "(commit ", "rustc 1.", "Kubernetes API types 1."] {
        assert!(version.contains(expected), "{version}");
    }
}

/// The command line of `spec/baseline.md`, to the letter.
#[tokio::test]
async fn admission_runs_with_the_flags_that_vpa_was_measured_with() {
    let cluster = Cluster::start().await;
    let folder = cluster.directory.path();
    let path = |name: &str| folder.join(name).display().to_string();
    let mut ca = rcgen::CertificateParams::default();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
    let key = rcgen::KeyPair::generate().unwrap();
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap().pem();
    for (name, text) in [
        ("ca.crt", &ca_pem),
        ("srv.crt", &certificate),
        ("srv.key", &key.serialize_pem()),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    // Free again at the end of the statement.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut admission = cluster
        .run(
            "admission",
            &[
                &format!("--client-ca-file={}", path("ca.crt")),
                &format!("--tls-cert-file={}", path("srv.crt")),
                &format!("--tls-private-key={}", path("srv.key")),
                &format!("--port={port}"),
                "--register-by-url",
                "--webhook-address=https://127.0.0.1",
                &format!("--webhook-port={port}"),
            ],
        )
        .await;
    admission.is_ready().await;

    let configurations: Api<MutatingWebhookConfiguration> = Api::all(cluster.sandbox.client().unwrap());
    let registered = configurations.get("vpa-webhook-config").await.unwrap();
    let webhook = registered.webhooks.unwrap().remove(0);
    let url = format!("https://127.0.0.1:{port}");
    assert_eq!(webhook.client_config.url, Some(url.clone()));
    assert_eq!(webhook.client_config.ca_bundle.unwrap().0, ca_pem.as_bytes());

    let client = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(ca_pem.as_bytes()).unwrap()])
        .no_proxy()
        .build()
        .unwrap();
    let review = json!({"request": {
        "uid": "u", "operation": "CREATE", "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": {"metadata": {"name": "p"}, "spec": {"containers": []}},
    }});
    let answer = client.post(&url).json(&review).send().await.unwrap();
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(answer["response"], json!({"uid": "u", "allowed": true}));

    admission.signal(Signal::TERM);
    assert_eq!(admission.ends().await.code(), Some(0), "{:?}", admission.log);
    assert!(
        configurations
            .get_opt("vpa-webhook-config")
            .await
            .unwrap()
            .is_some(),
        "another replica may need it"
    );
}
