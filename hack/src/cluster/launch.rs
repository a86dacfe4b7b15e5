//! Starts the parts of a planned cluster in order and waits until each of them works. Every process is written down
//! the moment it exists, so that whatever happens next it can be stopped.

use std::{
    process::{Child, Command},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};

use super::{
    Level, control_plane, metrics_server, node,
    pki::CA,
    process::{self, ProcessId},
    programs::Programs,
    progress::{Progress, span, tail},
    site::Site,
    state::{Folder, Process, Stage, State},
};

/// How long a part may take to work; generous, because the machine may be busy with other things.
const PATIENCE: Duration = Duration::from_secs(400);
const POLL: Duration = Duration::from_millis(100);
/// A request that hangs is given up and asked again.
const REQUEST: Duration = Duration::from_secs(30);

/// A cluster that is being started.
#[derive(Debug)]
pub(super) struct Launch {
    /// The plan.
    pub site: Site,
    /// The programs.
    pub programs: Programs,
    /// What is running so far, as it stands in the cluster's folder.
    pub state: State,
    /// Handles of what was started, to collect it when it has ended.
    pub children: Vec<Child>,
    /// What the user adds to the API server's flags.
    pub api_server_flags: Vec<String>,
    /// Whether to say what happens.
    pub progress: Progress,
}

impl Launch {
    /// Starts everything that the level asks for.
    ///
    /// # Errors
    /// When a part does not come up, with the end of its log. What runs by then still runs.
    pub(super) async fn run(&mut self) -> Result<()> {
        let begun = Instant::now();
        self.spawn("etcd", Stage::Store, &control_plane::etcd(&self.site))?;
        let health = format!("https://127.0.0.1:{}/health", self.site.addresses.etcd);
        let http = self.http()?;
        self.wait("etcd", || is_ok(&http, &health)).await?;
        self.say("etcd", begun);
        let mut arguments = control_plane::api_server(&self.site);
        arguments.append(&mut self.api_server_flags);
        self.spawn("kube-apiserver", Stage::Api, &arguments)?;
        // Only now: a client reads the certificates when it is made.
        let client = client(&self.site.folder.kubeconfig()).await?;
        self.wait("kube-apiserver", || is_ready(&client)).await?;
        self.say("kube-apiserver", begun);
        if self.site.level >= Level::ControlPlane {
            self.spawn(
                "kube-controller-manager",
                Stage::Controllers,
                &control_plane::controller_manager(&self.site),
            )?;
            self.spawn(
                "kube-scheduler",
                Stage::Controllers,
                &control_plane::scheduler(&self.site),
            )?;
        }
        if self.site.level >= Level::Node {
            for node in self.site.nodes.clone() {
                node::start(self, &node).await?;
            }
            metrics_server::start(self, &client).await?;
        }
        if self.site.level >= Level::ControlPlane {
            for (name, port) in [
                ("kube-controller-manager", self.site.addresses.controller_manager),
                ("kube-scheduler", self.site.addresses.scheduler),
            ] {
                let health = format!("https://127.0.0.1:{port}/healthz");
                self.wait(name, || is_ok(&http, &health)).await?;
            }
            let accounts = Api::<ServiceAccount>::default_namespaced(client.clone());
            self.wait("kube-controller-manager", || async {
                accounts.get("default").await.is_ok()
            })
            .await?;
            self.say("kube-controller-manager and kube-scheduler", begun);
        }
        if self.site.level >= Level::Node {
            for node in self.site.nodes.clone() {
                node::wait(self, &client, &node).await?;
                self.say(&node.name, begun);
            }
            metrics_server::wait(self, &client).await?;
            self.say("metrics-server", begun);
        }
        Ok(())
    }

    fn spawn(&mut self, name: &str, stage: Stage, arguments: &[String]) -> Result<()> {
        let mut command = self.programs.command(name)?;
        command.args(arguments);
        self.start(name, stage, command)?;
        Ok(())
    }

