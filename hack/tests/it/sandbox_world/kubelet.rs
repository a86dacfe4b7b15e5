//! What the simulated kubelets of the sandbox do with pods: starts, resizes, OOM kills.

use super::stage::{self, Stage, condition, container, fields, pod, sized, workload};
use hack::sandbox::{Part, world::load::ContainerLoad};
use serde_json::{Value, json};

fn app() -> Value {
    json!({"containers": [sized("app", "100m", "100Mi")]})
}

/// When each container that has started did so, in seconds since noon.
fn starts(pod: &Value) -> Vec<(String, Value)> {
    ["initContainerStatuses", "containerStatuses"]
        .iter()
        .filter_map(|list| pod["status"][list].as_array())
        .flatten()
        .map(|one| {
            let state = one["state"].as_object().unwrap();
            let at = state.values().next().unwrap()["startedAt"].clone();
            (one["name"].as_str().unwrap().to_owned(), at)
        })
        .collect()
}

#[tokio::test]
async fn init_sidecar_and_app_start_in_order() {
    let stage = Stage::new().await;
    let mut proxy = sized("proxy", "100m", "64Mi");
    proxy["restartPolicy"] = "Always".into();
    let spec = json!({
        "initContainers": [sized("setup", "100m", "64Mi"), proxy, sized("check", "100m", "64Mi")],
        "containers": [sized("app", "100m", "64Mi")],
    });
    stage
        .create("deployments.apps", workload("web", 1, &Value::Null, &spec))
        .await;
    let mut phases = Vec::new();
    for _ in 0..6 {
        stage.pass(1).await;
        let pod = stage.all("pods").remove(0);
        let states: Vec<_> = ["setup", "proxy", "check", "app"]
            .iter()
            .map(|name| {
                container(&pod, name)["state"]
                    .as_object()
                    .unwrap()
                    .keys()
                    .next()
                    .unwrap()
                    .clone()
            })
            .collect();
        let ready = condition(&pod, "Ready")["status"].as_str().unwrap().to_owned();
        phases.push(format!(
            "{} {} ready={ready}",
            pod["status"]["phase"].as_str().unwrap(),
            states.join(" ")
        ));
    }
    assert_eq!(
        phases,
        [
            "Pending running waiting waiting waiting ready=False",
            "Pending terminated running waiting waiting ready=False",
            "Pending terminated running running waiting ready=False",
            "Running terminated running terminated running ready=False",
            "Running terminated running terminated running ready=True",
            "Running terminated running terminated running ready=True",
        ]
    );
    let pod = stage.all("pods").remove(0);
    let at = |second| json!(format!("2026-03-01T12:00:0{second}Z"));
    let expected = [
        ("setup", at(1)),
        ("proxy", at(2)),
        ("check", at(3)),
        ("app", at(4)),
    ];
    assert_eq!(starts(&pod), expected.map(|(name, at)| (name.to_owned(), at)));
    let times = |kind: &str| fields(condition(&pod, kind), &["status", "lastTransitionTime"]);
    assert_eq!(times("PodScheduled"), [json!("True"), at(1)]);
    assert_eq!(times("Initialized"), [json!("True"), at(4)]);
    assert_eq!(times("ContainersReady"), [json!("True"), at(5)]);
    assert_eq!(times("Ready"), [json!("True"), at(5)]);
    let proxy = container(&pod, "proxy");
    let resources = json!({"cpu": "100m", "memory": "64Mi"});
    assert_eq!(
        fields(
            proxy,
            &[
                "resources",
                "allocatedResources",
                "restartCount",
                "started",
                "ready",
                "lastState"
            ]
        ),
        [
            json!({"requests": resources, "limits": resources}),
            resources,
            json!(0),
            json!(true),
            json!(true),
            json!({})
        ]
    );
    assert_eq!(
        fields(
            &pod["status"],
            &["qosClass", "startTime", "podIP", "observedGeneration"]
        ),
        [json!("Guaranteed"), at(1), json!("10.0.0.1"), json!(1)]
    );
}

