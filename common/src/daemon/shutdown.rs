//! The request to stop: from a signal, from a part that failed, or from a test.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Whether the daemon is asked to stop. Cloning gives another handle to the same.
#[derive(Clone, Debug, Default)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    /// One that is requested only by [`request`](Self::request).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One that SIGTERM and SIGINT request too. A second signal ends the process at once, for whoever does not want to
    /// wait.
    pub fn on_signals() -> io::Result<Self> {
        let shutdown = Self::new();
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        tokio::spawn(shutdown.clone().listen(terminate, interrupt));
        Ok(shutdown)
    }

    async fn listen(self, mut terminate: Signal, mut interrupt: Signal) {
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => ("SIGTERM", 143),
                _ = interrupt.recv() => ("SIGINT", 130),
            }
        };
        let (name, _) = next().await;
        tracing::info!(signal = name, "stopping");
        self.request();
        let (name, code) = next().await;
        tracing::warn!(signal = name, "stopping at once");
        std::process::exit(code);
    }

    /// Asks everybody to stop.
    pub fn request(&self) {
        self.0.cancel();
    }

    /// Whether everybody is asked to stop.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until everybody is asked to stop.
    pub async fn requested(&self) {
        self.0.cancelled().await;
    }
}
