//! Publishing: the statuses of VPAs that changed, several at a time. One that cannot be written is tried again in the
//! next loop, and costs the others nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};

use chrono::{DateTime, Utc};
use common::{
    api::vpa::{ConditionType, UpdateMode, VerticalPodAutoscaler, VerticalPodAutoscalerStatus},
    daemon::Shutdown,
    quantity::Quantity,
};
use futures::{StreamExt as _, stream};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{
    conditions::Conditions,
    feed::{Feed, Shared, vpas::Key},
    metrics::{Metrics, ObjectLabels},
    status::{self, StatusConfig},
    write::{is_not_found, patiently},
};
use common::api::OpenEnum as _;

/// A status to be written.
struct Update {
    key: Key,
    status: VerticalPodAutoscalerStatus,
}

/// Computes the statuses of the VPAs about which something changed.
///
/// Each VPA is looked at under its own turn of the lock, so that watches never wait for all of them.
fn compute(feed: &Shared, config: &StatusConfig, metrics: &Metrics, now: DateTime<Utc>) -> Vec<Update> {
    let keys: Vec<Key> = {
        let mut feed = feed.lock();
        let mut keys: Vec<Key> = feed
            .cluster
            .take_stale()
            .into_iter()
            .map(|(namespace, name)| (namespace.to_string(), name.to_string()))
            .collect();
        for (key, row) in &mut feed.vpas.ours {
            if std::mem::take(&mut row.changed) {
                keys.push(key.clone());
            }
        }
        keys.sort_unstable();
        keys.dedup();
        keys
    };
    each_by_itself(keys, metrics, |key| {
        update(&mut feed.lock(), key, config, metrics, now)
    })
}

/// Asks for the update of one VPA after the other. One that we cannot compute, because of a mistake of ours, is left out
/// and counted, and costs the others nothing.
fn each_by_itself(
    keys: Vec<Key>,
    metrics: &Metrics,
    mut update: impl FnMut(Key) -> Option<Update>,
) -> Vec<Update> {
    let mut updates = Vec::new();
    for key in keys {
        let (namespace, name) = key.clone();
        match catch_unwind(AssertUnwindSafe(|| update(key))) {
            Ok(computed) => updates.extend(computed),
            Err(_) => {
                tracing::error!(
                    namespace,
                    name,
                    "cannot compute the status of a VPA: this is a bug"
                );
                metrics.write("status", "bug");
            }
        }
    }
    updates
}

fn update(
    feed: &mut Feed,
    key: Key,
    config: &StatusConfig,
    metrics: &Metrics,
    now: DateTime<Utc>,
) -> Option<Update> {
    // Gone since, or never in the model because its scale could not be asked for: that one alone has to wait (Q4).
    let row = feed.vpas.ours.get(&key)?;
    let view = feed.cluster.vpa(&key.0, &key.1)?;
    let recommendation = config.recommendation(row, &view.histories(), |_, _| {});
    let status = config.status(row, &view, &recommendation, now);
    observe_changes(
        &row.observed,
        &status,
        &row.update_mode,
        view.pod_count(),
        metrics,
    );
    let id = (key.0.as_str(), key.1.as_str());
    feed.cluster
        .note_recommendation(id, &row.update_mode, &recommendation);
    if status::same(&row.observed, &status) {
        return None;
    }
    let provided = |status: &VerticalPodAutoscalerStatus| {
        let conditions: Conditions = status.conditions.iter().cloned().collect();
        conditions.is_true(&ConditionType::RecommendationProvided)
    };
    if provided(&status) && !provided(&row.observed) {
        let age = row.created.and_then(|created| (now - created).to_std().ok());
        metrics.first_recommendation(age.unwrap_or_default());
    }
    Some(Update { key, status })
}

