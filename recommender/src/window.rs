//! The samples of one container of one pod: CPU in order of time, and memory as one peak for each window
//! (`spec/vpa.md` 2.4). What is accepted goes into the container's aggregate.

use crate::{
    aggregate::{Aggregate, Settings},
    instant, num,
};
use chrono::{DateTime, TimeDelta, Utc};
use common::{
    quantity::{Bytes, MilliCpu},
    quirks::{Quirk, Quirks},
};

/// Above this no amount is computed, be it millicores or bytes.
const MAX_AMOUNT: i64 = 100_000_000_000_000;

/// What the next sample of a container is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    last_cpu: Option<DateTime<Utc>>,
    last_memory: Option<DateTime<Utc>>,
    window: Option<Window>,
}

/// A window of memory use and its peak so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// When it ends; the peak is counted as seen at that time.
    pub end: DateTime<Utc>,
    /// The most that was used.
    pub usage_peak: Bytes,
    /// The most that was needed after an OOM.
    pub oom_peak: Bytes,
}

impl Window {
    /// The peak that the histogram has of this window.
    #[must_use]
    pub fn peak(&self) -> Bytes {
        self.usage_peak.max(self.oom_peak)
    }
}

/// Why a sample does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// Nobody knows the pod.
    #[error("unknown pod")]
    UnknownPod,
    /// The pod has no such container.
    #[error("unknown container")]
    UnknownContainer,
    /// The container is not managed: an ordinary init container, or a native sidecar with the gate off.
    #[error("init container")]
    InitContainer,
    /// Less than nothing cannot be used.
    #[error("negative usage")]
    Negative,
    /// A later sample was there before.
    #[error("out of order")]
    OutOfOrder,
    /// The OOM lies more than a window before the last sample.
    #[error("too old")]
    TooOld,
    /// It claims to be taken later than now.
    #[error("from the future")]
    FromTheFuture,
}

/// What an accepted sample changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Nothing that anybody can see: the peak of the window is higher.
    Unchanged,
    /// The aggregate.
    Changed,
}

/// How samples are counted: the settings of the aggregate they go into, and VPA's ways.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// Of the aggregate.
    pub settings: &'a Settings,
    /// VPA's ways that are wanted.
    pub quirks: Quirks,
}

impl Rules<'_> {
    fn forget(&self) -> bool {
        !self.quirks.has(Quirk::UnboundedMemoryWindow)
    }

    fn add_peak(&self, aggregate: &mut Aggregate, peak: Bytes, end: DateTime<Utc>) {
        aggregate.add_peak(peak, end, self.settings, self.forget());
    }

    fn subtract_peak(&self, aggregate: &mut Aggregate, peak: Bytes, end: DateTime<Utc>) {
        aggregate.subtract_peak(peak, end, self.settings, self.forget());
    }

    /// The memory that a container should have had that was killed with this much.
    fn needed(&self, used: Bytes) -> Bytes {
        let Settings {
            oom_ratio,
            oom_min_bump,
            memory_cap,
            ..
        } = *self.settings;
        let raised = used.saturating_add(Bytes(amount(oom_min_bump)));
        let needed = raised.max(Bytes(amount(num::float(used.0) * oom_ratio)));
        match memory_cap {
            // Nobody can be given more than the cap: a bump above it would be repeated with every OOM and never
            // come true (kubernetes/autoscaler#9521). What was really used still counts in full.
            Some(cap) if !self.quirks.has(Quirk::OomBumpIgnoresCap) => needed.min(cap.max(used)),
            _ => needed,
        }
    }
}

impl Samples {
    /// The current window, once there was a memory sample.
    #[must_use]
    pub fn window(&self) -> Option<Window> {
        self.window
    }

    /// Continues a window from before a restart, whose peak goes into the aggregate. Not if another one has begun
    /// since; says whether the window needs no further care.
    pub fn resume(&mut self, window: Window, aggregate: &mut Aggregate, rules: Rules<'_>) -> bool {
        if let Some(current) = self.window {
            // Another VPA over the same pod brought it.
            return current.end == window.end;
        }
        rules.add_peak(aggregate, window.peak(), window.end);
        self.window = Some(window);
        true
    }

