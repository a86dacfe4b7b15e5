//! Time that a test or a sandbox moves, from one moment that somebody waits for to the next.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::{Notify, oneshot};

use super::{Clock, Moment, Source};

/// Time that moves only when it is told to. Cloning gives another handle to the same clock.
#[derive(Clone, Debug)]
pub struct VirtualClock {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    now: DateTime<Utc>,
    /// How far it has run. Sleepers wait for this and not for a time of day: a machine's timers do not mind when its
    /// calendar is set.
    moment: Moment,
    sleepers: BinaryHeap<Reverse<Sleeper>>,
    next_id: u64,
    working: usize,
    side_by_side: bool,
}

#[derive(Debug)]
struct Sleeper {
    at: Moment,
    id: u64,
    works: bool,
    wake: oneshot::Sender<Option<Work>>,
}

impl State {
    fn run_to(&mut self, at: Moment) {
        self.now = later(self.now, at.since(self.moment));
        self.moment = self.moment.max(at);
    }
}

/// Held while a tick's work is under way: the clock stands still until it is dropped, also when the one who waited
/// for the tick has gone away meanwhile.
#[derive(Debug)]
pub(super) struct Work(VirtualClock);

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
            moment: Moment(Duration::ZERO),
            sleepers: BinaryHeap::new(),
            next_id: 0,
            working: 0,
            side_by_side: false,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            changed: Arc::new(Notify::new()),
        }
    }

    /// From now on those who wait for the same moment work side by side, which takes less of the machine's time, and not
    /// one after the other, which tells the same story each time.
    pub fn let_work_side_by_side(&self) {
        self.lock().side_by_side = true;
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

    pub(super) fn moment(&self) -> Moment {
        self.lock().moment
    }

    /// Moves time forward by `span`, stopping at every moment somebody waits for, and going on only when all that
    /// woke there have done their work.
    pub async fn advance(&self, span: Duration) {
        let end = self.moment() + span;
        loop {
            self.idle().await;
            if !self.step(end) {
                return;
            }
        }
    }

    /// Sets the time, forward or backward, as a machine's clock may jump. Who waits is not woken sooner or later by it.
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

    /// Wakes the next sleeper due by `end`, or all who wait for that moment; false when there is none and the clock has run
    /// to `end`.
    fn step(&self, end: Moment) -> bool {
        let mut state = self.lock();
        let next = state.sleepers.peek().map(|Reverse(next)| next.at);
        let Some(at) = next.filter(|at| *at <= end) else {
            state.run_to(end);
            return false;
        };
        state.run_to(at);
        let mut due = Vec::new();
        while (due.is_empty() || state.side_by_side)
            && state.sleepers.peek().is_some_and(|Reverse(next)| next.at <= at)
            && let Some(Reverse(sleeper)) = state.sleepers.pop()
        {
            let work = sleeper.works.then(|| Work(self.clone()));
            state.working += usize::from(work.is_some());
            due.push((sleeper.wake, work));
        }
        // Unlocked first: work that nobody takes is dropped here, and that locks.
        drop(state);
        for (wake, work) in due {
            drop(wake.send(work));
        }
        true
    }

    /// Waits from now on, whether or not the answer is asked for yet.
    pub(super) fn wait(&self, at: Moment, works: bool) -> impl Future<Output = Option<Work>> + use<> {
        let (wake, woken) = oneshot::channel();
        let mut state = self.lock();
        let id = state.next_id;
        state.next_id += 1;
        state.sleepers.push(Reverse(Sleeper { at, id, works, wake }));
        // The sender lives in the heap until it is used, so there is always an answer.
        async { woken.await.ok().flatten() }
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
