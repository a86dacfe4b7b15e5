//! Pods as Kruise leaves them, in mode `size`: the whole review, and what comes of it.

use std::collections::HashMap;

use common::{
    api::vpa::VerticalPodAutoscaler,
    gates::{Gate, Gates},
    plan::LimitRanges,
    sidecarset::sizing::ANNOTATION,
    target::{Controller, ControllerKey, Controllers, ScaleLookup, VpaIndex, WellKnown},
};
use serde_json::{Value, json};

use super::*;
use crate::{
    pod::{Reinvocation, Settings, World, review},
    review::Request,
};

const HASH: &str = "kruise.io/sidecarset-hash";

struct Web(Controller);

impl Controllers for Web {
    fn well_known(&self, _: WellKnown, _: &str, _: &str) -> Option<&Controller> {
        Some(&self.0)
    }

    fn scale(&self, _: &ControllerKey) -> ScaleLookup<'_> {
        ScaleLookup::Unasked
    }
}

/// A world with the set `log`, whose sidecar `agent` gets half of what the others have, and was less before.
struct Situation {
    index: FormulaIndex,
    vpa: Option<VerticalPodAutoscaler>,
    settings: Settings,
    pod: Value,
}

fn policy(part: &str) -> Value {
    let half = json!({"cpu": format!("cpu*{part}"), "memory": format!("memory*{part}")});
    json!({"targetContainersMode": "sum", "resourcesExpr": {"limits": half, "requests": half}})
}

fn set(native: bool) -> Value {
    let agent = json!({"name": "agent", "restartPolicy": native.then_some("Always"), "resourcesPolicy": policy("50%")});
    let spec = if native {
        json!({"initContainers": [agent]})
    } else {
        json!({"containers": [agent]})
    };
    json!({
        "metadata": {"name": "log", "annotations": {HASH: "new"}},
        "spec": spec,
        "status": {"latestRevision": "log-2"},
    })
}

fn revision() -> Value {
    json!({
        "metadata": {"name": "log-1", "labels": {"kruise.io/sidecarset-name": "log"}},
        "revision": 1,
        "data": {"spec": {"containers": [{"name": "agent", "resourcesPolicy": policy("25%")}]}},
    })
}

fn index(native: bool) -> FormulaIndex {
    let mut index = FormulaIndex::default();
    index.apply_set(&serde_json::from_value(set(native)).unwrap());
    index.apply_revision(&serde_json::from_value(revision()).unwrap());
    index
}

fn record(hash: &str, revision: &str) -> String {
    let record = json!({"hash": hash, "sidecarSetName": "log", "sidecarList": ["agent"], "controllerRevision": revision});
    json!({"log": record}).to_string()
}

fn sized(name: &str, limits: [&str; 2], requests: [&str; 2]) -> Value {
    let side = |[cpu, memory]: [&str; 2]| json!({"cpu": cpu, "memory": memory});
    json!({"name": name, "resources": {"limits": side(limits), "requests": side(requests)}})
}

/// A pod of 200m and 200Mi with the sidecar that Kruise made of it, and a VPA that recommends 500m for the app.
fn situation() -> Situation {
    Situation {
        index: index(false),
        vpa: Some(vpa(
            &json!([{"containerName": "app", "target": {"cpu": "500m", "memory": "100Mi"}}]),
        )),
        settings: Settings::default(),
        pod: json!({
            "metadata": {
                "name": "web-1", "labels": {"app": "web"}, "annotations": {HASH: record("new", "log-2")},
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "o", "controller": true},
                ],
            },
            "spec": {"containers": [
                sized("app", ["200m", "200Mi"], ["100m", "100Mi"]),
                sized("agent", ["100m", "100Mi"], ["50m", "50Mi"]),
            ]},
        }),
    }
}

fn vpa(recommendations: &Value) -> VerticalPodAutoscaler {
    serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"}},
        "status": {"recommendation": {"containerRecommendations": recommendations}},
    }))
    .unwrap()
}

impl Situation {
    fn review(&self) -> json_patch::Patch {
        let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "operation": "CREATE", "namespace": "shop", "object": self.pod,
            "resource": {"group": "", "version": "v1", "resource": "pods"},
        }});
        let body = body.to_string();
        let request = Request::parse(body.as_bytes()).unwrap();
        let mut vpas = VpaIndex::default();
        self.vpa.iter().for_each(|vpa| vpas.apply(vpa));
        let selector = serde_json::from_value(json!({"matchLabels": {"app": "web"}})).unwrap();
        let limit_ranges: HashMap<String, LimitRanges> = HashMap::new();
        let world = World {
            vpas: &vpas,
            controllers: &Web(Controller::selecting(None, Some(&selector))),
            limit_ranges: &limit_ranges,
            formulas: &self.index,
        };
        let patch = review(&request, &world, &self.settings).unwrap();
        serde_json::from_value(serde_json::to_value(patch).unwrap()).unwrap()
    }

    /// The pod after the review, which a second one must not change.
    fn reviewed(mut self) -> Value {
        let patch = self.review();
        json_patch::patch(&mut self.pod, &patch).unwrap();
        if self.settings.reinvocation == Reinvocation::IfNeeded {
            assert_eq!(self.review(), json_patch::Patch(Vec::new()), "the second time");
        }
        self.pod
    }
}

