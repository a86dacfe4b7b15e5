//! Gives new pods the resources they should have, and validates the objects that say so.

mod args;
mod run;

pub use args::Args;
pub use run::{Config, run};
