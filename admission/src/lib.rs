//! Gives new pods the resources they should have, and validates the objects that say so.

pub mod answer;
mod args;
pub mod config;
mod feed;
pub mod formula_cli;
mod index;
mod lease;
mod metrics;
pub mod pod;
mod register;
pub mod review;
mod reviewer;
mod run;
mod server;
pub mod sidecarset;
#[cfg(test)]
mod testing;
mod tls;
pub mod vpa;

pub use args::Args;
pub use config::Config;
pub use metrics::{PodOutcome, Refused};
pub use run::run;

/// Registers every metric, one of each, for [`common::daemon::metrics::described`].
pub fn sample_metrics(registry: &mut prometheus_client::registry::Registry) {
    metrics::Metrics::register(registry).sample();
}
