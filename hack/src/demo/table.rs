//! What the terminal shows: for each container its usage, its requests, what is recommended, and what was done.

use std::{collections::BTreeMap, fmt};

use common::{
    api::{metrics::PodMetrics, vpa::VerticalPodAutoscaler},
    gates::{Gate, Gates},
    pod::{Kind, Pod},
    quantity::{Bytes, MilliCpu, Quantity},
};
use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::api::resource::Quantity as Wire};

/// How many of the last things done are shown.
const DEEDS: usize = 3;
/// How much of each.
const WIDTH: usize = 110;
/// The events by which the updater tells what it did.
const OURS: [&str; 2] = ["EvictedByVPA", "InPlaceResizedByVPA"];
/// Those by which the kubelet tells what came of it.
const ANSWERS: [&str; 3] = ["ResizeCompleted", "ResizeDeferred", "OOMKilling"];

/// The shop at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Snapshot {
    pods: usize,
    restarts: i32,
    /// What the updater did so far.
    resizes: i32,
    evictions: i32,
    rows: Vec<Row>,
    /// The last ones.
    deeds: Vec<String>,
}

/// One container, over all its pods.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    name: String,
    kind: Kind,
    /// What the hungriest pod uses.
    usage: Option<Amounts>,
    request: Amounts,
    target: Option<Amounts>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Amounts {
    cpu: MilliCpu,
    memory: Bytes,
}

impl Amounts {
    fn of(cpu: Option<&Quantity>, memory: Option<&Quantity>) -> Self {
        Self {
            cpu: cpu.map(MilliCpu::from_quantity).unwrap_or_default(),
            memory: memory.map(Bytes::from_quantity).unwrap_or_default(),
        }
    }

    fn of_wire(cpu: Option<&Wire>, memory: Option<&Wire>) -> Self {
        let read = |wire: &Wire| Quantity::try_from(wire).ok();
        Self::of(cpu.and_then(read).as_ref(), memory.and_then(read).as_ref())
    }

    fn max(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.max(other.cpu),
            memory: self.memory.max(other.memory),
        }
    }
}

impl fmt::Display for Amounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>6}m {:>6}Mi", self.cpu.0, self.memory.0 / (1024 * 1024))
    }
}

impl Snapshot {
    pub(super) fn of(
        pods: &[Pod],
        metrics: &[PodMetrics],
        vpa: &VerticalPodAutoscaler,
        events: &[Event],
    ) -> Self {
        let gates = Gates::default().with(Gate::NativeSidecar, true);
        let used = highest_usage(metrics);
        let targets = targets(vpa);
        let mut rows: Vec<Row> = Vec::new();
        for container in pods.iter().flat_map(|pod| pod.managed(&gates)) {
            let (resources, _) = container.current_resources();
            let request = Amounts::of(resources.request("cpu"), resources.request("memory"));
            match rows.iter_mut().find(|row| row.name == container.name()) {
                Some(row) => row.request = row.request.max(request),
                None => rows.push(Row {
                    name: container.name().to_owned(),
                    kind: container.kind(),
                    usage: used.get(container.name()).copied(),
                    request,
                    target: targets.get(container.name()).copied(),
                }),
            }
        }
        let statuses = pods
            .iter()
            .flat_map(|pod| pod.managed(&gates))
            .filter_map(|container| container.status());
        let restarts = statuses.map(|status| status.restart_count).sum();
        Self {
            pods: pods.len(),
            restarts,
            resizes: times(events, "InPlaceResizedByVPA"),
            evictions: times(events, "EvictedByVPA"),
            rows,
            deeds: deeds(events),
        }
    }

    /// This snapshot's words with the higher usage of both: what the day's peak was.
    pub(super) fn higher_usage(self, other: &Self) -> Self {
        let usage = |name: &str| {
            self.rows
                .iter()
                .find(|row| row.name == name)
                .and_then(|row| row.usage)
        };
        let rows = other.rows.iter().map(|row| Row {
            usage: match (usage(&row.name), row.usage) {
                (Some(a), Some(b)) => Some(a.max(b)),
                (a, b) => a.or(b),
            },
            ..row.clone()
        });
        Self {
            rows: rows.collect(),
            ..other.clone()
        }
    }

