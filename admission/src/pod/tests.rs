use common::{
    api::vpa::VerticalPodAutoscaler,
    target::{Controller, ControllerIndex, ControllerKey, ScaleLookup, WellKnown},
};
use serde_json::{Value, json};

use super::*;
use crate::{
    answer::{Answer, NeedsScale, Trouble, answer},
    review::Response,
};

struct Known(ControllerIndex);

impl Controllers for Known {
    fn well_known(&self, kind: WellKnown, namespace: &str, name: &str) -> Option<&Controller> {
        self.0.get(kind, namespace, name)
    }

    fn scale(&self, _: &ControllerKey) -> ScaleLookup<'_> {
        ScaleLookup::Unasked
    }
}

/// A StatefulSet `web` in namespace `shop` whose pods are `app: web`.
fn web() -> Known {
    let mut index = ControllerIndex::default();
    let labels = [("app".to_owned(), "web".to_owned())].into();
    index.apply(
        WellKnown::StatefulSet,
        "shop",
        "web",
        Controller::labelling(None, Some(&labels)),
    );
    Known(index)
}

fn vpa(spec: &Value) -> VerticalPodAutoscaler {
    let target = |name: &str| json!({"containerName": name, "target": {"cpu": "250m", "memory": "200Mi"}});
    let mut vpa = json!({
        "metadata": {"name": "v", "namespace": "shop"},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"}},
        "status": {"recommendation": {"containerRecommendations": [target("a"), target("proxy"), target("migrate")]}},
    });
    for (key, value) in spec.as_object().unwrap() {
        vpa["spec"][key] = value.clone();
    }
    serde_json::from_value(vpa).unwrap()
}

/// Container `a` with ratios 1.5 and 2, and `b` without resources (`spec/vpa.md` 9).
fn pod() -> Value {
    json!({
        "metadata": {"generateName": "web-", "labels": {"app": "web"}, "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u", "controller": true},
        ]},
        "spec": {"containers": [
            {"name": "a", "resources": {
                "requests": {"cpu": "100m", "memory": "100Mi"}, "limits": {"cpu": "150m", "memory": "200Mi"}}},
            {"name": "b", "resources": {}},
        ]},
    })
}

fn sidecar(name: &str, restart: &str) -> Value {
    json!({"name": name, "restartPolicy": restart, "resources": {"requests": {"cpu": "10m", "memory": "10Mi"}}})
}

fn review_of(pod: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u1", "operation": "CREATE", "namespace": "shop", "object": pod,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
    }})
}

fn answered(body: &Value, vpa: &VerticalPodAutoscaler, settings: &Settings) -> (Response, Option<Trouble>) {
    let mut vpas = VpaIndex::default();
    vpas.apply(vpa);
    let world = World {
        vpas: &vpas,
        controllers: &web(),
        limit_ranges: &HashMap::new(),
        formulas: &FormulaIndex::default(),
    };
    let Answer { response, trouble } = answer(&serde_json::to_vec(body).unwrap(), &world, settings).unwrap();
    (response, trouble)
}

/// `PATH = VALUE`, one line for each operation.
fn patched(pod: &Value, vpa: &VerticalPodAutoscaler, settings: &Settings) -> Vec<String> {
    let (response, trouble) = answered(&review_of(pod), vpa, settings);
    assert!(trouble.is_none(), "{trouble:?}");
    assert!(response.allowed);
    lines(&response.patch)
}

/// Does what the API server does with an answer.
fn apply(response: &Response, pod: &mut Value) {
    let patch: json_patch::Patch =
        serde_json::from_value(serde_json::to_value(&response.patch).unwrap()).unwrap();
    json_patch::patch(pod, &patch).unwrap();
}

fn lines(patch: &[Operation]) -> Vec<String> {
    patch
        .iter()
        .map(|operation| match operation {
            Operation::Add { path, value } => {
                let value = serde_json::to_value(value).unwrap();
                format!("{path} = {}", value.as_str().unwrap_or("{}"))
            }
            Operation::Remove { path } => format!("{path} removed"),
        })
        .collect()
}

fn never(gates: &str) -> Settings {
    Settings {
        gates: gates.parse().unwrap(),
        reinvocation: Reinvocation::Never,
        ..Settings::default()
    }
}

fn if_needed(gates: &str) -> Settings {
    Settings {
        reinvocation: Reinvocation::IfNeeded,
        ..never(gates)
    }
}

