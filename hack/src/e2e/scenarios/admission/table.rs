//! The suite by which VPA's own admission controller is judged, row for row (`spec/vpa.md` 6.3). Each row is one entry
//! here, in its words, but for `reloads the webhook leaf and CA certificate`, which is the scenario
//! `admission-reloads-and-is-killed`.

use anyhow::{Result, ensure};
use common::{
    api::k8s::{LimitRange, Pod},
    gates::{Gate, Gates},
};
use futures::FutureExt as _;
use http::Method;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::super::super::{Look, Need, Scenario, World};
use super::{Admission, Owner, configuration, install_crds, unregister, vpa, vpa_object, vpas};

pub(super) fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "admission-suite",
        about: "every row of VPA's admission suite: what pods get by recommendations, policies, LimitRanges and boosts, and \
                which VPAs are denied",
        needs: &[Need::NoControllers, Need::LocalWebhooks],
        run: |world| suite(world).boxed_local(),
    }]
}

/// One row of the suite.
struct Row {
    is: &'static str,
    /// The pod's containers.
    containers: Vec<Value>,
    /// The VPA, but for its target.
    vpa: Value,
    /// What is recommended.
    recommended: Value,
    /// What bounds the namespace.
    limits: Value,
    /// The containers as they should come out.
    expected: Vec<Value>,
}

fn amounts(cpu: &str, memory: &str) -> Value {
    let mut list = json!({});
    for (name, amount) in [("cpu", cpu), ("memory", memory)] {
        if !amount.is_empty() {
            list[name] = json!(amount);
        }
    }
    list
}

/// A container that requests something.
fn requests(name: &str, cpu: &str, memory: &str) -> Value {
    json!({"name": name, "resources": {"requests": amounts(cpu, memory)}})
}

/// A container that is limited too.
fn limited(name: &str, (cpu, memory): (&str, &str), (cpu_limit, memory_limit): (&str, &str)) -> Value {
    json!({"name": name, "resources": {
        "requests": amounts(cpu, memory), "limits": amounts(cpu_limit, memory_limit),
    }})
}

/// A recommendation as VPA's tests write it.
fn recommendation(name: &str, cpu: &str, memory: &str) -> Value {
    let target = amounts(cpu, memory);
    json!({
        "containerName": name, "target": target, "lowerBound": target, "upperBound": target, "uncappedTarget": target,
    })
}

impl Row {
    /// A pod that gets what is recommended for it, unless the rest of the row says otherwise.
    fn new(is: &'static str, containers: Vec<Value>, recommended: Vec<Value>, expected: Vec<Value>) -> Self {
        Self {
            is,
            containers,
            vpa: json!({}),
            recommended: recommended.into(),
            limits: Value::Null,
            expected,
        }
    }

    fn vpa(self, vpa: Value) -> Self {
        Self { vpa, ..self }
    }

    fn limits(self, limits: Value) -> Self {
        Self { limits, ..self }
    }
}

const APP: &str = "hamster";
const OTHER: &str = "hamster2";
const UNKNOWN: &str = "removed";

