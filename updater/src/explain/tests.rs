use super::*;
use crate::{
    feed::{Feed, VpaKey},
    testing::{noon, recommended, requests},
};
use common::target::ScaleLookup;
use serde_json::{Value, json};

/// A StatefulSet-like custom controller with three pods, of which one has what it should have.
fn work() -> Work {
    let mut feed = Feed::default();
    let mut vpa: Value = json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "targetRef": {"apiVersion": "v1", "kind": "CloneSet", "name": "web"},
            "updatePolicy": {"updateMode": "Recreate"},
            "resourcePolicy": {"containerPolicies": [{"containerName": "app", "maxAllowed": {"cpu": "150m"}}]},
        },
    });
    vpa["status"] =
        json!({"recommendation": {"containerRecommendations": [recommended("app", "200m", "200Mi")]}});
    feed.apply_vpa(&serde_json::from_value(vpa).unwrap());
    for (name, resources) in [
        ("a", requests("100m", "100Mi")),
        ("b", requests("100m", "100Mi")),
        ("c", requests("150m", "200Mi")),
    ] {
        let owner =
            json!([{"apiVersion": "v1", "kind": "CloneSet", "name": "web", "uid": "u", "controller": true}]);
        let pod = json!({
            "metadata": {
                "name": name, "namespace": "shop", "uid": name, "labels": {"app": "web"}, "ownerReferences": owner,
                "annotations": {"vpaObservedContainers": "app"},
            },
            "spec": {"nodeName": "n", "containers": [{"name": "app", "resources": resources}]},
            "status": {"phase": "Running", "startTime": "2026-03-08T12:00:00Z"},
        });
        feed.apply_pod(serde_json::from_value(pod).unwrap());
    }
    let scale = common::target::Scale {
        owner: None,
        selector: "app=web".to_owned(),
        replicas: Some(3),
    };
    let found = |_: &_| ScaleLookup::Found(&scale);
    assert_eq!(feed.settle(found), []);
    let key = VpaKey {
        namespace: "shop".into(),
        name: "web".into(),
    };
    feed.take(&key, found).unwrap()
}

#[test]
fn each_pod_has_its_decision_its_reason_and_its_numbers() {
    let settings = Settings::default();
    let explained = turn(
        &work(),
        &settings,
        Some(Evictions::Allowed),
        Some(true),
        &Formulary::default(),
        noon(),
    );
    let shown = explained.to_string();
    let expected = "\
VPA shop/web: update mode Recreate, 3 live pods
  the admission controller's lease is fresh
  evictions: as many as the disruption budget allows
  group CloneSet web: wants 3, 3 run, 0 are pending, 1 may be disrupted at once

pod a (Running since 2026-03-08 12:00:00) would be evicted
  its requests would change by 150.0 %, some are too low, some are out of bounds
  app
    cpu: request 100m -> 150m, limit -, bounds 150m to 150m
    memory: request 100Mi -> 200Mi, limit -, bounds 200Mi to 200Mi
";
    assert!(shown.starts_with(expected), "{shown}");
    assert!(shown.contains("    cpu capped to maxAllowed\n"), "{shown}");
    assert!(
        shown.contains("pod b (Running since 2026-03-08 12:00:00) is left as it is: enough pods of its group are disrupted for now (Budget)"),
        "{shown}"
    );
    assert!(
        shown.contains(
            "pod c (Running since 2026-03-08 12:00:00) is left as it is: it has the resources that it should have (NoChange)"
        ),
        "{shown}"
    );
    let json = serde_json::to_value(&explained).unwrap();
    assert_eq!(json["pods"][0]["decision"], "evict");
    assert_eq!(json["pods"][1]["reason"], "Budget");
    assert_eq!(
        json["pods"][0]["containers"][0]["plannedRequests"],
        json!({"cpu": "150m", "memory": "200Mi"})
    );
    assert_eq!(json["evictions"], "budget");
}

#[test]
fn what_stops_evictions_is_said() {
    let settings = Settings::default();
    for (evictions, line) in [
        (
            Some(Evictions::Probe),
            "evictions: one, to see whether admission sizes the pod that follows",
        ),
        (
            Some(Evictions::Stopped(Skip::BreakerOpen)),
            "evictions: none (BreakerOpen)",
        ),
        (None, "evictions: none, and no resizes either (Q26)"),
    ] {
        let explained = turn(
            &work(),
            &settings,
            evictions,
            Some(false),
            &Formulary::default(),
            noon(),
        );
        let shown = explained.to_string();
        assert!(
            shown.contains(line) && shown.contains("lease is NOT fresh"),
            "{shown}"
        );
    }
}
