//! PodDisruptionBudgets: how many of the selected pods are healthy, and how many may go.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Map, Value, json};

use super::pods::replicas;
use crate::sandbox::{
    selector::of_budget,
    store::Key,
    world::{
        context::{Context, Result, conditions, portion, set_condition, truth},
        index::{self, Owner, Pod, resource_of},
    },
};

/// How long a pod whose eviction was granted may take to show that it is going.
const GOING: TimeDelta = TimeDelta::minutes(2);

/// Counts, and says how many may go.
pub(super) async fn reconcile(context: &Context, key: &Key, value: &Value) -> Result<Option<DateTime<Utc>>> {
    let now = context.now();
    let spec = &value["spec"];
    let pods = selected(context, key, value);
    let mut disrupted = Map::new();
    let mut next = None;
    for (name, since) in value["status"]["disruptedPods"].as_object().into_iter().flatten() {
        let pod = pods.iter().find(|pod| *pod.object.key.name == **name);
        let until = index::time(since, "").map(|since| since + GOING);
        if pod.is_some_and(|pod| !pod.terminating) && until.is_some_and(|until| until > now) {
            disrupted.insert(name.clone(), since.clone());
            next = until;
        }
    }
    let healthy = pods
        .iter()
        .filter(|pod| pod.is_ready() && !disrupted.contains_key(&*pod.object.key.name))
        .count();
    let healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
    let (expected, desired) = wanted(context, key, spec, &pods);
    let allowed = if expected > 0 {
        (healthy - desired).max(0)
    } else {
        0
    };
    let mut list = conditions(value);
    let condition = json!({
        "type": "DisruptionAllowed", "status": truth(allowed > 0), "message": "",
        "reason": if allowed > 0 { "SufficientPods" } else { "InsufficientPods" },
        "observedGeneration": value["metadata"]["generation"],
    });
    set_condition(&mut list, condition, now);
    let status = json!({
        "observedGeneration": value["metadata"]["generation"], "expectedPods": expected, "currentHealthy": healthy,
        "desiredHealthy": desired, "disruptionsAllowed": allowed, "conditions": list,
        "disruptedPods": (!disrupted.is_empty()).then_some(disrupted),
    });
    context
        .set_status("poddisruptionbudgets.policy", key, &status)
        .await?;
    Ok(next)
}

fn selected(context: &Context, key: &Key, budget: &Value) -> Vec<std::sync::Arc<Pod>> {
    let labels = of_budget(budget);
    let rows = context.index.read();
    let from = Key::new(&key.namespace, "");
    rows.pods
        .range(std::sync::Arc::new(from)..)
        .take_while(|(other, _)| other.namespace == key.namespace)
        .filter(|(_, pod)| !pod.phase.is_final() && labels.matches(|name| pod.object.label(name)))
        .map(|(_, pod)| pod.clone())
        .collect()
}

/// How many pods there should be, and how many of them must be healthy.
fn wanted(context: &Context, key: &Key, spec: &Value, pods: &[std::sync::Arc<Pod>]) -> (i64, i64) {
    let there = i64::try_from(pods.len()).unwrap_or(i64::MAX);
    match (spec.get("maxUnavailable"), spec.get("minAvailable")) {
        (Some(most), _) => {
            let expected = scale(context, key, pods);
            (expected, (expected - portion(most, expected, true)).max(0))
        }
        (None, Some(least)) if least.is_string() => {
            let expected = scale(context, key, pods);
            (expected, portion(least, expected, true))
        }
        (None, Some(least)) => (there, least.as_i64().unwrap_or_default()),
        (None, None) => (there, there.min(1)),
    }
}

/// The replicas that the pods' controllers are asked for, all together.
fn scale(context: &Context, key: &Key, pods: &[std::sync::Arc<Pod>]) -> i64 {
    let mut controllers = BTreeMap::new();
    for owner in pods.iter().filter_map(|pod| pod.owner.as_ref()) {
        controllers
            .entry(owner.uid.clone())
            .or_insert_with(|| replicas_of(context, &key.namespace, owner));
    }
    let mut tops = BTreeMap::new();
    controllers.into_values().flatten().for_each(|(uid, replicas)| {
        tops.insert(uid, replicas);
    });
    tops.values().sum()
}

fn replicas_of(context: &Context, namespace: &str, owner: &Owner) -> Option<(String, i64)> {
    let found = |owner: &Owner| {
        let object = context.get(resource_of(&owner.kind)?, &Key::new(namespace, &owner.name))?;
        Some(object.value()).filter(|value| value["metadata"]["uid"] == *owner.uid)
    };
    let value = found(owner)?;
    // Of a rollout's ReplicaSets only the Deployment knows how many there should be.
    match index::controller(&value).and_then(|above| Some((above.uid.clone(), found(&above)?))) {
        Some((uid, above)) => Some((uid, replicas(&above))),
        None => Some((owner.uid.clone(), replicas(&value))),
    }
}
