//! What holds for all kinds: nothing is lost on the way through our types, null is the same as absent, and no object
//! that the schema lets through fails the list it is in.

use super::{
    checkpoint::{VerticalPodAutoscalerCheckpoint, VerticalPodAutoscalerCheckpointStatus},
    sidecarset::{ResourcesPolicy, TargetContainersMode, v1alpha1, v1beta1},
    vpa::{
        ContainerControlledValues, ContainerResourcePolicy, ContainerScalingMode, PodResourcePolicy,
        PodUpdatePolicy, UpdateMode, VerticalPodAutoscaler, VerticalPodAutoscalerSpec,
    },
};
use kube::core::ObjectList;
use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

const FULL_VPA: &str = include_str!("../../testdata/crd/objects/full-vpa.json");
const FULL_CHECKPOINT: &str = include_str!("../../testdata/crd/objects/full-checkpoint.json");
const FULL_V1ALPHA1: &str = include_str!("../../testdata/crd/objects/full-sidecarset-v1alpha1.json");
const FULL_V1BETA1: &str = include_str!("../../testdata/crd/objects/full-sidecarset-v1beta1.json");

/// The way through a type and back.
type Through = fn(Value) -> serde_json::Result<Value>;

/// Every kind: an object with every field, and the way through its type.
fn kinds() -> [(Value, Through); 4] {
    [
        (parse(FULL_VPA), through::<VerticalPodAutoscaler>),
        (parse(FULL_CHECKPOINT), through::<VerticalPodAutoscalerCheckpoint>),
        (parse(FULL_V1ALPHA1), through::<v1alpha1::SidecarSet>),
        (parse(FULL_V1BETA1), through::<v1beta1::SidecarSet>),
    ]
}

#[test]
fn objects_with_every_field_come_back_as_they_went_in() {
    for (object, through) in kinds() {
        assert_eq!(through(object.clone()).unwrap(), object);
    }
}

#[test]
fn objects_of_the_vectors_come_back_with_the_same_meaning() {
    fn check<T: Serialize + DeserializeOwned>(vectors: &str) {
        let cases = parse(vectors);
        for case in cases.as_array().unwrap() {
            let again = through::<T>(case["object"].clone()).unwrap();
            assert_eq!(meaning(&again), meaning(&case["object"]), "{}", case["source"]);
        }
    }

    check::<VerticalPodAutoscaler>(include_str!("../../testdata/crd/objects/vector-vpas.json"));
    check::<VerticalPodAutoscalerCheckpointStatus>(include_str!(
        "../../testdata/crd/objects/vector-checkpoints.json"
    ));
    check::<ResourcesPolicy>(include_str!("../../testdata/crd/objects/vector-policies.json"));
}

#[test]
fn null_is_the_same_as_absent_everywhere() {
    let mut places = 0;
    for (object, through) in kinds() {
        for pointer in fields(&object) {
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            let (mut nulled, mut removed) = (object.clone(), object.clone());
            *nulled.pointer_mut(&pointer).unwrap() = Value::Null;
            removed
                .pointer_mut(parent)
                .unwrap()
                .as_object_mut()
                .unwrap()
                .remove(name);
            assert_eq!(through(nulled).unwrap(), through(removed).unwrap(), "{pointer}");
            places += 1;
        }
    }
    assert!(places > 150, "only {places} fields were tried");
}

#[test]
fn what_the_schemas_let_through_costs_no_list() {
    fn read<T: Clone + DeserializeOwned>(items: &Value) -> usize {
        let list: ObjectList<T> = serde_json::from_value(json!({ "metadata": {}, "items": items })).unwrap();
        list.items.len()
    }

    let sets = json!([
        { "metadata": { "name": "no-spec" } },
        { "metadata": { "name": "null-spec" }, "spec": null },
        { "metadata": { "name": "unchecked" }, "spec": {
            "volumes": "what", "containers": [{ "name": 5, "ports": false, "resources": [] }],
        } },
        { "metadata": { "name": "unbounded" }, "spec": { "updateStrategy": {
            "partition": 3_000_000_000_u64, "maxUnavailable": -3_000_000_000_i64,
        } } },
        { "metadata": { "name": "unlisted" }, "spec": {
            "updateStrategy": { "type": "x" },
            "containers": [{
                "podInjectPolicy": "x",
                "upgradeStrategy": { "upgradeType": "x" },
                "shareVolumePolicy": { "type": "x" },
                "resourcesPolicy": { "targetContainersMode": "x" },
            }],
            "injectionStrategy": { "revision": { "policy": "x" } },
            "patchPodMetadata": [{ "patchPolicy": "x" }],
        } },
    ]);
    assert_eq!(read::<v1beta1::SidecarSet>(&sets), 5);
    assert_eq!(read::<v1alpha1::SidecarSet>(&sets), 5);

    let checkpoints = json!([
        { "metadata": { "name": "no-spec" } },
        { "metadata": { "name": "unchecked" }, "status": {
            "cpuHistogram": { "bucketWeights": { "x": [1], "-1": 1.5 } },
            "memoryHistogram": { "totalWeight": 114_454_285_182_292_160_000_f64 },
        } },
    ]);
    assert_eq!(read::<VerticalPodAutoscalerCheckpoint>(&checkpoints), 2);

    let vpas = json!([
        { "metadata": { "name": "newer" }, "spec": {
            "targetRef": { "kind": "Deployment", "name": "x" },
            "updatePolicy": { "updateMode": "Sometimes", "evictionRequirements": [{ "changeRequirement": "x" }] },
            "resourcePolicy": { "containerPolicies": [{
                "mode": "x", "controlledValues": "x", "minAllowed": { "cpu": 1, "memory": 1.5 },
                "startupBoost": { "cpu": { "type": "x" } },
            }] },
            "fieldOfTomorrow": {},
        }, "status": { "conditions": [{ "type": "x", "status": "x" }, {}] } },
        { "metadata": { "name": "no-spec" } },
    ]);
    assert_eq!(read::<VerticalPodAutoscaler>(&vpas), 2);
}

