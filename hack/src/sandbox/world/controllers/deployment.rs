//! Deployments: one ReplicaSet per template, and the way from the old ones to the new.

use std::sync::Arc;

use serde_json::{Value, json};

use super::pods::replicas;
use crate::sandbox::{
    store::Key,
    tree::{object, text},
    world::context::{
        Context, Result, conditions, owned_by, portion, set_condition, template_hash, truth, with,
    },
};

const SETS: &str = "replicasets.apps";
const REVISION: &str = "deployment.kubernetes.io/revision";
const HASH: &str = "pod-template-hash";

/// A ReplicaSet of the Deployment.
struct Set {
    key: Arc<Key>,
    value: Value,
}

impl Set {
    fn wanted(&self) -> i64 {
        replicas(&self.value)
    }

    fn number(&self, field: &str) -> i64 {
        self.value["status"][field].as_i64().unwrap_or_default()
    }

    fn revision(&self) -> i64 {
        let text = self.value["metadata"]["annotations"][REVISION].as_str();
        text.and_then(|text| text.parse().ok()).unwrap_or_default()
    }
}

/// Goes one step of a rollout, or keeps the number of pods.
pub(super) async fn reconcile(context: &Context, key: &Key, value: &Value) -> Result<()> {
    let hash = template_hash(&value["spec"]["template"]);
    let owned = context.owned(text(value, "/metadata/uid"), SETS).into_iter();
    let (mut new, mut old): (Vec<_>, Vec<_>) = owned
        .map(|(key, value)| Set { key, value })
        .partition(|set| set.value["metadata"]["labels"][HASH] == *hash);
    old.sort_by_key(Set::revision);
    let paused = value["spec"]["paused"] == true;
    let last = old.iter().map(Set::revision).max().unwrap_or_default();
    let Some(new) = new.pop() else {
        if !paused {
            // Its ReplicaSet is news, so this comes by again to scale it.
            create(context, value, &hash, last + 1).await?;
        }
        return status(context, key, value, None, &old).await;
    };
    // A template that was there before becomes the newest revision again.
    let revision = if new.revision() > last {
        new.revision()
    } else {
        last + 1
    };
    for (resource, key) in [(SETS, &*new.key), ("deployments.apps", key)] {
        let note = |value: &mut Value| {
            let annotations = object(value, &["metadata", "annotations"]);
            annotations.insert(REVISION.into(), revision.to_string().into());
        };
        context.change(resource, key, &note).await?;
    }
    let recreate = value["spec"]["strategy"]["type"] == "Recreate";
    if paused {
        if old.iter().all(|set| set.wanted() == 0) {
            scale(context, value, &new, replicas(value)).await?;
        }
    } else if recreate {
        for set in &old {
            scale(context, value, set, 0).await?;
        }
        if old.iter().all(|set| {
            context
                .index
                .pods_of(text(&set.value, "/metadata/uid"))
                .is_empty()
        }) {
            scale(context, value, &new, replicas(value)).await?;
        }
    } else {
        roll(context, value, &new, &old).await?;
    }
    if new.wanted() == replicas(value) && new.number("availableReplicas") == replicas(value) {
        forget_oldest(context, value, &old).await?;
    }
    status(context, key, value, Some(&new), &old).await
}

/// A rolling update within `maxSurge` and `maxUnavailable`.
async fn roll(context: &Context, value: &Value, new: &Set, old: &[Set]) -> Result<()> {
    let wanted = replicas(value);
    let rolling = &value["spec"]["strategy"]["rollingUpdate"];
    let surge = portion(&rolling["maxSurge"], wanted, true);
    let unavailable = match portion(&rolling["maxUnavailable"], wanted, false).min(wanted) {
        // Both zero would never get anywhere.
        0 if surge == 0 => 1,
        number => number,
    };
    let total = old.iter().map(Set::wanted).sum::<i64>() + new.wanted();
    let grown = if new.wanted() > wanted {
        wanted
    } else {
        new.wanted() + (wanted + surge - total).clamp(0, wanted - new.wanted())
    };
    scale(context, value, new, grown).await?;
    let least = wanted - unavailable;
    let not_yet = (grown - new.number("availableReplicas")).max(0);
    let mut may_go = (old.iter().map(Set::wanted).sum::<i64>() + grown - least - not_yet).max(0);
    let available = old.iter().map(|set| set.number("availableReplicas")).sum::<i64>();
    let mut healthy_may_go = (available + new.number("availableReplicas") - least).max(0);
    for set in old.iter().filter(|set| set.wanted() > 0) {
        let unhealthy = (set.wanted() - set.number("availableReplicas")).clamp(0, may_go);
        may_go -= unhealthy;
        let healthy = (set.wanted() - unhealthy).min(healthy_may_go).min(may_go);
        (may_go, healthy_may_go) = (may_go - healthy, healthy_may_go - healthy);
        scale(context, value, set, set.wanted() - unhealthy - healthy).await?;
    }
    Ok(())
}

