//! How the API server is talked to: the client with its limits, and the lease by which one of several replicas leads.

pub mod client;
mod deadline;
mod fence;
pub mod lease;
pub mod limit;
mod requests;
pub mod scale;
pub mod sidecarsets;
pub mod watch;

pub use deadline::DeadlineExceeded;
pub use fence::LeadershipOver;

/// Registers the metrics of everything here, one of each; that of leases only for daemons that have one.
pub(crate) fn sample_metrics(registry: &mut prometheus_client::registry::Registry, has_lease: bool) {
    requests::RequestMetrics::register(registry).sample();
    watch::WatchMetrics::register(registry).sample();
    if has_lease {
        lease::LeaseMetrics::register(registry).sample();
    }
}
