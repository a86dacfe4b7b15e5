//! A native sidecar for every pod of an input. With the gate off it must change no answer, though it has just been killed
//! for its memory and uses far more than it asks for: whoever looks at it will say something else.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// The name of the container that is added.
pub const NAME: &str = "outrigger-test-sidecar";

/// Whether some pod of an input has a native sidecar of its own.
#[must_use]
pub fn is_in(input: &Value) -> bool {
    match input {
        Value::Object(map) => map.iter().any(|(key, value)| {
            let is_native = |container: &Value| container["restartPolicy"] == "Always";
            let mut listed = value.as_array().into_iter().flatten();
            (key == "initContainers" && listed.any(is_native)) || is_in(value)
        }),
        Value::Array(list) => list.iter().any(is_in),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// For inputs without pods.
pub fn nowhere(_input: &mut Value) {}

/// For inputs with `pod`, `pods`, or `old` and `new`; and `controllers` whose templates follow.
pub fn in_pods(input: &mut Value) {
    for (key, restarts) in [("pod", 1), ("old", 0), ("new", 1)] {
        if let Some(pod) = input.get_mut(key) {
            running_pod(pod, restarts);
        }
    }
    for pod in list(input, "pods") {
        running_pod(pod, 1);
    }
    templates(input);
}

/// For admission reviews: the pod that is created, and the controllers' templates.
pub fn in_admission(input: &mut Value) {
    if let Some(spec) = input.pointer_mut("/review/request/object/spec") {
        pod_spec(spec);
    }
    templates(input);
}

/// For the recommender's own form of pods, with a sample of each kind for every pod that is there at the end. They come
/// last, so that the indexes of the case's own events stay.
pub fn in_recommendation(input: &mut Value) {
    for pod in list(input, "pods") {
        if let Some(pod) = pod.as_object_mut() {
            let sidecar = json!({
                "name": NAME,
                "restartPolicy": "Always",
                "requestCPUMilli": 30,
                "requestMemoryBytes": 50_331_648,
            });
            prepend(pod, "initContainers", sidecar);
        }
    }
    let live = pods_at_the_end(input);
    let times = list(input, "events")
        .iter()
        .filter_map(|event| event.get("to").or(event.get("t"))?.as_i64());
    let time = times
        .max()
        .or(input.get("now").and_then(Value::as_i64))
        .unwrap_or(0);
    if let Some(events) = input.get_mut("events").and_then(Value::as_array_mut) {
        for pod in live {
            for (kind, value) in [("cpu", 7_000_i64), ("mem", 9_000_000_000), ("oom", 9_000_000_000)] {
                events.push(json!({"k": kind, "p": pod, "c": NAME, "t": time, "v": value}));
            }
        }
    }
}

/// For SidecarSet formulas, which count native sidecars among their targets with any gate: this one is declared in a
/// matched set, which takes it out.
pub fn in_policy(input: &mut Value) {
    if let Some(input) = input.as_object_mut() {
        prepend(input, "initContainers", container());
        prepend(input, "sidecarInitNames", json!(NAME));
    }
}

fn pods_at_the_end(input: &Value) -> BTreeSet<u64> {
    let array = |key: &str| input.get(key).and_then(Value::as_array).into_iter().flatten();
    let mut live: BTreeSet<u64> = (0..)
        .zip(array("pods"))
        .filter(|(_, pod)| pod.get("late") != Some(&json!(true)))
        .map(|(index, _)| index)
        .collect();
    for event in array("events") {
        let pod = event.get("p").and_then(Value::as_u64).unwrap_or(0);
        match event.get("k").and_then(Value::as_str) {
            Some("addpod") => _ = live.insert(pod),
            Some("delpod") => _ = live.remove(&pod),
            _ => {}
        }
    }
    live
}

fn templates(input: &mut Value) {
    for controller in list(input, "controllers") {
        for template in ["/spec/template/spec", "/spec/jobTemplate/spec/template/spec"] {
            if let Some(spec) = controller.pointer_mut(template) {
                pod_spec(spec);
            }
        }
    }
}

/// A pod that has run for a while.
fn running_pod(pod: &mut Value, restarts: u32) {
    let added = pod.get_mut("spec").is_some_and(pod_spec);
    if added
        && let Some(pod) = pod.as_object_mut()
        && let Some(status) = present(pod, "status", json!({})).as_object_mut()
    {
        prepend(status, "initContainerStatuses", container_status(restarts));
    }
}

/// Adds the container in front, where injectors put it; says whether there was a pod to add it to.
fn pod_spec(spec: &mut Value) -> bool {
    match spec.as_object_mut() {
        Some(spec) => prepend(spec, "initContainers", container()),
        None => false,
    }
}

fn container() -> Value {
    json!({
        "name": NAME,
        "image": "registry.example/proxy:1.4",
        "restartPolicy": "Always",
        "resources": {
            "requests": {"cpu": "30m", "memory": "48Mi"},
            "limits": {"cpu": "200m", "memory": "96Mi"},
        },
    })
}

fn container_status(restarts: u32) -> Value {
    let killed = json!({"terminated": {
        "exitCode": 137,
        "reason": "OOMKilled",
        "startedAt": "2026-03-10T11:55:00Z",
        "finishedAt": "2026-03-10T11:56:00Z",
    }});
    json!({
        "name": NAME,
        "image": "registry.example/proxy:1.4",
        "imageID": "",
        "ready": true,
        "started": true,
        "restartCount": restarts,
        "state": {"running": {"startedAt": "2026-03-10T11:56:01Z"}},
        "lastState": if restarts > 0 { killed } else { json!({}) },
        "allocatedResources": {"cpu": "30m", "memory": "48Mi"},
        "resources": container()["resources"],
    })
}

fn list<'a>(value: &'a mut Value, key: &str) -> &'a mut [Value] {
    value
        .get_mut(key)
        .and_then(Value::as_array_mut)
        .map_or(&mut [], Vec::as_mut_slice)
}

