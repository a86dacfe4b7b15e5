//! What the API server answers about pods: the table of `spec/cluster.md`, row by row, and the defaults around it.

use hack::sandbox::{Key, Sandbox, Write};
use k8s_openapi::api::{
    core::v1::{LimitRange, Node, Pod},
    policy::v1::{Eviction, PodDisruptionBudget},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::Status,
};
use serde_json::{Value, json};

use super::{object, pod, refusal, sandbox};

/// A running pod on a node of 4 cores and 8 GiB: an init container, two native sidecars, an app, all with resources.
async fn running(client: &Client, name: &str) -> Pod {
    let nodes: Api<Node> = Api::all(client.clone());
    let node: Node = object(json!({
        "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}},
    }));
    // The second pod of a test finds the node there.
    drop(nodes.create(&PostParams::default(), &node).await);
    let resources = json!({"requests": {"cpu": "100m", "memory": "100Mi"}, "limits": {"cpu": "200m"}});
    let container = |name: &str| json!({"name": name, "image": "i:1", "resources": resources});
    let sidecar = |name: &str| {
        let mut container = container(name);
        container["restartPolicy"] = "Always".into();
        container
    };
    let pod: Pod = object(json!({
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {
            "nodeName": "n1", "initContainers": [container("init"), sidecar("proxy"), sidecar("agent")],
            "containers": [container("app")],
        },
    }));
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let status = json!({"status": {
        "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{
            "name": "app", "image": "i:1", "imageID": "", "ready": true, "restartCount": 0, "resources": resources,
            "state": {"running": {"startedAt": "2026-03-01T12:00:00Z"}},
        }],
    }});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap()
}

fn app(resources: &Value) -> Patch<Value> {
    Patch::Strategic(json!({"spec": {"containers": [{"name": "app", "resources": resources}]}}))
}

fn sidecars(list: &Value) -> Patch<Value> {
    Patch::Strategic(json!({"spec": {"initContainers": list}}))
}

#[tokio::test]
async fn resizes_are_answered_as_by_the_real_server() {
    let more = json!({"requests": {"cpu": "150m"}});
    let json_patch: json_patch::Patch = object(json!([
        {"op": "replace", "path": "/spec/initContainers/1/resources/requests/cpu", "value": "150m"},
    ]));
    let both = json!({"spec": {
        "containers": [{"name": "app", "resources": more}], "initContainers": [{"name": "proxy", "resources": more}],
    }});
    let applied = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "app", "resources": more}]},
    });
    let limited = ["init", "proxy", "agent"]
        .map(|name| json!({"name": name, "resources": {"limits": {"cpu": "100m", "memory": "100Mi"}}}));
    let table: Vec<(&str, Patch<Value>, (u16, &str))> = vec![
        ("a container", app(&more), (200, "")),
        (
            "a native sidecar",
            sidecars(&json!([{"name": "proxy", "resources": more}])),
            (200, ""),
        ),
        ("both in one patch", Patch::Strategic(both), (200, "")),
        ("by a JSON patch", Patch::Json(json_patch), (200, "")),
        ("by server-side apply", Patch::Apply(applied), (200, "")),
        (
            "larger than the node",
            app(&json!({"requests": {"cpu": "5"}, "limits": {"cpu": "5"}})),
            (
                403,
                "pods \"p\" is forbidden: node didn't have enough allocatable resources: cpu, requested: 5200, allocatable: 4000",
            ),
        ),
        (
            "an ordinary init container, on a node without the feature",
            sidecars(&json!([{"name": "init", "resources": more}])),
            (403, "InPlacePodVerticalScalingInitContainers"),
        ),
        (
            "another quality of service",
            Patch::Strategic(json!({"spec": {
                "containers": [{"name": "app", "resources": {"limits": {"cpu": "100m", "memory": "100Mi"}}}],
                "initContainers": limited,
            }})),
            (
                422,
                "Pod \"p\" is invalid: spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing",
            ),
        ),
        (
            "a limit removed",
            app(&json!({"limits": {"cpu": null}})),
            (422, "resource limits cannot be removed"),
        ),
        (
            "a request removed",
            app(&json!({"requests": {"memory": null}})),
            (422, "resource requests cannot be removed"),
        ),
        (
            "a partial container by a JSON merge patch",
            Patch::Merge(json!({"spec": {"containers": [{"name": "app", "resources": more}]}})),
            (422, "spec.containers[0].image: Required value"),
        ),
        (
            "init containers in another order",
            sidecars(&json!([{"name": "agent", "resources": more}, {"name": "proxy", "resources": more}])),
            (422, "initContainers may not be renamed or reordered on resize"),
        ),
        (
            "a request above its limit",
            app(&json!({"requests": {"cpu": "300m"}})),
            (
                422,
                "spec.containers[0].resources.requests: Invalid value: \"300m\": must be less than or equal to cpu limit of 200m",
            ),
        ),
        (
            "something else than cpu and memory",
            app(&json!({"requests": {"ephemeral-storage": "1Gi"}})),
            (422, "only cpu and memory resources are mutable"),
        ),
        (
            "memory limit added",
            app(&json!({"limits": {"memory": "1Gi"}})),
            (200, ""),
        ),
        (
            "memory decreased",
            app(&json!({"requests": {"memory": "50Mi"}})),
            (200, ""),
        ),
    ];
    for (case, patch, (code, message)) in table {
        let (_sandbox, client) = sandbox().await;
        let before = running(&client, "p").await;
        let pods: Api<Pod> = Api::default_namespaced(client);
        let params = PatchParams::apply("test").force();
        let params = if matches!(patch, Patch::Apply(_)) {
            params
        } else {
            PatchParams::default()
        };
        match pods.patch_resize("p", &params, &patch).await {
            Ok(after) => {
                assert_eq!((code, message), (200, ""), "{case}");
                assert_eq!(
                    after.metadata.generation,
                    Some(before.metadata.generation.unwrap() + 1),
                    "{case}"
                );
                assert_ne!(after.spec, before.spec, "{case}");
                assert_eq!(after.status, before.status, "{case}");
            }
            refused => {
                let (found, text) = refusal(refused);
                assert!(found == code && text.contains(message), "{case}: {found} {text}");
                assert_eq!(pods.get("p").await.unwrap(), before, "{case}");
            }
        }
    }
}

