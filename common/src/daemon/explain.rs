//! `DAEMON explain …`: a question about one object, answered by the daemon's own code from what the API server says now.
//! The daemon's flags are taken too: whoever puts those of the running daemon behind it gets that daemon's numbers.

use std::{
    ffi::OsString,
    fmt::Display,
    io::{self, Write as _},
    path::PathBuf,
};

use kube::Client;
use prometheus_client::registry::Registry;
use serde::Serialize;

use super::{Common, Flags, pflag};
use crate::kube::client::{self, ClientError};

/// The word that turns a daemon's program into one that explains.
pub const WORD: &str = "explain";

/// What a daemon's program is asked to do: to run with these flags, or to explain.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked<F, Q: clap::Args>
where
    F: clap::Args,
{
    /// To run.
    Run(F),
    /// To explain.
    Explain(Box<Explain<F, Q>>),
}

/// A question: what is asked, in which form the answer is wanted, and with which flags the daemon would run.
#[derive(Clone, Debug, PartialEq, clap::Parser)]
pub struct Explain<F: clap::Args, Q: clap::Args> {
    /// What is asked.
    #[command(flatten)]
    pub question: Q,
    /// Where it is.
    #[command(flatten)]
    pub about: About,
    /// The daemon's flags.
    #[command(flatten)]
    pub flags: F,
}

/// Where an object is, and how to tell of it.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Explain")]
pub struct About {
    /// The namespace to look in
    #[arg(short, long, default_value = "default")]
    pub namespace: String,
    /// How to print the answer
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// How to print an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

impl<F: Flags + clap::Args, Q: clap::Args> Flags for Explain<F, Q> {
    const NAME: &'static str = F::NAME;
    const ADDRESS: &'static str = F::ADDRESS;
    const LEASE: Option<&'static str> = F::LEASE;
}

impl<F: Flags + clap::Args, Q: clap::Args> Asked<F, Q> {
    /// Reads this process's command line; on `--help`, `--version` or a mistake, prints and exits.
    #[must_use]
    pub fn parse() -> Self {
        Self::try_parse(std::env::args_os()).unwrap_or_else(|error| error.exit())
    }

    /// Reads a command line, program name first. The word `explain` counts only right behind it.
    ///
    /// # Errors
    /// When it cannot be read, or asks for help.
    pub fn try_parse(argv: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut argv = argv.into_iter();
        let program = argv.next();
        let mut rest = argv.peekable();
        if rest.next_if(|word| word == WORD).is_some() {
            let name = format!("{} {WORD}", F::NAME);
            let command = pflag::command::<Explain<F, Q>>()
                .bin_name(name)
                .about("Explain the numbers of one object: where each of them comes from")
                .long_about(None);
            let asked = pflag::try_parse_as(command, program.into_iter().chain(rest))?;
            return Ok(Self::Explain(Box::new(asked)));
        }
        let command = pflag::command::<F>();
        let more = format!(
            "{}\n`{} {WORD} --help` says how to ask where the numbers of an object come from.",
            command.get_after_help().cloned().unwrap_or_default(),
            F::NAME
        );
        let asked = pflag::try_parse_as(command.after_help(more), program.into_iter().chain(rest))?;
        Ok(Self::Run(asked))
    }
}

/// The client of whoever asks: of `--kubeconfig`, of the kubeconfig that kubectl would take, or of the pod this runs in.
/// Nothing is sent yet.
///
/// # Errors
/// When there is none of them, or it cannot be used.
pub async fn connect(daemon: &str, common: &Common) -> Result<Client, ClientError> {
    let kubeconfig = common.kubeconfig.clone().or_else(usual_kubeconfig);
    let mut nobody_looks = Registry::default();
    client::connect(
        daemon,
        kubeconfig.as_deref(),
        common.rate_limit,
        &mut nobody_looks,
    )
    .await
}

fn usual_kubeconfig() -> Option<PathBuf> {
    let named = std::env::var_os("KUBECONFIG").map(PathBuf::from);
    let usual = || std::env::home_dir().map(|home| home.join(".kube/config"));
    named.or_else(usual).filter(|path| path.is_file())
}

impl Output {
    /// An answer in this form, with a line's end at its end.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn form<A: Display + Serialize>(self, answer: &A) -> Result<String, serde_json::Error> {
        let text = match self {
            Self::Text => answer.to_string(),
            Self::Json => serde_json::to_string_pretty(answer)?,
        };
        Ok(format!("{}\n", text.trim_end()))
    }