fn prepend(map: &mut Map<String, Value>, key: &str, value: Value) -> bool {
    match present(map, key, json!([])).as_array_mut() {
        Some(list) => {
            list.insert(0, value);
            true
        }
        None => false,
    }
}

/// What is at a key, with `empty` put there if there was nothing.
fn present<'a>(map: &'a mut Map<String, Value>, key: &str, empty: Value) -> &'a mut Value {
    let place = map.entry(key).or_insert(Value::Null);
    if place.is_null() {
        *place = empty;
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_sidecar(transform: fn(&mut Value), mut input: Value) -> Value {
        transform(&mut input);
        input
    }

    fn pod() -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}]}, "status": {"phase": "Running"}})
    }

    fn pod_with_sidecar(restarts: u32) -> Value {
        json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "a"}], "initContainers": [container()]},
            "status": {"phase": "Running", "initContainerStatuses": [container_status(restarts)]},
        })
    }

    #[test]
    fn the_sidecar_is_native_has_resources_and_was_killed() {
        assert_eq!(container()["restartPolicy"], "Always");
        assert_eq!(container()["resources"]["requests"]["memory"], "48Mi");
        assert_eq!(
            container_status(1)["lastState"]["terminated"]["reason"],
            "OOMKilled"
        );
        assert_eq!(container_status(1)["resources"], container()["resources"]);
        assert_eq!(container_status(0)["lastState"], json!({}));
    }

    #[test]
    fn every_pod_gets_it_in_spec_and_status() {
        assert_eq!(
            with_sidecar(in_pods, json!({"pod": pod()})),
            json!({"pod": pod_with_sidecar(1)})
        );
        assert_eq!(
            with_sidecar(in_pods, json!({"pods": [pod(), pod()], "now": "t"})),
            json!({"pods": [pod_with_sidecar(1), pod_with_sidecar(1)], "now": "t"})
        );
        assert_eq!(
            with_sidecar(in_pods, json!({"old": pod(), "new": pod()})),
            json!({"old": pod_with_sidecar(0), "new": pod_with_sidecar(1)})
        );
        let event = json!({"event": {"reason": "Evicted"}});
        assert_eq!(with_sidecar(in_pods, event.clone()), event);
    }

    #[test]
    fn it_stands_before_other_init_containers() {
        let mut before = pod();
        before["spec"]["initContainers"] = json!([{"name": "setup"}]);
        before["status"] = json!(null);
        let mut after = pod_with_sidecar(1);
        after["spec"]["initContainers"] = json!([container(), {"name": "setup"}]);
        after["status"] = json!({"initContainerStatuses": [container_status(1)]});
        assert_eq!(
            with_sidecar(in_pods, json!({ "pod": before })),
            json!({ "pod": after })
        );
    }

    #[test]
    fn a_pod_under_review_gets_no_status_and_templates_follow() {
        let template = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
        let cron_job = |spec: Value| json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}});
        let input = |spec: &Value| {
            json!({
                "review": {"request": {"object": {"spec": spec}}},
                "controllers": [template(spec.clone()), cron_job(spec.clone()), {"spec": {}}],
            })
        };
        let after = json!({"containers": [], "initContainers": [container()]});
        assert_eq!(
            with_sidecar(in_admission, input(&json!({"containers": []}))),
            input(&after)
        );
    }

    #[test]
    fn the_recommender_sees_samples_of_it_for_pods_that_are_there() {
        let input = json!({
            "pods": [{"name": "p0"}, {"name": "p1", "late": true}, {"name": "p2", "late": true}],
            "events": [
                {"k": "cpu", "p": 0, "c": "a", "t": 10, "v": 1},
                {"k": "addpod", "p": 1, "t": 11},
                {"k": "gen", "p": 1, "c": "a", "t": 12, "to": 500, "step": 60},
                {"k": "delpod", "p": 0, "t": 13},
            ],
            "now": 400,
        });
        let after = with_sidecar(in_recommendation, input.clone());
        for pod in after["pods"].as_array().unwrap() {
            assert_eq!(pod["initContainers"][0]["name"], NAME);
            assert_eq!(pod["initContainers"][0]["restartPolicy"], "Always");
        }
        let (own, added) = after["events"].as_array().unwrap().split_at(4);
        assert_eq!(json!(own), input["events"]);
        assert_eq!(
            json!(added),
            json!([
                {"k": "cpu", "p": 1, "c": NAME, "t": 500, "v": 7_000},
                {"k": "mem", "p": 1, "c": NAME, "t": 500, "v": 9_000_000_000_i64},
                {"k": "oom", "p": 1, "c": NAME, "t": 500, "v": 9_000_000_000_i64},
            ])
        );
    }

    #[test]
    fn a_formula_does_not_see_it() {
        assert_eq!(
            with_sidecar(in_policy, json!({"containers": [], "sidecarInitNames": ["x"]})),
            json!({"containers": [], "initContainers": [container()], "sidecarInitNames": [NAME, "x"]})
        );
    }

    #[test]
    fn what_is_no_pod_stays_as_it_is() {
        let odd = [
            json!(null),
            json!(5),
            json!({"pod": "text", "pods": [1, null, "p"], "controllers": {"spec": 1}}),
            json!({"pod": {"spec": []}, "new": {"metadata": {}}}),
            json!({"pods": {"name": "p"}, "events": 3, "review": {"request": {"object": [1]}}}),
            json!({"old": {"spec": {"initContainers": "none"}}}),
        ];
        for input in odd {
            for transform in [nowhere, in_pods, in_admission, in_recommendation] {
                assert_eq!(with_sidecar(transform, input.clone()), input);
            }
        }
    }
}
