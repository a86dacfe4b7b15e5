//! Faults on demand, as a client meets them.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use hack::sandbox::{Amount, Container, Effect, Fault, Key, Measured, Object, Usage, Used};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};

use super::{object, pod, refusal, sandbox};

#[tokio::test]
async fn requests_fail_as_asked_and_then_work_again() {
    let (sandbox, client) = sandbox().await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    pods.create(&PostParams::default(), &pod("p")).await.unwrap();
    let table = [
        (
            Effect::Error {
                code: 429,
                retry_after_seconds: Some(7),
            },
            429,
            7,
        ),
        (
            Effect::Error {
                code: 500,
                retry_after_seconds: None,
            },
            500,
            0,
        ),
        (
            Effect::Error {
                code: 409,
                retry_after_seconds: None,
            },
            409,
            0,
        ),
    ];
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    for (effect, code, seconds) in table {
        sandbox
            .faults()
            .add(Fault::new(effect).verbs(&["patch"]).on(&["pods"]).times(1));
        let Err(kube::Error::Api(status)) = pods.patch("p", &PatchParams::default(), &patch).await else {
            panic!("it fails")
        };
        let details = status.details.clone();
        assert_eq!(
            (
                status.code,
                details.map_or(0, |details| details.retry_after_seconds)
            ),
            (code, seconds)
        );
        pods.get("p").await.unwrap();
        pods.patch("p", &PatchParams::default(), &patch).await.unwrap();
    }
    sandbox
        .faults()
        .add(Fault::new(Effect::Reset).verbs(&["get"]).times(1));
    assert!(
        !matches!(pods.get("p").await.unwrap_err(), kube::Error::Api(_)),
        "no answer at all"
    );
    sandbox
        .faults()
        .add(Fault::new(Effect::Latency { milliseconds: 1 }).verbs(&["get"]));
    pods.get("p").await.unwrap();
    let expired = Effect::Error {
        code: 410,
        retry_after_seconds: None,
    };
    sandbox
        .faults()
        .add(Fault::new(expired).verbs(&["list"]).on(&["pods"]).times(1));
    let everything = ListParams::default();
    assert_eq!(refusal(pods.list(&everything).await).0, 410);
    pods.list(&everything).await.unwrap();
}

#[tokio::test]
async fn watches_drop_expire_and_stall() {
    let (sandbox, client) = sandbox().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let map = |name: &str| -> ConfigMap { object(json!({"metadata": {"name": name}})) };
    for name in ["a", "b", "c"] {
        api.create(&PostParams::default(), &map(name)).await.unwrap();
    }
    let watch = || async { api.watch(&WatchParams::default(), "0").await.unwrap().boxed() };
    let once = |effect| Fault::new(effect).verbs(&["watch"]).times(1);
    sandbox.faults().add(once(Effect::DropWatch { after_events: 2 }));
    let dropped: Vec<_> = watch().await.try_collect().await.unwrap();
    assert_eq!(dropped.len(), 2);
    sandbox
        .faults()
        .add(once(Effect::ExpireWatch { after_events: 1 }));
    let expired: Vec<_> = watch().await.try_collect().await.unwrap();
    let [WatchEvent::Added(_), WatchEvent::Error(error)] = expired.as_slice() else {
        panic!("{expired:?}")
    };
    assert_eq!((error.code, error.reason.as_str()), (410, "Expired"));
    sandbox.faults().add(once(Effect::StallWatch { after_events: 3 }));
    let brief = WatchParams::default().timeout(1);
    let mut stalled = api.watch(&brief, "0").await.unwrap().boxed();
    for _ in 0..3 {
        stalled.next().await.unwrap().unwrap();
    }
    api.create(&PostParams::default(), &map("d")).await.unwrap();
    let mut live = watch().await;
    for _ in 0..4 {
        live.next().await.unwrap().unwrap();
    }
    let healthy: Vec<_> = api.watch(&brief, "0").await.unwrap().try_collect().await.unwrap();
    assert_eq!(healthy.len(), 4, "the server has ended this one");
    assert!(
        futures::poll!(stalled.next()).is_pending(),
        "what the others got, this one did not, nor did it end"
    );
}

