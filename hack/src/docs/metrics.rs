//! docs/metrics.md: every metric, by the registries, beside VPA's.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use common::daemon::metrics::described;

use super::{Daemon, HEADER, Shared, code, row};

/// What VPA has.
const VPA: &str = include_str!("../../testdata/vpa/metrics.txt");

const INTRODUCTION: &str = "
# Metrics

Served in Prometheus' classic text format at `/metrics` of `--address` (recommender 8942, updater 8943, admission 8944).
VPA's metrics are there under their names, types and labels; what begins with `outrigger_` is ours. Go's runtime metrics
(`go_*`) do not exist here. A histogram `m` is served as `m_bucket`, `m_sum` and `m_count`. A family without samples is not
printed: `rate()` of a counter that never counted finds nothing.
";

/// A metric as `/metrics` describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// The names of its labels.
    pub labels: Vec<String>,
    /// What it says.
    pub help: String,
}

pub(super) fn page() -> Result<String> {
    let theirs = theirs()?;
    let mut lists = BTreeMap::new();
    for daemon in Daemon::ALL {
        lists.insert(daemon, metrics_of(daemon)?);
    }
    for (name, (kind, labels)) in &theirs {
        let ours = lists.values().flatten().find(|metric| metric.name == *name);
        let ours = ours.with_context(|| format!("VPA's metric {name} is not there"))?;
        let same_labels = {
            let [mut ours, mut theirs] = [ours.labels.clone(), labels.clone()];
            ours.sort();
            theirs.sort();
            ours == theirs
        };
        ensure!(
            ours.kind == *kind && same_labels,
            "VPA's {name} is a {kind} with {labels:?}, ours is {ours:?}"
        );
    }
    let mut page = format!("{HEADER}{INTRODUCTION}");
    for (title, mut metrics) in Shared::of(&lists).sections() {
        metrics.sort_by_key(|metric| (whose(metric, &theirs), metric.name.clone()));
        page += &format!("\n## {title}\n\n");
        page += "| metric | type | labels | says | whose |\n|---|---|---|---|---|\n";
        for metric in &metrics {
            let labels: Vec<String> = metric.labels.iter().map(|label| code(label)).collect();
            let whose = match whose(metric, &theirs) {
                Whose::Vpa => "VPA",
                Whose::Ours => "ours",
                Whose::Everybody => "every client",
            };
            page += &row(&[
                &code(&metric.name),
                &metric.kind,
                &labels.join(", "),
                metric.help.trim_end_matches('.'),
                whose,
            ]);
        }
    }
    Ok(page)
}

/// The metrics of a daemon.
///
/// # Errors
/// When one has no sample.
pub fn metrics_of(daemon: Daemon) -> Result<Vec<Metric>> {
    let text = match daemon {
        Daemon::Recommender => described(recommender::sample_metrics, true)?,
        Daemon::Updater => described(updater::sample_metrics, true)?,
        Daemon::Admission => described(admission::sample_metrics, false)?,
    };
    let mut metrics: Vec<Metric> = Vec::new();
    let mut help = "";
    let mut is_new = false;
    for line in text.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, kind) = typed.split_once(' ').context("a type without a kind")?;
            metrics.push(Metric {
                name: name.to_owned(),
                kind: kind.to_owned(),
                labels: Vec::new(),
                help: help.to_owned(),
            });
            is_new = true;
        } else if is_new && let Some(metric) = metrics.last_mut() {
            metric.labels = labels(line);
            is_new = false;
        }
    }
    Ok(metrics)
}

/// The names of the labels of a sample whose values need no quoting, a bucket's bound aside.
fn labels(line: &str) -> Vec<String> {
    let inner = line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}'));
    let pairs = inner.map_or("", |(inner, _)| inner).split("\",");
    pairs
        .filter_map(|pair| pair.split_once("=\""))
        .map(|(name, _)| name.to_owned())
        .filter(|name| name != "le")
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    Vpa,
    Ours,
    Everybody,
}

fn whose(metric: &Metric, theirs: &Theirs) -> Whose {
    if theirs.contains_key(&metric.name) {
        Whose::Vpa
    } else if metric.name.starts_with("outrigger_") {
        Whose::Ours
    } else {
        Whose::Everybody
    }
}

/// VPA's metrics: their types and labels.
type Theirs = BTreeMap<String, (String, Vec<String>)>;

fn theirs() -> Result<Theirs> {
    let lines = VPA.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.split(' ');
            let (name, kind) = words.next().zip(words.next()).context("a name and a type")?;
            let labels = words.next().unwrap_or_default().split(',');
            let labels = labels.filter(|label| !label.is_empty()).map(str::to_owned);
            Ok((name.to_owned(), (kind.to_owned(), labels.collect())))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_the_names_of_a_sample() {
        for (line, expected) in [
            ("up 1", &[][..]),
            ("a{b=\"\"} 1", &["b"]),
            ("a_bucket{le=\"0.1\",b=\"\",c=\"x y\"} 1", &["b", "c"]),
        ] {
            assert_eq!(labels(line), expected, "{line}");
        }
    }
}
