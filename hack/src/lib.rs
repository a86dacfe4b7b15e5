//! Developer tools: everything that is run on the way to a release and nothing that is in one.
//! One module for each subcommand.

pub mod bench;
pub mod cluster;
pub mod crds;
pub mod daemon;
pub mod demo;
pub mod docs;
pub mod e2e;
pub mod fuzz;
pub mod http;
mod interrupt;
mod proc;
pub mod sandbox;
pub mod soak;
pub mod vectors;
