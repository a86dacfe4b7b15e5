//! `hack crds`: writes the CustomResourceDefinitions that an operator installs, or checks that they are up to date.
//! They are generated from the API types, so that what the server accepts and what we read are one thing.

mod build;

use anyhow::{Context, bail};
use common::api::k8s::CustomResourceDefinition;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

pub use build::all;

const HEADER: &str = "# Generated from common/src/api by `cargo run -p hack -- crds`. Do not edit.\n";

/// Where the definitions of this checkout are.
pub const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/crds");

/// Write the CustomResourceDefinitions, or check that they are up to date.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write nothing, and fail if a file is not what would be written.
    #[arg(long)]
    check: bool,
    /// The directory they are in.
    #[arg(long, default_value = DIRECTORY)]
    dir: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// When a file cannot be read or written, or with `--check` when one is stale.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let files = files()?;
    let stale = stale(&args.dir, &files)?;
    if args.check {
        if !stale.is_empty() {
            let names = stale.join(", ");
            bail!(
                "{names} in {} not up to date: run `cargo run -p hack -- crds`",
                args.dir.display()
            );
        }
        println!("{} definitions are up to date", files.len());
        return Ok(());
    }
    fs::create_dir_all(&args.dir).with_context(|| format!("creating {}", args.dir.display()))?;
    for name in &stale {
        let path = args.dir.join(name);
        match files.get(name) {
            Some(text) => fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?,
            None => fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?,
        }
    }
    println!("{} definitions, {} files changed", files.len(), stale.len());
    Ok(())
}

/// The same as [`all`], as JSON. Made once: tests start a great many servers, and schemas are large.
///
/// # Errors
/// When the API types do not yield a valid definition.
pub fn values() -> anyhow::Result<&'static [Value]> {
    static MADE: OnceLock<Vec<Value>> = OnceLock::new();
    if let Some(made) = MADE.get() {
        return Ok(made);
    }
    let values = all()?
        .iter()
        .map(serde_json::to_value)
        .collect::<Result<_, _>>()?;
    Ok(MADE.get_or_init(|| values))
}

/// The files and their contents, by name.
///
/// # Errors
/// When the API types do not yield a valid definition.
pub fn files() -> anyhow::Result<BTreeMap<String, String>> {
    all()?
        .iter()
        .map(|crd| Ok((file_name(crd), yaml(crd)?)))
        .collect()
}

/// Names of the files in a directory that are not what they should be: missing, different or not ours.
///
/// # Errors
/// When the directory cannot be read.
pub fn stale(dir: &Path, files: &BTreeMap<String, String>) -> anyhow::Result<Vec<String>> {
    let mut found = BTreeMap::new();
    if dir.exists() {
        for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "yaml") {
                let name = path
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                let text =
                    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
                found.insert(name, text);
            }
        }
    }
    let names = files
        .keys()
        .chain(found.keys().filter(|name| !files.contains_key(*name)));
    Ok(names
        .filter(|name| files.get(*name) != found.get(*name))
        .cloned()
        .collect())
}

fn file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural)
}

fn yaml(crd: &CustomResourceDefinition) -> anyhow::Result<String> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let text = serde_saphyr::to_string_with_options(&build::to_json(crd)?, options)?;
    Ok(format!("{HEADER}{}\n", text.trim_end()))
}
