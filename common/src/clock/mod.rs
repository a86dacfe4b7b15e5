//! The clock that daemons are given: the machine's, or a virtual one that a sandbox moves, so that a day passes in
//! seconds. Only shells hold a clock; the pure code takes the time as an argument.

mod simulated;
#[cfg(test)]
mod tests;

use std::time::Duration;

use chrono::{DateTime, Utc};

pub use self::simulated::VirtualClock;
use self::simulated::Work;

/// Tells the time and waits for it.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System { origin: tokio::time::Instant },
    Virtual(VirtualClock),
}

/// A reading that only grows, for measuring spans: the calendar may jump, this does not. Readings of one clock and
/// its clones compare with each other and with nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The reading when this much time had passed on its clock.
    #[must_use]
    pub const fn after(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// How long ago `earlier` was; zero if it was not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl std::ops::Add<Duration> for Moment {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }
}

impl Clock {
    /// The machine's clock.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System {
            origin: tokio::time::Instant::now(),
        })
    }

    /// What time it is.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the machine's clock"
    )]
    pub fn now(&self) -> DateTime<Utc> {
        match &self.0 {
            Source::System { .. } => Utc::now(),
            Source::Virtual(clock) => clock.now(),
        }
    }

    /// How far this clock has run, whatever the calendar did meanwhile.
    #[must_use]
    pub fn moment(&self) -> Moment {
        match &self.0 {
            Source::System { origin } => Moment(origin.elapsed()),
            Source::Virtual(clock) => clock.moment(),
        }
    }

    /// Waits for a span of this clock's time.
    pub async fn sleep(&self, span: Duration) {
        match &self.0 {
            Source::System { .. } => tokio::time::sleep(span).await,
            Source::Virtual(clock) => {
                clock.wait(clock.moment() + span, false).await;
            }
        }
    }

    /// A loop's heartbeat: the first tick comes after one full period, as with VPA's daemons. A tick that was
    /// missed because the work took longer is left out, not made up for.
    #[must_use]
    pub fn ticker(&self, period: Duration) -> Ticker {
        Ticker {
            clock: self.clone(),
            period,
            due: None,
            work: None,
        }
    }
}

/// See [`Clock::ticker`].
#[derive(Debug)]
pub struct Ticker {
    clock: Clock,
    period: Duration,
    due: Option<Due>,
    work: Option<Work>,
}

#[derive(Debug)]
enum Due {
    System(tokio::time::Instant),
    Virtual(Moment),
}

impl Ticker {
    /// Waits for the next tick. On a virtual clock, asking for the next tick says that the work of the last one is
    /// done: time stands still in between.
    pub async fn tick(&mut self) {
        match &self.clock.0 {
            Source::System { .. } => {
                let now = tokio::time::Instant::now();
                let due = match self.due {
                    Some(Due::System(last)) => (last + self.period).max(now),
                    _ => now + self.period,
                };
                tokio::time::sleep_until(due).await;
                self.due = Some(Due::System(due));
            }
            Source::Virtual(clock) => {
                let now = clock.moment();
                let due = match self.due {
                    Some(Due::Virtual(last)) => (last + self.period).max(now),
                    _ => now + self.period,
                };
                // Only who waits already may let the clock go on: it could be moved past this tick by another thread.
                let woken = clock.wait(due, true);
                self.work = None;
                self.work = woken.await;
                self.due = Some(Due::Virtual(due));
            }
        }
    }
}
