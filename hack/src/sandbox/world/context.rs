//! What every part of the world works with: the API, the index, the time, and the few writes that all of them do.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};

use super::{
    WorldOptions,
    index::Index,
    load::{Loads, text_number},
};
use crate::sandbox::{
    self,
    api::{Api, Part, Write, mix},
    error::ApiError,
    registry::Kind,
    store::{Key, Object},
    tree::{items, object, text},
};

pub(super) type Result<T> = std::result::Result<T, ApiError>;

/// See the module.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) api: Arc<Api>,
    pub(super) index: Index,
    pub(super) loads: Loads,
    pub(super) options: WorldOptions,
}

impl Context {
    pub(super) fn now(&self) -> DateTime<Utc> {
        self.api.clock.now()
    }

    pub(super) fn get(&self, resource: &str, key: &Key) -> Option<Arc<Object>> {
        self.api.store().get(resource, key)
    }

    /// The objects of a resource that have this owner.
    pub(super) fn owned(&self, uid: &str, resource: &str) -> Vec<(Arc<Key>, Value)> {
        let places = self.api.store().dependents(uid).into_iter();
        places
            .filter(|(other, _)| **other == *resource)
            .filter_map(|(_, key)| Some((key.clone(), self.get(resource, &key)?.value())))
            .collect()
    }

    /// Sets these fields of an object's status; null removes one.
    pub(super) async fn set_status(&self, resource: &str, key: &Key, fields: &Value) -> Result<()> {
        let kind = self.api.kind(resource)?;
        let change = |old: &Value| {
            let mut new = old.clone();
            let status = object(&mut new, &["status"]);
            for (name, value) in fields.as_object().into_iter().flatten() {
                match value {
                    Value::Null => status.remove(name),
                    value => status.insert(name.clone(), value.clone()),
                };
            }
            Ok(new)
        };
        let write = Write::default();
        let done = self.api.modify(&kind, key, Part::Status, &write, &change).await;
        done.map(drop)
    }

    /// Changes an object outside of its status.
    pub(super) async fn change(
        &self,
        resource: &str,
        key: &Key,
        change: &(dyn Fn(&mut Value) + Send + Sync),
    ) -> Result<()> {
        let kind = self.api.kind(resource)?;
        let change = |old: &Value| {
            let mut new = old.clone();
            change(&mut new);
            Ok(new)
        };
        let write = Write::default();
        let done = self.api.modify(&kind, key, Part::Main, &write, &change).await;
        done.map(drop)
    }

    pub(super) async fn create(&self, resource: &str, namespace: &str, value: Value) -> Result<Arc<Object>> {
        let kind = self.api.kind(resource)?;
        self.api.create(&kind, namespace, value, &Write::default()).await
    }

