//! What a person sees while a cluster is built or started. It goes to standard error, so that standard output is
//! free for what scripts read.

use std::{fmt::Arguments, time::Duration};

/// Whether to talk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// Say nothing; errors still say everything.
    #[default]
    Quiet,
    /// A line for each step, on standard error.
    Lines,
}

impl Progress {
    /// Says something.
    pub fn say(self, what: Arguments<'_>) {
        if self == Self::Lines {
            eprintln!("{what}");
        }
    }
}

/// A span as people say it: `0.4 s`, `12.3 s`, `2 min 5 s`.
#[must_use]
pub(super) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    if seconds < 60 {
        format!("{:.1} s", span.as_secs_f64())
    } else {
        format!("{} min {} s", seconds / 60, seconds % 60)
    }
}

/// The last lines of a log, for an error message.
#[must_use]
pub(super) fn tail(log: &str, lines: usize) -> String {
    let all: Vec<&str> = log.trim_end().lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_well() {
        let table = [(400, "0.4 s"), (12_340, "12.3 s"), (125_900, "2 min 5 s")];
        for (millis, expected) in table {
            assert_eq!(span(Duration::from_millis(millis)), expected);
        }
    }

    #[test]
    fn a_tail_is_the_last_lines() {
        assert_eq!(tail("a\nb\nc\n\n", 2), "b\nc");
        assert_eq!(tail("a", 5), "a");
        assert_eq!(tail("", 5), "");
    }
}
