//! The cgroups of a cluster's nodes: made, listed and removed. Only new ones are made, next to those of the machine.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use super::process;

/// What a kubelet does not start without.
const NEEDED_V1: [&str; 5] = ["cpu", "cpuacct", "cpuset", "memory", "pids"];
const NEEDED_V2: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];

/// The mounted hierarchies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchies {
    /// Mount points with their options, which name the controllers. Empty on a machine with version 2 only.
    v1: Vec<(PathBuf, String)>,
    /// The mount point of version 2, which on a hybrid machine has no controllers.
    v2: Option<PathBuf>,
}

impl Hierarchies {
    /// Those of this machine.
    ///
    /// # Errors
    /// When a controller that a kubelet needs is missing.
    pub(super) fn of_machine() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/mounts").context("reading /proc/mounts")?;
        let found = Self::parse(&mounts);
        let missing = found.missing();
        ensure!(
            missing.is_empty(),
            "there is no cgroup controller for {}",
            missing.join(", ")
        );
        Ok(found)
    }

    fn parse(mounts: &str) -> Self {
        let mut found = Self {
            v1: Vec::new(),
            v2: None,
        };
        for line in mounts.lines() {
            let mut fields = line.split(' ').skip(1);
            if let (Some(place), Some(kind), Some(options)) = (fields.next(), fields.next(), fields.next()) {
                match kind {
                    "cgroup" => found.v1.push((place.into(), options.to_owned())),
                    "cgroup2" => found.v2 = Some(place.into()),
                    _ => {}
                }
            }
        }
        found
    }

    fn missing(&self) -> Vec<&'static str> {
        if self.v1.is_empty() {
            let controllers = self
                .v2
                .as_ref()
                .and_then(|root| fs::read_to_string(root.join("cgroup.controllers")).ok())
                .unwrap_or_default();
            let has = |name: &&str| {
                controllers
                    .split_whitespace()
                    .any(|controller| controller == *name)
            };
            NEEDED_V2.into_iter().filter(|name| !has(name)).collect()
        } else {
            NEEDED_V1
                .into_iter()
                .filter(|name| self.controller(name).is_none())
                .collect()
        }
    }

    fn controller(&self, name: &str) -> Option<&Path> {
        self.v1
            .iter()
            .find(|(_, options)| options.split(',').any(|option| option == name))
            .map(|(place, _)| place.as_path())
    }

    fn roots(&self) -> impl Iterator<Item = &Path> {
        self.v1
            .iter()
            .map(|(place, _)| place.as_path())
            .chain(self.v2.as_deref())
    }

    /// Makes a cgroup for a node.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn make(&self, name: &str) -> Result<()> {
        for root in self.roots() {
            let folder = root.join(name);
            fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
        }
        if self.v1.is_empty()
            && let Some(root) = &self.v2
        {
            enable(root, name)?;
        }
        // In version 1 a new cpuset has no processor and no memory, and nothing can run in it.
        if let Some(root) = self.controller("cpuset") {
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let value = fs::read(root.join(file)).with_context(|| format!("reading {file}"))?;
                fs::write(root.join(name).join(file), value).with_context(|| format!("writing {file}"))?;
            }
        }
        Ok(())
    }

    /// Ends everything that runs in a cgroup and removes it.
    ///
    /// # Errors
    /// When something is still there afterwards.
    pub(super) fn remove(&self, name: &str) -> Result<()> {
        let folders = || {
            self.roots()
                .map(|root| root.join(name))
                .filter(|folder| folder.exists())
        };
        let is_gone = || {
            folders().for_each(|folder| thaw(&folder));
            process::kill(folders().flat_map(|folder| pids(&folder)));
            folders().for_each(|folder| remove_tree(&folder));
            folders().next().is_none()
        };
        let gone = process::wait_until(process::DYING, is_gone);
        ensure!(gone, "cgroup {name} could not be removed");
        Ok(())
    }
}

/// In version 2 a cgroup has only the controllers that its parent hands down. Most are handed down already; the others
/// are now, and cost nothing to the cgroups that do not use them.
fn enable(root: &Path, name: &str) -> Result<()> {
    let file = root.join(name).join("cgroup.controllers");
    let has = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    for controller in NEEDED_V2 {
        if !has.split_whitespace().any(|word| word == controller) {
            fs::write(root.join("cgroup.subtree_control"), format!("+{controller}"))
                .with_context(|| format!("handing down the cgroup controller {controller}"))?;
        }
    }
    Ok(())
}

/// All processes in a cgroup and below.
fn pids(folder: &Path) -> Vec<u32> {
    let own = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let mut pids: Vec<u32> = own.lines().filter_map(|line| line.parse().ok()).collect();
    for child in children(folder) {
        pids.extend(self::pids(&child));
    }
    pids
}

/// A cgroup is removed by `rmdir`, deepest first; its files go with it.
/// Lets go on what is frozen: runc freezes a container while it changes its limits, and a runtime that ends in the midst of
/// that leaves it so, where no signal reaches it.
fn thaw(folder: &Path) {
    for (file, state) in [("freezer.state", "THAWED"), ("cgroup.freeze", "0")] {
        // Which of the two there is, if any, is the hierarchy's.
        let _ = fs::OpenOptions::new()
            .write(true)
            .open(folder.join(file))
            .and_then(|mut file| file.write_all(state.as_bytes()));
    }
    children(folder).iter().for_each(|child| thaw(child));
}

fn remove_tree(folder: &Path) {
    children(folder).iter().for_each(|child| remove_tree(child));
    // Busy ones are tried again by the caller.
    let _ = fs::remove_dir(folder);
}

fn children(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .map(|entries| {
            entries
                .flatten()
                .map(|entry| entry.path())
                .filter(|path| path.is_dir())
                .collect()
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
";

    #[test]
    fn hierarchies_are_read_from_the_mounts() {
        let found = Hierarchies::parse(HYBRID);
        assert_eq!(
            found.controller("cpuacct"),
            Some(Path::new("/sys/fs/cgroup/cpu,cpuacct"))
        );
        assert_eq!(found.controller("pids"), None);
        assert_eq!(found.missing(), ["pids"]);
        assert_eq!(found.roots().count(), 5);
        assert_eq!(found.v2.as_deref(), Some(Path::new("/sys/fs/cgroup/unified")));
    }

    #[test]
    fn a_machine_without_cgroups_lacks_all() {
        assert_eq!(Hierarchies::parse("proc /proc proc rw 0 0").missing(), NEEDED_V2);
    }

    #[test]
    fn processes_are_found_at_every_depth() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("kubepods/burstable");
        fs::create_dir_all(&deep).unwrap();
        fs::write(folder.path().join("cgroup.procs"), "1\n2\n").unwrap();
        fs::write(deep.join("cgroup.procs"), "3\n").unwrap();
        assert_eq!(pids(folder.path()), [1, 2, 3]);
    }

    #[test]
    fn what_is_frozen_at_any_depth_is_let_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("kubepods/burstable");
        fs::create_dir_all(&deep).unwrap();
        for file in ["freezer.state", "cgroup.freeze"] {
            fs::write(deep.join(file), "frozen").unwrap();
        }
        thaw(folder.path());
        let state = |file| fs::read_to_string(deep.join(file)).unwrap();
        assert!(state("freezer.state").starts_with("THAWED"));
        assert!(state("cgroup.freeze").starts_with('0'));
        assert!(
            !folder.path().join("freezer.state").exists(),
            "nothing is made where nothing is"
        );
    }
}