    /// Whether a CPU sample would count.
    ///
    /// # Errors
    /// When it would not.
    pub fn check_cpu(&self, usage: MilliCpu, time: DateTime<Utc>) -> Result<(), Rejected> {
        if usage < MilliCpu::ZERO {
            return Err(Rejected::Negative);
        }
        if self.last_cpu.is_some_and(|last| time <= last) {
            return Err(Rejected::OutOfOrder);
        }
        Ok(())
    }

    /// Whether a memory sample would count.
    ///
    /// # Errors
    /// When it would not.
    pub fn check_memory(&self, usage: Bytes, time: DateTime<Utc>) -> Result<(), Rejected> {
        if usage < Bytes::ZERO {
            return Err(Rejected::Negative);
        }
        if self.last_memory.is_some_and(|last| time < last) {
            return Err(Rejected::OutOfOrder);
        }
        Ok(())
    }

    /// Counts a CPU sample.
    ///
    /// # Errors
    /// When it does not count.
    pub fn add_cpu(
        &mut self,
        usage: MilliCpu,
        time: DateTime<Utc>,
        aggregate: &mut Aggregate,
    ) -> Result<Accepted, Rejected> {
        self.check_cpu(usage, time)?;
        self.last_cpu = Some(time);
        aggregate.history.add_cpu(usage, time);
        Ok(Accepted::Changed)
    }

    /// Counts a memory sample.
    ///
    /// # Errors
    /// When it does not count.
    pub fn add_memory(
        &mut self,
        usage: Bytes,
        time: DateTime<Utc>,
        aggregate: &mut Aggregate,
        rules: Rules<'_>,
    ) -> Result<Accepted, Rejected> {
        self.check_memory(usage, time)?;
        Ok(self.observe(usage, time, aggregate, rules, |window| &mut window.usage_peak))
    }

    /// Counts a kill for want of memory, of a container that had asked for this much.
    ///
    /// # Errors
    /// When it does not count.
    pub fn add_oom(
        &mut self,
        requested: Bytes,
        time: DateTime<Utc>,
        aggregate: &mut Aggregate,
        rules: Rules<'_>,
    ) -> Result<Accepted, Rejected> {
        let interval = rules.settings.interval;
        if self
            .last_memory
            .is_some_and(|last| time < instant::minus(last, interval))
        {
            return Err(Rejected::TooOld);
        }
        // An earlier OOM's peak is a guess: raising it again would run away.
        let seen = self.window.map_or(Bytes::ZERO, |window| window.usage_peak);
        let needed = rules.needed(requested.max(seen));
        Ok(self.observe(needed, time, aggregate, rules, |window| &mut window.oom_peak))
    }

    fn observe(
        &mut self,
        usage: Bytes,
        time: DateTime<Utc>,
        aggregate: &mut Aggregate,
        rules: Rules<'_>,
        peak: impl FnOnce(&mut Window) -> &mut Bytes,
    ) -> Accepted {
        self.last_memory = Some(time);
        let (mut window, replaces) = match self.window {
            Some(window) if time < window.end => {
                let old = window.peak();
                let frozen = old.is_zero() && rules.quirks.has(Quirk::ZeroSampleFreezesPeak);
                if frozen || usage <= old {
                    return Accepted::Unchanged;
                }
                (window, Some(old))
            }
            last => {
                let end = last.map_or(time, |window| window.end);
                let window = Window {
                    end: next_end(end, time, rules.settings.interval),
                    usage_peak: Bytes::ZERO,
                    oom_peak: Bytes::ZERO,
                };
                (window, None)
            }
        };
        if let Some(old) = replaces {
            rules.subtract_peak(aggregate, old, window.end);
        }
        rules.add_peak(aggregate, usage, window.end);
        *peak(&mut window) = usage;
        self.window = Some(window);
        Accepted::Changed
    }
}

/// The end of the window that a time at or after the last end lies in.
fn next_end(end: DateTime<Utc>, time: DateTime<Utc>, interval: TimeDelta) -> DateTime<Utc> {
    let interval = instant::length(interval);
    let passed = instant::since(time, end);
    let whole = if interval > 0 {
        passed - passed % interval
    } else {
        passed
    };
    instant::plus(end, TimeDelta::nanoseconds(whole.saturating_add(interval)))
}

/// A computed amount: whole, not negative, and bounded.
#[must_use]
pub(crate) fn amount(value: f64) -> i64 {
    num::trunc(value).clamp(0, MAX_AMOUNT)
}
