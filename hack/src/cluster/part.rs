//! Programs of a running cluster that end and come back, as they do on every cluster one day. All that is known of them is
//! on disk and in `/proc`, so whoever did not start the cluster can do it too.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use rustix::process::Signal;

use super::{
    launch, process,
    state::{Folder, State},
};

/// How long a program may take to end: an API server first answers what it was asked.
const PATIENCE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(20);

/// A program that all else in a cluster depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The store
    Etcd,
    /// The API server
    KubeApiserver,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
        }
    }
}

/// How a program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It is asked to, and may finish what it does.
    Asked,
    /// It has no chance to.
    Killed,
}

/// The programs of one cluster.
#[derive(Clone, Debug)]
pub struct Parts(Folder);

/// A program that was ended, and how to start it again.
#[derive(Debug)]
pub struct Ended {
    folder: Folder,
    part: Part,
    command_line: Vec<String>,
}

impl Parts {
    pub(super) fn of(folder: &Folder) -> Self {
        Self(folder.clone())
    }

    /// Ends a program. Returns when it is gone.
    ///
    /// # Errors
    /// When it does not run, or does not end.
    pub async fn end(&self, part: Part, how: How) -> Result<Ended> {
        let (folder, name) = (self.0.clone(), part.name());
        let mut state = state(&folder)?;
        let id = written(&mut state, part)?.id;
        ensure!(id.belongs_to(folder.path()), "{name} does not run");
        let command_line = id.command_line();
        id.signal(match how {
            How::Asked => Signal::TERM,
            How::Killed => Signal::KILL,
        });
        let begun = Instant::now();
        while id.is_alive() {
            if begun.elapsed() >= PATIENCE {
                bail!("{name} does not end");
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(Ended {
            folder,
            part,
            command_line,
        })
    }
}

impl Ended {
    /// Starts it as it was started before. Returns when the API server is ready and reads from its store.
    ///
    /// # Errors
    /// When it does not start or takes too long.
    pub async fn start_again(self) -> Result<()> {
        let Self {
            folder,
            part,
            command_line,
        } = self;
        let name = part.name();
        let (program, arguments) = command_line
            .split_first()
            .with_context(|| format!("{name} had no command line"))?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(folder.path());
        let mut state = state(&folder)?;
        let (_, id) = process::spawn(command, &folder.log(name))?;
        written(&mut state, part)?.id = id;
        folder.save(&state)?;
        let client = launch::client(&folder.kubeconfig()).await?;
        // What the API server says of its health may be older than the end of its store; what it reads is not.
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let works = || async { launch::is_ready(&client).await && namespaces.get("default").await.is_ok() };
        launch::until_works(&folder, name, id, works).await
    }
}

/// As it stands on disk: what is in anybody's memory may be older.
fn state(folder: &Folder) -> Result<State> {
    folder.load()?.context("the cluster is gone")
}

fn written(state: &mut State, part: Part) -> Result<&mut super::state::Process> {
    let mut processes = state.processes.iter_mut();
    processes
        .find(|process| process.name == part.name())
        .with_context(|| format!("this cluster has no {}", part.name()))
}
