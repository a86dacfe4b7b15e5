use super::*;
use chrono::TimeDelta;
use common::{
    api::k8s::{DaemonSet, Deployment, ReplicaSet},
    gates::Gates,
    kube::watch::SlimSelecting,
    target::{Scale, ScaleLookup},
};
use serde_json::{Value, json};

use crate::{
    group::{GroupKey, Replicas as _},
    reason::Skip,
    settings::Settings,
    testing::{noon, recommended, requests},
};

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn vpa(name: &str, kind: &str, target: &str, mode: &str) -> VerticalPodAutoscaler {
    read(json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}")},
        "spec": {
            "targetRef": {"apiVersion": "v1", "kind": kind, "name": target},
            "updatePolicy": {"updateMode": mode},
        },
        "status": {"recommendation": {"containerRecommendations": [recommended("app", "200m", "200Mi")]}},
    }))
}

fn owned(kind: &str, name: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": kind, "name": name, "uid": "u", "controller": true}])
}

fn pod_json(name: &str, kind: &str, owner: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "labels": {"app": "web"},
            "creationTimestamp": "2026-03-10T11:55:00Z", "ownerReferences": owned(kind, owner),
        },
        "spec": {"nodeName": "n", "containers": [{"name": "app", "resources": requests("100m", "100Mi")}]},
        "status": {"phase": "Running", "startTime": "2026-03-10T11:55:00Z"},
    })
}

fn pod(name: &str) -> Pod {
    read(pod_json(name, "ReplicaSet", "web-1"))
}

fn replica_set(name: &str, deployment: &str, replicas: i32) -> SlimSelecting<ReplicaSet> {
    read(json!({
        "metadata": {"name": name, "namespace": "shop", "ownerReferences": owned("Deployment", deployment)},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "replicas": replicas},
    }))
}

fn deployment(name: &str) -> SlimSelecting<Deployment> {
    read(json!({
        "metadata": {"name": name, "namespace": "shop"}, "spec": {"selector": {"matchLabels": {"app": "web"}}},
    }))
}

fn no_scale(_: &ControllerKey) -> ScaleLookup<'static> {
    ScaleLookup::NotFound("no")
}

fn key(name: &str) -> VpaKey {
    VpaKey {
        namespace: "shop".into(),
        name: name.into(),
    }
}

/// A Deployment `web` with its ReplicaSet, two pods and a VPA.
fn web() -> Feed {
    let mut feed = Feed::default();
    feed.controller(Change::Applied(deployment("web")));
    feed.controller(Change::Applied(replica_set("web-1", "web", 2)));
    feed.apply_pod(pod("a"));
    feed.apply_pod(pod("b"));
    feed.apply_vpa(&vpa("web", "Deployment", "web", "Recreate"));
    assert_eq!(feed.settle(no_scale), Vec::new());
    feed
}

fn names(feed: &mut Feed, vpa: &str) -> Vec<String> {
    let work = feed.take(&key(vpa), no_scale);
    let pods = work.into_iter().flat_map(|work| work.pods);
    pods.map(|pod| pod.metadata.name.unwrap()).collect()
}

/// A turn that found nothing to do for ever.
fn quiet(feed: &mut Feed) {
    for key in feed.due(noon()) {
        feed.take(&key, no_scale);
        feed.note(&key, Tally::default(), DateTime::<Utc>::MAX_UTC);
    }
    assert_eq!(feed.due(noon()), []);
}

#[test]
fn pods_find_their_vpa_in_whatever_order_things_come() {
    let mut feed = web();
    assert_eq!(names(&mut feed, "web"), ["a", "b"]);

    let mut late = Feed::default();
    late.apply_vpa(&vpa("web", "Deployment", "web", "Recreate"));
    late.apply_pod(pod("a"));
    late.settle(no_scale);
    assert_eq!(names(&mut late, "web"), Vec::<String>::new());
    late.controller(Change::Applied(replica_set("web-1", "web", 2)));
    late.controller(Change::Applied(deployment("web")));
    late.apply_pod(pod("b"));
    late.settle(no_scale);
    assert_eq!(names(&mut late, "web"), ["a", "b"]);
}

