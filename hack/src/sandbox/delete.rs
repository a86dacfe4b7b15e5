//! Deletion: grace periods of pods, finalizers, preconditions, and the garbage collection of dependents and of
//! namespaces' contents, which a real cluster's controller manager does a moment later and the sandbox at once.

use std::{collections::VecDeque, sync::Arc};

use chrono::TimeDelta;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    admission::Operation,
    api::{Api, Part, Write},
    error::{ApiError, Result},
    registry::Kind,
    store::{Expect, Key, Object, Place, Range},
    tree,
    write::finished,
};
use crate::sandbox::selector::Selector;

/// What the body of a delete says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeleteOptions {
    /// For pods; the pod's own period when not given.
    pub grace_period_seconds: Option<i64>,
    /// Refuse unless the object is this one.
    pub preconditions: Option<Preconditions>,
    /// What becomes of the dependents.
    pub propagation_policy: Option<Propagation>,
    /// The old spelling of the policy `Orphan`.
    pub orphan_dependents: Option<bool>,
    /// Do everything but delete.
    pub dry_run: Option<Vec<String>>,
}

/// See [`DeleteOptions::preconditions`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preconditions {
    /// The uid it must have.
    pub uid: Option<String>,
    /// The version it must have.
    pub resource_version: Option<String>,
}

/// What becomes of the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Propagation {
    /// They are deleted afterwards.
    Background,
    /// They are deleted first.
    Foreground,
    /// They stay.
    Orphan,
}

/// What a deletion came to.
#[derive(Clone, Debug)]
pub enum Deleted {
    /// It is gone.
    Gone(Arc<Object>),
    /// It is marked, and goes when its grace period or finalizers allow.
    Terminating(Arc<Object>),
}

impl Deleted {
    /// The object as it was or is.
    #[must_use]
    pub fn object(&self) -> &Arc<Object> {
        match self {
            Self::Gone(object) | Self::Terminating(object) => object,
        }
    }
}

const FOREGROUND: &str = "foregroundDeletion";

impl Api {
    /// Deletes an object.
    ///
    /// # Errors
    /// 404, 409 for a failed precondition, or what a webhook says.
    pub async fn delete(
        &self,
        kind: &Kind,
        key: &Key,
        options: &DeleteOptions,
        write: &Write,
    ) -> Result<Deleted> {
        let object = self.get(kind, key)?;
        self.review(
            Operation::Delete,
            kind,
            Part::Main,
            Some(&object.value()),
            &Value::Null,
            write,
        )
        .await?;
        let dry_run = write.dry_run || options.dry_run.as_ref().is_some_and(|all| !all.is_empty());
        if dry_run {
            check_preconditions(kind, &object, options)?;
            return Ok(Deleted::Gone(object));
        }
        let deleted = self.mark_or_remove(kind, key, options)?;
        match &deleted {
            Deleted::Gone(object) => self.collect(kind, object.clone()),
            Deleted::Terminating(object) => self.delete_dependents_first(kind, object),
        }
        Ok(deleted)
    }

