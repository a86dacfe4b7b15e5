//! What a process takes, by Linux's `/proc`.

use std::fs;

use anyhow::{Context as _, Result};

/// How a process's CPU time is counted there; the same on every Linux there is.
const TICKS_PER_SECOND: f64 = 100.0;

/// A process to look at.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Of {
    /// This one.
    Ourselves,
    /// The one with this number.
    Pid(u32),
}

impl Of {
    /// The CPU time of all its threads, user and system.
    pub(crate) fn cpu_seconds(self) -> Result<f64> {
        let stat = self.read("stat")?;
        // Behind the name, which is in brackets, user and system time are the 12th and 13th.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: f64 = ticks.filter_map(|field| field.parse::<f64>().ok()).sum();
        Ok(ticks / TICKS_PER_SECOND)
    }

    /// The memory that it has now, its program's pages included.
    pub(crate) fn resident_mib(self) -> Result<f64> {
        self.mib("VmRSS")
    }

    /// The most memory that it ever had.
    pub(crate) fn peak_mib(self) -> Result<f64> {
        self.mib("VmHWM")
    }

    fn mib(self, field: &str) -> Result<f64> {
        let status = self.read("status")?;
        let value = status
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let kib = value.and_then(|value| value.split_whitespace().next()?.parse::<f64>().ok());
        Ok(kib.with_context(|| format!("no {field} in /proc"))? / 1024.0)
    }

    fn read(self, file: &str) -> Result<String> {
        let process = match self {
            Self::Ourselves => "self".to_owned(),
            Self::Pid(pid) => pid.to_string(),
        };
        fs::read_to_string(format!("/proc/{process}/{file}"))
            .context("the process has ended, or this is no Linux with /proc")
    }
}
