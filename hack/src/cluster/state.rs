//! What is remembered of a cluster while it runs, in `cluster.json` in its folder: enough to find it, to stop exactly
//! what was started, and to clear away what a killed owner left.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{
    Level,
    cache::{Cache, write},
    network::Subnet,
    process::ProcessId,
};

/// The state of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    /// The cluster's name.
    pub name: String,
    /// How much of a cluster it is.
    pub level: Level,
    /// When it was made.
    pub created: DateTime<Utc>,
    /// The boot in which it was made; after another one nothing of it runs.
    pub boot: String,
    /// The process that it must not outlive; none if it runs until it is stopped.
    pub owner: Option<ProcessId>,
    /// Where the API server is.
    pub server: String,
    /// All ports it has, on whichever address.
    pub ports: BTreeSet<u16>,
    /// Its bridge, if it has nodes.
    pub subnet: Option<Subnet>,
    /// The names of its nodes.
    pub nodes: Vec<String>,
    /// The cgroups made for its nodes.
    pub cgroups: Vec<String>,
    /// What was started, in order.
    pub processes: Vec<Process>,
}

/// One started process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Process {
    /// The part, and for one of a node the node's name behind it: also the name of the log.
    pub name: String,
    /// When it is stopped.
    pub stage: Stage,
    /// Which process.
    pub id: ProcessId,
}

/// In which order processes are stopped: first those that would start or report anything again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Stage {
    /// Controllers, kubelets and metrics-server.
    Controllers,
    /// Container runtimes.
    Runtime,
    /// The API server, which does not end well without its store.
    Api,
    /// The store.
    Store,
}

/// The folder of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// The folder of the cluster with this name, which need not exist.
    ///
    /// # Errors
    /// When the name is not fit to be one.
    pub(super) fn of(cache: &Cache, name: &str) -> Result<Self> {
        let fit = name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        ensure!(
            fit && !name.is_empty() && name.len() <= 40,
            "{name:?} is not a name for a cluster: use up to 40 of a-z, 0-9 and -"
        );
        Ok(Self(cache.clusters().join(name)))
    }

    /// The folder itself.
    #[must_use]
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// A file or folder in it.
    #[must_use]
    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.join("kubeconfig")
    }

    /// The log of a process.
    #[must_use]
    pub(super) fn log(&self, process: &str) -> PathBuf {
        self.join("log").join(format!("{process}.log"))
    }

    /// Reads the state; none if there is no cluster.
    ///
    /// # Errors
    /// When there is one that cannot be read.
    pub(super) fn load(&self) -> Result<Option<State>> {
        let path = self.join("cluster.json");
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .with_context(|| format!("reading {}: remove the folder by hand", path.display()))
                .map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }

    /// Writes the state, whole or not at all.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn save(&self, state: &State) -> Result<()> {
        let unfinished = self.join("cluster.json.unfinished");
        write(&unfinished, serde_json::to_vec_pretty(state)?)?;
        std::fs::rename(&unfinished, self.join("cluster.json")).context("keeping the cluster's state")
    }
}

/// All clusters there are, by name.
///
/// # Errors
/// When one cannot be read.
pub(super) fn all(cache: &Cache) -> Result<Vec<(Folder, State)>> {
    let Ok(entries) = std::fs::read_dir(cache.clusters()) else {
        return Ok(Vec::new());
    };
    let mut folders: Vec<_> = entries.flatten().map(|entry| Folder(entry.path())).collect();
    folders.sort_by(|a, b| a.0.cmp(&b.0));
    let mut all = Vec::new();
    for folder in folders {
        if let Some(state) = folder.load()? {
            all.push((folder, state));
        }
    }
    Ok(all)
}

/// The boot that the machine is in.
#[must_use]
pub(super) fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

impl State {
    /// How many of its processes run.
    #[must_use]
    pub(super) fn alive(&self, folder: &Folder) -> usize {
        if self.boot != boot() {
            return 0;
        }
        self.processes
            .iter()
            .filter(|process| process.id.belongs_to(folder.path()))
            .count()
    }

    /// Whether it should have ended with an owner that is gone.
    #[must_use]
    pub(super) fn is_orphan(&self) -> bool {
        self.owner
            .is_some_and(|owner| self.boot != boot() || !owner.is_alive())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(owner: Option<ProcessId>) -> State {
        State {
            name: "dev".into(),
            level: Level::Node,
            created: DateTime::from_timestamp(1_800_000_000, 0).unwrap(),
            boot: boot(),
            owner,
            server: "https://10.97.0.1:443".into(),
            ports: BTreeSet::from([20_000, 20_001]),
            subnet: Some(Subnet::numbered(7)),
            nodes: vec!["node-0".into()],
            cgroups: vec!["outrigger-dev-node-0".into()],
            processes: vec![Process {
                name: "etcd".into(),
                stage: Stage::Store,
                id: ProcessId {
                    pid: u32::MAX,
                    started: 1,
                },
            }],
        }
    }

    #[test]
    fn a_state_comes_back_as_it_was_written() {
        let temporary = tempfile::tempdir().unwrap();
        let cache = Cache::at(temporary.path().to_owned());
        let folder = Folder::of(&cache, "dev").unwrap();
        assert_eq!(folder.load().unwrap(), None);
        std::fs::create_dir_all(folder.path()).unwrap();
        std::fs::create_dir_all(cache.clusters().join("unfinished")).unwrap();
        folder.save(&state(None)).unwrap();
        assert_eq!(all(&cache).unwrap(), [(folder.clone(), state(None))]);
        assert_eq!(state(None).alive(&folder), 0);
    }

    #[test]
    fn an_unreadable_state_is_not_the_same_as_none() {
        let temporary = tempfile::tempdir().unwrap();
        let cache = Cache::at(temporary.path().to_owned());
        let folder = Folder::of(&cache, "dev").unwrap();
        std::fs::create_dir_all(folder.path()).unwrap();
        std::fs::write(folder.join("cluster.json"), "{").unwrap();
        assert!(folder.load().is_err());
        assert!(all(&cache).is_err());
    }

    #[test]
    fn an_orphan_is_one_whose_owner_is_gone() {
        let own = ProcessId::own().unwrap();
        assert!(!state(Some(own)).is_orphan());
        assert!(!state(None).is_orphan(), "it runs until it is stopped");
        assert!(
            state(Some(ProcessId {
                started: own.started + 1,
                ..own
            }))
            .is_orphan()
        );
        assert!(
            State {
                boot: "another".into(),
                ..state(Some(own))
            }
            .is_orphan()
        );
    }

    #[test]
    fn names_are_safe_in_paths_and_cgroups() {
        let cache = Cache::at("/c".into());
        for name in ["", "..", "a/b", "Dev", "a b", &"x".repeat(41)] {
            assert!(Folder::of(&cache, name).is_err(), "{name}");
        }
        assert_eq!(
            Folder::of(&cache, "e2e-1").unwrap().path(),
            Path::new("/c/clusters/e2e-1")
        );
    }
}