#[tokio::test]
async fn a_resize_changes_resources_and_nothing_else() {
    let (sandbox, client) = sandbox().await;
    let before = running(&client, "p").await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let params = PatchParams::default();
    let image = Patch::Strategic(json!({"spec": {"containers": [{"name": "app", "image": "other:2"}]}}));
    assert_eq!(
        pods.patch_resize("p", &params, &image).await.unwrap(),
        before,
        "an image is silently ignored"
    );

    let direct = pods
        .patch("p", &params, &app(&json!({"requests": {"cpu": "150m"}})))
        .await;
    let (code, message) = refusal(direct);
    assert!(
        code == 422 && message.contains("pod updates may not change fields other than"),
        "{message}"
    );
    let image = pods.patch("p", &params, &image).await.unwrap();
    assert_eq!(
        image.spec.unwrap().containers[0].image.as_deref(),
        Some("other:2"),
        "but may change on the pod itself"
    );

    let nodes: Api<Node> = Api::all(client);
    nodes.delete("n1", &DeleteParams::default()).await.unwrap();
    let refused = pods
        .patch_resize("p", &params, &app(&json!({"requests": {"cpu": "150m"}})))
        .await;
    assert_eq!(
        refusal(refused),
        (403, "pods \"p\" is forbidden: node \"n1\" not found".into())
    );

    forget_status_resources(&sandbox).await;
    let refused = pods
        .patch_resize("p", &params, &app(&json!({"requests": {"cpu": "150m"}})))
        .await;
    let message = "Pod \"p\" is invalid: spec: Forbidden: Pod running on node without support for resize";
    assert_eq!(refusal(refused), (422, message.into()));
}

async fn forget_status_resources(sandbox: &Sandbox) {
    let api = sandbox.api();
    let forget = |old: &Value| {
        let mut pod = old.clone();
        pod["status"]["containerStatuses"][0]
            .as_object_mut()
            .unwrap()
            .remove("resources");
        Ok(pod)
    };
    let kind = api.kind("pods").unwrap();
    let status = hack::sandbox::Part::Status;
    api.modify(
        &kind,
        &Key::new("default", "p"),
        status,
        &Write::default(),
        &forget,
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn infeasible_by_size_names_its_cause() {
    let (_sandbox, client) = sandbox().await;
    running(&client, "p").await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    let huge = app(&json!({"requests": {"memory": "9Gi"}}));
    let Err(kube::Error::Api(status)) = pods.patch_resize("p", &PatchParams::default(), &huge).await else {
        panic!("refused")
    };
    let causes = status.details.unwrap().causes;
    assert_eq!(
        causes
            .iter()
            .map(|cause| cause.reason.as_str())
            .collect::<Vec<_>>(),
        ["NodeCapacity"]
    );
}

async fn evict(pods: &Api<Pod>, name: &str, options: Value) -> kube::Result<Status> {
    let eviction: Eviction = object(json!({"metadata": {"name": name}, "deleteOptions": options}));
    pods.create_subresource("eviction", name, &PostParams::default(), &eviction)
        .await
}

#[tokio::test]
async fn evictions_are_answered_as_by_the_real_server() {
    let (_sandbox, client) = sandbox().await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    for name in ["a", "b", "c"] {
        running(&client, name).await;
    }
    assert_eq!(
        refusal(evict(&pods, "none", json!({})).await),
        (404, "pods \"none\" not found".into())
    );
    let (code, message) = refusal(evict(&pods, "a", json!({"preconditions": {"uid": "wrong"}})).await);
    assert!(
        code == 409 && message.contains("the UID in the precondition (wrong) does not match"),
        "{message}"
    );
    let evicted = evict(&pods, "a", json!({})).await.unwrap();
    assert_eq!((evicted.code, evicted.is_success()), (201, true));
    let going = pods.get("a").await.unwrap().metadata;
    assert_eq!(
        serde_json::to_value(going.deletion_timestamp).unwrap(),
        "2026-03-01T12:00:30Z",
        "after its grace period"
    );

    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(client);
    let budget: PodDisruptionBudget = object(json!({
        "metadata": {"name": "pdb"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }));
    budgets.create(&PostParams::default(), &budget).await.unwrap();
    let Err(kube::Error::Api(status)) = evict(&pods, "b", json!({})).await else {
        panic!("refused")
    };
    let details = status.details.unwrap();
    assert_eq!(
        (status.code, details.retry_after_seconds),
        (429, 10),
        "not yet observed"
    );
    assert_eq!(details.causes[0].reason, "DisruptionBudget");

    let observed = json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2,
    }});
    budgets
        .patch_status("pdb", &PatchParams::default(), &Patch::Merge(observed))
        .await
        .unwrap();
    evict(&pods, "b", json!({})).await.unwrap();
    let status = budgets.get("pdb").await.unwrap().status.unwrap();
    assert_eq!(
        (
            status.disruptions_allowed,
            status.disrupted_pods.unwrap().contains_key("b")
        ),
        (Some(0), true)
    );
    let Err(kube::Error::Api(status)) = evict(&pods, "c", json!({})).await else {
        panic!("refused")
    };
    assert_eq!(status.code, 429);
    assert_eq!(
        status.message,
        "Cannot evict pod as it would violate the pod's disruption budget."
    );
    let cause = &status.details.unwrap().causes[0];
    assert_eq!(
        cause.message,
        "The disruption budget pdb needs 1 healthy pods and has 2 currently"
    );
}

