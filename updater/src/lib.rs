//! Brings running pods to the resources they should have, by resize in place or by eviction.

mod args;
mod run;

pub use args::Args;
pub use run::{Config, run};