#[test]
fn formulas_that_change_concern_those_who_were_sized_by_some() {
    let mut feed = web();
    feed.apply_vpa(&vpa("other", "ReplicaSet", "lonely", "Recreate"));
    feed.settle(no_scale);
    quiet(&mut feed);
    feed.formulas_changed();
    assert_eq!((feed.due(noon()), feed.sized()), (vec![], vec![]));

    let mut sized = pod_json("b", "ReplicaSet", "web-1");
    sized["metadata"]["annotations"] = json!({"outrigger.dev/sidecarset-sizing": "{}", "other": "x"});
    feed.apply_pod(read(sized));
    quiet(&mut feed);
    feed.formulas_changed();
    assert_eq!(feed.due(noon()), [key("web")]);
    let counted: Pod = read(json!({"metadata": {
        "uid": "uid-b", "labels": {"app": "web"}, "creationTimestamp": "2026-03-10T11:55:00Z",
        "annotations": {"outrigger.dev/sidecarset-sizing": "{}"},
    }}));
    assert_eq!(feed.sized(), [counted]);
}

#[test]
fn who_does_not_count() {
    let mut feed = web();
    let mut unbound = pod_json("c", "ReplicaSet", "web-1");
    unbound["spec"]["nodeName"] = json!("");
    let mut ending = pod_json("d", "ReplicaSet", "web-1");
    ending["metadata"]["deletionTimestamp"] = json!("2026-03-10T12:00:00Z");
    let mut ended = pod_json("e", "ReplicaSet", "web-1");
    ended["status"]["phase"] = json!("Succeeded");
    let mut alone = pod_json("f", "ReplicaSet", "web-1");
    alone["metadata"]["ownerReferences"] = json!([]);
    let other = pod_json("g", "ReplicaSet", "other");
    for pod in [unbound, ending, ended, alone, other] {
        feed.apply_pod(read(pod));
    }
    feed.settle(no_scale);
    assert_eq!(names(&mut feed, "web"), ["a", "b"]);
    feed.apply_vpa(&vpa("web", "Deployment", "web", "Off"));
    assert!(!feed.acts(&key("web")));
}

#[test]
fn a_resized_pod_is_taken_in_unless_the_watch_was_faster() {
    let at = |version: &str, uid: &str, cpu: &str| {
        let mut pod = pod_json("a", "ReplicaSet", "web-1");
        pod["metadata"]["resourceVersion"] = json!(version);
        pod["metadata"]["uid"] = json!(uid);
        pod["spec"]["containers"][0]["resources"] = requests(cpu, "100Mi");
        read::<Pod>(pod)
    };
    let cpu = |feed: &mut Feed| {
        let pods = feed.take(&key("web"), no_scale).unwrap().pods;
        let pod = pods
            .iter()
            .find(|pod| pod.metadata.name.as_deref() == Some("a"))?;
        let app = pod.managed_by_name("app", &Gates::default())?;
        Some(app.spec_resources().request("cpu")?.to_string())
    };
    for (seen, answer, expected) in [
        (
            at("99", "uid-a", "100m"),
            at("100", "uid-a", "200m"),
            Some("200m"),
        ),
        (
            at("101", "uid-a", "300m"),
            at("100", "uid-a", "200m"),
            Some("300m"),
        ),
        (
            at("101", "uid-other", "100m"),
            at("100", "uid-a", "200m"),
            Some("100m"),
        ),
    ] {
        let mut feed = web();
        feed.apply_pod(seen);
        feed.settle(no_scale);
        feed.resized(answer);
        assert_eq!(cpu(&mut feed).as_deref(), expected);
    }
    let mut feed = web();
    feed.pod(Change::Deleted(pod("a")));
    feed.resized(at("100", "uid-a", "200m"));
    feed.settle(no_scale);
    assert_eq!(names(&mut feed, "web"), ["b"]);
}

