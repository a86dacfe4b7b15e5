//! The tools and the daemons together, in one program: one to link, and all of it runs at once.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "this is a test"
)]

mod crds;
mod daemon_process;
mod daemon_virtual;
mod deploy;
mod docs;
mod monitoring;
mod recommender;
mod sandbox;
mod sandbox_world;
mod scenarios;
mod soak;
mod troubleshooting;
mod vectors;
