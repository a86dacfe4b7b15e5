//! The controllers: each brings one kind of object from what is to what should be, when it or something it depends on has
//! changed, or at a time it has asked for.

mod budget;
mod cron;
mod cronjob;
mod daemonset;
mod deployment;
mod job;
mod pods;
mod replicas;
mod statefulset;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use super::{
    context::{Context, Result},
    index::{Feed, controller, resource_of},
};
use crate::sandbox::{
    selector::of_budget,
    store::{Change, Event, Key, Object},
    tree::text,
};

/// The resources looked after, in the order in which a round goes through them.
const RESOURCES: [&str; 9] = [
    "namespaces",
    "cronjobs.batch",
    "deployments.apps",
    "replicasets.apps",
    "replicationcontrollers",
    "statefulsets.apps",
    "daemonsets.apps",
    "jobs.batch",
    BUDGETS,
];

const BUDGETS: &str = "poddisruptionbudgets.policy";

type Work = (usize, Arc<Key>);

/// See the module.
#[derive(Debug)]
pub(super) struct Controllers {
    feeds: Vec<Feed>,
    /// The revision of the store up to which the feeds have been read.
    seen: u64,
    queue: BTreeSet<Work>,
    timers: BTreeSet<(DateTime<Utc>, Work)>,
    failures: BTreeMap<Work, u32>,
}

impl Controllers {
    pub(super) fn new() -> Self {
        Self {
            feeds: RESOURCES.into_iter().map(Feed::new).collect(),
            seen: 0,
            queue: BTreeSet::new(),
            timers: BTreeSet::new(),
            failures: BTreeMap::new(),
        }
    }

    /// Learns what happened, also to pods and nodes.
    pub(super) fn note(&mut self, context: &Context, news: &[Event]) {
        let store = context.api.store();
        let mut pods: BTreeMap<&str, Vec<&Object>> = BTreeMap::new();
        for event in news {
            if event.object.key.namespace.is_empty() {
                self.add_all(context, "daemonsets.apps", None);
                continue;
            }
            let before = event.before.as_ref();
            let changed = pods.entry(&event.object.key.namespace).or_default();
            changed.extend([&*event.object].into_iter().chain(before.map(|before| &**before)));
            self.add_owner(&event.object.value());
            // A pod may have been orphaned.
            if let Some(before) = before.filter(|before| before.owners != event.object.owners) {
                self.add_owner(&before.value());
            }
        }
        for (namespace, pods) in pods {
            self.add_budgets_of(context, namespace, &pods);
        }
        let revision = store.revision();
        if revision == self.seen && news.is_empty() {
            return;
        }
        self.seen = revision;
        let (mut owners, mut rescaled) = (Vec::new(), BTreeSet::new());
        for (at, feed) in self.feeds.iter_mut().enumerate() {
            for event in feed.drain(store).events {
                // Deployments look after ReplicaSets, CronJobs after Jobs; budgets look at how many pods are wanted.
                let value = event.object.value();
                if RESOURCES.get(at).is_some_and(|resource| *resource != BUDGETS)
                    && is_other_than_before(&event, &value)
                {
                    rescaled.insert(event.object.key.namespace.clone());
                }
                if controller(&value).is_some() {
                    owners.push(value);
                }
                if event.change != Change::Deleted {
                    self.queue.insert((at, event.object.key.clone()));
                }
            }
        }
        owners.iter().for_each(|value| self.add_owner(value));
        for namespace in rescaled.iter().filter(|namespace| !namespace.is_empty()) {
            self.add_all(context, BUDGETS, Some(namespace));
        }
    }