#[test]
fn a_list_is_no_object() {
    let error =
        serde_json::from_value::<VerticalPodAutoscaler>(json!({ "metadata": {}, "spec": [] })).unwrap_err();
    assert_eq!(error.to_string(), "invalid type: sequence, expected an object");
}

#[test]
fn the_update_mode_is_recreate_unless_given() {
    let mode = |update_mode: Option<&str>| VerticalPodAutoscalerSpec {
        update_policy: Some(PodUpdatePolicy {
            update_mode: update_mode.map(UpdateMode::from),
            ..PodUpdatePolicy::default()
        }),
        ..VerticalPodAutoscalerSpec::default()
    };
    assert_eq!(
        VerticalPodAutoscalerSpec::default().update_mode(),
        &UpdateMode::Recreate
    );
    for (given, expected) in [
        (None, UpdateMode::Recreate),
        (Some(""), UpdateMode::Recreate),
        (Some("Off"), UpdateMode::Off),
        (Some("Auto"), UpdateMode::Auto),
        (Some("off"), UpdateMode::Other("off".to_owned())),
    ] {
        assert_eq!(mode(given).update_mode(), &expected, "{given:?}");
    }
}

#[test]
fn the_first_policy_with_the_name_holds_and_otherwise_the_last_for_all() {
    let policy = |name: &str, mode: Option<ContainerScalingMode>| ContainerResourcePolicy {
        container_name: name.to_owned(),
        mode,
        ..ContainerResourcePolicy::default()
    };
    let spec = VerticalPodAutoscalerSpec {
        resource_policy: Some(PodResourcePolicy {
            container_policies: vec![
                policy("*", None),
                policy("a", Some(ContainerScalingMode::Off)),
                policy("*", Some(ContainerScalingMode::Off)),
                policy("a", None),
            ],
        }),
        ..VerticalPodAutoscalerSpec::default()
    };
    let policies = &spec.resource_policy.as_ref().unwrap().container_policies;
    assert_eq!(spec.container_policy("a"), Some(&policies[1]));
    assert_eq!(spec.container_policy("b"), Some(&policies[2]));
    assert_eq!(VerticalPodAutoscalerSpec::default().container_policy("a"), None);

    let silent = ContainerResourcePolicy::default();
    assert_eq!(silent.scaling_mode(), &ContainerScalingMode::Auto);
    assert_eq!(
        silent.values_controlled(),
        &ContainerControlledValues::RequestsAndLimits
    );
}

#[test]
fn both_spellings_of_a_policy_are_read_and_the_shipped_one_is_written() {
    let expressions = |cpu: &str| json!({ "limits": { "cpu": cpu } });
    for (json, mode, cpu) in [
        (
            json!({ "targetContainersMode": "sum", "resourcesExpr": expressions("new") }),
            TargetContainersMode::Sum,
            "new",
        ),
        (
            json!({ "targetContainerMode": "max", "resourceExpr": expressions("old") }),
            TargetContainersMode::Max,
            "old",
        ),
        (
            json!({
                "targetContainersMode": "sum", "resourcesExpr": expressions("new"),
                "targetContainerMode": "max", "resourceExpr": expressions("old"),
            }),
            TargetContainersMode::Sum,
            "new",
        ),
    ] {
        let policy: ResourcesPolicy = serde_json::from_value(json).unwrap();
        assert_eq!(policy.target_containers_mode, Some(mode.clone()));
        assert_eq!(policy.resources_expr.limits.cpu.as_deref(), Some(cpu));
        assert_eq!(
            serde_json::to_value(&policy).unwrap(),
            json!({ "targetContainersMode": mode, "resourcesExpr": expressions(cpu) })
        );
    }
}

#[test]
fn an_empty_name_expression_is_not_the_same_as_none() {
    for (json, expected) in [
        (json!({}), ".*"),
        (json!({ "targetContainersNameRegex": null }), ".*"),
        (json!({ "targetContainersNameRegex": "" }), ""),
        (json!({ "targetContainersNameRegex": "^app" }), "^app"),
    ] {
        let policy: ResourcesPolicy = serde_json::from_value(json).unwrap();
        assert_eq!(policy.name_regex(), expected);
    }
}