/// Limits; requests.
fn amounts(container: &Value) -> String {
    let side = |side: &str| {
        ["cpu", "memory"]
            .map(|name| {
                container["resources"][side][name]
                    .as_str()
                    .unwrap_or("-")
                    .to_owned()
            })
            .join(",")
    };
    format!("{};{}", side("limits"), side("requests"))
}

#[test]
fn a_sidecar_follows_what_its_application_gets_in_the_same_call() {
    for reinvocation in [Reinvocation::IfNeeded, Reinvocation::Never] {
        let mut situation = situation();
        situation.settings.reinvocation = reinvocation;
        let pod = situation.reviewed();
        let [app, agent] = [0, 1].map(|index| amounts(&pod["spec"]["containers"][index]));
        assert_eq!(
            [app.as_str(), agent.as_str()],
            ["1,200Mi;500m,100Mi", "500m,100Mi;250m,50Mi"]
        );
        let annotations = pod["metadata"]["annotations"].as_object().unwrap();
        assert_eq!(
            annotations["vpaUpdates"],
            "Pod resources updated by web: container 0: cpu request, memory request, cpu limit, memory limit; \
             container 1: cpu limit 500m from cpu*50% of 1 (SidecarSet log), \
             memory limit 100Mi from memory*50% of 200Mi (SidecarSet log), \
             cpu request 250m from cpu*50% of 500m (SidecarSet log), \
             memory request 50Mi from memory*50% of 100Mi (SidecarSet log), \
             cpu request, memory request, cpu limit, memory limit"
        );
        let remembered: Value = serde_json::from_str(annotations[ANNOTATION].as_str().unwrap()).unwrap();
        assert_eq!(
            remembered,
            json!({
                "containers": {"agent": {"set": "log", "revision": "log-2", "formula": policy("50%")}},
                "sidecars": ["agent"],
            })
        );
        let kruise = annotations.keys().filter(|key| key.starts_with("kruise.io/"));
        assert_eq!(
            kruise.collect::<Vec<_>>(),
            [HASH],
            "nothing of Kruise's is written"
        );
    }
}

#[test]
fn the_formula_is_that_of_the_revision_in_the_pod() {
    let hash = |text: String| {
        let mut situation = situation();
        situation.pod["metadata"]["annotations"][HASH] = json!(text);
        amounts(&situation.reviewed()["spec"]["containers"][1])
    };
    assert_eq!(hash(record("old", "log-1")), "250m,50Mi;125m,25Mi");
    assert_eq!(
        hash(record("older", "log-0")),
        "100m,100Mi;50m,50Mi",
        "not known: as Kruise left it"
    );
    assert_eq!(hash("[]".to_owned()), "100m,100Mi;50m,50Mi");
}

#[test]
fn a_revision_that_nobody_knows_is_said_in_the_pod() {
    let remembered = |record: String, with_vpa: bool| -> Value {
        let mut situation = situation();
        situation.pod["metadata"]["annotations"][HASH] = json!(record);
        if !with_vpa {
            situation.vpa = None;
        }
        let pod = situation.reviewed();
        assert_eq!(
            amounts(&pod["spec"]["containers"][1]),
            "100m,100Mi;50m,50Mi",
            "as Kruise left it"
        );
        let text = pod["metadata"]["annotations"][ANNOTATION].as_str();
        text.map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
    };
    let expected = json!({
        "containers": {"agent": {"set": "log", "revision": "log-0", "skipped": "revision log-0 is not known"}},
        "sidecars": ["agent"],
    });
    assert_eq!(remembered(record("older", "log-0"), true), expected);
    assert_eq!(remembered(record("older", "log-0"), false), expected);
    // Of a set that is not known nobody can say that it has formulas.
    let other = record("older", "log-0").replace("\"log\":", "\"other\":");
    assert_eq!(remembered(other, true), Value::Null);
}

