//! `hack soak`: a week of a busy town on the sandbox, in virtual time, with everything going wrong that may, and what must
//! hold all the time.

mod book;
mod daemons;
mod luck;
mod memory;
mod town;
mod trouble;

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use chrono::{DateTime, TimeDelta, Utc};
use common::{clock::VirtualClock, quantity::Quantity};
use serde_json::Value;

use self::{
    book::{Book, Quiet, Written},
    daemons::Daemons,
    luck::Luck,
    memory::Line,
    town::{MAX_ALLOWED, MIN_ALLOWED, Town},
    trouble::Trouble,
};
use crate::{
    proc::Of,
    sandbox::{
        self, Api, DeleteOptions, Effect, Fault, Sandbox, Write,
        world::{NodeSpec, World, WorldOptions},
    },
};

/// How often it is looked whether all is well.
const STEP: TimeDelta = TimeDelta::minutes(10);
/// Events of this age are deleted, as API servers do.
const EVENT_AGE: TimeDelta = TimeDelta::hours(1);
/// From two at night nothing new befalls the town, and nothing is measured from three to five: after half an hour, in which
/// checkpoints come to rest, nothing may be written.
const CALM: std::ops::Range<u32> = 2 * 60..5 * 60;
const UNMEASURED: u32 = 3 * 60;
const QUIET: u32 = 3 * 60 + 30;
/// Memory may grow by this share in the days that count, which is the noise of an allocator.
const FLAT: f64 = 0.05;

/// Let a week pass on the sandbox, with everything that can go wrong
///
/// Workloads with their VPAs, the three daemons with the native sidecar gate on, and by seeded chance: rollouts, leaks into
/// OOM kills, node pressure, changes of load, workloads that go and come, API errors, lost watches, webhooks and metrics,
/// daemons restarted and killed. All the time: no panic, no daemon that ends, no pod acted on without need, no group below
/// its disruption budget, no eviction loop, recommendations in order and within their policy. Each night a quiet stretch
/// in which nothing may be written. Memory of the whole process, the sandbox included, must be flat over the last
/// five sevenths of the time.
///
///   cargo run --profile ci -p hack -- soak
///   cargo run -p hack -- soak --days 1 --pods 100        a small one, for a debug build
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// How long it may take at most; not to get to the end is a failure
    #[arg(long, default_value_t = 20)]
    minutes: u64,
    /// How many days pass
    #[arg(long, default_value_t = 7.0)]
    days: f64,
    /// How many pods there are
    #[arg(long, default_value_t = 2000)]
    pods: usize,
    /// What decides over luck
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Args {
    /// A small one, for tests.
    #[must_use]
    pub fn small(days: f64, pods: usize, seed: u64) -> Self {
        Self {
            minutes: 10,
            days,
            pods,
            seed,
        }
    }

    /// Runs the soak.
    ///
    /// # Errors
    /// When the sandbox does not work as it should.
    pub async fn run(self) -> Result<ExitCode> {
        Ok(match self.broken().await?.as_slice() {
            [] => ExitCode::SUCCESS,
            [..] => ExitCode::FAILURE,
        })
    }

    /// Runs the soak; gives what was broken.
    ///
    /// # Errors
    /// When the sandbox does not work as it should.
    pub async fn broken(self) -> Result<Vec<String>> {
        let deadline = Instant::now() + Duration::from_secs(self.minutes * 60);
        let panics = count_panics();
        let mut soak = Soak::start(&self, panics).await?;
        let span = TimeDelta::from_std(Duration::from_secs_f64(self.days.max(0.0) * 86_400.0))?;
        let end = soak.begin + span;
        while soak.time.now() < end && Instant::now() < deadline {
            soak.step().await?;
        }
        let passed = soak.time.now() - soak.begin;
        if passed < span {
            soak.broken.push(format!(
                "only {:.2} of {} days passed in {} minutes",
                days(passed),
                self.days,
                self.minutes
            ));
        }
        soak.finish().await
    }
}

/// Panics of the whole process, wherever they are caught.
fn count_panics() -> Arc<AtomicUsize> {
    let panics = Arc::new(AtomicUsize::new(0));
    let (seen, print) = (panics.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        seen.fetch_add(1, Ordering::Relaxed);
        print(panic);
    }));
    panics
}

/// By workload, the uids of its pods and how often each was restarted.
type Residents = BTreeMap<String, BTreeSet<(String, u64)>>;

