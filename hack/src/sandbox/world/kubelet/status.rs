//! What the kubelet writes into a pod's status: phase, conditions and the state of every container.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::{
    containers::{Container, Containers, Ended, Role, State, Surroundings},
    resize::Resize,
};
use crate::sandbox::{
    tree::{object, text},
    world::context::{conditions, set_condition, stamp, truth},
};

/// The new status of `pod`.
pub(super) fn render(
    pod: &Value,
    containers: &Containers,
    resize: &Resize,
    around: &Surroundings<'_>,
    ip: &str,
    created: DateTime<Utc>,
) -> Value {
    let phase = containers
        .phase(around.restart_policy)
        .unwrap_or(if containers.initialized {
            "Running"
        } else {
            "Pending"
        });
    let generation = pod["metadata"]["generation"].clone();
    let mut status = pod["status"].clone();
    let map = object(&mut status, &[]);
    let mut set = |name: &str, value: Value| map.insert(name.to_owned(), value);
    set("phase", phase.into());
    set("observedGeneration", generation.clone());
    set(
        "conditions",
        all_conditions(pod, phase, containers, resize, around).into(),
    );
    set("hostIP", "192.168.0.1".into());
    set("hostIPs", json!([{"ip": "192.168.0.1"}]));
    set("podIP", ip.into());
    set("podIPs", json!([{"ip": ip}]));
    set("startTime", stamp(created));
    let list = |init: bool| -> Vec<Value> {
        containers
            .all
            .iter()
            .filter(|one| (one.role != Role::App) == init)
            .map(|one| container(one, around, text(pod, "/metadata/uid")))
            .collect()
    };
    set("containerStatuses", list(false).into());
    if !list(true).is_empty() {
        set("initContainerStatuses", list(true).into());
    }
    status
}

fn all_conditions(
    pod: &Value,
    phase: &str,
    containers: &Containers,
    resize: &Resize,
    around: &Surroundings<'_>,
) -> Vec<Value> {
    let generation = &pod["metadata"]["generation"];
    let mut list = conditions(pod);
    let mut set = |name: &str, yes: bool, why: Option<(&str, String)>| {
        let (reason, message) = why.unzip();
        let condition = json!({
            "type": name, "status": truth(yes), "reason": reason, "message": message,
            "observedGeneration": generation,
        });
        set_condition(&mut list, condition, around.now);
    };
    let names = |wrong: &dyn Fn(&&Container) -> bool| {
        let names: Vec<_> = containers
            .all
            .iter()
            .filter(wrong)
            .map(|one| one.name.as_str())
            .collect();
        names.join(" ")
    };
    let done = matches!(phase, "Succeeded" | "Failed");
    set("PodReadyToStartContainers", !done, None);
    let incomplete = names(&|one| one.role != Role::App && !one.is_ready(around));
    let initialized = containers.initialized || phase == "Succeeded";
    set(
        "Initialized",
        initialized,
        (!initialized).then(|| {
            (
                "ContainersNotInitialized",
                format!("containers with incomplete status: [{incomplete}]"),
            )
        }),
    );
    let unready = names(&|one| one.role != Role::Init && !one.is_ready(around));
    let ready = !done && initialized && unready.is_empty();
    let why = match phase {
        _ if ready => None,
        "Succeeded" => Some(("PodCompleted", String::new())),
        "Failed" => Some(("PodFailed", String::new())),
        _ => Some((
            "ContainersNotReady",
            format!("containers with unready status: [{unready}]"),
        )),
    };
    set("ContainersReady", ready, why.clone());
    set("Ready", ready, why);
    set("PodScheduled", true, None);
    list.retain(|one| one["type"] != "PodResizePending" && one["type"] != "PodResizeInProgress");
    let before = conditions(pod);
    let mut add = |name: &str, reason: Option<&str>, message: Option<&str>, generation: Value| {
        let condition = json!({
            "type": name, "status": "True", "reason": reason, "message": message, "observedGeneration": generation,
        });
        // Set on top of what was there, so that its transition keeps its time.
        let mut one: Vec<_> = before.iter().filter(|one| one["type"] == name).cloned().collect();
        set_condition(&mut one, condition, around.now);
        list.append(&mut one);
    };
    if let Some((reason, message)) = &resize.pending {
        add(
            "PodResizePending",
            Some(reason),
            Some(message),
            generation.clone(),
        );
    }
    if let Some(error) = &resize.progress {
        let reason = error.as_ref().map(|_| "Error");
        add(
            "PodResizeInProgress",
            reason,
            error.as_deref(),
            resize.generation.into(),
        );
    }
    list
}

fn container(one: &Container, around: &Surroundings<'_>, uid: &str) -> Value {
    let id = |restarts: i64| format!("sandbox://{uid}/{}/{restarts}", one.name);
    let ended = |ended: &Ended, restarts: i64| {
        json!({"terminated": {
            "reason": ended.reason, "exitCode": ended.code, "startedAt": stamp(ended.since),
            "finishedAt": stamp(ended.at), "containerID": id(restarts),
        }})
    };
    let state = match &one.state {
        State::Waiting { reason, message } if message.is_empty() => json!({"waiting": {"reason": reason}}),
        State::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
        State::Running { since } => json!({"running": {"startedAt": stamp(*since)}}),
        State::Ended(end) => ended(end, one.restarts),
    };
    // While it waits, the last run is still the one that counts as this restart.
    let last_run = match one.state {
        State::Waiting { .. } => one.restarts,
        _ => one.restarts - 1,
    };
    let running = matches!(one.state, State::Running { .. });
    let mut status = json!({
        "name": one.name, "image": one.image, "imageID": image_id(one), "restartCount": one.restarts, "state": state,
        "lastState": one.last.as_ref().map_or_else(|| json!({}), |last| ended(last, last_run)),
        "ready": one.is_ready(around), "started": running && (one.role != Role::Sidecar || one.is_ready(around)),
        "resources": one.actual,
    });
    if !matches!(one.state, State::Waiting { .. }) || one.last.is_some() {
        status["containerID"] = id(one.restarts).into();
    }
    if let Some(requests) = one.allocated.get("requests") {
        status["allocatedResources"] = requests.clone();
    }
    status
}

/// Made up from the image's name, so that another image has another one; a container that never ran has none.
fn image_id(one: &Container) -> String {
    match (&one.state, &one.last) {
        (State::Waiting { .. }, None) => String::new(),
        _ => format!("sandbox/{}", one.image),
    }
}
