//! What server-side apply makes of a configuration: it merges by the keys that the kind declares, and withdraws what the
//! last configuration of the same manager had.

use serde_json::{Map, Value};

use super::strategic::{Merging, merging};
use crate::sandbox::{
    registry::{Form, Kind},
    tree,
};

/// The keys by which a list merges under server-side apply.
fn apply_keys<'a>(kind: &'a Kind, path: &[&'a str]) -> Option<Vec<&'a str>> {
    match &kind.form {
        Form::Custom(version) => version.schema.list_map_keys(path),
        Form::Builtin(_) | Form::Metrics => {
            let mut names = path.iter().rev().filter(|part| **part != "[]");
            let field = names.next()?;
            match merging(names.next().copied().unwrap_or_default(), field)? {
                Merging::By(key) => Some(vec![key]),
                Merging::Set => None,
            }
        }
    }
}

fn same(a: &Value, b: &Value, keys: &[&str]) -> bool {
    keys.iter().all(|key| a.get(key) == b.get(key))
}

/// Takes out of `value` what `last` has and `config` has not.
pub(super) fn withdraw<'a>(
    kind: &'a Kind,
    value: &mut Value,
    last: &'a Value,
    config: &Value,
    path: &mut Vec<&'a str>,
) {
    let (Some(last), Some(map)) = (last.as_object(), value.as_object_mut()) else {
        return;
    };
    for (name, last) in last {
        path.push(name);
        let keys = last.as_array().and_then(|_| apply_keys(kind, path));
        let now = config.get(name);
        match (last, &keys) {
            (Value::Object(_), _) => {
                if let Some(child) = map.get_mut(name) {
                    withdraw(kind, child, last, now.unwrap_or(&Value::Null), path);
                    if now.is_none() && child.as_object().is_some_and(Map::is_empty) {
                        map.remove(name);
                    }
                }
            }
            (Value::Array(items), Some(keys)) => {
                path.push("[]");
                if let Some(list) = map.get_mut(name).and_then(Value::as_array_mut) {
                    for item in items {
                        let kept = now
                            .into_iter()
                            .flat_map(|now| tree::items(now, ""))
                            .find(|one| same(one, item, keys));
                        match (kept, list.iter().position(|one| same(one, item, keys))) {
                            (None, Some(at)) => drop(list.remove(at)),
                            (Some(kept), Some(at)) => {
                                if let Some(one) = list.get_mut(at) {
                                    withdraw(kind, one, item, kept, path);
                                }
                            }
                            (_, None) => {}
                        }
                    }
                }
                path.pop();
            }
            _ if now.is_none() => {
                map.remove(name);
            }
            _ => {}
        }
        path.pop();
    }
}

pub(super) fn merge<'a>(kind: &'a Kind, value: &mut Value, config: &'a Value, path: &mut Vec<&'a str>) {
    let Some(config) = config.as_object() else {
        *value = config.clone();
        return;
    };
    let map = tree::object(value, &[]);
    for (name, wanted) in config {
        path.push(name);
        let keys = wanted.as_array().and_then(|_| apply_keys(kind, path));
        match (wanted, keys) {
            (Value::Null, _) => {
                map.remove(name);
            }
            (Value::Object(_), _) => {
                let child = map.entry(name).or_insert_with(|| Value::Object(Map::new()));
                merge(kind, child, wanted, path);
            }
            (Value::Array(items), Some(keys)) => {
                path.push("[]");
                let list = map.entry(name).or_insert_with(|| Value::Array(Vec::new()));
                if let Some(list) = list.as_array_mut() {
                    for item in items {
                        if let Some(at) = list.iter().position(|one| same(one, item, &keys)) {
                            if let Some(one) = list.get_mut(at) {
                                merge(kind, one, item, path);
                            }
                        } else {
                            list.push(item.clone());
                        }
                    }
                }
                path.pop();
            }
            _ => {
                map.insert(name.clone(), wanted.clone());
            }
        }
        path.pop();
    }
}
