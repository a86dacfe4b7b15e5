//! Load and metrics over time.

use std::time::Duration;

use chrono::TimeDelta;
use hack::sandbox::{
    Effect, Fault,
    world::{
        NodeSpec, WorldOptions,
        load::{ContainerLoad, Load},
    },
};
use serde_json::{Value, json};

use super::stage::{Stage, assert_about, container, name, sized, workload};

fn number(text: &Value, unit: &str) -> f64 {
    text.as_str()
        .unwrap()
        .strip_suffix(unit)
        .unwrap()
        .parse()
        .unwrap()
}

/// Cores and MiB of one container.
fn usage(metrics: &Value, container: &str) -> (f64, f64) {
    let all = metrics["containers"].as_array().unwrap();
    let one = all.iter().find(|one| one["name"] == container).unwrap();
    (
        number(&one["usage"]["cpu"], "n") / 1e9,
        number(&one["usage"]["memory"], "Ki") / 1024.0,
    )
}

fn shop(replicas: i64) -> Value {
    let mut proxy = sized("proxy", "200m", "256Mi");
    proxy["restartPolicy"] = "Always".into();
    let spec = json!({
        "initContainers": [sized("setup", "100m", "64Mi"), proxy], "containers": [sized("app", "500m", "512Mi")],
    });
    let load = json!({
        "traffic": "daily(100, 1000, 14h)",
        "containers": {
            "app": {"cpu": "20m + 4m * traffic", "memory": "200Mi + 1Mi * traffic"},
            "proxy": {"cpu": "5m + 1m * traffic", "memory": "40Mi"},
        },
    });
    workload("shop", replicas, &load, &spec)
}

