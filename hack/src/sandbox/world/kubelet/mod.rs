//! The kubelet of all simulated nodes: looks at a pod when it changed or when something in it is due, moves its containers
//! on, and writes what came of it into the status.

mod containers;
mod resize;
mod status;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use self::{
    containers::{Container, Containers, State, Step, Surroundings},
    resize::{NodeRoom, Resize},
};
use super::{
    context::{Context, Result},
    index::{self, Pod},
    load::ANNOTATION,
};
use crate::sandbox::{
    api::{Part, Write},
    delete::{DeleteOptions, Preconditions},
    store::{Change, Event, Key, Object},
    tree::text,
};

const NAME: &str = "kubelet";

/// How long the pods of Jobs run when nothing is said.
const RUNS: TimeDelta = TimeDelta::seconds(10);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Kubelet {
    pods: HashMap<Arc<Key>, Sandboxed>,
    due: BTreeSet<(DateTime<Utc>, Arc<Key>)>,
    loads: u64,
    addresses: u32,
}

/// A pod that it runs.
#[derive(Debug)]
struct Sandboxed {
    uid: Box<str>,
    ip: String,
    begun: DateTime<Utc>,
    containers: Containers,
    resize: Resize,
    /// Its own last write, which is no news.
    written: u64,
    due: Option<DateTime<Utc>>,
    /// When more than the memory is to be looked at.
    step_due: Option<DateTime<Utc>>,
}

impl Kubelet {
    /// Learns what happened to pods and nodes.
    pub(super) fn note(&mut self, context: &Context, news: &[Event]) {
        let now = context.now();
        for event in news {
            let key = &event.object.key;
            if key.namespace.is_empty() {
                // A node has changed, so what it refused may be granted now.
                let refused = self.pods.iter().filter(|(_, pod)| pod.resize.pending.is_some());
                let keys: Vec<_> = refused.map(|(key, _)| key.clone()).collect();
                keys.iter().for_each(|key| self.wake(key, now));
                continue;
            }
            let known = self.pods.get(key);
            if event.change == Change::Deleted {
                if known.is_some_and(|pod| pod.uid == event.object.uid) {
                    self.forget(key);
                }
            } else if known.is_none_or(|pod| pod.written != event.object.revision) {
                self.wake(key, now);
            }
        }
        if self.loads != context.loads.version() {
            self.loads = context.loads.version();
            let keys: Vec<_> = self.pods.keys().cloned().collect();
            keys.iter().for_each(|key| self.wake(key, now));
        }
    }

