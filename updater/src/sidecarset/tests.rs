//! The whole way of a set: registered, injected, rolled out.

use std::collections::BTreeSet;

use chrono::DateTime;
use common::sidecarset::{
    Hashes, Labels, Record, Set,
    record::{HASH, HASH_WITHOUT_IMAGE, INJECTED_LIST},
};
use serde_json::{Value, json};

use super::{
    standing::{UPDATE_STATE, is_of},
    *,
};

fn set(image: &str, env: &str) -> SidecarSet {
    let mut set: SidecarSet = serde_json::from_value(json!({
        "metadata": {"name": "log", "generation": 3},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "containers": [{"name": "agent", "image": image, "env": [{"name": "E", "value": env}]}],
            "patchPodMetadata": [{"annotations": {"note": image}, "patchPolicy": "Overwrite"}],
            "updateStrategy": {"maxUnavailable": 2},
        },
    }))
    .unwrap();
    let Hashes { hash, without_image } = Hashes::of(&set.spec);
    let annotations = [(HASH, hash), (HASH_WITHOUT_IMAGE, without_image)];
    set.metadata.annotations = Some(annotations.map(|(key, value)| (key.to_owned(), value)).into());
    set
}

/// A pod that was injected by a set.
fn pod(name: &str, by: &SidecarSet, changes: &[(&str, Value)]) -> SidecarPod {
    let records = |key| json!({"log": Record::of(by, key)}).to_string();
    let mut pod = json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": "7", "labels": {"app": "web"}, "annotations": {
            HASH: records(HASH), HASH_WITHOUT_IMAGE: records(HASH_WITHOUT_IMAGE), INJECTED_LIST: "log,other", "note": "old",
        }},
        "spec": {"nodeName": "n", "containers": [{"name": "app", "image": "a"}, {"name": "agent", "image": "1"}]},
        "status": {
            "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "agent", "imageID": "sha-1", "state": {"running": {"startedAt": "2026-03-01T10:00:00Z"}}}],
        },
    });
    for (pointer, value) in changes {
        *pod.pointer_mut(pointer).unwrap() = value.clone();
    }
    serde_json::from_value(pod).unwrap()
}

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_772_359_800, 0).unwrap()
}

fn found(set: &SidecarSet, pods: &[SidecarPod], in_flight: &[&str]) -> Work {
    let in_flight: BTreeSet<String> = in_flight.iter().map(|&uid| uid.to_owned()).collect();
    let pods: Vec<&SidecarPod> = pods.iter().collect();
    work(
        set,
        &pods,
        &Revisions::kept_in("outrigger"),
        "outrigger",
        &in_flight,
        now(),
    )
}

#[test]
fn a_pod_is_of_a_set_that_has_injected_all_of_its_containers() {
    let set = set("1", "x");
    let namespace = Labels::new();
    let is_one =
        |changes: &[(&str, Value)]| is_of(&Set::new(set.clone()), &pod("p", &set, changes), &namespace);
    assert!(is_one(&[]));
    assert!(!is_one(&[("/metadata/labels", json!({}))]));
    assert!(!is_one(&[(
        "/metadata/annotations/kruise.io~1sidecarset-injected-list",
        json!("other")
    )]));
    assert!(!is_one(&[("/spec/containers/1/name", json!("stranger"))]));
    assert!(!is_one(&[("/status/phase", json!("Failed"))]));
}

#[test]
fn the_status_counts_pods_and_is_written_when_it_changes() {
    let (old, new) = (set("1", "x"), set("2", "x"));
    let pods = [
        pod("a", &old, &[]),
        pod("b", &new, &[]),
        pod("c", &new, &[("/status/conditions", json!([]))]),
    ];
    let mut new = new;
    let first = found(&new, &pods, &[]);
    let status = first.status.unwrap();
    assert_eq!(
        status,
        SidecarSetStatus {
            observed_generation: 3,
            matched_pods: 3,
            updated_pods: 2,
            ready_pods: 2,
            updated_ready_pods: 1,
            latest_revision: first.registration.name,
            collision_count: None,
        }
    );
    new.status = Some(status.clone());
    assert_eq!(found(&new, &pods, &[]).status, None);

    // What falls to nothing goes, or what was there would stay.
    let none = SidecarSetStatus {
        updated_ready_pods: 0,
        ..status
    };
    let patch = standing::patch(&none);
    assert_eq!(patch["status"].get("updatedReadyPods"), Some(&Value::Null));
    assert_eq!(patch["status"]["matchedPods"], 3);
}