    /// Deletes an object; that it has gone already is no error.
    pub(super) async fn delete(&self, resource: &str, key: &Key) -> Result<()> {
        let kind = self.api.kind(resource)?;
        let options = crate::sandbox::DeleteOptions {
            propagation_policy: Some(crate::sandbox::Propagation::Background),
            ..Default::default()
        };
        match self.api.delete(&kind, key, &options, &Write::default()).await {
            Err(error) if error.code != 404 => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes an event about an object; the same one again is counted.
    pub(super) async fn event(
        &self,
        about: (&str, &Value),
        warning: bool,
        reason: &str,
        message: &str,
        by: &str,
    ) {
        if !self.options.events {
            return;
        }
        let (resource, value) = about;
        let Ok(kind) = self.api.kind(resource) else {
            return;
        };
        let (namespace, name) = (text(value, "/metadata/namespace"), text(value, "/metadata/name"));
        let uid = text(value, "/metadata/uid");
        let number = mix(text_number(uid) ^ mix(text_number(reason) ^ mix(text_number(message))));
        let namespace = if namespace.is_empty() {
            "default"
        } else {
            namespace
        };
        let key = Key::new(namespace, &format!("{name}.{number:016x}"));
        let now = self.api.now();
        let counted = self
            .change("events", &key, &|event| {
                let count = event["count"].as_i64().unwrap_or(1) + 1;
                event["count"] = count.into();
                event["lastTimestamp"] = now.clone().into();
            })
            .await;
        if counted.is_ok() {
            return;
        }
        let event = json!({
            "metadata": {"name": &*key.name, "namespace": namespace},
            "involvedObject": involved(&kind, value),
            "type": if warning { "Warning" } else { "Normal" }, "reason": reason, "message": message, "count": 1,
            "firstTimestamp": now, "lastTimestamp": now, "source": {"component": by}, "reportingComponent": by,
            "reportingInstance": "", "eventTime": null,
        });
        if let Err(error) = self.create("events", namespace, event).await {
            tracing::warn!(%error, reason, name, "cannot write an event");
        }
    }
}

fn involved(kind: &Kind, value: &Value) -> Value {
    json!({
        "apiVersion": kind.api_version(), "kind": kind.kind, "namespace": value["metadata"]["namespace"],
        "name": value["metadata"]["name"], "uid": value["metadata"]["uid"],
        "resourceVersion": value["metadata"]["resourceVersion"],
    })
}

/// A time as the API writes it.
pub(super) fn stamp(time: DateTime<Utc>) -> Value {
    sandbox::object::stamp(time).into()
}

/// Puts a condition into a list, or nothing when it is there in the same words. Its transition is now if its status is new.
pub(super) fn set_condition(list: &mut Vec<Value>, mut condition: Value, now: DateTime<Utc>) {
    let before = list.iter_mut().find(|one| one["type"] == condition["type"]);
    let map = object(&mut condition, &[]);
    map.retain(|_, value| !value.is_null());
    match before {
        Some(before) => {
            let since = if before["status"] == map["status"] {
                before["lastTransitionTime"].clone()
            } else {
                stamp(now)
            };
            map.insert("lastTransitionTime".into(), since);
            *before = condition;
        }
        None => {
            map.insert("lastTransitionTime".into(), stamp(now));
            list.push(condition);
        }
    }
}

/// The conditions of an object, to be changed.
pub(super) fn conditions(value: &Value) -> Vec<Value> {
    items(value, "/status/conditions").cloned().collect()
}

/// `True` or `False`.
pub(super) fn truth(yes: bool) -> &'static str {
    if yes { "True" } else { "False" }
}

/// The reference that makes `owner` the controller of what carries it.
pub(super) fn owned_by(kind: &Kind, owner: &Value) -> Value {
    json!([{
        "apiVersion": kind.api_version(), "kind": kind.kind, "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    }])
}

/// An absolute number or a percentage of `total`, as `maxSurge` and `minAvailable` are told.
pub(super) fn portion(value: &Value, total: i64, round_up: bool) -> i64 {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%'));
    match percent.and_then(|text| text.parse::<i64>().ok()) {
        Some(percent) => {
            let hundredths = total.saturating_mul(percent);
            (hundredths + if round_up { 99 } else { 0 }).div_euclid(100)
        }
        None => value.as_i64().unwrap_or_default(),
    }
}

/// A short name for a template, the same for the same one.
pub(super) fn template_hash(template: &Value) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut number = mix(text_number(&template.to_string()));
    let letter = |_| {
        let at = usize::try_from(number % 27).unwrap_or_default();
        number /= 27;
        LETTERS.get(at).map_or('x', |letter| char::from(*letter))
    };
    (0..10).map(letter).collect()
}

/// An object's map of labels or annotations with some added.
pub(super) fn with(map: &Value, more: &[(&str, &str)]) -> Value {
    let mut map: Map<String, Value> = map.as_object().cloned().unwrap_or_default();
    for (name, value) in more {
        map.insert((*name).to_owned(), (*value).into());
    }
    map.into()
}
