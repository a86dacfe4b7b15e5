//! A real Kubernetes on this machine, at pinned versions: an API server, a control plane, or a whole cluster with real
//! nodes. [`Cluster::start`] is for tests and scenarios; [`cli`] is the same for people.

mod build;
mod cache;
mod cgroups;
pub mod cli;
mod control_plane;
mod guard;
mod image;
mod kubeconfig;
mod launch;
mod metrics_server;
mod modules;
mod network;
mod node;
mod part;
mod pki;
mod ports;
mod preflight;
mod process;
mod programs;
mod progress;
mod selftest;
mod site;
mod state;
mod teardown;
mod template;
mod toolchain;
pub mod versions;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Child,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use common::clock::Clock;
use kube::Client;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};

pub use self::{
    cache::Cache,
    image::Image,
    node::workload_image,
    part::{Ended, How, Part, Parts},
    programs::Programs,
    progress::Progress,
};
use self::{
    guard::Guard,
    launch::Launch,
    network::Subnet,
    process::ProcessId,
    site::Site,
    state::{Folder, State},
    teardown::{keep_logs, tear_down},
};

/// How much of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// etcd and the API server: objects, validation, RBAC, webhooks.
    Api,
    /// And the controller manager and the scheduler: pods are made and bound to nodes that a test makes as objects.
    ControlPlane,
    /// And real nodes with containerd and a kubelet, and metrics-server: containers run.
    Node,
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Api => "api",
            Self::ControlPlane => "control-plane",
            Self::Node => "node",
        })
    }
}

/// What kind of cluster to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much of one.
    pub level: Level,
    /// How many nodes, at level [`Level::Node`].
    pub nodes: usize,
    /// Its name; a new one if there is none.
    pub name: Option<String>,
    /// Whether to say what happens.
    pub progress: Progress,
    /// More flags for the API server, such as `--feature-gates=WatchList=false`.
    pub api_server_flags: Vec<String>,
    /// How many packages Go may compile at once, if something must be built.
    pub jobs: Option<u32>,
}

impl Options {
    /// A quiet cluster of this level, with one node if it has any.
    #[must_use]
    pub fn new(level: Level) -> Self {
        Self {
            level,
            nodes: 1,
            name: None,
            progress: Progress::Quiet,
            api_server_flags: Vec::new(),
            jobs: None,
        }
    }
}

/// A running cluster. It stops when it is dropped, which blocks for some seconds, and when the process that started
/// it ends in whatever way, unless it was [detached](Cluster::detach).
#[derive(Debug)]
pub struct Cluster {
    cache: Cache,
    folder: Folder,
    state: State,
    programs: Programs,
    token: String,
    children: Vec<Child>,
    guard: Option<Guard>,
    is_stopped: bool,
}

