//! Strategic merge patches of the built-in kinds: which lists merge by which key, and in which order their items end up.

use serde_json::{Map, Value};

use crate::sandbox::tree;

/// How a list of a built-in kind merges.
pub(super) enum Merging {
    /// By this field of its items.
    By(&'static str),
    /// As a set of plain values.
    Set,
}

/// What strategic merge knows about the lists of built-in kinds; `inside` is the nearest named field around it. All
/// other lists are replaced whole.
pub(super) fn merging(inside: &str, field: &str) -> Option<Merging> {
    let container = matches!(inside, "containers" | "initContainers" | "ephemeralContainers");
    Some(match (inside, field) {
        (_, "containers" | "initContainers" | "ephemeralContainers" | "volumes" | "env") => {
            Merging::By("name")
        }
        (_, "imagePullSecrets" | "secrets" | "resourceClaims" | "claims" | "webhooks") => Merging::By("name"),
        (_, "ports") if container => Merging::By("containerPort"),
        ("spec", "ports") => Merging::By("port"),
        (_, "volumeMounts") => Merging::By("mountPath"),
        (_, "volumeDevices") => Merging::By("devicePath"),
        (_, "conditions") | ("status", "addresses") => Merging::By("type"),
        (_, "ownerReferences") => Merging::By("uid"),
        (_, "hostAliases" | "podIPs" | "hostIPs") => Merging::By("ip"),
        (_, "topologySpreadConstraints") => Merging::By("topologyKey"),
        ("metadata" | "spec", "finalizers") => Merging::Set,
        _ => return None,
    })
}

/// Applies a strategic merge patch.
pub(super) fn merge(value: &mut Value, patch: &Value) {
    if let Some(patch) = patch.as_object() {
        merge_map(tree::object(value, &[]), patch, "");
    }
}

fn merge_map(target: &mut Map<String, Value>, patch: &Map<String, Value>, inside: &str) {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => target.clear(),
        Some("delete") => {
            target.clear();
            return;
        }
        _ => {}
    }
    if let Some(keep) = patch.get("$retainKeys").and_then(Value::as_array) {
        target.retain(|name, _| keep.iter().any(|one| one == name));
    }
    for (name, wanted) in patch {
        if let Some(field) = name.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = wanted.as_array().cloned().unwrap_or_default();
            if let Some(list) = target.get_mut(field).and_then(Value::as_array_mut) {
                list.retain(|one| !gone.contains(one));
            }
        } else if name.starts_with('$') {
            continue;
        } else {
            merge_field(
                target,
                name,
                wanted,
                patch.get(&format!("$setElementOrder/{name}")),
                inside,
            );
        }
    }
    // An order may also come without any change to the list.
    for (name, order) in patch {
        if let Some(field) = name.strip_prefix("$setElementOrder/")
            && !patch.contains_key(field)
            && let (Some(Merging::By(key)), Some(list)) = (
                merging(inside, field),
                target.get_mut(field).and_then(Value::as_array_mut),
            )
        {
            let named: Vec<Value> = tree::items(order, "")
                .filter_map(|item| item.get(key).cloned())
                .collect();
            let server = list.iter().map(|item| item[key].clone()).collect::<Vec<_>>();
            *list = arrange(std::mem::take(list), &named, &server, key);
        }
    }
}

fn merge_field(
    target: &mut Map<String, Value>,
    name: &str,
    wanted: &Value,
    order: Option<&Value>,
    inside: &str,
) {
    match wanted {
        Value::Null => {
            target.remove(name);
        }
        Value::Object(patch) if patch.get("$patch").is_some_and(|what| what == "delete") => {
            target.remove(name);
        }
        Value::Object(patch) => {
            let child = target.entry(name).or_insert_with(|| Value::Object(Map::new()));
            merge_map(tree::object(child, &[]), patch, name);
        }
        Value::Array(patch) => match merging(inside, name) {
            Some(Merging::By(key)) => {
                let list = target.remove(name).and_then(|list| match list {
                    Value::Array(list) => Some(list),
                    _ => None,
                });
                let merged = merge_list(list.unwrap_or_default(), patch, order, key, name);
                target.insert(name.to_owned(), merged.into());
            }
            Some(Merging::Set) => {
                let list = target.entry(name).or_insert_with(|| Value::Array(Vec::new()));
                if let Some(list) = list.as_array_mut() {
                    for one in patch {
                        if !list.contains(one) {
                            list.push(one.clone());
                        }
                    }
                }
            }
            None => {
                target.insert(name.to_owned(), wanted.clone());
            }
        },
        scalar => {
            target.insert(name.to_owned(), scalar.clone());
        }
    }
}

fn merge_list(
    mut list: Vec<Value>,
    patch: &[Value],
    order: Option<&Value>,
    key: &str,
    name: &str,
) -> Vec<Value> {
    let server: Vec<Value> = list.iter().map(|item| item[key].clone()).collect();
    let whole = |item: &&Value| item["$patch"] == "replace" && item.get(key).is_none();
    if patch.iter().any(|item| whole(&item)) {
        list.clear();
    }
    let mut named = Vec::new();
    for item in patch.iter().filter(|item| !whole(item)) {
        let Some(patch) = item.as_object() else { continue };
        let id = item[key].clone();
        let at = list.iter().position(|one| one[key] == id);
        if item["$patch"] == "delete" {
            at.map(|at| list.remove(at));
            continue;
        }
        named.push(id);
        if let Some(found) = at.and_then(|at| list.get_mut(at)) {
            merge_map(tree::object(found, &[]), patch, name);
        } else {
            let mut new = Map::new();
            merge_map(&mut new, patch, name);
            list.push(new.into());
        }
    }
    if let Some(order) = order {
        named = tree::items(order, "")
            .filter_map(|item| item.get(key).cloned())
            .collect();
    }
    arrange(list, &named, &server, key)
}