#[tokio::test]
async fn a_pod_goes_within_its_grace_period() {
    let stage = Stage::new().await;
    stage.create("pods", pod("a", &app())).await;
    stage.pass(5).await;
    stage.delete("pods", "a").await;
    assert_eq!(
        stage.get("pods", "a")["metadata"]["deletionGracePeriodSeconds"],
        30
    );
    stage.pass(2).await;
    assert_eq!(stage.names("pods"), [""; 0]);
}

#[tokio::test]
async fn a_resize_lands_and_says_so() {
    let stage = Stage::new().await;
    let mut proxy = sized("proxy", "50m", "64Mi");
    proxy["restartPolicy"] = "Always".into();
    let spec = json!({"initContainers": [proxy], "containers": [sized("app", "100m", "100Mi")]});
    stage.create("pods", pod("a", &spec)).await;
    stage.pass(5).await;
    let (small, large) = (
        json!({"cpu": "70m", "memory": "64Mi"}),
        json!({"cpu": "200m", "memory": "150Mi"}),
    );
    stage
        .resize(
            "a",
            "containers",
            "app",
            json!({"requests": large, "limits": large}),
        )
        .await;
    stage
        .resize(
            "a",
            "initContainers",
            "proxy",
            json!({"requests": small, "limits": small}),
        )
        .await;
    stage.pass(1).await;
    let under_way = stage.get("pods", "a");
    assert_eq!(
        fields(
            condition(&under_way, "PodResizeInProgress"),
            &["status", "reason", "observedGeneration"]
        ),
        [json!("True"), Value::Null, json!(3)]
    );
    assert_eq!(
        container(&under_way, "app")["allocatedResources"],
        large,
        "granted"
    );
    assert_eq!(
        container(&under_way, "app")["resources"]["requests"]["cpu"],
        "100m",
        "not yet done"
    );
    stage.pass(1).await;
    let done = stage.get("pods", "a");
    assert_eq!(condition(&done, "PodResizeInProgress"), &Value::Null);
    assert_eq!(
        container(&done, "app")["resources"],
        json!({"requests": large, "limits": large})
    );
    assert_eq!(
        container(&done, "proxy")["resources"],
        json!({"requests": small, "limits": small})
    );
    assert_eq!(container(&done, "app")["restartCount"], 0);
    let events: Vec<_> = stage
        .events("a")
        .into_iter()
        .filter(|reason| reason.starts_with("Resize"))
        .collect();
    assert_eq!(events, ["ResizeStarted", "ResizeCompleted"]);
}

#[tokio::test]
async fn a_resize_policy_restarts_that_container_only() {
    let stage = Stage::new().await;
    let mut app = sized("app", "100m", "100Mi");
    app["resizePolicy"] = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    let spec = json!({"containers": [app, sized("other", "100m", "100Mi")]});
    stage.create("pods", pod("a", &spec)).await;
    stage.pass(5).await;
    let cpu_only = json!({"cpu": "200m", "memory": "100Mi"});
    stage
        .resize(
            "a",
            "containers",
            "app",
            json!({"requests": cpu_only, "limits": cpu_only}),
        )
        .await;
    stage.pass(3).await;
    assert_eq!(
        container(&stage.get("pods", "a"), "app")["restartCount"],
        0,
        "only the cpu has changed"
    );
    let both = json!({"cpu": "200m", "memory": "200Mi"});
    stage
        .resize(
            "a",
            "containers",
            "app",
            json!({"requests": both, "limits": both}),
        )
        .await;
    stage.pass(5).await;
    let pod = stage.get("pods", "a");
    assert_eq!(container(&pod, "app")["restartCount"], 1);
    assert_eq!(container(&pod, "app")["resources"]["requests"], both);
    assert_eq!(container(&pod, "other")["restartCount"], 0);
    assert_eq!(condition(&pod, "Ready")["status"], "True");
}