    /// Looks at every pod that is due; whether there was one.
    pub(super) async fn run(&mut self, context: &Context) -> bool {
        let now = context.now();
        let mut busy = false;
        while let Some((at, key)) = self.due.first().cloned().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, key.clone()));
            if let Some(pod) = self.pods.get_mut(&key) {
                pod.due = None;
            }
            if self.only_memory(context, &key, now) {
                continue;
            }
            busy = true;
            if let Err(error) = self.sync(context, &key, now).await {
                tracing::warn!(%error, pod = %key.name, "cannot keep a pod running");
                self.due.insert((now + tick(context), key));
            }
        }
        busy
    }

    /// The cheap way: when nothing but the memory was due, and that is within its limits.
    fn only_memory(&mut self, context: &Context, key: &Arc<Key>, now: DateTime<Utc>) -> bool {
        let (Some(pod), Some(row)) = (self.pods.get_mut(key), context.index.pod(key)) else {
            return false;
        };
        if pod.step_due.is_none_or(|due| due <= now) {
            return false;
        }
        let replicas = row.replicas();
        let fits = |one: &Container| {
            one.memory_limit()
                .is_none_or(|limit| memory(context, &row, replicas, one, now) <= limit)
        };
        let fit = pod.containers.all.iter().all(fits);
        if fit {
            let next = now + span(context.options.memory_check);
            let at = pod.step_due.map_or(next, |due| due.min(next));
            pod.due = Some(at);
            self.due.insert((at, key.clone()));
        }
        fit
    }

    async fn sync(&mut self, context: &Context, key: &Arc<Key>, now: DateTime<Utc>) -> Result<()> {
        let Some(row) = context.index.pod(key) else {
            self.forget(key);
            return Ok(());
        };
        if !context
            .index
            .read()
            .nodes
            .get(&row.node)
            .is_some_and(|node| node.simulated)
        {
            return Ok(());
        }
        let value = row.object.value();
        if row.terminating {
            return self.stop(context, &row, &value, now).await;
        }
        if row.phase.is_final() {
            self.forget(key);
            return Ok(());
        }
        if self.pods.get(key).is_none_or(|pod| pod.uid != row.object.uid) {
            self.forget(key);
            self.admit(context, &row, &value, now).await;
        }
        let Some(pod) = self.pods.get_mut(key) else {
            return Ok(());
        };
        let replicas = row.replicas();
        let memory = |one: &Container, at| memory(context, &row, replicas, one, at);
        let policy = text(&value, "/spec/restartPolicy");
        let around = Surroundings {
            now,
            restart_policy: policy,
            tick: tick(context),
            init_time: span(context.options.init_time),
            startup_time: span(context.options.startup_time),
            runs: (policy != "Always").then(|| row.load.runs.map_or(RUNS, span)),
            memory: &memory,
            pod: format!("{}_{}({})", key.name, key.namespace, pod.uid),
        };
        let mut step = pod.containers.step(&value["spec"], &around);
        let room = room(context, &row);
        pod.resize
            .step(&value, &mut pod.containers, room, &around, &mut step);
        let (containers, resize, ip, begun) = (&pod.containers, &pod.resize, &pod.ip, pod.begun);
        let rendered = |old: &Value| status::render(old, containers, resize, &around, ip, begun);
        let written = write_status(context, &row.object, &value, &rendered).await?;
        pod.written = written;
        let risky = pod.containers.all.iter().any(|one| risky(context, &row, one));
        self.wait(context, key, &step, risky, now);
        for (warning, reason, message) in step.events {
            context
                .event(("pods", &value), warning, reason, &message, NAME)
                .await;
        }
        Ok(())
    }

    async fn admit(&mut self, context: &Context, row: &Pod, value: &Value, now: DateTime<Utc>) {
        self.addresses += 1;
        let [_, b, c, d] = self.addresses.to_be_bytes();
        let pod = Sandboxed {
            uid: row.object.uid.clone(),
            ip: format!("10.{b}.{c}.{d}"),
            begun: now,
            containers: Containers::new(&value["spec"]),
            resize: Resize::default(),
            written: 0,
            due: None,
            step_due: None,
        };
        self.pods.insert(row.object.key.clone(), pod);
        let annotation = value["metadata"]["annotations"][ANNOTATION].as_str();
        let problem = annotation.and_then(|text| context.index.read().load_problem(text).map(str::to_owned));
        if let Some(problem) = problem {
            let message = format!("the annotation {ANNOTATION} is not understood: {problem}");
            context
                .event(("pods", value), true, "BadLoad", &message, NAME)
                .await;
        }
    }

    /// Lets a pod go when it has had the time it needs, or all that it is given.
    async fn stop(&mut self, context: &Context, row: &Pod, value: &Value, now: DateTime<Utc>) -> Result<()> {
        let key = &row.object.key;
        let grace = value["metadata"]["deletionGracePeriodSeconds"]
            .as_i64()
            .unwrap_or(30);
        let end = index::time(value, "/metadata/deletionTimestamp").unwrap_or(now);
        let asked = end - TimeDelta::seconds(grace);
        let gone = (asked + span(context.options.stop_time)).min(end);
        if now < gone {
            self.due.insert((gone, key.clone()));
            for container in crate::sandbox::tree::items(value, "/spec/containers") {
                let message = format!("Stopping container {}", text(container, "/name"));
                context
                    .event(("pods", value), false, "Killing", &message, NAME)
                    .await;
            }
            return Ok(());
        }
        let options = DeleteOptions {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: Some(row.object.uid.to_string()),
                resource_version: None,
            }),
            ..DeleteOptions::default()
        };
        let kind = context.api.kind("pods")?;
        let deleted = context.api.delete(&kind, key, &options, &Write::default()).await;
        self.forget(key);
        match deleted {
            Err(error) if error.code != 404 => Err(error),
            _ => Ok(()),
        }
    }

    fn wait(&mut self, context: &Context, key: &Arc<Key>, step: &Step, risky: bool, now: DateTime<Utc>) {
        let Some(pod) = self.pods.get_mut(key) else {
            return;
        };
        // Far away means never: it lets the cheap look at the memory know that there is nothing else.
        pod.step_due = Some(step.due.unwrap_or(DateTime::<Utc>::MAX_UTC));
        let check = risky.then(|| now + span(context.options.memory_check));
        let next = match (step.due, check) {
            (Some(due), Some(check)) => Some(due.min(check)),
            (due, check) => due.or(check),
        };
        if let Some(old) = pod.due {
            self.due.remove(&(old, key.clone()));
        }
        pod.due = next;
        self.due.extend(next.map(|at| (at, key.clone())));
    }

    fn wake(&mut self, key: &Arc<Key>, now: DateTime<Utc>) {
        if let Some(pod) = self.pods.get_mut(key) {
            if let Some(old) = pod.due.replace(now) {
                self.due.remove(&(old, key.clone()));
            }
            pod.step_due = None;
        }
        self.due.insert((now, key.clone()));
    }

    fn forget(&mut self, key: &Arc<Key>) {
        if let Some(due) = self.pods.remove(key).and_then(|pod| pod.due) {
            self.due.remove(&(due, key.clone()));
        }
    }
}

async fn write_status(
    context: &Context,
    object: &Arc<Object>,
    value: &Value,
    rendered: &(dyn Fn(&Value) -> Value + Send + Sync),
) -> Result<u64> {
    if rendered(value) == value["status"] {
        return Ok(object.revision);
    }
    let kind = context.api.kind("pods")?;
    let change = |old: &Value| {
        let mut new = old.clone();
        new["status"] = rendered(old);
        Ok(new)
    };
    let write = Write::default();
    let done = context
        .api
        .modify(&kind, &object.key, Part::Status, &write, &change)
        .await?;
    Ok(done.revision)
}

fn memory(context: &Context, row: &Pod, replicas: usize, one: &Container, now: DateTime<Utc>) -> f64 {
    let State::Running { since } = one.state else {
        return 0.0;
    };
    context.loads.usage(row, &one.name, since, replicas, now).memory
}

/// Whether a container could ever use more than its limit.
fn risky(context: &Context, row: &Pod, one: &Container) -> bool {
    one.memory_limit()
        .is_some_and(|limit| context.loads.memory_ceiling(row, &one.name) > limit)
}

fn room(context: &Context, row: &Pod) -> NodeRoom {
    let rows = context.index.read();
    let allocatable = rows.nodes.get(&row.node).map(|node| node.allocatable);
    // The rows may know a newer state of the pod than this one, which then is what counts.
    let own = rows.pods.get(&row.object.key).map(|pod| pod.needs);
    NodeRoom {
        allocatable: allocatable.unwrap_or_default(),
        others: rows.taken(&row.node).minus(own.unwrap_or(row.needs)),
    }
}

fn tick(context: &Context) -> TimeDelta {
    span(context.options.tick)
}

fn span(duration: Duration) -> TimeDelta {
    TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX)
}
