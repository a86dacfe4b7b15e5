//! The clock that daemons are given: the machine's, or a virtual one that a sandbox moves, so that a day passes in
//! seconds. Only shells hold a clock; the pure code takes the time as an argument.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::{Notify, oneshot};

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
                let at = later(clock.now(), span);
                clock.wait(at, false).await;
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
    Virtual(DateTime<Utc>),
}

impl Ticker {
    /// Waits for the next tick. On a virtual clock, asking for the next tick says that the work of the last one is
    /// done: time stands still in between.
    pub async fn tick(&mut self) {
        self.work = None;
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
                let now = clock.now();
                let due = match self.due {
                    Some(Due::Virtual(last)) => later(last, self.period).max(now),
                    _ => later(now, self.period),
                };
                self.work = clock.wait(due, true).await;
                self.due = Some(Due::Virtual(due));
            }
        }
    }
}

/// Time that moves only when it is told to. Cloning gives another handle to the same clock.
#[derive(Clone, Debug)]
pub struct VirtualClock {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    now: DateTime<Utc>,
    /// What would be shown if there had been no jumps and the clock had started at zero.
    elapsed: Duration,
    sleepers: BinaryHeap<Reverse<Sleeper>>,
    next_id: u64,
    working: usize,
}

#[derive(Debug)]
struct Sleeper {
    at: DateTime<Utc>,
    id: u64,
    works: bool,
    wake: oneshot::Sender<Option<Work>>,
}

impl State {
    fn run_to(&mut self, at: DateTime<Utc>) {
        self.elapsed += (at - self.now).to_std().unwrap_or(Duration::ZERO);
        self.now = self.now.max(at);
    }
}

/// Held while a tick's work is under way: the clock stands still until it is dropped, also when the one who waited
/// for the tick has gone away meanwhile.
#[derive(Debug)]
struct Work(VirtualClock);

impl Drop for Work {
    fn drop(&mut self) {
        self.0.lock().working -= 1;
        self.0.changed.notify_waiters();
    }
}

impl PartialEq for Sleeper {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Sleeper {}

impl PartialOrd for Sleeper {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Sleeper {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.id).cmp(&(other.at, other.id))
    }
}

impl VirtualClock {
    /// A clock that shows `now` until it is moved.
    #[must_use]
    pub fn starting_at(now: DateTime<Utc>) -> Self {
        let state = State {
            now,
            elapsed: Duration::ZERO,
            sleepers: BinaryHeap::new(),
            next_id: 0,
            working: 0,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            changed: Arc::new(Notify::new()),
        }
    }

    /// What a daemon is given.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock(Source::Virtual(self.clone()))
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> DateTime<Utc> {
        self.lock().now
    }

    fn moment(&self) -> Moment {
        Moment(self.lock().elapsed)
    }

    /// Moves time forward by `span`, stopping at every moment somebody waits for, and going on only when all that
    /// woke there have done their work.
    pub async fn advance(&self, span: Duration) {
        let end = later(self.now(), span);
        loop {
            self.idle().await;
            if !self.step(end) {
                return;
            }
        }
    }

    /// Sets the time, forward or backward, as a machine's clock may jump. Who waits for a moment that is now past
    /// wakes at the next [`advance`](Self::advance).
    pub fn jump(&self, now: DateTime<Utc>) {
        self.lock().now = now;
    }