    /// Deletes everything selected; gives what it touched.
    ///
    /// # Errors
    /// The first error of a deletion, other than that the object has gone meanwhile.
    pub async fn delete_all(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: &Selector,
        options: &DeleteOptions,
        write: &Write,
    ) -> Result<Vec<Arc<Object>>> {
        let range = Range {
            namespace: namespace.map(str::to_owned),
            ..Range::default()
        };
        let page = self
            .store
            .list(&kind.storage, &range, &|object| selector.matches(object));
        let mut all = Vec::new();
        for object in page.map(|page| page.objects).unwrap_or_default() {
            match self.delete(kind, &object.key, options, write).await {
                Ok(deleted) => all.push(deleted.object().clone()),
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    fn mark_or_remove(&self, kind: &Kind, key: &Key, options: &DeleteOptions) -> Result<Deleted> {
        loop {
            let object = self.get(kind, key)?;
            check_preconditions(kind, &object, options)?;
            let old = object.value();
            let mut new = old.clone();
            self.mark(kind, &mut new, options);
            let expect = Expect::Revision(object.revision);
            if finished(kind, &new) {
                if let Some(gone) = self.commit(kind, key, expect, None) {
                    return Ok(Deleted::Gone(gone));
                }
            } else if new == old {
                return Ok(Deleted::Terminating(object));
            } else if let Some(object) = self.commit(kind, key, expect, Some(new)) {
                return Ok(Deleted::Terminating(object));
            }
        }
    }

    fn mark(&self, kind: &Kind, value: &mut Value, options: &DeleteOptions) {
        let grace = if kind.storage == "pods" {
            grace_period(value, options)
        } else {
            0
        };
        let policy = policy(kind, options);
        if policy == Propagation::Orphan {
            self.orphan_dependents(tree::text(value, "/metadata/uid"));
        }
        let now = self.clock.now();
        let metadata = tree::object(value, &["metadata"]);
        let already = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64);
        if metadata.get("deletionTimestamp").is_none() || already.is_some_and(|already| grace < already) {
            let at = TimeDelta::try_seconds(grace).and_then(|grace| now.checked_add_signed(grace));
            let at = at.unwrap_or(now);
            metadata.insert(
                "deletionTimestamp".into(),
                at.format("%Y-%m-%dT%H:%M:%SZ").to_string().into(),
            );
            metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
            if let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
                metadata.insert("generation".into(), (generation + 1).into());
            }
        }
        let uid = metadata.get("uid").and_then(Value::as_str).unwrap_or_default();
        if policy == Propagation::Foreground && !self.store.dependents(uid).is_empty() {
            let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
            if let Some(list) = finalizers
                .as_array_mut()
                .filter(|list| !list.contains(&json!(FOREGROUND)))
            {
                list.push(json!(FOREGROUND));
            }
        }
        if kind.storage == "namespaces" {
            tree::object(value, &["status"]).insert("phase".into(), "Terminating".into());
        }
    }

    fn delete_dependents_first(&self, kind: &Kind, object: &Arc<Object>) {
        if kind.storage == "namespaces" {
            for (storage, key) in self.store.in_namespace(&object.key.name) {
                self.delete_quietly(&storage, &key, Propagation::Background);
            }
            self.finish_namespace(&object.key.name);
        }
        let value = object.value();
        if tree::items(&value, "/metadata/finalizers").any(|one| one == FOREGROUND) {
            for (storage, key) in self.store.dependents(&object.uid) {
                self.delete_quietly(&storage, &key, Propagation::Foreground);
            }
            if let Some(gone) = self.finish_foreground(kind, object) {
                self.collect(kind, gone);
            }
        }
    }

    /// Looks after everything that waited for `gone`: dependents, owners deleted in the foreground, the namespace.
    pub(super) fn collect(&self, kind: &Kind, gone: Arc<Object>) {
        let mut queue = VecDeque::from([(kind.storage.clone(), gone)]);
        while let Some((storage, gone)) = queue.pop_front() {
            for (storage, key) in self.store.dependents(&gone.uid) {
                if let Some(removed) = self.release(&storage, &key) {
                    queue.push_back((storage.to_string(), removed));
                }
            }
            let value = gone.value();
            for owner in tree::items(&value, "/metadata/ownerReferences") {
                if let Some((kind, object)) = self.owner(owner, &gone.key.namespace)
                    && let Some(removed) = self.finish_foreground(&kind, &object)
                {
                    queue.push_back((kind.storage.clone(), removed));
                }
            }
            if storage == "customresourcedefinitions.apiextensions.k8s.io" {
                continue;
            }
            if !gone.key.namespace.is_empty() {
                self.finish_namespace(&gone.key.namespace);
            }
        }
    }

    /// Deletes a dependent whose owners are all gone; gives it if it went at once.
    fn release(&self, storage: &str, key: &Key) -> Option<Arc<Object>> {
        let kind = self.kinds.stored(storage)?;
        let object = self.get(&kind, key).ok()?;
        let value = object.value();
        let mut owners = tree::items(&value, "/metadata/ownerReferences");
        if owners.any(|owner| self.owner(owner, &key.namespace).is_some()) {
            return None;
        }
        let options = DeleteOptions {
            propagation_policy: Some(Propagation::Background),
            ..DeleteOptions::default()
        };
        match self.mark_or_remove(&kind, key, &options).ok()? {
            Deleted::Gone(object) => Some(object),
            Deleted::Terminating(_) => None,
        }
    }

    fn delete_quietly(&self, storage: &str, key: &Key, policy: Propagation) {
        let Some(kind) = self.kinds.stored(storage) else {
            return;
        };
        let options = DeleteOptions {
            propagation_policy: Some(policy),
            ..DeleteOptions::default()
        };
        match self.mark_or_remove(&kind, key, &options) {
            Ok(Deleted::Gone(gone)) => self.collect(&kind, gone),
            Ok(Deleted::Terminating(object)) => self.delete_dependents_first(&kind, &object),
            // Gone meanwhile.
            Err(_) => {}
        }
    }

    fn owner(&self, reference: &Value, namespace: &str) -> Option<(Arc<Kind>, Arc<Object>)> {
        let kind = self
            .kinds
            .named(reference["apiVersion"].as_str()?, reference["kind"].as_str()?)?;
        let namespace = if kind.namespaced { namespace } else { "" };
        let object = self
            .store
            .get(&kind.storage, &Key::new(namespace, reference["name"].as_str()?))?;
        (reference["uid"] == *object.uid).then_some((kind, object))
    }

    /// Lets an owner go that was deleted in the foreground and has no dependents left that hold it.
    fn finish_foreground(&self, kind: &Kind, owner: &Object) -> Option<Arc<Object>> {
        let value = owner.value();
        let waits = tree::items(&value, "/metadata/finalizers").any(|one| one == FOREGROUND);
        let holds = |(storage, key): &Place| {
            let Some(object) = self.store.get(storage, key) else {
                return false;
            };
            let value = object.value();
            tree::items(&value, "/metadata/ownerReferences")
                .any(|reference| reference["uid"] == *owner.uid && reference["blockOwnerDeletion"] == true)
        };
        if !waits || self.store.dependents(&owner.uid).iter().any(holds) {
            return None;
        }
        self.without_finalizer(kind, &owner.key, FOREGROUND)
    }

    fn without_finalizer(&self, kind: &Kind, key: &Key, finalizer: &str) -> Option<Arc<Object>> {
        loop {
            let object = self.get(kind, key).ok()?;
            let mut value = object.value();
            let metadata = tree::object(&mut value, &["metadata"]);
            if let Some(list) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
                list.retain(|one| one != finalizer);
                if list.is_empty() {
                    metadata.remove("finalizers");
                }
            }
            let expect = Expect::Revision(object.revision);
            if finished(kind, &value) {
                if let Some(gone) = self.commit(kind, key, expect, None) {
                    return Some(gone);
                }
            } else if self.commit(kind, key, expect, Some(value)).is_some() {
                return None;
            }
        }
    }