fn rows() -> Vec<Row> {
    let small = || requests(APP, "100m", "100Mi");
    let sized = || requests(APP, "250m", "200Mi");
    let wanted = || recommendation(APP, "250m", "200Mi");
    let stranger = || recommendation(UNKNOWN, "500m", "500Mi");
    let burstable = |name| limited(name, ("100m", "100Mi"), ("150m", "200Mi"));
    let policy = |policy: Value| {
        let mut policy = policy;
        policy["containerName"] = json!("*");
        json!({"resourcePolicy": {"containerPolicies": [policy]}})
    };
    // What the API server fills in where only a maximum is given.
    let container_max =
        || json!({"type": "Container", "max": amounts("300m", "1Gi"), "default": amounts("300m", "1Gi")});
    let boost = |boost: Value| json!({"startupBoost": {"cpu": boost}});
    let twice = || json!({"type": "Factor", "factor": 2, "durationSeconds": 10});
    let three = |cpu: [&str; 3]| -> Vec<Value> {
        let names = ["one", "two", "three"];
        let both = names.into_iter().zip(cpu);
        both.map(|(name, cpu)| limited(name, (cpu, ""), (cpu, "")))
            .collect()
    };
    let three_wanted = || {
        vec![
            recommendation("one", "4m", ""),
            recommendation("two", "21m", ""),
            recommendation("three", "90m", ""),
        ]
    };
    vec![
        Row::new(
            "starts pods with new recommended request",
            vec![small()],
            vec![wanted()],
            vec![sized()],
        ),
        Row::new(
            "starts pods with new recommended request, InPlaceOrRecreate",
            vec![small()],
            vec![wanted()],
            vec![sized()],
        )
        .vpa(json!({"updatePolicy": {"updateMode": "InPlaceOrRecreate"}})),
        Row::new(
            "when recommendation includes an extra container",
            vec![small()],
            vec![stranger(), wanted()],
            vec![sized()],
        ),
        Row::new(
            "when recommendation has only a container that doesn't match",
            vec![small()],
            vec![stranger()],
            vec![small()],
        ),
        Row::new(
            "when one container has a recommendation and one other doesn't",
            vec![small(), requests(OTHER, "100m", "100Mi")],
            vec![wanted()],
            vec![sized(), requests(OTHER, "100m", "100Mi")],
        ),
        Row::new(
            "extra container, container LimitRange max",
            vec![small()],
            vec![stranger(), wanted()],
            vec![limited(APP, ("100m", "100Mi"), ("300m", "1Gi"))],
        )
        .limits(container_max()),
        Row::new(
            "only a container that doesn't match, LimitRange",
            vec![small()],
            vec![stranger()],
            vec![limited(APP, ("100m", "100Mi"), ("300m", "1Gi"))],
        )
        .limits(container_max()),
        Row::new(
            "one with, one without, pod LimitRange max",
            [APP, OTHER]
                .map(|name| limited(name, ("600m", "1Gi"), ("600m", "1Gi")))
                .to_vec(),
            vec![recommendation(APP, "600m", "1Gi")],
            [APP, OTHER]
                .map(|name| limited(name, ("200m", "512Mi"), ("200m", "512Mi")))
                .to_vec(),
        )
        .limits(json!({"type": "Pod", "max": amounts("400m", "1Gi")})),
        Row::new(
            "keeps limits equal to request",
            vec![limited(APP, ("100m", "100Mi"), ("100m", "100Mi"))],
            vec![wanted()],
            vec![limited(APP, ("250m", "200Mi"), ("250m", "200Mi"))],
        ),
        Row::new(
            "keeps limits to request ratio constant",
            vec![burstable(APP)],
            vec![wanted()],
            vec![limited(APP, ("250m", "200Mi"), ("375m", "400Mi"))],
        ),
        Row::new(
            "keeps limits unchanged when requests only",
            vec![limited(APP, ("100m", "100Mi"), ("500m", "500Mi"))],
            vec![wanted()],
            vec![limited(APP, ("250m", "200Mi"), ("500m", "500Mi"))],
        )
        .vpa(policy(json!({"controlledValues": "RequestsOnly"}))),
        Row::new(
            "caps request according to container max limit set in LimitRange",
            vec![burstable(APP)],
            vec![wanted()],
            vec![limited(APP, ("200m", "200Mi"), ("300m", "400Mi"))],
        )
        .limits(container_max()),
        Row::new(
            "raises request according to container min limit set in LimitRange",
            vec![limited(APP, ("100m", "200Mi"), ("150m", "400Mi"))],
            vec![recommendation(APP, "120m", "100Mi")],
            vec![limited(APP, ("120m", "250Mi"), ("180m", "500Mi"))],
        )
        .limits(json!({"type": "Container", "min": amounts("", "250Mi"), "default": amounts("", "300Mi")})),
        Row::new(
            "caps request according to pod max limit set in LimitRange",
            [APP, OTHER].map(burstable).to_vec(),
            [APP, OTHER]
                .map(|name| recommendation(name, "250m", "200Mi"))
                .to_vec(),
            [APP, OTHER]
                .map(|name| limited(name, ("200m", "200Mi"), ("300m", "400Mi")))
                .to_vec(),
        )
        .limits(json!({"type": "Pod", "max": amounts("600m", "1Gi")})),
        Row::new(
            "raises cpu requests and limits according to pod min",
            three(["10m", "10m", "10m"]),
            three_wanted(),
            three(["6m", "28m", "118m"]),
        )
        .limits(json!({"type": "Pod", "min": amounts("150m", "")})),
        Row::new(
            "caps cpu requests and limits according to pod max",
            three(["10m", "10m", "10m"]),
            three_wanted(),
            three(["2m", "14m", "62m"]),
        )
        .limits(json!({"type": "Pod", "max": amounts("80m", "")})),
        Row::new(
            "raises request according to pod min set in LimitRange",
            [APP, OTHER].map(burstable).to_vec(),
            [APP, OTHER]
                .map(|name| recommendation(name, "120m", "100Mi"))
                .to_vec(),
            [APP, OTHER]
                .map(|name| limited(name, ("120m", "250Mi"), ("180m", "500Mi")))
                .to_vec(),
        )
        .limits(json!({"type": "Pod", "min": amounts("", "500Mi")})),
        Row::new(
            "caps request to max set in VPA",
            vec![small()],
            vec![wanted()],
            vec![requests(APP, "233m", "150Mi")],
        )
        .vpa(policy(json!({"maxAllowed": amounts("233m", "150Mi")}))),
        Row::new(
            "raises request to min set in VPA",
            vec![small()],
            vec![recommendation(APP, "50m", "60Mi")],
            vec![requests(APP, "90m", "80Mi")],
        )
        .vpa(policy(json!({"minAllowed": amounts("90m", "80Mi")}))),
        Row {
            recommended: Value::Null,
            ..Row::new(
                "leaves users request when no recommendation",
                vec![small()],
                vec![],
                vec![small()],
            )
        },
        Row {
            recommended: Value::Null,
            ..Row::new(
                "passes empty request when no recommendation and no user-specified request",
                vec![json!({"name": APP, "resources": {}})],
                vec![],
                vec![json!({"name": APP, "resources": {}})],
            )
        },
        Row::new(
            "boosts CPU by factor on pod creation",
            vec![small()],
            vec![recommendation(APP, "100m", "100Mi")],
            vec![requests(APP, "200m", "100Mi")],
        )
        .vpa(boost(twice())),
        Row::new(
            "boosts CPU by quantity on pod creation",
            vec![small()],
            vec![recommendation(APP, "100m", "100Mi")],
            vec![requests(APP, "600m", "100Mi")],
        )
        .vpa(boost(
            json!({"type": "Quantity", "quantity": "500m", "durationSeconds": 10}),
        )),
        Row::new(
            "boosts CPU on pod creation when VPA update mode is Off",
            vec![small()],
            vec![recommendation(APP, "150m", "150Mi")],
            vec![requests(APP, "200m", "100Mi")],
        )
        .vpa(json!({"updatePolicy": {"updateMode": "Off"}, "startupBoost": {"cpu": twice()}})),
        Row::new(
            "doesn't boost CPU on pod creation when scaling mode is Off",
            vec![small()],
            vec![recommendation(APP, "100m", "100Mi")],
            vec![small()],
        )
        .vpa({
            let mut vpa = policy(json!({"mode": "Off"}));
            vpa["startupBoost"] = json!({"cpu": twice()});
            vpa
        }),
    ]
}

