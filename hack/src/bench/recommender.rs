//! The recommender at the size of a large cluster: the whole daemon in one process with an API server that makes its
//! answers up, so that what is measured is the daemon and not a network.

mod cluster;
mod process;
mod server;

use std::{collections::BTreeMap, ffi::OsStr, fs, path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use chrono::DateTime;
use clap::Args as ClapArgs;
use common::{
    clock::VirtualClock,
    daemon::{Context, DaemonError, Shutdown},
};
use serde::{Deserialize, Serialize};
use tokio::{net::TcpListener, process::Command, runtime::Runtime, task::JoinHandle};

use self::{
    cluster::{Cluster, Size},
    server::{Server, Writes},
};
use crate::proc::Of;

const MIB: f64 = 1024.0 * 1024.0;
const INTERVAL: Duration = Duration::from_secs(60);
/// Every checkpoint is written once within its largest age of ten minutes.
const LOOPS: u32 = 10;
/// The size of `spec/baseline.md`.
const BASELINE: Size = Size {
    pods: 10_000,
    containers: 3,
    vpas: 1_000,
};

/// Measure the recommender: memory, CPU and writes
///
/// Runs the whole recommender in one process with a made-up cluster: pods, VPAs, controllers and checkpoints through the
/// real watches and the real decoding, usage through the real metrics list. A third of the workloads have a native sidecar
/// among their containers, a third of the Deployments are in the middle of a rollout, and pods are replaced while it runs.
/// CPU is that of the recommender's threads alone; memory is that of the whole process.
///
/// The same is done with a tenth of the pods, and with 10,000 pods and 1,000 VPAs; each in a process of its own.
///
///   cargo run --release -p hack -- bench recommender --pods 150000 --containers 2 --vpas 20000
///   make release && cargo run --release -p hack -- bench recommender --program target/release/recommender
#[derive(ClapArgs, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// How many pods there are
    #[arg(long, default_value_t = 150_000)]
    pods: usize,
    /// How many containers each has
    #[arg(long, default_value_t = 2)]
    containers: usize,
    /// How many VPAs there are
    #[arg(long, default_value_t = 20_000)]
    vpas: usize,
    /// Measure this size alone, and print the figures as JSON
    #[arg(long)]
    only: bool,
    /// Measure this program, as `make release` has built it, over loopback and in real time
    ///
    /// Its loops are shortened to some seconds; writes are counted as if they took a minute.
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// More flags for the recommender
    #[arg(last = true)]
    flags: Vec<String>,
}

impl Args {
    /// Measures it.
    ///
    /// # Errors
    /// When something does not start, or the recommender asks for what the made-up server does not have.
    pub async fn run(self) -> Result<()> {
        let size = Size {
            pods: self.pods,
            containers: self.containers,
            vpas: self.vpas,
        };
        ensure!(
            size.vpas > 0 && size.containers > 0 && size.pods >= size.vpas,
            "nothing to measure: there must be a VPA, a container, and a pod for every VPA"
        );
        if self.only {
            let figures = match &self.program {
                Some(program) => process::measure(size, program, &self.flags).await?,
                None => measure(size, &self.flags).await?,
            };
            println!("{}", serde_json::to_string(&figures)?);
            return Ok(());
        }
        let tenth = Size {
            pods: (size.pods / 10).max(1),
            vpas: (size.vpas / 10).max(1),
            ..size
        };
        println!("{}", Figures::HEAD);
        let small = self.measure_alone(tenth).await?;
        let large = self.measure_alone(size).await?;
        self.measure_alone(BASELINE).await?;
        println!(
            "ten times the containers take {:.1} times the CPU of a loop and {:.1} times the memory",
            large.loop_seconds / small.loop_seconds,
            large.peak_mib / small.peak_mib,
        );
        Ok(())
    }

