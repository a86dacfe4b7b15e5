//! Whether the daemon's loop still turns: `/health-check` as VPA serves it (`spec/vpa.md` 5.3).

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::clock::{Clock, Moment};

/// When something was last done. Cloning gives another handle to the same.
#[derive(Clone, Debug)]
pub struct Activity {
    clock: Clock,
    limit: Option<Duration>,
    /// None until monitoring starts: before that, waiting for a lease or a first list is no fault.
    last: Arc<Mutex<Option<Moment>>>,
}

impl Activity {
    /// A loop that has to come round within five of its intervals, once it is monitored.
    #[must_use]
    pub fn every(interval: Duration, clock: Clock) -> Self {
        Self::new(Some(interval.saturating_mul(5)), clock)
    }

    /// Something that has no loop, such as admission.
    #[must_use]
    pub fn unlimited(clock: Clock) -> Self {
        Self::new(None, clock)
    }

    fn new(limit: Option<Duration>, clock: Clock) -> Self {
        let last = Arc::default();
        Self { clock, limit, last }
    }

    /// Says that something has been done just now; the first time also starts the monitoring.
    pub fn mark(&self) {
        let now = self.clock.moment();
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    /// How long nothing has been done, if that is too long.
    #[must_use]
    pub fn overdue(&self) -> Option<Duration> {
        let last = (*self.last.lock().unwrap_or_else(PoisonError::into_inner))?;
        let ago = self.clock.moment().since(last);
        (ago > self.limit?).then_some(ago)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::VirtualClock;
    use chrono::DateTime;

    #[tokio::test]
    async fn overdue_after_five_intervals_without_activity() {
        let time = VirtualClock::starting_at(DateTime::UNIX_EPOCH);
        let activity = Activity::every(Duration::from_secs(60), time.clock());
        time.advance(Duration::from_secs(3600)).await;
        assert_eq!(activity.overdue(), None, "not monitored yet");
        activity.mark();
        time.advance(Duration::from_secs(300)).await;
        assert_eq!(activity.overdue(), None);
        time.advance(Duration::from_secs(1)).await;
        assert_eq!(activity.overdue(), Some(Duration::from_secs(301)));
        activity.mark();
        assert_eq!(activity.overdue(), None);
    }

    #[tokio::test]
    async fn what_has_no_loop_is_never_overdue() {
        let time = VirtualClock::starting_at(DateTime::UNIX_EPOCH);
        let activity = Activity::unlimited(time.clock());
        activity.mark();
        time.advance(Duration::from_secs(86_400)).await;
        assert_eq!(activity.overdue(), None);
    }
}