async fn suite(world: &World) -> Result<()> {
    install_crds(world).await?;
    let result = passed(world).await;
    result.and(unregister(world, &configuration(world)).await)
}

async fn passed(world: &World) -> Result<()> {
    let gates = Gates::default()
        .with(Gate::CPUStartupBoost, true)
        .with(Gate::PerVPAConfig, true);
    let admission = Admission::start(world, Admission::config(world, gates)?);
    for (number, row) in rows().iter().enumerate() {
        check(world, &format!("row-{number}"), row).await?;
    }
    does_not_block_patches(world).await?;
    accepts_valid_and_rejects_invalid(world).await?;
    admission.stop().await
}

async fn check(world: &World, name: &str, row: &Row) -> Result<()> {
    let ranges = world.api::<LimitRange>();
    if !row.limits.is_null() {
        let range = json!({"metadata": {"name": name}, "spec": {"limits": [row.limits]}});
        world.create_object::<LimitRange>(range).await?;
    }
    let owner = Owner::create(world, name).await?;
    vpa(world, name, "ReplicaSet", row.vpa.clone(), &row.recommended).await?;
    let spec = json!({"containers": row.containers});
    let result = owner
        .until(world, row.is, &spec, |pod| {
            let found = resources(pod);
            // Also a pod that keeps what it has was looked at.
            let observed = pod["metadata"]["annotations"]["vpaObservedContainers"].is_string();
            if observed && found == row.expected {
                Ok(())
            } else {
                Err(format!("observed: {observed}, {}", Value::from(found)))
            }
        })
        .await;
    if !row.limits.is_null() {
        ranges.delete(name, &DeleteParams::default()).await?;
    }
    result.map(drop)
}

