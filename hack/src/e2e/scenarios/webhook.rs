//! Mutating webhooks over real TLS, as the admission component will be called.

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;
use http::Method;
use k8s_openapi::api::{admissionregistration::v1::MutatingWebhookConfiguration, core::v1::Pod};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

use super::super::{Look, Need, Scenario, World, webhook::Webhook};
use super::pod;

pub(super) fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "webhook-mutates",
        about: "a webhook patches new pods, is called again when another changed the pod, can deny, and may be down",
        needs: &[Need::ApiServer, Need::LocalWebhooks],
        run: |world| mutates(world).boxed_local(),
    }]
}

/// What the webhook does to the pods of this scenario, by the label `do`.
fn answer(review: &Value) -> Value {
    let pod = &review["request"]["object"];
    match pod["metadata"]["labels"]["do"].as_str() {
        Some("deny") => json!({"allowed": false, "status": {"message": "not this one", "code": 403}}),
        _ => {
            let calls = pod["metadata"]["annotations"]["calls"]
                .as_str()
                .unwrap_or("0")
                .parse::<u32>()
                .unwrap_or(0)
                + 1;
            let path = if pod["metadata"]["annotations"].is_object() {
                "/metadata/annotations/calls"
            } else {
                "/metadata/annotations"
            };
            let value = if path.ends_with("calls") {
                json!(calls.to_string())
            } else {
                json!({"calls": calls.to_string()})
            };
            json!({"allowed": true, "patch": [
                {"op": "add", "path": path, "value": value},
                {"op": "add", "path": "/spec/initContainers/1/resources/requests/cpu", "value": "7m"},
            ]})
        }
    }
}

/// A second webhook that runs after the first and changes the pod, so that the first is asked again.
fn label(review: &Value) -> Value {
    if review["request"]["object"]["metadata"]["labels"]["seen"].is_string() {
        return json!({"allowed": true});
    }
    json!({"allowed": true, "patch": [{"op": "add", "path": "/metadata/labels/seen", "value": "yes"}]})
}

async fn mutates(world: &World) -> Result<()> {
    let first = Webhook::serve(answer).await?;
    let second = Webhook::serve(label).await?;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(world.client.clone());
    let name = format!("e2e-{}", world.namespace);
    let entry = |name: &str, hook: &Webhook| {
        json!({
            "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore", "timeoutSeconds": 30,
            "reinvocationPolicy": "IfNeeded",
            "clientConfig": {"url": hook.url, "caBundle": hook.ca_bundle},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
        })
    };
    let configuration = serde_json::from_value(json!({
        "metadata": {"name": name}, "webhooks": [entry("a.e2e.outrigger.dev", &first), entry("b.e2e.outrigger.dev", &second)],
    }))?;
    configurations
        .create(&PostParams::default(), &configuration)
        .await
        .context("registering the webhooks")?;
    let result = mutated(world, first).await;
    configurations.delete(&name, &DeleteParams::default()).await?;
    result
}

async fn mutated(world: &World, first: Webhook) -> Result<()> {
    let created = async |name: &str| -> Result<Value> {
        Ok(serde_json::to_value(
            world.create_object::<Pod>(pod(world, name)).await?,
        )?)
    };
    let mut tries = 0;

    // A new configuration reaches the API server's cache a moment later.
    let patched = world
        .until(
            "both webhooks are called, the first once more after the second",
            async || {
                tries += 1;
                let pod = created(&format!("patched-{tries}")).await?;
                let metadata = &pod["metadata"];
                // Twice, because the second has changed the pod.
                let called = metadata["annotations"]["calls"] == "2" && metadata["labels"]["seen"] == "yes";
                Ok(if called {
                    Look::Done(pod)
                } else {
                    Look::NotYet(metadata.to_string())
                })
            },
        )
        .await?;
    ensure!(
        patched["spec"]["initContainers"][1]["resources"]["requests"]["cpu"] == "7m",
        "not patched: {}",
        patched["spec"]
    );

    let mut denied = pod(world, "denied");
    denied["metadata"]["labels"]["do"] = json!("deny");
    let path = format!("/api/v1/namespaces/{}/pods", world.namespace);
    let answer = world
        .send(Method::POST, &path, "application/json", &denied)
        .await?;
    ensure!(
        answer.code == 403
            && answer.message()
                == "admission webhook \"a.e2e.outrigger.dev\" denied the request: not this one",
        "answered {answer:?}"
    );

    drop(first);
    world
        .until("the webhook that stopped is not called", async || {
            tries += 1;
            let pod = created(&format!("ignored-{tries}")).await?;
            Ok(if pod["metadata"]["annotations"]["calls"].is_null() {
                Look::Done(())
            } else {
                Look::NotYet(pod["metadata"].to_string())
            })
        })
        .await
}
