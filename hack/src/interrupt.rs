//! Ctrl-C, and what a script sends in its place.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{SignalKind, signal};

/// Waits for the signal that ends a program.
///
/// # Errors
/// When signals cannot be waited for.
pub(crate) async fn interrupted() -> Result<()> {
    let mut terminated = signal(SignalKind::terminate()).context("waiting for SIGTERM")?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result.context("waiting for Ctrl-C"),
        _ = terminated.recv() => Ok(()),
    }
}