#[tokio::test]
async fn a_deleted_pod_waits_for_its_kubelet() {
    let (_sandbox, client) = sandbox().await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod("unscheduled"))
        .await
        .unwrap();
    pods.delete("unscheduled", &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(refusal(pods.get("unscheduled").await).0, 404);
    running(&client, "p").await;
    pods.delete("p", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .expect("it is still there");
    let going = pods.get("p").await.unwrap().metadata;
    assert_eq!(
        (going.deletion_grace_period_seconds, going.generation),
        (Some(30), Some(2))
    );
    pods.delete("p", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    assert_eq!(refusal(pods.get("p").await).0, 404);
}

#[tokio::test]
async fn a_new_pod_has_the_defaults_that_others_rely_on() {
    let (sandbox, client) = sandbox().await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let table = [
        (json!({}), json!({}), "BestEffort"),
        (
            json!({"limits": {"cpu": "0.5", "memory": "1024Mi"}}),
            json!({"limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}}),
            "Guaranteed",
        ),
        (
            json!({"limits": {"cpu": 1}, "requests": {"cpu": "100m"}}),
            json!({"limits": {"cpu": "1"}, "requests": {"cpu": "100m"}}),
            "Burstable",
        ),
    ];
    for (given, expected, class) in table {
        let pod: Pod = object(json!({
            "metadata": {"generateName": "p-"},
            "spec": {"containers": [{"name": "a", "image": "a", "resources": given}]},
        }));
        let made = serde_json::to_value(pods.create(&PostParams::default(), &pod).await.unwrap()).unwrap();
        assert_eq!(made["spec"]["containers"][0]["resources"], expected);
        assert_eq!(made["status"], json!({"phase": "Pending", "qosClass": class}));
        assert_eq!(made["spec"]["terminationGracePeriodSeconds"], 30);
        assert_eq!(made["spec"]["restartPolicy"], "Always");
    }
    let made = pods.create(&PostParams::default(), &pod("b")).await.unwrap();
    sandbox.api().bind(&Key::new("default", "b"), "n1").unwrap();
    let bound = pods.get("b").await.unwrap();
    assert_eq!(bound.spec.unwrap().node_name.as_deref(), Some("n1"));
    assert_eq!(bound.metadata.generation, made.metadata.generation);
}

#[tokio::test]
async fn limit_ranges_fill_in_and_forbid() {
    let (_sandbox, client) = sandbox().await;
    let ranges: Api<LimitRange> = Api::default_namespaced(client.clone());
    let range: LimitRange = object(json!({
        "metadata": {"name": "r"},
        "spec": {"limits": [{
            "type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "50m"}, "defaultRequest": {"cpu": "100m"},
        }]},
    }));
    ranges.create(&PostParams::default(), &range).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client);
    let made = pods.create(&PostParams::default(), &pod("a")).await.unwrap();
    let resources = &made.spec.as_ref().unwrap().containers[0].resources;
    assert_eq!(
        serde_json::to_value(resources).unwrap(),
        json!({"limits": {"cpu": "1"}, "requests": {"cpu": "100m"}})
    );
    assert_eq!(
        made.annotations()["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu limit for container app; cpu request for container app"
    );
    let mut large = serde_json::to_value(pod("b")).unwrap();
    large["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "10m"}, "limits": {"cpu": "2"}});
    let refused = pods.create(&PostParams::default(), &object(large)).await;
    let message = "pods \"b\" is forbidden: [minimum cpu usage per Container is 50m, but request is 10m, maximum cpu \
                   usage per Container is 1, but limit is 2]";
    assert_eq!(refusal(refused), (403, message.into()));
}
