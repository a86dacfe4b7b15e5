//! The text that `/metrics` serves: Prometheus' classic format, always, whatever the scraper would also accept.
//!
//! VPA serves nothing else, and some of its names cannot be said in OpenMetrics, which wants every counter to end in
//! `_total` and nothing else to. So names come out as they are registered, with these rules:
//! - a counter whose name ends in `_total`: register a `prometheus_client` `Counter` without the ending, as
//!   `vpa_updater_evicted_pods`; it prints as `vpa_updater_evicted_pods_total`;
//! - a counter whose name does not (`vpa_recommender_metric_server_responses`): register a [`BareCounter`] under its
//!   full name;
//! - a gauge whose name ends in `_total` (`vpa_updater_controlled_pods_total`): register a `Gauge` under its full name.

use std::{fmt, hash::Hash};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, text::encode_registry},
    metrics::{
        MetricType, TypedMetric,
        counter::Counter,
        family::{Family, MetricConstructor},
    },
    registry::Registry,
};

/// The content type of [`encode`]'s text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Everything in the registry, in Prometheus' classic text format.
pub fn encode(registry: &Registry) -> Result<String, fmt::Error> {
    let mut text = String::new();
    encode_registry(&mut text, registry)?;
    Ok(classic(&text))
}

/// Makes a family's metric with empty labels, so that [`described`] sees which labels it has.
pub fn sample<S, M, C>(family: &Family<S, M, C>)
where
    S: Clone + Default + Eq + Hash,
    C: MetricConstructor<M>,
{
    drop(family.get_or_create(&S::default()));
}

/// Why metrics cannot be described.
#[derive(Debug, thiserror::Error)]
pub enum DescribeError {
    /// Text cannot be written, which it can.
    #[error(transparent)]
    Encode(#[from] fmt::Error),
    /// Nobody knows its labels.
    #[error("no sample of {0}")]
    NoSample(String),
}

/// What `/metrics` of a daemon would print with one sample of everything: the shell's, and the daemon's `own`, each of
/// which has to be given a [`sample`]. The documentation is generated from it.
///
/// # Errors
/// If one has no sample.
pub fn described(own: impl FnOnce(&mut Registry), has_lease: bool) -> Result<String, DescribeError> {
    let mut registry = Registry::default();
    super::build::register(&mut registry);
    super::process::register(&mut registry);
    crate::kube::sample_metrics(&mut registry, has_lease);
    own(&mut registry);
    let mut text = String::new();
    encode_registry(&mut text, &registry)?;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(family) = line.strip_prefix("# TYPE ")
            && lines
                .peek()
                .is_none_or(|next| next.starts_with("# HELP") || next.starts_with("# EOF"))
        {
            return Err(DescribeError::NoSample(family.to_owned()));
        }
    }
    Ok(classic(&text))
}

/// A counter that prints under exactly the name it is registered with.
#[derive(Clone, Debug, Default)]
pub struct BareCounter(Counter);

impl BareCounter {
    /// Counts one.
    pub fn inc(&self) {
        self.0.inc();
    }

    /// Counts several.
    pub fn inc_by(&self, count: u64) {
        self.0.inc_by(count);
    }

    /// How many there were.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

impl TypedMetric for BareCounter {
    const TYPE: MetricType = MetricType::Counter;
}

impl EncodeMetric for BareCounter {
    /// A gauge's line is a counter's line without the ending.
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&self.0.get())
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// OpenMetrics as `prometheus_client` writes it, as the classic format: the name in HELP and TYPE is that of the
/// samples, an info is a gauge, bounds of buckets are numbers as Go prints them, and units are not mentioned.
fn classic(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = "";
    let mut family: Option<(&str, &str)> = None;
    let mut histogram = false;
    for line in open_metrics.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described;
        } else if let Some(typed) = line.strip_prefix("# TYPE ") {
            family = typed.split_once(' ');
            histogram = family.is_some_and(|(_, kind)| kind == "histogram");
        } else if !line.starts_with('#') {
            if let Some((name, kind)) = family.take() {
                let printed = line.split(['{', ' ']).next().unwrap_or(name);
                let (name, kind) = match kind {
                    "counter" => (printed, kind),
                    "info" => (printed, "gauge"),
                    "unknown" => (name, "untyped"),
                    kind => (name, kind),
                };
                let help = help.split_once(' ').map_or("", |(_, help)| help);
                text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
            }
            match histogram.then(|| go_bound(line)).flatten() {
                Some(line) => text.push_str(&line),
                None => text.push_str(line),
            }
            text.push('\n');
        }
    }
    text
}

