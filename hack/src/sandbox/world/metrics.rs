//! `metrics.k8s.io` as metrics-server serves it. Nothing is sampled ahead: the usage at the last scrape is computed when
//! somebody asks.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use common::clock::Clock;
use serde_json::{Value, json};

use super::{
    context::{Context, stamp},
    index::{Index, Pod, Rows, Running},
    load::{Loads, Usage},
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

fn pod_metrics(meter: &Meter) -> Vec<Value> {
    let now = meter.clock.now();
    let scrape = Scrape::last(now, meter.resolution);
    let rows = meter.index.read();
    rows.pods
        .values()
        .filter_map(|pod| {
            let usages = scrape.usages(pod, &rows, &meter.loads)?;
            let containers: Vec<_> = usages
                .into_iter()
                .map(|(name, usage)| json!({"name": name, "usage": printed(usage)}))
                .collect();
            let labels: BTreeMap<_, _> = pod.object.labels.iter().map(|(k, v)| (k, v)).collect();
            Some(json!({
                "metadata": {
                    "name": &*pod.object.key.name, "namespace": &*pod.object.key.namespace,
                    "creationTimestamp": stamp(now), "labels": labels,
                },
                "timestamp": stamp(scrape.at), "window": scrape.window(), "containers": containers,
            }))
        })
        .collect()
}

fn node_metrics(meter: &Meter) -> Vec<Value> {
    let now = meter.clock.now();
    let scrape = Scrape::last(now, meter.resolution);
    let rows = meter.index.read();
    let mut sums: BTreeMap<&str, Usage> = rows
        .nodes
        .iter()
        .filter(|(_, node)| node.simulated)
        .map(|(name, _)| (&**name, SYSTEM))
        .collect();
    for pod in rows.pods.values() {
        let Some(sum) = sums.get_mut(&*pod.node) else {
            continue;
        };
        for (_, usage) in scrape.usages(pod, &rows, &meter.loads).unwrap_or_default() {
            sum.cpu += usage.cpu;
            sum.memory += usage.memory;
        }
    }
    sums.into_iter()
        .map(|(name, usage)| {
            json!({
                "metadata": {"name": name, "creationTimestamp": stamp(now)},
                "timestamp": stamp(scrape.at), "window": scrape.window(), "usage": printed(usage),
            })
        })
        .collect()
}

/// What a node uses besides its pods.
const SYSTEM: Usage = Usage {
    cpu: 0.1,
    memory: 512.0 * 1024.0 * 1024.0,
};

/// The last time that usage was measured.
struct Scrape {
    at: DateTime<Utc>,
    resolution: TimeDelta,
}

impl Scrape {
    fn last(now: DateTime<Utc>, resolution: Duration) -> Self {
        let seconds = i64::try_from(resolution.as_secs()).unwrap_or(i64::MAX).max(1);
        let at = now.timestamp().div_euclid(seconds).saturating_mul(seconds);
        Self {
            at: DateTime::from_timestamp(at, 0).unwrap_or(now),
            resolution: TimeDelta::seconds(seconds),
        }
    }

    fn window(&self) -> String {
        format!("{}s", self.resolution.num_seconds())
    }

    /// The usage of every running container. metrics-server computes rates from two points, and gives nothing for a pod as
    /// long as one of its containers has only one.
    fn usages<'a>(&self, pod: &'a Pod, rows: &Rows, loads: &Loads) -> Option<Vec<(&'a str, Usage)>> {
        let measured = |since: DateTime<Utc>| since + self.resolution <= self.at;
        if pod.running.is_empty() || !pod.running.iter().all(|container| measured(container.since)) {
            return None;
        }
        let replicas = rows.replicas(pod);
        let usage = |container: &'a Running| {
            let mut usage = loads.usage(pod, &container.name, container.since, replicas, self.at);
            // Throttled.
            usage.cpu = container
                .cpu_limit
                .map_or(usage.cpu, |limit| usage.cpu.min(limit));
            (&*container.name, usage)
        };
        Some(pod.running.iter().map(usage).collect())
    }
}

fn printed(usage: Usage) -> Value {
    let (nanos, kibis) = ((usage.cpu * 1e9).round(), (usage.memory / 1024.0).floor());
    let text = |amount: f64, unit: &str| {
        if amount < 1.0 {
            "0".to_owned()
        } else {
            format!("{amount:.0}{unit}")
        }
    };
    json!({"cpu": text(nanos, "n"), "memory": text(kibis, "Ki")})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_printed_as_metrics_server_does() {
        let table = [
            (0.0, 0.0, json!({"cpu": "0", "memory": "0"})),
            (
                0.012_345_678,
                204_800.0,
                json!({"cpu": "12345678n", "memory": "200Ki"}),
            ),
            (
                2.0,
                1_073_741_824.5,
                json!({"cpu": "2000000000n", "memory": "1048576Ki"}),
            ),
        ];
        for (cpu, memory, expected) in table {
            assert_eq!(printed(Usage { cpu, memory }), expected);
        }
    }
}
