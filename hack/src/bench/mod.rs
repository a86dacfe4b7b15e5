//! Measurements that anyone can run, one file for each daemon.

pub mod admission;
pub mod recommender;
pub mod updater;

use anyhow::Result;
use clap::Subcommand;

/// What is measured.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// The admission component under load
    Admission(admission::Args),
    /// The recommender at the size of a large cluster
    Recommender(recommender::Args),
    /// The updater's decisions over a large cluster
    Updater(updater::Args),
}

impl Command {
    /// Measures it.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn run(self) -> Result<()> {
        match self {
            Self::Admission(args) => args.run().await,
            Self::Recommender(args) => args.run().await,
            Self::Updater(args) => args.run(),
        }
    }
}
