//! Laws of the patch, whatever the pod: it applies to the pod it was made for, and there is none for a pod that comes
//! back as it went.

use std::collections::BTreeMap;

use common::{api::vpa::VerticalPodAutoscaler, formula::Policy, gates::Gate, plan::FormulaOf};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const NAMES: [&str; 4] = ["a", "b", "c", "d/~é"];

fn option() -> impl Strategy<Value = Option<i64>> {
    let amount = prop_oneof![1..50_i64, 50..5_000_i64, 5_000..4_000_000_000_i64];
    prop::option::weighted(0.7, amount)
}

fn amounts() -> impl Strategy<Value = Value> {
    (option(), option()).prop_map(|(cpu, memory)| {
        let mut list = serde_json::Map::new();
        list.extend(cpu.map(|milli| ("cpu".to_owned(), json!(format!("{milli}m")))));
        list.extend(memory.map(|bytes| ("memory".to_owned(), json!(bytes.to_string()))));
        list.into()
    })
}

/// Requests and limits in any relation, and maps that are not there.
fn container(name: &'static str) -> impl Strategy<Value = Value> {
    let side = || prop::option::weighted(0.8, amounts());
    (side(), side()).prop_map(move |(requests, limits)| {
        json!({"name": name, "resources": {"requests": requests, "limits": limits}})
    })
}

fn pod() -> impl Strategy<Value = Value> {
    let containers = (container("a"), container("b"), container("c"), container("d/~é"));
    (
        1..=4_usize,
        0..=2_usize,
        containers,
        any::<bool>(),
        prop::option::of(amounts()),
    )
        .prop_map(|(count, sidecars, (a, b, c, d), annotated, own)| {
            let mut containers = vec![a, b, c, d];
            containers.truncate(count);
            let sidecars: Vec<_> = containers.drain(..sidecars.min(count - 1)).map(always).collect();
            let own = own.map(|own| json!({"requests": own, "limits": own}));
            let mut pod = json!({
                "metadata": {"name": "p", "annotations": {"k": "v"}},
                "spec": {"initContainers": sidecars, "containers": containers, "resources": own},
            });
            if !annotated {
                pod["metadata"]["annotations"] = Value::Null;
            }
            round_trip(&mut pod);
            pod
        })
}

fn always(mut container: Value) -> Value {
    container["restartPolicy"] = json!("Always");
    container
}

fn vpa() -> impl Strategy<Value = TargetingVpa> {
    let recommendations = prop::collection::vec(prop::option::weighted(0.8, amounts()), 4);
    let policies = prop::collection::vec(
        prop::option::of((amounts(), amounts(), any::<bool>(), any::<bool>())),
        4,
    );
    let boost = prop_oneof![
        Just(Value::Null),
        (1..5_i32).prop_map(|factor| json!({"cpu": {"type": "Factor", "factor": factor}})),
        (0..9_999).prop_map(|more| json!({"cpu": {"type": "Quantity", "quantity": format!("{more}m")}})),
    ];
    let mode = prop::sample::select(vec!["Off", "Recreate"]);
    (recommendations, policies, boost, mode).prop_map(|(recommendations, policies, boost, mode)| {
        let recommendations: Vec<_> = NAMES
            .iter()
            .zip(recommendations)
            .filter_map(|(name, target)| Some(json!({"containerName": name, "target": target?})))
            .collect();
        let policies: Vec<_> = NAMES
            .iter()
            .zip(policies)
            .filter_map(|(name, policy)| {
                let (min, max, requests_only, off) = policy?;
                let values = if requests_only { "RequestsOnly" } else { "RequestsAndLimits" };
                let mode = if off { "Off" } else { "Auto" };
                Some(json!({
                    "containerName": name, "mode": mode, "minAllowed": min, "maxAllowed": max, "controlledValues": values,
                }))
            })
            .collect();
        targeting(&json!({
            "metadata": {"name": "v", "namespace": "ns"},
            "spec": {
                "targetRef": {"kind": "Deployment", "name": "d"},
                "updatePolicy": {"updateMode": mode},
                "resourcePolicy": {"containerPolicies": policies}, "startupBoost": boost,
            },
            "status": {"recommendation": {"containerRecommendations": recommendations}},
        }))
    })
}

fn targeting(vpa: &Value) -> TargetingVpa {
    let vpa: VerticalPodAutoscaler = serde_json::from_value(vpa.clone()).unwrap();
    let mut index = VpaIndex::default();
    index.apply(&vpa);
    let target = common::target::ControllerKey {
        namespace: "ns".to_owned(),
        api_version: String::new(),
        kind: "Deployment".to_owned(),
        name: "d".to_owned(),
    };
    index.targeting(&target)[0].as_ref().clone()
}

fn limit_ranges() -> impl Strategy<Value = LimitRanges> {
    let item = |kind: &'static str| {
        let item = (amounts(), amounts(), amounts()).prop_map(
            move |(min, max, default)| json!({"type": kind, "min": min, "max": max, "default": default}),
        );
        prop::option::of(item)
    };
    (item("Container"), item("Pod")).prop_map(|(container, pod)| {
        let limits: Vec<_> = container.into_iter().chain(pod).collect();
        LimitRanges::merge([&serde_json::from_value(json!({"spec": {"limits": limits}})).unwrap()])
    })
}

#[derive(Clone, Debug)]
struct Situation {
    pod: Value,
    vpa: TargetingVpa,
    limit_ranges: LimitRanges,
    formulas: Option<Formulas>,
    settings: Settings,
}

