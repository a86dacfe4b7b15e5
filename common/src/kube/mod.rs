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
