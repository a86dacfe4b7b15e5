//! What `kubectl get` shows: the columns of the kinds people look at, the printer columns of definitions, and name and
//! age for the rest.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::{
    events,
    registry::{Form, Kind},
    store::Object,
    tree::{items, text},
};

/// One column.
#[derive(Debug)]
pub(super) struct Column {
    name: String,
    r#type: String,
    priority: i64,
    cell: Cell,
}

#[derive(Debug)]
enum Cell {
    Path(String),
    Age(String),
    /// Absent counts are zero, and kubectl shows them so.
    Count(&'static str),
    Made(fn(&Value) -> Value),
}

impl Column {
    /// As in `columnDefinitions`.
    #[must_use]
    pub(super) fn definition(&self) -> Value {
        let format = if self.name == "Name" { "name" } else { "" };
        json!({
            "name": self.name, "type": self.r#type, "format": format, "description": "", "priority": self.priority,
        })
    }
}

/// The columns of a kind.
#[must_use]
pub(super) fn columns(kind: &Kind) -> Vec<Column> {
    let path = |name: &str, path: &str| column(name, 0, Cell::Path(path.into()));
    let made = |name: &str, cell: fn(&Value) -> Value| column(name, 0, Cell::Made(cell));
    let wide = |name: &str, path: &str| column(name, 1, Cell::Path(path.into()));
    let age = || column("Age", 0, Cell::Age(".metadata.creationTimestamp".into()));
    let name = || path("Name", ".metadata.name");
    if let Form::Custom(version) = &kind.form {
        let custom = version.columns.iter().map(|one| Column {
            name: one.name.clone(),
            r#type: one.r#type.clone(),
            priority: one.priority,
            cell: if one.r#type == "date" {
                Cell::Age(one.path.clone())
            } else {
                Cell::Path(one.path.clone())
            },
        });
        let mut all: Vec<_> = std::iter::once(name()).chain(custom).collect();
        if version.columns.is_empty() {
            all.push(age());
        }
        return all;
    }
    let mut all = match kind.storage.as_str() {
        "events" => {
            return vec![
                column("Last Seen", 0, Cell::Age(".lastTimestamp".into())),
                path("Type", ".type"),
                path("Reason", ".reason"),
                made("Object", |event| {
                    let kind = text(event, "/involvedObject/kind").to_lowercase();
                    format!("{kind}/{}", text(event, "/involvedObject/name")).into()
                }),
                path("Message", ".message"),
            ];
        }
        "pods" => vec![
            name(),
            made("Ready", |pod| {
                let ready = items(pod, "/status/containerStatuses")
                    .filter(|one| one["ready"] == true)
                    .count();
                let sidecars =
                    items(pod, "/spec/initContainers").filter(|one| super::pod::is_native_sidecar(one));
                let sidecars: Vec<_> = sidecars.map(|one| one["name"].clone()).collect();
                let started = items(pod, "/status/initContainerStatuses")
                    .filter(|one| one["ready"] == true && sidecars.contains(&one["name"]));
                let all = items(pod, "/spec/containers").count() + sidecars.len();
                format!("{}/{all}", ready + started.count()).into()
            }),
            made("Status", |pod| pod_status(pod).into()),
            made("Restarts", |pod| {
                let restarts =
                    items(pod, "/status/containerStatuses").filter_map(|one| one["restartCount"].as_i64());
                restarts.sum::<i64>().to_string().into()
            }),
            age(),
            wide("IP", ".status.podIP"),
            wide("Node", ".spec.nodeName"),
        ],
        "deployments.apps" | "statefulsets.apps" => {
            let mut all = vec![
                name(),
                made("Ready", |set| {
                    let number = |value: &Value| value.as_i64().unwrap_or_default();
                    let (ready, all) = (&set["status"]["readyReplicas"], &set["spec"]["replicas"]);
                    format!("{}/{}", number(ready), number(all)).into()
                }),
            ];
            if kind.plural == "deployments" {
                all.push(number("Up-to-date", "/status/updatedReplicas"));
                all.push(number("Available", "/status/availableReplicas"));
            }
            all
        }
        "replicasets.apps" => vec![
            name(),
            number("Desired", "/spec/replicas"),
            number("Current", "/status/replicas"),
            number("Ready", "/status/readyReplicas"),
        ],
        "daemonsets.apps" => vec![
            name(),
            number("Desired", "/status/desiredNumberScheduled"),
            number("Current", "/status/currentNumberScheduled"),
            number("Ready", "/status/numberReady"),
        ],
        "jobs.batch" => vec![name(), path("Completions", ".status.succeeded")],
        "cronjobs.batch" => vec![
            name(),
            path("Schedule", ".spec.schedule"),
            path("Suspend", ".spec.suspend"),
        ],
        "nodes" => vec![
            name(),
            made("Status", |node| {
                let ready = items(node, "/status/conditions")
                    .any(|one| one["type"] == "Ready" && one["status"] == "True");
                if ready { "Ready".into() } else { "NotReady".into() }
            }),
            path("Version", ".status.nodeInfo.kubeletVersion"),
        ],
        "namespaces" => vec![name(), path("Status", ".status.phase")],
        "services" => vec![
            name(),
            path("Type", ".spec.type"),
            path("Cluster-IP", ".spec.clusterIP"),
        ],
        "leases.coordination.k8s.io" => vec![name(), path("Holder", ".spec.holderIdentity")],
        "poddisruptionbudgets.policy" => vec![
            name(),
            path("Min Available", ".spec.minAvailable"),
            path("Max Unavailable", ".spec.maxUnavailable"),
            path("Allowed Disruptions", ".status.disruptionsAllowed"),
        ],
        _ => vec![name()],
    };
    if kind.storage == "pods" {
        all
    } else {
        all.push(age());
        all
    }
}

