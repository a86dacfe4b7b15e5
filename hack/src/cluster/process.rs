//! Processes that outlive the command that started them: how they are started, recognised again and stopped.
//! A process is only ever signalled after it has been recognised, so a recycled number costs nobody their program.

use std::{
    fs::File,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

/// How long a process may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(5);
/// How long the kernel may take to let go of a killed process, on a busy machine too.
pub(super) const DYING: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// A process, told from a later one with the same number by the moment it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProcessId {
    /// The number.
    pub pid: u32,
    /// When it started, in clock ticks since boot. It survives `exec`.
    pub started: u64,
}

impl ProcessId {
    /// The process that has this number now.
    #[must_use]
    pub(super) fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let started = parse_stat(&stat)?;
        Some(Self { pid, started })
    }

    /// This very process.
    #[must_use]
    pub(super) fn own() -> Option<Self> {
        Self::of(std::process::id())
    }

    /// Whether it still runs; one that has ended and only waits to be collected does not.
    #[must_use]
    pub(super) fn is_alive(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }

    /// Whether it still runs and its command line names the given folder, as that of every process of a cluster
    /// does.
    #[must_use]
    pub(super) fn belongs_to(&self, folder: &Path) -> bool {
        self.is_alive() && names(&command_line(self.pid), folder)
    }

    /// The command line that it was started with; empty if it has ended.
    #[must_use]
    pub(super) fn command_line(&self) -> Vec<String> {
        command_line(self.pid)
    }

    /// Sends it a signal. Who does so has recognised it.
    pub(super) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended in this moment, which is what was wanted.
            let _ = kill_process(pid, signal);
        }
    }
}

/// Starts a program apart from the terminal's process group, with its output in a file.
///
/// # Errors
/// When the program or the log file cannot be opened.
pub(super) fn spawn(mut command: Command, log: &Path) -> Result<(Child, ProcessId)> {
    // What is started again goes on in the log of its forerunner.
    let out = File::options()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("making {}", log.display()))?;
    let err = out.try_clone()?;
    let child = command
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting {}", command.get_program().display()))?;
    let id = ProcessId::of(child.id()).with_context(|| {
        format!(
            "{} ended at once, see {}",
            command.get_program().display(),
            log.display()
        )
    })?;
    Ok((child, id))
}

/// Asks processes of a cluster to end, and makes those that do not. Returns when they are gone.
pub(super) fn stop(processes: &[ProcessId], folder: &Path) {
    // Recognised once, by its command line: a process on its way out has lost that and still holds its ports.
    let ours: Vec<_> = processes
        .iter()
        .filter(|process| process.belongs_to(folder))
        .collect();
    for (signal, patience) in [(Signal::TERM, GRACE), (Signal::KILL, DYING)] {
        for process in ours.iter().filter(|process| process.is_alive()) {
            process.signal(signal);
        }
        wait_until(patience, || !ours.iter().any(|process| process.is_alive()));
    }
}

/// Ends at once the processes with these numbers, for those that are known by the cgroup they are in.
pub(super) fn kill(pids: impl IntoIterator<Item = u32>) {
    for process in pids.into_iter().filter_map(ProcessId::of) {
        process.signal(Signal::KILL);
    }
}

/// All processes whose program has one of these names and whose command line names the folder.
#[must_use]
pub(super) fn find(programs: &[&str], folder: &Path) -> Vec<ProcessId> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let line = command_line(*pid);
            runs(&line, programs) && names(&line, folder)
        })
        .filter_map(ProcessId::of)
        .collect()
}

/// Waits for a condition by looking often, and says whether it came true in time.
pub(super) fn wait_until(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if begun.elapsed() >= patience {
            return false;
        }
        std::thread::sleep(POLL);
    }
}

fn command_line(pid: u32) -> Vec<String> {
    std::fs::read(format!("/proc/{pid}/cmdline"))
        .map(|bytes| parse_command_line(&bytes))
        .unwrap_or_default()
}

fn parse_command_line(bytes: &[u8]) -> Vec<String> {
    bytes
        .split(|byte| *byte == 0)
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .filter(|argument| !argument.is_empty())
        .collect()
}

/// The folder followed by a separator, so that `dev` does not answer for `dev2`.
fn names(command_line: &[String], folder: &Path) -> bool {
    let folder = format!("{}/", folder.display());
    command_line.iter().any(|argument| argument.contains(&folder))
}

fn runs(command_line: &[String], programs: &[&str]) -> bool {
    command_line
        .first()
        .and_then(|program| Path::new(program).file_name()?.to_str())
        .is_some_and(|name| programs.contains(&name))
}

/// The start time in `/proc/PID/stat`, field 22; `None` if the process is dead (state Z or X). The second field is
/// the program's name in brackets and may itself contain brackets and spaces.
fn parse_stat(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "4711 (odd) name) S 1 4711 4711 0 -1 4194560 1 0 0 0 7 3 0 0 20 0 9 0 123456 1 2 3";

    #[test]
    fn the_start_time_is_read_past_an_odd_name() {
        assert_eq!(parse_stat(STAT), Some(123_456));
        assert_eq!(
            parse_stat(&STAT.replace(") S ", ") Z ")),
            None,
            "a zombie is dead"
        );
        assert_eq!(parse_stat("4711 (short) S 1 2"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn a_process_is_ours_only_with_the_same_start_and_our_folder() {
        let own = ProcessId::own().unwrap();
        assert!(own.is_alive());
        let recycled = ProcessId {
            started: own.started + 1,
            ..own
        };
        assert!(!recycled.is_alive());
        assert!(!own.belongs_to(Path::new("/no/such/cluster")));
    }

    #[test]
    fn a_folder_does_not_answer_for_one_with_a_longer_name() {
        let line = parse_command_line(b"/x/etcd\0--data-dir=/c/dev2/etcd\0\0");
        assert_eq!(line, ["/x/etcd", "--data-dir=/c/dev2/etcd"]);
        assert!(names(&line, Path::new("/c/dev2")));
        assert!(!names(&line, Path::new("/c/dev")));
        assert!(runs(&line, &["etcd"]));
        assert!(!runs(&line, &["containerd-shim-runc-v2"]));
    }

    #[test]
    fn what_was_started_is_recognised_and_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("tail");
        command.arg("-f").arg(folder.path().join("log"));
        let (mut child, id) = spawn(command, &folder.path().join("log")).unwrap();
        assert!(wait_until(GRACE, || id.belongs_to(folder.path())));
        assert_eq!(find(&["tail"], folder.path()), [id]);
        stop(&[id], Path::new("/another/cluster"));
        assert!(id.is_alive(), "another cluster's stop leaves it alone");
        stop(&[id], folder.path());
        assert!(!id.is_alive());
        child.wait().unwrap();
    }
}
