//! The places scenarios run on: the sandbox in this process, a real cluster started for them, or one that is there.

use std::{collections::BTreeSet, fmt, path::PathBuf};

use anyhow::{Context as _, Result};
use chrono::DateTime;
use clap::ValueEnum;
use common::clock::VirtualClock;
use kube::Client;
use tempfile::TempDir;

use super::{Need, Scenario, World};
use crate::{
    cluster::{self, Cluster, Level, Progress},
    sandbox::{
        self, Sandbox,
        world::{self, WorldOptions},
    },
};

/// Which place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// The sandbox: an API server in this process, a simulated kubelet, virtual time
    Sandbox,
    /// A real cluster, started for the scenarios and stopped after
    Cluster,
    /// The cluster of `KUBECONFIG`, or of the usual place
    Kubeconfig,
}

impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sandbox => "sandbox",
            Self::Cluster => "cluster",
            Self::Kubeconfig => "kubeconfig",
        })
    }
}

/// One API server and what is behind it.
pub struct Stage {
    /// Reaches it, with all rights.
    pub client: Client,
    /// The file by which a process reaches it.
    pub kubeconfig: PathBuf,
    /// The image of test workloads there.
    pub image: String,
    /// The time there, where it is virtual.
    pub time: Option<VirtualClock>,
    offers: BTreeSet<Need>,
    running: Running,
}

/// What must be stopped when the scenarios are done.
enum Running {
    Sandbox {
        _server: Sandbox,
        _world: Option<world::World>,
        _folder: TempDir,
    },
    Cluster(Box<Cluster>),
    Elsewhere,
}

/// The stages of one place: mostly one with nodes, and one with an API server alone for scenarios that want no
/// controller to touch their objects.
pub struct Places {
    on: On,
    stages: Vec<Stage>,
}

impl Places {
    /// Starts what these scenarios need.
    ///
    /// # Errors
    /// When something does not start, with what to do about it.
    pub async fn prepare(on: On, scenarios: &[Scenario]) -> Result<Self> {
        let bare = scenarios
            .iter()
            .any(|scenario| scenario.needs.contains(&Need::NoControllers));
        let full = scenarios
            .iter()
            .any(|scenario| !scenario.needs.contains(&Need::NoControllers));
        let mut stages = Vec::new();
        match on {
            On::Sandbox => {
                if full {
                    stages.push(Stage::start(on).await?);
                }
                if bare {
                    stages.push(Stage::sandbox(false).await?);
                }
            }
            On::Cluster => {
                if full {
                    stages.push(Stage::start(on).await?);
                }
                if bare {
                    stages.push(Stage::cluster(Level::Api).await?);
                }
            }
            On::Kubeconfig => stages.push(Stage::start(on).await?),
        }
        Ok(Self { on, stages })
    }

    /// Which place it is.
    #[must_use]
    pub fn on(&self) -> On {
        self.on
    }

    /// The stage that has all of `needs`, or the first need that none has.
    ///
    /// # Errors
    /// The need that cannot be met here.
    pub fn stage_for(&self, needs: &[Need]) -> Result<&Stage, Need> {
        let complete = self
            .stages
            .iter()
            .find(|stage| needs.iter().all(|need| stage.offers.contains(need)));
        let missing = || {
            needs
                .iter()
                .find(|need| self.stages.iter().all(|stage| !stage.offers.contains(need)))
        };
        complete.ok_or_else(|| missing().or(needs.first()).copied().unwrap_or(Need::ApiServer))
    }

    /// Stops what was started.
    ///
    /// # Errors
    /// When a cluster does not stop.
    pub async fn stop(self) -> Result<()> {
        for stage in self.stages {
            stage.stop().await?;
        }
        Ok(())
    }
}

impl Stage {
    /// The stage of this place that has nodes.
    ///
    /// # Errors
    /// When something does not start, with what to do about it.
    pub async fn start(on: On) -> Result<Self> {
        match on {
            On::Sandbox => Self::sandbox(true).await,
            On::Cluster => Self::cluster(Level::Node).await,
            On::Kubeconfig => Self::elsewhere().await,
        }
    }

    /// A namespace on it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn world(&self, name: &str) -> Result<World> {
        World::create(
            self.client.clone(),
            self.kubeconfig.clone(),
            name,
            self.image.clone(),
            self.time.clone(),
        )
        .await
    }

    /// Stops what was started.
    ///
    /// # Errors
    /// When a cluster does not stop.
    pub async fn stop(self) -> Result<()> {
        match self.running {
            Running::Cluster(cluster) => cluster.stop().await,
            Running::Sandbox { .. } | Running::Elsewhere => Ok(()),
        }
    }

    async fn sandbox(controllers: bool) -> Result<Self> {
        let start = DateTime::from_timestamp(1_772_323_200, 0).context("a time in 2026")?;
        let time = VirtualClock::starting_at(start);
        let server = Sandbox::start(sandbox::Options {
            clock: time.clock(),
            ..sandbox::Options::default()
        })
        .await?;
        let world = if controllers {
            Some(world::World::start(&server, WorldOptions::default()).await?)
        } else {
            None
        };
        let offers = if controllers {
            BTreeSet::from([Need::ApiServer, Need::LocalWebhooks, Need::Node])
        } else {
            BTreeSet::from([Need::ApiServer, Need::LocalWebhooks, Need::NoControllers])
        };
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, server.kubeconfig())?;
        Ok(Self {
            client: server.client()?,
            kubeconfig,
            image: "workload".to_owned(),
            time: Some(time),
            offers,
            running: Running::Sandbox {
                _server: server,
                _world: world,
                _folder: folder,
            },
        })
    }

    async fn cluster(level: Level) -> Result<Self> {
        let options = cluster::Options {
            progress: Progress::Lines,
            ..cluster::Options::new(level)
        };
        let cluster = Cluster::start(options).await?;
        let behind = if level == Level::Api {
            Need::NoControllers
        } else {
            Need::Node
        };
        Ok(Self {
            client: cluster.client().await?,
            kubeconfig: cluster.kubeconfig(),
            image: cluster::workload_image(),
            time: None,
            offers: BTreeSet::from([Need::ApiServer, Need::LocalWebhooks, behind]),
            running: Running::Cluster(Box::new(cluster)),
        })
    }

    async fn elsewhere() -> Result<Self> {
        let mut config = kube::Config::infer()
            .await
            .context("no cluster by kubeconfig: set KUBECONFIG")?;
        // Refusals are what some scenarios are about, a disruption budget's 429 among them.
        config.default_retry = false;
        let client = Client::try_from(config)?;
        let kubeconfig = std::env::var_os("KUBECONFIG").map_or_else(
            || std::env::home_dir().unwrap_or_default().join(".kube/config"),
            PathBuf::from,
        );
        Ok(Self {
            client,
            kubeconfig,
            image: cluster::workload_image(),
            time: None,
            offers: BTreeSet::from([Need::ApiServer, Need::Node]),
            running: Running::Elsewhere,
        })
    }
}
