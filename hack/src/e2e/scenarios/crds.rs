//! What we ship is accepted and behaves as its schema says.

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;
use http::Method;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::super::{Look, Need, Scenario, World};
use crate::crds;

pub(super) fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "crds-install",
        about: "the CRDs are accepted and established; objects are defaulted, pruned and refused by their schema",
        needs: &[Need::ApiServer],
        run: |world| crds_install(world).boxed_local(),
    }]
}

/// Installs the CRDs and waits until they are served; safe to call from several scenarios at once.
///
/// # Errors
/// When the API server refuses one.
pub async fn install(world: &World) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    for definition in crds::all()? {
        let name = definition.name_any();
        definitions
            .patch(
                &name,
                &PatchParams::apply("outrigger-e2e").force(),
                &Patch::Apply(&definition),
            )
            .await
            .with_context(|| format!("applying {name}"))?;
        world
            .until(&format!("{name} is established"), async || {
                let status = serde_json::to_value(definitions.get(&name).await?.status)?;
                let established = condition(&status, "Established") == "True"
                    && condition(&status, "NamesAccepted") == "True";
                Ok(if established {
                    Look::Done(())
                } else {
                    Look::NotYet(status["conditions"].to_string())
                })
            })
            .await?;
    }
    Ok(())
}

async fn crds_install(world: &World) -> Result<()> {
    install(world).await?;
    let path = format!(
        "/apis/autoscaling.k8s.io/v1/namespaces/{}/verticalpodautoscalers",
        world.namespace
    );
    let vpa = |name: &str, spec: Value| json!({"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": {"name": name}, "spec": spec});
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "app"});
    let post = async |spec: Value| {
        world
            .send(Method::POST, &path, "application/json", &vpa("a", spec))
            .await
    };

    for (what, spec, field) in [
        ("no target", json!({}), "spec.targetRef"),
        (
            "an unknown mode",
            json!({"targetRef": target, "updatePolicy": {"updateMode": "Sometimes"}}),
            "spec.updatePolicy.updateMode",
        ),
        (
            "a bad quantity",
            json!({"targetRef": target, "resourcePolicy": {"containerPolicies": [{"minAllowed": {"cpu": "much"}}]}}),
            "minAllowed",
        ),
        (
            "an OOM window of 0",
            json!({"targetRef": target, "updatePolicy": {"evictAfterOOMSeconds": 0}}),
            "spec.updatePolicy.evictAfterOOMSeconds",
        ),
    ] {
        let answer = post(spec).await?;
        ensure!(answer.code == 422, "{what} was answered by {answer:?}");
        ensure!(
            answer.message().contains(field),
            "{what}: the message does not name {field}: {}",
            answer.message()
        );
    }

    let answer =
        post(json!({"targetRef": target, "unknown": 1, "updatePolicy": {"updateMode": "Off"}})).await?;
    ensure!(answer.code == 201, "a good object was answered by {answer:?}");
    ensure!(
        answer.body["spec"].get("unknown").is_none(),
        "an unknown field was not pruned: {}",
        answer.body
    );
    ensure!(
        answer.body["metadata"]["generation"] == 1,
        "no generation: {}",
        answer.body
    );

    let status = json!({"status": {"recommendation": {"containerRecommendations": [{"containerName": "app", "target": {"cpu": "25m"}}]}}});
    let merge = "application/merge-patch+json";
    let ignored = world
        .send(Method::PATCH, &format!("{path}/a"), merge, &status)
        .await?;
    ensure!(
        ignored.code == 200 && ignored.body.get("status").is_none(),
        "status was set without its subresource: {ignored:?}"
    );
    let set = world
        .send(Method::PATCH, &format!("{path}/a/status"), merge, &status)
        .await?;
    ensure!(
        set.code == 200 && set.body["status"] == status["status"],
        "status was not set: {set:?}"
    );
    ensure!(
        set.body["metadata"]["generation"] == 1,
        "a status write changed the generation: {}",
        set.body
    );
    Ok(())
}

fn condition<'s>(status: &'s Value, kind: &str) -> &'s str {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions
        .filter(|c| c["type"] == kind)
        .find_map(|c| c["status"].as_str())
        .unwrap_or("absent")
}