#[test]
fn a_pair_that_is_upgraded_hot_is_sized_twice() {
    let mut situation = situation();
    situation.pod["metadata"]["annotations"]["kruise.io/sidecarset-working-hotupgrade-container"] =
        json!(r#"{"agent":"agent-1"}"#);
    let containers = situation.pod["spec"]["containers"].as_array_mut().unwrap();
    containers[1]["name"] = json!("agent-1");
    let mut second = containers[1].clone();
    second["name"] = json!("agent-2");
    containers.push(second);
    let pod = situation.reviewed();
    for index in [1, 2] {
        assert_eq!(amounts(&pod["spec"]["containers"][index]), "500m,100Mi;250m,50Mi");
    }
}

#[test]
fn a_native_sidecar_needs_the_gate() {
    let native = |gate: bool| {
        let mut situation = Situation {
            index: index(true),
            ..situation()
        };
        situation.settings.gates = Gates::default().with(Gate::NativeSidecar, gate);
        let mut agent = situation.pod["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .remove(1);
        agent["restartPolicy"] = json!("Always");
        situation.pod["spec"]["initContainers"] = json!([{"name": "setup"}, agent]);
        let pod = situation.reviewed();
        let remembers = pod["metadata"]["annotations"].get(ANNOTATION).is_some();
        (amounts(&pod["spec"]["initContainers"][1]), remembers)
    };
    assert_eq!(native(true), ("500m,100Mi;250m,50Mi".to_owned(), true));
    assert_eq!(native(false), ("100m,100Mi;50m,50Mi".to_owned(), false));
}

#[test]
fn without_a_vpa_only_what_was_sized_is_remembered() {
    let pod = Situation {
        vpa: None,
        ..situation()
    }
    .reviewed();
    assert_eq!(amounts(&pod["spec"]["containers"][1]), "100m,100Mi;50m,50Mi");
    let annotations = pod["metadata"]["annotations"].as_object().unwrap();
    assert_eq!(annotations.keys().collect::<Vec<_>>(), [HASH, ANNOTATION]);
    // Somebody changed the application after Kruise had looked at it.
    let mut changed = Situation {
        vpa: None,
        ..situation()
    };
    changed.pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("160m");
    changed.pod["spec"]["containers"][0]["resources"]["limits"]
        .as_object_mut()
        .unwrap()
        .remove("cpu");
    assert_eq!(
        amounts(&changed.reviewed()["spec"]["containers"][1]),
        "-,100Mi;80m,50Mi"
    );
}

#[test]
fn a_recommendation_for_the_sidecar_itself_beats_its_formula() {
    let recommendations = json!([
        {"containerName": "app", "target": {"cpu": "500m", "memory": "100Mi"}},
        {"containerName": "agent", "target": {"cpu": "20m", "memory": "80Mi"}},
    ]);
    let both = |choice: &str| {
        let mut vpa = vpa(&recommendations);
        let annotation = ("outrigger.dev/formula-sidecars".to_owned(), choice.to_owned());
        vpa.metadata.annotations = Some([annotation].into());
        amounts(
            &Situation {
                vpa: Some(vpa),
                ..situation()
            }
            .reviewed()["spec"]["containers"][1],
        )
    };
    assert_eq!(both("recommendation"), "40m,160Mi;20m,80Mi");
    assert_eq!(both("floor"), "500m,160Mi;250m,80Mi");
    assert_eq!(both("formula"), "500m,100Mi;250m,50Mi");
}

#[test]
fn a_formula_that_fails_leaves_the_container_and_says_why() {
    let failing = |formula: &str| {
        let mut set = set(false);
        let requests = json!({"requests": {"cpu": formula}});
        set["spec"]["containers"][0]["resourcesPolicy"]["resourcesExpr"] = requests;
        let mut situation = situation();
        situation.index.apply_set(&serde_json::from_value(set).unwrap());
        situation.vpa = Some(vpa(&json!([{"containerName": "app", "target": {"cpu": "30m"}}])));
        let pod = situation.reviewed();
        let remembered = pod["metadata"]["annotations"][ANNOTATION].as_str().unwrap();
        let remembered: Value = serde_json::from_str(remembered).unwrap();
        (
            amounts(&pod["spec"]["containers"][1]),
            remembered["containers"]["agent"]["skipped"].clone(),
        )
    };
    assert_eq!(
        failing("cpu - 60m"),
        ("100m,100Mi;40m,50Mi".to_owned(), Value::Null),
        "on the pod's own values"
    );
    assert_eq!(
        failing("cpu - 1"),
        (
            "100m,100Mi;50m,50Mi".to_owned(),
            json!(
                "failed to evaluate CPU requests expression: failed to parse expression \"cpu - 1\": calculation \
                 result is negative: -900m"
            )
        )
    );
}
