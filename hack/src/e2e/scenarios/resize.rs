//! What `pods/resize` answers, row by row, and that what it accepts lands on the running containers.

use anyhow::{Context as _, Result, ensure};
use futures::{FutureExt as _, future::try_join_all};
use http::Method;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

use super::super::{Look, Need, Scenario, World};
use super::pod;

const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
/// The row whose pod has no resources at all.
const BEST_EFFORT: &str = "a pod of class BestEffort";
const APPLY: &str = "application/apply-patch+yaml";

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "resize-answers",
            about: "every kind of request to pods/resize is accepted or refused as Kubernetes does",
            needs: &[Need::Node],
            run: |world| answers(world).boxed_local(),
        },
        Scenario {
            name: "resize-lands",
            about: "a container and its native sidecar are resized in one patch, seen in their status, without a restart",
            needs: &[Need::Node],
            run: |world| lands(world).boxed_local(),
        },
        Scenario {
            name: "resize-needs-a-kubelet-that-can",
            about: "a running container whose status shows no resources cannot be resized",
            needs: &[Need::ApiServer],
            run: |world| without_support(world).boxed_local(),
        },
    ]
}

/// A request and what it must be answered with.
struct Row {
    what: &'static str,
    subresource: &'static str,
    content_type: &'static str,
    patch: Value,
    code: u16,
    /// Part of the message of a refusal.
    message: &'static str,
}

fn row(
    what: &'static str,
    content_type: &'static str,
    patch: Value,
    code: u16,
    message: &'static str,
) -> Row {
    Row {
        what,
        subresource: "resize",
        content_type,
        patch,
        code,
        message,
    }
}

fn container(list: &str, name: &str, resources: &Value) -> Value {
    json!({"spec": {list: [{"name": name, "resources": resources}]}})
}

fn set(path: &str, value: &Value) -> Value {
    json!([{"op": "add", "path": path, "value": value}])
}

/// The table of `spec/cluster.md`.
fn rows() -> Vec<Row> {
    let more = json!({"requests": {"cpu": "20m"}});
    let app = |resources: &Value| container("containers", "app", resources);
    let proxy = |resources: &Value| container("initContainers", "proxy", resources);
    let mut both = app(&more);
    both["spec"]["initContainers"] = proxy(&more)["spec"]["initContainers"].clone();
    let applied = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
               "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "20m"}}}]}})
    };
    vec![
        row("a container, strategic merge", STRATEGIC, app(&more), 200, ""),
        row(
            "a native sidecar, strategic merge",
            STRATEGIC,
            proxy(&more),
            200,
            "",
        ),
        row("both, strategic merge", STRATEGIC, both, 200, ""),
        row(
            "a container, JSON patch",
            JSON_PATCH,
            set("/spec/containers/0/resources/requests/cpu", &json!("20m")),
            200,
            "",
        ),
        row(
            "a native sidecar, JSON patch",
            JSON_PATCH,
            set("/spec/initContainers/1/resources/requests/cpu", &json!("20m")),
            200,
            "",
        ),
        row("a container, server-side apply", APPLY, applied("row-5"), 200, ""),
        row(
            "more than the node has",
            STRATEGIC,
            app(&json!({"requests": {"cpu": "5000"}, "limits": {"cpu": "5000"}})),
            403,
            "node didn't have enough allocatable resources: cpu",
        ),
        Row {
            subresource: "",
            ..row(
                "resources on the pod itself",
                STRATEGIC,
                app(&more),
                422,
                "pod updates may not change fields",
            )
        },
        row(
            "the QoS class would change",
            STRATEGIC,
            {
                let same = json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}});
                let mut all = app(&same);
                all["spec"]["initContainers"] =
                    json!([{"name": "setup", "resources": same}, {"name": "proxy", "resources": same}]);
                all
            },
            422,
            "Pod QOS Class may not change as a result of resizing",
        ),
        row(
            "a limit removed",
            STRATEGIC,
            app(&json!({"limits": {"cpu": null}})),
            422,
            "resource limits cannot be removed",
        ),
        row(
            "a request removed",
            STRATEGIC,
            container("containers", "asks", &json!({"requests": {"memory": null}})),
            422,
            "resource requests cannot be removed",
        ),
        row(
            "a merge patch with part of a container",
            MERGE,
            app(&more),
            422,
            "",
        ),
        row(
            "init containers in another order",
            STRATEGIC,
            json!({"spec": {"$setElementOrder/initContainers": [{"name": "proxy"}, {"name": "setup"}],
                            "initContainers": [{"name": "proxy", "resources": more}, {"name": "setup"}]}}),
            422,
            "may not be renamed or reordered on resize",
        ),
        row(
            "a request above its limit",
            STRATEGIC,
            app(&json!({"requests": {"cpu": "300m"}})),
            422,
            "must be less than or equal to cpu limit",
        ),
        row(
            "another resource than cpu and memory",
            STRATEGIC,
            app(&json!({"requests": {"ephemeral-storage": "1Gi"}})),
            422,
            "only cpu and memory resources are mutable",
        ),
        row(
            "an image",
            STRATEGIC,
            json!({"spec": {"containers": [{"name": "app", "image": "other:1"}]}}),
            200,
            "",
        ),
        row(
            "a smaller memory limit",
            STRATEGIC,
            app(&json!({"limits": {"memory": "48Mi"}})),
            200,
            "",
        ),
        row(
            "an ordinary init container, where the kubelet says it can",
            STRATEGIC,
            container("initContainers", "setup", &more),
            200,
            "",
        ),
        row(
            BEST_EFFORT,
            STRATEGIC,
            app(&json!({"requests": {"cpu": "10m"}})),
            422,
            "Pod QOS Class may not change as a result of resizing",
        ),
        row(
            "a request where there was none",
            STRATEGIC,
            container("containers", "bare", &json!({"requests": {"cpu": "10m"}})),
            200,
            "",
        ),
        row(
            "a limit where there was none",
            STRATEGIC,
            container("containers", "bare", &json!({"limits": {"cpu": "50m"}})),
            200,
            "",
        ),
    ]
}

