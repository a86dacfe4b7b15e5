//! Kills for want of memory, as pod updates and eviction events tell of them (`spec/vpa.md` 2.8). Whether one counts
//! is the model's decision.

use crate::instant::NEVER;
use chrono::{DateTime, Utc};
use common::{
    api::k8s::Event,
    gates::Gates,
    pod::{Managed, Pod, Terminated},
    quantity::{Bytes, Quantity},
    time,
};
use std::collections::BTreeMap;

const OOM_KILLED: &str = "OOMKilled";
const EVICTED: &str = "Evicted";

/// A container was killed for want of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oom {
    /// Of the pod.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The container.
    pub container: String,
    /// When.
    pub time: DateTime<Utc>,
    /// What it had asked for; in an eviction, what it used.
    pub memory: Bytes,
}

/// The kills among a pod's managed containers that an update tells of.
#[must_use]
pub fn in_update(old: &Pod, new: &Pod, gates: &Gates) -> Vec<Oom> {
    Remembered::of(old, gates).kills_in(new, gates)
}

/// What has to be kept of a pod to see the kills that its next update tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered(Box<[Container]>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Container {
    name: Box<str>,
    restart_count: i32,
    running: bool,
    terminated: bool,
    /// What it asked for.
    memory: Bytes,
}

impl Remembered {
    /// What has to be kept of a pod as it is now.
    #[must_use]
    pub fn of(pod: &Pod, gates: &Gates) -> Self {
        let containers = pod.managed(gates).filter_map(|container| {
            let status = container.status()?;
            Some(Container {
                name: container.name().into(),
                restart_count: status.restart_count,
                running: status.state.running.is_some(),
                terminated: status.state.terminated.is_some(),
                memory: requested(&container),
            })
        });
        Self(containers.collect())
    }

    /// The kills among the managed containers since then.
    #[must_use]
    pub fn kills_in(&self, new: &Pod, gates: &Gates) -> Vec<Oom> {
        new.managed(gates)
            .filter_map(|after| {
                let before = self.0.iter().find(|before| *before.name == *after.name())?;
                let (killed, memory) = before.killed(&after)?;
                Some(Oom {
                    namespace: new.metadata.namespace.clone().unwrap_or_default(),
                    pod: new.metadata.name.clone().unwrap_or_default(),
                    container: after.name().to_owned(),
                    time: killed.finished_at.unwrap_or(NEVER),
                    memory,
                })
            })
            .collect()
    }
}

impl Container {
    /// How a container was killed between two looks at it, and what it had asked for then.
    fn killed<'p>(&self, after: &Managed<'p>) -> Option<(&'p Terminated, Bytes)> {
        let new = after.status()?;
        let restarted = new.restart_count > self.restart_count;
        if let Some(killed) = oom_killed(new.state.terminated.as_ref()) {
            let unseen = !self.terminated || restarted;
            return unseen.then(|| (killed, requested(after)));
        }
        // It runs again already: we have seen neither the end nor the wait.
        if restarted && self.running && new.state.running.is_some() {
            return Some((oom_killed(new.last_state.terminated.as_ref())?, self.memory));
        }
        None
    }
}

fn requested(container: &Managed<'_>) -> Bytes {
    let (resources, _) = container.current_resources();
    resources
        .request("memory")
        .map_or(Bytes::ZERO, Bytes::from_quantity)
}

fn oom_killed(terminated: Option<&Terminated>) -> Option<&Terminated> {
    terminated.filter(|terminated| terminated.reason == OOM_KILLED)
}

