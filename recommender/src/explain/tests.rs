use super::*;
use crate::{
    cluster::{Cluster, ContainerUpdate, Place, PodUpdate, Usage},
    feed::vpas::Vpas,
    run::Config,
};
use chrono::TimeDelta;
use serde_json::{Value, json};

fn at(minutes: i64) -> DateTime<Utc> {
    "2026-03-02T00:00:00Z".parse::<DateTime<Utc>>().unwrap() + TimeDelta::minutes(minutes)
}

/// A VPA over one pod with containers `app` and `idle`, the first of which was measured once a minute for a day.
struct Story {
    config: Config,
    cluster: Cluster,
    vpas: Vpas,
    key: Key,
}

impl Story {
    fn new(flags: &[&str], policies: &Value, status: &Value) -> Self {
        let config = Config::from_flags(flags.iter().copied()).unwrap();
        let vpa = serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "resourcePolicy": {"containerPolicies": policies},
            },
            "status": status,
        }))
        .unwrap();
        let mut vpas = Vpas::default();
        vpas.apply("default", vpa);
        let key = ("shop".to_owned(), "web".to_owned());
        let mut cluster = Cluster::new(config.model);
        let selector = "app=web".parse().unwrap();
        cluster.upsert_vpa("shop", "web", selector, vpas.ours[&key].policies.clone());
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        let containers = ["app", "idle"].map(|name| ContainerUpdate {
            name,
            place: Place::Regular,
        });
        let pod = PodUpdate {
            namespace: "shop",
            name: "web-0",
            labels: &labels,
            terminal: false,
            containers: &containers,
        };
        cluster.upsert_pod(&pod, at(0));
        for minute in 0..=1440 {
            for usage in [
                Usage::Cpu(MilliCpu(200 + (37 * minute) % 400)),
                Usage::Memory(Bytes((300 + (7919 * minute) % 200) * 1_000_000)),
            ] {
                let id = ("shop", "web-0", "app");
                cluster.add_sample(id, usage, at(minute), at(minute)).unwrap();
            }
        }
        Self {
            config,
            cluster,
            vpas,
            key,
        }
    }

    fn explain(&self) -> Explanation {
        let view = self.cluster.vpa("shop", "web").unwrap();
        let written = BTreeMap::from([("app".to_owned(), at(1440))]);
        let row = &self.vpas.ours[&self.key];
        explanation(&self.key, row, &view, &self.config.status(), &written)
    }

    /// What the daemon would publish.
    fn status(&self) -> Value {
        let view = self.cluster.vpa("shop", "web").unwrap();
        let row = &self.vpas.ours[&self.key];
        let config = self.config.status();
        let recommendation = config.recommendation(row, &view.histories(), |_, _| {});
        let status = config.status(row, &view, &recommendation, at(1441));
        json!(status.recommendation.unwrap().container_recommendations)
    }
}

/// The recommended amounts of an explanation, in the form of a status.
fn recommended(explanation: &Explanation) -> Value {
    let list = |cpu: &Option<Exact>, memory: &Option<Exact>| {
        let named = [("cpu", cpu), ("memory", memory)].into_iter();
        let given = named.filter_map(|(name, amount)| Some((name.to_owned(), json!(amount.as_ref()?))));
        Some(Value::Object(given.collect())).filter(|list| *list != json!({}))
    };
    let with_any = explanation.containers.iter().filter(|container| {
        container.cpu.target.recommended.is_some() || container.memory.target.recommended.is_some()
    });
    let containers = with_any.map(|container| {
        let ContainerExplanation {
            name, cpu, memory, ..
        } = container;
        let lists = [
            ("containerName", Some(json!(name))),
            (
                "target",
                list(&cpu.target.recommended, &memory.target.recommended),
            ),
            (
                "lowerBound",
                list(&cpu.lower_bound.recommended, &memory.lower_bound.recommended),
            ),
            (
                "upperBound",
                list(&cpu.upper_bound.recommended, &memory.upper_bound.recommended),
            ),
            (
                "uncappedTarget",
                list(&cpu.uncapped_target, &memory.uncapped_target),
            ),
        ];
        let given = lists.into_iter();
        Value::Object(
            given
                .filter_map(|(name, list)| Some((name.to_owned(), list?)))
                .collect(),
        )
    });
    containers.collect()
}

