//! Reads the usage of containers and native sidecars and writes VPA recommendations.

pub mod aggregate;
mod args;
pub mod checkpoint;
pub mod cluster;
pub mod conditions;
pub mod estimate;
pub mod histogram;
mod instant;
mod num;
pub mod oom;
pub mod peaks;
pub mod policy;
pub mod postprocess;
pub mod recommend;
mod run;
pub mod window;

pub use args::Args;
pub use run::{Config, run};
