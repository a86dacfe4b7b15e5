//! Developer tools: `cargo run -p hack -- --help`

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use hack::{bench, cluster, crds, daemon, demo, docs, e2e, fuzz, sandbox, soak, vectors};

/// Outrigger's developer tools.
#[derive(Parser)]
#[command(name = "hack", max_term_width = 110)]
struct Hack {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure latency, CPU and memory
    #[command(subcommand)]
    Bench(bench::Command),
    /// Start a real Kubernetes on this machine
    #[command(subcommand)]
    Cluster(cluster::cli::Command),
    /// Write the CustomResourceDefinitions, or check that they are up to date
    Crds(crds::Args),
    Daemon(daemon::Args),
    Demo(demo::Args),
    Docs(docs::Args),
    E2e(e2e::Args),
    #[command(subcommand)]
    Fuzz(fuzz::Command),
    /// Start an API server for trying things out, with nothing installed
    Sandbox(sandbox::Args),
    Soak(soak::Args),
    Vectors(vectors::Args),
}

#[tokio::main]
async fn main() -> ExitCode {
    // Without a backtrace, whatever the environment says: what went wrong and what to do is in the words.
    run(Hack::parse().command).await.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Bench(command) => command.run().await.map(done),
        Command::Cluster(command) => command.run().await.map(done),
        Command::Crds(args) => crds::run(&args).map(done),
        Command::Daemon(args) => args.run().await.map(done),
        Command::Demo(args) => args.run().await.map(done),
        Command::Docs(args) => args.run().map(done),
        Command::E2e(args) => args.run().await.map(done),
        Command::Fuzz(command) => command.run().map(done),
        Command::Sandbox(args) => sandbox::run(args).await.map(done),
        Command::Soak(args) => args.run().await,
        Command::Vectors(args) => args.run(),
    }
}

/// A tool that gives no error has succeeded.
fn done((): ()) -> ExitCode {
    ExitCode::SUCCESS
}
