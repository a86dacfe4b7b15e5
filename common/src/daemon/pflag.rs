//! Command lines as Go's pflag reads them, on top of clap: `_` for `-` in names, `-v=4` and other single-dash long
//! names, booleans that never take the next word, values that may start with a dash, and the last of two wins.

use std::{any::TypeId, ffi::OsString, fmt, str::FromStr};

use clap::{Arg, Command, CommandFactory, FromArgMatches, error::ErrorKind};

use crate::{daemon::build, gates::parse_go_bool};

/// A daemon's flags: a clap struct, and the defaults in which the daemons differ.
pub trait Flags: CommandFactory + FromArgMatches {
    /// The daemon's name.
    const NAME: &'static str;
    /// Where it serves metrics and health when nobody says anything (`spec/vpa.md` 2.1, 3.1, 4.1).
    const ADDRESS: &'static str;
    /// The lease for which its replicas compete, if it has one.
    const LEASE: Option<&'static str>;
}

/// Reads this process's command line; on `--help`, `--version` or a mistake, prints and exits.
#[must_use]
pub fn parse<F: Flags>() -> F {
    try_parse(std::env::args_os()).unwrap_or_else(|error| error.exit())
}

/// Reads a command line, program name first.
pub fn try_parse<F: Flags>(argv: impl IntoIterator<Item = OsString>) -> Result<F, clap::Error> {
    try_parse_as(command::<F>(), argv)
}

/// Reads a command line by a daemon's command that somebody has added to.
pub(super) fn try_parse_as<F: Flags>(
    mut command: Command,
    argv: impl IntoIterator<Item = OsString>,
) -> Result<F, clap::Error> {
    let argv = respell(&mut command, argv)?;
    F::from_arg_matches(&command.try_get_matches_from_mut(argv)?).map_err(|error| error.format(&mut command))
}

/// The clap command with this daemon's name, version and defaults.
#[must_use]
pub fn command<F: Flags>() -> Command {
    let mut command = F::command()
        .name(F::NAME)
        .version(build::DESCRIPTION)
        .args_override_self(true)
        .after_help("Booleans are written --flag or --flag=false; durations as 15s, 1m30s or 1.5h.")
        .mut_args(|arg| {
            if arg.get_value_parser().type_id() == TypeId::of::<GoBool>() {
                arg.value_name("BOOL")
                    .num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("true")
            } else {
                arg
            }
        });
    let defaults = [
        ("address", Some(F::ADDRESS)),
        ("leader_elect_resource_name", F::LEASE),
    ];
    for (id, default) in defaults {
        if let Some(default) = default
            && command.get_arguments().any(|arg| arg.get_id() == id)
        {
            command = command.mut_arg(id, |arg| arg.required(false).default_value(default));
        }
    }
    command
}

/// Rewrites every flag that is known into the one spelling `--name=value`, which clap cannot misread. What is not
/// known is left for clap to refuse, with its suggestion of a similar name.
fn respell(
    command: &mut Command,
    argv: impl IntoIterator<Item = OsString>,
) -> Result<Vec<OsString>, clap::Error> {
    command.build();
    let mut words = argv.into_iter().peekable();
    let mut spelled: Vec<OsString> = words.next().into_iter().collect();
    while let Some(word) = words.next() {
        let Some(flag) = word.to_str().and_then(|text| Flag::read(command, text)) else {
            let ends = word == "--";
            spelled.push(word);
            if ends {
                spelled.extend(words.by_ref());
            }
            continue;
        };
        let Flag { name, value, kind } = flag;
        let value = match kind {
            _ if value.is_some() => value.map(OsString::from),
            Kind::Boolean => {
                let next = words.peek().and_then(|next| next.to_str());
                if let Some(next) = next.filter(|next| parse_go_bool(next).is_some()) {
                    // pflag would take the flag as true and drop the word, which nobody means.
                    let message = format!("--{name} takes its value after '=': write --{name}={next}");
                    return Err(command.error(ErrorKind::ValueValidation, message));
                }
                Some("true".into())
            }
            Kind::Value => words.next(),
            Kind::Switch | Kind::Unknown => None,
        };
        let mut text = OsString::from(format!("--{name}"));
        if let Some(value) = value {
            text.push("=");
            text.push(value);
        }
        spelled.push(text);
    }
    Ok(spelled)
}

struct Flag {
    name: String,
    value: Option<String>,
    kind: Kind,
}

enum Kind {
    /// `--flag` or `--flag=false`.
    Boolean,
    /// `--flag=value` or `--flag value`.
    Value,
    /// `--help`, `--version`.
    Switch,
    Unknown,
}

impl Flag {
    /// None if the word is no flag, or is one that clap reads well by itself.
    fn read(command: &Command, word: &str) -> Option<Self> {
        let single_dash = !word.starts_with("--");
        let body = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, None),
        };
        if name.is_empty() {
            return None;
        }
        let name = name.replace('_', "-");
        let arg = command.get_arguments().find(|arg| arg.get_long() == Some(&*name));
        if let Some(arg) = arg {
            let kind = Kind::of(arg);
            return Some(Self { name, value, kind });
        }
        if single_dash {
            return Self::read_short(command, body);
        }
        let kind = Kind::Unknown;
        Some(Self { name, value, kind })
    }

    /// `-v4`, `-h`, or something unknown.
    fn read_short(command: &Command, body: &str) -> Option<Self> {
        let mut chars = body.chars();
        let short = chars.next()?;
        let rest = chars.as_str();
        let arg = command.get_arguments().find(|arg| arg.get_short() == Some(short));
        match arg {
            Some(arg) if matches!(Kind::of(arg), Kind::Value) => Some(Self {
                name: arg.get_long()?.to_owned(),
                value: (!rest.is_empty()).then(|| rest.strip_prefix('=').unwrap_or(rest).to_owned()),
                kind: Kind::Value,
            }),
            Some(_) => None,
            None => Some(Self {
                name: body.to_owned(),
                value: None,
                kind: Kind::Unknown,
            }),
        }
    }
}

