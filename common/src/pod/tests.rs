use serde_json::{Value, json};

use super::*;

fn off() -> Gates {
    Gates::default()
}

fn on() -> Gates {
    Gates::default().with(Gate::NativeSidecar, true)
}

/// A pod as a mesh makes it: an ordinary init container, two native sidecars around another one, two containers.
fn mesh_pod() -> Pod {
    pod(json!({
        "metadata": {"name": "web-1", "namespace": "shop", "managedFields": [{"manager": "kubelet"}]},
        "spec": {
            "nodeName": "n1",
            "initContainers": [
                {"name": "migrate", "resources": {"requests": {"cpu": "2"}}},
                {"name": "istio-proxy", "restartPolicy": "Always", "resources": {
                    "requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "2", "memory": "1Gi"}},
                 "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]},
                {"name": "warm-up", "restartPolicy": "OnFailure"},
                {"name": "log-agent", "restartPolicy": "Always"},
            ],
            "containers": [
                {"name": "app", "resources": {"requests": {"cpu": "500m", "nvidia.com/gpu": "1"}}},
                {"name": "cache"},
            ],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {"name": "cache", "restartCount": 3},
                {"name": "app", "resources": {"requests": {"cpu": "700m"}}},
            ],
            "initContainerStatuses": [
                {"name": "migrate", "state": {"terminated": {"reason": "Completed"}}},
                {"name": "istio-proxy", "resources": {"requests": {"cpu": "150m", "memory": "128Mi"}}},
            ],
        },
    }))
}

fn pod(json: Value) -> Pod {
    serde_json::from_value(json).unwrap()
}

fn seen(pod: &Pod, gates: &Gates) -> Vec<String> {
    pod.managed(gates)
        .map(|c| format!("{} = {} at {}", c, c.name(), c.resources_path()))
        .collect()
}

#[test]
fn which_containers_are_managed() {
    let regular = [
        "container 0 = app at /spec/containers/0/resources",
        "container 1 = cache at /spec/containers/1/resources",
    ];
    let sidecars = [
        "initContainer 1 = istio-proxy at /spec/initContainers/1/resources",
        "initContainer 3 = log-agent at /spec/initContainers/3/resources",
    ];
    assert_eq!(seen(&mesh_pod(), &off()), regular);
    assert_eq!(seen(&mesh_pod(), &on()), [regular, sidecars].concat());
}

#[test]
fn which_init_containers_are_not() {
    let unmanaged = |gates| {
        mesh_pod()
            .unmanaged_init_containers(&gates)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        unmanaged(off()),
        ["migrate", "istio-proxy", "warm-up", "log-agent"]
    );
    assert_eq!(unmanaged(on()), ["migrate", "warm-up"]);
}

#[test]
fn a_native_sidecar_is_known_as_one_whatever_the_gate_says() {
    for (name, expected) in [
        ("istio-proxy", true),
        ("log-agent", true),
        ("migrate", false),
        ("app", false),
        ("no", false),
    ] {
        assert_eq!(mesh_pod().has_native_sidecar(name), expected, "{name}");
    }
}

#[test]
fn a_restart_policy_makes_no_sidecar_of_a_regular_container() {
    let pod = pod(json!({"spec": {"containers": [{"name": "app", "restartPolicy": "Always"}]}}));
    assert_eq!(
        seen(&pod, &on()),
        ["container 0 = app at /spec/containers/0/resources"]
    );
    assert!(!pod.has_native_sidecar("app"));
}

#[test]
fn what_a_container_has() {
    let pod = mesh_pod();
    let gates = on();
    let current = |name: &str| {
        let container = pod.managed_by_name(name, &gates).unwrap();
        let (resources, source) = container.current_resources();
        let cpu = resources
            .request("cpu")
            .map_or_else(|| "-".to_owned(), ToString::to_string);
        (cpu, source.to_string())
    };
    for (name, cpu, source) in [
        ("app", "700m", "Pod.Status.ContainerStatuses"),
        ("cache", "-", "Pod.Spec.Containers"),
        ("istio-proxy", "150m", "Pod.Status.InitContainerStatuses"),
        ("log-agent", "-", "Pod.Spec.InitContainers"),
    ] {
        assert_eq!(current(name), (cpu.to_owned(), source.to_owned()), "{name}");
    }
    let proxy = pod.managed_by_name("istio-proxy", &gates).unwrap();
    assert_eq!(proxy.spec_resources().request("cpu").unwrap().to_string(), "100m");
    assert_eq!(proxy.spec_resources().limit("memory").unwrap().to_string(), "1Gi");
    assert_eq!(
        pod.managed_by_name("cache", &gates)
            .unwrap()
            .status()
            .unwrap()
            .restart_count,
        3
    );
}

#[test]
fn names_without_the_gate_or_of_ordinary_init_containers_are_not_found() {
    let pod = mesh_pod();
    assert_eq!(pod.managed_by_name("istio-proxy", &off()), None);
    assert_eq!(pod.managed_by_name("migrate", &on()), None);
}

#[test]
fn paths_are_escaped() {
    let pod = mesh_pod();
    let app = pod.managed_by_name("app", &off()).unwrap();
    assert_eq!(
        app.resource_path(Side::Limits, "nvidia.com/gpu"),
        "/spec/containers/0/resources/limits/nvidia.com~1gpu"
    );
    assert_eq!(
        app.resource_path(Side::Requests, "a~b/c"),
        "/spec/containers/0/resources/requests/a~0b~1c"
    );
    assert_eq!(app.side_path(Side::Limits), "/spec/containers/0/resources/limits");
}

#[test]
fn who_restarts_on_a_resize() {
    let pod = mesh_pod();
    let gates = on();
    let restarts = |name: &str, resource| {
        pod.managed_by_name(name, &gates)
            .unwrap()
            .restarts_on_resize_of(resource)
    };
    assert!(restarts("istio-proxy", "memory"));
    assert!(!restarts("istio-proxy", "cpu"));
    assert!(!restarts("app", "memory"));
}

#[test]
fn an_absent_map_differs_from_an_empty_one() {
    let pod = pod(json!({"spec": {"containers": [
        {"name": "none"}, {"name": "null", "resources": null}, {"name": "empty", "resources": {"requests": {}}},
    ]}}));
    let requests: Vec<_> = pod
        .managed(&off())
        .map(|c| c.spec_resources().requests.clone())
        .collect();
    assert_eq!(requests, [None, None, Some(ResourceList::new())]);
}

#[test]
fn what_go_writes_as_null_is_absent() {
    let pod = pod(json!({
        "metadata": {"name": "p", "creationTimestamp": null, "labels": null},
        "spec": {"containers": null, "initContainers": null, "nodeName": null},
        "status": {"phase": null, "startTime": null, "conditions": null, "containerStatuses": null},
    }));
    assert_eq!(pod.managed(&on()).count(), 0);
    assert_eq!(pod.status, PodStatus::default());
    assert_eq!(
        self::pod(json!({"spec": null, "status": null, "metadata": null})),
        Pod::default()
    );
}

#[test]
fn metadata_is_slim() {
    let pod = mesh_pod();
    assert_eq!(pod.metadata.name.as_deref(), Some("web-1"));
    assert_eq!(pod.metadata.managed_fields, None);
}

#[test]
fn words_from_the_future_do_not_break_the_decoding_of_a_pod() {
    let pod = pod(json!({
        "spec": {"containers": [{"name": "a", "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "Sometimes"}]}]},
        "status": {"phase": "Hibernating"},
    }));
    assert_eq!(pod.status.phase, Phase::Unknown);
    assert!(
        pod.managed_by_name("a", &off())
            .unwrap()
            .restarts_on_resize_of("cpu")
    );
}
