//! Runs scenarios side by side, each in a namespace of its own, and prints what came out.

use std::{fmt, panic::AssertUnwindSafe, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args as ClapArgs;
use futures::{FutureExt as _, StreamExt as _, stream};

use super::{On, Places, Scenario, all};

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
        let places = Places::prepare(on, &chosen).await?;
        let mut failed = 0;
        for round in 1..=repeat {
            if repeat > 1 {
                println!("round {round} of {repeat}");
            }
            let report = run_all(&places, &chosen, jobs).await;
            println!("{report}");
            failed += report.failed();
        }
        places.stop().await?;
        ensure!(failed == 0, "{failed} failed on the {on}");
        Ok(())
    }
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

/// Runs scenarios, at most `jobs` side by side; a line is printed as each ends.
pub async fn run_all(places: &Places, scenarios: &[Scenario], jobs: usize) -> Report {
    let mut order: Vec<_> = scenarios.iter().collect();
    // Who starts a cluster first takes longest; at the end all others would be done and wait for it.
    order.sort_by_key(|scenario| !places.are_alone(scenario.needs));
    let runs = stream::iter(order).map(|scenario| async {
        let started = tokio::time::Instant::now();
        let outcome = run_one(places, scenario).await;
        let done = Done {
            name: scenario.name,
            on: places.on(),
            outcome,
            took: started.elapsed(),
        };
        println!("{done}");
        done
    });
    Report(runs.buffer_unordered(jobs.max(1)).collect().await)
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
        self.count(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    /// How many passed.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.count(|outcome| *outcome == Outcome::Passed)
    }

    /// Why the failed ones failed.
    pub fn failures(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().filter_map(|done| match &done.outcome {
            Outcome::Failed(why) => Some((done.name, why.as_str())),
            _ => None,
        })
    }

    fn count(&self, which: impl Fn(&Outcome) -> bool) -> usize {
        self.0.iter().filter(|done| which(&done.outcome)).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let skipped = self.count(|outcome| matches!(outcome, Outcome::Skipped(_)));
        write!(
            f,
            "{} passed, {} failed, {skipped} skipped",
            self.passed(),
            self.failed()
        )
    }
}