    /// Waits until no ticker's work is under way.
    pub async fn idle(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.lock().working == 0 {
                return;
            }
            changed.await;
        }
    }

    /// Wakes the next sleeper due by `end`; false when there is none and the time is `end`.
    fn step(&self, end: DateTime<Utc>) -> bool {
        let mut state = self.lock();
        let due = state.sleepers.peek().is_some_and(|Reverse(next)| next.at <= end);
        let Some(Reverse(sleeper)) = due.then(|| state.sleepers.pop()).flatten() else {
            state.run_to(end);
            return false;
        };
        state.run_to(sleeper.at);
        let work = sleeper.works.then(|| Work(self.clone()));
        state.working += usize::from(work.is_some());
        // Unlocked first: work that nobody takes is dropped here, and that locks.
        drop(state);
        drop(sleeper.wake.send(work));
        true
    }

    async fn wait(&self, at: DateTime<Utc>, works: bool) -> Option<Work> {
        let (wake, woken) = oneshot::channel();
        {
            let mut state = self.lock();
            let id = state.next_id;
            state.next_id += 1;
            state.sleepers.push(Reverse(Sleeper { at, id, works, wake }));
        }
        // The sender lives in the heap until it is used, so there is always an answer.
        woken.await.ok().flatten()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn later(now: DateTime<Utc>, span: Duration) -> DateTime<Utc> {
    TimeDelta::from_std(span)
        .ok()
        .and_then(|span| now.checked_add_signed(span))
        .unwrap_or(DateTime::<Utc>::MAX_UTC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    fn noon() -> DateTime<Utc> {
        DateTime::from_timestamp(1_772_366_400, 0).unwrap()
    }

    #[tokio::test]
    async fn a_virtual_day_has_1440_minutes_whatever_the_work_between_them() {
        let time = VirtualClock::starting_at(noon());
        let clock = time.clock();
        let (ticks, mut seen) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut ticker = clock.ticker(Duration::from_secs(60));
            loop {
                ticker.tick().await;
                tokio::task::yield_now().await;
                if ticks.send(clock.now()).is_err() {
                    return;
                }
            }
        });
        tokio::task::yield_now().await;
        time.advance(Duration::from_secs(86_400)).await;
        time.idle().await;
        let mut times = Vec::new();
        while let Ok(at) = seen.try_recv() {
            times.push(at);
        }
        assert_eq!(times.len(), 1440);
        assert_eq!(times.first(), Some(&(noon() + TimeDelta::minutes(1))));
        assert_eq!(times.last(), Some(&(noon() + TimeDelta::days(1))));
    }

    #[tokio::test]
    async fn who_stops_waiting_does_not_hold_the_clock() {
        let time = VirtualClock::starting_at(noon());
        let clock = time.clock();
        let mut ticker = clock.ticker(Duration::from_secs(1));
        tokio::select! {
            biased;
            () = ticker.tick() => unreachable!("time stands still"),
            () = std::future::ready(()) => {}
        }
        time.advance(Duration::from_secs(10)).await;
        assert_eq!(time.now(), noon() + TimeDelta::seconds(10));
    }

    #[tokio::test(start_paused = true)]
    async fn the_machine_s_ticker_leaves_out_what_it_missed() {
        let clock = Clock::system();
        let start = tokio::time::Instant::now();
        let mut ticker = clock.ticker(Duration::from_secs(10));
        ticker.tick().await;
        assert_eq!(start.elapsed().as_secs(), 10);
        tokio::time::sleep(Duration::from_secs(25)).await;
        ticker.tick().await;
        assert_eq!(start.elapsed().as_secs(), 35);
        ticker.tick().await;
        assert_eq!(start.elapsed().as_secs(), 45);
    }

    #[tokio::test]
    async fn moments_measure_what_passed_and_not_what_the_calendar_says() {
        let time = VirtualClock::starting_at(noon());
        let clock = time.clock();
        let start = clock.moment();
        time.advance(Duration::from_secs(60)).await;
        time.jump(noon() - TimeDelta::days(1));
        assert_eq!(clock.moment().since(start), Duration::from_secs(60));
        time.advance(Duration::from_secs(5)).await;
        assert_eq!(clock.moment().since(start), Duration::from_secs(65));
        assert_eq!(start.since(clock.moment()), Duration::ZERO);
    }

    #[tokio::test]
    async fn a_jump_back_makes_sleepers_wait_longer() {
        let time = VirtualClock::starting_at(noon());
        let clock = time.clock();
        let sleeper = tokio::spawn(async move { clock.sleep(Duration::from_secs(60)).await });
        tokio::task::yield_now().await;
        time.jump(noon() - TimeDelta::seconds(60));
        time.advance(Duration::from_secs(119)).await;
        assert!(!sleeper.is_finished());
        time.advance(Duration::from_secs(1)).await;
        sleeper.await.unwrap();
    }
}