/// Items that the patch names come in its order; each of the others keeps its place before the first named item that
/// used to be behind it.
fn arrange(list: Vec<Value>, named: &[Value], server: &[Value], key: &str) -> Vec<Value> {
    let place = |order: &[Value], item: &Value| order.iter().position(|id| *id == item[key]);
    let (mut patched, others): (Vec<_>, Vec<_>) =
        list.into_iter().partition(|item| place(named, item).is_some());
    patched.sort_by_key(|item| place(named, item));
    let mut result = Vec::new();
    let mut others = others.into_iter().peekable();
    for item in patched {
        let before = |other: &Value| match (place(server, other), place(server, &item)) {
            (Some(other), Some(item)) => other < item,
            _ => false,
        };
        while let Some(other) = others.next_if(before) {
            result.push(other);
        }
        result.push(item);
    }
    result.extend(others);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn merged(value: &Value, patch: &Value) -> Value {
        let mut value = value.clone();
        merge(&mut value, patch);
        value
    }

    #[test]
    fn strategic_merge_by_example() {
        let pod = json!({"spec": {"containers": [
            {"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}], "args": ["1", "2"]},
            {"name": "b", "image": "b:1"},
            {"name": "c", "image": "c:1"},
        ]}});
        let containers = |patch: Value| merged(&pod, &json!({"spec": patch}))["spec"].clone();
        let names = |spec: &Value| {
            tree::items(spec, "/containers")
                .map(|one| one["name"].clone())
                .collect::<Vec<_>>()
        };
        let by_name = |spec: &Value, name: &str| {
            tree::items(spec, "/containers")
                .find(|one| one["name"] == name)
                .cloned()
                .unwrap_or_default()
        };
        let changed = containers(json!({"containers": [{"name": "b", "image": "b:2"}]}));
        assert_eq!(
            (names(&changed), by_name(&changed, "b")["image"].clone()),
            (vec!["a".into(), "b".into(), "c".into()], json!("b:2"))
        );
        let inner = containers(
            json!({"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}], "args": ["3"]}]}),
        );
        assert_eq!(
            by_name(&inner, "a")["env"],
            json!([{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}])
        );
        assert_eq!(
            by_name(&inner, "a")["args"],
            json!(["3"]),
            "plain lists are replaced"
        );
        let added =
            containers(json!({"containers": [{"name": "d", "image": "d", "$setElementOrder/env": []}]}));
        assert_eq!(by_name(&added, "d"), json!({"name": "d", "image": "d"}));
        let deleted = containers(json!({"containers": [{"name": "b", "$patch": "delete"}]}));
        assert_eq!(names(&deleted), ["a", "c"]);
        let replaced = containers(json!({"containers": [{"$patch": "replace"}, {"name": "z"}]}));
        assert_eq!(replaced, json!({"containers": [{"name": "z"}]}));
        let reordered = containers(json!({"containers": [{"name": "c"}, {"name": "a"}]}));
        assert_eq!(
            names(&reordered),
            ["b", "c", "a"],
            "the patch's order stands, the others keep their place"
        );
        let ordered = containers(json!({
            "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}],
            "containers": [{"name": "a", "image": null}],
        }));
        assert_eq!(names(&ordered), ["c", "b", "a"]);
        assert_eq!(by_name(&ordered, "a").get("image"), None);
        let volume = json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}});
        let patch = json!({"spec": {"volumes": [{"$retainKeys": ["name", "configMap"], "name": "v", "configMap": {"name": "c"}}]}});
        assert_eq!(
            merged(&volume, &patch)["spec"]["volumes"],
            json!([{"name": "v", "configMap": {"name": "c"}}])
        );
        let finalizers = json!({"metadata": {"finalizers": ["a", "b"]}});
        let patch =
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c", "b"]}});
        assert_eq!(
            merged(&finalizers, &patch),
            json!({"metadata": {"finalizers": ["b", "c"]}})
        );
    }

    /// A few containers in any order; an image may be set, removed or not mentioned.
    fn containers() -> impl Strategy<Value = Value> {
        let fields = (
            proptest::option::of("[a-c]"),
            proptest::option::of(0..3),
            any::<bool>(),
        );
        let map = proptest::collection::btree_map("[a-d]", fields, 0..4);
        map.prop_map(|map| map.into_iter().collect::<Vec<_>>())
            .prop_shuffle()
            .prop_map(|list| {
                let list = list.into_iter().map(|(name, (image, port, remove))| {
                    let mut item = json!({"name": name});
                    if remove || image.is_some() {
                        item["image"] = image.into();
                    }
                    if let Some(port) = port {
                        item["ports"] = json!([{"containerPort": port}]);
                    }
                    item
                });
                json!({"spec": {"containers": list.collect::<Vec<_>>()}})
            })
    }

    proptest! {
        #[test]
        fn a_strategic_merge_done_twice_is_done_once(start in containers(), patch in containers()) {
            let start = merged(&json!({}), &start);
            let once = merged(&start, &patch);
            prop_assert_eq!(merged(&once, &patch), once.clone());
            let names = |value: &Value| -> std::collections::BTreeSet<String> {
                tree::items(value, "/spec/containers").map(|one| one["name"].to_string()).collect()
            };
            let all: std::collections::BTreeSet<_> = names(&start).union(&names(&patch)).cloned().collect();
            prop_assert_eq!(names(&once), all, "nothing is lost and nothing made up");
        }
    }
}
