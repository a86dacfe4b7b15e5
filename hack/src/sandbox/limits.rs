//! The LimitRanger admission plugin: defaults for containers that say nothing, and the bounds that pods must keep.

use std::collections::BTreeSet;

use common::quantity::Quantity;
use serde_json::Value;

use super::{
    api::Api,
    error::{ApiError, Result},
    pod, quantity,
    tree::{self, object},
};

/// Gives containers the defaults of the namespace's limit ranges, and notes it in the annotation that VPA reads too.
pub(super) fn apply(api: &Api, pod: &mut Value) {
    let ranges = ranges(api, pod);
    let mut notes = Vec::new();
    for (list, what) in [("initContainers", "init container"), ("containers", "container")] {
        for container in tree::items_mut(pod, &format!("/spec/{list}")) {
            let name = tree::text(container, "/name").to_owned();
            for (field, from, word) in [
                ("limits", "default", "limit"),
                ("requests", "defaultRequest", "request"),
            ] {
                let mut set = BTreeSet::new();
                let defaults = ranges.iter().flat_map(|range| tree::items(range, "/spec/limits"));
                let defaults = defaults.filter(|item| item["type"] == "Container");
                for (resource, amount) in defaults.filter_map(|item| item[from].as_object()).flatten() {
                    let present = container["resources"][field].get(resource).is_some();
                    if !present {
                        object(container, &["resources", field]).insert(resource.clone(), amount.clone());
                        set.insert(resource.clone());
                    }
                }
                if !set.is_empty() {
                    let set = set.into_iter().collect::<Vec<_>>().join(", ");
                    notes.push(format!("{set} {word} for {what} {name}"));
                }
            }
        }
    }
    if !notes.is_empty() {
        let note = format!("LimitRanger plugin set: {}", notes.join("; "));
        object(pod, &["metadata", "annotations"]).insert("kubernetes.io/limit-ranger".into(), note.into());
    }
}

/// Refuses a pod outside of the bounds.
///
/// # Errors
/// 403 with everything that is out of bounds.
pub(super) fn check(api: &Api, pod: &Value) -> Result<()> {
    let mut wrong = Vec::new();
    for range in ranges(api, pod) {
        for item in tree::items(&range, "/spec/limits") {
            match item["type"].as_str() {
                Some("Container") => {
                    for container in pod::all_containers(&pod["spec"]) {
                        let amount =
                            |field: &str, name: &str| quantity::at(&container["resources"][field][name]);
                        compare(item, "Container", &amount, &mut wrong);
                    }
                }
                Some("Pod") => {
                    let amount = |field: &str, name: &str| Some(pod::total(&pod["spec"], field, name));
                    compare(item, "Pod", &amount, &mut wrong);
                }
                _ => {}
            }
        }
    }
    let text = match wrong.as_slice() {
        [] => return Ok(()),
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    Err(ApiError::forbidden(
        "pods",
        tree::text(pod, "/metadata/name"),
        text,
    ))
}

fn compare(
    item: &Value,
    r#type: &str,
    amount: &dyn Fn(&str, &str) -> Option<Quantity>,
    wrong: &mut Vec<String>,
) {
    let bounds = |field: &str| {
        let map = item[field].as_object().cloned().unwrap_or_default();
        map.into_iter()
            .filter_map(|(name, bound)| Some((name, bound.clone(), quantity::at(&bound)?)))
    };
    let shown = |bound: &Value| bound.as_str().map_or_else(|| bound.to_string(), str::to_owned);
    for (name, bound, least) in bounds("min") {
        let least_text = shown(&bound);
        match amount("requests", &name) {
            None => wrong.push(format!(
                "minimum {name} usage per {type} is {least_text}.  No request is specified"
            )),
            Some(found) if found.cmp_value(&least).is_lt() => wrong.push(format!(
                "minimum {name} usage per {type} is {least_text}, but request is {found}"
            )),
            Some(_) => {}
        }
    }
    for (name, bound, most) in bounds("max") {
        let most_text = shown(&bound);
        match amount("limits", &name) {
            None => {
                wrong.push(format!(
                    "maximum {name} usage per {type} is {most_text}.  No limit is specified"
                ));
            }
            Some(found) if found.cmp_value(&most).is_gt() => wrong.push(format!(
                "maximum {name} usage per {type} is {most_text}, but limit is {found}"
            )),
            Some(_) => {}
        }
    }
    for (name, bound, ratio) in bounds("maxLimitRequestRatio") {
        let (limit, request) = (amount("limits", &name), amount("requests", &name));
        if let (Some(limit), Some(request)) = (limit, request)
            && request.sign().is_gt()
        {
            let found = limit.approximate_f64() / request.approximate_f64();
            if found > ratio.approximate_f64() {
                wrong.push(format!(
                    "{name} max limit to request ratio per {type} is {}, but provided ratio is {found:.6}",
                    shown(&bound),
                ));
            }
        }
    }
}

fn ranges(api: &Api, pod: &Value) -> Vec<Value> {
    let all = api
        .store()
        .all("limitranges", Some(tree::text(pod, "/metadata/namespace")));
    all.iter().map(|object| object.value()).collect()
}
