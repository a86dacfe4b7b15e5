//! Developer tools: `cargo run -p hack -- --help`

use clap::Parser;
use hack::crds;

/// Developer tools of Outrigger.
#[derive(Parser)]
enum Command {
    /// Write the CustomResourceDefinitions, or check that they are up to date.
    Crds(crds::Args),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Crds(args) => crds::run(&args),
    }
}
