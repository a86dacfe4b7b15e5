//! `hack vectors DIR`: answers every case of every vector file in a directory with our code and compares with what the
//! original answered. One file here is one subject; a family of vectors is one row of [`family::FAMILIES`].

mod admission;
mod capping;
pub mod compare;
mod eviction;
mod exact;
mod expr;
pub mod family;
mod file;
mod generator;
mod histogram;
mod oom;
mod policy;
mod priority;
mod quantity;
mod recommendation;
mod report;
mod run;
pub mod sidecar;
mod updater_loop;

use std::{io, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, bail};
use common::quirks::Quirks;

use report::Tally;

/// Run test vectors: inputs, and what the original systems answered to them.
///
/// Reads every *.json file in DIR, gives each input to our code and compares the answers. Each mismatch is printed with
/// its input and the paths that differ. What we refuse because it means nothing, though the original makes something of
/// it, is listed with the reason under `N stricter`. The last line is `N passed, M failed, K skipped`. The exit status is
/// 1 if anything failed, a file that cannot be read included. Families that are not built yet are skipped by name.
#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub struct Args {
    /// The directory with the vector files
    dir: PathBuf,

    /// Only this family; can be given several times
    #[arg(long, value_name = "FAMILY")]
    family: Vec<String>,

    /// Which of VPA's quirks are on: all, none, or a list such as Q8,Q10
    ///
    /// The vectors are VPA's way, so `all` must give every answer. With fewer, a case that differs is tried again with the
    /// missing quirks: the smallest set that explains it is counted in a summary, and a difference that no quirk explains
    /// fails.
    #[arg(long, value_name = "LIST", default_value_t = Quirks::all())]
    quirks: Quirks,

    /// Run twice to see that native sidecars change nothing: added to every pod with the gate off, then with the gate on
    /// and the pods as they are
    #[arg(long)]
    add_native_sidecars: bool,

    /// Print whole inputs and values, and the cases that pass
    #[arg(long)]
    verbose: bool,
}

const AFTER_LONG_HELP: &str = "\
Examples:
  hack vectors hack/testdata/vectors                         all but the long ones, VPA's way: 0 failed
  hack vectors hack/testdata/vectors --family quantity       one family
  hack vectors hack/testdata/vectors --quirks=none           our way: what differs, by quirk
  hack vectors hack/testdata/vectors --add-native-sidecars   the gate and its absence change nothing
  hack vectors ~/other-seeds --verbose                       any directory of such files

A vector file is {\"family\", \"source\", \"cases\": [{\"name\", \"input\", \"expect\"}, …]}; the schema of each
family is in hack/testdata/vectors/README.md. A case that expects a panic only has to be answered.";

impl Args {
    /// Runs and prints to standard output.
    ///
    /// # Errors
    /// If there is nothing to run, or the output cannot be written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let out = &mut io::stdout().lock();
        for name in &self.family {
            family::find(name)?;
        }
        let files = file::list(&self.dir)?;
        let outcome = run::run(self, &files, out)?;
        if outcome.total() == Tally::default() {
            let wanted = if self.family.is_empty() {
                String::new()
            } else {
                format!(" of {}", self.family.join(", "))
            };
            bail!("no cases{wanted} in {}: nothing was run", self.dir.display());
        }
        outcome.print(out).context("cannot write the summary")?;
        Ok(if outcome.total().failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}
