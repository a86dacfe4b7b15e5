//! The daemons, in this process, in the time of the place.

use std::{
    net::{Ipv4Addr, TcpListener},
    time::Duration,
};

use anyhow::Result;
use common::{
    clock::Clock,
    daemon::{Context, DaemonError, Settings, Shutdown},
    gates::{Gate, Gates},
};
use tokio::task::JoinSet;

use crate::e2e::Stage;

/// The running daemons.
pub(super) struct Daemons {
    shutdown: Shutdown,
    running: JoinSet<(&'static str, Result<(), DaemonError>)>,
}

impl Daemons {
    pub(super) fn start(stage: &Stage, clock: &Clock) -> Result<Self> {
        let shutdown = Shutdown::new();
        let context = || Context::new(stage.client.clone(), clock.clone(), shutdown.clone());
        let settings = Settings {
            gates: Gates::default().with(Gate::NativeSidecar, true),
            ..Settings::default()
        };
        let interval = Duration::from_secs(if stage.time.is_some() { 60 } else { 10 });
        let mut running = JoinSet::new();
        let recommender = recommender::Config {
            settings: settings.clone(),
            interval,
            ..recommender::Config::from_flags(["--feature-gates=NativeSidecar=true"])?
        };
        // Within bounds a pod is left alone for half a day, which is as long as a demo in virtual time.
        let patience = if stage.time.is_some() { "12h" } else { "30s" };
        let patience = format!("--in-recommendation-bounds-eviction-lifetime-threshold={patience}");
        let updater = updater::Config {
            interval,
            ..updater::Config::from_flags(["--feature-gates=NativeSidecar=true", &patience])?
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut admission = admission::Config::local(settings.gates, listener)?;
        if stage.time.is_some() {
            // It makes a TLS connection each time, which costs the machine's time; a minute without is too long.
            admission.lease.interval = Duration::from_secs(50);
        }
        let (for_recommender, for_updater, for_admission) = (context(), context(), context());
        running.spawn(async move {
            (
                "recommender",
                recommender::run(recommender, for_recommender).await,
            )
        });
        running.spawn(async move { ("updater", updater::run(updater, for_updater).await) });
        running.spawn(async move { ("admission", admission::run(admission, for_admission).await) });
        Ok(Self { shutdown, running })
    }

    /// Stops them, and says so if one did not end well.
    pub(super) async fn stop(mut self) {
        self.shutdown.request();
        while let Some(ended) = self.running.join_next().await {
            match ended {
                Ok((_, Ok(()))) => {}
                Ok((name, Err(error))) => eprintln!("the {name} ended with an error: {error:#}"),
                Err(error) => eprintln!("a daemon ended badly: {error}"),
            }
        }
    }
}
