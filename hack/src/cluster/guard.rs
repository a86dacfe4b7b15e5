//! Makes a cluster end with the process that owns it, however that ends: a small process waits at the other end of a
//! pipe, and when the pipe closes without a word it stops the cluster.

use std::{
    io::{Read as _, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result};

use super::{cache::Cache, state::Folder, teardown};

/// What is said to a guard that is no longer needed.
const RELEASE: &[u8] = b"release";

/// The owner's end of the pipe.
#[derive(Debug)]
pub(super) struct Guard {
    child: Child,
}

impl Guard {
    /// Sets a guard for a cluster. There is none where this crate's program cannot be found, as in a test that was
    /// built alone; the next start clears away after it.
    ///
    /// # Errors
    /// When the program does not start.
    pub(super) fn set(cache: &Cache, name: &str) -> Result<Option<Self>> {
        let Some(program) = std::env::current_exe().ok().and_then(|own| program(&own)) else {
            return Ok(None);
        };
        let child = Command::new(&program)
            .args(["cluster", "guard", name])
            .env("OUTRIGGER_CACHE", cache.root())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Not in the group that an interrupt from the keyboard goes to.
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {} as a guard", program.display()))?;
        Ok(Some(Self { child }))
    }

    /// Sends the guard away: the cluster goes on without an owner, or is gone already.
    pub(super) fn release(mut self) {
        if let Some(mut pipe) = self.child.stdin.take() {
            // A guard that is gone needs no release.
            let _ = pipe.write_all(RELEASE);
        }
        let _ = self.child.wait();
    }
}

/// What the guard does.
///
/// # Errors
/// When the cluster cannot be stopped.
pub(super) fn watch(cache: &Cache, name: &str) -> Result<()> {
    let mut said = Vec::new();
    // A broken pipe is a closed one.
    let _ = std::io::stdin().read_to_end(&mut said);
    if said == RELEASE {
        return Ok(());
    }
    // Whoever starts a cluster now clears away what dead owners left, this one too: one of us does it.
    let _lock = cache.lock("clusters", || {})?;
    let folder = Folder::of(cache, name)?;
    match folder.load()? {
        Some(state) => teardown::tear_down(&folder, &state),
        None => Ok(()),
    }
}

/// The `hack` program: this one, or the one that was built next to this test.
fn program(own: &Path) -> Option<PathBuf> {
    let is_hack = |path: &Path| path.file_stem().is_some_and(|stem| stem == "hack");
    if is_hack(own) && own.is_file() {
        return Some(own.to_owned());
    }
    let folder = own.parent()?;
    [folder, folder.parent()?]
        .into_iter()
        .map(|folder| folder.join("hack"))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_this_one_or_the_one_next_to_a_test() {
        let folder = tempfile::tempdir().unwrap();
        let hack = folder.path().join("hack");
        let test = folder.path().join("deps/cluster-0123");
        std::fs::create_dir(folder.path().join("deps")).unwrap();
        assert_eq!(program(&test), None);
        std::fs::write(&hack, "").unwrap();
        assert_eq!(program(&hack), Some(hack.clone()));
        assert_eq!(program(&test), Some(hack));
    }
}