/// What happens, and whether a turn could give something new for it.
type Case = (&'static str, fn(&mut Feed), bool);

#[test]
fn only_what_has_changed_has_a_turn() {
    let mut feed = web();
    let changes: [Case; 10] = [
        ("the same pod", |feed| feed.apply_pod(pod("a")), false),
        (
            "a pod's heartbeat",
            |feed| {
                let mut same = pod_json("a", "ReplicaSet", "web-1");
                same["metadata"]["resourceVersion"] = json!("9");
                same["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
                feed.apply_pod(read(same));
            },
            false,
        ),
        (
            "a resized pod",
            |feed| {
                let mut resized = pod_json("a", "ReplicaSet", "web-1");
                resized["spec"]["containers"][0]["resources"] = requests("200m", "200Mi");
                feed.apply_pod(read(resized));
            },
            true,
        ),
        ("a new pod", |feed| feed.apply_pod(pod("c")), true),
        (
            "a pod that is gone",
            |feed| feed.pod(Change::Deleted(pod("c"))),
            true,
        ),
        (
            "the same VPA",
            |feed| feed.apply_vpa(&vpa("web", "Deployment", "web", "Recreate")),
            false,
        ),
        (
            "another mode",
            |feed| feed.apply_vpa(&vpa("web", "Deployment", "web", "InPlaceOrRecreate")),
            true,
        ),
        (
            "another number of replicas",
            |feed| feed.controller(Change::Applied(replica_set("web-1", "web", 3))),
            true,
        ),
        (
            "another ReplicaSet",
            |feed| feed.controller(Change::Applied(replica_set("web-2", "web", 3))),
            false,
        ),
        (
            "a LimitRange",
            |feed| {
                feed.limit_range(Change::Applied(read(
                    json!({"metadata": {"name": "l", "namespace": "shop"}}),
                )));
            },
            true,
        ),
    ];
    for (what, change, expected) in changes {
        quiet(&mut feed);
        change(&mut feed);
        feed.settle(no_scale);
        assert_eq!(!feed.due(noon()).is_empty(), expected, "{what}");
    }
    // And what only time changes.
    feed.take(&key("web"), no_scale);
    feed.note(&key("web"), Tally::default(), noon() + TimeDelta::hours(1));
    assert_eq!(feed.due(noon()), []);
    assert_eq!(feed.due(noon() + TimeDelta::hours(1)), [key("web")]);
}

#[test]
fn controllers_say_how_many_pods_they_want() {
    let mut feed = web();
    feed.controller(Change::Applied(read::<SlimSelecting<DaemonSet>>(json!({
        "metadata": {"name": "agent", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}}, "status": {"numberReady": 7},
    }))));
    feed.apply_pod(read(pod_json("agent-1", "DaemonSet", "agent")));
    feed.apply_pod(read(pod_json("clone-1", "CloneSet", "clone")));
    feed.apply_vpa(&vpa("agent", "DaemonSet", "agent", "Recreate"));
    feed.apply_vpa(&vpa("clone", "CloneSet", "clone", "Recreate"));
    let scale = Scale {
        owner: None,
        selector: "app=web".to_owned(),
        replicas: Some(5),
    };
    let needs = feed.settle(|_| ScaleLookup::Unasked);
    assert_eq!(
        needs.iter().map(|key| key.name.as_str()).collect::<Vec<_>>(),
        ["clone"]
    );
    assert_eq!(feed.settle(|_| ScaleLookup::Found(&scale)), []);
    assert_eq!(feed.scales(), needs);
    for (vpa, kind, name, expected) in [
        ("web", "ReplicaSet", "web-1", Some(2)),
        ("agent", "DaemonSet", "agent", Some(7)),
        ("clone", "CloneSet", "clone", Some(5)),
        ("clone", "CloneSet", "other", None),
    ] {
        let work = feed.take(&key(vpa), |_| ScaleLookup::Found(&scale)).unwrap();
        let group = GroupKey {
            namespace: "shop",
            kind,
            name,
        };
        assert_eq!(work.wanted(&group), expected, "{kind} {name}");
    }
    quiet(&mut feed);
    feed.scales_changed(&needs);
    feed.settle(|_| ScaleLookup::Found(&scale));
    assert_eq!(feed.due(noon()), [key("clone")]);
}

#[test]
fn a_relist_takes_away_what_nobody_named() {
    let mut feed = web();
    feed.pod(Change::Relisted(&Default::default()));
    assert_eq!(names(&mut feed, "web"), Vec::<String>::new());
    assert_eq!(feed.take_gone().len(), 2);
    feed.vpa(Change::Relisted(&Default::default()));
    assert!(!feed.acts(&key("web")));
    feed.settle(no_scale);
    assert_eq!(feed.places.len(), 0);
}

#[test]
fn a_pod_that_was_evicted_is_gone_at_once_and_one_of_its_name_is_another() {
    let mut feed = web();
    feed.evicted(&key("web"), "a");
    assert_eq!(names(&mut feed, "web"), ["b"]);
    let mut other = pod_json("b", "ReplicaSet", "web-1");
    other["metadata"]["uid"] = json!("another");
    feed.take_gone();
    feed.apply_pod(read(other));
    feed.settle(no_scale);
    assert_eq!(feed.take_gone(), ["uid-b".into()]);
    assert_eq!(names(&mut feed, "web"), ["b"]);
}

#[test]
fn newcomers_show_whether_admission_sized_them() {
    let settings = Settings::default();
    let since = noon() - TimeDelta::minutes(10);
    let mut feed = web();
    let seen = |feed: &mut Feed| {
        feed.settle(no_scale);
        let found = feed.take_newcomers(since, &settings, no_scale);
        found
            .into_iter()
            .map(|(workload, newcomer)| (workload.vpa, newcomer.shape.replicas, newcomer.is_sized))
            .collect::<Vec<_>>()
    };
    let unsized_pod = ("web".to_owned(), 2, false);
    let sized_pod = ("web".to_owned(), 2, true);
    assert_eq!(seen(&mut feed), [unsized_pod.clone(), unsized_pod.clone()]);
    assert_eq!(seen(&mut feed), []);
    // Old pods tell nothing.
    let mut old = pod_json("old", "ReplicaSet", "web-1");
    old["metadata"]["creationTimestamp"] = json!("2026-03-10T11:00:00Z");
    feed.apply_pod(read(old));
    assert_eq!(seen(&mut feed), []);
    // Marked by admission.
    let mut marked = pod_json("marked", "ReplicaSet", "web-1");
    marked["metadata"]["annotations"] = json!({"vpaObservedContainers": "app"});
    feed.apply_pod(read(marked));
    assert_eq!(seen(&mut feed), std::slice::from_ref(&sized_pod));
    // Somebody's webhook that leaves no mark gave it what was recommended between the eviction and now.
    feed.await_replacement(&key("web"));
    feed.apply_vpa(&{
        let mut newer = vpa("web", "Deployment", "web", "Recreate");
        newer.status = read(
            json!({"recommendation": {"containerRecommendations": [recommended("app", "300m", "300Mi")]}}),
        );
        newer
    });
    for (name, cpu, memory, expected) in [
        ("before", "200m", "200Mi", sized_pod.clone()),
        ("now", "300m", "300Mi", sized_pod),
        ("neither", "250m", "300Mi", unsized_pod),
    ] {
        let mut replacement = pod_json(name, "ReplicaSet", "web-1");
        replacement["spec"]["containers"][0]["resources"] = requests(cpu, memory);
        feed.apply_pod(read(replacement));
        assert_eq!(seen(&mut feed), [expected], "{name}");
    }
}

#[test]
fn a_reason_is_told_once() {
    let mut feed = web();
    assert!(feed.tell(&key("web"), "a", Some(Skip::Budget)));
    assert!(!feed.tell(&key("web"), "a", Some(Skip::Budget)));
    feed.apply_pod(pod("a"));
    assert!(!feed.tell(&key("web"), "a", Some(Skip::Budget)));
    assert!(feed.tell(&key("web"), "a", Some(Skip::BreakerOpen)));
    assert!(feed.tell(&key("web"), "a", None));
    assert!(!feed.tell(&key("web"), "nobody", Some(Skip::Budget)));
}

#[test]
fn namespaces_that_are_not_served_are_not_looked_at() {
    let mut feed = Feed::new(Namespaces::Only("other".to_owned()));
    feed.apply_vpa(&vpa("web", "Deployment", "web", "Recreate"));
    feed.apply_pod(pod("a"));
    assert!(!feed.acts(&key("web")) && feed.places.is_empty());
}
