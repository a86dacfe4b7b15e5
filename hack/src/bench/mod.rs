//! Measurements that anyone can run, one file for each daemon.

pub mod admission;

use anyhow::Result;
use clap::Subcommand;

/// What is measured.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// The admission component under load
    Admission(admission::Args),
}

impl Command {
    /// Measures it.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn run(self) -> Result<()> {
        match self {
            Self::Admission(args) => args.run().await,
        }
    }
}
