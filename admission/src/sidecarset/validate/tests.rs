//! Validation in the words of `spec/sidecarset.md` 1.8, 3.9 and 4.5.

use common::{
    gates::{Gate, Gates},
    sidecarset::{
        Revisions, Sets,
        matching::{BASE, CANARY},
        revision::new_revision,
    },
};
use serde_json::{Value, json};

use super::*;
use crate::sidecarset::default::defaulted;

/// What is known, and what a set is checked against.
struct Cluster {
    sets: Sets,
    revisions: Revisions,
    gates: Gates,
    annotations: AnnotationKeys,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            sets: Sets::default(),
            revisions: Revisions::kept_in("outrigger"),
            gates: Gates::default().with(Gate::NativeSidecar, true),
            annotations: AnnotationKeys::Matching(vec![Regex::new("^ok").unwrap()]),
        }
    }
}

impl Cluster {
    fn findings(&self, set: &SidecarSet, old: Option<&SidecarSet>) -> Findings {
        let world = World {
            sets: &self.sets,
            revisions: &self.revisions,
            gates: &self.gates,
            annotations: &self.annotations,
        };
        validate(set, old, &world)
    }

    fn faults(&self, set: &SidecarSet) -> Vec<String> {
        let found = self.findings(set, None).faults;
        found.iter().map(ToString::to_string).collect()
    }
}

fn object(name: &str, annotations: &Value, spec: &Value) -> SidecarSet {
    let set = json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec});
    serde_json::from_value(defaulted(&set).unwrap()).unwrap()
}

fn merge(target: &mut Value, changes: Value) {
    let Value::Object(changes) = changes else {
        panic!("{changes} is no object");
    };
    target.as_object_mut().unwrap().extend(changes);
}

/// A good set with some members of its spec changed.
fn set(changes: Value) -> SidecarSet {
    let mut spec = json!({
        "selector": {"matchLabels": {"app": "web"}},
        "containers": [{"name": "c", "image": "i"}],
    });
    merge(&mut spec, changes);
    object("s", &json!({}), &spec)
}

#[test]
fn a_good_set_is_good() {
    assert_eq!(Cluster::default().faults(&set(json!({}))), Vec::<String>::new());
}

