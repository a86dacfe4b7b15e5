//! What a run found, and how it is printed for people.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use common::quirks::{Quirk, Quirks};
use serde_json::Value;

use super::{compare::Difference, family::Family};

/// How many cases went which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Answered as expected, or differently because of a quirk that is off, or refused because it means nothing.
    pub(super) passed: usize,
    /// The rest of those that were run, and files that could not be.
    pub(super) failed: usize,
    /// Of families that are not built yet.
    pub(super) skipped: usize,
}

/// What a run found.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// By family.
    pub(super) families: BTreeMap<&'static str, Tally>,
    /// Cases that differ because a quirk is off; a case that takes several counts for each.
    pub(super) quirks: BTreeMap<Quirk, usize>,
    /// What was held to another standard than the expectation, and how often.
    pub(super) notes: BTreeMap<&'static str, usize>,
    /// Cases that we refuse although the original computes something, and why.
    pub(super) stricter: BTreeMap<String, String>,
    /// Files that could not be read as vectors.
    pub(super) bad_files: usize,
}

/// Why a case failed.
#[derive(Debug)]
pub(super) enum Failure {
    Different(Vec<Difference>),
    /// The family's code could not answer.
    NoAnswer(String),
    Panicked(String),
}

impl Outcome {
    /// Adds what another run found.
    pub(super) fn merge(&mut self, other: Self) {
        for (family, tally) in other.families {
            let sum = self.families.entry(family).or_default();
            sum.passed += tally.passed;
            sum.failed += tally.failed;
            sum.skipped += tally.skipped;
        }
        for (quirk, cases) in other.quirks {
            *self.quirks.entry(quirk).or_default() += cases;
        }
        for (note, cases) in other.notes {
            *self.notes.entry(note).or_default() += cases;
        }
        self.stricter.extend(other.stricter);
        self.bad_files += other.bad_files;
    }

    /// All families and files together.
    #[must_use]
    pub(super) fn total(&self) -> Tally {
        let files = Tally {
            failed: self.bad_files,
            ..Tally::default()
        };
        self.families.values().fold(files, |sum, tally| Tally {
            passed: sum.passed + tally.passed,
            failed: sum.failed + tally.failed,
            skipped: sum.skipped + tally.skipped,
        })
    }

    pub(super) fn add_explained(&mut self, quirks: Quirks) {
        for quirk in quirks.iter() {
            *self.quirks.entry(quirk).or_default() += 1;
        }
    }

    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        for (family, tally) in &self.families {
            match tally {
                Tally {
                    skipped: 0,
                    failed: 0,
                    passed,
                } => writeln!(out, "{family}: {passed} passed")?,
                Tally {
                    skipped: 0,
                    failed,
                    passed,
                } => writeln!(out, "{family}: {passed} passed, {failed} failed")?,
                Tally { skipped, .. } => writeln!(out, "{family}: {skipped} skipped, not built yet")?,
            }
        }
        for (note, count) in &self.notes {
            writeln!(out, "  {count} {note}")?;
        }
        if !self.stricter.is_empty() {
            writeln!(out, "{} stricter:", self.stricter.len())?;
        }
        for (case, reason) in &self.stricter {
            writeln!(out, "  {case}: {reason}")?;
        }
        if !self.quirks.is_empty() {
            writeln!(out, "different on purpose:")?;
        }
        for (quirk, count) in &self.quirks {
            writeln!(out, "  {quirk}: {count} cases (VPA: {})", quirk.description())?;
        }
        let Tally {
            passed,
            failed,
            skipped,
        } = self.total();
        writeln!(out, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// One failed case. Long values are cut unless everything is wanted.
pub(super) fn failure(
    out: &mut dyn Write,
    family: &Family,
    name: &str,
    input: &Value,
    failure: &Failure,
    everything: bool,
) -> io::Result<()> {
    let cut = |value: &Value, width| {
        if everything {
            value.to_string()
        } else {
            shorten(&value.to_string(), width)
        }
    };
    writeln!(out, "FAILED {}/{name}", family.name)?;
    writeln!(out, "  input: {}", cut(input, 300))?;
    match failure {
        Failure::Different(differences) => {
            let shown = if everything { differences.len() } else { 12 };
            for Difference { path, expected, got } in differences.iter().take(shown) {
                let path = if path.is_empty() { "the whole answer" } else { path };
                writeln!(
                    out,
                    "  {path}\n    expected: {}\n    got:      {}",
                    cut(expected, 200),
                    cut(got, 200)
                )?;
            }
            if differences.len() > shown {
                writeln!(
                    out,
                    "  … and {} more differences (--verbose)",
                    differences.len() - shown
                )?;
            }
            Ok(())
        }
        Failure::NoAnswer(error) => writeln!(out, "  no answer: {error}"),
        Failure::Panicked(message) => writeln!(out, "  panicked: {message}"),
    }
}

fn shorten(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::vectors::family;

    #[test]
    fn failures_are_readable_and_cut() {
        let found = Failure::Different(vec![Difference {
            path: "a.string".into(),
            expected: json!("1"),
            got: json!("é".repeat(300)),
        }]);
        let mut out = Vec::new();
        failure(
            &mut out,
            family::find("quantity").unwrap(),
            "pair-1",
            &json!({"a": "1"}),
            &found,
            false,
        )
        .unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            format!(
                "FAILED quantity/pair-1\n  input: {{\"a\":\"1\"}}\n  a.string\n    expected: \"1\"\n    got:      \"{}…\n",
                "é".repeat(199)
            )
        );
    }

    #[test]
    fn the_last_line_is_the_total() {
        let mut outcome = Outcome {
            bad_files: 1,
            ..Outcome::default()
        };
        outcome.families.insert(
            "quantity",
            Tally {
                passed: 3,
                failed: 1,
                skipped: 0,
            },
        );
        outcome.families.insert(
            "oom",
            Tally {
                skipped: 2,
                ..Tally::default()
            },
        );
        outcome.add_explained("Q8,Q10".parse().unwrap());
        outcome
            .stricter
            .insert("expr/fixed-1".into(), "1K: not a number".into());
        let mut out = Vec::new();
        outcome.print(&mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "oom: 2 skipped, not built yet\n\
             quantity: 3 passed, 1 failed\n\
             1 stricter:\n  expr/fixed-1: 1K: not a number\n\
             different on purpose:\n  \
             Q8: 1 cases (VPA: a first memory sample of 0 bytes keeps the window's peak at 0)\n  \
             Q10: 1 cases (VPA: containers without any sample are recommended the bare minimum, and resized to it)\n\
             3 passed, 2 failed, 2 skipped\n"
        );
    }
}