    /// Starts a process of this cluster.
    ///
    /// # Errors
    /// When it cannot be started or written down.
    pub(super) fn start(&mut self, name: &str, stage: Stage, mut command: Command) -> Result<ProcessId> {
        command.current_dir(self.site.folder.path());
        let (child, id) = process::spawn(command, &self.site.folder.log(name))?;
        self.children.push(child);
        self.state.processes.push(Process {
            name: name.to_owned(),
            stage,
            id,
        });
        self.site.folder.save(&self.state)?;
        Ok(id)
    }

    /// Waits until a process works, as long as it lives.
    ///
    /// # Errors
    /// When it ends or takes too long, with the end of its log.
    pub(super) async fn wait<F: Future<Output = bool> + Send>(
        &self,
        process: &str,
        mut works: impl FnMut() -> F + Send,
    ) -> Result<()> {
        let id = self
            .state
            .processes
            .iter()
            .find(|started| started.name == process)
            .with_context(|| format!("{process} was not started"))?
            .id;
        until_works(&self.site.folder, process, id, &mut works).await
    }

    fn say(&self, what: &str, begun: Instant) {
        self.progress
            .say(format_args!("{:>7}  {what}", span(begun.elapsed())));
    }

    /// A client that trusts the cluster's authority and speaks as its etcd client.
    fn http(&self) -> Result<reqwest::Client> {
        let read = |path: &std::path::Path| {
            std::fs::read(path).with_context(|| format!("reading {}", path.display()))
        };
        let pki = &self.site.pki;
        let mut identity = read(&pki.certificate("api-server-etcd"))?;
        identity.extend(read(&pki.key("api-server-etcd"))?);
        reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(&read(&pki.certificate(CA))?)?])
            .identity(reqwest::Identity::from_pem(&identity)?)
            .no_proxy()
            .build()
            .context("making an HTTP client")
    }
}

/// Waits until a process of a cluster works, as long as it lives.
///
/// # Errors
/// When it ends or takes too long, with the end of its log.
pub(super) async fn until_works<F: Future<Output = bool> + Send>(
    folder: &Folder,
    process: &str,
    id: ProcessId,
    mut works: impl FnMut() -> F + Send,
) -> Result<()> {
    let begun = Instant::now();
    loop {
        if tokio::time::timeout(REQUEST, works()).await.unwrap_or_default() {
            return Ok(());
        }
        let log = folder.log(process);
        let end = || tail(&std::fs::read_to_string(&log).unwrap_or_default(), 15);
        if !id.is_alive() {
            bail!("{process} ended; the end of its log:\n{}", end());
        }
        if begun.elapsed() >= PATIENCE {
            bail!(
                "{process} does not work after {}; the end of its log:\n{}",
                span(PATIENCE),
                end()
            );
        }
        tokio::time::sleep(POLL).await;
    }
}

/// A client for a kubeconfig. It does not retry by itself: who waits for a server wants to see its answers.
///
/// # Errors
/// When the file or a certificate it names cannot be read.
pub(super) async fn client(kubeconfig: &std::path::Path) -> Result<Client> {
    let file = kube::config::Kubeconfig::read_from(kubeconfig)?;
    let mut config =
        kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await?;
    config.default_retry = false;
    // The API server is on this machine, and no proxy leads to it.
    config.proxy_url = None;
    Ok(Client::try_from(config)?)
}

async fn is_ok(http: &reqwest::Client, url: &str) -> bool {
    http.get(url)
        .send()
        .await
        .is_ok_and(|answer| answer.status().is_success())
}

/// Whether an API server is ready, which it is not without its store.
pub(super) async fn is_ready(client: &Client) -> bool {
    let Ok(request) = http::Request::get("/readyz").body(Vec::new()) else {
        return false;
    };
    client
        .request_text(request)
        .await
        .is_ok_and(|answer| answer == "ok")
}
