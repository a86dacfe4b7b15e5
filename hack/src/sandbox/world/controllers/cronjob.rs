//! CronJobs: a Job at each time of a schedule.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use super::{cron::Schedule, job};
use crate::sandbox::{
    store::Key,
    tree::text,
    world::{
        context::{Context, Result, owned_by, stamp, with},
        index,
    },
};

const RESOURCE: &str = "cronjobs.batch";
const JOBS: &str = "jobs.batch";

/// Starts the Job that is due, forgets old ones, and comes back at the next time.
pub(super) async fn reconcile(context: &Context, key: &Key, value: &Value) -> Result<Option<DateTime<Utc>>> {
    let now = context.now();
    let spec = &value["spec"];
    let mut jobs = context.owned(text(value, "/metadata/uid"), JOBS);
    forget_old(context, spec, &mut jobs).await?;
    let mut last = index::time(value, "/status/lastScheduleTime");
    let mut next = None;
    match text(spec, "/schedule").parse::<Schedule>() {
        Ok(schedule) => {
            let since = last
                .or_else(|| index::time(value, "/metadata/creationTimestamp"))
                .unwrap_or(now);
            let due = schedule.last_between(since, now);
            let due = due.filter(|due| spec["suspend"] != true && in_time(spec, *due, now));
            if let Some(due) = due
                && start(context, key, value, &mut jobs, due).await?
            {
                last = Some(due);
            }
            next = schedule.after(now);
        }
        Err(error) => {
            let message = format!("unparseable schedule: {error}");
            let about = (RESOURCE, value);
            context
                .event(about, true, "UnparseableSchedule", &message, "cronjob-controller")
                .await;
        }
    }
    let active: Vec<_> = jobs
        .iter()
        .filter(|(_, job)| job::outcome(job).is_none())
        .map(|(_, job)| {
            json!({
                "apiVersion": "batch/v1", "kind": "Job", "name": job["metadata"]["name"],
                "namespace": job["metadata"]["namespace"], "uid": job["metadata"]["uid"],
            })
        })
        .collect();
    let success = jobs
        .iter()
        .filter_map(|(_, job)| index::time(job, "/status/completionTime"))
        .chain(index::time(value, "/status/lastSuccessfulTime"))
        .max();
    let status = json!({
        "active": (!active.is_empty()).then_some(active), "lastScheduleTime": last.map(stamp),
        "lastSuccessfulTime": success.map(stamp),
    });
    context.set_status(RESOURCE, key, &status).await?;
    Ok(next)
}

/// Starts a Job unless one that runs forbids it; whether the time counts as served.
async fn start(
    context: &Context,
    key: &Key,
    value: &Value,
    jobs: &mut Vec<(Arc<Key>, Value)>,
    due: DateTime<Utc>,
) -> Result<bool> {
    let spec = &value["spec"];
    let running = |(_, job): &&(Arc<Key>, Value)| job::outcome(job).is_none();
    match spec["concurrencyPolicy"].as_str() {
        Some("Forbid") if jobs.iter().any(|job| running(&job)) => return Ok(false),
        Some("Replace") => {
            for (key, _) in jobs.iter().filter(running) {
                context.delete(JOBS, key).await?;
            }
        }
        _ => {}
    }
    let kind = context.api.kind(RESOURCE)?;
    let template = &spec["jobTemplate"];
    let scheduled = (
        "batch.kubernetes.io/cronjob-scheduled-timestamp",
        &*due.to_rfc3339(),
    );
    let job = json!({
        "metadata": {
            "name": format!("{}-{}", key.name, due.timestamp().div_euclid(60)),
            "labels": template["metadata"]["labels"],
            "annotations": with(&template["metadata"]["annotations"], &[scheduled]),
            "ownerReferences": owned_by(&kind, value),
        },
        "spec": template["spec"],
    });
    match context.create(JOBS, &key.namespace, job).await {
        Ok(made) => jobs.push((made.key.clone(), made.value())),
        // It was started already, and only the status was lost.
        Err(error) if error.code == 409 => {}
        Err(error) => return Err(error),
    }
    Ok(true)
}

fn in_time(spec: &Value, due: DateTime<Utc>, now: DateTime<Utc>) -> bool {
    spec["startingDeadlineSeconds"]
        .as_i64()
        .is_none_or(|seconds| now - due <= TimeDelta::seconds(seconds))
}

async fn forget_old(context: &Context, spec: &Value, jobs: &mut Vec<(Arc<Key>, Value)>) -> Result<()> {
    for (wanted, field, default) in [
        ("Complete", "successfulJobsHistoryLimit", 3),
        ("Failed", "failedJobsHistoryLimit", 1),
    ] {
        let limit = usize::try_from(spec[field].as_u64().unwrap_or(default)).unwrap_or(usize::MAX);
        let mut ended: Vec<_> = jobs
            .iter()
            .filter(|(_, job)| job::outcome(job) == Some(wanted))
            .map(|(key, job)| (index::time(job, "/status/startTime"), key.clone()))
            .collect();
        ended.sort();
        ended.truncate(ended.len().saturating_sub(limit));
        for (_, key) in ended {
            context.delete(JOBS, &key).await?;
            jobs.retain(|(other, _)| *other != key);
        }
    }
    Ok(())
}
