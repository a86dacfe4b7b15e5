//! Reads the usage of containers and native sidecars and writes VPA recommendations.

mod args;
mod run;

pub use args::Args;
pub use run::{Config, run};
pub mod histogram;
mod num;