async fn answers(world: &World) -> Result<()> {
    let rows = rows();
    let names: Vec<_> = (0..rows.len()).map(|index| format!("row-{index}")).collect();
    for (row, name) in rows.iter().zip(&names) {
        let mut pod = pod(world, name);
        if row.what == BEST_EFFORT {
            for list in ["initContainers", "containers"] {
                for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
                    container["resources"] = json!({});
                }
            }
        }
        let containers = pod["spec"]["containers"]
            .as_array_mut()
            .context("containers are a list")?;
        let bare = json!({"name": "bare", "image": world.image, "args": ["sleep", "1h"]});
        match touched(&row.patch) {
            "bare" => containers.push(bare),
            // A removed request comes back by itself where there is a limit, so this one has none.
            "asks" => {
                let requests = json!({"requests": {"cpu": "5m", "memory": "8Mi"}});
                containers.push(json!({"name": "asks", "image": world.image, "args": ["sleep", "1h"], "resources": requests}));
            }
            _ => {}
        }
        world.create_object::<Pod>(pod).await?;
    }
    let pods = try_join_all(names.iter().map(|name| world.ready(name))).await?;
    let mut wrong = Vec::new();
    for ((row, name), before) in rows.iter().zip(&names).zip(&pods) {
        let mut path = world.pod_path(name, row.subresource);
        if row.content_type == APPLY {
            path.push_str("?fieldManager=e2e&force=true");
        }
        let answer = world
            .send(Method::PATCH, &path, row.content_type, &row.patch)
            .await?;
        if answer.code != row.code || !answer.message().contains(row.message) {
            wrong.push(format!(
                "{}: answered {} {}",
                row.what,
                answer.code,
                answer.message()
            ));
        } else if row.code == 200 {
            let grown = answer.body["metadata"]["generation"].as_i64() > before.metadata.generation;
            let image_only = row.what == "an image";
            if grown == image_only {
                wrong.push(format!(
                    "{}: generation {}",
                    row.what, answer.body["metadata"]["generation"]
                ));
            }
            if image_only && answer.body["spec"]["containers"][0]["image"] != world.image.as_str() {
                wrong.push("an image: it was changed".to_owned());
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The first regular container that a patch names.
fn touched(patch: &Value) -> &str {
    patch["spec"]["containers"][0]["name"]
        .as_str()
        .unwrap_or_default()
}

async fn lands(world: &World) -> Result<()> {
    world.create_object::<Pod>(pod(world, "web")).await?;
    world.ready("web").await?;
    let wanted =
        json!({"requests": {"cpu": "30m", "memory": "24Mi"}, "limits": {"cpu": "300m", "memory": "96Mi"}});
    let patch = json!([
        {"op": "replace", "path": "/spec/containers/0/resources", "value": wanted},
        {"op": "replace", "path": "/spec/initContainers/1/resources", "value": wanted},
    ]);
    let answer = world
        .send(
            Method::PATCH,
            &world.pod_path("web", "resize"),
            JSON_PATCH,
            &patch,
        )
        .await?;
    ensure!(answer.code == 200, "answered {answer:?}");
    let pods = world.api::<Pod>();
    let status = world
        .until("the resize is in the status of both", async || {
            let status = serde_json::to_value(pods.get("web").await?.status)?;
            let have = [
                &status["containerStatuses"][0]["resources"],
                &status["initContainerStatuses"][1]["resources"],
            ];
            Ok(if have == [&wanted, &wanted] {
                Look::Done(status)
            } else {
                Look::NotYet(format!("{have:?}"))
            })
        })
        .await?;
    for container in [
        &status["containerStatuses"][0],
        &status["initContainerStatuses"][1],
    ] {
        ensure!(container["restartCount"] == 0, "restarted: {container}");
    }
    Ok(())
}

async fn without_support(world: &World) -> Result<()> {
    let nodes: Api<Node> = Api::all(world.client.clone());
    let has = json!({"cpu": "8", "memory": "8Gi", "pods": "10"});
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": format!("no-kubelet-{}", world.namespace)},
        "spec": {"unschedulable": true},
        "status": {"allocatable": has, "capacity": has},
    }))?;
    let node = nodes.create(&PostParams::default(), &node).await?;
    let name = node.metadata.name.context("a node has a name")?;
    let result = on_node_without_support(world, &name).await;
    nodes.delete(&name, &DeleteParams::default()).await?;
    result
}

