//! Stops a cluster and removes all that it left: processes, containers, cgroups, the bridge, its folder. It is
//! synchronous, because it also runs when a value is dropped, and it may be run again after it failed.

use anyhow::{Context as _, Result, bail};

use super::{
    cache::{Cache, make_dir},
    cgroups::Hierarchies,
    modules::MODULES,
    process::{self, ProcessId},
    state::{self, Folder, Stage, State},
};

/// Stops a cluster and removes it.
///
/// # Errors
/// When something is left. Its folder is then left as well, so that it can be tried again.
pub(super) fn tear_down(folder: &Folder, state: &State) -> Result<()> {
    if state.boot == state::boot() {
        for stage in [Stage::Controllers, Stage::Runtime] {
            stop(folder, state, stage);
        }
        // Shims outlive the containerd that started them.
        process::stop(
            &process::find(&["containerd-shim-runc-v2"], folder.path()),
            folder.path(),
        );
        if !state.cgroups.is_empty() {
            let hierarchies = Hierarchies::of_machine()?;
            for cgroup in &state.cgroups {
                hierarchies.remove(cgroup)?;
            }
        }
        for stage in [Stage::Api, Stage::Store] {
            stop(folder, state, stage);
        }
        // An owner that was killed may have started something that it could not write down any more.
        let programs: Vec<_> = MODULES
            .iter()
            .flat_map(|module| module.programs)
            .map(|program| program.name)
            .collect();
        process::stop(&process::find(&programs, folder.path()), folder.path());
        let alive = state.alive(folder);
        if alive > 0 {
            bail!("{alive} processes of cluster {} do not end", state.name);
        }
        if let Some(subnet) = state.subnet {
            subnet.remove()?;
        }
    }
    remove(folder)
}

/// Keeps the logs of a cluster that did not start, and says where.
///
/// # Errors
/// When they cannot be moved.
pub(super) fn keep_logs(cache: &Cache, folder: &Folder, name: &str) -> Result<std::path::PathBuf> {
    make_dir(&cache.logs())?;
    let kept = cache.logs().join(name);
    if kept.exists() {
        std::fs::remove_dir_all(&kept)?;
    }
    std::fs::rename(folder.join("log"), &kept).context("keeping the logs")?;
    Ok(kept)
}

fn stop(folder: &Folder, state: &State, stage: Stage) {
    let processes: Vec<ProcessId> = state
        .processes
        .iter()
        .filter(|process| process.stage == stage)
        .map(|process| process.id)
        .collect();
    process::stop(&processes, folder.path());
}

/// Nothing is mounted there outside of the nodes' own mount namespaces, which ended with them; if that is not so,
/// removing the folder could remove what is mounted.
fn remove(folder: &Folder) -> Result<()> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let inside = format!(" {}/", folder.path().display());
    if mounts.contains(&inside) {
        bail!(
            "something is mounted below {}: unmount it and try again",
            folder.path().display()
        );
    }
    match std::fs::remove_dir_all(folder.path()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", folder.path().display()))
        }
        _ => Ok(()),
    }
}
