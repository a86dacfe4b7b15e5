//! `hack cluster`: the commands for people. What scripts read goes to standard output, all else to standard error.

use std::{path::PathBuf, time::Instant};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use common::clock::Clock;

use super::{
    Cache, Cluster, How, Image, Level, Options, Part, Parts, Programs, Progress, guard, node, preflight,
    progress::span,
    selftest,
    state::{self, Folder, State},
    teardown::tear_down,
    versions,
};
use crate::interrupt::interrupted;

/// A real Kubernetes on this machine.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Build the programs, once; `up` does it too.
    Build(BuildArgs),
    /// Start a cluster and print how to reach it.
    Up(UpArgs),
    /// Stop a cluster, or all, and remove what they left.
    Down(DownArgs),
    /// List the clusters.
    List,
    /// Print the path of a cluster's kubeconfig.
    Kubeconfig(NameArgs),
    /// Print the log of a part of a cluster; without a part, which there are.
    Logs(LogsArgs),
    /// End a program of a cluster and start it again, with its data.
    Restart(RestartArgs),
    /// Load an image into the nodes of a cluster.
    Image(ImageArgs),
    /// Start a cluster, see that it does what it is for, and stop it.
    Selftest(SelftestArgs),
    /// Stop a cluster when standard input closes.
    #[command(hide = true)]
    Guard(NameArgs),
}

/// What to build.
#[derive(Clone, Debug, Args)]
pub struct BuildArgs {
    /// How much of a cluster.
    #[arg(long, value_enum, default_value_t = Level::Node)]
    level: Level,
    /// How many packages to compile at once; as many as there are processors by default.
    #[arg(long)]
    jobs: Option<u32>,
}

/// What to start.
#[derive(Clone, Debug, Args)]
pub struct UpArgs {
    #[command(flatten)]
    build: BuildArgs,
    /// How many nodes, at level node.
    #[arg(long, default_value_t = 1)]
    nodes: usize,
    /// The cluster's name.
    #[arg(long, default_value = "dev")]
    name: String,
    /// A further flag for the API server, as `--api-server-flag=--feature-gates=WatchList=false`.
    #[arg(long = "api-server-flag", value_name = "FLAG")]
    api_server_flags: Vec<String>,
    /// Stay, and stop the cluster on Ctrl-C or when this process ends.
    #[arg(long)]
    foreground: bool,
}

/// What to stop.
#[derive(Clone, Debug, Args)]
pub struct DownArgs {
    /// The cluster's name.
    #[arg(default_value = "dev")]
    name: String,
    /// All clusters.
    #[arg(long, conflicts_with = "name")]
    all: bool,
}

/// Which cluster.
#[derive(Clone, Debug, Args)]
pub struct NameArgs {
    /// The cluster's name.
    #[arg(default_value = "dev")]
    name: String,
}

/// Which log.
#[derive(Clone, Debug, Args)]
pub struct LogsArgs {
    /// The cluster's name.
    name: String,
    /// The part, as `kube-apiserver` or `kubelet-node-0`.
    part: Option<String>,
}

/// What to start again.
#[derive(Clone, Debug, Args)]
pub struct RestartArgs {
    /// The program.
    #[arg(value_enum)]
    program: Part,
    /// The cluster's name.
    #[arg(default_value = "dev")]
    name: String,
    /// End it without a chance to finish what it does.
    #[arg(long)]
    kill: bool,
}

/// Which image.
#[derive(Clone, Debug, Args)]
pub struct ImageArgs {
    /// The cluster's name.
    name: String,
    /// An archive, as `docker save` writes it; or with --reference, a program to make an image of.
    file: PathBuf,
    /// The name and tag of the image to make.
    #[arg(long)]
    reference: Option<String>,
}

/// What to see.
#[derive(Clone, Debug, Args)]
pub struct SelftestArgs {
    #[command(flatten)]
    build: BuildArgs,
    /// Also apply the CustomResourceDefinitions in this folder.
    #[arg(long)]
    crds: Option<PathBuf>,
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// With what a person can do about it.
    pub async fn run(self) -> Result<()> {
        let cache = Cache::from_env()?;
        match self {
            Self::Build(BuildArgs { level, jobs }) => {
                let begun = Instant::now();
                Programs::ensure(&cache, level, jobs, Progress::Lines)?;
                eprintln!(
                    "all that level {level} runs is in {} ({})",
                    cache.root().display(),
                    span(begun.elapsed())
                );
                if let Err(reason) = preflight::check(&cache, level) {
                    eprintln!("but {reason:#}");
                }
                Ok(())
            }
            Self::Up(arguments) => up(arguments).await,
            Self::Down(DownArgs { name, all }) => down(&cache, (!all).then_some(name.as_str())),
            Self::List => list(&cache),
            Self::Kubeconfig(NameArgs { name }) => {
                let (folder, _) = find(&cache, &name)?;
                println!("{}", folder.kubeconfig().display());
                Ok(())
            }
            Self::Logs(LogsArgs { name, part }) => logs(&cache, &name, part.as_deref()),
            Self::Restart(RestartArgs { program, name, kill }) => {
                let (folder, _) = find(&cache, &name)?;
                let how = if kill { How::Killed } else { How::Asked };
                let ended = Parts::of(&folder).end(program, how).await?;
                ended.start_again().await
            }
            Self::Image(arguments) => load(&cache, &arguments),
            Self::Selftest(SelftestArgs {
                build: BuildArgs { level, jobs },
                crds,
            }) => {
                let options = Options {
                    jobs,
                    progress: Progress::Lines,
                    ..Options::new(level)
                };
                selftest::run(options, crds.as_deref()).await
            }
            Self::Guard(NameArgs { name }) => guard::watch(&cache, &name),
        }
    }
}