#[test]
fn the_worked_patch() {
    let expected = [
        "/metadata/annotations = {}",
        "/spec/containers/0/resources/requests/cpu = 250m",
        "/spec/containers/0/resources/requests/memory = 200Mi",
        "/spec/containers/0/resources/limits/cpu = 375m",
        "/spec/containers/0/resources/limits/memory = 400Mi",
        "/spec/containers/1/resources = {}",
        "/metadata/annotations/vpaUpdates = Pod resources updated by v: container 0: cpu request, memory request, \
         cpu limit, memory limit; container 1: ",
        "/metadata/annotations/vpaObservedContainers = a, b",
    ];
    assert_eq!(patched(&pod(), &vpa(&json!({})), &never("")), expected);
}

#[test]
fn a_boost_comes_first_and_says_what_was() {
    let vpa = vpa(&json!({"startupBoost": {"cpu": {"type": "Factor", "factor": 3}}}));
    let patch = patched(&pod(), &vpa, &never("CPUStartupBoost=true"));
    assert_eq!(
        patch[..5],
        [
            "/metadata/annotations = {}",
            "/metadata/annotations/vpaCpuStartupBoost~1a = \
             {\"requests\":{\"cpu\":\"100m\",\"memory\":\"100Mi\"},\"limits\":{\"cpu\":\"150m\",\"memory\":\"200Mi\"}}",
            "/spec/containers/0/resources/requests/cpu = 750m",
            "/spec/containers/0/resources/requests/memory = 200Mi",
            "/spec/containers/0/resources/limits/cpu = 1125m",
        ]
    );
}

#[test]
fn native_sidecars_are_patched_where_they_stand_and_ordinary_init_containers_nowhere() {
    let mut with_init = pod();
    with_init["spec"]["initContainers"] =
        json!([sidecar("migrate", "OnFailure"), sidecar("proxy", "Always")]);
    with_init["spec"]["containers"].as_array_mut().unwrap().pop();
    let vpa = vpa(&json!({}));
    let app = [
        "/metadata/annotations = {}",
        "/spec/containers/0/resources/requests/cpu = 250m",
        "/spec/containers/0/resources/requests/memory = 200Mi",
        "/spec/containers/0/resources/limits/cpu = 375m",
        "/spec/containers/0/resources/limits/memory = 400Mi",
    ];
    let updates = "/metadata/annotations/vpaUpdates = Pod resources updated by v: \
                   container 0: cpu request, memory request, cpu limit, memory limit";
    let on = [
        "/spec/initContainers/1/resources/requests/cpu = 250m".to_owned(),
        "/spec/initContainers/1/resources/requests/memory = 200Mi".to_owned(),
        format!("{updates}; initContainer 1: cpu request, memory request"),
        "/metadata/annotations/vpaObservedContainers = a, proxy".to_owned(),
    ];
    let off = [
        updates.to_owned(),
        "/metadata/annotations/vpaObservedContainers = a".to_owned(),
    ];
    let expected = |rest: &[String]| [&app.map(str::to_owned)[..], rest].concat();
    for settings in [never, if_needed] {
        assert_eq!(
            patched(&with_init, &vpa, &settings("NativeSidecar=true")),
            expected(&on)
        );
        assert_eq!(patched(&with_init, &vpa, &settings("")), expected(&off));
    }
}

#[test]
fn a_sidecar_injected_after_us_is_all_that_is_new() {
    let vpa = vpa(&json!({"startupBoost": {"cpu": {"type": "Factor", "factor": 2}}}));
    let settings = if_needed("NativeSidecar=true,CPUStartupBoost=true");
    let mut pod = pod();
    let (first, _) = answered(&review_of(&pod), &vpa, &settings);
    apply(&first, &mut pod);
    assert_eq!(patched(&pod, &vpa, &settings), [""; 0], "no boost on a boost");

    pod["spec"]["initContainers"] = json!([sidecar("proxy", "Always")]);
    let proxy = "\"requests\":{\"cpu\":\"10m\",\"memory\":\"10Mi\"}";
    let app_had = "\"had\":{\"requests\":{\"cpu\":\"100m\",\"memory\":\"100Mi\"},\"limits\":{\"cpu\":\"150m\",\"memory\":\"200Mi\"}}";
    let app_got = "\"got\":{\"requests\":{\"cpu\":\"500m\",\"memory\":\"200Mi\"},\"limits\":{\"cpu\":\"750m\",\"memory\":\"400Mi\"}}";
    let proxy_got = "\"got\":{\"requests\":{\"cpu\":\"500m\",\"memory\":\"200Mi\"}}";
    assert_eq!(
        patched(&pod, &vpa, &settings),
        [
            format!("/metadata/annotations/vpaCpuStartupBoost~1proxy = {{{proxy},\"limits\":{{}}}}"),
            "/spec/initContainers/0/resources/requests/cpu = 500m".to_owned(),
            "/spec/initContainers/0/resources/requests/memory = 200Mi".to_owned(),
            "/metadata/annotations/vpaUpdates = Pod resources updated by v: container 0: cpu request, memory request, \
             cpu limit, memory limit; container 1: ; initContainer 0: cpu request, memory request"
                .to_owned(),
            "/metadata/annotations/vpaObservedContainers = a, b, proxy".to_owned(),
            format!(
                "/metadata/annotations/outrigger.dev~1original-resources = \
                 {{\"a\":{{{app_had},{app_got}}},\"proxy\":{{\"had\":{{{proxy}}},{proxy_got}}}}}"
            ),
        ]
    );
}

