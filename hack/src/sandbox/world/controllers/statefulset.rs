//! StatefulSets: pods with names that count, one after the other unless they may come in parallel.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::pods::{self, Differs};
use crate::sandbox::{
    store::Key,
    tree::text,
    world::{
        context::{Context, Result, template_hash},
        index::Pod,
    },
};

const RESOURCE: &str = "statefulsets.apps";
const REVISION: &str = "controller-revision-hash";

/// Goes one step towards the pods asked for.
pub(super) async fn reconcile(context: &Context, key: &Key, value: &Value) -> Result<Option<DateTime<Utc>>> {
    let revision = format!("{}-{}", key.name, template_hash(&value["spec"]["template"]));
    let mut pods = by_ordinal(context, key, value);
    step(context, value, &revision, &pods).await?;
    pods = by_ordinal(context, key, value);
    let active = pods.values().filter(|pod| pod.is_active());
    let counts = pods::count(active.clone(), value, context.now());
    let updated = active
        .filter(|pod| pod.object.label(REVISION) == Some(&revision))
        .count();
    let updated = i64::try_from(updated).unwrap_or(i64::MAX);
    let current = match value["status"]["currentRevision"].as_str() {
        Some(current) if updated < pods::replicas(value) => current,
        _ => &revision,
    };
    let status = json!({
        "observedGeneration": value["metadata"]["generation"], "replicas": counts.all,
        "readyReplicas": counts.ready, "availableReplicas": counts.available, "updatedReplicas": updated,
        "currentReplicas": if current == revision { updated } else { counts.all - updated },
        "currentRevision": current, "updateRevision": revision, "collisionCount": 0,
    });
    context.set_status(RESOURCE, key, &status).await?;
    Ok(counts.next)
}

async fn step(
    context: &Context,
    value: &Value,
    revision: &str,
    pods: &BTreeMap<i64, Arc<Pod>>,
) -> Result<()> {
    let parallel = value["spec"]["podManagementPolicy"] == "Parallel";
    let first = value["spec"]["ordinals"]["start"].as_i64().unwrap_or_default();
    let wanted = first..first + pods::replicas(value);
    for ordinal in wanted.clone() {
        match pods.get(&ordinal) {
            None => create(context, value, revision, ordinal).await?,
            Some(pod) if pod.phase.is_final() && !pod.terminating => {
                pods::delete(context, RESOURCE, value, pod).await?;
            }
            Some(pod) if pod.is_ready() => continue,
            Some(_) => {}
        }
        if !parallel {
            return Ok(());
        }
    }
    for (_, pod) in pods.iter().rev().filter(|(ordinal, _)| !wanted.contains(ordinal)) {
        if !pod.terminating {
            pods::delete(context, RESOURCE, value, pod).await?;
        }
        if !parallel {
            return Ok(());
        }
    }
    let strategy = &value["spec"]["updateStrategy"];
    let partition = strategy["rollingUpdate"]["partition"]
        .as_i64()
        .unwrap_or_default();
    let healthy = |pod: &Arc<Pod>| pod.is_ready();
    if strategy["type"] == "OnDelete" || !pods.values().all(healthy) {
        return Ok(());
    }
    let old = |(ordinal, pod): &(&i64, &Arc<Pod>)| {
        **ordinal >= partition.max(first) && pod.object.label(REVISION) != Some(revision)
    };
    if let Some((_, pod)) = pods.iter().rev().find(old) {
        pods::delete(context, RESOURCE, value, pod).await?;
    }
    Ok(())
}

async fn create(context: &Context, value: &Value, revision: &str, ordinal: i64) -> Result<()> {
    let name = format!("{}-{ordinal}", text(value, "/metadata/name"));
    let (index, pod_name) = (ordinal.to_string(), name.clone());
    let differs = Differs {
        name: Some(name),
        labels: &[
            (REVISION, revision),
            ("statefulset.kubernetes.io/pod-name", &pod_name),
            ("apps.kubernetes.io/pod-index", &index),
        ],
        ..Differs::default()
    };
    pods::create(context, RESOURCE, value, &value["spec"]["template"], differs).await
}

fn by_ordinal(context: &Context, key: &Key, value: &Value) -> BTreeMap<i64, Arc<Pod>> {
    let pods = context.index.pods_of(text(value, "/metadata/uid")).into_iter();
    pods.filter_map(|pod| {
        let ordinal = pod.object.key.name.strip_prefix(&*key.name)?.strip_prefix('-')?;
        Some((ordinal.parse().ok()?, pod))
    })
    .collect()
}