    /// Measures in a process of its own, so that the memory of one size is not that of another.
    async fn measure_alone(&self, size: Size) -> Result<Figures> {
        let Size {
            pods,
            containers,
            vpas,
        } = size;
        let output = Command::new(std::env::current_exe()?)
            .args(["bench", "recommender", "--only"])
            .arg(format!("--pods={pods}"))
            .arg(format!("--containers={containers}"))
            .arg(format!("--vpas={vpas}"))
            .args(
                self.program
                    .iter()
                    .flat_map(|program| [OsStr::new("--program"), program.as_os_str()]),
            )
            .arg("--")
            .args(&self.flags)
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .output()
            .await?;
        ensure!(
            output.status.success(),
            "the measurement ended with {}",
            output.status
        );
        let figures: Figures = serde_json::from_slice(&output.stdout)?;
        figures.print(size);
        Ok(figures)
    }
}

/// What was measured.
#[derive(Debug, Serialize, Deserialize)]
struct Figures {
    /// The most memory that the process ever had.
    peak_mib: f64,
    /// CPU of the lists: VPAs, controllers, checkpoints, pods.
    load_seconds: f64,
    /// CPU of the first loop, in which every status is written.
    first_seconds: f64,
    /// CPU of a loop after that, writes included.
    loop_seconds: f64,
    /// Of which this much after the usage was read and the first write came; nobody can tell from outside the process.
    publish_seconds: Option<f64>,
    /// Samples in a loop.
    samples: usize,
    statuses_per_second: f64,
    checkpoints_per_second: f64,
}

impl Figures {
    /// From the CPU spent until the lists were read, the first loop was over and all loops were, and from what was written
    /// before and after the loops that count.
    fn new(
        size: Size,
        peak_mib: f64,
        [loaded, first, all]: [f64; 3],
        published: Option<f64>,
        [before, after]: [Writes; 2],
    ) -> Result<Self> {
        let per_second = |count: fn(Writes) -> u64| -> Result<f64> {
            let written = u32::try_from(count(after) - count(before))?;
            Ok(f64::from(written) / (INTERVAL * LOOPS).as_secs_f64())
        };
        Ok(Self {
            peak_mib,
            load_seconds: loaded,
            first_seconds: first - loaded,
            loop_seconds: (all - first) / f64::from(LOOPS),
            publish_seconds: published.map(|seconds| seconds / f64::from(LOOPS)),
            samples: size.all_containers(),
            statuses_per_second: per_second(|writes| writes.statuses)?,
            checkpoints_per_second: per_second(|writes| writes.checkpoints)?,
        })
    }

    const HEAD: &'static str = "    pods containers     VPAs | peak MiB  bytes per | CPU s:  load   first    loop  of which    | writes/s: status checkpoints\n                             |          container |                        publishing  |";

    fn print(&self, size: Size) {
        let containers = size.all_containers();
        let bytes = self.peak_mib * MIB / f64::from(u32::try_from(containers).unwrap_or(u32::MAX));
        println!(
            "{:>8} {containers:>10} {:>8} | {:>8.0} {bytes:>10.0} | {:>12.2} {:>7.2} {:>7.2} {:>9}   | {:>16.1} {:>11.1}",
            size.pods,
            size.vpas,
            self.peak_mib,
            self.load_seconds,
            self.first_seconds,
            self.loop_seconds,
            self.publish_seconds
                .map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.2}")),
            self.statuses_per_second,
            self.checkpoints_per_second,
        );
    }
}

async fn measure(size: Size, flags: &[String]) -> Result<Figures> {
    let bench = Bench::start(size, flags).await?;
    bench.until_ready().await?;
    let loaded = cpu_seconds()?;
    // The first tick is due an interval after the loop began to wait for it, which is a moment after readiness.
    while bench.server.turns() == 0 {
        bench.turn().await?;
    }
    let first = cpu_seconds()?;
    let before = bench.server.writes();
    let mut published = 0.0;
    let churn = size.pods / 125;
    for _ in 0..LOOPS {
        bench.server.roll(churn).await?;
        published += bench.turn().await?;
    }
    let after = bench.server.writes();
    let all = cpu_seconds()?;
    if let Some(request) = bench.server.unknown() {
        bail!("the made-up server has no answer to {request}");
    }
    let peak_mib = Of::Ourselves.peak_mib()?;
    bench.stop().await?;
    Figures::new(
        size,
        peak_mib,
        [loaded, first, all],
        Some(published),
        [before, after],
    )
}

