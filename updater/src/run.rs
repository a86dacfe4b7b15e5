//! The updater in its shell: connects, waits for its lease, and goes round its loop until it is asked to stop.

use std::time::Duration;

use common::{
    daemon::{Context, DaemonError, Handles, Shell},
    kube::lease::{self, LeaseMetrics},
};

use crate::config::Config;

/// Runs the updater until shutdown is requested.
pub async fn run(config: Config, mut context: Context) -> Result<(), DaemonError> {
    let lease_metrics = LeaseMetrics::register(&mut context.registry);
    let mut shell = Shell::start(context, Some(config.interval));
    let handles = shell.handles();
    shell.spawn("updater", async move {
        if !handles.connect().await {
            return Ok(());
        }
        let Config {
            interval,
            leader_election,
            ..
        } = config;
        let work = handles.clone();
        Ok(
            lease::lead(leader_election, lease_metrics, &handles, move |_leadership| {
                turn(work, interval)
            })
            .await?,
        )
    });
    shell.run().await
}

/// The loop. Monitoring starts with it, and the first turn comes after one interval, as in VPA.
async fn turn(handles: Handles, interval: Duration) -> anyhow::Result<()> {
    let Handles {
        clock,
        shutdown,
        activity,
        ..
    } = handles;
    let mut ticker = clock.ticker(interval);
    loop {
        activity.mark();
        tokio::select! {
            () = ticker.tick() => {}
            () = shutdown.requested() => return Ok(()),
        }
    }
}