/// A bucket's line with its bound as Go prints it. `prometheus_client` writes the bound as the first label.
fn go_bound(line: &str) -> Option<String> {
    let (before, rest) = line.split_once("_bucket{le=\"")?;
    let (bound, after) = rest.split_once('"')?;
    let bound = go_float(bound.parse().ok().filter(|bound: &f64| bound.is_finite())?);
    Some(format!("{before}_bucket{{le=\"{bound}\"{after}"))
}

/// The shortest number that reads back the same, with an exponent below 1e-4 and from 1e6 on.
fn go_float(number: f64) -> String {
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::{family::Family, gauge::Gauge, histogram::Histogram, info::Info};
    use prometheus_client::registry::Unit;

    #[test]
    fn names_come_out_as_vpa_prints_them() {
        type Labels = Vec<(&'static str, &'static str)>;
        let mut registry = Registry::default();
        let updater = registry.sub_registry_with_prefix("vpa_updater");
        let evicted = Family::<Labels, Counter>::default();
        updater.register(
            "evicted_pods",
            "Number of Pods evicted by Updater",
            evicted.clone(),
        );
        evicted.get_or_create(&vec![("update_mode", "Auto")]).inc();
        let controlled = Family::<Labels, Gauge>::default();
        updater.register(
            "controlled_pods_total",
            "Number of Pods controlled",
            controlled.clone(),
        );
        controlled.get_or_create(&vec![("update_mode", "Auto")]).set(3);
        updater.register(
            "failed",
            "Nothing happened yet",
            Family::<Labels, Counter>::default(),
        );
        let responses = Family::<Labels, BareCounter>::default();
        registry.register(
            "vpa_recommender_metric_server_responses",
            "Count of responses",
            responses.clone(),
        );
        responses.get_or_create(&vec![("is_error", "false")]).inc_by(2);
        let latency = Histogram::new([0.01, 1.0, 1e6, 6.5536e10, 1e21]);
        registry.register_with_unit("latency", "Time", Unit::Seconds, latency.clone());
        latency.observe(0.5);
        registry.register("build", "Built", Info::new(vec![("version", "1")]));
        assert_eq!(
            encode(&registry).unwrap(),
            "# HELP vpa_recommender_metric_server_responses Count of responses.\n\
             # TYPE vpa_recommender_metric_server_responses counter\n\
             vpa_recommender_metric_server_responses{is_error=\"false\"} 2\n\
             # HELP latency_seconds Time.\n\
             # TYPE latency_seconds histogram\n\
             latency_seconds_sum 0.5\n\
             latency_seconds_count 1\n\
             latency_seconds_bucket{le=\"0.01\"} 0\n\
             latency_seconds_bucket{le=\"1\"} 1\n\
             latency_seconds_bucket{le=\"1e+06\"} 1\n\
             latency_seconds_bucket{le=\"6.5536e+10\"} 1\n\
             latency_seconds_bucket{le=\"1e+21\"} 1\n\
             latency_seconds_bucket{le=\"+Inf\"} 1\n\
             # HELP build_info Built.\n\
             # TYPE build_info gauge\n\
             build_info{version=\"1\"} 1\n\
             # HELP vpa_updater_evicted_pods_total Number of Pods evicted by Updater.\n\
             # TYPE vpa_updater_evicted_pods_total counter\n\
             vpa_updater_evicted_pods_total{update_mode=\"Auto\"} 1\n\
             # HELP vpa_updater_controlled_pods_total Number of Pods controlled.\n\
             # TYPE vpa_updater_controlled_pods_total gauge\n\
             vpa_updater_controlled_pods_total{update_mode=\"Auto\"} 3\n"
        );
    }

    #[test]
    fn bounds_are_printed_as_go_prints_them() {
        for (number, expected) in [
            (0.0, "0"),
            (-1.0, "-1"),
            (-0.0025, "-0.0025"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (7.5, "7.5"),
            (1800.0, "1800"),
            (524_288.0, "524288"),
            (1e6, "1e+06"),
            (655.36, "655.36"),
            (6.5536e10, "6.5536e+10"),
        ] {
            assert_eq!(go_float(number), expected);
        }
    }
}