#[test]
fn every_rule_has_its_message() {
    let bad_selector = json!({"matchExpressions": [{"key": "a", "operator": "badOp"}]});
    let native = json!([{"name": "n", "image": "i", "restartPolicy": "Always"}]);
    let with = |field: &str, value: Value| json!([{"name": "c", "image": "i", field: value}]);
    let from =
        |path: &str| json!([{"sourceContainerNameFrom": {"fieldRef": {"fieldPath": path}}, "envName": "E"}]);
    for (changes, expected) in [
        (
            json!({"initContainers": native}),
            "spec.updateStrategy: Required value: The initContainer in-place upgrade is not currently supported.",
        ),
        (
            json!({"selector": null}),
            "spec.selector: Required value: no selector defined for SidecarSet",
        ),
        (
            json!({"selector": {}}),
            "spec.selector: Required value: empty selector is not valid for sidecarset.",
        ),
        (
            json!({"namespaceSelector": {}}),
            "spec.namespaceSelector: Required value: empty selector is not valid for sidecarset.",
        ),
        (
            json!({"updateStrategy": {"selector": {}}}),
            "spec.updateStrategy.selector: Required value: empty selector is not valid for sidecarset.",
        ),
        (
            json!({"selector": bad_selector}),
            "spec.selector: Invalid value: \"{\\\"matchExpressions\\\":[{\\\"key\\\":\\\"a\\\",\\\"operator\\\":\\\"badOp\\\"}]}\": \
             unknown operator \"badOp\": use In, NotIn, Exists or DoesNotExist",
        ),
        (
            json!({"injectionStrategy": {"revision": {"policy": "Partial"}}}),
            "spec.injectionStrategy.revision: Required value: revisionName and customVersion cannot be empty simultaneously",
        ),
        (
            json!({"injectionStrategy": {"revision": {"revisionName": "gone"}}}),
            "spec.injectionStrategy.revision: Invalid value: \"gone\": Cannot find specific ControllerRevision, err: \
             ControllerRevision outrigger/gone of SidecarSet s is not found: correct \
             spec.injectionStrategy.revision.revisionName, or remove it to inject the newest revision",
        ),
        (
            json!({"injectionStrategy": {"revision": {"revisionName": "s-1", "policy": "Sometimes"}}}),
            "spec.injectionStrategy.revision.policy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"Partial\"",
        ),
        (
            json!({"updateStrategy": {"partition": "0%", "selector": {"matchLabels": {"a": "b"}}}}),
            "spec.updateStrategy: Required value: Partition and Selector cannot be used together",
        ),
        (
            json!({"updateStrategy": {"partition": -1}}),
            "spec.updateStrategy.partition: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            json!({"updateStrategy": {"maxUnavailable": "x%"}}),
            "spec.updateStrategy.maxUnavailable: Invalid value: \"x%\": must be an integer or percentage (e.g '5%')",
        ),
        (
            json!({"updateStrategy": {"type": "Sometimes"}}),
            "spec.updateStrategy.type: Unsupported value: \"Sometimes\": supported values: \"RollingUpdate\", \"NotUpdate\"",
        ),
        (
            json!({"updateStrategy": {"priorityStrategy": {"weightPriority": [{"weight": 101, "matchSelector": {"matchLabels": {"a": "b"}}}]}}}),
            "spec.updateStrategy.priorityStrategy.weightPriority[0].weight: Invalid value: 101: must be between 0 and 100",
        ),
        (
            json!({"updateStrategy": {"priorityStrategy": {"orderPriority": [{"orderedKey": ""}]}}}),
            "spec.updateStrategy.priorityStrategy.orderPriority[0].orderedKey: Required value: order key is required",
        ),
        (
            json!({"updateStrategy": {"scatterStrategy": [{"key": "a", "value": "b"}, {"key": "a", "value": "b"}]}}),
            "spec.updateStrategy.scatterStrategy[1]: Duplicate value: \"a=b\"",
        ),
        (
            json!({"containers": []}),
            "spec: Required value: no initContainer or container defined for SidecarSet",
        ),
        (
            json!({"containers": with("podInjectPolicy", json!("Inside"))}),
            "spec.containers[0].podInjectPolicy: Unsupported value: \"Inside\": supported values: \"BeforeAppContainer\", \"AfterAppContainer\"",
        ),
        (
            json!({"containers": with("shareVolumePolicy", json!({"type": "maybe"}))}),
            "spec.containers[0].shareVolumePolicy.type: Unsupported value: \"maybe\": supported values: \"enabled\", \"disabled\"",
        ),
        (
            json!({"containers": with("transferEnv", from("metadata.name"))}),
            "spec.containers[0].transferEnv[0].sourceContainerNameFrom.fieldRef.fieldPath: Invalid value: \"metadata.name\": \
             must be metadata.labels['KEY'] or metadata.annotations['KEY']",
        ),
        (
            json!({"containers": with("volumeMounts", json!([{"name": "gone", "mountPath": "/m"}]))}),
            "spec.containers[0].volumeMounts[0].name: Not found: \"gone\"",
        ),
        (
            json!({"containers": [{"name": "C", "image": "i"}]}),
            "spec.containers[0].name: Invalid value: \"C\": must be a lower-case DNS label",
        ),
        (
            json!({"containers": [{"name": "c"}]}),
            "spec.containers[0].image: Required value: a container needs an image",
        ),
        (
            json!({"initContainers": [{"name": "c", "image": "i"}]}),
            "spec.containers[0].name: Duplicate value: \"c\"",
        ),
        (
            json!({"volumes": [{"name": "v"}, {"name": "v"}]}),
            "spec.volumes[1].name: Duplicate value: \"v\"",
        ),
        (
            json!({"patchPodMetadata": [{"annotations": {}}]}),
            "spec.patchPodMetadata[0].annotations: Required value: no annotations defined for SidecarSet",
        ),
        (
            json!({"patchPodMetadata": [{"annotations": {"ok key": "v"}}]}),
            "spec.patchPodMetadata[0].annotations: Invalid value: \"ok key\": not a valid annotation key",
        ),
        (
            json!({"patchPodMetadata": [{"annotations": {"ok": "v"}}, {"annotations": {"ok": "w"}}]}),
            "spec.patchPodMetadata[1].annotations: Duplicate value: \"ok\"",
        ),
        (
            json!({"patchPodMetadata": [{"annotations": {"other": "v"}}]}),
            "spec.patchPodMetadata[0].annotations: Forbidden: annotation other is not allowed: let \
             --sidecarset-annotation-keys have an expression for it",
        ),
    ] {
        let mut cluster = Cluster::default();
        let mut revision = new_revision(&set(json!({})), "outrigger", 1, 0);
        revision.metadata.name = Some("s-1".to_owned());
        cluster.revisions.apply(revision);
        assert_eq!(cluster.faults(&set(changes.clone())), [expected], "{changes}");
    }
}

