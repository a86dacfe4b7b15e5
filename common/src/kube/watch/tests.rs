use super::*;
use crate::{
    pod::Pod,
    target::{ControllerKey, WellKnown},
};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, ReplicaSet},
    batch::v1::CronJob,
    core::v1::ReplicationController,
};
use kube::core::Status;
use serde_json::json;

fn pod(name: &str) -> Pod {
    serde_json::from_value(json!({"metadata": {"namespace": "shop", "name": name}})).unwrap()
}

/// Tells an index of events; gives what it was told, in words.
fn told(lists: &mut Lists, events: Vec<watcher::Event<Pod>>) -> Vec<String> {
    let name = |pod: &Pod| pod.metadata.name.clone().unwrap();
    let mut told = Vec::new();
    for event in events {
        let complete = lists.tell(event, &mut |change| {
            told.push(match change {
                Change::Applied(pod) => format!("applied {}", name(&pod)),
                Change::Deleted(pod) => format!("deleted {}", name(&pod)),
                Change::Relisted(seen) => format!(
                    "relisted a: {}, b: {}",
                    seen.contains("shop", "a"),
                    seen.contains("shop", "b")
                ),
            });
        });
        if complete {
            told.push("complete".to_owned());
        }
    }
    told
}

#[test]
fn a_first_list_has_nothing_to_take_away_and_a_second_says_what_is_still_there() {
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
    let mut lists = Lists::default();
    assert_eq!(
        told(
            &mut lists,
            vec![
                Init,
                InitApply(pod("a")),
                InitDone,
                Apply(pod("b")),
                Delete(pod("a"))
            ]
        ),
        ["applied a", "complete", "applied b", "deleted a"]
    );
    assert_eq!(
        told(&mut lists, vec![Init, InitApply(pod("a")), InitDone]),
        ["applied a", "relisted a: true, b: false", "complete"]
    );
}

#[test]
fn what_a_list_brought_that_broke_off_is_taken_away_by_the_next() {
    use watcher::Event::{Init, InitApply, InitDone};
    let mut lists = Lists::default();
    assert_eq!(
        told(
            &mut lists,
            vec![Init, InitApply(pod("a")), Init, InitApply(pod("b")), InitDone]
        ),
        ["applied a", "applied b", "relisted a: false, b: true", "complete"]
    );
}

#[test]
fn only_a_refusal_of_the_request_itself_ends_streaming() {
    let refused = |code: u16| {
        let status = Status {
            code,
            ..Status::default()
        };
        watcher::Error::WatchStartFailed(kube::Error::Api(Box::new(status)))
    };
    for (code, expected) in [
        (400, true),
        (422, true),
        (403, false),
        (410, false),
        (429, false),
        (500, false),
    ] {
        assert_eq!(refuses_streaming(&refused(code)), expected, "{code}");
        assert_eq!(is_forbidden(&refused(code)), code == 403, "{code}");
    }
    assert!(!refuses_streaming(&watcher::Error::NoResourceVersion));
}

#[tokio::test]
async fn a_missing_right_is_news_once_and_its_gift_too() {
    let mut registry = Registry::default();
    let metrics = WatchMetrics::register(&mut registry);
    let readiness = crate::daemon::Readiness::new(Shutdown::new());
    let (watch, _, _) = Watch::new("pods", readiness.part("pods"), &metrics);
    let forbidden = || {
        let status = Status {
            code: 403,
            ..Status::default()
        };
        Err(watcher::Error::InitialListFailed(kube::Error::Api(Box::new(
            status,
        ))))
    };
    let shown = |registry: &Registry| {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("outrigger_watch_forbidden{"));
        line.map(str::to_owned)
    };
    let mut lists = Lists::default();
    let refused = futures::stream::iter([forbidden(), forbidden()]);
    watch.follow::<Pod>(refused, &mut lists, false, &mut |_| {}).await;
    let line = r#"outrigger_watch_forbidden{watch="pods"} "#;
    assert_eq!(shown(&registry), Some(format!("{line}1")));
    assert!(!metrics.note_forbidden("pods", true), "it was said already");
    let served = futures::stream::iter([Ok(watcher::Event::Init), Ok(watcher::Event::InitDone)]);
    watch.follow::<Pod>(served, &mut lists, false, &mut |_| {}).await;
    assert_eq!(shown(&registry), Some(format!("{line}0")));
}

#[test]
fn controllers_are_read_by_kind() {
    let metadata = json!({"namespace": "shop", "name": "it", "ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "1", "controller": true}]});
    let owner = Some(ControllerKey {
        namespace: "shop".to_owned(),
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: "web".to_owned(),
    });
    let selecting = json!({"metadata": metadata, "spec": {
        "selector": {"matchLabels": {"app": "web"}}, "template": {}, "replicas": 3,
    }, "status": {"replicas": 9, "numberReady": 4}});
    let labelled = json!({"metadata": metadata, "spec": {"selector": {"app": "web"}, "replicas": 3}});
    let cron = json!({"metadata": metadata, "spec": {"jobTemplate": {"spec": {"template":
        {"metadata": {"labels": {"app": "web"}}}}}}});
    let read = [
        read::<SlimSelecting<ReplicaSet>>(&selecting),
        read::<SlimSelecting<DaemonSet>>(&selecting),
        read::<SlimReplicationController>(&labelled),
        read::<SlimCronJob>(&cron),
    ];
    let kinds = [
        WellKnown::ReplicaSet,
        WellKnown::DaemonSet,
        WellKnown::ReplicationController,
        WellKnown::CronJob,
    ];
    let replicas = [Some(3), Some(4), Some(3), None];
    for (((kind, controller), expected), replicas) in read.into_iter().zip(kinds).zip(replicas) {
        assert_eq!(kind, expected);
        assert_eq!(controller.owner, owner);
        assert_eq!(controller.selector, "app=web".parse(), "{kind:?}");
        assert_eq!(controller.replicas, replicas, "{kind:?}");
    }
}

#[test]
fn a_slim_kind_has_the_address_of_the_kind() {
    let url = |path: String| path;
    assert_eq!(
        url(SlimCronJob::url_path(&(), Some("shop"))),
        CronJob::url_path(&(), Some("shop"))
    );
    assert_eq!(
        url(SlimReplicationController::url_path(&(), None)),
        ReplicationController::url_path(&(), None)
    );
}

fn read<C: WatchedController>(json: &serde_json::Value) -> (WellKnown, crate::target::Controller) {
    let object: C = serde_json::from_value(json.clone()).unwrap();
    (C::KIND, object.controller())
}
