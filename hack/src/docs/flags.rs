//! docs/flags.md: every flag, by the clap definitions, beside VPA's.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use clap::Arg;
use common::{daemon::pflag, gates::Gates};

use super::{Daemon, HEADER, Shared, code, row};

/// What VPA has.
const VPA: &str = include_str!("../../testdata/vpa/flags.txt");

const INTRODUCTION: &str = "
# Flags

All flags of VPA are taken under their names, with `-` or `_`, one dash or two. Booleans are written `--flag` or
`--flag=false`, durations as `15s`, `1m30s` or `1.5h`. The last column compares with VPA 1.7: **same** name and default;
**ours**, which VPA does not have; **no effect**, taken so that a manifest works unchanged; or the default that VPA has.
What stands behind a flag, and where we do something else than VPA: [differences.md](differences.md).
";

#[derive(Clone, Debug, PartialEq)]
struct Flag {
    name: String,
    default: Option<String>,
    help: String,
    against_vpa: String,
}

/// VPA's flags of one daemon, with their defaults.
type Theirs = BTreeMap<String, Option<String>>;

pub(super) fn page() -> Result<String> {
    let mut lists = BTreeMap::new();
    for daemon in Daemon::ALL {
        lists.insert(daemon, flags(daemon)?);
    }
    let mut page = format!("{HEADER}{INTRODUCTION}");
    for (title, flags) in Shared::of(&lists).sections() {
        page += &format!("\n## {title}\n\n");
        page += "| flag | default | meaning | VPA |\n|---|---|---|---|\n";
        for flag in flags {
            let name = code(&format!("--{}", flag.name));
            let default = code(flag.default.as_deref().unwrap_or_default());
            page += &row(&[&name, &default, &flag.help, &flag.against_vpa]);
        }
    }
    page += &format!(
        "\n## Feature gates\n\nFor `--feature-gates`:\n\n```\n{}\n```\n",
        Gates::help().trim_end()
    );
    Ok(page)
}

fn flags(daemon: Daemon) -> Result<Vec<Flag>> {
    let command = match daemon {
        Daemon::Recommender => pflag::command::<recommender::Args>(),
        Daemon::Updater => pflag::command::<updater::Args>(),
        Daemon::Admission => pflag::command::<admission::Args>(),
    };
    let mut theirs = theirs(daemon)?;
    let flags: Vec<Flag> = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set())
        .filter_map(|arg| flag(arg, &mut theirs))
        .collect();
    ensure!(
        theirs.is_empty(),
        "the {} lacks flags of VPA: {theirs:?}",
        daemon.name()
    );
    Ok(flags)
}

fn flag(arg: &Arg, theirs: &mut Theirs) -> Option<Flag> {
    let name = arg.get_long()?.to_owned();
    let default = arg
        .get_default_values()
        .first()
        .map(|value| value.to_string_lossy().into_owned());
    let mut help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    // Booleans and the like name their values; only what has a closed set of its own is said.
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .map(|value| code(value.get_name()))
        .collect();
    if !values.is_empty() {
        help = format!("{help}: {}", values.join(", "));
    }
    let against_vpa = match theirs.remove(&name) {
        None => "ours".to_owned(),
        Some(_) if help.starts_with("Taken for compatibility") => "no effect".to_owned(),
        Some(theirs) if theirs == default => "same".to_owned(),
        Some(theirs) => match theirs.as_deref() {
            None | Some("") => "no default".to_owned(),
            Some(theirs) => code(theirs),
        },
    };
    Some(Flag {
        name,
        default,
        help,
        against_vpa,
    })
}

fn theirs(daemon: Daemon) -> Result<Theirs> {
    let mut flags = Theirs::new();
    let mut is_ours = false;
    for line in VPA.lines().filter(|line| !line.starts_with('#')) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            is_ours = section == "all" || section == daemon.name();
        } else if is_ours {
            let (name, default) = match line.split_once(" =") {
                Some((name, default)) => (name, Some(default.trim().to_owned())),
                None => (line, None),
            };
            let before = flags.insert(name.to_owned(), default);
            ensure!(before.is_none(), "--{name} twice among VPA's flags");
        }
    }
    flags.first_key_value().context("no flags of VPA")?;
    Ok(flags)
}