struct Soak {
    time: VirtualClock,
    begin: DateTime<Utc>,
    started: Instant,
    /// Kept alive.
    _world: World,
    server: Sandbox,
    town: Town,
    trouble: Trouble,
    daemons: Daemons,
    book: Book,
    panics: Arc<AtomicUsize>,
    /// The fault by which nothing is measured, and what is written meanwhile.
    unmeasured: Option<u64>,
    is_quiet: bool,
    quiet: u64,
    /// Those about workloads that had changed.
    excused: u64,
    quiet_minutes: i64,
    ooms: usize,
    /// When the quiet began.
    residents: Residents,
    /// Days, and MiB.
    memory: Vec<(f64, f64)>,
    broken: Vec<String>,
}

impl Soak {
    async fn start(args: &Args, panics: Arc<AtomicUsize>) -> Result<Self> {
        let started = Instant::now();
        let begin = DateTime::from_timestamp(1_772_323_200, 0).unwrap_or_default();
        let time = VirtualClock::starting_at(begin);
        time.let_work_side_by_side();
        let server = Sandbox::start(sandbox::Options {
            clock: time.clock(),
            seed: args.seed,
            history: 2_000,
            ..sandbox::Options::default()
        })
        .await?;
        sandbox::install_crds(server.api()).await?;
        // Room for a rollout of a few at once, and not much more.
        let nodes: Vec<NodeSpec> = (0..=args.pods / 80)
            .map(|index| NodeSpec::new(&format!("node-{index}"), "20", "40Gi"))
            .collect();
        let world = World::start(
            &server,
            WorldOptions {
                nodes: nodes.clone(),
                tick: Duration::from_secs(10),
                resolution: Duration::from_secs(60),
                memory_check: Duration::from_secs(120),
                seed: args.seed,
                ..WorldOptions::default()
            },
        )
        .await?;
        let mut luck = Luck::new(args.seed);
        let town = Town::found(server.api().clone(), args.pods, &mut luck).await?;
        let book = Book::new(server.store().clone(), time.clock());
        let mut config = kube::Config::new(server.url().parse()?);
        config.default_retry = false;
        let daemons = Daemons::start(config, time.clock(), book.tap())?;
        let trouble = Trouble::new(
            luck,
            time.clone(),
            server.faults().clone(),
            world.load().clone(),
            &nodes,
        );
        println!(
            "{} pods of {} workloads on {} nodes",
            args.pods,
            town.workloads.len(),
            nodes.len()
        );
        Ok(Self {
            time,
            begin,
            started,
            _world: world,
            server,
            town,
            trouble,
            daemons,
            book,
            panics,
            unmeasured: None,
            is_quiet: false,
            quiet: 0,
            excused: 0,
            quiet_minutes: 0,
            ooms: 0,
            residents: Residents::new(),
            memory: Vec::new(),
            broken: Vec::new(),
        })
    }

    /// Ten minutes.
    async fn step(&mut self) -> Result<()> {
        let from = self.time.now();
        let passed = from - self.begin;
        let minute = u32::try_from(passed.num_minutes() % (24 * 60)).unwrap_or_default();
        let is_calm = CALM.contains(&minute) && passed > TimeDelta::days(1);
        self.trouble.ease(&self.town, is_calm).await?;
        self.keep_quiet(is_calm, minute);
        if !is_calm {
            self.trouble.strike(&mut self.town, &mut self.daemons).await?;
        }
        let left = from + STEP - self.time.now();
        self.time.advance(left.to_std().unwrap_or_default()).await;
        self.check().await?;
        let now = self.time.now() - self.begin;
        if passed.num_hours() != now.num_hours() {
            self.expire_events().await?;
            self.book.forget_old();
            self.memory.push((days(now), Of::Ourselves.resident_mib()?));
            if now.num_hours() % 6 == 0 {
                self.tell(now)?;
            }
        }
        Ok(())
    }

    fn keep_quiet(&mut self, is_calm: bool, minute: u32) {
        if is_calm && minute >= UNMEASURED && self.unmeasured.is_none() {
            let gone = Effect::Error {
                code: 503,
                retry_after_seconds: None,
            };
            let fault = Fault::new(gone).verbs(&["list"]).on(&["pods.metrics.k8s.io"]);
            self.unmeasured = Some(self.server.faults().add(fault));
        }
        if is_calm && minute >= QUIET && !self.is_quiet {
            self.is_quiet = true;
            self.residents = self.residents();
            self.book.begin_quiet();
        }
        if !is_calm && let Some(fault) = self.unmeasured.take() {
            self.server.faults().remove(fault);
            self.is_quiet = false;
            self.quiet_minutes += i64::from(CALM.end - QUIET);
            self.judge_quiet();
        }
    }

