//! DaemonSets: one pod on each node.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::pods::{self, Differs};
use crate::sandbox::{
    store::Key,
    tree::{items, text},
    world::{
        context::{Context, Result, portion, template_hash},
        index::Pod,
    },
};

const RESOURCE: &str = "daemonsets.apps";
const REVISION: &str = "controller-revision-hash";

/// Makes the pods that are missing and deletes those of nodes that are gone or of old templates.
pub(super) async fn reconcile(context: &Context, key: &Key, value: &Value) -> Result<Option<DateTime<Utc>>> {
    let template = &value["spec"]["template"];
    let revision = template_hash(template);
    let nodes = eligible_nodes(context, template);
    let wanted = i64::try_from(nodes.len()).unwrap_or(i64::MAX);
    let there = by_node(context, value);
    for node in &nodes {
        if !there.contains_key(node) {
            let labels = [(REVISION, &*revision), ("pod-template-generation", "1")];
            let differs = Differs {
                labels: &labels,
                node: Some(node),
                ..Differs::default()
            };
            pods::create(context, RESOURCE, value, template, differs).await?;
        }
    }
    let is_new = |pod: &Arc<Pod>| pod.object.label(REVISION) == Some(&*revision);
    let strategy = &value["spec"]["updateStrategy"];
    let most = portion(&strategy["rollingUpdate"]["maxUnavailable"], wanted, true).max(1);
    let unavailable = |pod: &&Arc<Pod>| !pod.is_ready();
    let mut down = i64::try_from(there.values().filter(unavailable).count()).unwrap_or(i64::MAX);
    for (node, pod) in &there {
        let outdated = strategy["type"] != "OnDelete" && !is_new(pod) && (down < most || !pod.is_ready());
        let lost = !nodes.contains(node) || pod.phase.is_final();
        if (lost || outdated) && !pod.terminating {
            down += i64::from(pod.is_ready());
            pods::delete(context, RESOURCE, value, pod).await?;
        }
    }
    let there = by_node(context, value);
    let active = there.values().filter(|pod| pod.is_active());
    let counts = pods::count(active.clone(), value, context.now());
    let status = json!({
        "observedGeneration": value["metadata"]["generation"], "desiredNumberScheduled": wanted,
        "currentNumberScheduled": counts.all, "numberMisscheduled": 0, "numberReady": counts.ready,
        "numberAvailable": counts.available, "numberUnavailable": (wanted - counts.available).max(0),
        "updatedNumberScheduled": active.filter(|pod| is_new(pod)).count(),
    });
    context.set_status(RESOURCE, key, &status).await?;
    Ok(counts.next)
}

fn eligible_nodes(context: &Context, template: &Value) -> Vec<String> {
    let rows = context.index.read();
    let selector = template["spec"]["nodeSelector"].as_object();
    let fits = |node: &crate::sandbox::store::Object| {
        selector
            .into_iter()
            .flatten()
            .all(|(name, value)| node.label(name) == value.as_str())
    };
    let nodes = rows.nodes.iter().filter(|(_, node)| fits(&node.object));
    nodes.map(|(name, _)| name.to_string()).collect()
}

/// By the node it is meant for, which it names before it is bound.
fn by_node(context: &Context, value: &Value) -> BTreeMap<String, Arc<Pod>> {
    let pods = context.index.pods_of(text(value, "/metadata/uid")).into_iter();
    pods.map(|pod| {
        let node = if pod.node.is_empty() {
            meant_for(&pod.object.value())
        } else {
            pod.node.to_string()
        };
        (node, pod)
    })
    .collect()
}

fn meant_for(pod: &Value) -> String {
    let terms =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let mut names = items(pod, terms)
        .flat_map(|term| items(term, "/matchFields"))
        .flat_map(|field| items(field, "/values"));
    names.find_map(Value::as_str).unwrap_or_default().to_owned()
}