    /// Does what is to be done; whether there was anything.
    pub(super) async fn run(&mut self, context: &Context) -> bool {
        let now = context.now();
        while let Some((_, work)) = self.timers.first().cloned().filter(|(at, _)| *at <= now) {
            self.timers.pop_first();
            self.queue.insert(work);
        }
        let mut busy = false;
        while let Some(work) = self.queue.pop_first() {
            let (at, key) = &work;
            let Some(resource) = RESOURCES.get(*at) else {
                continue;
            };
            let Some(object) = context.get(resource, key) else {
                self.failures.remove(&work);
                continue;
            };
            busy = true;
            let value = object.value();
            if value["metadata"].get("deletionTimestamp").is_some() {
                continue;
            }
            match reconcile(context, resource, key, &value).await {
                Ok(again) => {
                    self.failures.remove(&work);
                    self.timers.extend(again.map(|at| (at, work)));
                }
                Err(error) if error.code == 404 || error.code == 409 => {
                    // Something has changed meanwhile; another look at the next tick sets it right.
                    self.timers.insert((now + TimeDelta::seconds(1), work));
                }
                Err(error) => {
                    let kind = resource.split('.').next().unwrap_or_default();
                    tracing::warn!(%error, kind, name = %key.name, "cannot reconcile");
                    let (message, about) = (error.message.clone(), (*resource, &value));
                    context
                        .event(about, true, "FailedCreate", &message, "controller-manager")
                        .await;
                    let failures = self.failures.entry(work.clone()).or_default();
                    let delay = TimeDelta::seconds(1_i64 << (*failures).min(8));
                    *failures += 1;
                    self.timers.insert((now + delay, work));
                }
            }
        }
        busy
    }

    fn add_owner(&mut self, value: &Value) {
        let Some(owner) = controller(value) else {
            return;
        };
        let at = resource_of(&owner.kind).and_then(turn_of);
        if let Some(at) = at {
            let key = Key::new(text(value, "/metadata/namespace"), &owner.name);
            self.queue.insert((at, Arc::new(key)));
        }
    }

    fn add_budgets_of(&mut self, context: &Context, namespace: &str, pods: &[&Object]) {
        let Some(at) = turn_of(BUDGETS) else {
            return;
        };
        for budget in context.api.store().all(BUDGETS, Some(namespace)) {
            let labels = of_budget(&budget.value());
            if pods.iter().any(|pod| labels.matches(|name| pod.label(name))) {
                self.queue.insert((at, budget.key.clone()));
            }
        }
    }

    fn add_all(&mut self, context: &Context, resource: &str, namespace: Option<&str>) {
        let Some(at) = turn_of(resource) else {
            return;
        };
        for object in context.api.store().all(resource, namespace) {
            self.queue.insert((at, object.key.clone()));
        }
    }
}

/// When in a round a resource is looked after.
fn turn_of(resource: &str) -> Option<usize> {
    RESOURCES.iter().position(|one| *one == resource)
}

/// Whether something came or went, or is asked to be something else; its status alone does not count.
fn is_other_than_before(event: &Event, value: &Value) -> bool {
    let generation = |value: &Value| value["metadata"]["generation"].as_i64();
    event.change != Change::Modified
        || event
            .before
            .as_ref()
            .is_none_or(|before| generation(&before.value()) != generation(value))
}

/// Brings one object where it should be; when to look again in any case.
async fn reconcile(
    context: &Context,
    resource: &str,
    key: &Key,
    value: &Value,
) -> Result<Option<DateTime<Utc>>> {
    match resource {
        "namespaces" => default_account(context, key).await.map(|()| None),
        "cronjobs.batch" => cronjob::reconcile(context, key, value).await,
        "deployments.apps" => deployment::reconcile(context, key, value).await.map(|()| None),
        "replicasets.apps" | "replicationcontrollers" => {
            replicas::reconcile(context, resource, key, value).await
        }
        "statefulsets.apps" => statefulset::reconcile(context, key, value).await,
        "daemonsets.apps" => daemonset::reconcile(context, key, value).await,
        "jobs.batch" => job::reconcile(context, key, value).await,
        _ => budget::reconcile(context, key, value).await,
    }
}

/// Every namespace has a service account for pods that name none.
async fn default_account(context: &Context, namespace: &Key) -> Result<()> {
    let key = Key::new(&namespace.name, "default");
    if context.get("serviceaccounts", &key).is_some() {
        return Ok(());
    }
    let account = json!({"metadata": {"name": "default"}});
    let made = context.create("serviceaccounts", &namespace.name, account).await;
    made.map(drop)
}