#[test]
fn not_update_needs_none_of_what_rolling_does() {
    let native = json!([{"name": "n", "image": "i", "restartPolicy": "Always"}]);
    let strategy = json!({"type": "NotUpdate", "partition": "x", "selector": {"matchLabels": {"a": "b"}}});
    let found = Cluster::default().faults(&set(
        json!({"initContainers": native, "updateStrategy": strategy}),
    ));
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn names_are_simple_and_short() {
    for (name, good) in [
        ("a-1", true),
        ("A", true),
        ("a.b", false),
        ("", false),
        (&"x".repeat(64), false),
    ] {
        let spec =
            json!({"selector": {"matchLabels": {"a": "b"}}, "containers": [{"name": "c", "image": "i"}]});
        let found = Cluster::default().faults(&object(name, &json!({}), &spec));
        assert_eq!(found.is_empty(), good, "{name}: {found:?}");
    }
}

fn policy(changes: Value) -> Value {
    let mut policy =
        json!({"targetContainersMode": "sum", "targetContainersNameRegex": ".*", "resourcesExpr": {}});
    merge(&mut policy, changes);
    policy
}

/// `spec/sidecarset.md` 4.5, with what `DESIGN.md` 4 has different.
#[test]
fn formulas_are_checked_before_there_are_pods() {
    let cpu = |expression: &str| policy(json!({"resourcesExpr": {"limits": {"cpu": expression}}}));
    let memory = |expression: &str| policy(json!({"resourcesExpr": {"requests": {"memory": expression}}}));
    let invalid = "Invalid value";
    for (policy, expected) in [
        (cpu("max(cpu*50%, 50m)"), None),
        (cpu("0.5*cpu - 0.3*max(0, cpu-4) + 0.3*max(0, cpu-8)"), None),
        (cpu("max( cpu * 0.5 , 50m )"), None),
        (cpu("max(min(cpu*50%, 100m), 50m)"), None),
        (memory("100Mi"), None),
        (cpu("cpu-2"), None),
        (memory("memory-100Mi"), None),
        (
            policy(json!({"targetContainersNameRegex": "", "resourcesExpr": {"limits": {"cpu": "cpu"}}})),
            Some("targetContainersNameRegex: Required value: invalid empty regex"),
        ),
        (
            policy(
                json!({"targetContainersNameRegex": "[invalid(regex", "resourcesExpr": {"limits": {"cpu": "cpu"}}}),
            ),
            Some("targetContainersNameRegex: Invalid value: \"[invalid(regex\": invalid regex pattern: "),
        ),
        (
            policy(json!({})),
            Some(
                "resourcesExpr: Invalid value: \"{}\": at least one of limits or requests must be configured",
            ),
        ),
        (
            policy(json!({"targetContainersMode": "avg", "resourcesExpr": {"limits": {"cpu": "cpu"}}})),
            Some("targetContainersMode: Unsupported value: \"avg\": supported values: \"sum\", \"max\""),
        ),
        (cpu("invalid expression @#$"), Some(invalid)),
        (cpu("max(cpu*50%, 50m"), Some(invalid)),
        (cpu("max(cpu*50%)"), Some(invalid)),
        (cpu("invalidvar * 50%"), Some(invalid)),
        (cpu("cpu +*/ 50%"), Some(invalid)),
        (cpu("memory*50%"), Some(invalid)),
        (memory("cpu*50%"), Some(invalid)),
        (cpu("cpu*cpu"), Some(invalid)),
        (cpu("1/cpu"), Some(invalid)),
        (memory("100MB"), Some(invalid)),
    ] {
        let found = Cluster::default().faults(&set(
            json!({"containers": [{"name": "c", "image": "i", "resourcesPolicy": policy}]}),
        ));
        match expected {
            None => assert_eq!(found, Vec::<String>::new(), "{policy}"),
            Some(invalid_expression) => {
                assert_eq!(found.len(), 1, "{policy}: {found:?}");
                let rest = found[0]
                    .strip_prefix("spec.containers[0].resourcesPolicy.")
                    .unwrap();
                let says = if invalid_expression == invalid {
                    rest.starts_with("resourcesExpr.") && rest.contains("invalid expression: ")
                } else {
                    rest.starts_with(invalid_expression)
                };
                assert!(says, "{policy}: {rest}");
            }
        }
    }
}

#[test]
fn a_formula_stands_alone_and_for_native_sidecars_needs_the_gate() {
    let formula = policy(json!({"resourcesExpr": {"limits": {"cpu": "cpu"}}}));
    for side in ["limits", "requests"] {
        let container =
            json!({"name": "c", "image": "i", "resources": {side: {"cpu": "1"}}, "resourcesPolicy": formula});
        assert_eq!(
            Cluster::default().faults(&set(json!({"containers": [container]}))),
            [
                "spec.containers[0].resourcesPolicy: Invalid value: \"c\": resourcesPolicy and resources cannot be configured together"
            ]
        );
    }
    let init = |restart: Value| {
        let container =
            json!({"name": "n", "image": "i", "restartPolicy": restart, "resourcesPolicy": formula});
        set(json!({"initContainers": [container], "updateStrategy": {"type": "NotUpdate"}}))
    };
    let on = Cluster::default();
    let off = Cluster {
        gates: Gates::default(),
        ..Cluster::default()
    };
    assert_eq!(on.faults(&init(json!("Always"))), Vec::<String>::new());
    let plain = "spec.initContainers[0].resourcesPolicy: Invalid value: \"n\": resourcesPolicy is only supported for \
                 containers with RestartPolicy Always";
    assert_eq!(on.faults(&init(Value::Null)), [plain]);
    assert_eq!(off.faults(&init(Value::Null)), [plain]);
    let found = off.faults(&init(json!("Always")));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("while the feature gate NativeSidecar is off"),
        "{found:?}"
    );
}