#[test]
fn what_another_webhook_changed_is_the_new_base() {
    let vpa = vpa(&json!({"startupBoost": {"cpu": {"type": "Factor", "factor": 2}}}));
    let settings = if_needed("CPUStartupBoost=true");
    let mut pod = pod();
    let (first, _) = answered(&review_of(&pod), &vpa, &settings);
    apply(&first, &mut pod);
    pod["spec"]["containers"][0]["resources"]["limits"]["memory"] = json!("800Mi");
    let patch = patched(&pod, &vpa, &settings);
    // The memory limit is four times what is requested now, and stays so; the boost counts from where it started.
    let original = "{\"requests\":{\"cpu\":\"100m\",\"memory\":\"200Mi\"},\"limits\":{\"cpu\":\"150m\",\"memory\":\"800Mi\"}}";
    let got = "{\"requests\":{\"cpu\":\"500m\",\"memory\":\"200Mi\"},\"limits\":{\"cpu\":\"750m\",\"memory\":\"800Mi\"}}";
    assert_eq!(
        patch,
        [
            format!("/metadata/annotations/vpaCpuStartupBoost~1a = {original}"),
            format!(
                "/metadata/annotations/outrigger.dev~1original-resources = {{\"a\":{{\"had\":{original},\"got\":{got}}}}}"
            ),
        ]
    );
}

#[test]
fn what_is_too_much_to_remember_is_done_once() {
    let vpa = vpa(&json!({
        "startupBoost": {"cpu": {"type": "Quantity", "quantity": "1"}},
    }));
    let settings = if_needed("CPUStartupBoost=true");
    for (containers, filling) in [(1_000, 10), (2, 256 * 1024 - 200)] {
        let mut pod = pod();
        pod["metadata"]["annotations"] = json!({"filling": "x".repeat(filling)});
        pod["spec"]["containers"] = (0..containers)
            .map(|index| json!({"name": format!("c{index}")}))
            .collect();
        let (first, trouble) = answered(&review_of(&pod), &vpa, &settings);
        assert!(trouble.is_none());
        assert_eq!(
            lines(&first.patch).last().unwrap(),
            "/metadata/annotations/outrigger.dev~1original-resources = too large"
        );
        apply(&first, &mut pod);
        assert_eq!(patched(&pod, &vpa, &settings), [""; 0]);
    }
}

#[test]
fn a_memory_that_cannot_be_read_is_none() {
    let vpa = vpa(&json!({}));
    for text in [
        "",
        "{",
        "[]",
        "{\"a\":1}",
        "{\"a\":{\"got\":{\"requests\":{\"cpu\":\"x\"}}}}",
        "{\"a\":{}}",
    ] {
        let mut pod = pod();
        pod["metadata"]["annotations"] = json!({MEMORY_ANNOTATION: text});
        let patch = patched(&pod, &vpa, &if_needed(""));
        assert!(
            patch.contains(&"/spec/containers/0/resources/limits/cpu = 375m".to_owned()),
            "{text}: {patch:#?}"
        );
    }
}

#[test]
fn who_is_left_alone() {
    let off = vpa(&json!({"updatePolicy": {"updateMode": "Off"}}));
    let boosting = vpa(&json!({"updatePolicy": {"updateMode": "Off"}, "startupBoost": {}}));
    let auto = vpa(&json!({}));
    let mut other = pod();
    other["metadata"]["labels"] = json!({"app": "db"});
    let observed = "/metadata/annotations/vpaObservedContainers = a, b".to_owned();
    for (what, pod, vpa, touched) in [
        ("mode Off", pod(), &off, false),
        ("mode Off with a boost, even an empty one", pod(), &boosting, true),
        ("mode Recreate", pod(), &auto, true),
        ("other labels", other, &auto, false),
    ] {
        let patch = patched(&pod, vpa, &never("CPUStartupBoost=true"));
        assert_eq!(patch.contains(&observed), touched, "{what}: {patch:#?}");
        assert_eq!(patch.is_empty(), !touched, "{what}: {patch:#?}");
    }
}

