//! `metrics.k8s.io` as metrics-server serves it. Nothing is sampled ahead: the usage at the last scrape is computed when
//! somebody asks.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use common::clock::Clock;

use super::{
    context::Context,
    index::{Index, Pod, Running},
    load::{self, Loads},
};
use crate::sandbox::{
    measured::{Amount, Container, Measured, Usage, Used},
    object::{Object, stamp},
};

/// Serves pod and node metrics from now on.
pub(super) fn serve(context: &Context) {
    // Not the whole context: the API, which keeps these, must not keep itself.
    let meter = Meter {
        index: context.index.clone(),
        loads: context.loads.clone(),
        clock: context.api.clock.clone(),
        resolution: context.options.resolution,
    };
    let pods = meter.clone();
    context
        .api
        .serve_pod_metrics(Arc::new(move || pod_metrics(&pods)));
    context
        .api
        .serve_node_metrics(Arc::new(move || node_metrics(&meter)));
}

#[derive(Clone)]
struct Meter {
    index: Index,
    loads: Loads,
    clock: Clock,
    resolution: Duration,
}

fn pod_metrics(meter: &Meter) -> Vec<Measured> {
    let scrape = Scrape::last(meter.clock.now(), meter.resolution);
    let rows = meter.index.read();
    rows.pods
        .values()
        .filter_map(|pod| {
            let usages = scrape.usages(pod, &meter.loads)?;
            let containers = usages.into_iter().map(|(name, usage)| Container {
                name: name.clone(),
                usage: printed(usage),
            });
            Some(scrape.measured(&pod.object, Used::Containers(containers.collect())))
        })
        .collect()
}

fn node_metrics(meter: &Meter) -> Vec<Measured> {
    let scrape = Scrape::last(meter.clock.now(), meter.resolution);
    let rows = meter.index.read();
    let mut sums: BTreeMap<&str, (&Arc<Object>, load::Usage)> = rows
        .nodes
        .iter()
        .filter(|(_, node)| node.simulated)
        .map(|(name, node)| (&**name, (&node.object, SYSTEM)))
        .collect();
    for pod in rows.pods.values() {
        let Some((_, sum)) = sums.get_mut(&*pod.node) else {
            continue;
        };
        for (_, usage) in scrape.usages(pod, &meter.loads).unwrap_or_default() {
            sum.cpu += usage.cpu;
            sum.memory += usage.memory;
        }
    }
    sums.into_values()
        .map(|(node, usage)| scrape.measured(node, Used::Usage(printed(usage))))
        .collect()
}

/// What a node uses besides its pods.
const SYSTEM: load::Usage = load::Usage {
    cpu: 0.1,
    memory: 512.0 * 1024.0 * 1024.0,
};

/// The last time that usage was measured, also in the words of an answer.
struct Scrape {
    at: DateTime<Utc>,
    resolution: TimeDelta,
    asked: Arc<str>,
    timestamp: Arc<str>,
    window: Arc<str>,
}

impl Scrape {
    fn last(now: DateTime<Utc>, resolution: Duration) -> Self {
        let seconds = i64::try_from(resolution.as_secs()).unwrap_or(i64::MAX).max(1);
        let at = now.timestamp().div_euclid(seconds).saturating_mul(seconds);
        let at = DateTime::from_timestamp(at, 0).unwrap_or(now);
        Self {
            at,
            resolution: TimeDelta::seconds(seconds),
            asked: stamp(now).into(),
            timestamp: stamp(at).into(),
            window: format!("{seconds}s").into(),
        }
    }

    fn measured(&self, object: &Arc<Object>, used: Used) -> Measured {
        Measured {
            object: object.clone(),
            asked: self.asked.clone(),
            timestamp: self.timestamp.clone(),
            window: self.window.clone(),
            used,
        }
    }

    /// The usage of every running container. metrics-server computes rates from two points, and gives nothing for a pod as
    /// long as one of its containers has only one.
    fn usages<'a>(&self, pod: &'a Pod, loads: &Loads) -> Option<Vec<(&'a Arc<str>, load::Usage)>> {
        let measured = |since: DateTime<Utc>| since + self.resolution <= self.at;
        if pod.running.is_empty() || !pod.running.iter().all(|container| measured(container.since)) {
            return None;
        }
        let replicas = pod.replicas();
        let usage = |container: &'a Running| {
            let mut usage = loads.usage(pod, &container.name, container.since, replicas, self.at);
            // Throttled.
            usage.cpu = container
                .cpu_limit
                .map_or(usage.cpu, |limit| usage.cpu.min(limit));
            (&container.name, usage)
        };
        Some(pod.running.iter().map(usage).collect())
    }
}

fn printed(usage: load::Usage) -> Usage {
    Usage {
        cpu: Amount::Of(whole((usage.cpu * 1e9).round()), "n"),
        memory: Amount::Of(whole(usage.memory / 1024.0), "Ki"),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "usage is not negative, and what does not fit saturates"
)]
fn whole(amount: f64) -> u64 {
    amount as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_printed_as_metrics_server_does() {
        let table = [
            (0.0, 0.0, ("0", "0")),
            (0.012_345_678, 204_800.0, ("12345678n", "200Ki")),
            (2.0, 1_073_741_824.5, ("2000000000n", "1048576Ki")),
        ];
        for (cpu, memory, expected) in table {
            let printed = printed(load::Usage { cpu, memory });
            assert_eq!(
                (&*printed.cpu.to_string(), &*printed.memory.to_string()),
                expected
            );
        }
    }
}
