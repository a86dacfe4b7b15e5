//! The recommender against an API server that refuses, fails and forgets: nothing is lost, nobody else suffers, and what
//! is not its own is left alone.

use std::time::Duration;

use chrono::TimeDelta;
use common::{
    api::{
        checkpoint::VerticalPodAutoscalerCheckpoint,
        vpa::{ConditionType, VerticalPodAutoscaler, VerticalPodAutoscalerStatus},
    },
    clock::VirtualClock,
    daemon::{Context, DaemonError, Shutdown},
};
use hack::sandbox::{
    Effect, Fault, Sandbox, install_crds,
    world::{World, WorldOptions},
};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Namespace};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

const STATUS: &str = "verticalpodautoscalers.autoscaling.k8s.io/status";
const CHECKPOINTS: &str = "verticalpodautoscalercheckpoints.autoscaling.k8s.io";

/// A sandbox with a world in it, and namespace `shop`.
struct Place {
    time: VirtualClock,
    sandbox: Sandbox,
    client: Client,
    _world: World,
}

/// A recommender that runs in it.
struct Recommender {
    shutdown: Shutdown,
    running: JoinHandle<Result<(), DaemonError>>,
    url: String,
}

impl Place {
    async fn new() -> Self {
        let (sandbox, time) = crate::sandbox::at_noon().await;
        install_crds(sandbox.api()).await.unwrap();
        let world = World::start(&sandbox, WorldOptions::default()).await.unwrap();
        let client = sandbox.client().unwrap();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let shop = serde_json::from_value(json!({"metadata": {"name": "shop"}})).unwrap();
        namespaces.create(&PostParams::default(), &shop).await.unwrap();
        Self {
            time,
            sandbox,
            client,
            _world: world,
        }
    }

    async fn deploy(&self, name: &str) {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), "shop");
        let deployment = json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "app", "image": "workload"}]},
                },
            },
        });
        let deployment = serde_json::from_value(deployment).unwrap();
        api.create(&PostParams::default(), &deployment).await.unwrap();
    }

    fn vpas(&self) -> Api<VerticalPodAutoscaler> {
        Api::namespaced(self.client.clone(), "shop")
    }

    async fn vpa(&self, name: &str, recommenders: Value) {
        let vpa = json!({
            "metadata": {"name": name},
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "updatePolicy": {"updateMode": "Off"},
                "recommenders": recommenders,
            },
        });
        let vpa = serde_json::from_value(vpa).unwrap();
        self.vpas().create(&PostParams::default(), &vpa).await.unwrap();
    }

    fn checkpoints(&self) -> Api<VerticalPodAutoscalerCheckpoint> {
        Api::namespaced(self.client.clone(), "shop")
    }

    /// A checkpoint that somebody wrote an hour ago.
    async fn checkpoint(&self, vpa: &str, samples: i64) -> VerticalPodAutoscalerCheckpoint {
        let time = |hours: i64| common::time::to_k8s(self.time.now() - TimeDelta::hours(hours));
        let histogram = |bucket: &str| json!({"referenceTimestamp": time(12), "bucketWeights": {bucket: 10_000}, "totalWeight": 10.0});
        let checkpoint = json!({
            "metadata": {"name": format!("{vpa}-app")},
            "spec": {"vpaObjectName": vpa, "containerName": "app"},
            "status": {
                "version": "v3", "lastUpdateTime": time(1), "firstSampleStart": time(48), "lastSampleStart": time(1),
                "totalSamplesCount": samples, "cpuHistogram": histogram("30"), "memoryHistogram": histogram("40"),
            },
        });
        let checkpoint = serde_json::from_value(checkpoint).unwrap();
        self.checkpoints()
            .create(&PostParams::default(), &checkpoint)
            .await
            .unwrap()
    }

    async fn recommender(&self, flags: &[&str]) -> Recommender {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shutdown = Shutdown::new();
        let mut context = Context::new(self.client.clone(), self.time.clock(), shutdown.clone());
        context.admin = Some(listener);
        let flags = ["--checkpoint-max-age=1m"]
            .into_iter()
            .chain(flags.iter().copied());
        let config = recommender::Config::from_flags(flags).unwrap();
        let running = tokio::spawn(recommender::run(config, context));
        Recommender {
            shutdown,
            running,
            url,
        }
    }

    async fn pass(&self, minutes: u64) {
        for _ in 0..minutes * 60 {
            self.time.advance(Duration::from_secs(1)).await;
            tokio::task::yield_now().await;
        }
        self.time.idle().await;
    }

    /// Lets time pass until something is so.
    async fn until(&self, what: &str, so: impl AsyncFn() -> bool) {
        for _ in 0..3600 {
            if so().await {
                return;
            }
            self.time.advance(Duration::from_secs(1)).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("it never happened that {what}");
    }

    async fn status(&self, vpa: &str) -> VerticalPodAutoscalerStatus {
        self.vpas().get(vpa).await.unwrap().status.unwrap_or_default()
    }

    async fn has_recommendation(&self, vpa: &str) -> bool {
        let recommendation = self.status(vpa).await.recommendation.unwrap_or_default();
        !recommendation.container_recommendations.is_empty()
    }

    async fn samples(&self, checkpoint: &str) -> i64 {
        let found = self.checkpoints().get_opt(checkpoint).await.unwrap();
        let status = found.and_then(|checkpoint| checkpoint.status);
        status.map_or(0, |status| status.total_samples_count)
    }
}