#[test]
fn a_change_brings_no_container_and_no_other_upgrade_type() {
    let old = set(json!({"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]}));
    let faults = |new: &SidecarSet| -> Vec<String> {
        let found = Cluster::default().findings(new, Some(&old)).faults;
        found.iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        faults(&set(json!({"containers": [{"name": "c", "image": "j"}]}))),
        Vec::<String>::new()
    );
    assert_eq!(
        faults(&set(json!({"containers": [{"name": "e", "image": "i"}]}))),
        ["spec.containers[0]: Forbidden: container e is not found: a SidecarSet gets no new containers"]
    );
    let hot = json!({"upgradeType": "HotUpgrade", "hotUpgradeEmptyImage": "e"});
    assert_eq!(
        faults(&set(
            json!({"containers": [{"name": "c", "image": "i", "upgradeStrategy": hot}]})
        )),
        [
            "spec.containers[0].upgradeStrategy.upgradeType: Invalid value: \"HotUpgrade\": upgradeType of container c is immutable"
        ]
    );
}

#[test]
fn hot_upgrade_is_warned_of() {
    let hot = json!({"upgradeType": "HotUpgrade", "hotUpgradeEmptyImage": "e"});
    let set = set(json!({"containers": [{"name": "c", "image": "i", "upgradeStrategy": hot}]}));
    let found = Cluster::default().findings(&set, None);
    assert_eq!(found.faults, []);
    assert_eq!(found.warnings.len(), 1);
}

#[test]
fn a_canary_has_a_base_that_is_none() {
    let spec = json!({
        "selector": {"matchLabels": {"app": "web"}}, "containers": [{"name": "c", "image": "i"}],
        "updateStrategy": {"type": "NotUpdate"},
    });
    let canary = |base: &str| json!({CANARY: "true", BASE: base});
    let mut cluster = Cluster::default();
    cluster.sets.apply(object("base", &json!({}), &spec));
    cluster.sets.apply(object("other", &canary("base"), &spec));
    let field = "metadata.annotations[apps.kruise.io/sidecarset-base]";
    let faults = |base: &str| cluster.faults(&object("s", &canary(base), &spec));
    assert_eq!(
        faults("s"),
        [format!(
            "{field}: Invalid value: \"s\": a SidecarSet cannot be the canary of itself"
        )]
    );
    assert_eq!(
        faults("gone"),
        [format!(
            "{field}: Invalid value: \"gone\": there is no SidecarSet of that name"
        )]
    );
    assert_eq!(
        faults("other"),
        [format!(
            "{field}: Invalid value: \"other\": that SidecarSet is a canary itself"
        )]
    );
    let mut rolling = spec.clone();
    rolling["updateStrategy"] = json!({});
    rolling["containers"][0]["name"] = json!("d");
    assert_eq!(
        cluster.faults(&object("s", &canary("base"), &rolling)),
        ["spec.updateStrategy.type: Forbidden: of a canary must be NotUpdate"]
    );
    let old = object("s", &canary("base"), &spec);
    let found = cluster
        .findings(&object("s", &json!({}), &spec), Some(&old))
        .faults;
    assert_eq!(
        found[0].to_string(),
        format!("{field}: Forbidden: a canary stays one of SidecarSet base")
    );
    // A canary has the containers of its base; that is no conflict, and the other canary is another matter.
    cluster.sets.remove("other");
    assert_eq!(
        cluster.faults(&object("s", &canary("base"), &spec)),
        Vec::<String>::new()
    );
}

#[test]
fn sets_that_may_meet_in_a_pod_share_no_names() {
    let ours = |selector: Value| {
        json!({
            "selector": selector,
            "initContainers": [{"name": "i", "image": "i"}],
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "same", "emptyDir": {}}],
            "patchPodMetadata": [
                {"annotations": {"ok-1": "a"}, "patchPolicy": "Overwrite"},
                {"annotations": {"ok-2": "a"}, "patchPolicy": "MergePatchJson"},
                {"annotations": {"ok-3": "a"}},
            ],
        })
    };
    let mut other = ours(json!({"matchLabels": {"app": "web"}}));
    other["volumes"][0] = json!({"name": "v", "hostPath": {"path": "/v"}});
    other["patchPodMetadata"][0]["patchPolicy"] = json!("MergePatchJson");
    let mut cluster = Cluster::default();
    cluster.sets.apply(object("other", &json!({}), &other));
    let found = cluster.faults(&object(
        "s",
        &json!({}),
        &ours(json!({"matchLabels": {"tier": "front"}})),
    ));
    assert_eq!(
        found,
        [
            "spec.initContainers: Invalid value: \"i\": container i already exists in SidecarSet other",
            "spec.containers: Invalid value: \"c\": container c already exists in SidecarSet other",
            "spec.volumes: Invalid value: \"v\": another volume v already exists in SidecarSet other",
            "spec.patchPodMetadata: Invalid value: \"ok-1\": annotation ok-1 already exists in SidecarSet other",
        ]
    );
    let expression = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "app", "operator": operator, "values": values}]});
    for (selector, meets) in [
        (json!({"matchLabels": {"app": "web"}}), true),
        (json!({"matchLabels": {"app": "db"}}), false),
        (expression("In", &["db", "web"]), true),
        (expression("In", &["db", "cache"]), false),
        (expression("NotIn", &["web"]), false),
        (expression("NotIn", &["db"]), true),
        (expression("DoesNotExist", &[]), false),
        (expression("Exists", &[]), true),
        // Kruise takes a key that the other side does not mention for one that it cannot have.
        (
            json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}),
            false,
        ),
    ] {
        let found = cluster.faults(&object("s", &json!({}), &ours(selector.clone())));
        assert_eq!(!found.is_empty(), meets, "{selector}");
    }
    let mut elsewhere = ours(json!({"matchLabels": {"app": "web"}}));
    elsewhere["namespaceSelector"] = json!({"matchLabels": {"team": "a"}});
    assert!(
        !cluster.faults(&object("s", &json!({}), &elsewhere)).is_empty(),
        "the other is for every namespace"
    );
}