/// Computes and writes what changed. Stops early when shutdown is requested; the rest is still stale then.
pub(crate) async fn publish(
    client: &Client,
    feed: &Shared,
    config: &StatusConfig,
    metrics: &Metrics,
    workers: usize,
    now: DateTime<Utc>,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    let (own_feed, own_config, own_metrics) = (feed.clone(), config.clone(), metrics.clone());
    let updates =
        tokio::task::spawn_blocking(move || compute(&own_feed, &own_config, &own_metrics, now)).await?;
    stream::iter(updates)
        .for_each_concurrent(workers, async |update| {
            let written = if shutdown.is_requested() {
                "put off"
            } else {
                write(client, &update).await
            };
            metrics.write("status", written);
            let mut feed = feed.lock();
            if let Some(row) = feed.vpas.ours.get_mut(&update.key) {
                match written {
                    "written" => row.observed = update.status,
                    _ => row.changed = true,
                }
            }
        })
        .await;
    let labels: Vec<ObjectLabels> = {
        let mut feed = feed.lock();
        for ((namespace, name), row) in &mut feed.vpas.ours {
            if row.lacks_recommendation(now) {
                let reason = row.unsupported.as_deref().unwrap_or_default();
                tracing::warn!(
                    namespace,
                    name,
                    reason,
                    "a VPA has had no recommendation for half an hour"
                );
            }
        }
        metrics.resource_reads(feed.take_resource_reads());
        metrics.aggregates(feed.cluster.aggregates());
        feed.vpas
            .ours
            .iter()
            .map(|(key, row)| labels(&feed, key, row))
            .collect()
    };
    metrics.objects(labels);
    Ok(())
}

async fn write(client: &Client, update: &Update) -> &'static str {
    let (namespace, name) = &update.key;
    let api: Api<VerticalPodAutoscaler> = Api::namespaced(client.clone(), namespace);
    let patch = json!([{"op": "add", "path": "/status", "value": update.status}]);
    let patch = match serde_json::from_value(patch) {
        Ok(patch) => Patch::<()>::Json(patch),
        Err(error) => {
            tracing::error!(namespace, name, %error, "cannot make a status patch");
            return "failed";
        }
    };
    let parameters = PatchParams::default();
    match patiently(|| api.patch_status(name, &parameters, &patch)).await {
        Ok(_) => "written",
        Err(error) if is_not_found(&error) => "gone",
        Err(error) => {
            tracing::warn!(namespace, name, %error, "cannot write the status of a VPA");
            "failed"
        }
    }
}

fn labels(feed: &Feed, key: &Key, row: &crate::feed::vpas::Row) -> ObjectLabels {
    let has = row.observed.recommendation.as_ref();
    let has = has.is_some_and(|recommendation| !recommendation.container_recommendations.is_empty());
    let pods = feed
        .cluster
        .vpa(&key.0, &key.1)
        .map_or(0, |view| view.pod_count());
    ObjectLabels {
        update_mode: row.update_mode.as_str().to_owned(),
        has_recommendation: has.to_string(),
        api: "v1",
        matches_pods: (pods > 0).to_string(),
        unsupported_config: row.unsupported.is_some().to_string(),
    }
}

/// Notes by how much the targets of containers change.
fn observe_changes(
    old: &VerticalPodAutoscalerStatus,
    new: &VerticalPodAutoscalerStatus,
    mode: &UpdateMode,
    pods: usize,
    metrics: &Metrics,
) {
    let (Some(old), Some(new)) = (&old.recommendation, &new.recommendation) else {
        return;
    };
    for new in &new.container_recommendations {
        let containers = &old.container_recommendations;
        let Some(old) = containers
            .iter()
            .find(|old| old.container_name == new.container_name)
        else {
            continue;
        };
        for resource in ["cpu", "memory"] {
            let amount = |list: &common::api::k8s::ResourceList| {
                let quantity = Quantity::try_from(list.get(resource)?).ok()?;
                quantity.milli().map(crate::num::float)
            };
            if let (Some(old), Some(new)) = (amount(&old.target), amount(&new.target))
                && old > 0.0
            {
                metrics.change(mode, resource, pods, new / old - 1.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::{encoding::text::encode, registry::Registry};

    #[test]
    fn one_vpa_that_breaks_costs_the_others_nothing() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let keys = ["a", "broken", "b"].map(|name| ("shop".to_owned(), name.to_owned()));
        let updates = each_by_itself(keys.to_vec(), &metrics, |key| {
            assert_ne!(key.1, "broken");
            let status = VerticalPodAutoscalerStatus::default();
            Some(Update { key, status })
        });
        let names: Vec<_> = updates.into_iter().map(|update| update.key.1).collect();
        assert_eq!(names, ["a", "b"]);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let counted = r#"outrigger_recommender_writes_total{object="status",outcome="bug"} 1"#;
        assert!(text.contains(counted), "{text}");
    }
}
