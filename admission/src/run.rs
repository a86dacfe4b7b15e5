//! The admission component in its shell: connects, and is there until it is asked to stop.

use common::daemon::{Context, DaemonError, Settings, Shell};

/// What the admission component is to do.
#[derive(Clone, Debug)]
pub struct Config {
    /// What all daemons' work depends on.
    pub settings: Settings,
}

/// Runs the admission component until shutdown is requested. It has no loop, so its health never fails
/// (`spec/vpa.md` 5.3).
pub async fn run(config: Config, context: Context) -> Result<(), DaemonError> {
    let mut shell = Shell::start(context, None);
    let handles = shell.handles();
    shell.spawn("admission", async move {
        if !handles.connect().await {
            return Ok(());
        }
        let Config { settings } = config;
        tracing::debug!(gates = %settings.gates, namespaces = ?settings.namespaces, "connected");
        handles.shutdown.requested().await;
        Ok(())
    });
    shell.run().await
}
