//! Where built programs and running clusters live: one folder outside the checkout, shared by all checkouts.
//! Locks in it keep two runs from building the same thing, or from choosing the same ports, at once.

use std::{
    fs::{File, OpenOptions},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

/// The cache folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The cache that the environment names: `OUTRIGGER_CACHE`, else `outrigger` in `XDG_CACHE_HOME`, else in
    /// `~/.cache`.
    ///
    /// # Errors
    /// When none of the variables is set.
    pub fn from_env() -> Result<Self> {
        let root = root(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
            .context("no cache folder: set OUTRIGGER_CACHE or HOME")?;
        // Every command line of a cluster carries its folder, so it must mean the same from everywhere.
        Ok(Self {
            root: std::path::absolute(root)?,
        })
    }

    /// A cache at a given place.
    #[must_use]
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// The folder itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the programs of one module are, keyed by its version and by how it is built.
    #[must_use]
    pub fn programs(&self, key: &str) -> PathBuf {
        self.root.join("programs").join(key)
    }

    /// Where the sources of one module are written before they are built.
    #[must_use]
    pub fn sources(&self, key: &str) -> PathBuf {
        self.root.join("sources").join(key)
    }

    /// Where a Go toolchain of our own is, if one was needed.
    #[must_use]
    pub fn toolchain(&self) -> PathBuf {
        self.root.join("toolchain")
    }

    /// Where the logs of builds, and of clusters that did not start, are kept.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// Where clusters are, one folder each.
    #[must_use]
    pub fn clusters(&self) -> PathBuf {
        self.root.join("clusters")
    }

    /// Takes a lock that is free again when the answer is dropped, or when this process ends. `on_wait` is called
    /// once if somebody else holds it.
    ///
    /// # Errors
    /// When the lock file cannot be made.
    pub fn lock(&self, name: &str, on_wait: impl FnOnce()) -> Result<File> {
        let path = self.root.join(format!("{name}.lock"));
        make_dir(&self.root)?;
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .with_context(|| format!("opening {}", path.display()))?;
        if file.try_lock().is_err() {
            on_wait();
            file.lock()
                .with_context(|| format!("locking {}", path.display()))?;
        }
        Ok(file)
    }
}

/// Makes a folder and its parents.
///
/// # Errors
/// With the folder's name in it.
pub(super) fn make_dir(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).with_context(|| format!("making {}", path.display()))
}

/// Writes a file, with its name in the error.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    std::fs::write(path, content).with_context(|| format!("writing {}", path.display()))
}

fn root(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    if let Some(own) = variable("OUTRIGGER_CACHE") {
        return Some(own.into());
    }
    let base = variable("XDG_CACHE_HOME").map_or_else(
        || variable("HOME").map(|home| PathBuf::from(home).join(".cache")),
        |xdg| Some(xdg.into()),
    )?;
    Some(base.join("outrigger"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_variable_names_the_cache() {
        type Variables = &'static [(&'static str, &'static str)];
        let table: [(Variables, Option<&str>); 5] = [
            (
                &[
                    ("OUTRIGGER_CACHE", "/own"),
                    ("XDG_CACHE_HOME", "/xdg"),
                    ("HOME", "/home/me"),
                ],
                Some("/own"),
            ),
            (
                &[("XDG_CACHE_HOME", "/xdg"), ("HOME", "/home/me")],
                Some("/xdg/outrigger"),
            ),
            (&[("HOME", "/home/me")], Some("/home/me/.cache/outrigger")),
            (&[("OUTRIGGER_CACHE", "/own")], Some("/own")),
            (&[], None),
        ];
        for (variables, expected) in table {
            let found = root(|name| {
                variables
                    .iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| (*value).to_owned())
            });
            assert_eq!(found, expected.map(PathBuf::from), "{variables:?}");
        }
    }

    #[test]
    fn a_lock_is_held_by_one_and_freed_by_dropping() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        let held = cache.lock("x", || panic!("nobody holds it yet")).unwrap();
        let second = std::fs::File::options()
            .write(true)
            .open(folder.path().join("x.lock"))
            .unwrap();
        assert!(second.try_lock().is_err());
        drop(held);
        assert!(second.try_lock().is_ok());
    }
}
