//! The programs that a cluster of some level runs: found on the machine where that is as good, otherwise the pinned
//! ones from the cache. What was found is told apart from what was built, because its version may differ.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::{
    Level, build,
    cache::{Cache, make_dir},
    modules::MODULES,
    progress::Progress,
    versions::{self, Version},
};

/// Where each program is.
#[derive(Clone, Debug)]
pub struct Programs {
    paths: BTreeMap<&'static str, PathBuf>,
}

impl Programs {
    /// Finds or builds everything that the level runs.
    ///
    /// # Errors
    /// When something can neither be found nor built.
    pub fn ensure(cache: &Cache, level: Level, jobs: Option<u32>, progress: Progress) -> Result<Self> {
        let mut paths = found(
            level,
            std::env::var_os("KUBEBUILDER_ASSETS")
                .map(PathBuf::from)
                .as_deref(),
            version,
        );
        for (name, path) in &paths {
            progress.say(format_args!("using {name} at {}", path.display()));
        }
        build::build(cache, level, jobs, |name| paths.contains_key(name), progress)?;
        for module in MODULES {
            for program in module.programs.iter().filter(|program| program.level <= level) {
                paths
                    .entry(program.name)
                    .or_insert_with(|| build::path(cache, module, program));
            }
        }
        if level == Level::Node {
            paths.insert("runc", runc(cache, progress)?);
        }
        Ok(Self { paths })
    }

    #[cfg(test)]
    pub(super) fn of(names: &[&'static str]) -> Self {
        Self {
            paths: names
                .iter()
                .map(|name| (*name, Path::new("/programs").join(name)))
                .collect(),
        }
    }

    /// The path of a program.
    ///
    /// # Errors
    /// When the level of this cluster does not have it.
    pub fn path(&self, name: &str) -> Result<&Path> {
        self.paths
            .get(name)
            .map(PathBuf::as_path)
            .with_context(|| format!("this level runs no {name}"))
    }

    /// A command that runs a program.
    ///
    /// # Errors
    /// As [`Programs::path`].
    pub fn command(&self, name: &str) -> Result<Command> {
        Ok(Command::new(self.path(name)?))
    }
}

/// envtest's programs, if the developer points at them. Its API server may be of any version: it serves level `api`
/// whatever it is, and the higher levels only if it is of the minor that the other parts are pinned to.
fn found(
    level: Level,
    assets: Option<&Path>,
    version: impl Fn(&Path) -> Option<Version>,
) -> BTreeMap<&'static str, PathBuf> {
    let pinned = Version::find(versions::KUBERNETES);
    let is_suitable = |name: &str, path: &Path| match name {
        "kube-apiserver" => version(path).is_some_and(|found| level == Level::Api || Some(found) == pinned),
        "etcd" => version(path).is_some_and(|found| found >= versions::ETCD_FOUND),
        _ => path.is_file(),
    };
    let Some(assets) = assets else {
        return BTreeMap::new();
    };
    ["etcd", "kube-apiserver", "kubectl"]
        .into_iter()
        .map(|name| (name, assets.join(name)))
        .filter(|(name, path)| is_suitable(name, path))
        .collect()
}

/// The version that a program says it has; none if it does not run.
fn version(program: &Path) -> Option<Version> {
    let output = Command::new(program).arg("--version").output().ok()?;
    Version::find(&String::from_utf8_lossy(&output.stdout))
}

/// runc needs C and libseccomp to build, so it is not built: the machine's serves, else Debian's package is unpacked
/// into the cache.
fn runc(cache: &Cache, progress: Progress) -> Result<PathBuf> {
    if version(Path::new("runc")) >= Some(versions::RUNC) {
        return which("runc").context("runc is on the PATH");
    }
    let folder = cache.programs("runc");
    let runc = folder.join("usr/sbin/runc");
    let serves = |runc: &Path| version(runc) >= Some(versions::RUNC);
    if serves(&runc) {
        return Ok(runc);
    }
    let _lock = cache.lock("build", || {
        progress.say(format_args!("waiting for another run that builds"));
    })?;
    if !serves(&runc) {
        progress.say(format_args!("unpacking Debian's runc"));
        unpack(&folder).with_context(|| {
            format!(
                "level node needs runc {} or later: install it; level control-plane runs without",
                versions::RUNC
            )
        })?;
    }
    if !serves(&runc) {
        bail!(
            "{} does not run here: install runc {} or later",
            runc.display(),
            versions::RUNC
        );
    }
    Ok(runc)
}

fn unpack(folder: &Path) -> Result<()> {
    make_dir(folder)?;
    let run = |command: &mut Command| -> Result<()> {
        let output = command
            .output()
            .with_context(|| format!("running {}", command.get_program().display()))?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    };
    run(Command::new("apt-get")
        .args(["--quiet", "download", "runc"])
        .current_dir(folder))?;
    let package = std::fs::read_dir(folder)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .context("apt-get download left no package")?;
    run(Command::new("dpkg-deb")
        .arg("--extract")
        .arg(&package)
        .arg(folder))?;
    std::fs::remove_file(package)?;
    Ok(())
}

/// Where a program is on the `PATH`.
#[must_use]
pub(super) fn which(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envtest_programs_are_taken_where_their_version_serves() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("kubectl"), "").unwrap();
        let names = |level, etcd: &str, api_server: &str| {
            let version = |path: &Path| Version::find(if path.ends_with("etcd") { etcd } else { api_server });
            found(level, Some(folder.path()), version)
                .into_keys()
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names(Level::Api, "3.5.9", "v1.30.0"),
            ["etcd", "kube-apiserver", "kubectl"]
        );
        // The controller manager and the scheduler may not be newer than the API server.
        assert_eq!(
            names(Level::ControlPlane, "3.5.9", "v1.30.0"),
            ["etcd", "kubectl"]
        );
        assert_eq!(
            names(Level::ControlPlane, "3.4.1", "v1.36.0"),
            ["kube-apiserver", "kubectl"]
        );
        assert_eq!(
            names(Level::Api, "", ""),
            ["kubectl"],
            "what does not run is not taken"
        );
        assert!(found(Level::Api, None, |_| None).is_empty());
    }
}