impl Kind {
    fn of(arg: &Arg) -> Self {
        match arg.get_num_args() {
            Some(range) if range.max_values() == 0 => Self::Switch,
            Some(range) if range.min_values() == 0 => Self::Boolean,
            _ => Self::Value,
        }
    }
}

/// A boolean flag: `--flag` or `--flag=VALUE` with the values that Go takes, never `--flag VALUE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GoBool(pub bool);

impl FromStr for GoBool {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        parse_go_bool(text).map(Self).ok_or("use true or false")
    }
}

impl fmt::Display for GoBool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::GoDuration;
    use proptest::prelude::*;
    use std::time::Duration;

    #[derive(clap::Parser, Debug, PartialEq)]
    struct Sample {
        #[arg(long)]
        address: String,
        #[arg(long, default_value_t)]
        leader_elect: GoBool,
        #[arg(long, default_value_t = GoDuration(Duration::from_secs(60)))]
        update_interval: GoDuration,
        #[arg(long, default_value_t = -1.0)]
        rate: f64,
        #[arg(long = "v", short = 'v', default_value_t = 4)]
        v: i32,
        #[arg(long, default_value = "")]
        vmodule: String,
    }

    impl Flags for Sample {
        const NAME: &'static str = "sample";
        const ADDRESS: &'static str = ":1";
        const LEASE: Option<&'static str> = None;
    }

    fn sample() -> Sample {
        Sample {
            address: ":1".to_owned(),
            leader_elect: GoBool(false),
            update_interval: GoDuration(Duration::from_secs(60)),
            rate: -1.0,
            v: 4,
            vmodule: String::new(),
        }
    }

    fn read(line: &str) -> Result<Sample, String> {
        let argv = std::iter::once("sample").chain(line.split_whitespace());
        try_parse(argv.map(OsString::from)).map_err(|error| error.to_string())
    }

    #[test]
    fn every_spelling_that_pflag_takes() {
        let elected = Sample {
            leader_elect: GoBool(true),
            ..sample()
        };
        let loud = Sample { v: 6, ..sample() };
        let quick = Sample {
            update_interval: GoDuration(Duration::from_secs(15)),
            ..sample()
        };
        let limited = Sample {
            rate: -2.5,
            ..sample()
        };
        let traced = Sample {
            vmodule: "loop=9".to_owned(),
            ..sample()
        };
        for (expected, lines) in [
            (sample(), &["", "--leader-elect=false", "--leader-elect=F"][..]),
            (
                elected,
                &[
                    "--leader-elect",
                    "--leader-elect=true",
                    "--leader_elect=1",
                    "-leader-elect",
                    "--leader-elect=false --leader_elect",
                ],
            ),
            (loud, &["--v=6", "--v 6", "-v=6", "-v 6", "-v6", "--v=1 -v=6"]),
            (
                quick,
                &[
                    "--update-interval=15s",
                    "--update_interval 15s",
                    "-update-interval=15s",
                    "--update-interval=1m --update-interval=15s",
                ],
            ),
            (limited, &["--rate=-2.5", "--rate -2.5"]),
            (
                traced,
                &["--vmodule=loop=9", "-vmodule=loop=9", "--vmodule loop=9"],
            ),
        ] {
            for line in lines {
                assert_eq!(read(line).as_ref(), Ok(&expected), "{line}");
            }
        }
    }

    #[test]
    fn what_is_refused_and_how() {
        for (line, expected) in [
            (
                "--leader-elect false",
                "--leader-elect takes its value after '=': write --leader-elect=false",
            ),
            (
                "--leader-elect=yes",
                "invalid value 'yes' for '--leader-elect[=<BOOL>]': use true or false",
            ),
            ("--leader-elct", "a similar argument exists: '--leader-elect'"),
            (
                "-update-intervall=1s",
                "a similar argument exists: '--update-interval'",
            ),
            ("-q", "unexpected argument '--q' found"),
            (
                "--update-interval=15",
                "missing unit in duration \"15\": write for example 15s",
            ),
            (
                "--update-interval",
                "a value is required for '--update-interval <UPDATE_INTERVAL>'",
            ),
            ("once", "unexpected argument 'once' found"),
            ("-- --v=6", "unexpected argument '--v=6' found"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn help_shows_defaults_as_go_prints_them() {
        let help = read("--help").unwrap_err();
        assert!(help.contains("[default: 1m0s]"), "{help}");
        assert!(help.contains("[default: :1]"), "{help}");
        assert_eq!(read("-h").unwrap_err(), help);
    }

    proptest! {
        #[test]
        fn nothing_panics(words in prop::collection::vec("(-{0,3}(v|rate|leader.elect|vmodule|x)?(=.{0,4})?)|.{0,8}", 0..5)) {
            let argv = std::iter::once("sample".to_owned()).chain(words);
            let _any = try_parse::<Sample>(argv.map(OsString::from));
        }
    }
}