#[test]
fn an_update_changes_images_and_what_is_noted_and_nothing_else() {
    let (old, new) = (set("1", "x"), set("2", "x"));
    let work = found(&new, &[pod("a", &old, &[])], &[]);
    let (uid, patch) = &work.updates[0];
    assert_eq!(uid, "a");
    let patch = patch.as_ref().unwrap();
    let revision = &work.registration.name;
    let hash = &new.metadata.annotations.as_ref().unwrap()[HASH];
    let record = format!(
        r#"{{"log":{{"updateTimestamp":"2026-03-01T10:10:00Z","hash":"{hash}","sidecarSetName":"log","sidecarList":["agent"],"controllerRevision":"{revision}"}}}}"#
    );
    let state = format!(
        r#"{{"log":{{"revision":"{revision}","updateTimestamp":"2026-03-01T10:10:00Z","lastContainerStatuses":{{"agent":{{"imageID":"sha-1"}}}}}}}}"#
    );
    assert_eq!(
        *patch,
        json!({
            "metadata": {"uid": "a", "resourceVersion": "7", "annotations": {HASH: record, UPDATE_STATE: state, "note": "2"}},
            "spec": {"containers": [{"name": "agent", "image": "2"}]},
        })
    );
}

#[test]
fn an_update_is_seen_through_before_the_next() {
    let (old, new) = (set("1", "x"), set("2", "x"));
    let state = json!({"log": {"updateTimestamp": "2026-03-01T10:10:00Z", "lastContainerStatuses": {"agent": {"imageID": "sha-1"}}}});
    let updated = |image: &str, started: &str| {
        let mut pod = pod(
            "u",
            &new,
            &[
                ("/status/containerStatuses/0/imageID", json!(image)),
                (
                    "/status/containerStatuses/0/state/running/startedAt",
                    json!(started),
                ),
            ],
        );
        let annotations = pod.metadata.annotations.as_mut().unwrap();
        annotations.insert(UPDATE_STATE.to_owned(), state.to_string());
        pod
    };
    let ready = |pod: SidecarPod| found(&new, &[pod], &[]).status.unwrap().ready_pods;
    assert_eq!(
        ready(updated("sha-1", "2026-03-01T10:00:00Z")),
        0,
        "the old one still runs"
    );
    assert_eq!(ready(updated("sha-2", "2026-03-01T10:00:00Z")), 1);
    assert_eq!(
        ready(updated("sha-1", "2026-03-01T10:10:05Z")),
        1,
        "the same image by another name"
    );

    let pods: Vec<SidecarPod> = ["a", "b", "c"].iter().map(|name| pod(name, &old, &[])).collect();
    assert_eq!(found(&new, &pods, &[]).updates.len(), 2);
    assert_eq!(
        found(&new, &pods, &["a"]).updates.len(),
        1,
        "nothing has been heard of a yet"
    );
    assert_eq!(found(&new, &pods, &["a", "b"]).updates.len(), 0);
}

#[test]
fn a_pod_that_needs_more_than_images_says_so() {
    let (old, new) = (set("1", "x"), set("2", "changed"));
    let work = found(&new, &[pod("a", &old, &[])], &[]);
    assert_eq!(work.updates.len(), 0);
    let condition = |status: &str, reason: &str, message: &str| {
        json!({"status": {"conditions": [{
            "type": "SidecarSetUpgradable", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-03-01T10:10:00Z",
        }]}})
    };
    let cannot = condition("False", "UpdateImmutableField", r#"{"log":false}"#);
    let tells = |work: Work| -> Vec<(bool, Value)> {
        let told = work.conditions.into_iter();
        told.map(|told| (told.is_upgradable, told.patch)).collect()
    };
    assert_eq!(tells(work), [(false, cannot.clone())]);
    let strategy = |strategy: Value| {
        let mut new = new.clone();
        new.spec.update_strategy = serde_json::from_value(strategy).unwrap();
        tells(found(&new, &[pod("a", &old, &[])], &[]))
    };
    for nobody in [
        json!({"type": "NotUpdate"}),
        json!({"paused": true}),
        json!({"selector": {"matchLabels": {"app": "other"}}}),
    ] {
        assert_eq!(strategy(nobody.clone()), [], "nobody is to be updated: {nobody}");
    }

    let told = |by: &SidecarSet, message: &str| {
        let mut told = cannot["status"]["conditions"].clone();
        told[0]["message"] = json!(message);
        pod("a", by, &[("/status/conditions", told)])
    };
    assert_eq!(
        tells(found(&new, &[told(&old, r#"{"log":false}"#)], &[])),
        [],
        "once is enough"
    );
    let can = condition("True", "AllSidecarsetUpgradable", r#"{"log":true}"#);
    assert_eq!(
        tells(found(&new, &[told(&new, r#"{"log":false}"#)], &[])),
        [(true, can)]
    );
    let other = condition("False", "UpdateImmutableField", r#"{"log":true,"other":false}"#);
    assert_eq!(
        tells(found(&new, &[told(&new, r#"{"log":false,"other":false}"#)], &[])),
        [(true, other)]
    );
    assert_eq!(
        tells(found(&new, &[pod("a", &new, &[])], &[])),
        [],
        "no trouble, no condition"
    );
}
