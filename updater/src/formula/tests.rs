//! Sidecars that follow: their application, and their formula.

use common::{api::sidecarset::SidecarSet, patch::Operation};
use serde_json::{Value, json};

use super::*;
use crate::{
    decide::{Act, Evictions, Fate, Outcome, Turn},
    group::GroupKey,
    memory::Memory,
    testing::{Workload, workload},
    vpa::Vpa,
};

/// An agent gets so much of the app's requests; limits twice that.
fn policy(part: &str) -> Value {
    let side = |factor: &str| json!({"cpu": format!("cpu*{part}{factor}"), "memory": format!("memory*{part}{factor}")});
    json!({
        "targetContainersMode": "sum", "targetContainersNameRegex": "^app$",
        "resourcesExpr": {"requests": side(""), "limits": side("*1")},
    })
}

fn set(part: &str, strategy: &Value) -> SidecarSet {
    serde_json::from_value(json!({
        "metadata": {"name": "log"},
        "spec": {"containers": [{"name": "agent", "resourcesPolicy": policy(part)}], "updateStrategy": strategy},
        "status": {"latestRevision": "log-2"},
    }))
    .unwrap()
}

fn amounts(cpu: &str, memory: &str) -> Value {
    json!({"cpu": cpu, "memory": memory})
}

/// A pod whose app has 100m and 100Mi, limits twice that, and whose agent was sized by half of it.
fn sized(pod: &mut Value) {
    let entry = json!({"set": "log", "revision": "log-1", "formula": policy("50%")});
    let text = json!({"containers": {"agent": entry}, "sidecars": ["agent"]}).to_string();
    pod["metadata"]["annotations"][sizing::ANNOTATION] = json!(text);
    pod["metadata"]["annotations"]["vpaObservedContainers"] = json!("app, agent");
    pod["spec"]["containers"] = json!([
        {"name": "app", "resources": {"requests": amounts("100m", "100Mi"), "limits": amounts("200m", "200Mi")}},
        {"name": "agent", "resources": {"requests": amounts("50m", "50Mi"), "limits": amounts("100m", "100Mi")}},
    ]);
}

fn settled(workload: Workload) -> Workload {
    // The app is where it should be.
    workload.with(|workload| {
        workload.vpa["status"]["recommendation"]["containerRecommendations"] =
            json!([crate::testing::recommended("app", "100m", "100Mi")]);
    })
}

fn changed(workload: Workload, part: &str, strategy: &Value) -> Workload {
    settled(workload).with(|workload| workload.formulas.apply_set(&set(part, strategy)))
}

