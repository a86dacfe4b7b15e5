//! Jobs: pods that run until so many have succeeded.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use super::pods::{self, Differs};
use crate::sandbox::{
    store::Key,
    tree::{items, text},
    world::{
        context::{Context, Result, conditions, set_condition, stamp},
        index::{self, Phase},
    },
};

const RESOURCE: &str = "jobs.batch";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Whether a Job has come to its end, and how.
pub(super) fn outcome(value: &Value) -> Option<&str> {
    items(value, "/status/conditions")
        .filter(|one| one["status"] == "True")
        .map(|one| text(one, "/type"))
        .find(|kind| matches!(*kind, "Complete" | "Failed"))
}

/// Makes pods until enough have succeeded or too many failed.
pub(super) async fn reconcile(context: &Context, key: &Key, value: &Value) -> Result<Option<DateTime<Utc>>> {
    let now = context.now();
    let (spec, status) = (&value["spec"], &value["status"]);
    if outcome(value).is_some() {
        return expire(context, key, value, now).await;
    }
    let suspended = spec["suspend"] == true;
    let all = context.index.pods_of(text(value, "/metadata/uid"));
    let (active, ended): (Vec<_>, Vec<_>) = all.iter().partition(|pod| pod.is_active());
    let in_phase = |phase| {
        let count = ended.iter().filter(|pod| pod.phase == phase).count();
        i64::try_from(count).unwrap_or(i64::MAX)
    };
    // A pod that has been counted may have been deleted since.
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    let succeeded = in_phase(Phase::Succeeded).max(number("succeeded"));
    let failed = in_phase(Phase::Failed).max(number("failed"));
    let begun = index::time(value, "/status/startTime").unwrap_or(now);
    let deadline = spec["activeDeadlineSeconds"]
        .as_i64()
        .map(|seconds| begun + TimeDelta::seconds(seconds));
    let completions = spec["completions"].as_i64();
    let there = i64::try_from(active.len()).unwrap_or(i64::MAX);
    let done = match completions {
        Some(completions) => succeeded >= completions,
        None => succeeded > 0 && there == 0,
    };
    let end = if done {
        Some((
            "Complete",
            "CompletionsReached",
            "Reached expected number of succeeded pods",
        ))
    } else if failed > spec["backoffLimit"].as_i64().unwrap_or(6) {
        Some((
            "Failed",
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
        ))
    } else if deadline.is_some_and(|deadline| now >= deadline) {
        Some((
            "Failed",
            "DeadlineExceeded",
            "Job was active longer than specified deadline",
        ))
    } else {
        None
    };
    let wanted = match completions {
        _ if suspended || end.is_some() => 0,
        None if succeeded > 0 => there,
        None => spec["parallelism"].as_i64().unwrap_or(1),
        Some(completions) => spec["parallelism"]
            .as_i64()
            .unwrap_or(1)
            .min(completions - succeeded),
    };
    let kept = active.len().min(usize::try_from(wanted).unwrap_or_default());
    for pod in active.iter().skip(kept) {
        pods::delete(context, RESOURCE, value, pod).await?;
    }
    let indexed = spec["completionMode"] == "Indexed";
    let mut taken: BTreeSet<i64> = all
        .iter()
        .filter(|pod| pod.is_active() || pod.phase == Phase::Succeeded)
        .filter_map(|pod| pod.object.label(INDEX)?.parse().ok())
        .collect();
    for _ in there..wanted {
        let index = (0..).find(|index| !taken.contains(index)).unwrap_or_default();
        taken.insert(index);
        let index = index.to_string();
        let both = [(INDEX, index.as_str())];
        let differs = Differs {
            labels: if indexed { &both } else { &[] },
            annotations: if indexed { &both } else { &[] },
            ..Differs::default()
        };
        pods::create(context, RESOURCE, value, &spec["template"], differs).await?;
    }
    let ready = active.iter().filter(|pod| pod.is_ready()).count();
    let mut fields = json!({
        "active": wanted, "ready": ready, "succeeded": succeeded, "failed": failed,
        "startTime": (!suspended).then(|| stamp(begun)), "terminating": 0,
    });
    if let Some((kind, reason, message)) = end {
        let mut list = conditions(value);
        let condition = json!({
            "type": kind, "status": "True", "reason": reason, "message": message, "lastProbeTime": stamp(now),
        });
        set_condition(&mut list, condition, now);
        fields["conditions"] = list.into();
        fields["ready"] = 0.into();
        if kind == "Complete" {
            fields["completionTime"] = stamp(now);
        }
    }
    context.set_status(RESOURCE, key, &fields).await?;
    Ok(deadline.filter(|_| end.is_none()))
}

async fn expire(
    context: &Context,
    key: &Key,
    value: &Value,
    now: DateTime<Utc>,
) -> Result<Option<DateTime<Utc>>> {
    let Some(seconds) = value["spec"]["ttlSecondsAfterFinished"].as_i64() else {
        return Ok(None);
    };
    let ended = items(value, "/status/conditions").filter_map(|one| index::time(one, "/lastTransitionTime"));
    let at = ended.max().unwrap_or(now) + TimeDelta::seconds(seconds);
    if now < at {
        return Ok(Some(at));
    }
    context.delete(RESOURCE, key).await?;
    Ok(None)
}