/// The recommender and its server, on threads of their own.
struct Bench {
    time: VirtualClock,
    server: Server,
    shutdown: Shutdown,
    running: JoinHandle<Result<(), DaemonError>>,
    url: String,
    runtimes: [Runtime; 2],
}

/// The names of the recommender's threads.
const DAEMON: &str = "recommender";

impl Bench {
    async fn start(size: Size, flags: &[String]) -> Result<Self> {
        let runtime = |name: &str| {
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .thread_name(name)
                // A thread that ends takes its CPU time with it.
                .thread_keep_alive(Duration::from_secs(24 * 3600))
                .enable_all()
                .build()
        };
        let runtimes = [runtime(DAEMON)?, runtime("server")?];
        let start = DateTime::from_timestamp(1_772_366_400, 0).context("a time in 2026")?;
        let time = VirtualClock::starting_at(start);
        let server = Server::new(Cluster::new(size), time.clock(), runtimes[1].handle().clone());
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/readyz", listener.local_addr()?);
        let flags = ["--feature-gates=NativeSidecar=true"]
            .into_iter()
            .chain(flags.iter().map(String::as_str));
        let config = recommender::Config::from_flags(flags)?;
        let shutdown = Shutdown::new();
        let mut context = Context::new(server.client(), time.clock(), shutdown.clone());
        context.admin = Some(listener);
        let running = runtimes[0].spawn(recommender::run(config, context));
        Ok(Self {
            time,
            server,
            shutdown,
            running,
            url,
            runtimes,
        })
    }

    async fn until_ready(&self) -> Result<()> {
        loop {
            // Before it has begun to read it is ready for nothing else either.
            let listed = self.server.has_listed();
            let answer = crate::http::get(&self.url).await;
            if listed && answer.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            ensure!(!self.running.is_finished(), "the recommender has ended");
            if let Some(request) = self.server.unknown() {
                bail!("the made-up server has no answer to {request}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// One loop; gives the CPU that it took from the first write on.
    async fn turn(&self) -> Result<f64> {
        let writes = |writes: Writes| writes.statuses + writes.checkpoints;
        let before = writes(self.server.writes());
        let mut turned = std::pin::pin!(async {
            self.time.advance(INTERVAL).await;
            self.time.idle().await;
        });
        let mut first_write = None;
        loop {
            tokio::select! {
                () = &mut turned => break,
                () = tokio::time::sleep(Duration::from_millis(2)) => {}
            }
            if first_write.is_none() && writes(self.server.writes()) > before {
                first_write = Some(cpu_seconds()?);
            }
        }
        let end = cpu_seconds()?;
        ensure!(!self.running.is_finished(), "the recommender has ended");
        Ok(end - first_write.unwrap_or(end))
    }

    async fn stop(self) -> Result<()> {
        self.shutdown.request();
        self.running.await?.context("the recommender did not end well")?;
        for runtime in self.runtimes {
            runtime.shutdown_background();
        }
        Ok(())
    }
}

/// The CPU time of the recommender's threads so far.
fn cpu_seconds() -> Result<f64> {
    let mut nanos: BTreeMap<String, u64> = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").context("this needs Linux's /proc")? {
        let task = task?.path();
        let read = |file: &str| fs::read_to_string(task.join(file));
        // A thread may end while we look.
        let (Ok(name), Ok(stat)) = (read("comm"), read("schedstat")) else {
            continue;
        };
        let spent = stat
            .split_whitespace()
            .next()
            .and_then(|nanos| nanos.parse().ok());
        *nanos.entry(name.trim().to_owned()).or_default() += spent.unwrap_or(0);
    }
    let spent = nanos.get(DAEMON).copied().unwrap_or(0);
    Ok(Duration::from_nanos(spent).as_secs_f64())
}
