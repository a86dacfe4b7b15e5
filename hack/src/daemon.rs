//! The daemons as processes of their own, for scenarios that kill them and measurements of what they cost: this program
//! runs as each of them, so that nothing else has to be built first and nothing can be out of date.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use clap::{Args as ClapArgs, ValueEnum};
use common::daemon::{exit, pflag};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::{cluster::Image, proc::Of};

/// Far more than a daemon takes to start or to stop, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(400);
const POLL: Duration = Duration::from_millis(20);

/// Which daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Daemon {
    /// Writes recommendations
    Recommender,
    /// Brings running pods to them
    Updater,
    /// Gives them to new pods
    Admission,
}

impl Daemon {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Recommender, Self::Updater, Self::Admission];

    /// The name of its image, as the chart gives it to a cluster that has no registry of its own.
    #[must_use]
    pub fn image_name(self) -> String {
        format!(
            "docker.io/outrigger/{}:{}",
            self.name(),
            env!("CARGO_PKG_VERSION")
        )
    }

    /// An image of it that is made here, of this program and the libraries it needs.
    ///
    /// # Errors
    /// When a library is missing.
    pub fn image(self) -> Result<Image> {
        let mut image = Image::of_program(&self.image_name(), &program()?)?;
        image
            .entrypoint
            .extend(["daemon", self.name()].map(str::to_owned));
        Ok(image)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Recommender => "recommender",
            Self::Updater => "updater",
            Self::Admission => "admission",
        }
    }
}

/// Run one of the daemons, with its own flags
#[derive(ClapArgs, Debug)]
pub struct Args {
    /// Which
    #[arg(value_enum)]
    daemon: Daemon,
    /// Its flags
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    flags: Vec<OsString>,
}

impl Args {
    /// Runs it, and ends this process as it ends.
    ///
    /// # Errors
    /// When the flags cannot be read.
    pub async fn run(self) -> Result<()> {
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let argv = std::iter::once(self.daemon.name().into()).chain(self.flags);
        match self.daemon {
            Daemon::Recommender => match recommender::Asked::try_parse(argv)? {
                recommender::Asked::Run(args) => exit(args.run().await),
                recommender::Asked::Explain(question) => recommender::answer(*question).await,
            },
            Daemon::Updater => match updater::Asked::try_parse(argv)? {
                updater::Asked::Run(args) => exit(args.run().await),
                updater::Asked::Explain(question) => updater::answer(*question).await,
            },
            Daemon::Admission => exit(pflag::try_parse::<admission::Args>(argv)?.run().await),
        }
    }
}

/// A daemon that runs; it is killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: Arc<Mutex<Vec<Value>>>,
    url: String,
}

impl Process {
    /// Starts a daemon on an own port, and waits until it says where it serves.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(daemon: Daemon, kubeconfig: &Path, flags: &[&str]) -> Result<Self> {
        let mut command = Command::new(program()?);
        command.args(["daemon", daemon.name()]);
        Self::spawn(command, kubeconfig, flags).await
    }

    /// Starts a daemon that is a program of its own, as it is installed.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_program(program: &Path, kubeconfig: &Path, flags: &[&str]) -> Result<Self> {
        Self::spawn(Command::new(program), kubeconfig, flags).await
    }

    async fn spawn(mut command: Command, kubeconfig: &Path, flags: &[&str]) -> Result<Self> {
        let mut child = command
            .args(["--address=127.0.0.1:0", "--log-format=json"])
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args(flags)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", command.as_std().get_program().display()))?;
        let log: Arc<Mutex<Vec<Value>>> = Arc::default();
        let mut lines = BufReader::new(child.stderr.take().context("no log")?).lines();
        let written = log.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
                written.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        let mut process = Self {
            child,
            log,
            url: String::new(),
        };
        let address = process
            .eventually("it says where it serves", async |this| {
                let line = this.logged("serving metrics and health")?;
                line["address"].as_str().map(str::to_owned)
            })
            .await?;
        process.url = format!("http://{address}");
        Ok(process)
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Whether it has not ended.
    ///
    /// # Errors
    /// When that cannot be told.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// What it takes of the machine.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn taken(&self) -> Result<Of> {
        self.pid().map(Of::Pid).context("the daemon has ended")
    }

    /// The first line of its log with these words in the message.
    #[must_use]
    pub fn logged(&self, words: &str) -> Option<Value> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let says = |line: &&Value| line["message"].as_str().is_some_and(|text| text.contains(words));
        log.iter().find(says).cloned()
    }

    /// Everything it has logged.
    #[must_use]
    pub fn log(&self) -> Vec<Value> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks it for metrics or its health.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        let answer = crate::http::get(&format!("{}{path}", self.url)).await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }

    /// Waits until it is ready.
    ///
    /// # Errors
    /// When it is not for a minute.
    pub async fn ready(&mut self) -> Result<()> {
        self.eventually("it is ready", async |this| {
            let (code, _) = this.get("/readyz").await.ok()?;
            (code == 200).then_some(())
        })
        .await
    }

    /// Kills it without a chance to clean up.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Asks it to stop, and waits until it has.
    ///
    /// # Errors
    /// When it does not stop.
    pub async fn stop(mut self) -> Result<ExitStatus> {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.and_then(Pid::from_raw).context("it has ended already")?;
        kill_process(pid, Signal::TERM)?;
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        Ok(ended.context("the daemon does not stop")??)
    }

    async fn eventually<T>(&mut self, what: &str, ask: impl AsyncFn(&Self) -> Option<T>) -> Result<T> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = ask(self).await {
                return Ok(answer);
            }
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "the daemon ended with {status} before {what}; its log: {:?}",
                    self.log()
                );
            }
            if tokio::time::Instant::now() > deadline {
                bail!(
                    "not within {} s: {what}; its log: {:?}",
                    PATIENCE.as_secs(),
                    self.log()
                );
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// This program, also when asked from a test of it.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let mut folder = own.parent().context("this program is nowhere")?;
    if folder.ends_with("deps") {
        folder = folder.parent().context("this program is nowhere")?;
    }
    Ok(folder.join("hack"))
}