async fn create(context: &Context, value: &Value, hash: &str, revision: i64) -> Result<()> {
    let kind = context.api.kind("deployments.apps")?;
    let name = format!("{}-{hash}", text(value, "/metadata/name"));
    let template = &value["spec"]["template"];
    let labels = with(&template["metadata"]["labels"], &[(HASH, hash)]);
    let mut new_template = template.clone();
    new_template["metadata"]["labels"] = labels.clone();
    let mut selector = value["spec"]["selector"].clone();
    selector["matchLabels"] = with(&selector["matchLabels"], &[(HASH, hash)]);
    let set = json!({
        "metadata": {
            "name": name, "labels": labels, "ownerReferences": owned_by(&kind, value),
            "annotations": with(&value["metadata"]["annotations"], &[
                (REVISION, &revision.to_string()),
                ("deployment.kubernetes.io/desired-replicas", &replicas(value).to_string()),
            ]),
        },
        "spec": {
            "replicas": 0, "selector": selector, "template": new_template,
            "minReadySeconds": value["spec"]["minReadySeconds"],
        },
    });
    let made = context
        .create(SETS, text(value, "/metadata/namespace"), set)
        .await;
    made.map(drop)
}

async fn scale(context: &Context, deployment: &Value, set: &Set, wanted: i64) -> Result<()> {
    if set.wanted() == wanted {
        return Ok(());
    }
    let change = |value: &mut Value| {
        object(value, &["spec"]).insert("replicas".into(), wanted.into());
    };
    context.change(SETS, &set.key, &change).await?;
    let way = if wanted > set.wanted() { "up" } else { "down" };
    let (name, before) = (&set.key.name, set.wanted());
    let message = format!("Scaled {way} replica set {name} from {before} to {wanted}");
    let about = ("deployments.apps", deployment);
    context
        .event(
            about,
            false,
            "ScalingReplicaSet",
            &message,
            "deployment-controller",
        )
        .await;
    Ok(())
}

async fn forget_oldest(context: &Context, value: &Value, old: &[Set]) -> Result<()> {
    let limit = value["spec"]["revisionHistoryLimit"].as_u64().unwrap_or(10);
    let keep = usize::try_from(limit).unwrap_or(usize::MAX);
    let idle: Vec<_> = old
        .iter()
        .filter(|set| set.wanted() == 0 && set.number("replicas") == 0)
        .collect();
    for set in idle.iter().take(idle.len().saturating_sub(keep)) {
        context.delete(SETS, &set.key).await?;
    }
    Ok(())
}

async fn status(context: &Context, key: &Key, value: &Value, new: Option<&Set>, old: &[Set]) -> Result<()> {
    let wanted = replicas(value);
    let sum = |field: &str| -> i64 { old.iter().chain(new).map(|set| set.number(field)).sum() };
    let (all, available) = (sum("replicas"), sum("availableReplicas"));
    let updated = new.map_or(0, |set| set.number("replicas"));
    let rolling = &value["spec"]["strategy"]["rollingUpdate"];
    let unavailable = portion(&rolling["maxUnavailable"], wanted, false);
    let enough = available >= wanted - unavailable;
    let complete = updated == wanted && all == wanted && available == wanted;
    let mut list = conditions(value);
    let name = &key.name;
    for (kind, status, reason, message) in [
        (
            "Available",
            enough,
            if enough {
                "MinimumReplicasAvailable"
            } else {
                "MinimumReplicasUnavailable"
            },
            format!(
                "Deployment {} minimum availability.",
                if enough { "has" } else { "does not have" }
            ),
        ),
        (
            "Progressing",
            true,
            if complete {
                "NewReplicaSetAvailable"
            } else {
                "ReplicaSetUpdated"
            },
            format!(
                "Deployment \"{name}\" {}.",
                if complete {
                    "has successfully progressed"
                } else {
                    "is progressing"
                }
            ),
        ),
    ] {
        let condition = json!({
            "type": kind, "status": truth(status), "reason": reason, "message": message,
            "lastUpdateTime": context.api.now(),
        });
        let same = list
            .iter()
            .any(|one| one["type"] == kind && one["status"] == truth(status) && one["reason"] == reason);
        if !same {
            set_condition(&mut list, condition, context.now());
        }
    }
    let fields = json!({
        "observedGeneration": value["metadata"]["generation"], "replicas": all, "updatedReplicas": updated,
        "readyReplicas": sum("readyReplicas"), "availableReplicas": available,
        "unavailableReplicas": (wanted - available).max(0), "conditions": list,
    });
    context.set_status("deployments.apps", key, &fields).await
}