/// What the first pod's resize sets, `PATH = VALUE`, and its annotations.
fn patches(workload: &Workload) -> Vec<String> {
    let pods: Vec<Pod> = workload
        .pods
        .iter()
        .map(|pod| {
            let mut pod = pod.clone();
            pod["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true}]);
            serde_json::from_value(pod).unwrap()
        })
        .collect();
    let pods: Vec<&Pod> = pods.iter().collect();
    let vpa = Vpa::from(&serde_json::from_value(workload.vpa.clone()).unwrap());
    let formulary = Formulary::new(workload.formulas.clone(), pods.iter().copied());
    let formulas: Vec<_> = pods.iter().map(|pod| formulary.of(pod)).collect();
    let ranges = common::plan::LimitRanges::default();
    let replicas = |_: &GroupKey<'_>| Some(2);
    let mut memory = Memory::default();
    let mut turn = Turn::begin(
        &pods,
        &vpa,
        &replicas,
        &ranges,
        &workload.settings,
        Evictions::Allowed,
        workload.now,
    )
    .with_formulas(&formulas);
    let Some(Act::Resize(resize)) = turn.next(&mut memory, workload.now).map(|command| command.act) else {
        return Vec::new();
    };
    let all = resize.resources.iter().chain(&resize.annotations);
    all.map(|operation| match operation {
        Operation::Add { path, value } => {
            let value = serde_json::to_value(value).unwrap();
            format!("{path} = {}", value.as_str().unwrap_or("{}"))
        }
        Operation::Remove { path } => format!("{path} gone"),
    })
    .collect()
}

#[test]
fn a_sidecar_follows_its_application_in_the_same_patch() {
    // The app is recommended 200m and 200Mi.
    let workload = workload("InPlaceOrRecreate", 2).each(sized);
    assert_eq!(
        patches(&workload),
        [
            "/spec/containers/0/resources/requests/cpu = 200m",
            "/spec/containers/0/resources/requests/memory = 200Mi",
            "/spec/containers/0/resources/limits/cpu = 400m",
            "/spec/containers/0/resources/limits/memory = 400Mi",
            "/spec/containers/1/resources/requests/cpu = 100m",
            "/spec/containers/1/resources/requests/memory = 100Mi",
            "/spec/containers/1/resources/limits/cpu = 200m",
            "/spec/containers/1/resources/limits/memory = 200Mi",
            "/metadata/annotations/vpaInPlaceUpdated = true",
        ]
    );
}

#[test]
fn where_sets_play_no_part_nothing_is_remembered() {
    let mut pod = json!({"metadata": {"annotations": {}}, "spec": {}});
    sized(&mut pod);
    let pod: Pod = serde_json::from_value(pod).unwrap();
    assert_eq!(Formulary::off().of(&pod), PodFormulas::default());
    assert_ne!(Formulary::default().of(&pod), PodFormulas::default());
}

#[test]
fn the_formula_is_the_one_that_the_pod_remembers() {
    let workload = workload("InPlaceOrRecreate", 2).each(sized).with(|workload| {
        workload
            .formulas
            .apply_set(&set("10%", &json!({"type": "NotUpdate"})));
    });
    assert!(patches(&workload).contains(&"/spec/containers/1/resources/requests/cpu = 100m".to_owned()));
}

#[test]
fn a_pod_that_remembers_nothing_is_left_alone() {
    let forget = |pod: &mut Value| {
        sized(pod);
        pod["metadata"]["annotations"]
            .as_object_mut()
            .unwrap()
            .remove(sizing::ANNOTATION);
    };
    let follows = workload("InPlaceOrRecreate", 2).each(forget);
    assert!(
        patches(&follows)
            .iter()
            .all(|line| !line.contains("/containers/1/"))
    );
    let mut drifts = changed(workload("InPlaceOrRecreate", 2).each(forget), "80%", &json!({}));
    assert_eq!(drifts.first(), "NoChange");
}

#[test]
fn a_changed_formula_reaches_pods_in_place_as_far_as_its_set_rolls_out() {
    let of = |mode: &str| workload(mode, 2).each(sized);
    let young = |pod: &mut Value| pod["status"]["startTime"] = json!("2026-03-10T11:00:00Z");
    let labelled = |pod: &mut Value| pod["metadata"]["labels"] = json!({"app": "web"});
    let selector = |value: &str| json!({"selector": {"matchLabels": {"app": value}}});
    for (what, mut workload, expected) in [
        (
            "mode InPlace",
            changed(of("InPlace"), "80%", &json!({})),
            "resized",
        ),
        (
            "mode InPlaceOrRecreate",
            changed(of("InPlaceOrRecreate"), "80%", &json!({})),
            "resized",
        ),
        (
            "mode Recreate: never by eviction",
            changed(of("Recreate"), "80%", &json!({})),
            "NoChange",
        ),
        ("mode Initial", changed(of("Initial"), "80%", &json!({})), "Mode"),
        (
            "the same formula",
            changed(of("InPlace"), "50%", &json!({})),
            "NoChange",
        ),
        (
            "NotUpdate",
            changed(of("InPlace"), "80%", &json!({"type": "NotUpdate"})),
            "NoChange",
        ),
        (
            "paused",
            changed(of("InPlace"), "80%", &json!({"paused": true})),
            "NoChange",
        ),
        (
            "held back by the partition",
            changed(of("InPlace"), "80%", &json!({"partition": 2})),
            "NoChange",
        ),
        (
            "selected",
            changed(of("InPlace").each(labelled), "80%", &selector("web")),
            "resized",
        ),
        (
            "not selected",
            changed(of("InPlace").each(labelled), "80%", &selector("other")),
            "NoChange",
        ),
        (
            "a change under a tenth",
            changed(of("InPlace"), "52%", &json!({})),
            "SmallChange",
        ),
        (
            "a young pod",
            changed(of("InPlace").each(young), "80%", &json!({})),
            "TooYoung",
        ),
        ("a set that is gone", settled(of("InPlace")), "NoChange"),
    ] {
        // With bounds that are the target nothing is outside of them, so age and threshold decide.
        assert_eq!(workload.first(), expected, "{what}");
    }
    let lines = patches(&changed(of("InPlace"), "80%", &json!({})));
    let (path, text) = lines.last().unwrap().split_once(" = ").unwrap();
    assert_eq!(path, "/metadata/annotations/outrigger.dev~1sidecarset-sizing");
    assert_eq!(
        serde_json::from_str::<Value>(text).unwrap(),
        json!({
            "containers": {"agent": {"set": "log", "revision": "log-2", "formula": policy("80%")}},
            "sidecars": ["agent"],
        })
    );
}

#[test]
fn the_youngest_pods_are_moved_and_the_partition_stays() {
    for (partition, pods, moved) in [
        (json!(0), 3, 3),
        (json!(2), 3, 1),
        (json!("50%"), 3, 1),
        (json!("99%"), 5, 1),
        (json!("1%"), 5, 4),
        (json!("100%"), 5, 0),
    ] {
        let all: Vec<Pod> = (0..pods)
            .map(|index| {
                let mut pod = json!({"metadata": {
                    "uid": format!("{index}"), "annotations": {},
                    "creationTimestamp": format!("2026-03-0{}T12:00:00Z", index + 1),
                }, "spec": {}});
                sized(&mut pod);
                serde_json::from_value(pod).unwrap()
            })
            .collect();
        let mut index = FormulaIndex::default();
        index.apply_set(&set("80%", &json!({"partition": partition})));
        let formulary = Formulary::new(index, &all);
        let wants: Vec<bool> = all.iter().map(|pod| formulary.of(pod).wanted.is_some()).collect();
        let expected: Vec<bool> = (0..pods).map(|index| index >= pods - moved).collect();
        assert_eq!(wants, expected, "{partition} of {pods}");
    }
}

#[test]
fn what_is_news() {
    let pods: Vec<Pod> = (0..3)
        .map(|index| {
            let mut pod = json!({"metadata": {"uid": format!("{index}"), "annotations": {}}, "spec": {}});
            sized(&mut pod);
            serde_json::from_value(pod).unwrap()
        })
        .collect();
    let formulary = |part: &str, strategy: &Value, count: usize| {
        let mut index = FormulaIndex::default();
        index.apply_set(&set(part, strategy));
        Formulary::new(index, &pods[..count])
    };
    let [none, two] = [json!({}), json!({"partition": 2})];
    let before = formulary("80%", &two, 2);
    for (what, after, expected) in [
        ("nothing", formulary("80%", &two, 2), false),
        ("another formula", formulary("70%", &two, 2), true),
        ("another partition", formulary("80%", &none, 2), true),
        (
            "a pod more, so that one is reached",
            formulary("80%", &two, 3),
            true,
        ),
        ("a pod less", formulary("80%", &two, 1), false),
        ("the set is gone", Formulary::default(), true),
    ] {
        assert_eq!(after.is_news_to(&before), expected, "{what}");
    }
    let three = formulary("80%", &two, 3);
    assert!(!before.is_news_to(&three), "one that was reached is so no more");
}

#[test]
fn a_formula_that_fails_for_now_is_not_forgotten() {
    let two_agents = |pod: &mut Value| {
        sized(pod);
        let containers = pod["spec"]["containers"].as_array_mut().unwrap();
        let mut other = containers[1].clone();
        other["name"] = json!("other");
        containers.push(other);
        let text = pod["metadata"]["annotations"][sizing::ANNOTATION]
            .as_str()
            .unwrap();
        let mut remembered: Value = serde_json::from_str(text).unwrap();
        let mut failing = policy("50%");
        failing["resourcesExpr"]["requests"]["cpu"] = json!("100m - cpu");
        remembered["containers"]["other"] = json!({"set": "mesh", "revision": "mesh-1", "formula": failing});
        remembered["sidecars"] = json!(["agent", "other"]);
        pod["metadata"]["annotations"][sizing::ANNOTATION] = json!(remembered.to_string());
    };
    // On the 300m that the app is to have the second fails, and on the 200m that it has: it had 100m when it was sized.
    let workload = workload("InPlace", 2).each(two_agents).with(|workload| {
        for pod in &mut workload.pods {
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("200m");
        }
        workload.vpa["status"]["recommendation"]["containerRecommendations"] =
            json!([crate::testing::recommended("app", "300m", "300Mi")]);
        workload.formulas.apply_set(&set("80%", &json!({})));
    });
    let lines = patches(&workload);
    assert!(
        lines.iter().all(|line| !line.contains("/containers/2/")),
        "{lines:?}"
    );
    let (_, text) = lines.last().unwrap().split_once(" = ").unwrap();
    let remembered: Value = serde_json::from_str(text).unwrap();
    assert_eq!(remembered["containers"]["agent"]["formula"], policy("80%"));
    assert_eq!(
        remembered["containers"]["other"]["formula"]["resourcesExpr"]["requests"]["cpu"],
        "100m - cpu"
    );
}

#[test]
fn nobody_is_evicted_for_a_formula_alone() {
    let refused = |workload: Workload| {
        workload.with(|workload| {
            workload.resize_fails = vec![("web-0", Outcome::Refused), ("web-1", Outcome::Refused)];
        })
    };
    let drifts = changed(workload("InPlaceOrRecreate", 2).each(sized), "80%", &json!({}));
    let (done, fates) = refused(drifts).turn();
    assert_eq!(done, Vec::<String>::new());
    assert_eq!(fates, [Fate::Skipped(Skip::FormulaAlone); 2]);
    // For the application somebody is.
    let (done, _) = refused(workload("InPlaceOrRecreate", 2).each(sized)).turn();
    assert_eq!(done, ["evict web-0"]);
}

#[test]
fn what_cannot_be_done_in_place_is_skipped_and_the_application_is_not() {
    let guaranteed = |pod: &mut Value| {
        sized(pod);
        let containers = pod["spec"]["containers"].as_array_mut().unwrap();
        for container in containers {
            container["resources"]["requests"] = container["resources"]["limits"].clone();
        }
        let text = pod["metadata"]["annotations"][sizing::ANNOTATION]
            .as_str()
            .unwrap();
        let mut remembered: Value = serde_json::from_str(text).unwrap();
        let formula = &mut remembered["containers"]["agent"]["formula"]["resourcesExpr"];
        formula["requests"] = json!({"cpu": "cpu*20%", "memory": "memory*50%"});
        pod["metadata"]["annotations"][sizing::ANNOTATION] = json!(remembered.to_string());
    };
    // The agent would request less than its limit, and the pod be Burstable.
    let mut still = workload("InPlace", 2).each(guaranteed).with(|workload| {
        workload.vpa["status"]["recommendation"]["containerRecommendations"] =
            json!([crate::testing::recommended("app", "200m", "200Mi")]);
    });
    assert_eq!(still.first(), "QosWouldChange");
    let moving = workload("InPlace", 2).each(guaranteed).with(|workload| {
        workload.vpa["status"]["recommendation"]["containerRecommendations"] =
            json!([crate::testing::recommended("app", "300m", "300Mi")]);
    });
    let lines = patches(&moving);
    assert!(
        lines.contains(&"/spec/containers/0/resources/requests/cpu = 300m".to_owned()),
        "{lines:?}"
    );
    assert!(
        lines.iter().all(|line| !line.contains("/containers/1/")),
        "{lines:?}"
    );

    let unlimited = |pod: &mut Value| {
        sized(pod);
        pod["spec"]["containers"][0]["resources"]
            .as_object_mut()
            .unwrap()
            .remove("limits");
    };
    let mut vanishing = settled(workload("InPlace", 2).each(unlimited));
    assert_eq!(vanishing.first(), "LimitWouldVanish");
}
