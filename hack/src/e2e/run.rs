//! Runs scenarios side by side, each in a namespace of its own, and prints what came out.

use std::{fmt, panic::AssertUnwindSafe, pin::pin, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args as ClapArgs;
use futures::{FutureExt as _, StreamExt as _, stream};
use tokio::sync::Mutex;

use super::{On, Places, Scenario, all};
use crate::interrupt::interrupted;

/// Run scenarios on the sandbox or on a real cluster
///
/// Each scenario runs in a namespace of its own, several side by side; none sleeps for a fixed time. One that needs
/// something the place does not have is skipped, and the reason is printed.
///
///   hack e2e --list                           what there is
///   hack e2e --on sandbox                     all of it, here and now
///   hack e2e --on cluster                     on a real cluster that is started for it and stopped after
///   hack e2e --on kubeconfig --scenario resize-lands
///                                             one, on the cluster of KUBECONFIG
#[derive(ClapArgs, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Where to run
    #[arg(long, value_enum, default_value = "sandbox")]
    on: On,
    /// Run only this scenario; may be given several times
    #[arg(long = "scenario", value_name = "NAME")]
    scenarios: Vec<String>,
    /// Run everything this often, to find what is flaky
    #[arg(long, default_value_t = 1)]
    repeat: u32,
    /// How many run side by side
    #[arg(long, default_value_t = 4)]
    jobs: usize,
    /// Say what there is and run nothing
    #[arg(long)]
    list: bool,
}

impl Args {
    /// Runs them.
    ///
    /// # Errors
    /// When the place cannot be made or a scenario fails.
    pub async fn run(self) -> Result<()> {
        let Self {
            on,
            scenarios,
            repeat,
            jobs,
            list,
        } = self;
        let chosen = choose(&scenarios)?;
        if list {
            for scenario in chosen {
                println!("{:<NAME$} {}", scenario.name, scenario.about);
            }
            return Ok(());
        }
        tokio::select! {
            result = run_and_tell(on, &chosen, repeat, jobs) => result,
            // Whatever a scenario has started ends when the scenario is dropped.
            result = interrupted() => result.and_then(|()| bail!("interrupted")),
        }
    }
}

async fn run_and_tell(on: On, scenarios: &[Scenario], rounds: u32, jobs: usize) -> Result<()> {
    let places = Places::prepare(on, scenarios).await?;
    let report = run_all(&places, scenarios, rounds, jobs).await;
    println!("{report}");
    places.stop().await?;
    let failed = report.failed();
    ensure!(failed == 0, "{failed} failed on the {on}");
    Ok(())
}

fn choose(names: &[String]) -> Result<Vec<Scenario>> {
    let mut chosen = all();
    if let Some(unknown) = names
        .iter()
        .find(|name| chosen.iter().all(|scenario| scenario.name != name.as_str()))
    {
        let known: Vec<_> = chosen.iter().map(|scenario| scenario.name).collect();
        bail!("there is no scenario {unknown}; there are: {}", known.join(", "));
    }
    chosen.retain(|scenario| names.is_empty() || names.iter().any(|name| name == scenario.name));
    Ok(chosen)
}

/// Runs scenarios so many times, at most `jobs` side by side; a line is printed as each ends. A round begins while the last
/// scenarios of the one before are still at it, but no scenario runs beside itself.
pub async fn run_all(places: &Places, scenarios: &[Scenario], rounds: u32, jobs: usize) -> Report {
    let mut order: Vec<_> = scenarios
        .iter()
        .map(|scenario| (scenario, Mutex::new(())))
        .collect();
    // Who starts a cluster first takes longest; at the end all others would be done and wait for it.
    order.sort_by_key(|(scenario, _)| !places.are_alone(scenario.needs));
    let order = &order;
    let turns = (1..=rounds).flat_map(|round| order.iter().map(move |turn| (round, turn)));
    let runs = stream::iter(turns).map(|(round, (scenario, turn))| async move {
        let _turn = turn.lock().await;
        let started = tokio::time::Instant::now();
        let outcome = run_one(places, scenario).await;
        Done {
            round,
            name: scenario.name,
            on: places.on(),
            outcome,
            took: started.elapsed(),
        }
    });
    let mut runs = pin!(runs.buffer_unordered(jobs.max(1)));
    let mut report = Report(Vec::new());
    while let Some(done) = runs.next().await {
        println!("{done}");
        let round = done.round;
        report.0.push(done);
        let so_far = Tally::of(report.0.iter().filter(|done| done.round == round));
        if rounds > 1 && so_far.all() == scenarios.len() {
            println!("round {round} of {rounds}: {so_far}");
        }
    }
    report
}

async fn run_one(places: &Places, scenario: &Scenario) -> Outcome {
    if let Some(need) = places.lacks(scenario.needs) {
        return Outcome::Skipped(need.missing());
    }
    let attempt = async {
        let stage = places.stage_for(scenario.needs).await?;
        let world = stage.world(scenario.name).await?;
        let result = (scenario.run)(&world).await;
        let removed = world.remove().await.context("removing the namespace");
        result.and(removed)
    };
    // One scenario's bug is not the end of the others.
    match AssertUnwindSafe(attempt).catch_unwind().await {
        Ok(Ok(())) => Outcome::Passed,
        Ok(Err(error)) => Outcome::Failed(format!("{error:#}")),
        Err(_) => Outcome::Failed("it panicked".to_owned()),
    }
}

/// The column of names.
const NAME: usize = 34;

/// How a scenario ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It holds.
    Passed,
    /// It does not; why.
    Failed(String),
    /// It could not be tried here; why.
    Skipped(&'static str),
}

#[derive(Debug)]
struct Done {
    round: u32,
    name: &'static str,
    on: On,
    outcome: Outcome,
    took: Duration,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, why) = match &self.outcome {
            Outcome::Passed => ("ok", String::new()),
            Outcome::Failed(why) => ("FAILED", format!("\n    {}", why.replace('\n', "\n    "))),
            Outcome::Skipped(why) => ("skipped", format!("  {why}")),
        };
        write!(
            f,
            "{word:<8}{:<NAME$} {:<11}{:>6.1} s{why}",
            self.name,
            self.on.to_string(),
            self.took.as_secs_f64()
        )
    }
}

/// How all of them ended.
#[derive(Debug)]
pub struct Report(Vec<Done>);

impl Report {
    /// How many failed.
    #[must_use]
    pub fn failed(&self) -> usize {
        Tally::of(&self.0).failed
    }

    /// How many passed.
    #[must_use]
    pub fn passed(&self) -> usize {
        Tally::of(&self.0).passed
    }

    /// Why the failed ones failed.
    pub fn failures(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().filter_map(|done| match &done.outcome {
            Outcome::Failed(why) => Some((done.name, why.as_str())),
            _ => None,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Tally::of(&self.0).fmt(f)
    }
}

/// How many ended in which way.
#[derive(Debug, Default)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Tally {
    fn of<'d>(done: impl IntoIterator<Item = &'d Done>) -> Self {
        let mut tally = Self::default();
        for done in done {
            match done.outcome {
                Outcome::Passed => tally.passed += 1,
                Outcome::Failed(_) => tally.failed += 1,
                Outcome::Skipped(_) => tally.skipped += 1,
            }
        }
        tally
    }

    fn all(&self) -> usize {
        self.passed + self.failed + self.skipped
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
        } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}
