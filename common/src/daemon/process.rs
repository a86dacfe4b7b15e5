//! The process metrics that every Prometheus client exports under the same names, read from `/proc` when somebody
//! scrapes. Where there is no `/proc` they are absent.

use std::{fmt, fs, path::Path, path::PathBuf};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

/// Registers the process metrics of this process.
pub(super) fn register(registry: &mut Registry) {
    registry.register_collector(Box::new(ProcessCollector { proc: "/proc".into() }));
}

#[derive(Debug)]
struct ProcessCollector {
    proc: PathBuf,
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut gauge = |name, help, value: Option<f64>| {
            let Some(value) = value else { return Ok(()) };
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        let stat = Stat::read(&self.proc);
        let status = fs::read_to_string(self.proc.join("self/status")).unwrap_or_default();
        gauge(
            "process_resident_memory_bytes",
            "Resident memory size in bytes.",
            kilobytes(&status, "VmRSS:"),
        )?;
        gauge(
            "process_virtual_memory_bytes",
            "Virtual memory size in bytes.",
            kilobytes(&status, "VmSize:"),
        )?;
        gauge(
            "process_open_fds",
            "Number of open file descriptors.",
            open_fds(&self.proc),
        )?;
        gauge(
            "process_max_fds",
            "Maximum number of open file descriptors.",
            max_fds(&self.proc),
        )?;
        gauge(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            stat.as_ref().and_then(|stat| stat.start_time(&self.proc)),
        )?;
        if let Some(stat) = stat {
            let counter = ConstCounter::new(stat.cpu_seconds);
            let help = "Total user and system CPU time spent in seconds.";
            counter.encode(encoder.encode_descriptor(
                "process_cpu_seconds",
                help,
                None,
                counter.metric_type(),
            )?)?;
        }
        Ok(())
    }
}

/// `/proc` counts in hundredths of a second on every architecture that Linux runs on today.
const TICKS_PER_SECOND: f64 = 100.0;

struct Stat {
    cpu_seconds: f64,
    /// Since the machine was started.
    started_seconds: f64,
}

impl Stat {
    fn read(proc: &Path) -> Option<Self> {
        let text = fs::read_to_string(proc.join("self/stat")).ok()?;
        // The second field is the program's name in parentheses, in which anything may stand.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        // proc(5) counts from 1, and what follows the name starts with field 3.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) / TICKS_PER_SECOND,
            started_seconds: field(22)? / TICKS_PER_SECOND,
        })
    }

    fn start_time(&self, proc: &Path) -> Option<f64> {
        let text = fs::read_to_string(proc.join("stat")).ok()?;
        let booted = text.lines().find_map(|line| line.strip_prefix("btime "))?;
        Some(booted.trim().parse::<f64>().ok()? + self.started_seconds)
    }
}

fn kilobytes(status: &str, field: &str) -> Option<f64> {
    let value = status.lines().find_map(|line| line.strip_prefix(field))?;
    let number: f64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(number * 1024.0)
}

fn open_fds(proc: &Path) -> Option<f64> {
    let entries = fs::read_dir(proc.join("self/fd")).ok()?;
    u32::try_from(entries.count()).ok().map(f64::from)
}

fn max_fds(proc: &Path) -> Option<f64> {
    let text = fs::read_to_string(proc.join("self/limits")).ok()?;
    let soft = text
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?
        .split_whitespace()
        .next()?;
    // "unlimited" is no number; Go prints the largest there is.
    Some(soft.parse().unwrap_or(f64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::metrics;

    fn scrape(proc: &Path) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ProcessCollector { proc: proc.into() }));
        metrics::encode(&registry).unwrap()
    }

    #[test]
    fn what_proc_says() {
        let proc = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(proc.path().join(name), text).unwrap();
        fs::create_dir_all(proc.path().join("self/fd")).unwrap();
        for fd in 0..3 {
            write(&format!("self/fd/{fd}"), "");
        }
        write("stat", "cpu 1 2 3\nbtime 1772359800\nprocesses 7\n");
        write(
            "self/stat",
            "42 (up ) (dater) S 1 42 42 0 -1 0 0 0 0 0 250 50 0 0 20 0 9 0 12345 0 0",
        );
        write(
            "self/status",
            "Name:\tupdater\nVmSize:\t  2048 kB\nVmRSS:\t  1024 kB\n",
        );
        write(
            "self/limits",
            "Limit Soft Hard Units\nMax open files            1024                 524288               files\n",
        );
        let samples: Vec<String> = scrape(proc.path())
            .lines()
            .filter(|line| !line.starts_with("# HELP"))
            .map(str::to_owned)
            .collect();
        assert_eq!(
            samples,
            [
                "# TYPE process_resident_memory_bytes gauge",
                "process_resident_memory_bytes 1048576.0",
                "# TYPE process_virtual_memory_bytes gauge",
                "process_virtual_memory_bytes 2097152.0",
                "# TYPE process_open_fds gauge",
                "process_open_fds 3.0",
                "# TYPE process_max_fds gauge",
                "process_max_fds 1024.0",
                "# TYPE process_start_time_seconds gauge",
                "process_start_time_seconds 1772359923.45",
                "# TYPE process_cpu_seconds_total counter",
                "process_cpu_seconds_total 3.0",
            ]
        );
    }

    #[test]
    fn without_proc_there_is_nothing() {
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(scrape(empty.path()), "");
    }
}
