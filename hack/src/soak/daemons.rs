//! The daemons, in this process and in virtual time, each of which can be stopped, killed and started again.

use std::{
    net::{Ipv4Addr, TcpListener},
    time::Duration,
};

use anyhow::Result;
use common::{
    clock::Clock,
    daemon::{Context, DaemonError, Shutdown},
    gates::{Gate, Gates},
};
use tokio::task::JoinHandle;

use super::book::{Daemon, Tap};

const GATES: &str = "--feature-gates=NativeSidecar=true";

/// The three of them.
pub(super) struct Daemons {
    config: kube::Config,
    clock: Clock,
    tap: Tap,
    running: Vec<Running>,
}

struct Running {
    daemon: Daemon,
    shutdown: Shutdown,
    task: JoinHandle<Result<(), DaemonError>>,
}

impl Daemons {
    /// Starts all.
    pub(super) fn start(config: kube::Config, clock: Clock, tap: Tap) -> Result<Self> {
        let mut daemons = Self {
            config,
            clock,
            tap,
            running: Vec::new(),
        };
        for daemon in Daemon::ALL {
            daemons.begin(daemon)?;
        }
        Ok(daemons)
    }

    fn begin(&mut self, daemon: Daemon) -> Result<()> {
        let client = kube::client::ClientBuilder::try_from(self.config.clone())?
            .with_layer(&self.tap.of(daemon))
            .build();
        let shutdown = Shutdown::new();
        let context = Context::new(client, self.clock.clone(), shutdown.clone());
        let task = match daemon {
            Daemon::Recommender => {
                let config = recommender::Config::from_flags([GATES])?;
                tokio::spawn(recommender::run(config, context))
            }
            Daemon::Updater => {
                let config = updater::Config::from_flags([GATES])?;
                tokio::spawn(updater::run(config, context))
            }
            Daemon::Admission => {
                let gates = Gates::default().with(Gate::NativeSidecar, true);
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
                let mut config = admission::Config::local(gates, listener)?;
                // It makes a TLS connection each time, which costs the machine's time; a minute without is too long.
                config.lease.interval = Duration::from_secs(50);
                tokio::spawn(admission::run(config, context))
            }
        };
        self.running.push(Running {
            daemon,
            shutdown,
            task,
        });
        Ok(())
    }

    /// Ends one and starts it again: as SIGTERM does, or as SIGKILL does.
    ///
    /// # Errors
    /// When it does not end well, or does not start.
    pub(super) async fn restart(&mut self, daemon: Daemon, is_killed: bool) -> Result<()> {
        if let Some(at) = self.running.iter().position(|running| running.daemon == daemon) {
            let Running { shutdown, task, .. } = self.running.swap_remove(at);
            if is_killed {
                task.abort();
                // That it was cancelled is what was asked for.
                drop(task.await);
            } else {
                shutdown.request();
                task.await??;
            }
        }
        self.begin(daemon)
    }

    /// Those that have ended without being asked to, and how; they are started again.
    ///
    /// # Errors
    /// When one does not start.
    pub(super) async fn look_after(&mut self) -> Result<Vec<String>> {
        let (ended, running): (Vec<_>, Vec<_>) = self
            .running
            .drain(..)
            .partition(|running| running.task.is_finished());
        self.running = running;
        let mut ends = Vec::new();
        for Running { daemon, task, .. } in ended {
            let how = match task.await {
                Ok(Ok(())) => "without an error".to_owned(),
                Ok(Err(error)) => format!("with an error: {error:#}"),
                Err(error) => format!("badly: {error}"),
            };
            ends.push(format!("the {daemon} ended by itself, {how}"));
            self.begin(daemon)?;
        }
        Ok(ends)
    }

    /// Stops all.
    ///
    /// # Errors
    /// When one does not end well.
    pub(super) async fn stop(self) -> Result<()> {
        for running in self.running {
            running.shutdown.request();
            running.task.await??;
        }
        Ok(())
    }
}
