//! Brings running pods to the resources they should have, by resize in place or by eviction.

mod act;
mod args;
pub mod config;
pub mod decide;
pub mod eligible;
mod events;
pub mod evidence;
pub mod explain;
pub mod feed;
pub mod formula;
pub mod group;
pub mod hopeless;
pub mod inplace;
#[cfg(test)]
mod laws;
pub mod memory;
mod metrics;
mod num;
pub mod observed;
pub mod priority;
mod rate;
pub mod reason;
pub mod requirements;
pub mod resize;
mod run;
pub mod settings;
pub mod sidecarset;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod unboost;
pub mod vpa;

pub use args::{Args, Asked, Question, answer};
pub use config::Config;
pub use metrics::Failure;
pub use run::run;

/// Registers every metric, one of each, for [`common::daemon::metrics::described`].
pub fn sample_metrics(registry: &mut prometheus_client::registry::Registry) {
    metrics::Metrics::register(registry).sample();
}
