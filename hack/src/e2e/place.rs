//! The places scenarios run on: the sandbox in this process, a real cluster started for them, or one that is there.

use std::{fmt, ops::Deref, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result};
use chrono::DateTime;
use clap::ValueEnum;
use common::clock::VirtualClock;
use kube::Client;
use tempfile::TempDir;
use tokio::sync::Mutex;

use super::{Need, Scenario, World};
use crate::{
    cluster::{self, Cluster, Level, Parts, Progress},
    daemon::Daemon,
    sandbox::{
        self, Faults, Sandbox,
        world::{self, WorldOptions, load::Loads},
    },
};

/// How far simulated nodes move at once where hours pass: fine enough for usage that is measured every 15 s.
const LARGE_STEP: Duration = Duration::from_secs(5);
/// Held by who starts a cluster.
static STARTING: Mutex<()> = Mutex::const_new(());

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

/// What is behind an API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    /// Controllers, a scheduler and a node.
    Nodes,
    /// The same, but simulated in larger steps, for who lets hours pass.
    NodesForHours,
    /// The same, and the nodes have the daemons' images.
    NodesWithImages,
    /// Nothing that would touch a scenario's objects.
    Nothing,
}

impl Behind {
    fn needed_by(needs: &[Need]) -> Self {
        if needs.contains(&Need::NoControllers) {
            Self::Nothing
        } else if needs.contains(&Need::Images) {
            Self::NodesWithImages
        } else if needs.contains(&Need::VirtualTime) {
            Self::NodesForHours
        } else {
            Self::Nodes
        }
    }
}

impl On {
    fn offers(self, need: Need, behind: Behind) -> bool {
        match need {
            Need::ApiServer => true,
            Need::Node => behind != Behind::Nothing,
            Need::NoControllers => behind == Behind::Nothing && self != Self::Kubeconfig,
            Need::LocalWebhooks => self != Self::Kubeconfig,
            Need::Faults | Need::VirtualTime => self == Self::Sandbox,
            Need::Images | Need::Outages => self == Self::Cluster,
        }
    }

    /// What a scenario needs that is not to be had here.
    pub(super) fn lacks(self, needs: &[Need]) -> Option<Need> {
        let behind = Behind::needed_by(needs);
        needs.iter().copied().find(|need| !self.offers(*need, behind))
    }
}

/// The stages of one place: one with nodes, and one with an API server alone for scenarios that want no controller to touch
/// their objects. On the sandbox each scenario has one for itself: there whoever waits moves the time, and may break things.
pub struct Places {
    on: On,
    stages: Vec<(Behind, Stage)>,
}

impl Places {
    /// Starts what these scenarios share.
    ///
    /// # Errors
    /// When something does not start, with what to do about it.
    pub async fn prepare(on: On, scenarios: &[Scenario]) -> Result<Self> {
        let mut stages = Vec::new();
        for behind in [Behind::Nodes, Behind::Nothing] {
            let shared = |scenario: &Scenario| {
                on.lacks(scenario.needs).is_none()
                    && Behind::needed_by(scenario.needs) == behind
                    && !is_alone(on, scenario.needs)
            };
            if scenarios.iter().any(shared) {
                stages.push((behind, Stage::open(on, behind).await?));
            }
        }
        Ok(Self { on, stages })
    }

    /// Which place it is.
    #[must_use]
    pub fn on(&self) -> On {
        self.on
    }

    /// What a scenario needs that is not to be had here.
    #[must_use]
    pub fn lacks(&self, needs: &[Need]) -> Option<Need> {
        self.on.lacks(needs)
    }

    /// Whether scenarios with these needs have their stage for themselves.
    #[must_use]
    pub fn are_alone(&self, needs: &[Need]) -> bool {
        is_alone(self.on, needs)
    }

    /// The stage for a scenario with these needs, none of which is lacking here.
    ///
    /// # Errors
    /// When a stage of its own does not start, or the shared one was not prepared.
    pub async fn stage_for(&self, needs: &[Need]) -> Result<StageFor<'_>> {
        let behind = Behind::needed_by(needs);
        if self.are_alone(needs) {
            return Ok(StageFor::Own(Box::new(Stage::open(self.on, behind).await?)));
        }
        let shared = self.stages.iter().find(|(what, _)| *what == behind);
        shared
            .map(|(_, stage)| StageFor::Shared(stage))
            .context("no stage was prepared for this scenario")
    }

    /// Stops what was started.
    ///
    /// # Errors
    /// When a cluster does not stop.
    pub async fn stop(self) -> Result<()> {
        for (_, stage) in self.stages {
            stage.stop().await?;
        }
        Ok(())
    }
}

/// Whether this scenario has its stage for itself: on the sandbox all have, what is installed is installed once, and an outage
/// strikes all.
fn is_alone(on: On, needs: &[Need]) -> bool {
    let alone = [Need::Images, Need::Outages];
    on == On::Sandbox || alone.iter().any(|need| needs.contains(need))
}

/// The stage that a scenario runs on.
pub enum StageFor<'p> {
    /// Others run on it too.
    Shared(&'p Stage),
    /// It goes when the scenario is done.
    Own(Box<Stage>),
}

