//! What all controllers do with pods: make them from a template, count them, choose which go first.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use crate::sandbox::{
    tree::{object, text},
    world::{
        context::{Context, Result, owned_by, with},
        index::Pod,
    },
};

/// How a new pod differs from its template.
#[derive(Default)]
pub(super) struct Differs<'a> {
    /// Its name; generated from the owner's when not given.
    pub(super) name: Option<String>,
    pub(super) labels: &'a [(&'a str, &'a str)],
    pub(super) annotations: &'a [(&'a str, &'a str)],
    /// Changes the specification.
    pub(super) node: Option<&'a str>,
}

/// Makes one pod of an owner.
pub(super) async fn create(
    context: &Context,
    resource: &str,
    owner: &Value,
    template: &Value,
    differs: Differs<'_>,
) -> Result<()> {
    let kind = context.api.kind(resource)?;
    let name = text(owner, "/metadata/name");
    let metadata = &template["metadata"];
    let mut pod = json!({
        "metadata": {
            "labels": with(&metadata["labels"], differs.labels),
            "annotations": with(&metadata["annotations"], differs.annotations),
            "ownerReferences": owned_by(&kind, owner),
        },
        "spec": template["spec"],
    });
    match differs.name {
        Some(name) => pod["metadata"]["name"] = name.into(),
        None => pod["metadata"]["generateName"] = format!("{name}-").into(),
    }
    if let Some(node) = differs.node {
        // As the real controller: the scheduler still decides whether there is room.
        let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
        let affinity = object(&mut pod, &["spec", "affinity", "nodeAffinity"]);
        affinity.insert(
            "requiredDuringSchedulingIgnoredDuringExecution".into(),
            json!({"nodeSelectorTerms": [term]}),
        );
    }
    let made = context
        .create("pods", text(owner, "/metadata/namespace"), pod)
        .await?;
    let message = format!("Created pod: {}", made.key.name);
    let by = format!("{}-controller", kind.singular);
    context
        .event((resource, owner), false, "SuccessfulCreate", &message, &by)
        .await;
    Ok(())
}

/// Deletes one pod of an owner.
pub(super) async fn delete(context: &Context, resource: &str, owner: &Value, pod: &Pod) -> Result<()> {
    context.delete("pods", &pod.object.key).await?;
    let message = format!("Deleted pod: {}", pod.object.key.name);
    let by = format!("{}-controller", context.api.kind(resource)?.singular);
    context
        .event((resource, owner), false, "SuccessfulDelete", &message, &by)
        .await;
    Ok(())
}

/// How many pods there are of each sort, and when the next one becomes available.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) all: i64,
    pub(super) ready: i64,
    pub(super) available: i64,
    pub(super) next: Option<DateTime<Utc>>,
}

/// Counts pods; one is available when it has been ready for the owner's `minReadySeconds`.
pub(super) fn count<'a>(
    pods: impl IntoIterator<Item = &'a Arc<Pod>>,
    owner: &Value,
    now: DateTime<Utc>,
) -> Counts {
    let seconds = owner["spec"]["minReadySeconds"].as_i64().unwrap_or_default();
    let mut counts = Counts::default();
    for pod in pods {
        counts.all += 1;
        if let Some(since) = pod.ready_since.filter(|_| !pod.terminating) {
            counts.ready += 1;
            let available = since + TimeDelta::seconds(seconds);
            if available <= now {
                counts.available += 1;
            } else {
                counts.next = Some(counts.next.map_or(available, |next| next.min(available)));
            }
        }
    }
    counts
}

/// `spec.replicas`, or what it is when not said.
pub(super) fn replicas(value: &Value) -> i64 {
    value["spec"]["replicas"].as_i64().unwrap_or(1).max(0)
}