impl Cluster {
    /// Starts a cluster, and builds first what was never built. Returns when it works.
    ///
    /// # Errors
    /// When the machine cannot run this level, or a part does not come up; nothing is left running then.
    pub async fn start(options: Options) -> Result<Self> {
        let cache = Cache::from_env()?;
        // A second provider would be refused; that of whoever came first is the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let Options {
            level,
            nodes,
            name,
            progress,
            api_server_flags,
            jobs,
        } = options;
        let name = name.unwrap_or_else(unique_name);
        let nodes = if level == Level::Node { nodes } else { 0 };
        ensure!(
            level != Level::Node || (1..=10).contains(&nodes),
            "a cluster has 1 to 10 nodes, not {nodes}"
        );
        let (programs, folder, state, ports) = {
            let (cache, name) = (cache.clone(), name.clone());
            tokio::task::spawn_blocking(move || -> Result<_> {
                preflight::check(&cache, level)?;
                let programs = Programs::ensure(&cache, level, jobs, progress)?;
                let (folder, state, ports) = reserve(&cache, &name, level, nodes)?;
                Ok((programs, folder, state, ports))
            })
            .await??
        };
        let guard = Guard::set(&cache, &name)?;
        let token = token()?;
        // From here on, dropping it stops whatever runs by then.
        let mut cluster = Self {
            cache,
            folder,
            state,
            programs,
            token,
            children: Vec::new(),
            guard,
            is_stopped: false,
        };
        match cluster.launch(&ports, nodes, api_server_flags, progress).await {
            Ok(()) => Ok(cluster),
            Err(error) => {
                let logs = keep_logs(&cluster.cache, &cluster.folder, &name);
                let error = match logs {
                    Ok(logs) => error.context(format!(
                        "cluster {name} did not start; all logs are in {}",
                        logs.display()
                    )),
                    Err(_) => error.context(format!("cluster {name} did not start")),
                };
                match cluster.stop().await {
                    Ok(()) => Err(error),
                    Err(left) => Err(error.context(format!("it could not be cleared away: {left:#}"))),
                }
            }
        }
    }

    async fn launch(
        &mut self,
        ports: &[u16],
        nodes: usize,
        api_server_flags: Vec<String>,
        progress: Progress,
    ) -> Result<()> {
        if let Some(subnet) = self.state.subnet {
            subnet.make()?;
        }
        let (addresses, nodes) = site::assign(ports, nodes, self.state.subnet)?;
        let site = Site::make(
            &self.state.name,
            self.state.level,
            self.folder.clone(),
            addresses,
            nodes,
            &self.token,
        )?;
        let mut launch = Launch {
            site,
            programs: self.programs.clone(),
            state: self.state.clone(),
            children: Vec::new(),
            api_server_flags,
            progress,
        };
        let result = launch.run().await;
        self.state = launch.state;
        self.children = launch.children;
        result
    }

    /// The cluster's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.kubeconfig()
    }

    /// The URL of the API server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.state.server
    }

    /// A bearer token of an administrator, for what takes no certificate.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The programs that it runs, and a `kubectl` of the same version.
    #[must_use]
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Its programs, to be ended and started again.
    #[must_use]
    pub fn parts(&self) -> Parts {
        Parts::of(&self.folder)
    }

    /// An administrator's client. It does not retry by itself.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn client(&self) -> Result<Client> {
        launch::client(&self.kubeconfig()).await
    }

    /// Makes an image and loads it into all nodes.
    ///
    /// # Errors
    /// When there are no nodes or one of them refuses it.
    pub fn load_image(&self, image: &Image) -> Result<()> {
        let archive = tempfile::NamedTempFile::new_in(self.folder.path())?;
        image.write(archive.as_file())?;
        self.load_archive(archive.path())
    }

    /// Loads an archive, as `docker save` writes it, into all nodes.
    ///
    /// # Errors
    /// When there are no nodes or one of them refuses it.
    pub fn load_archive(&self, archive: &Path) -> Result<()> {
        node::load_archive(&self.folder, &self.state, &self.programs, archive)
    }

    /// Stops it and removes all that it left.
    ///
    /// # Errors
    /// When something is left.
    pub async fn stop(mut self) -> Result<()> {
        tokio::task::spawn_blocking(move || self.tear_down()).await?
    }

    /// Lets it run on after this process; `hack cluster down` stops it.
    ///
    /// # Errors
    /// When its state cannot be written.
    pub fn detach(mut self) -> Result<()> {
        // A program may have been started again since.
        let state = self.folder.load()?.unwrap_or_else(|| self.state.clone());
        self.folder.save(&State { owner: None, ..state })?;
        self.is_stopped = true;
        if let Some(guard) = self.guard.take() {
            guard.release();
        }
        Ok(())
    }

    fn tear_down(&mut self) -> Result<()> {
        self.is_stopped = true;
        // What is on disk is newer, if the start was given up on the way.
        let result = match self.folder.load() {
            Ok(state) => tear_down(&self.folder, state.as_ref().unwrap_or(&self.state)),
            Err(_) => tear_down(&self.folder, &self.state),
        };
        for child in &mut self.children {
            // Those that ended are collected; none of the others is waited for.
            let _ = child.try_wait();
        }
        if let Some(guard) = self.guard.take()
            && result.is_ok()
        {
            guard.release();
        }
        result
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !self.is_stopped
            && let Err(error) = self.tear_down()
        {
            eprintln!("cluster {} was not stopped: {error:#}", self.state.name);
        }
    }
}

/// Clears away what dead owners left, and takes a folder, ports and a subnet that nobody else has.
fn reserve(cache: &Cache, name: &str, level: Level, nodes: usize) -> Result<(Folder, State, Vec<u16>)> {
    let _lock = cache.lock("clusters", || {})?;
    let mut others = Vec::new();
    for (folder, state) in state::all(cache)? {
        if state.is_orphan() {
            tear_down(&folder, &state).with_context(|| format!("clearing away cluster {}", state.name))?;
        } else {
            others.push(state);
        }
    }
    let folder = Folder::of(cache, name)?;
    ensure!(
        !others.iter().any(|other| other.name == name),
        "there is a cluster {name} already: stop it with `hack cluster down {name}`, or give another --name"
    );
    if folder.path().exists() {
        // A folder without a state: whoever made it was killed before anything ran in it.
        std::fs::remove_dir_all(folder.path())
            .with_context(|| format!("removing {}", folder.path().display()))?;
    }
    let taken: BTreeSet<u16> = others
        .iter()
        .flat_map(|other| other.ports.iter().copied())
        .collect();
    let ports = ports::choose(
        site::ports_needed(nodes),
        std::process::id(),
        &taken,
        ports::is_free,
    )?;
    let subnet = match level {
        Level::Node => Some(Subnet::choose(
            &others.iter().filter_map(|other| other.subnet).collect(),
        )?),
        Level::Api | Level::ControlPlane => None,
    };
    let (addresses, nodes) = site::assign(&ports, nodes, subnet)?;
    let state = State {
        name: name.to_owned(),
        level,
        created: Clock::system().now(),
        boot: state::boot(),
        owner: ProcessId::own(),
        server: addresses.server(),
        ports: ports.iter().copied().collect(),
        subnet,
        nodes: nodes.into_iter().map(|node| node.name).collect(),
        cgroups: Vec::new(),
        processes: Vec::new(),
    };
    cache::make_dir(&folder.join("log"))?;
    folder.save(&state)?;
    Ok((folder, state, ports))
}

fn unique_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!(
        "own-{}-{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    )
}

fn token() -> Result<String> {
    let mut bytes = [0; 16];
    SystemRandom::new()
        .fill(&mut bytes)
        .ok()
        .context("the machine gives no random bytes")?;
    Ok(modules::hex(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_can_be_spawned_and_does_nothing_before_it_is_awaited() {
        fn spawnable<T: Send + 'static>(future: T) -> T {
            future
        }
        drop(spawnable(Cluster::start(Options::new(Level::Node))));
    }
}
