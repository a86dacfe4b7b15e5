//! In which order pods are updated (`spec/sidecarset.md` 5, step 5): those first that nobody would miss, then by priority,
//! then scattered.

use std::{
    cmp::{Ordering, Reverse},
    collections::BTreeSet,
};

use common::{
    api::sidecarset::{PriorityStrategy, ScatterTerm, UpdateStrategy},
    selector::Selector,
};

use super::{pod::SidecarPod, standing::Standing};

/// Sorts the pods that are to be updated.
pub(super) fn sort(pods: &mut Vec<Standing<'_>>, strategy: &UpdateStrategy) {
    pods.sort_by_cached_key(|standing| {
        let pod = standing.pod;
        (
            pod.spec.node_name.as_deref().is_some_and(|node| !node.is_empty()),
            pod.status.phase != "Pending",
            pod.is_ready(),
            Reverse(pod.created()),
            pod.metadata.namespace.clone(),
            pod.metadata.name.clone(),
        )
    });
    if let Some(priority) = &strategy.priority_strategy {
        let weights = weights(priority);
        pods.sort_by(|a, b| compare(priority, &weights, a.pod, b.pod));
    }
    for (key, value) in terms(&strategy.scatter_strategy, pods) {
        scatter(pods, &key, &value);
    }
}

/// What cannot be read selects nothing.
fn weights(priority: &PriorityStrategy) -> Vec<(i64, Selector)> {
    let terms = priority.weight_priority.iter();
    terms
        .map(|term| {
            let selector = Selector::try_from(&term.match_selector).unwrap_or(Selector::Nothing);
            (i64::from(term.weight), selector)
        })
        .collect()
}

/// More weight goes first; without weights, the higher number in a label does.
fn compare(
    priority: &PriorityStrategy,
    weights: &[(i64, Selector)],
    a: &SidecarPod,
    b: &SidecarPod,
) -> Ordering {
    let weight = |pod: &SidecarPod| -> i64 {
        let matching = weights
            .iter()
            .filter(|(_, selector)| selector.matches(|key| pod.label(key)));
        matching.map(|(weight, _)| weight).sum()
    };
    let mut order = weight(b).cmp(&weight(a));
    for term in &priority.order_priority {
        let number = |pod: &SidecarPod| pod.label(&term.ordered_key).map_or(0, trailing_number);
        order = order.then_with(|| number(b).cmp(&number(a)));
    }
    order
}

/// The number at the end of a label's value: `rank-12` is 12.
fn trailing_number(value: &str) -> u64 {
    let digits = value.len() - value.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    value
        .get(value.len() - digits..)
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(0)
}

/// The pairs to scatter by, `*` for every value that the pods have.
fn terms(strategy: &[ScatterTerm], pods: &[Standing<'_>]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for term in strategy {
        if term.value == "*" {
            let values: BTreeSet<&str> = pods
                .iter()
                .filter_map(|standing| standing.pod.label(&term.key))
                .collect();
            found.extend(
                values
                    .into_iter()
                    .map(|value| (term.key.clone(), value.to_owned())),
            );
        } else {
            found.push((term.key.clone(), term.value.clone()));
        }
    }
    found
}

/// Spreads the pods with a label evenly over the others, without changing the order among either.
fn scatter(pods: &mut Vec<Standing<'_>>, key: &str, value: &str) {
    let (matching, others): (Vec<_>, Vec<_>) = pods
        .iter()
        .partition(|standing| standing.pod.label(key) == Some(value));
    if matching.is_empty() || others.is_empty() {
        return;
    }
    let (total, many) = (matching.len() + others.len(), matching.len());
    let (mut matching, mut others) = (matching.into_iter(), others.into_iter());
    pods.clear();
    let mut placed = 0;
    for place in 0..total {
        // After each place as many matching pods are there as the part of the way demands, rounded up.
        let due = (place + 1).saturating_mul(many).div_ceil(total);
        let next = if placed < due { matching.next() } else { None };
        match next {
            Some(pod) => {
                placed += 1;
                pods.push(pod);
            }
            None => pods.extend(others.next().or_else(|| matching.next())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::borrow::Borrow;

    fn pod(name: &str, age: u32, changes: impl Borrow<Value>) -> SidecarPod {
        let mut pod = json!({
            "metadata": {"name": name, "creationTimestamp": format!("2026-03-01T10:{:02}:00Z", 59 - age), "labels": {}},
            "spec": {"nodeName": "n"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        json_merge(&mut pod, changes.borrow());
        serde_json::from_value(pod).unwrap()
    }

    fn json_merge(target: &mut Value, patch: &Value) {
        match patch {
            Value::Object(patch) => patch
                .iter()
                .for_each(|(key, value)| json_merge(&mut target[key], value)),
            other => *target = other.clone(),
        }
    }

    fn sorted(pods: &[SidecarPod], strategy: Value) -> String {
        let standing = |pod| Standing {
            pod,
            is_updated: false,
            is_ready: true,
            is_upgradable: true,
        };
        let mut pods: Vec<_> = pods.iter().map(standing).collect();
        sort(&mut pods, &serde_json::from_value(strategy).unwrap());
        let names = pods
            .iter()
            .map(|standing| standing.pod.metadata.name.as_deref().unwrap());
        names.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn those_that_nobody_would_miss_come_first() {
        let pods = [
            pod("old", 9, json!({})),
            pod("young", 1, json!({})),
            pod("not-ready", 9, json!({"status": {"conditions": []}})),
            pod(
                "pending",
                9,
                json!({"status": {"phase": "Pending", "conditions": []}}),
            ),
            pod(
                "unassigned",
                9,
                json!({"spec": {"nodeName": ""}, "status": {"phase": "Pending"}}),
            ),
        ];
        assert_eq!(sorted(&pods, json!({})), "unassigned pending not-ready young old");
    }

    #[test]
    fn priority_and_scatter_come_after() {
        let label = |key: &str, value: &str| json!({"metadata": {"labels": {key: value}}});
        let pods = [
            pod("a", 1, label("rank", "r-1")),
            pod("b", 2, label("rank", "r-10")),
            pod("c", 3, label("rank", "r-9")),
            pod("d", 4, label("tier", "front")),
        ];
        let by_rank = json!({"priorityStrategy": {"orderPriority": [{"orderedKey": "rank"}]}});
        assert_eq!(sorted(&pods, by_rank), "b c a d");
        let front = json!({"weight": 20, "matchSelector": {"matchLabels": {"tier": "front"}}});
        let by_weight = json!({"priorityStrategy": {"weightPriority": [front]}});
        assert_eq!(sorted(&pods, by_weight), "d a b c");

        let zone = |name: &str, age, zone: &str| pod(name, age, label("zone", zone));
        let pods = [
            zone("x1", 1, "x"),
            zone("x2", 2, "x"),
            zone("y1", 3, "y"),
            zone("y2", 4, "y"),
        ];
        let by_zone = |value: &str| json!({"scatterStrategy": [{"key": "zone", "value": value}]});
        assert_eq!(sorted(&pods, by_zone("x")), "x1 y1 x2 y2");
        assert_eq!(sorted(&pods, by_zone("*")), "y1 x1 y2 x2");
        assert_eq!(sorted(&pods, by_zone("z")), "x1 x2 y1 y2");
    }
}