    /// Who has changed may be written about: a pod that has become twelve hours old is a reason to act though nothing
    /// else has changed, and one that went is a reason for a checkpoint.
    fn judge_quiet(&mut self) {
        let Quiet { writes, acted_on } = self.book.end_quiet();
        let (before, after) = (std::mem::take(&mut self.residents), self.residents());
        let is_restless =
            |workload: &String| acted_on.contains(workload) || before.get(workload) != after.get(workload);
        let restless: BTreeSet<&String> = before
            .keys()
            .chain(after.keys())
            .filter(|workload| is_restless(workload))
            .collect();
        let night = (self.time.now() - self.begin).num_days();
        for (written, (count, last)) in writes {
            let Written {
                daemon,
                resource,
                workload,
            } = written;
            if restless.contains(&workload) || workload.is_empty() && !restless.is_empty() {
                self.excused += count;
                continue;
            }
            self.quiet += count;
            let broken = format!(
                "the {daemon} wrote {count} {resource} in the quiet night {night}, though {workload} is as it was: {last}"
            );
            println!("  BROKEN  {broken}");
            self.broken.push(broken);
        }
    }

    /// The pods of each workload and how often each was restarted.
    fn residents(&self) -> Residents {
        let mut residents = Residents::new();
        for pod in self.server.store().all("pods", None) {
            let Some(workload) = pod.label("app") else {
                continue;
            };
            let status = &pod.value()["status"];
            let lists = ["initContainerStatuses", "containerStatuses"];
            let statuses = lists.iter().filter_map(|list| status[list].as_array()).flatten();
            let restarts = statuses
                .filter_map(|status| status["restartCount"].as_u64())
                .sum();
            let pods = residents.entry(workload.to_owned()).or_default();
            pods.insert((pod.uid.to_string(), restarts));
        }
        residents
    }

    async fn check(&mut self) -> Result<()> {
        let panics = self.panics.swap(0, Ordering::Relaxed);
        let mut broken = self.book.broken();
        if panics > 0 {
            broken.push(format!("{panics} panics"));
        }
        broken.extend(self.daemons.look_after().await?);
        let vpas = "verticalpodautoscalers.autoscaling.k8s.io";
        for vpa in self.server.store().all(vpas, None) {
            broken.extend(disorder(&vpa.value()));
        }
        self.ooms += self.killed();
        let at = self.time.now().format("%d %H:%M");
        for broken in &broken {
            println!("  {at}  BROKEN  {broken}");
        }
        self.broken.append(&mut broken);
        Ok(())
    }

    /// Containers that were killed for their memory in this step.
    fn killed(&self) -> usize {
        let from = self.time.now() - STEP;
        let pods = self.server.store().all("pods", None);
        let killed = pods.iter().filter(|pod| contains(&pod.bytes, b"OOMKilled"));
        let ends = killed.flat_map(|pod| {
            let status = &pod.value()["status"];
            let lists = ["initContainerStatuses", "containerStatuses"];
            let lists = lists.iter().filter_map(|list| status[list].as_array());
            let containers: Vec<Value> = lists.flatten().cloned().collect();
            containers.into_iter().flat_map(|container| {
                ["state", "lastState"].map(|state| container[state]["terminated"].clone())
            })
        });
        ends.filter(|end| end["reason"] == "OOMKilled")
            .filter_map(|end| DateTime::parse_from_rfc3339(end["finishedAt"].as_str()?).ok())
            .filter(|finished| *finished >= from)
            .count()
    }

    /// What an API server does by itself, and a sandbox does not.
    async fn expire_events(&mut self) -> Result<()> {
        let api: &Api = self.server.api();
        let kind = api.kind("events")?;
        let oldest = self.time.now() - EVENT_AGE;
        for event in self.server.store().all("events", None) {
            let value = event.value();
            let created = value["metadata"]["creationTimestamp"]
                .as_str()
                .unwrap_or_default();
            if DateTime::parse_from_rfc3339(created).is_ok_and(|created| created < oldest) {
                // Somebody may have been quicker.
                let options = DeleteOptions::default();
                drop(api.delete(&kind, &event.key, &options, &Write::default()).await);
            }
        }
        Ok(())
    }