#[test]
fn an_explanation_says_what_the_daemon_publishes() {
    let published = json!({
        "conditions": [{"type": "RecommendationProvided", "status": "True"}],
        "recommendation": {"containerRecommendations": [
            {"containerName": "idle", "target": {"cpu": "1", "memory": "1Gi"}, "upperBound": {"cpu": "2"}}]},
    });
    for flags in [
        &[][..],
        &["--quirks=all"],
        &[
            "--round-cpu-millicores=50",
            "--container-recommendation-max-allowed-cpu=300m",
        ],
    ] {
        for policies in [
            json!([]),
            json!([{"containerName": "*", "minAllowed": {"memory": "1Gi"}, "maxAllowed": {"cpu": "500m"}}]),
            json!([{"containerName": "app", "mode": "Off"}]),
            json!([{"containerName": "app", "controlledResources": ["memory"]}]),
        ] {
            for status in [&Value::Null, &published] {
                let story = Story::new(flags, &policies, status);
                assert_eq!(
                    recommended(&story.explain()),
                    story.status(),
                    "{flags:?} {policies} {status}"
                );
            }
        }
    }
}

/// The worked numbers of `spec/vpa.md` 9, halved minimum for two containers.
#[test]
fn every_step_is_there() {
    let policies = json!([{"containerName": "app", "maxAllowed": {"cpu": "600m"}}]);
    let story = Story::new(&[], &policies, &Value::Null);
    let explanation = serde_json::to_value(story.explain()).unwrap();
    assert_eq!(explanation["pods"], 1);
    assert_eq!(explanation["target"], "Deployment web");
    let app = &explanation["containers"][0];
    assert_eq!(app["checkpoint"], "2026-03-03T00:00:00Z");
    let cpu = &app["cpu"];
    assert_eq!(
        cpu["samples"],
        json!({
            "count": 1441,
            "first": "2026-03-02T00:00:00Z",
            "last": "2026-03-03T00:00:00Z",
            // One half-life: (Σ w)² / Σ w² of 1441 samples that weigh from ½ to 1.
            "worth": cpu["samples"]["worth"],
        })
    );
    let worth = cpu["samples"]["worth"].as_f64().unwrap();
    assert!((1380.0..1390.0).contains(&worth), "{worth}");
    assert_eq!(cpu["confidence"], 1.0);
    assert_eq!(
        cpu["target"],
        json!({
            "percentile": 0.9,
            "usage": "584m",
            "interval": {"low": "546m", "high": "584m"},
            "withMargin": "671m",
            "confidenceFactor": null,
            "scaled": "671m",
            "minimum": "12m",
            "estimated": "671m",
            "caps": ["maxAllowed"],
            "recommended": "600m",
            "published": null,
        })
    );
    assert_eq!(cpu["upperBound"]["confidenceFactor"], 2.0);
    assert_eq!(cpu["upperBound"]["scaled"], "1342m");
    assert_eq!(cpu["uncappedTarget"], "671m");
    let memory = &app["memory"];
    assert_eq!(memory["samples"]["count"], 2);
    assert_eq!(memory["source"], "measured");
    // Two peaks say nothing about how high it may go.
    assert_eq!(memory["target"]["interval"]["high"], Value::Null);
    let idle = &explanation["containers"][1];
    assert_eq!(idle["cpu"]["source"], "noSamples");
    assert_eq!(idle["checkpoint"], Value::Null);
    assert_eq!(idle["cpu"]["target"]["recommended"], Value::Null);
}

#[test]
fn people_can_read_it() {
    let policies = json!([
        {"containerName": "app", "maxAllowed": {"cpu": "600m"}},
        {"containerName": "idle", "mode": "Off"},
    ]);
    let status = json!({"recommendation": {"containerRecommendations": [
        {"containerName": "app", "target": {"cpu": "550m"}}]}});
    let story = Story::new(&[], &policies, &status);
    let text = story.explain().to_string();
    for expected in [
        "VPA shop/web: sizes Deployment web, update mode Recreate, 1 pod\n",
        "container app, by its checkpoint of 2026-03-03T00:00:00Z",
        "cpu     1441 samples over 24h0m0s (2026-03-02T00:00:00Z to 2026-03-03T00:00:00Z), worth 13",
        "600m  lowered to maxAllowed, the status still says 550m",
        "uncapped target 671m",
        "container idle, without a checkpoint yet\n  mode Off: nothing is recommended",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in:\n{text}");
    }
}