#[tokio::test]
async fn metrics_come_from_the_provider_and_can_have_gaps() {
    let (sandbox, client) = sandbox().await;
    let request = |path: &str| http::Request::get(path).body(Vec::new()).unwrap();
    let list = "/apis/metrics.k8s.io/v1beta1/pods";
    assert_eq!(
        refusal(client.request::<Value>(request(list)).await).0,
        503,
        "nobody measures yet"
    );
    let metrics = |namespace: &str, n: usize| {
        let key = Key::new(namespace, &format!("pod-{n}"));
        let pod = json!({"metadata": {"labels": {"n": n.to_string()}}});
        Measured {
            object: Arc::new(Object::new(key.into(), pod, 1, &[])),
            asked: "2026-03-01T12:00:01Z".into(),
            timestamp: "2026-03-01T12:00:00Z".into(),
            window: "15s".into(),
            used: Used::Containers(vec![Container {
                name: "app".into(),
                usage: Usage {
                    cpu: Amount::Of(10, "m"),
                    memory: Amount::Of(1, "Mi"),
                },
            }]),
        }
    };
    sandbox.api().serve_pod_metrics(Arc::new(move || {
        (0..100)
            .map(|n| metrics(if n < 50 { "a" } else { "b" }, n))
            .collect()
    }));
    let count = async |path: &str| {
        let list: Value = client.request(request(path)).await.unwrap();
        assert_eq!(list["kind"], "PodMetricsList");
        list["items"].as_array().unwrap().len()
    };
    assert_eq!(count(list).await, 100);
    assert_eq!(count("/apis/metrics.k8s.io/v1beta1/namespaces/a/pods").await, 50);
    assert_eq!(
        count("/apis/metrics.k8s.io/v1beta1/pods?labelSelector=n%3D7").await,
        1
    );
    let one: Value = client
        .request(request("/apis/metrics.k8s.io/v1beta1/namespaces/b/pods/pod-70"))
        .await
        .unwrap();
    assert_eq!(
        (&one["kind"], &one["metadata"]["name"]),
        (&json!("PodMetrics"), &json!("pod-70"))
    );
    let gap = Fault::new(Effect::MetricsGap { part: 0.5 }).on(&["pods.metrics.k8s.io"]);
    sandbox.faults().add(gap);
    let left = count(list).await;
    assert!((30..70).contains(&left), "{left}");
    sandbox.faults().clear();
    let lie = Effect::MetricsLie {
        cpu: Some("-1".to_owned()),
        memory: None,
        timestamp: Some("2020-01-01T00:00:00Z".to_owned()),
    };
    sandbox.faults().add(Fault::new(lie).on(&["pods.metrics.k8s.io"]));
    let lied: Value = client
        .request(request("/apis/metrics.k8s.io/v1beta1/namespaces/b/pods/pod-70"))
        .await
        .unwrap();
    assert_eq!(lied["timestamp"], "2020-01-01T00:00:00Z");
    let [before, now] = [&one, &lied].map(|pod| pod["containers"][0].clone());
    assert_eq!(now["usage"]["cpu"], "-1");
    assert_eq!(now["usage"]["memory"], before["usage"]["memory"]);
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.list(&ListParams::default()).await.unwrap();
}

#[tokio::test]
async fn open_watches_can_be_cut() {
    let (sandbox, client) = sandbox().await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    let watch = pods.watch(&WatchParams::default(), "0").await.unwrap();
    let mut watch = Box::pin(watch);
    assert!(futures::poll!(watch.next()).is_pending());
    let next = watch.next();
    tokio::pin!(next);
    let ended = loop {
        // The server may not have begun to watch yet.
        sandbox.faults().cut_watches();
        let soon = tokio::time::timeout(std::time::Duration::from_millis(20), &mut next);
        if let Ok(ended) = soon.await {
            break ended;
        }
    };
    assert!(ended.is_none());
}

#[tokio::test]
async fn faults_can_be_asked_for_over_http() {
    let (_sandbox, client) = sandbox().await;
    let fault = json!({"verbs": ["list"], "resources": ["pods"], "count": 1, "effect": {"type": "error", "code": 500}});
    let request = http::Request::post("/sandbox/faults")
        .body(fault.to_string().into_bytes())
        .unwrap();
    let added: Value = client.request(request).await.unwrap();
    assert_eq!(added, json!({"id": 0}));
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    assert_eq!(refusal(pods.list(&ListParams::default()).await).0, 500);
    pods.list(&ListParams::default()).await.unwrap();
    let request = http::Request::get("/sandbox/faults").body(Vec::new()).unwrap();
    let listed: Value = client.request(request).await.unwrap();
    assert_eq!(listed["faults"][0]["struck"], 1);
    let wrong = http::Request::post("/sandbox/faults")
        .body(b"{}".to_vec())
        .unwrap();
    assert_eq!(refusal(client.request::<Value>(wrong).await).0, 400);
    let request = http::Request::delete("/sandbox/faults/0")
        .body(Vec::new())
        .unwrap();
    client.request::<Value>(request).await.unwrap();
}