    fn finish_namespace(&self, name: &str) {
        let key = Key::new("", name);
        let Some(object) = self.store.get("namespaces", &key) else {
            return;
        };
        let terminating = object.value().pointer("/metadata/deletionTimestamp").is_some();
        if terminating
            && self.store.in_namespace(name).is_empty()
            && let Ok(kind) = self.kind("namespaces")
        {
            // A lost race means that somebody else changes it, and comes by here again.
            self.commit(&kind, &key, Expect::Revision(object.revision), None);
        }
    }

    fn orphan_dependents(&self, uid: &str) {
        for (storage, key) in self.store.dependents(uid) {
            let Some(kind) = self.kinds.stored(&storage) else {
                continue;
            };
            while let Ok(object) = self.get(&kind, &key) {
                let mut value = object.value();
                let metadata = tree::object(&mut value, &["metadata"]);
                if let Some(owners) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) {
                    owners.retain(|owner| owner["uid"] != uid);
                }
                if self
                    .commit(&kind, &key, Expect::Revision(object.revision), Some(value))
                    .is_some()
                {
                    break;
                }
            }
        }
    }
}

/// Unscheduled and finished pods have nothing to stop, so they go at once.
fn grace_period(pod: &Value, options: &DeleteOptions) -> i64 {
    let unscheduled = tree::text(pod, "/spec/nodeName").is_empty();
    if unscheduled || matches!(tree::text(pod, "/status/phase"), "Succeeded" | "Failed") {
        return 0;
    }
    let own = || {
        pod.pointer("/spec/terminationGracePeriodSeconds")
            .and_then(Value::as_i64)
    };
    options.grace_period_seconds.or_else(own).unwrap_or(30).max(0)
}

fn policy(kind: &Kind, options: &DeleteOptions) -> Propagation {
    let default = match kind.storage.as_str() {
        // For old clients' sake, since they deleted the pods themselves.
        "jobs.batch" | "replicationcontrollers" => Propagation::Orphan,
        _ => Propagation::Background,
    };
    let old = options.orphan_dependents.map(|orphan| {
        if orphan {
            Propagation::Orphan
        } else {
            Propagation::Background
        }
    });
    options.propagation_policy.or(old).unwrap_or(default)
}

pub(super) fn check_preconditions(kind: &Kind, object: &Object, options: &DeleteOptions) -> Result<()> {
    let Some(conditions) = &options.preconditions else {
        return Ok(());
    };
    let name = &object.key.name;
    let failed = |what: &str, wanted: &str, found: &str| {
        let why = format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object \
             might have been deleted and then recreated"
        );
        Err(ApiError::conflict_because(&kind.kind, name, why))
    };
    if let Some(uid) = conditions.uid.as_deref().filter(|uid| **uid != *object.uid) {
        return failed("UID", uid, &object.uid);
    }
    let revision = object.revision.to_string();
    match &conditions.resource_version {
        Some(version) if *version != revision => failed("ResourceVersion", version, &revision),
        _ => Ok(()),
    }
}
