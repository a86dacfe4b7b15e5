//! Gives pending pods a node by their requests, spread over the nodes; a pod that fits nowhere says so and is tried again
//! when room may have appeared.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Value, json};

use super::{
    context::{Context, conditions, set_condition},
    index::{Node, Pod, Room, Rows},
};
use crate::sandbox::{
    store::{Change, Event, Key},
    tree::{items, text},
};

const NAME: &str = "default-scheduler";

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    queue: BTreeSet<Arc<Key>>,
    unschedulable: BTreeSet<Arc<Key>>,
}

impl Scheduler {
    /// Learns what happened to pods and nodes.
    pub(super) fn note(&mut self, news: &[Event]) {
        for event in news {
            let key = &event.object.key;
            let is_node = key.namespace.is_empty();
            if is_node || event.change != Change::Added {
                // Anything else may have made room.
                self.queue.append(&mut self.unschedulable);
            }
            match event.change {
                Change::Deleted => {
                    self.queue.remove(key);
                }
                Change::Added | Change::Modified if !is_node => {
                    self.queue.insert(key.clone());
                }
                Change::Added | Change::Modified => {}
            }
        }
    }

    /// Binds what can be bound; whether there was anything to do.
    pub(super) async fn run(&mut self, context: &Context) -> bool {
        let mut bound = false;
        for key in std::mem::take(&mut self.queue) {
            let Some(pod) = context
                .index
                .pod(&key)
                .filter(|pod| pod.unscheduled && pod.is_active())
            else {
                continue;
            };
            let value = pod.object.value();
            let found = choose(&context.index.read(), &pod, &value["spec"]);
            match found {
                Ok(node) => match context.api.bind(&key, &node) {
                    Ok(()) => {
                        bound = true;
                        let message =
                            format!("Successfully assigned {}/{} to {node}", key.namespace, key.name);
                        let about = ("pods", &value);
                        context.event(about, false, "Scheduled", &message, NAME).await;
                    }
                    Err(error) => tracing::warn!(%error, pod = %key.name, "cannot bind"),
                },
                Err(why) => {
                    self.say_unschedulable(context, &key, &value, &why).await;
                    self.unschedulable.insert(key);
                }
            }
        }
        bound
    }

    async fn say_unschedulable(&self, context: &Context, key: &Key, pod: &Value, why: &str) {
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
        });
        let mut list = conditions(pod);
        set_condition(&mut list, condition, context.now());
        if conditions(pod) == list {
            return;
        }
        if let Err(error) = context
            .set_status("pods", key, &json!({"conditions": list}))
            .await
        {
            tracing::warn!(%error, pod = %key.name, "cannot say that it is unschedulable");
        }
        let about = ("pods", pod);
        context.event(about, true, "FailedScheduling", why, NAME).await;
    }
}

/// The node with the most room left for this pod, or why there is none.
fn choose(rows: &Rows, pod: &Pod, spec: &Value) -> Result<String, String> {
    let mut best: Option<(f64, &str)> = None;
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    let mut refuse = |reason| match reasons.iter_mut().find(|(other, _)| *other == reason) {
        Some((_, count)) => *count += 1,
        None => reasons.push((reason, 1)),
    };
    for (name, node) in &rows.nodes {
        let after = rows.taken(name).plus(pod.needs);
        let lacking = lacking(after, node.allocatable);
        if !node.schedulable {
            refuse("node(s) were unschedulable");
        } else if !selects(spec, node) {
            refuse("node(s) didn't match Pod's node affinity/selector");
        } else if lacking.is_empty() {
            let full = fullness(after, node.allocatable);
            if best.is_none_or(|(other, _)| full < other) {
                best = Some((full, name));
            }
        } else {
            lacking.into_iter().for_each(&mut refuse);
        }
    }
    if let Some((_, name)) = best {
        return Ok(name.to_owned());
    }
    let all = rows.nodes.len();
    let reasons: Vec<_> = reasons
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    Err(format!(
        "0/{all} nodes are available: {}.",
        if reasons.is_empty() {
            "no nodes available to schedule pods".to_owned()
        } else {
            reasons.join(", ")
        }
    ))
}

fn lacking(after: Room, allocatable: Room) -> Vec<&'static str> {
    [
        ("Insufficient cpu", after.cpu > allocatable.cpu),
        ("Insufficient memory", after.memory > allocatable.memory),
        ("Too many pods", after.pods > allocatable.pods),
    ]
    .into_iter()
    .filter_map(|(reason, lacks)| lacks.then_some(reason))
    .collect()
}

/// How full the node would be in its fullest resource, in parts.
fn fullness(after: Room, allocatable: Room) -> f64 {
    let part = |used: i64, of: i64| {
        let thousandths = i128::from(used) * 1_000_000 / i128::from(of.max(1));
        f64::from(i32::try_from(thousandths).unwrap_or(i32::MAX))
    };
    part(after.cpu, allocatable.cpu)
        .max(part(after.memory, allocatable.memory))
        .max(part(after.pods, allocatable.pods))
}

/// Node selectors, and the required affinity to a node's name, which is what DaemonSets use.
fn selects(spec: &Value, node: &Node) -> bool {
    let mut labels = spec["nodeSelector"].as_object().into_iter().flatten();
    let terms = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let mut named = items(spec, terms)
        .flat_map(|term| items(term, "/matchFields"))
        .filter(|field| text(field, "/key") == "metadata.name")
        .peekable();
    labels.all(|(name, value)| node.object.label(name) == value.as_str())
        && (named.peek().is_none()
            || named.any(|field| items(field, "/values").any(|name| *name == *node.object.key.name)))
}