#[tokio::test]
async fn a_resize_waits_for_room() {
    let stage = Stage::on("1", "1Gi").await;
    stage.create("pods", pod("a", &app())).await;
    let big = json!({"containers": [sized("app", "600m", "100Mi")]});
    stage.create("pods", pod("b", &big)).await;
    stage.pass(5).await;
    let wanted = json!({"cpu": "500m", "memory": "100Mi"});
    stage
        .resize(
            "a",
            "containers",
            "app",
            json!({"requests": wanted, "limits": wanted}),
        )
        .await;
    stage.pass(3).await;
    let waiting = stage.get("pods", "a");
    let message = "Node didn't have enough resource: cpu, requested: 500, used: 600, capacity: 1000";
    assert_eq!(
        fields(
            condition(&waiting, "PodResizePending"),
            &["status", "reason", "message", "lastTransitionTime"]
        ),
        [
            json!("True"),
            json!("Deferred"),
            json!(message),
            json!("2026-03-01T12:00:06Z")
        ]
    );
    assert_eq!(container(&waiting, "app")["resources"]["requests"]["cpu"], "100m");
    assert_eq!(container(&waiting, "app")["allocatedResources"]["cpu"], "100m");
    stage.delete("pods", "b").await;
    stage.pass(4).await;
    let done = stage.get("pods", "a");
    assert_eq!(condition(&done, "PodResizePending"), &Value::Null);
    assert_eq!(container(&done, "app")["resources"]["requests"]["cpu"], "500m");
    let events: Vec<_> = stage
        .events("a")
        .into_iter()
        .filter(|reason| reason.starts_with("Resize"))
        .collect();
    assert_eq!(events, ["ResizeDeferred", "ResizeStarted", "ResizeCompleted"]);
}

#[tokio::test]
async fn a_resize_that_a_node_can_never_grant_is_infeasible() {
    let stage = Stage::on("2", "1Gi").await;
    stage.create("pods", pod("a", &app())).await;
    stage.pass(5).await;
    let wanted = json!({"cpu": "1500m", "memory": "100Mi"});
    stage
        .resize(
            "a",
            "containers",
            "app",
            json!({"requests": wanted, "limits": wanted}),
        )
        .await;
    // The API server refuses what is too large for the node; a node that shrinks is the way left to get there.
    let less = json!({"status": {"allocatable": {"cpu": "1"}}});
    stage.merge("nodes", "node-1", Part::Status, less).await;
    stage.pass(2).await;
    let pod = stage.get("pods", "a");
    let message = "Node didn't have enough capacity: cpu, requested: 1500, capacity: 1000";
    assert_eq!(
        fields(
            condition(&pod, "PodResizePending"),
            &["status", "reason", "message"]
        ),
        [json!("True"), json!("Infeasible"), json!(message)]
    );
    assert_eq!(container(&pod, "app")["resources"]["requests"]["cpu"], "100m");
}

#[tokio::test]
async fn a_memory_limit_below_the_usage_is_an_error_until_it_is_larger() {
    let stage = Stage::new().await;
    let load = ContainerLoad::parse("10m", "80Mi").unwrap();
    stage.world.load().set("default", "a", "app", load);
    stage.create("pods", pod("a", &app())).await;
    stage.pass(5).await;
    let resize = async |memory: &str| {
        let wanted = json!({"cpu": "100m", "memory": memory});
        stage
            .resize(
                "a",
                "containers",
                "app",
                json!({"requests": wanted, "limits": wanted}),
            )
            .await;
        stage.pass(3).await;
        stage.get("pods", "a")
    };
    let failed = resize("60Mi").await;
    let message = "cannot decrease memory limits: attempting to set container \"app\" memory limit (62914560) below \
                   current usage (83886080)";
    assert_eq!(
        fields(
            condition(&failed, "PodResizeInProgress"),
            &["status", "reason", "message"]
        ),
        [json!("True"), json!("Error"), json!(message)]
    );
    assert_eq!(
        container(&failed, "app")["resources"]["limits"]["memory"],
        "100Mi"
    );
    assert_eq!(container(&failed, "app")["restartCount"], 0);
    let done = resize("90Mi").await;
    assert_eq!(condition(&done, "PodResizeInProgress"), &Value::Null);
    assert_eq!(container(&done, "app")["resources"]["limits"]["memory"], "90Mi");
    let events: Vec<_> = stage
        .events("a")
        .into_iter()
        .filter(|reason| reason.starts_with("Resize"))
        .collect();
    assert_eq!(
        events,
        ["ResizeStarted", "ResizeError", "ResizeStarted", "ResizeCompleted"]
    );
    // What failed is tried again, and works when the usage has gone down.
    resize("60Mi").await;
    let less = ContainerLoad::parse("10m", "40Mi").unwrap();
    stage.world.load().set("default", "a", "app", less);
    stage.pass(10).await;
    assert_eq!(
        container(&stage.get("pods", "a"), "app")["resources"]["limits"]["memory"],
        "60Mi"
    );
}

