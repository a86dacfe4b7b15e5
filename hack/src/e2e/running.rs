//! A daemon in this process, in a scenario's time.

use anyhow::{Context as _, Result};
use common::daemon::{Context, DaemonError, Shutdown};
use tokio::task::JoinHandle;

use super::World;

/// A daemon that runs; it goes on until it is stopped.
pub struct Running {
    shutdown: Shutdown,
    task: JoinHandle<Result<(), DaemonError>>,
}

impl Running {
    /// Starts a daemon: `|context| recommender::run(config, context)`.
    pub fn start<F>(world: &World, daemon: impl FnOnce(Context) -> F) -> Self
    where
        F: Future<Output = Result<(), DaemonError>> + Send + 'static,
    {
        let shutdown = Shutdown::new();
        let context = Context::new(world.client.clone(), world.clock(), shutdown.clone());
        Self {
            shutdown,
            task: tokio::spawn(daemon(context)),
        }
    }

    /// Stops it as SIGTERM does.
    ///
    /// # Errors
    /// When it does not end well, or had ended before.
    pub async fn stop(self) -> Result<()> {
        self.shutdown.request();
        self.task.await?.context("the daemon did not end well")
    }
}