    /// What to remember of the demo.
    pub(super) fn summary(&self) -> String {
        let mut lines = vec!["What came of it:".to_owned()];
        for row in &self.rows {
            let peak = row
                .usage
                .map_or_else(|| "nothing measured".to_owned(), |peak| format!("peak{peak}"));
            let recommended = row
                .target
                .map_or_else(|| "no recommendation".to_owned(), |t| format!("recommended{t}"));
            lines.push(format!(
                "  {:<12} {peak}, requests{}, {recommended}",
                row.name, row.request
            ));
        }
        lines.push(format!(
            "  {} pods, {} resizes in place, {} evictions, {} restarts",
            self.pods, self.resizes, self.evictions, self.restarts
        ));
        if self.rows.iter().all(|row| row.target.is_none()) {
            lines.push("  The daemons ran, but the recommender has not recommended anything.".to_owned());
        }
        lines.join("\n")
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} pods, {} resizes in place, {} evictions, {} restarts",
            self.pods, self.resizes, self.evictions, self.restarts
        )?;
        writeln!(
            f,
            "  {:<30}{:<20}{:<20}recommended",
            "container", "highest usage", "request"
        )?;
        for row in &self.rows {
            let note = match row.kind {
                Kind::Regular => "",
                Kind::NativeSidecar => " (native sidecar)",
            };
            let shown = |amounts: Option<Amounts>| {
                amounts.map_or_else(|| format!("{:>7} {:>8}", "-", "-"), |a| a.to_string())
            };
            let name = format!("{}{note}", row.name);
            writeln!(
                f,
                "  {name:<28}{:<20}{:<20}{}",
                shown(row.usage),
                row.request.to_string(),
                shown(row.target)
            )?;
        }
        for deed in &self.deeds {
            writeln!(f, "  · {deed}")?;
        }
        Ok(())
    }
}

fn highest_usage(metrics: &[PodMetrics]) -> BTreeMap<&str, Amounts> {
    let mut used = BTreeMap::new();
    for container in metrics.iter().flat_map(|pod| &pod.containers) {
        let now = Amounts::of_wire(container.usage.cpu.as_ref(), container.usage.memory.as_ref());
        let highest: &mut Amounts = used.entry(container.name.as_str()).or_default();
        *highest = highest.max(now);
    }
    used
}

fn targets(vpa: &VerticalPodAutoscaler) -> BTreeMap<&str, Amounts> {
    let status = vpa.status.as_ref();
    let recommended = status.and_then(|status| status.recommendation.as_ref());
    let containers = recommended
        .into_iter()
        .flat_map(|recommended| &recommended.container_recommendations);
    let amounts = containers.map(|container| {
        let target = Amounts::of_wire(container.target.get("cpu"), container.target.get("memory"));
        (container.container_name.as_str(), target)
    });
    amounts.collect()
}

/// How often something was told.
fn times(events: &[Event], reason: &str) -> i32 {
    let told = events
        .iter()
        .filter(|event| event.reason.as_deref() == Some(reason));
    told.map(|event| event.count.unwrap_or(1)).sum()
}

fn deeds(events: &[Event]) -> Vec<String> {
    let mut told: Vec<_> = events
        .iter()
        .filter(|event| tells(event, &OURS) || tells(event, &ANSWERS))
        .collect();
    told.sort_by_key(|event| event.last_timestamp.as_ref().map(|time| time.0));
    let line = |event: &&Event| {
        let word = |text: &Option<String>| text.clone().unwrap_or_default();
        let message = word(&event.message);
        // The kubelet tells of all resources in JSON, which the table above shows.
        let message = message.split(": {").next().unwrap_or_default();
        let line = format!(
            "{} {}: {message}",
            word(&event.reason),
            word(&event.involved_object.name)
        );
        match line.char_indices().nth(WIDTH) {
            Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
            None => line,
        }
    };
    told.iter()
        .skip(told.len().saturating_sub(DEEDS))
        .map(line)
        .collect()
}

fn tells(event: &Event, reasons: &[&str]) -> bool {
    event
        .reason
        .as_deref()
        .is_some_and(|reason| reasons.contains(&reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read<T: serde::de::DeserializeOwned>(json: Value) -> T {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_snapshot_joins_usage_requests_and_recommendation_by_container() {
        let pod: Pod = read(json!({"spec": {
            "initContainers": [
                {"name": "setup"},
                {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}},
            ],
            "containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}],
        }, "status": {"containerStatuses": [{"name": "app", "restartCount": 2}]}}));
        let metrics: Vec<PodMetrics> = ["30m", "50m"]
            .map(|cpu| read(json!({"metadata": {"name": "p"}, "timestamp": "2026-03-01T00:00:00Z", "window": "15s",
                                   "containers": [{"name": "proxy", "usage": {"cpu": cpu, "memory": "10Mi"}}]})))
            .into();
        let vpa = read(
            json!({"metadata": {"name": "v"}, "spec": {}, "status": {"recommendation": {"containerRecommendations": [
                {"containerName": "proxy", "target": {"cpu": "60m", "memory": "64Mi"}},
            ]}}}),
        );
        let evicted: Event =
            read(json!({"metadata": {}, "involvedObject": {"name": "p"}, "reason": "EvictedByVPA"}));
        let shown = Snapshot::of(&[pod], &metrics, &vpa, &[evicted]).to_string();
        let lines: Vec<_> = shown
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                "1 pods, 0 resizes in place, 1 evictions, 2 restarts",
                "container highest usage request recommended",
                "app - - 1000m 0Mi - -",
                "proxy (native sidecar) 50m 10Mi 100m 128Mi 60m 64Mi",
                "· EvictedByVPA p:",
            ]
        );
    }
}