async fn up(arguments: UpArgs) -> Result<()> {
    let UpArgs {
        build: BuildArgs { level, jobs },
        nodes,
        name,
        api_server_flags,
        foreground,
    } = arguments;
    let options = Options {
        level,
        nodes,
        name: Some(name.clone()),
        progress: Progress::Lines,
        api_server_flags,
        jobs,
    };
    let cluster = Cluster::start(options).await?;
    let kubeconfig = cluster.kubeconfig();
    let kubectl = cluster.programs().path("kubectl")?;
    eprintln!(
        "Kubernetes {} at {}, level {level}",
        versions::KUBERNETES,
        cluster.server()
    );
    eprintln!("  kubectl of this version: {}", kubectl.display());
    if foreground {
        eprintln!("  stop it:                 Ctrl-C");
    } else {
        eprintln!("  stop it:                 hack cluster down {name}");
    }
    eprintln!("  use it:");
    println!(
        "export KUBECONFIG={}",
        shell_quoted(&kubeconfig.display().to_string())
    );
    if foreground {
        interrupted().await?;
        cluster.stop().await
    } else {
        cluster.detach()
    }
}

fn down(cache: &Cache, name: Option<&str>) -> Result<()> {
    let _lock = cache.lock("clusters", || {})?;
    let clusters = match name {
        Some(name) => vec![find(cache, name)?],
        None => state::all(cache)?,
    };
    for (folder, state) in clusters {
        let begun = Instant::now();
        tear_down(&folder, &state)?;
        eprintln!("stopped {} in {}", state.name, span(begun.elapsed()));
    }
    Ok(())
}

fn list(cache: &Cache) -> Result<()> {
    let now = Clock::system().now();
    println!(
        "{:<20} {:<14} {:<12} {:<9} SERVER",
        "NAME", "LEVEL", "AGE", "PROCESSES"
    );
    for (folder, state) in state::all(cache)? {
        let age = span((now - state.created).to_std().unwrap_or_default());
        let processes = format!("{}/{}", state.alive(&folder), state.processes.len());
        println!(
            "{:<20} {:<14} {age:<12} {processes:<9} {}",
            state.name,
            state.level.to_string(),
            state.server
        );
    }
    Ok(())
}

fn logs(cache: &Cache, name: &str, part: Option<&str>) -> Result<()> {
    let (folder, state) = find(cache, name)?;
    let Some(part) = part else {
        for process in &state.processes {
            println!("{}", process.name);
        }
        return Ok(());
    };
    if !state.processes.iter().any(|process| process.name == part) {
        let parts: Vec<_> = state
            .processes
            .iter()
            .map(|process| process.name.as_str())
            .collect();
        bail!("cluster {name} has no {part}; there are {}", parts.join(", "));
    }
    let mut log =
        std::fs::File::open(folder.log(part)).with_context(|| format!("opening the log of {part}"))?;
    std::io::copy(&mut log, &mut std::io::stdout())?;
    Ok(())
}

fn load(
    cache: &Cache,
    ImageArgs {
        name,
        file,
        reference,
    }: &ImageArgs,
) -> Result<()> {
    let (folder, state) = find(cache, name)?;
    let programs = Programs::ensure(cache, state.level, None, Progress::Quiet)?;
    let Some(reference) = reference else {
        return node::load_archive(&folder, &state, &programs, file);
    };
    let archive = tempfile::NamedTempFile::new_in(folder.path())?;
    Image::of_program(reference, file)?.write(archive.as_file())?;
    node::load_archive(&folder, &state, &programs, archive.path())
}

fn find(cache: &Cache, name: &str) -> Result<(Folder, State)> {
    let folder = Folder::of(cache, name)?;
    let state = folder
        .load()?
        .with_context(|| format!("there is no cluster {name}; see `hack cluster list`"))?;
    Ok((folder, state))
}

/// Quoted for a shell only where that is needed.
fn shell_quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_survives_the_shell() {
        let table = [
            ("/home/me/.cache/x", "/home/me/.cache/x"),
            ("/a b", "'/a b'"),
            ("/it's", r"'/it'\''s'"),
        ];
        for (path, expected) in table {
            assert_eq!(shell_quoted(path), expected);
        }
    }
}