/// One row; `whole` puts the object itself behind it instead of its metadata.
#[must_use]
pub(super) fn row(
    kind: &Kind,
    columns: &[Column],
    object: &Object,
    now: DateTime<Utc>,
    whole: bool,
) -> Value {
    let mut value = object.value();
    let cells: Vec<_> = columns.iter().map(|column| column.show(&value, now)).collect();
    if whole {
        value = events::from_stored(kind, value);
        value["kind"] = kind.kind.clone().into();
        value["apiVersion"] = kind.api_version().into();
    } else {
        let metadata = value["metadata"].take();
        value =
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata});
    }
    json!({"cells": cells, "object": value})
}

impl Column {
    fn show(&self, value: &Value, now: DateTime<Utc>) -> Value {
        match &self.cell {
            Cell::Made(cell) => cell(value),
            Cell::Count(pointer) => value
                .pointer(pointer)
                .and_then(Value::as_i64)
                .unwrap_or_default()
                .to_string()
                .into(),
            Cell::Age(path) => {
                let time =
                    find(value, path).and_then(|time| DateTime::parse_from_rfc3339(time.as_str()?).ok());
                time.map_or("<unknown>".into(), |time| {
                    age((now - time.to_utc()).num_seconds()).into()
                })
            }
            Cell::Path(path) => match find(value, path) {
                None | Some(Value::Null) if self.r#type == "integer" => Value::Null,
                None | Some(Value::Null) => "".into(),
                Some(Value::String(text)) => text.as_str().into(),
                Some(number @ Value::Number(_)) if self.r#type == "integer" => number.clone(),
                Some(other) => other.to_string().into(),
            },
        }
    }
}

fn column(name: &str, priority: i64, cell: Cell) -> Column {
    Column {
        name: name.into(),
        r#type: "string".into(),
        priority,
        cell,
    }
}

fn number(name: &str, pointer: &'static str) -> Column {
    column(name, 0, Cell::Count(pointer))
}

fn pod_status(pod: &Value) -> String {
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        return "Terminating".into();
    }
    let reason = |status: &Value| {
        let state = &status["state"];
        let waiting = state["waiting"]["reason"].as_str();
        waiting
            .or_else(|| state["terminated"]["reason"].as_str())
            .map(str::to_owned)
    };
    let inits: Vec<_> = items(pod, "/status/initContainerStatuses").collect();
    let done = |status: &&&Value| status["state"]["terminated"]["exitCode"] == 0 || status["started"] == true;
    let all = items(pod, "/spec/initContainers").count();
    let finished = inits.iter().filter(done).count();
    if text(pod, "/status/phase") == "Pending" && !inits.is_empty() && finished < all {
        return format!("Init:{finished}/{all}");
    }
    let container = items(pod, "/status/containerStatuses").find_map(reason);
    container.unwrap_or_else(|| match text(pod, "/status/reason") {
        "" => text(pod, "/status/phase").to_owned(),
        reason => reason.to_owned(),
    })
}

/// How kubectl says how old something is.
fn age(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let pair = |big: i64, unit: char, small: i64, small_unit: char| match small {
        0 => format!("{big}{unit}"),
        _ => format!("{big}{unit}{small}{small_unit}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(days, 'd', hours % 24, 'h'),
        _ if days < 730 => format!("{days}d"),
        _ => pair(days / 365, 'y', days % 365, 'd'),
    }
}

/// The part of JSON path that printer columns use: fields, indexes, and `[?(@.field=='text')]`.
fn find<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let path = path.trim_start_matches('$');
    let Some(rest) = path.strip_prefix('[') else {
        let Some(rest) = path.strip_prefix('.') else {
            return path.is_empty().then_some(value);
        };
        let mut name = String::new();
        let mut chars = rest.char_indices();
        let mut end = rest.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => name.extend(chars.next().map(|(_, c)| c)),
                '.' | '[' => {
                    end = at;
                    break;
                }
                c => name.push(c),
            }
        }
        return find(value.get(&name)?, rest.get(end..)?);
    };
    let (inside, rest) = rest.split_once(']')?;
    let next = if let Some(condition) = inside
        .strip_prefix("?(@.")
        .and_then(|text| text.strip_suffix(')'))
    {
        let (field, wanted) = condition.split_once("==")?;
        let wanted = wanted.trim().trim_matches(['\'', '"']);
        value
            .as_array()?
            .iter()
            .find(|item| item[field.trim()] == wanted)?
    } else if let Ok(index) = inside.parse::<usize>() {
        value.get(index)?
    } else {
        value.get(inside.trim_matches(['\'', '"']))?
    };
    find(next, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_like_kubectl_s() {
        let table = [
            (0, "0s"),
            (119, "119s"),
            (150, "2m30s"),
            (540, "9m"),
            (3600, "60m"),
            (10_860, "3h1m"),
            (90_000, "25h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
            (63_072_000, "2y"),
        ];
        for (seconds, expected) in table {
            assert_eq!(age(seconds), expected);
        }
    }

    #[test]
    fn printer_paths() {
        let value = json!({"a": {"b": [{"type": "X", "v": 1}, {"type": "Y", "v": 2}], "c.d": "dot"}});
        let table = [
            (".a.b[0].v", Some(json!(1))),
            (".a.b[?(@.type=='Y')].v", Some(json!(2))),
            (".a.b[?(@.type==\"Z\")].v", None),
            (r".a.c\.d", Some(json!("dot"))),
            (".a['c.d']", Some(json!("dot"))),
            (".a.x.y", None),
        ];
        for (path, expected) in table {
            assert_eq!(find(&value, path).cloned(), expected, "{path}");
        }
    }
}