/// The containers of a pod, as the rows write them.
fn resources(pod: &Value) -> Vec<Value> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    containers
        .map(|container| json!({"name": container["name"], "resources": container["resources"]}))
        .collect()
}

/// `doesn't block patches`.
async fn does_not_block_patches(world: &World) -> Result<()> {
    let owner = Owner::create(world, "patched").await?;
    let targets = json!([recommendation(APP, "250m", "200Mi")]);
    vpa(world, "patched", "ReplicaSet", json!({}), &targets).await?;
    let spec = json!({"containers": [requests(APP, "100m", "100Mi")]});
    let sized = [requests(APP, "250m", "200Mi")];
    let pod = owner
        .until(world, "a pod is sized", &spec, |pod| {
            let found = resources(pod);
            if found == sized {
                Ok(())
            } else {
                Err(Value::from(found).to_string())
            }
        })
        .await?;
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let patch = json!({"metadata": {"annotations": {"someAnnotation": "someValue"}}});
    let patched = world
        .send(
            Method::PATCH,
            &world.pod_path(name, ""),
            "application/merge-patch+json",
            &patch,
        )
        .await?;
    ensure!(
        patched.code == 200 && patched.body["metadata"]["annotations"]["someAnnotation"] == "someValue",
        "the patch was answered by {patched:?}"
    );
    ensure!(
        resources(&patched.body) == sized,
        "resources changed: {}",
        patched.body
    );
    let gone = DeleteParams::default().grace_period(0);
    world.api::<Pod>().delete(name, &gone).await?;
    Ok(())
}

/// `accepts valid and rejects invalid VPA object`, and the same with PerVPAConfig.
async fn accepts_valid_and_rejects_invalid(world: &World) -> Result<()> {
    let of = |name: &str, policy: Value| {
        let spec = json!({"resourcePolicy": {"containerPolicies": [policy]}});
        vpa_object(name, "ReplicaSet", spec)
    };
    let valid = of(
        "valid",
        json!({"containerName": APP, "minAllowed": {"cpu": "50m"}, "oomBumpUpRatio": "1.5"}),
    );
    let path = vpas(world);
    let made = world
        .send(Method::POST, &path, "application/json", &valid)
        .await?;
    ensure!(made.code == 201, "a valid VPA was answered by {made:?}");

    let object = of(
        "object",
        json!({"containerName": APP, "minAllowed": {"requests": {"cpu": "50m"}}}),
    );
    let ratio = of(
        "ratio",
        json!({"containerName": APP, "oomBumpUpRatio": "not-a-number"}),
    );
    let no_quantity =
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    for (invalid, words) in [(object, ""), (ratio, no_quantity)] {
        let denied = world
            .until("an invalid VPA is denied", async || {
                let answer = world
                    .send(Method::POST, &path, "application/json", &invalid)
                    .await?;
                let by_us = answer
                    .message()
                    .starts_with("admission webhook \"vpa.k8s.io\" denied the request: ");
                Ok(if by_us {
                    Look::Done(answer)
                } else {
                    Look::NotYet(answer.message().to_owned())
                })
            })
            .await?;
        ensure!(
            denied.code >= 400 && denied.message().contains(words),
            "denied by {denied:?}"
        );
    }
    Ok(())
}
