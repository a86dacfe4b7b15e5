//! Gives new pods the resources they should have, and validates the objects that say so.

pub mod answer;
mod args;
pub mod pod;
pub mod review;
mod run;
pub mod vpa;

pub use args::Args;
pub use run::{Config, run};
