//! Injection in the words of `spec/sidecarset.md` 2.4 to 2.11 and 4.4 to 4.8.

use chrono::DateTime;
use common::{
    api::k8s::IntOrString,
    gates::{Gate, Gates},
    sidecarset::{Labels, Revisions, Sets, matching::NAMESPACE_NAME, revision::new_revision},
};
use serde_json::{Value, json};

use super::{build::Placed, *};

/// A cluster with sets and revisions.
struct Cluster {
    sets: Sets,
    revisions: Revisions,
    gates: Gates,
}

impl Cluster {
    fn with(sets: impl IntoIterator<Item = (&'static str, Value)>) -> Self {
        let mut cluster = Self {
            sets: Sets::default(),
            revisions: Revisions::kept_in("outrigger"),
            gates: Gates::default().with(Gate::NativeSidecar, true),
        };
        for (name, spec) in sets {
            cluster.sets.apply(set(name, spec));
        }
        cluster
    }

    fn inject(&self, pod: &Value) -> Result<Option<Injected>, String> {
        let namespace = Labels::from([(NAMESPACE_NAME.to_owned(), "shop".to_owned())]);
        let world = World {
            sets: &self.sets,
            revisions: &self.revisions,
            namespace: &namespace,
            gates: &self.gates,
            now: DateTime::from_timestamp(1_772_359_800, 0).unwrap(),
        };
        let injected = inject(pod, &world, &mut |_: &SidecarSet, share: Share, _: &str| {
            share.falls(0.5, 1)
        });
        let injected = injected.map_err(|error| error.to_string())?;
        if let Some(injected) = &injected {
            let mut patched = pod.clone();
            let patch = serde_json::to_value(&injected.patch).unwrap();
            let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
            json_patch::patch(&mut patched, &patch).unwrap();
            assert_eq!(patched, injected.pod, "the patch leads to the pod");
        }
        Ok(injected)
    }

    /// The pod that comes of a pod.
    fn pod(&self, pod: &Value) -> Value {
        self.inject(pod).unwrap().unwrap().pod
    }
}

fn set(name: &str, mut spec: Value) -> SidecarSet {
    spec["selector"] = json!({"matchLabels": {"app": "web"}});
    let annotations =
        json!({"kruise.io/sidecarset-hash": "h", "kruise.io/sidecarset-hash-without-image": "w"});
    serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": spec,
        "status": {"latestRevision": format!("{name}-7")},
    }))
    .unwrap()
}

fn pod() -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "app", "image": "nginx"}]},
    })
}

fn names(list: &Value) -> String {
    let list = list.as_array().map_or(&[][..], Vec::as_slice);
    let names = list.iter().map(|item| item["name"].as_str().unwrap());
    names.collect::<Vec<_>>().join(" ")
}

fn annotations(pod: &Value) -> &Value {
    &pod["metadata"]["annotations"]
}

