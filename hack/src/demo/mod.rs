//! `make demo`: a small shop, a day of its load, and what the daemons make of it, live in the terminal.

mod daemons;
mod shop;
mod table;

use std::{
    io::{IsTerminal as _, Write as _},
    time::Duration,
};

use anyhow::Result;
use chrono::{DateTime, Utc};
use clap::Args as ClapArgs;
use common::clock::Clock;

use self::{daemons::Daemons, shop::Shop, table::Snapshot};
use crate::e2e::{On, Stage};

/// Watch Outrigger look after a small shop
///
/// A Deployment with an application, a mesh-like native sidecar and a log agent, and its load. On the sandbox a whole
/// day passes in less than a minute; on a real cluster it takes a few minutes, with real containers and a real kubelet.
///
///   hack demo                    on the sandbox, nothing else is needed
///   hack demo --on cluster       on a real cluster that is started for it and stopped after
#[derive(ClapArgs, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Where to run
    #[arg(long, value_enum, default_value = "sandbox")]
    on: On,
}

impl Args {
    /// Runs the demo.
    ///
    /// # Errors
    /// When the place cannot be made.
    pub async fn run(self) -> Result<()> {
        let Self { on } = self;
        println!("Starting the {on} …");
        let stage = Stage::start(on).await?;
        let pace = Pace::of(&stage);
        let shop = Shop::open(&stage).await?;
        let daemons = Daemons::start(&stage, &pace.clock)?;
        let result = watch(&stage, &shop, &pace).await;
        daemons.stop().await;
        shop.close().await?;
        stage.stop().await?;
        result
    }
}

/// How time goes by: a day in virtual time, some minutes of real time.
struct Pace {
    clock: Clock,
    step: Duration,
    steps: u32,
}

impl Pace {
    fn of(stage: &Stage) -> Self {
        match &stage.time {
            Some(time) => Self {
                clock: time.clock(),
                step: Duration::from_secs(600),
                steps: 144,
            },
            None => Self {
                clock: Clock::system(),
                step: Duration::from_secs(3),
                steps: 60,
            },
        }
    }
}

async fn watch(stage: &Stage, shop: &Shop, pace: &Pace) -> Result<()> {
    let begin = pace.clock.now();
    let mut screen = Screen::new(pace.steps / 6);
    let mut peak: Option<Snapshot> = None;
    for step in 1..=pace.steps {
        match &stage.time {
            Some(time) => time.advance(pace.step).await,
            None => {
                if step == pace.steps / 3 {
                    shop.rush().await?;
                }
                pace.clock.sleep(pace.step).await;
            }
        }
        let snapshot = shop.look().await?;
        screen.show(&frame(&snapshot, begin, pace.clock.now()), step == pace.steps)?;
        peak = Some(match peak {
            Some(peak) => peak.higher_usage(&snapshot),
            None => snapshot,
        });
    }
    if let Some(peak) = peak {
        println!("\n{}", peak.summary());
    }
    Ok(())
}

fn frame(snapshot: &Snapshot, begin: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let passed = now - begin;
    format!(
        "{} after {:02} h {:02} min\n{snapshot}",
        now.format("%H:%M"),
        passed.num_hours(),
        passed.num_minutes() % 60
    )
}

/// A terminal shows each frame over the last; a pipe gets only some of them.
struct Screen {
    live: bool,
    /// Of the frames that a pipe would get, one in so many.
    piped: u32,
    lines: usize,
    shown: u32,
}

impl Screen {
    fn new(piped: u32) -> Self {
        Self {
            live: std::io::stdout().is_terminal(),
            piped,
            lines: 0,
            shown: 0,
        }
    }

    fn show(&mut self, frame: &str, last: bool) -> Result<()> {
        self.shown += 1;
        if !self.live && !last && !self.shown.is_multiple_of(self.piped) {
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        if self.live && self.lines > 0 {
            // Up to where the last frame began, and clear from there.
            write!(out, "\x1b[{}A\x1b[J", self.lines)?;
        }
        writeln!(out, "{frame}")?;
        self.lines = frame.lines().count();
        out.flush()?;
        Ok(())
    }
}