/// The container `b` is a sidecar with formulas that may fail, or that give no limit.
fn formulas() -> impl Strategy<Value = Option<Formulas>> {
    let texts = |name: &'static str| {
        let texts = ["", "V*50%", "V-100", "max(V, 100m)", "5000-V", "70", "@"];
        prop::sample::select(texts.map(|text| text.replace('V', name)).to_vec())
    };
    let side = move || {
        (texts("cpu"), texts("memory")).prop_map(|(cpu, memory)| json!({"cpu": cpu, "memory": memory}))
    };
    prop::option::of((side(), side(), prop::sample::select(vec![".*", "a", "z"]))).prop_map(|policy| {
        let (limits, requests, regex) = policy?;
        let policy = json!({
            "targetContainersMode": "sum", "targetContainersNameRegex": regex,
            "resourcesExpr": {"limits": limits, "requests": requests},
        });
        Some(Formulas {
            containers: vec![FormulaOf {
                container: "b".to_owned(),
                sidecar: "b".to_owned(),
                set: "set".to_owned(),
                revision: "set-1".to_owned(),
                policy: Policy::new(&serde_json::from_value(policy).unwrap()).into(),
            }],
            sidecars: ["b".to_owned()].into(),
            unknown: Vec::new(),
        })
    })
}

/// Nobody but its formula says what a sidecar has.
fn without_resources(pod: &mut Value, name: &str) {
    for list in ["initContainers", "containers"] {
        let containers = pod["spec"][list].as_array_mut().into_iter().flatten();
        for container in containers.filter(|container| container["name"] == name) {
            container.as_object_mut().unwrap().remove("resources");
        }
    }
}

impl Situation {
    fn any() -> BoxedStrategy<Self> {
        let gates = (any::<bool>(), any::<bool>()).prop_map(|(sidecars, boost)| {
            Gates::default()
                .with(Gate::NativeSidecar, sidecars)
                .with(Gate::CPUStartupBoost, boost)
        });
        // Boxed, since each strategy is moved about by value and a test's stack is small.
        (
            pod().boxed(),
            vpa().boxed(),
            limit_ranges().boxed(),
            formulas().boxed(),
            gates,
        )
            .prop_map(|(mut pod, vpa, limit_ranges, formulas, gates)| {
                if formulas.is_some() {
                    without_resources(&mut pod, "b");
                }
                Self {
                    pod,
                    vpa,
                    limit_ranges,
                    formulas,
                    settings: Settings {
                        gates,
                        ..Settings::default()
                    },
                }
            })
            .boxed()
    }

    fn patch(&self) -> json_patch::Patch {
        let pod = serde_json::from_value(self.pod.clone()).unwrap();
        let operations = patch(
            &pod,
            Some(&self.vpa.sizing),
            self.formulas.as_ref(),
            &self.limit_ranges,
            &self.settings,
        );
        serde_json::from_value(serde_json::to_value(operations).unwrap()).unwrap()
    }

    fn patched(&self) -> Self {
        let mut patched = self.clone();
        json_patch::patch(&mut patched.pod, &self.patch()).unwrap();
        patched
    }
}

/// As the API server writes a pod: nothing that is empty.
fn round_trip(pod: &mut Value) {
    match pod {
        Value::Object(map) => {
            map.values_mut().for_each(round_trip);
            map.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|map| !map.is_empty()));
        }
        Value::Array(list) => list.iter_mut().for_each(round_trip),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn patches_apply_to_the_pod_they_were_made_for(situation in Situation::any(), never: bool) {
        let mut situation = situation;
        if never {
            situation.settings.reinvocation = Reinvocation::Never;
        }
        let operations = situation.patch();
        let mut pod = situation.pod.clone();
        prop_assert!(json_patch::patch(&mut pod, &operations).is_ok(), "{operations:?}");
    }

    #[test]
    fn a_pod_that_comes_back_as_it_went_gets_nothing(situation in Situation::any()) {
        let mut second = situation.patched();
        round_trip(&mut second.pod);
        prop_assert_eq!(second.patch(), json_patch::Patch(vec![]));
    }

    #[test]
    fn once_or_twice_is_the_same(situation in Situation::any()) {
        let mut once = situation.clone();
        once.settings.reinvocation = Reinvocation::Never;
        let (once, twice) = (once.patched(), situation.patched());
        let kept = |situation: &Situation| -> BTreeMap<_, _> {
            let annotations = situation.pod["metadata"]["annotations"].as_object().unwrap();
            annotations.clone().into_iter().filter(|(key, _)| key != MEMORY_ANNOTATION).collect()
        };
        prop_assert_eq!(kept(&once), kept(&twice));
        let [mut once, mut twice] = [once.pod["spec"].clone(), twice.pod["spec"].clone()];
        [&mut once, &mut twice].into_iter().for_each(round_trip);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn a_container_that_comes_later_gets_what_it_had_gotten_at_once(situation in Situation::any()) {
        let containers = situation.pod["spec"]["containers"].as_array().unwrap().clone();
        if containers.len() < 2 {
            return Ok(());
        }
        let mut first = situation.clone();
        first.pod["spec"]["containers"].as_array_mut().unwrap().pop();
        let mut late = first.patched();
        late.pod["spec"]["containers"].as_array_mut().unwrap().push(containers.last().unwrap().clone());
        let [mut late, mut whole] = [late.patched().pod, situation.patched().pod];
        // Who comes late does not know what the others had before they were sized.
        let said = whole["metadata"]["annotations"].to_string();
        if said.contains("skipped") || said.contains("computed without recommendations") {
            return Ok(());
        }
        [&mut late, &mut whole].into_iter().for_each(round_trip);
        prop_assert_eq!(late, whole);
    }
}