#[tokio::test]
async fn pod_metrics_come_after_the_first_window_and_follow_the_load() {
    let stage = Stage::new().await;
    stage.create("deployments.apps", shop(10)).await;
    stage.pass(14).await;
    assert_eq!(
        stage.metrics("pods").await,
        [Value::Null; 0],
        "no pod has a full window"
    );
    stage.pass(17).await;
    let metrics = stage.metrics("pods").await;
    assert_eq!(metrics.len(), 10);
    let one = &metrics[0];
    assert_eq!(
        (&one["timestamp"], &one["window"]),
        (&json!("2026-03-01T12:00:30Z"), &json!("15s"))
    );
    assert_eq!(one["metadata"]["labels"]["app"], "shop");
    let names: Vec<_> = one["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].clone())
        .collect();
    assert_eq!(
        names,
        ["proxy", "app"],
        "a native sidecar is there, an init container that has ended is not"
    );
    // At 14:00 each of ten pods has a tenth of the traffic of 1000; the app is throttled at half a core.
    stage.pass(2 * 3600).await;
    let metrics = stage.metrics("pods").await;
    let (cpu, memory) = usage(&metrics[0], "app");
    assert_about(cpu, 0.42, "cpu of the app");
    assert_about(memory, 300.0, "memory of the app");
    assert_about(usage(&metrics[0], "proxy").0, 0.105, "cpu of the sidecar");
    stage
        .world
        .load()
        .set_traffic("default", "shop", Load::Constant(2000.0));
    stage.world.load().set(
        "default",
        "shop",
        "proxy",
        ContainerLoad::parse("30m", "50Mi").unwrap(),
    );
    stage.pass(60).await;
    let metrics = stage.metrics("pods").await;
    assert_about(usage(&metrics[0], "app").0, 0.5, "throttled");
    assert_about(usage(&metrics[0], "proxy").0, 0.03, "as set");
    let nodes = stage.metrics("nodes").await;
    assert_eq!(name(&nodes[0]), "node-1");
    assert_about(
        number(&nodes[0]["usage"]["cpu"], "n") / 1e9,
        0.1 + 10.0 * 0.53,
        "the node",
    );
}

#[tokio::test]
async fn metrics_have_gaps_on_demand() {
    let stage = Stage::new().await;
    stage.create("deployments.apps", shop(10)).await;
    stage.pass(60).await;
    let fault = Fault::new(Effect::MetricsGap { part: 1.0 })
        .on(&["pods.metrics.k8s.io"])
        .times(1);
    stage.sandbox.faults().add(fault);
    assert_eq!(stage.metrics("pods").await.len(), 0);
    assert_eq!(stage.metrics("pods").await.len(), 10);
}

#[tokio::test]
async fn a_load_that_is_not_understood_is_said() {
    let stage = Stage::new().await;
    let spec = json!({"containers": [sized("app", "100m", "100Mi")]});
    let load = json!({"containers": {"app": {"cpu": "dayly(1)"}}});
    stage
        .create("deployments.apps", workload("web", 1, &load, &spec))
        .await;
    stage.pass(40).await;
    let pod = stage.names("pods").remove(0);
    assert!(stage.events(&pod).contains(&"BadLoad".to_owned()));
    assert_about(
        usage(&stage.metrics("pods").await[0], "app").0,
        0.005,
        "the default",
    );
}

#[tokio::test]
async fn life_goes_on_when_the_clock_jumps() {
    let stage = Stage::new().await;
    stage.create("deployments.apps", shop(10)).await;
    stage.pass(60).await;
    for hours in [24, -48] {
        stage.time.jump(stage.now() + TimeDelta::hours(hours));
        stage.pass(60).await;
        let metrics = stage.metrics("pods").await;
        assert_eq!(metrics.len(), if hours > 0 { 10 } else { 0 }, "{hours}");
    }
    assert_eq!(stage.now().to_rfc3339(), "2026-02-28T12:03:00+00:00");
    stage
        .create(
            "deployments.apps",
            workload(
                "late",
                1,
                &json!({}),
                &json!({"containers": [sized("app", "100m", "100Mi")]}),
            ),
        )
        .await;
    stage.pass(60).await;
    assert_eq!(stage.ready_pods(), 11);
    assert_eq!(
        stage.metrics("pods").await[0]["timestamp"],
        "2026-02-28T12:04:00Z",
        "who has started in the future is not measured yet, who starts now is"
    );
}

#[tokio::test]
async fn a_day_of_twelve_pods() {
    let stage = Stage::with(WorldOptions {
        nodes: vec![NodeSpec::new("node-1", "16", "64Gi")],
        tick: Duration::from_secs(60),
        ..WorldOptions::default()
    })
    .await;
    stage.create("deployments.apps", shop(10)).await;
    // Two that leak: 100Mi at the start, 100Mi an hour, a limit of 512Mi.
    let leak = json!({"containers": {"app": {"cpu": "50m * noise(20%)", "memory": "leak(100Mi, 100Mi)"}}});
    let spec = json!({"containers": [sized("app", "500m", "512Mi")]});
    stage
        .create("deployments.apps", workload("leaky", 2, &leak, &spec))
        .await;
    let (mut samples, mut peak) = (0, 0.0_f64);
    for _ in 0..24 {
        stage.time.advance(Duration::from_secs(3600)).await;
        stage.time.idle().await;
        let metrics = stage.metrics("pods").await;
        samples += metrics.len();
        let app = metrics.iter().find(|one| name(one).starts_with("shop-"));
        peak = app.map_or(peak, |app| peak.max(usage(app, "app").0));
    }
    assert_eq!(stage.now().to_rfc3339(), "2026-03-02T12:00:00+00:00");
    assert_eq!(stage.ready_pods(), 12);
    assert_about(peak, 0.02 + 0.004 * 100.0, "1000 among ten at 14:00");
    // 412Mi at 100Mi an hour: killed every 4.12 hours, five times a day; the runs are too long for a back-off.
    let restarts: Vec<_> = stage
        .all("pods")
        .iter()
        .filter(|pod| name(pod).starts_with("leaky-"))
        .map(|pod| container(pod, "app")["restartCount"].as_i64().unwrap())
        .collect();
    assert_eq!(restarts, [5; 2]);
    // All pods every hour, but for those that were killed just before.
    assert!((12 * 24 - 10..=12 * 24).contains(&samples), "{samples}");
}
