//! Another webhook comes after ours and injects a native sidecar: called again, we size that too, and nothing twice.

use anyhow::{Result, ensure};
use futures::FutureExt as _;
use serde_json::{Value, json};

use super::super::super::{Need, Scenario, World, webhook::Webhook};
use super::{
    Admission, Owner, configuration, first_requests, install_crds, native_sidecars, unregister, vpa,
};

pub(super) fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "admission-sizes-late-sidecars",
        about: "a native sidecar that another webhook injects after ours is sized when we are called again, and stays \
                unseen with --webhook-reinvocation-policy=Never",
        needs: &[Need::NoControllers, Need::LocalWebhooks],
        run: |world| sizes(world).boxed_local(),
    }]
}

/// Adds a proxy, once.
fn inject(review: &Value) -> Value {
    let spec = &review["request"]["object"]["spec"];
    if spec["initContainers"].is_array() {
        return json!({"allowed": true});
    }
    let proxy = json!({
        "name": "proxy", "image": spec["containers"][0]["image"], "restartPolicy": "Always",
        "resources": {"requests": {"cpu": "5m", "memory": "16Mi"}, "limits": {"cpu": "10m", "memory": "32Mi"}},
    });
    json!({"allowed": true, "patch": [{"op": "add", "path": "/spec/initContainers", "value": [proxy]}]})
}

async fn sizes(world: &World) -> Result<()> {
    install_crds(world).await?;
    let injector = Webhook::serve(inject).await?;
    // Webhooks are called in the order of their configurations' names, and ours has an a where this has a b.
    let late = format!("{}-b-injector", world.namespace);
    injector.register_for_pods(world, &late).await?;
    let result = sized(world).await;
    let removed = unregister(world, &configuration(world)).await;
    result.and(removed).and(unregister(world, &late).await)
}

async fn sized(world: &World) -> Result<()> {
    let owner = Owner::create(world, "web").await?;
    let targets = json!([
        {"containerName": "app", "target": {"cpu": "30m", "memory": "40Mi"}},
        {"containerName": "proxy", "target": {"cpu": "20m", "memory": "24Mi"}},
    ]);
    vpa(world, "web", "ReplicaSet", json!({}), &targets).await?;
    let spec = json!({"containers": [
        {"name": "app", "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "20m", "memory": "32Mi"}}},
    ]});
    let app = json!({"cpu": "30m", "memory": "40Mi"});
    let injected = |pod: &Value| -> Result<(), String> {
        match pod["spec"]["initContainers"][0]["name"].as_str() {
            Some("proxy") => first_requests(pod, &app),
            _ => Err("a pod without the proxy".to_owned()),
        }
    };

    let admission = Admission::start(world, Admission::config(world, native_sidecars(true))?);
    let pod = owner
        .until(world, "pods are injected and sized", &spec, injected)
        .await?;
    let resources = |requests: Value, limits: Value| json!({"requests": requests, "limits": limits});
    ensure!(
        pod["spec"]["initContainers"][0]["resources"]
            == resources(
                json!({"cpu": "20m", "memory": "24Mi"}),
                json!({"cpu": "40m", "memory": "48Mi"})
            ),
        "the late sidecar has {}",
        pod["spec"]["initContainers"][0]["resources"]
    );
    ensure!(
        pod["spec"]["containers"][0]["resources"]
            == resources(app.clone(), json!({"cpu": "60m", "memory": "80Mi"})),
        "the app was not sized once: {}",
        pod["spec"]["containers"][0]["resources"]
    );
    let annotations = &pod["metadata"]["annotations"];
    let observed: std::collections::BTreeSet<_> = annotations["vpaObservedContainers"]
        .as_str()
        .unwrap_or_default()
        .split(", ")
        .collect();
    ensure!(
        observed == ["app", "proxy"].into(),
        "observed: {}",
        annotations["vpaObservedContainers"]
    );
    let updates = annotations["vpaUpdates"].as_str().unwrap_or_default();
    let all = "cpu request, memory request, cpu limit, memory limit";
    for container in ["container 0", "initContainer 0"] {
        ensure!(
            updates.matches(&format!("{container}: {all}")).count() == 1,
            "{container} is not in {updates:?} once"
        );
    }
    admission.stop().await?;

    let mut config = Admission::config(world, native_sidecars(true))?;
    config.pods.reinvocation = admission::pod::Reinvocation::Never;
    let admission = Admission::start(world, config);
    let pod = owner
        .until(
            world,
            "the webhook is the one that is called once",
            &spec,
            |pod| {
                injected(pod)?;
                let proxy = &pod["spec"]["initContainers"][0]["resources"]["requests"]["cpu"];
                if proxy == "5m" {
                    Ok(())
                } else {
                    Err(format!("a proxy with {proxy}"))
                }
            },
        )
        .await?;
    ensure!(
        pod["metadata"]["annotations"]["vpaObservedContainers"] == "app",
        "observed: {}",
        pod["metadata"]["annotations"]
    );
    admission.stop().await
}