#[tokio::test]
async fn memory_above_the_limit_kills_again_and_again() {
    let stage = Stage::new().await;
    stage
        .create("deployments.apps", workload("web", 1, &Value::Null, &app()))
        .await;
    stage.pass(10).await;
    let before = stage.all("pods").remove(0);
    let web = stage::name(&before).to_owned();
    stage.world.load().set(
        "default",
        "web",
        "app",
        ContainerLoad::parse("10m", "200Mi").unwrap(),
    );
    stage.pass(1).await;
    let killed = stage.get("pods", &web);
    let end = json!({
        "reason": "OOMKilled", "exitCode": 137, "startedAt": "2026-03-01T12:00:01Z",
        "finishedAt": "2026-03-01T12:00:11Z",
        "containerID": format!("sandbox://{}/app/0", killed["metadata"]["uid"].as_str().unwrap()),
    });
    let status = container(&killed, "app");
    assert_eq!(status["state"], json!({"terminated": end}));
    assert_eq!(status["restartCount"], 0);
    assert_eq!(condition(&killed, "Ready")["status"], "False");
    stage.pass(1).await;
    let again = stage.get("pods", &web);
    let status = container(&again, "app");
    assert_eq!(
        status["state"],
        json!({"running": {"startedAt": "2026-03-01T12:00:12Z"}})
    );
    assert_eq!(status["lastState"], json!({"terminated": end}));
    assert_eq!(status["restartCount"], 1);
    stage.pass(3).await;
    let waiting = stage.get("pods", &web);
    let status = container(&waiting, "app");
    assert_eq!(status["state"]["waiting"]["reason"], "CrashLoopBackOff");
    let text = status["state"]["waiting"]["message"].as_str().unwrap();
    assert!(
        text.starts_with("back-off 10s restarting failed container=app pod=web-"),
        "{text}"
    );
    assert_eq!(status["lastState"]["terminated"]["reason"], "OOMKilled");
    assert_eq!(waiting["status"]["phase"], "Running");
    stage.pass(1800).await;
    let restarts = container(&stage.get("pods", &web), "app")["restartCount"]
        .as_i64()
        .unwrap();
    // 10 s, 20 s, 40 s, 80 s, 160 s make some five minutes; then one every five.
    assert!((9..=12).contains(&restarts), "{restarts}");
    assert!(stage.events(&web).contains(&"BackOff".to_owned()));
}

#[tokio::test]
async fn a_pod_that_fits_nowhere_stays_pending_until_there_is_room() {
    let stage = Stage::on("1", "1Gi").await;
    // 300m for a moment, 400m to stay: the larger counts, and both pods together are more than the node has.
    let mut proxy = sized("proxy", "200m", "64Mi");
    proxy["restartPolicy"] = "Always".into();
    let spec = json!({
        "initContainers": [proxy, sized("setup", "300m", "64Mi")], "containers": [sized("app", "400m", "64Mi")],
    });
    stage.create("pods", pod("a", &spec)).await;
    stage.create("pods", pod("b", &spec)).await;
    stage.pass(5).await;
    let waiting = stage.get("pods", "b");
    assert_eq!(
        fields(
            condition(&waiting, "PodScheduled"),
            &["status", "reason", "message"]
        ),
        [
            json!("False"),
            json!("Unschedulable"),
            json!("0/1 nodes are available: 1 Insufficient cpu.")
        ]
    );
    assert_eq!(waiting["status"]["phase"], "Pending");
    stage.delete("pods", "a").await;
    stage.pass(10).await;
    assert_eq!(condition(&stage.get("pods", "b"), "Ready")["status"], "True");
}