#[test]
fn a_sidecar_shows_its_core_container() {
    let set: v1beta1::SidecarSet = serde_json::from_str(FULL_V1BETA1).unwrap();
    let [native] = set.spec.init_containers.as_slice() else {
        panic!("one init container expected");
    };
    assert_eq!((native.name(), native.restarts_always()), ("proxy", true));
    assert!(!set.spec.containers[0].restarts_always());
    let container = native.parse_container().unwrap();
    assert_eq!(container.image.as_deref(), Some("proxy:1.2"));
    assert_eq!(container.restart_policy.as_deref(), Some("Always"));
    let names: Vec<String> = set
        .spec
        .parse_volumes()
        .unwrap()
        .into_iter()
        .map(|volume| volume.name)
        .collect();
    assert_eq!(names, ["tmp", "new"]);

    let odd: v1beta1::SidecarSetSpec =
        serde_json::from_value(json!({ "volumes": "what", "containers": [{ "name": 5 }] })).unwrap();
    assert_eq!(odd.containers[0].name(), "");
    assert!(odd.containers[0].parse_container().is_err());
    assert!(odd.parse_volumes().is_err());
    assert_eq!(v1beta1::SidecarSetSpec::default().parse_volumes().unwrap(), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_in_any_place_comes_back(kind in 0_usize..4, place in any::<prop::sample::Index>(), text in ".{1,12}") {
        let (mut object, through) = kinds()[kind].clone();
        let places = texts(&object);
        *object.pointer_mut(place.get(&places).as_str()).unwrap() = Value::String(text);
        prop_assert_eq!(through(object.clone()).unwrap(), object);
    }

    #[test]
    fn any_json_in_any_place_is_read_or_refused(
        kind in 0_usize..4,
        place in any::<prop::sample::Index>(),
        json in prop::sample::select(vec![
            json!({}), json!([]), json!(null), json!(""), json!(true), json!(-1), json!(1.5), json!(1e300), json!([null]),
            json!({ "": {} }),
        ]),
    ) {
        let (mut object, through) = kinds()[kind].clone();
        let places = fields(&object);
        *object.pointer_mut(place.get(&places).as_str()).unwrap() = json;
        // What is read once is read again.
        if let Ok(read) = through(object) {
            prop_assert_eq!(through(read.clone()).unwrap(), read);
        }
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn through<T: Serialize + DeserializeOwned>(value: Value) -> serde_json::Result<Value> {
    serde_json::to_value(serde_json::from_value::<T>(value)?)
}

/// An object by the rules of the vectors: null, empty and absent are one, and a quantity may be a number. Kind and
/// version, which our types always write, do not count.
fn meaning(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::Array(items) => {
            let items: Vec<Value> = items
                .iter()
                .map(|item| meaning(item).unwrap_or_default())
                .collect();
            (!items.is_empty()).then(|| items.into())
        }
        Value::Object(fields) => {
            let fields: serde_json::Map<_, _> = fields
                .iter()
                .filter(|(name, _)| {
                    !matches!(name.as_str(), "apiVersion" | "kind") || !fields.contains_key("spec")
                })
                .filter_map(|(name, value)| Some((name.clone(), meaning(value)?)))
                .collect();
            (!fields.is_empty()).then(|| fields.into())
        }
        Value::Number(number) => Some(number.to_string().trim_end_matches(".0").into()),
        other @ (Value::Bool(_) | Value::String(_)) => Some(other.clone()),
    }
}

/// The places of all fields below `spec` and `status`, except in what the schema leaves unchecked.
fn fields(object: &Value) -> Vec<String> {
    fn walk(value: &Value, pointer: &str, all: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let sidecar = [
                        "podInjectPolicy",
                        "upgradeStrategy",
                        "shareVolumePolicy",
                        "shareVolumeDevicePolicy",
                        "transferEnv",
                        "resourcesPolicy",
                    ];
                    let in_container = fields.contains_key("podInjectPolicy");
                    if in_container && !sidecar.contains(&name.as_str()) || is_map(pointer) {
                        continue;
                    }
                    let pointer = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
                    all.push(pointer.clone());
                    if name != "volumes" {
                        walk(value, &pointer, all);
                    }
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    walk(item, &format!("{pointer}/{index}"), all);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Maps have entries and no fields: an entry cannot be null.
    fn is_map(pointer: &str) -> bool {
        [
            "minAllowed",
            "maxAllowed",
            "target",
            "lowerBound",
            "upperBound",
            "uncappedTarget",
            "bucketWeights",
            "matchLabels",
            "annotations",
        ]
        .iter()
        .any(|name| pointer.ends_with(&format!("/{name}")))
    }

    let mut all = Vec::new();
    for part in ["spec", "status"] {
        walk(&object[part], &format!("/{part}"), &mut all);
    }
    all
}

/// The places of all texts that may be any text: not those of times, which have a form.
fn texts(object: &Value) -> Vec<String> {
    fields(object)
        .into_iter()
        .filter(|pointer| {
            let text = object.pointer(pointer).and_then(Value::as_str);
            text.is_some_and(|text| chrono::DateTime::parse_from_rfc3339(text).is_err())
        })
        .collect()
}
