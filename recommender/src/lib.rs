//! Reads the usage of containers and native sidecars and writes VPA recommendations.

pub mod aggregate;
mod args;
pub mod checkpoint;
mod checkpoints;
pub mod cluster;
pub mod conditions;
pub mod estimate;
pub mod explain;
mod feed;
mod form;
pub mod histogram;
pub mod history;
mod instant;
pub mod interval;
mod metrics;
mod num;
pub mod oom;
pub mod peaks;
pub mod policy;
pub mod postprocess;
mod publish;
pub mod recommend;
mod run;
mod status;
pub mod window;
mod write;

pub use args::{Args, Asked, Question, answer};
pub use run::{CheckpointConfig, Config, run};

/// Registers every metric, one of each, for [`common::daemon::metrics::described`].
pub fn sample_metrics(registry: &mut prometheus_client::registry::Registry) {
    metrics::Metrics::register(registry).sample();
}
