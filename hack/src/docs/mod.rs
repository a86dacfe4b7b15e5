//! `hack docs`: writes the pages that are generated from the code, docs/flags.md and docs/metrics.md, or checks that they
//! are up to date. What VPA has, to compare with, is kept in `testdata/vpa`.

mod flags;
mod metrics;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

pub use self::metrics::{Metric, metrics_of};

const HEADER: &str = "<!-- Generated from the code by `cargo run -p hack -- docs`. Do not edit. -->\n";

/// Where the pages of this checkout are.
pub const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs");

/// Write the generated pages of docs, or check that they are up to date.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write nothing, and fail if a page is not what would be written.
    #[arg(long)]
    check: bool,
    /// The directory they are in.
    #[arg(long, default_value = DIRECTORY)]
    dir: PathBuf,
}

/// A daemon, as the pages call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Daemon {
    /// The recommender.
    Recommender,
    /// The updater.
    Updater,
    /// The admission component.
    Admission,
}

impl Daemon {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Recommender, Self::Updater, Self::Admission];

    fn name(self) -> &'static str {
        match self {
            Self::Recommender => "recommender",
            Self::Updater => "updater",
            Self::Admission => "admission",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Recommender => "Recommender",
            Self::Updater => "Updater",
            Self::Admission => "Admission",
        }
    }
}

impl Args {
    /// Runs the command.
    ///
    /// # Errors
    /// When a page cannot be read or written, or with `--check` when one is stale.
    pub fn run(&self) -> Result<()> {
        let pages = pages()?;
        let stale = stale(&self.dir, &pages)?;
        if self.check && !stale.is_empty() {
            let names = stale.join(", ");
            bail!("{names} not up to date: run `cargo run -p hack -- docs`");
        }
        for name in &stale {
            let path = self.dir.join(name);
            let text = pages.get(name).map_or("", String::as_str);
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        println!("{} generated pages, {} changed", pages.len(), stale.len());
        Ok(())
    }
}

/// The generated pages, by name.
///
/// # Errors
/// When the code or the list of what VPA has cannot be read.
pub fn pages() -> Result<BTreeMap<&'static str, String>> {
    Ok(BTreeMap::from([
        ("flags.md", flags::page()?),
        ("metrics.md", metrics::page()?),
    ]))
}

/// Names of the pages in a directory that are not what they should be.
///
/// # Errors
/// When a page is there and cannot be read.
pub fn stale(dir: &Path, pages: &BTreeMap<&'static str, String>) -> Result<Vec<&'static str>> {
    let mut stale = Vec::new();
    for (&name, text) in pages {
        let path = dir.join(name);
        let is_fresh = path.exists()
            && fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))? == *text;
        if !is_fresh {
            stale.push(name);
        }
    }
    Ok(stale)
}

/// Parts of a list that holds for each of several daemons: those of all three, those of two, and the rest of each.
struct Shared<T> {
    all: Vec<T>,
    /// The recommender's and the updater's.
    two: Vec<T>,
    own: Vec<(Daemon, Vec<T>)>,
}

impl<T: Clone + PartialEq> Shared<T> {
    fn of(lists: &BTreeMap<Daemon, Vec<T>>) -> Self {
        let has = |daemon, one: &T| lists.get(&daemon).is_some_and(|list: &Vec<T>| list.contains(one));
        let [mut all, mut two] = [Vec::new(), Vec::new()];
        let mut own = Vec::new();
        for (&daemon, list) in lists {
            let mut rest = Vec::new();
            for one in list {
                let holders = Daemon::ALL.map(|daemon| has(daemon, one));
                let is_first = daemon == Daemon::Recommender;
                match holders {
                    [true, true, true] if is_first => all.push(one.clone()),
                    [true, true, false] if is_first => two.push(one.clone()),
                    [true, true, _] => {}
                    _ => rest.push(one.clone()),
                }
            }
            own.push((daemon, rest));
        }
        Self { all, two, own }
    }

    /// The parts with their titles.
    fn sections(self) -> impl Iterator<Item = (String, Vec<T>)> {
        let Self { all, two, own } = self;
        let shared = [
            ("All three".to_owned(), all),
            ("Recommender and updater".to_owned(), two),
        ];
        let own = own
            .into_iter()
            .map(|(daemon, list)| (daemon.title().to_owned(), list));
        shared.into_iter().chain(own).filter(|(_, list)| !list.is_empty())
    }
}

/// A table's row.
fn row(cells: &[&str]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Text as code, or nothing.
fn code(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!("`{text}`")
    }
}