    fn tell(&self, passed: TimeDelta) -> Result<()> {
        let sums = self.book.sums();
        println!(
            "day {:.2}  {} pods  {} resizes  {} evictions  {} refused  {} OOM kills  {} writes  {:.0} MiB  {} s",
            days(passed),
            self.server.store().count("pods"),
            sums.resizes,
            sums.evictions,
            sums.refusals,
            self.ooms,
            sums.writes,
            Of::Ourselves.resident_mib()?,
            self.started.elapsed().as_secs()
        );
        Ok(())
    }

    async fn finish(mut self) -> Result<Vec<String>> {
        let passed = self.time.now() - self.begin;
        println!();
        self.tell(passed)?;
        println!("{}", self.trouble.counts);
        for ((what, code), count) in self.book.refused() {
            println!("{count} {what} answered with {code}");
        }
        println!(
            "{} writes in {} quiet minutes, leases aside, and {} about workloads whose pods had changed",
            self.quiet, self.quiet_minutes, self.excused
        );
        let from = days(passed) * 2.0 / 7.0;
        let late: Vec<_> = self
            .memory
            .iter()
            .copied()
            .filter(|point| point.0 >= from)
            .collect();
        if let Some(line) = Line::through(&late) {
            let growth = line.slope * (days(passed) - from) / line.mean;
            println!(
                "memory from day {from:.1} on: {:.0} MiB, {:+.2} MiB a day, {:+.1} % in all",
                line.mean,
                line.slope,
                growth * 100.0
            );
            // A day or two are the time in which histories fill.
            if growth > FLAT && passed >= TimeDelta::days(5) {
                self.broken.push("memory grows".to_owned());
            }
        }
        self.daemons.stop().await?;
        if self.broken.is_empty() {
            println!("nothing was broken");
            return Ok(self.broken);
        }
        println!("{} times something was broken:", self.broken.len());
        for broken in self.broken.iter().take(20) {
            println!("  {broken}");
        }
        Ok(self.broken)
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn days(span: TimeDelta) -> f64 {
    span.as_seconds_f64() / 86_400.0
}

/// What is wrong with the recommendation of a VPA.
fn disorder(vpa: &Value) -> Option<String> {
    let name = vpa["metadata"]["name"].as_str().unwrap_or_default();
    let containers = vpa["status"]["recommendation"]["containerRecommendations"].as_array()?;
    for container in containers {
        for (resource, least, most) in [
            ("cpu", MIN_ALLOWED.0, MAX_ALLOWED.0),
            ("memory", MIN_ALLOWED.1, MAX_ALLOWED.1),
        ] {
            let amount = |field: &str| container[field][resource].as_str().unwrap_or_default();
            let steps = [
                least,
                amount("lowerBound"),
                amount("target"),
                amount("upperBound"),
                most,
            ];
            let read: Option<Vec<Quantity>> = steps.iter().map(|text| text.parse().ok()).collect();
            let is_in_order = read.is_some_and(|read| read.is_sorted_by(|a, b| a.cmp_value(b).is_le()));
            if !is_in_order {
                let container = container["containerName"].as_str().unwrap_or_default();
                return Some(format!(
                    "VPA {name}: {container} {resource} is out of order: {steps:?}"
                ));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_recommendation_is_in_order_or_not() {
        let vpa = |lower: &str, target: &str, upper: &str| {
            json!({"metadata": {"name": "v"}, "status": {"recommendation": {"containerRecommendations": [{
                "containerName": "app",
                "lowerBound": {"cpu": lower, "memory": "100Mi"}, "target": {"cpu": target, "memory": "100Mi"},
                "upperBound": {"cpu": upper, "memory": "1Gi"},
            }]}}})
        };
        for (value, is_well) in [
            (vpa("10m", "20m", "1"), true),
            (vpa("20m", "20m", "20m"), true),
            (vpa("30m", "20m", "1"), false),
            (vpa("5m", "20m", "1"), false),
            (vpa("10m", "20m", "1001m"), false),
            (vpa("10m", "", "1"), false),
            (json!({"metadata": {"name": "v"}}), true),
        ] {
            assert_eq!(disorder(&value).is_none(), is_well, "{value}");
        }
    }
}