    /// Prints an answer, or why there is none, and ends the process: 0 if there is one.
    pub fn exit<A: Display + Serialize, E: Display>(self, outcome: Result<A, E>) -> ! {
        let text = outcome
            .map_err(|error| format!("{error:#}"))
            .and_then(|answer| self.form(&answer).map_err(|error| error.to_string()));
        match text {
            Ok(text) => {
                // Whoever closes the pipe has read enough.
                let _written = io::stdout().write_all(text.as_bytes());
                std::process::exit(0)
            }
            Err(error) => {
                eprintln!("error: {error}");
                std::process::exit(1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::GoBool;

    #[derive(Clone, clap::Parser, Debug, PartialEq)]
    struct Sample {
        #[arg(long)]
        address: String,
        #[arg(long, default_value_t = 0.9)]
        target_cpu_percentile: f64,
        #[arg(long, default_value_t)]
        memory_saver: GoBool,
    }

    impl Flags for Sample {
        const NAME: &'static str = "sample";
        const ADDRESS: &'static str = ":1";
        const LEASE: Option<&'static str> = None;
    }

    #[derive(Clone, clap::Args, Debug, PartialEq)]
    struct Question {
        /// The object
        #[arg(value_name = "VPA")]
        vpa: String,
    }

    fn read(line: &str) -> Result<Asked<Sample, Question>, String> {
        let argv = std::iter::once("sample").chain(line.split_whitespace());
        Asked::try_parse(argv.map(OsString::from)).map_err(|error| error.to_string())
    }

    fn explain(
        vpa: &str,
        namespace: &str,
        output: Output,
        percentile: f64,
        saver: bool,
    ) -> Asked<Sample, Question> {
        Asked::Explain(Box::new(Explain {
            question: Question { vpa: vpa.to_owned() },
            about: About {
                namespace: namespace.to_owned(),
                output,
            },
            flags: Sample {
                address: ":1".to_owned(),
                target_cpu_percentile: percentile,
                memory_saver: GoBool(saver),
            },
        }))
    }

    #[test]
    fn a_question_stands_beside_the_daemons_flags() {
        for (line, expected) in [
            ("explain web", explain("web", "default", Output::Text, 0.9, false)),
            (
                "explain -n shop web -o json",
                explain("web", "shop", Output::Json, 0.9, false),
            ),
            (
                "explain --namespace=shop --output json web",
                explain("web", "shop", Output::Json, 0.9, false),
            ),
            (
                "explain --memory_saver -target-cpu-percentile 0.95 -nshop web",
                explain("web", "shop", Output::Text, 0.95, true),
            ),
        ] {
            assert_eq!(read(line).as_ref(), Ok(&expected), "{line}");
        }
        let run = Sample {
            address: ":1".to_owned(),
            target_cpu_percentile: 0.95,
            memory_saver: GoBool(false),
        };
        assert_eq!(read("--target-cpu-percentile=0.95"), Ok(Asked::Run(run)));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, expected) in [
            ("explain", "<VPA>"),
            ("explain", "Usage: sample explain"),
            ("explain web -o yaml", "[possible values: text, json]"),
            ("explain web other", "unexpected argument 'other' found"),
            // As with pflag, a daemon has no words of its own.
            (
                "--memory-saver=true explain web",
                "unexpected argument 'explain' found",
            ),
            ("--help", "`sample explain --help` says how to ask"),
            ("--help", "Booleans are written --flag or --flag=false"),
            ("explain --help", "where each of them comes from"),
            ("explain --help", "--target-cpu-percentile"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn an_answer_is_text_or_json() {
        assert_eq!(Output::Text.form(&"five\n").unwrap(), "five\n");
        assert_eq!(Output::Json.form(&"five").unwrap(), "\"five\"\n");
    }
}