async fn on_node_without_support(world: &World, node: &str) -> Result<()> {
    let mut pod = pod(world, "old");
    pod["spec"]["nodeName"] = json!(node);
    world.create_object::<Pod>(pod).await?;
    let more = json!({"requests": {"cpu": "20m"}});
    let resize = async |list: &str, name: &str| {
        let path = world.pod_path("old", "resize");
        world
            .send(Method::PATCH, &path, STRATEGIC, &container(list, name, &more))
            .await
    };

    report_running(world, &json!(null)).await?;
    let answer = resize("containers", "app").await?;
    ensure!(
        answer.code == 422
            && answer
                .message()
                .contains("Pod running on node without support for resize"),
        "a container without resources in its status: {answer:?}"
    );
    report_running(world, &json!({"requests": {"cpu": "10m"}})).await?;
    let answer = resize("initContainers", "setup").await?;
    ensure!(
        answer.code == 403,
        "an ordinary init container on a node that does not say it can: {answer:?}"
    );
    let answer = resize("containers", "app").await?;
    ensure!(
        answer.code == 200,
        "a container with resources in its status: {answer:?}"
    );
    Ok(())
}

/// Writes the status that a kubelet would, with these resources of every container.
async fn report_running(world: &World, resources: &Value) -> Result<()> {
    let status = |name: &str| {
        json!({"name": name, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "ready": true, "restartCount": 0,
               "image": "", "imageID": "", "resources": resources})
    };
    let running = json!({"status": {
        "phase": "Running", "initContainerStatuses": [status("setup"), status("proxy")], "containerStatuses": [status("app")],
    }});
    let answer = world
        .send(Method::PATCH, &world.pod_path("old", "status"), MERGE, &running)
        .await?;
    ensure!(answer.code == 200, "the status was not set: {answer:?}");
    Ok(())
}