impl Recommender {
    async fn metric(&self, starts: &str) -> Option<f64> {
        let text = hack::http::get(&format!("{}/metrics", self.url)).await.unwrap();
        let text = text.text().await.unwrap();
        let line = text.lines().find(|line| line.starts_with(starts))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    async fn stop(self) {
        self.shutdown.request();
        self.running.await.unwrap().unwrap();
    }
}

fn refusal(code: u16) -> Effect {
    Effect::Error {
        code,
        retry_after_seconds: None,
    }
}

#[tokio::test]
async fn what_passes_is_tried_again_and_what_does_not_costs_one_vpa() {
    let place = Place::new().await;
    for name in ["good", "bad"] {
        place.deploy(name).await;
        place.vpa(name, Value::Null).await;
    }
    let faults = place.sandbox.faults();
    let mut invalid = Fault::new(refusal(422)).verbs(&["patch"]).on(&[STATUS]);
    invalid.names = vec!["bad".to_owned()];
    faults.add(invalid);
    for code in [409, 429, 503] {
        faults.add(Fault::new(refusal(code)).verbs(&["patch"]).on(&[STATUS]).times(1));
        faults.add(
            Fault::new(refusal(code))
                .verbs(&["patch"])
                .on(&[CHECKPOINTS])
                .times(1),
        );
    }
    let recommender = place.recommender(&[]).await;
    place
        .until("the good one is served", async || {
            place.has_recommendation("good").await
        })
        .await;
    place
        .until("both checkpoints are written", async || {
            place.samples("good-app").await > 0 && place.samples("bad-app").await > 0
        })
        .await;
    assert!(!place.has_recommendation("bad").await);
    let failed = r#"outrigger_recommender_writes_total{object="status",outcome="failed"}"#;
    assert!(recommender.metric(failed).await.unwrap() >= 1.0);

    faults.clear();
    place
        .until("the bad one is served", async || {
            place.has_recommendation("bad").await
        })
        .await;
    recommender.stop().await;
}

#[tokio::test]
async fn what_cannot_be_read_is_an_error_and_never_nothing() {
    let place = Place::new().await;
    place.deploy("web").await;
    place.vpa("web", Value::Null).await;
    let recommender = place.recommender(&[]).await;
    place
        .until("it is served", async || place.has_recommendation("web").await)
        .await;
    place
        .until("a checkpoint is there", async || {
            place.samples("web-app").await > 0
        })
        .await;
    let samples = place.samples("web-app").await;
    place.time.idle().await;
    let before = place.status("web").await.recommendation;

    let faults = place.sandbox.faults();
    faults.add(Fault::new(refusal(503)).on(&["pods.metrics.k8s.io"]));
    faults.add(Fault::new(refusal(500)).verbs(&["list", "watch"]).on(&["pods"]));
    faults.add(
        Fault::new(Effect::ExpireWatch { after_events: 0 })
            .verbs(&["watch"])
            .on(&["deployments.apps"]),
    );
    place.pass(4).await;
    let after = place.status("web").await;
    assert_eq!(after.recommendation, before);
    let no_pods = |status: &VerticalPodAutoscalerStatus| {
        let mut conditions = status.conditions.iter();
        conditions.any(|condition| condition.type_ == ConditionType::NoPodsMatched)
    };
    assert!(!no_pods(&after), "{after:?}");
    let errors = r#"vpa_recommender_metric_server_responses{is_error="true""#;
    assert!(recommender.metric(errors).await.unwrap() >= 3.0);
    assert!(
        place.samples("web-app").await <= samples + 20,
        "nothing new was seen"
    );

    faults.clear();
    place
        .until("samples are counted again", async || {
            place.samples("web-app").await > samples + 20
        })
        .await;
    recommender.stop().await;
}

#[tokio::test]
async fn it_stops_in_time_though_nobody_answers_what_pods_use() {
    let place = Place::new().await;
    place.deploy("web").await;
    place.vpa("web", Value::Null).await;
    let recommender = place.recommender(&["--checkpoint-max-age=1h"]).await;
    place
        .until("it is served", async || place.has_recommendation("web").await)
        .await;
    let faults = place.sandbox.faults();
    let hour = Effect::Latency {
        milliseconds: 3_600_000,
    };
    let hangs = faults.add(Fault::new(hour).on(&["pods.metrics.k8s.io"]));
    // While the recommender is at work time does not go on.
    let asked = async {
        while faults.struck(hangs) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = place.pass(2) => panic!("nobody asked"),
        () = asked => {}
    }
    let before = place.samples("web-app").await;
    recommender.stop().await;
    assert!(place.samples("web-app").await > before, "what it knew is written");
}

#[tokio::test]
async fn orphans_are_collected_and_the_checkpoints_of_others_left_alone() {
    let place = Place::new().await;
    place.deploy("theirs").await;
    place.vpa("theirs", json!([{"name": "other"}])).await;
    place.checkpoint("gone", 5).await;
    let theirs = place.checkpoint("theirs", 5).await;
    // One that cannot be deleted does not keep the others.
    let mut stuck = Fault::new(refusal(500)).verbs(&["delete"]).on(&[CHECKPOINTS]);
    stuck.names = vec!["another-app".to_owned()];
    place.sandbox.faults().add(stuck);
    place.checkpoint("another", 5).await;
    let recommender = place.recommender(&["--checkpoints-gc-interval=1m"]).await;
    place
        .until("the orphan is gone", async || {
            place.checkpoints().get_opt("gone-app").await.unwrap().is_none()
        })
        .await;
    place.pass(3).await;
    let kept = place.checkpoints().get("theirs-app").await.unwrap();
    assert_eq!(kept.metadata.resource_version, theirs.metadata.resource_version);
    assert!(!place.has_recommendation("theirs").await);
    assert!(
        place
            .checkpoints()
            .get_opt("another-app")
            .await
            .unwrap()
            .is_some()
    );
    recommender.stop().await;
}

#[tokio::test]
async fn the_checkpoint_of_a_vpa_that_comes_later_is_read_before_it_is_written() {
    let place = Place::new().await;
    place.checkpoint("web", 1000).await;
    let recommender = place.recommender(&[]).await;
    place.pass(2).await;
    // It cannot be read at first, and waits.
    let faults = place.sandbox.faults();
    faults.add(
        Fault::new(refusal(500))
            .verbs(&["list"])
            .on(&[CHECKPOINTS])
            .times(3),
    );
    place.vpa("web", Value::Null).await;
    place.deploy("web").await;
    place
        .until("it is written", async || place.samples("web-app").await != 1000)
        .await;
    let samples = place.samples("web-app").await;
    assert!((1001..1100).contains(&samples), "{samples}");

    // Made anew, it has what the model knows and nothing twice.
    place.vpas().delete("web", &Default::default()).await.unwrap();
    place.pass(2).await;
    place.vpa("web", Value::Null).await;
    place.pass(5).await;
    let again = place.samples("web-app").await;
    assert!(again < 1100, "{again}");
    recommender.stop().await;
}

#[tokio::test]
async fn the_memory_saver_knows_only_whom_a_vpa_selects() {
    let place = Place::new().await;
    for name in ["chosen", "later"] {
        place.deploy(name).await;
    }
    place.vpa("chosen", Value::Null).await;
    let recommender = place.recommender(&["--memory-saver"]).await;
    place
        .until("it is served", async || place.has_recommendation("chosen").await)
        .await;
    let aggregates = "vpa_recommender_aggregate_container_states_count";
    assert_eq!(recommender.metric(aggregates).await, Some(1.0));
    place.vpa("later", Value::Null).await;
    place
        .until("the other is served too", async || {
            place.has_recommendation("later").await
        })
        .await;
    place.pass(2).await;
    assert_eq!(recommender.metric(aggregates).await, Some(2.0));

    // Its selector changes, and another Deployment's pods are asked for.
    let patch = json!({"spec": {"targetRef": {"name": "chosen"}}});
    let parameters = PatchParams::default();
    let vpas = place.vpas();
    vpas.patch("later", &parameters, &Patch::Merge(&patch))
        .await
        .unwrap();
    place.pass(3).await;
    assert!(place.has_recommendation("later").await);
    recommender.stop().await;
}