#[test]
fn a_pod_gets_containers_records_and_nothing_more() {
    let cluster = Cluster::with([(
        "log",
        json!({
            "initContainers": [{"name": "prepare", "image": "p"}],
            "containers": [{"name": "agent", "image": "a", "podInjectPolicy": "AfterAppContainer",
                "transferEnv": [], "shareVolumePolicy": {"type": "disabled"}, "newerField": 1}],
        }),
    )]);
    let record = |hash: &str, revision: &str| {
        format!(
            r#"{{"log":{{"updateTimestamp":"2026-03-01T10:10:00Z","hash":"{hash}","sidecarSetName":"log","sidecarList":["agent"]{revision}}}}}"#
        )
    };
    assert_eq!(
        cluster.pod(&pod()),
        json!({
            "metadata": {"labels": {"app": "web"}, "annotations": {
                "kruise.io/sidecarset-hash": record("h", r#","controllerRevision":"log-7""#),
                "kruise.io/sidecarset-hash-without-image": record("w", ""),
                "kruise.io/sidecarset-injected-list": "log",
            }},
            "spec": {
                "initContainers": [{"name": "prepare", "image": "p", "env": [{"name": "IS_INJECTED", "value": "true"}]}],
                "containers": [
                    {"name": "app", "image": "nginx"},
                    {"name": "agent", "image": "a", "newerField": 1, "env": [{"name": "IS_INJECTED", "value": "true"}]},
                ],
            },
        })
    );
}

#[test]
fn a_pod_that_is_for_no_set_or_is_over_is_left_alone() {
    let spec = json!({"containers": [{"name": "agent", "image": "a"}]});
    let cluster = Cluster::with([("log", spec.clone())]);
    let with = |pointer: &str, value: Value| {
        let mut pod = pod();
        pod["status"] = json!({});
        pod["metadata"]["deletionTimestamp"] = Value::Null;
        *pod.pointer_mut(pointer).unwrap() = value;
        pod
    };
    for pod in [
        with("/metadata/labels/app", json!("db")),
        with("/status", json!({"phase": "Succeeded"})),
        with("/status", json!({"phase": "Failed"})),
        with("/metadata/deletionTimestamp", json!("2026-03-01T10:10:00Z")),
    ] {
        assert_eq!(cluster.inject(&pod).unwrap(), None, "{pod}");
    }
    let mut paused = spec;
    paused["injectionStrategy"] = json!({"paused": true});
    assert_eq!(Cluster::with([("log", paused)]).inject(&pod()).unwrap(), None);
}

/// The table of `spec/sidecarset.md` 2.5.
#[test]
fn containers_go_before_or_after_or_where_they_are() {
    for (present, injected, expected) in [
        ("app", "new-1(B) s-1(A) s-2(A)", "new-1* app s-1* s-2*"),
        ("s-1 app s-2", "s-1(A) s-2(A)", "s-1* app s-2*"),
        ("s-1 app s-2", "new-1(B) s-1(A) s-2(A)", "new-1* s-1* app s-2*"),
        ("", "new-1(B) s-1(A) s-2(A)", "new-1* s-1* s-2*"),
        ("app1 app2", "a b c", "app1 app2 a* b* c*"),
        ("app1 app2", "a(A) b(B) c(B)", "b* c* app1 app2 a*"),
    ] {
        let present = present.split_whitespace().map(|name| json!({"name": name}));
        let injected = injected.split_whitespace().map(|name| {
            let (name, policy) = name.split_once('(').unwrap_or((name, ""));
            let container = json!({"name": name, "new": true});
            Placed {
                container: container.as_object().unwrap().clone(),
                before: policy == "B)",
            }
        });
        let result = place::containers(present.collect(), injected.collect());
        let result: Vec<String> = result
            .iter()
            .map(|container| {
                let mark = if container["new"] == true { "*" } else { "" };
                format!("{}{mark}", container["name"].as_str().unwrap())
            })
            .collect();
        assert_eq!(result.join(" "), expected);
    }
}

#[test]
fn init_containers_are_sorted_over_all_sets_and_containers_keep_their_order() {
    let cluster = Cluster::with([
        (
            "a",
            json!({"initContainers": [{"name": "z"}, {"name": "b"}], "containers": [{"name": "y"}, {"name": "c"}]}),
        ),
        (
            "b",
            json!({"initContainers": [{"name": "a", "podInjectPolicy": "BeforeAppContainer"}], "containers": [{"name": "b"}]}),
        ),
    ]);
    let mut pod = pod();
    pod["spec"]["initContainers"] = json!([{"name": "own"}]);
    let pod = cluster.pod(&pod);
    assert_eq!(names(&pod["spec"]["initContainers"]), "a own b z");
    assert_eq!(names(&pod["spec"]["containers"]), "app y c b");
    assert_eq!(annotations(&pod)["kruise.io/sidecarset-injected-list"], "a,b");
}

#[test]
fn only_volumes_that_a_sidecar_mounts_come_along_and_the_pod_s_own_win() {
    let cluster = Cluster::with([(
        "log",
        json!({
            "volumes": [{"name": "unused", "emptyDir": {}}, {"name": "own", "emptyDir": {}},
                {"name": "disk", "newer": {}}, {"name": "first", "emptyDir": {}}],
            "initContainers": [{"name": "i", "volumeMounts": [{"name": "first", "mountPath": "/f"}]}],
            "containers": [{"name": "agent", "volumeMounts": [{"name": "own", "mountPath": "/o"}, {"name": "missing", "mountPath": "/m"}],
                "volumeDevices": [{"name": "disk", "devicePath": "/dev/d"}]}],
        }),
    )]);
    let mut pod = pod();
    pod["spec"]["volumes"] = json!([{"name": "own", "configMap": {"name": "c"}}]);
    assert_eq!(
        cluster.pod(&pod)["spec"]["volumes"],
        json!([
            {"name": "own", "configMap": {"name": "c"}},
            {"name": "first", "emptyDir": {}},
            {"name": "disk", "newer": {}},
        ])
    );
}

#[test]
fn a_sidecar_shares_mounts_devices_and_the_variables_of_their_paths() {
    let cluster = Cluster::with([(
        "log",
        json!({"containers": [{
            "name": "agent", "shareVolumePolicy": {"type": "enabled"}, "shareVolumeDevicePolicy": {"type": "enabled"},
            "env": [{"name": "OWN", "value": "agent's"}],
            "volumeMounts": [{"name": "mine", "mountPath": "/mine"}],
            "volumeDevices": [{"name": "dev", "devicePath": "/dev/mine"}],
        }]}),
    )]);
    let mut pod = pod();
    pod["spec"]["initContainers"] =
        json!([{"name": "init", "volumeMounts": [{"name": "i", "mountPath": "/init"}]}]);
    pod["spec"]["containers"] = json!([
        {"name": "app", "env": [{"name": "POD", "value": "p"}, {"name": "OWN", "value": "app's"}],
         "volumeMounts": [
            {"name": "logs", "mountPath": "/logs", "subPathExpr": "$(POD)/$(OWN)/$(GONE)/$(9X)"},
            {"name": "x", "mountPath": "/mine"}, {"name": "x", "mountPath": "/dev/mine"}],
         "volumeDevices": [{"name": "d", "devicePath": "/dev/d"}, {"name": "d", "devicePath": "/logs"}]},
        {"name": "other", "env": [{"name": "IS_INJECTED", "value": "true"}],
         "volumeMounts": [{"name": "n", "mountPath": "/injected"}]},
        {"name": "second", "volumeMounts": [{"name": "again", "mountPath": "/logs"}]},
    ]);
    let agent = &cluster.pod(&pod)["spec"]["containers"][3];
    assert_eq!(
        *agent,
        json!({
            "name": "agent",
            "env": [{"name": "OWN", "value": "agent's"}, {"name": "IS_INJECTED", "value": "true"}, {"name": "POD", "value": "p"}],
            "volumeMounts": [{"name": "mine", "mountPath": "/mine"},
                {"name": "logs", "mountPath": "/logs", "subPathExpr": "$(POD)/$(OWN)/$(GONE)/$(9X)"}],
            "volumeDevices": [{"name": "dev", "devicePath": "/dev/mine"}, {"name": "d", "devicePath": "/dev/d"}],
        })
    );
}

#[test]
fn variables_are_taken_over_whole_and_sorted_and_own_ones_win() {
    let cluster = Cluster::with([(
        "log",
        json!({"containers": [{
            "name": "agent", "env": [{"name": "A", "value": "own"}],
            "transferEnv": [
                {"sourceContainerName": "app", "envName": "Z", "envNames": ["A", "S", "GONE"]},
                {"sourceContainerName": "nobody", "envName": "Z"},
                {"sourceContainerNameFrom": {"fieldRef": {"fieldPath": "metadata.labels['main']"}}, "envName": "M"},
                {"sourceContainerNameFrom": {"fieldRef": {"fieldPath": "metadata.name"}}, "envName": "N"},
            ],
        }]}),
    )]);
    let mut pod = pod();
    pod["metadata"]["labels"]["main"] = json!("second");
    let secret = json!({"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}});
    pod["spec"]["containers"] = json!([
        {"name": "app", "env": [{"name": "Z", "value": "z"}, secret, {"name": "A", "value": "app"}]},
        {"name": "second", "env": [{"name": "M", "value": "m"}, {"name": "N", "value": "n"}]},
    ]);
    assert_eq!(
        cluster.pod(&pod)["spec"]["containers"][2]["env"],
        json!([
            {"name": "A", "value": "own"}, {"name": "IS_INJECTED", "value": "true"},
            secret, {"name": "Z", "value": "z"}, {"name": "M", "value": "m"},
        ])
    );
}

#[test]
fn secrets_come_once_each() {
    let cluster = Cluster::with([(
        "log",
        json!({"containers": [{"name": "agent"}], "imagePullSecrets": [{"name": "s0"}, {"name": "s1"}, {"name": "s2"}]}),
    )]);
    let mut pod = pod();
    pod["spec"]["imagePullSecrets"] = json!([{"name": "s2"}, {"name": "s3"}, {"name": "s3"}]);
    assert_eq!(
        names(&cluster.pod(&pod)["spec"]["imagePullSecrets"]),
        "s2 s3 s0 s1"
    );
}

#[test]
fn annotations_are_retained_overwritten_or_merged() {
    for (policy, present, value, expected) in [
        (Some("Retain"), Some("old"), "new", Ok("old")),
        (None, Some("old"), "new", Ok("old")),
        (Some("Retain"), None, "new", Ok("new")),
        (Some("Overwrite"), Some("old"), "new", Ok("new")),
        (
            Some("MergePatchJson"),
            Some(r#"{"log-agent":1}"#),
            r#"{"envoy":2}"#,
            Ok(r#"{"envoy":2,"log-agent":1}"#),
        ),
        (
            Some("MergePatchJson"),
            Some(r#"{"a":{"b":1,"c":2}}"#),
            r#"{"a":{"b":null}}"#,
            Ok(r#"{"a":{"c":2}}"#),
        ),
        (
            Some("MergePatchJson"),
            None,
            "not JSON, and kept",
            Ok("not JSON, and kept"),
        ),
        (Some("MergePatchJson"), Some("old"), r#"{"a":1}"#, Err(())),
        (Some("Unknown"), Some("old"), "new", Ok("old")),
    ] {
        let mut pod = pod();
        if let Some(present) = present {
            pod["metadata"]["annotations"] = json!({"key": present});
        }
        let spec = json!({"patchPodMetadata": [{"annotations": {"key": value}, "patchPolicy": policy}]});
        let found = Cluster::with([("log", spec)]).inject(&pod);
        match expected {
            Ok(expected) => {
                let pod = found.unwrap().unwrap().pod;
                // Nothing was injected, so nothing is noted.
                assert_eq!(
                    *annotations(&pod),
                    json!({"key": expected}),
                    "{policy:?} {present:?}"
                );
            }
            Err(()) => {
                let error = found.unwrap_err();
                assert!(
                    error.starts_with(r#"SidecarSet log: cannot merge "{\"a\":1}" into annotation key:"#),
                    "{error}"
                );
            }
        }
    }
}

/// `spec/sidecarset.md` 2.10, and the test of 4.8.
#[test]
fn a_hot_upgraded_sidecar_becomes_a_pair() {
    let cluster = Cluster::with([(
        "dns",
        json!({"containers": [
            {"name": "dns-f", "image": "dns:1.0", "podInjectPolicy": "BeforeAppContainer",
             "upgradeStrategy": {"upgradeType": "HotUpgrade", "hotUpgradeEmptyImage": "empty:1.0"}},
            {"name": "log-agent", "image": "log"},
        ]}),
    )]);
    let pod = cluster.pod(&pod());
    assert_eq!(names(&pod["spec"]["containers"]), "dns-f-1 dns-f-2 app log-agent");
    let containers = pod["spec"]["containers"].as_array().unwrap();
    assert_eq!(
        (&containers[0]["image"], &containers[1]["image"]),
        (&json!("dns:1.0"), &json!("empty:1.0"))
    );
    let from = |key: &str| json!({"fieldRef": {"apiVersion": "v1", "fieldPath": format!("metadata.annotations['{key}']")}});
    assert_eq!(
        containers[1]["env"],
        json!([
            {"name": "IS_INJECTED", "value": "true"},
            {"name": "SIDECARSET_VERSION", "valueFrom": from("version.sidecarset.kruise.io/dns-f-2")},
            {"name": "SIDECARSET_VERSION_ALT", "valueFrom": from("versionalt.sidecarset.kruise.io/dns-f-2")},
        ])
    );
    let annotations = annotations(&pod);
    for (key, value) in [
        ("version.sidecarset.kruise.io/dns-f-1", "1"),
        ("versionalt.sidecarset.kruise.io/dns-f-1", "0"),
        ("version.sidecarset.kruise.io/dns-f-2", "0"),
        ("versionalt.sidecarset.kruise.io/dns-f-2", "1"),
        (
            "kruise.io/sidecarset-working-hotupgrade-container",
            r#"{"dns-f":"dns-f-1"}"#,
        ),
    ] {
        assert_eq!(annotations[key], value, "{key}");
    }
    let hash = annotations["kruise.io/sidecarset-hash"].as_str().unwrap();
    assert!(hash.contains(r#""sidecarList":["dns-f","log-agent"]"#), "{hash}");
}

#[test]
fn native_sidecars_are_listed_and_may_be_hot_and_plain_ones_are_not() {
    let hot = json!({"upgradeType": "HotUpgrade", "hotUpgradeEmptyImage": "empty"});
    let cluster = Cluster::with([
        (
            "a",
            json!({"initContainers": [{"name": "init-1", "restartPolicy": "Always"}]}),
        ),
        (
            "b",
            json!({"initContainers": [{"name": "hot-init", "restartPolicy": "Always", "upgradeStrategy": hot}]}),
        ),
        (
            "c",
            json!({"initContainers": [{"name": "plain", "upgradeStrategy": hot}]}),
        ),
    ]);
    let pod = cluster.pod(&pod());
    assert_eq!(
        names(&pod["spec"]["initContainers"]),
        "hot-init-1 hot-init-2 init-1 plain"
    );
    let records = annotations(&pod)["kruise.io/sidecarset-hash"].as_str().unwrap();
    let records: Value = serde_json::from_str(records).unwrap();
    let list = |set: &str| records[set]["sidecarList"].clone();
    assert_eq!(
        (list("a"), list("b"), list("c")),
        (json!(["init-1"]), json!(["hot-init"]), json!([]))
    );
}

#[test]
fn what_earlier_injections_noted_is_kept_and_extended() {
    let cluster = Cluster::with([("log", json!({"containers": [{"name": "agent"}]}))]);
    let mut old = pod();
    old["metadata"]["annotations"] = json!({
        "kruise.io/sidecarset-hash": r#"{"other":"legacy"}"#,
        "kruise.io/sidecarset-injected-list": "other",
    });
    let annotated = annotations(&cluster.pod(&old)).clone();
    let records: Value =
        serde_json::from_str(annotated["kruise.io/sidecarset-hash"].as_str().unwrap()).unwrap();
    assert_eq!(records["other"]["hash"], "legacy");
    assert_eq!(records["log"]["hash"], "h");
    assert_eq!(annotated["kruise.io/sidecarset-injected-list"], "log,other");
    old["metadata"]["annotations"]["kruise.io/sidecarset-hash"] = json!("[]");
    let error = cluster.inject(&old).unwrap_err();
    assert!(error.contains("unmarshal failed"), "{error}");
}

/// An API server calls again when another webhook has changed the pod.
#[test]
fn a_pod_that_comes_back_as_it_went_stays_as_it_is() {
    let hot = json!({"upgradeType": "HotUpgrade", "hotUpgradeEmptyImage": "empty"});
    let policy = json!({"targetContainersMode": "sum", "resourcesExpr": {"requests": {"cpu": "cpu*50%"}}});
    let mut cluster = Cluster::with([(
        "log",
        json!({
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [
                {"name": "agent", "shareVolumePolicy": {"type": "enabled"}, "resourcesPolicy": policy,
                 "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
                {"name": "dns", "upgradeStrategy": hot, "resourcesPolicy": policy},
            ],
        }),
    )]);
    let mut pod = pod();
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    let mut once = cluster.pod(&pod);
    // What others have done to it meanwhile stays.
    let token = json!({"name": "token", "mountPath": "/token"});
    once["spec"]["containers"][1]["volumeMounts"] = json!([token]);
    once["spec"]["containers"][0]["resources"] = json!({});
    assert_eq!(cluster.inject(&once).unwrap().unwrap().patch, []);
    cluster
        .sets
        .apply(set("new", json!({"containers": [{"name": "more"}]})));
    let again = cluster.pod(&once);
    assert_eq!(names(&again["spec"]["containers"]), "app agent dns-1 dns-2 more");
    assert_eq!(again["spec"]["containers"][1]["volumeMounts"], json!([token]));
    // One that was injected by something else, or from another revision, is replaced.
    let text = once["metadata"]["annotations"]["kruise.io/sidecarset-hash"]
        .as_str()
        .unwrap();
    once["metadata"]["annotations"]["kruise.io/sidecarset-hash"] = text.replace("log-7", "log-6").into();
    once["spec"]["containers"][0] = pod["spec"]["containers"][0].clone();
    assert_ne!(
        cluster.pod(&once)["spec"]["containers"][1]["volumeMounts"],
        json!([token])
    );
}

fn with_policy(list: &str, container: Value, mode: &str, regex: &str, expressions: [&str; 4]) -> Value {
    let mut container = container;
    let [limits_cpu, limits_memory, requests_cpu, requests_memory] = expressions;
    container["resourcesPolicy"] = json!({
        "targetContainersMode": mode,
        "targetContainersNameRegex": regex,
        "resourcesExpr": {
            "limits": {"cpu": limits_cpu, "memory": limits_memory},
            "requests": {"cpu": requests_cpu, "memory": requests_memory},
        },
    });
    json!({list: [container]})
}

fn app(name: &str, [limit_cpu, limit_memory, request_cpu, request_memory]: [&str; 4]) -> Value {
    let side = |cpu: &str, memory: &str| {
        let amounts = [("cpu", cpu), ("memory", memory)].into_iter();
        let amounts = amounts.filter(|(_, amount)| !amount.is_empty());
        amounts
            .map(|(name, amount)| (name.to_owned(), json!(amount)))
            .collect::<Map<_, _>>()
    };
    let resources =
        json!({"limits": side(limit_cpu, limit_memory), "requests": side(request_cpu, request_memory)});
    json!({"name": name, "image": "i", "resources": resources})
}

/// The stories of the proposal with the numbers of `spec/sidecarset.md` 4.6.
#[test]
fn formulas_give_the_published_numbers() {
    let v4 = app("large-engine-v4", ["200m", "200Mi", "50m", "100Mi"]);
    let same = app("large-engine-v8", ["200m", "200Mi", "50m", "100Mi"]);
    let v8 = app("large-engine-v8", ["400m", "400Mi", "100m", "200Mi"]);
    let unlimited = app("large-engine-v8", ["", "400Mi", "100m", "200Mi"]);
    let app1 = app("app1", ["200m", "400Mi", "100m", "200Mi"]);
    let app2 = app("app2", ["400m", "600Mi", "200m", "300Mi"]);
    let half = ["max(cpu*50%, 50m)", "200Mi", "max(cpu*50%, 50m)", "100Mi"];
    let sidecar = || json!({"name": "sidecar", "image": "s"});
    for (story, apps, mode, regex, expressions, expected) in [
        (
            "1",
            [&v4, &same],
            "sum",
            "^large-engine-v4$",
            half,
            ["100m", "200Mi", "50m", "100Mi"],
        ),
        (
            "2",
            [&v4, &v8],
            "sum",
            "^large-engine-v.*$",
            half,
            ["300m", "200Mi", "75m", "100Mi"],
        ),
        (
            "3",
            [&v4, &v8],
            "max",
            "^large-engine-v.*$",
            half,
            ["200m", "200Mi", "50m", "100Mi"],
        ),
        (
            "4",
            [&v4, &unlimited],
            "max",
            "^large-engine-v.*$",
            half,
            ["", "200Mi", "50m", "100Mi"],
        ),
        (
            "5",
            [&app1, &app2],
            "sum",
            ".*",
            [
                "cpu*50% + 100m",
                "max(memory*20% + 100Mi, 200Mi)",
                "cpu*30% + 50m",
                "memory*15% + 50Mi",
            ],
            ["400m", "300Mi", "140m", "125Mi"],
        ),
    ] {
        let cluster = Cluster::with([(
            "log",
            with_policy("containers", sidecar(), mode, regex, expressions),
        )]);
        let mut pod = pod();
        pod["spec"]["containers"] = json!(apps);
        let expected = app("sidecar", expected)["resources"].clone();
        assert_eq!(
            cluster.pod(&pod)["spec"]["containers"][2]["resources"],
            expected,
            "story {story}"
        );
    }
    let native = json!({"name": "sidecar", "image": "s", "restartPolicy": "Always"});
    let expressions = [
        "max(cpu*30%, 50m)",
        "max(memory*25%, 100Mi)",
        "cpu*20%",
        "memory*15%",
    ];
    let spec = with_policy("initContainers", native, "sum", "^app.*$", expressions);
    let mut cluster = Cluster::with([("log", spec)]);
    let mut pod = pod();
    pod["spec"]["containers"] = json!([
        app("app1", ["400m", "800Mi", "200m", "400Mi"]),
        app("app2", ["600m", "1200Mi", "300m", "600Mi"]),
    ]);
    let expected = app("sidecar", ["300m", "500Mi", "100m", "150Mi"])["resources"].clone();
    assert_eq!(
        cluster.pod(&pod)["spec"]["initContainers"][0]["resources"],
        expected,
        "story 6"
    );

    cluster.gates = Gates::default();
    let injected = cluster.inject(&pod).unwrap().unwrap();
    assert_eq!(
        injected.pod["spec"]["initContainers"][0].get("resources"),
        None,
        "story 6 with the gate off"
    );
    assert_eq!(injected.warnings.len(), 1, "{:?}", injected.warnings);
}

#[test]
fn sidecars_of_all_sets_and_plain_init_containers_are_no_targets() {
    let expressions = ["cpu*50%", "memory*50%", "cpu*40%", "memory*40%"];
    let sized = with_policy("containers", json!({"name": "sidecar"}), "sum", ".*", expressions);
    let kruise = app("kruise-sidecar", ["1", "1Gi", "1", "1Gi"]);
    let kruise_init = app("kruise-init-sidecar", ["1", "1Gi", "1", "1Gi"]);
    let other = json!({"initContainers": [kruise_init], "containers": [kruise]});
    let cluster = Cluster::with([("log", sized), ("other", other)]);
    let mut pod = pod();
    pod["spec"]["initContainers"] = json!([app("plain-init", ["100m", "100Mi", "50m", "50Mi"])]);
    pod["spec"]["containers"] = json!([app("app1", ["200m", "200Mi", "100m", "100Mi"])]);
    let expected = app("sidecar", ["100m", "100Mi", "40m", "40Mi"])["resources"].clone();
    let pod = cluster.pod(&pod);
    assert_eq!(pod["spec"]["containers"][1]["resources"], expected);
}

#[test]
fn a_request_above_its_limit_is_lowered_to_it_and_said() {
    let spec = with_policy(
        "containers",
        json!({"name": "sidecar"}),
        "sum",
        ".*",
        ["cpu*50%", "", "cpu*2", ""],
    );
    let mut pod = pod();
    pod["spec"]["containers"] = json!([app("app1", ["1", "", "1", ""])]);
    let injected = Cluster::with([("log", spec)]).inject(&pod).unwrap().unwrap();
    assert_eq!(
        injected.pod["spec"]["containers"][1]["resources"],
        json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "500m"}})
    );
    assert_eq!(
        injected.warnings,
        ["SidecarSet log: container sidecar: the cpu request exceeds the limit and is lowered to it"]
    );
}

#[test]
fn a_formula_that_fails_on_the_pod_s_own_values_denies_it() {
    let spec = |regex, cpu| {
        with_policy(
            "containers",
            json!({"name": "sidecar"}),
            "sum",
            regex,
            [cpu, "", "", ""],
        )
    };
    let mut pod = pod();
    pod["spec"]["containers"] = json!([app("app1", ["1", "", "1", ""])]);
    for (spec, expected) in [
        (
            spec("^nobody$", "cpu"),
            "SidecarSet log: container sidecar: no containers match the regex pattern \"^nobody$\"",
        ),
        (
            spec(".*", "cpu-2"),
            "SidecarSet log: container sidecar: failed to evaluate CPU limits expression: failed to parse expression \"cpu-2\": calculation result is negative: -1",
        ),
    ] {
        let error = Cluster::with([("log", spec)]).inject(&pod).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn an_older_revision_is_injected_with_its_own_name_hash_and_formula() {
    let old = set("log", json!({"containers": [{"name": "agent", "image": "3"}]}));
    let mut revision = new_revision(&old, "outrigger", 4, 0);
    revision.metadata.name = Some("log-4".to_owned());
    revision
        .metadata
        .annotations
        .as_mut()
        .unwrap()
        .insert("kruise.io/sidecarset-hash".to_owned(), "then".to_owned());
    let strategy = |revision: Value| {
        json!({
            "containers": [{"name": "agent", "image": "5"}, {"name": "more"}],
            "injectionStrategy": {"revision": revision},
            "updateStrategy": {"partition": "40%"},
        })
    };
    let mut cluster = Cluster::with([("log", strategy(json!({"revisionName": "log-4"})))]);
    cluster.revisions.apply(revision);
    let injected = cluster.pod(&pod());
    assert_eq!(names(&injected["spec"]["containers"]), "app agent");
    assert_eq!(injected["spec"]["containers"][1]["image"], "3");
    let hash = annotations(&injected)["kruise.io/sidecarset-hash"]
        .as_str()
        .unwrap();
    assert!(
        hash.contains(r#""hash":"then""#) && hash.contains(r#""controllerRevision":"log-4""#),
        "{hash}"
    );

    let partial = json!({"revisionName": "log-4", "policy": "Partial"});
    cluster.sets.apply(set("log", strategy(partial)));
    assert_eq!(
        names(&cluster.pod(&pod())["spec"]["containers"]),
        "app agent more",
        "0.5 is not in 40%"
    );
    assert_eq!(
        cluster.inject(&injected).unwrap().unwrap().patch,
        [],
        "and no second draw"
    );

    // Nobody has given the newest revision a name yet, and it is kept all the same.
    let mut nameless = set(
        "log",
        strategy(json!({"revisionName": "log-4", "policy": "Partial"})),
    );
    nameless.status = None;
    cluster.sets.apply(nameless.clone());
    let newest = cluster.pod(&pod());
    assert_eq!(names(&newest["spec"]["containers"]), "app agent more");
    nameless.spec.update_strategy.partition = Some(IntOrString::String("100%".to_owned()));
    cluster.sets.apply(nameless);
    assert_eq!(cluster.inject(&newest).unwrap().unwrap().patch, []);

    cluster
        .sets
        .apply(set("log", strategy(json!({"customVersion": "gone"}))));
    assert_eq!(
        cluster.inject(&pod()).unwrap_err(),
        "SidecarSet log: no ControllerRevision of SidecarSet log in namespace outrigger has custom version \"gone\": \
         correct spec.injectionStrategy.revision.customVersion, or remove it to inject the newest revision"
    );
}