#[test]
fn a_named_pod_is_where_the_request_says() {
    let mut named = pod();
    named["metadata"]["name"] = json!("web-0");
    let vpa = vpa(&json!({}));
    let quirky = Settings {
        quirks: Quirks::all(),
        ..never("")
    };
    assert!(!patched(&named, &vpa, &never("")).is_empty());
    assert!(patched(&named, &vpa, &quirky).is_empty());
    named["metadata"]["namespace"] = json!("shop");
    assert!(!patched(&named, &vpa, &quirky).is_empty());
}

#[test]
fn what_cannot_be_done_is_allowed_as_it_is() {
    let vpa = vpa(&json!({}));
    let with = |path: &str, value: Value| {
        let mut review = review_of(&pod());
        *review.pointer_mut(path).unwrap() = value;
        review
    };
    let cases = [
        (
            "an unreadable review",
            json!({"request": 7}),
            "",
            "cannot read the admission review",
        ),
        ("no request", json!({}), "", "the admission review has no request"),
        (
            "another version",
            with("/request/resource/version", json!("v2")),
            "u1",
            "only v1 pods",
        ),
        (
            "no object",
            with("/request/object", Value::Null),
            "u1",
            "no object",
        ),
        (
            "no pod",
            with("/request/object/spec", json!("text")),
            "u1",
            "cannot read the pod",
        ),
        (
            "a bad quantity",
            with(
                "/request/object/spec/containers/0/resources/requests/cpu",
                json!("much"),
            ),
            "u1",
            "cannot read the pod",
        ),
        (
            "an owner that is gone",
            with("/request/object/metadata/ownerReferences/0/name", json!("gone")),
            "u1",
            "StatefulSet shop/gone does not exist",
        ),
    ];
    for (what, body, uid, expected) in cases {
        let (response, trouble) = answered(&body, &vpa, &Settings::default());
        assert_eq!(response, Response::allowed(uid.to_owned()), "{what}");
        let trouble = trouble.unwrap().to_string();
        assert!(trouble.contains(expected), "{what}: {trouble}");
    }
    let (response, trouble) = answered(
        &with("/request/resource/resource", json!("nodes")),
        &vpa,
        &Settings::default(),
    );
    assert_eq!(response, Response::allowed("u1".to_owned()));
    assert!(trouble.is_none());
}

#[test]
fn an_unknown_kind_has_to_be_asked_for() {
    let mut pod = pod();
    pod["metadata"]["ownerReferences"][0]["kind"] = json!("CloneSet");
    let mut vpas = VpaIndex::default();
    vpas.apply(&vpa(&json!({})));
    let world = World {
        vpas: &vpas,
        controllers: &web(),
        limit_ranges: &HashMap::new(),
        formulas: &FormulaIndex::default(),
    };
    let body = serde_json::to_vec(&review_of(&pod)).unwrap();
    let NeedsScale(key) = answer(&body, &world, &Settings::default()).unwrap_err();
    assert_eq!(key.to_string(), "CloneSet shop/web");
}

#[test]
fn odd_pods_are_answered() {
    let vpa = vpa(&json!({"startupBoost": {"cpu": {"type": "Factor", "factor": 2_000_000_000}}}));
    let mut odd = pod();
    odd["metadata"]["annotations"] = json!({"\u{0}é\u{1F980}/~": "\u{202e}".repeat(100_000)});
    odd["spec"]["containers"] = json!([
        {"name": "a", "resources": {"requests": {"cpu": "9999999999E", "memory": "-1"}, "limits": {"cpu": "1n"}}},
        {"name": "a", "resources": null},
        {"name": "\u{0}/~\"\\é", "resources": {"requests": {}, "limits": {"memory": "1e-9"}}},
        {"name": ""},
    ]);
    odd["spec"]["initContainers"] = json!([{"name": "a", "restartPolicy": "Always"}, {}]);
    for settings in [never, if_needed] {
        let settings = settings("NativeSidecar=true,CPUStartupBoost=true");
        let (response, trouble) = answered(&review_of(&odd), &vpa, &settings);
        assert!(trouble.is_none(), "{trouble:?}");
        apply(&response, &mut odd.clone());
    }
}