/// The containers that an event says were evicted for their memory.
#[must_use]
pub fn in_event(event: &Event) -> Vec<Oom> {
    let object = &event.involved_object;
    if event.reason.as_deref() != Some(EVICTED) || object.kind.as_deref() != Some("Pod") {
        return Vec::new();
    }
    let none = BTreeMap::new();
    let annotations = event.metadata.annotations.as_ref().unwrap_or(&none);
    let list = |key: &str| -> Vec<&str> {
        annotations
            .get(key)
            .map(|text| text.split(',').collect())
            .unwrap_or_default()
    };
    let containers = list("offending_containers");
    let usages = list("offending_containers_usage");
    let resources = list("starved_resource");
    if containers.len() != usages.len() || containers.len() != resources.len() {
        return Vec::new();
    }
    let time = event
        .metadata
        .creation_timestamp
        .as_ref()
        .map_or(NEVER, time::from_k8s);
    let evicted = containers.into_iter().zip(usages).zip(resources);
    evicted
        .filter(|(_, resource)| *resource == "memory")
        .filter_map(|((container, usage), _)| {
            let usage: Quantity = usage.parse().ok()?;
            Some(Oom {
                namespace: object.namespace.clone().unwrap_or_default(),
                pod: object.name.clone().unwrap_or_default(),
                container: container.to_owned(),
                time,
                memory: Bytes::from_quantity(&usage),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::gates::Gate;
    use serde_json::{Value, json};

    fn pod(status: &Value, request: &str) -> Pod {
        let container = |name: &str| json!({"name": name, "resources": {"requests": {"memory": request}}});
        let mut sidecar = container("proxy");
        sidecar["restartPolicy"] = json!("Always");
        let named = |name: &str| {
            let mut status = status.clone();
            status["name"] = json!(name);
            status
        };
        serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": "p"},
            "spec": {"containers": [container("a")], "initContainers": [container("setup"), sidecar]},
            "status": {
                "containerStatuses": [named("a")],
                "initContainerStatuses": [named("setup"), named("proxy")],
            },
        }))
        .unwrap()
    }

    fn running(restarts: i32) -> Value {
        json!({"restartCount": restarts, "state": {"running": {}}})
    }

    fn killed(restarts: i32) -> Value {
        json!({"restartCount": restarts, "state": end("OOMKilled")})
    }

    fn end(reason: &str) -> Value {
        json!({"terminated": {"reason": reason, "finishedAt": "2026-03-10T12:00:00Z"}})
    }

    fn running_after(reason: &str, restarts: i32) -> Value {
        json!({"restartCount": restarts, "state": {"running": {}}, "lastState": end(reason)})
    }

    fn seen(old: &Value, new: &Value, gates: &Gates) -> Vec<(String, i64)> {
        let ooms = in_update(&pod(old, "100Mi"), &pod(new, "200Mi"), gates);
        ooms.into_iter()
            .map(|oom| (oom.container, oom.memory.0 >> 20))
            .collect()
    }

    #[test]
    fn each_kill_is_seen_once() {
        let off = Gates::default();
        for (old, new, expected) in [
            (running(0), killed(0), Some(200)),
            (killed(0), killed(0), None),
            (killed(0), killed(1), Some(200)),
            (running(0), running_after("OOMKilled", 1), Some(100)),
            (running(1), running_after("OOMKilled", 1), None),
            (killed(0), running_after("OOMKilled", 1), None),
            (running(0), running_after("Error", 1), None),
            (
                running(0),
                json!({"restartCount": 1, "state": end("Error")}),
                None,
            ),
        ] {
            let expected: Vec<_> = expected.map(|mib| ("a".to_owned(), mib)).into_iter().collect();
            assert_eq!(seen(&old, &new, &off), expected, "{old} {new}");
        }
    }

    #[test]
    fn native_sidecars_are_seen_with_the_gate_on_and_ordinary_init_containers_never() {
        let on = Gates::default().with(Gate::NativeSidecar, true);
        assert_eq!(
            seen(&running(0), &killed(0), &on),
            [("a".to_owned(), 200), ("proxy".to_owned(), 200)]
        );
        assert_eq!(
            seen(&running(0), &killed(0), &Gates::default()),
            [("a".to_owned(), 200)]
        );
    }

    #[test]
    fn the_kubelets_word_on_resources_is_better_than_the_specs() {
        let mut status = killed(0);
        status["resources"] = json!({"requests": {"memory": "7Mi"}});
        assert_eq!(
            seen(&running(0), &status, &Gates::default()),
            [("a".to_owned(), 7)]
        );
        status["resources"] = json!({});
        assert_eq!(
            seen(&running(0), &status, &Gates::default()),
            [("a".to_owned(), 0)]
        );
    }

    #[test]
    fn evictions_name_containers_and_what_they_used() {
        let event = |containers: &str, usages: &str, resources: &str| -> Event {
            serde_json::from_value(json!({
                "metadata": {
                    "creationTimestamp": "2026-03-10T12:00:00Z",
                    "annotations": {
                        "offending_containers": containers,
                        "offending_containers_usage": usages,
                        "starved_resource": resources,
                    },
                },
                "involvedObject": {"kind": "Pod", "namespace": "ns", "name": "p"},
                "reason": "Evicted",
            }))
            .unwrap()
        };
        let found = |event: &Event| -> Vec<(String, i64)> {
            in_event(event)
                .into_iter()
                .map(|oom| (oom.container, oom.memory.0))
                .collect()
        };
        let all = event("a,b,c,d", "1Ki,2,bad,4", "memory,memory,memory,ephemeral-storage");
        assert_eq!(found(&all), [("a".to_owned(), 1024), ("b".to_owned(), 2)]);
        assert_eq!(
            in_event(&all)[0],
            Oom {
                namespace: "ns".into(),
                pod: "p".into(),
                container: "a".into(),
                time: "2026-03-10T12:00:00Z".parse().unwrap(),
                memory: Bytes(1024),
            }
        );
        assert_eq!(found(&event("a,b", "1", "memory,memory")), []);
        let mut other = all.clone();
        other.reason = Some("Killed".into());
        assert_eq!(found(&other), []);
        let mut node = all;
        node.involved_object.kind = Some("Node".into());
        assert_eq!(found(&node), []);
    }
}