impl Deref for StageFor<'_> {
    type Target = Stage;

    fn deref(&self) -> &Stage {
        match self {
            Self::Shared(stage) => stage,
            Self::Own(stage) => stage,
        }
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
    running: Running,
}

/// What must be stopped when the scenarios are done.
enum Running {
    Sandbox {
        server: Sandbox,
        world: Option<world::World>,
        _folder: TempDir,
    },
    Cluster(Box<Cluster>),
    Elsewhere,
}

impl Stage {
    /// The stage of this place that has nodes, for who lets hours pass.
    ///
    /// # Errors
    /// When something does not start, with what to do about it.
    pub async fn start(on: On) -> Result<Self> {
        Self::open(on, Behind::NodesForHours).await
    }

    /// A namespace on it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn world(&self, name: &str) -> Result<World> {
        World::create(self, name).await
    }

    /// Faults on demand, on the sandbox.
    pub(super) fn faults(&self) -> Option<&Faults> {
        match &self.running {
            Running::Sandbox { server, .. } => Some(server.faults()),
            Running::Cluster(_) | Running::Elsewhere => None,
        }
    }

    /// Programs that can be ended, on a cluster of our own.
    pub(super) fn parts(&self) -> Option<Parts> {
        match &self.running {
            Running::Cluster(cluster) => Some(cluster.parts()),
            Running::Sandbox { .. } | Running::Elsewhere => None,
        }
    }

    /// What containers use, on the sandbox.
    pub(super) fn loads(&self) -> Option<&Loads> {
        match &self.running {
            Running::Sandbox { world, .. } => world.as_ref().map(world::World::load),
            Running::Cluster(_) | Running::Elsewhere => None,
        }
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

    async fn open(on: On, behind: Behind) -> Result<Self> {
        match on {
            On::Sandbox => Self::sandbox(behind).await,
            On::Cluster => Self::cluster(behind).await,
            On::Kubeconfig => Self::elsewhere().await,
        }
    }

    async fn sandbox(behind: Behind) -> Result<Self> {
        let start = DateTime::from_timestamp(1_772_323_200, 0).context("a time in 2026")?;
        let time = VirtualClock::starting_at(start);
        let server = Sandbox::start(sandbox::Options {
            clock: time.clock(),
            ..sandbox::Options::default()
        })
        .await?;
        let options = WorldOptions::default();
        let world = match behind {
            Behind::Nodes | Behind::NodesWithImages => Some(world::World::start(&server, options).await?),
            Behind::NodesForHours => {
                let tick = LARGE_STEP;
                Some(world::World::start(&server, WorldOptions { tick, ..options }).await?)
            }
            Behind::Nothing => None,
        };
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, server.kubeconfig())?;
        Ok(Self {
            client: server.client()?,
            kubeconfig,
            image: "workload".to_owned(),
            time: Some(time),
            running: Running::Sandbox {
                server,
                world,
                _folder: folder,
            },
        })
    }

    async fn cluster(behind: Behind) -> Result<Self> {
        let level = match behind {
            Behind::Nodes | Behind::NodesForHours | Behind::NodesWithImages => Level::Node,
            Behind::Nothing => Level::Api,
        };
        let options = cluster::Options {
            progress: Progress::Lines,
            ..cluster::Options::new(level)
        };
        // Side by side, each would take as long as all, and the parts of a cluster do not wait for each other forever.
        let one_at_a_time = STARTING.lock().await;
        let mut cluster = Cluster::start(options).await?;
        drop(one_at_a_time);
        if behind == Behind::NodesWithImages {
            cluster = tokio::task::spawn_blocking(move || load_images(cluster)).await??;
        }
        Ok(Self {
            client: cluster.client().await?,
            kubeconfig: cluster.kubeconfig(),
            image: cluster::workload_image(),
            time: None,
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
            running: Running::Elsewhere,
        })
    }
}

fn load_images(cluster: Cluster) -> Result<Cluster> {
    for daemon in Daemon::ALL {
        cluster.load_image(&daemon.image()?)?;
    }
    Ok(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_says_what_it_lacks() {
        let table: [(&[Need], [Option<Need>; 3]); 8] = [
            (&[], [None, None, None]),
            (&[Need::Node], [None, None, None]),
            (
                &[Need::Node, Need::LocalWebhooks],
                [None, None, Some(Need::LocalWebhooks)],
            ),
            (&[Need::NoControllers], [None, None, Some(Need::NoControllers)]),
            (
                &[Need::Node, Need::Faults],
                [None, Some(Need::Faults), Some(Need::Faults)],
            ),
            (
                &[Need::Node, Need::Images],
                [Some(Need::Images), None, Some(Need::Images)],
            ),
            (
                &[Need::Node, Need::Outages],
                [Some(Need::Outages), None, Some(Need::Outages)],
            ),
            (
                &[Need::NoControllers, Need::VirtualTime],
                [None, Some(Need::VirtualTime), Some(Need::NoControllers)],
            ),
        ];
        for (needs, expected) in table {
            let lacking = [On::Sandbox, On::Cluster, On::Kubeconfig].map(|on| on.lacks(needs));
            assert_eq!(lacking, expected, "{needs:?}");
        }
    }
}
