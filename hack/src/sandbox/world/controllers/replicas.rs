//! ReplicaSets and ReplicationControllers: so many pods of one template.

use std::cmp::Reverse;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::pods::{self, Differs};
use crate::sandbox::{
    store::Key,
    tree::text,
    world::context::{Context, Result},
};

/// Makes or deletes pods until there are as many as asked for.
pub(super) async fn reconcile(
    context: &Context,
    resource: &str,
    key: &Key,
    value: &Value,
) -> Result<Option<DateTime<Utc>>> {
    let wanted = pods::replicas(value);
    let mut active = context.index.pods_of(text(value, "/metadata/uid"));
    active.retain(|pod| pod.is_active());
    // The real order: what costs least to lose goes first.
    active.sort_by_key(|pod| {
        (
            pod.node.is_empty(),
            !pod.is_ready(),
            pod.created,
            Reverse(pod.object.key.clone()),
        )
    });
    let there = i64::try_from(active.len()).unwrap_or(i64::MAX);
    for _ in there..wanted {
        let template = &value["spec"]["template"];
        pods::create(context, resource, value, template, Differs::default()).await?;
    }
    for _ in wanted..there {
        if let Some(pod) = active.pop() {
            pods::delete(context, resource, value, &pod).await?;
        }
    }
    let mut now_there = context.index.pods_of(text(value, "/metadata/uid"));
    now_there.retain(|pod| pod.is_active());
    let counts = pods::count(&now_there, value, context.now());
    let status = json!({
        "replicas": counts.all, "fullyLabeledReplicas": counts.all, "readyReplicas": counts.ready,
        "availableReplicas": counts.available, "observedGeneration": value["metadata"]["generation"],
    });
    context.set_status(resource, key, &status).await?;
    Ok(counts.next)
}
