//! Gives new pods the resources they should have, and validates the objects that say so.

mod args;
mod run;

pub use args::Args;
pub use run::{Config, run};
pub mod answer;
pub mod pod;
pub mod review;
pub mod vpa;
