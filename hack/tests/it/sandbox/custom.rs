//! Custom resources: our definitions, as an operator installs them.

use common::api::vpa::VerticalPodAutoscaler;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

use super::{object, refusal, sandbox};

fn vpa(spec: &Value) -> DynamicObject {
    object(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "web"}, "spec": spec, "status": {"conditions": []},
    }))
}

fn vpas(client: &kube::Client) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("autoscaling.k8s.io", "v1", "VerticalPodAutoscaler");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "verticalpodautoscalers");
    Api::default_namespaced_with(client.clone(), &resource)
}

#[tokio::test]
async fn a_definition_brings_its_resource_and_takes_it_away() {
    let (sandbox, client) = sandbox().await;
    let missing = vpas(&client).list(&ListParams::default()).await;
    assert!(missing.is_err(), "not served yet");
    hack::sandbox::install_crds(sandbox.api()).await.unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = "verticalpodautoscalers.autoscaling.k8s.io";
    let status = definitions.get(name).await.unwrap().status.unwrap();
    let conditions = status.conditions.unwrap_or_default();
    assert!(
        conditions
            .iter()
            .any(|one| one.type_ == "Established" && one.status == "True")
    );

    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let made = vpas(&client)
        .create(&PostParams::default(), &vpa(&json!({"targetRef": target})))
        .await
        .unwrap();
    assert_eq!(
        (made.metadata.generation, made.data.get("status")),
        (Some(1), None)
    );
    let typed: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    assert_eq!(typed.get("web").await.unwrap().name_any(), "web");
    let gvk = GroupVersionKind::gvk("autoscaling.k8s.io", "v1", "VerticalPodAutoscaler");
    let discovered = kube::discovery::pinned_kind(&client, &gvk).await.unwrap();
    assert_eq!(discovered.0.plural, "verticalpodautoscalers");

    definitions.delete(name, &DeleteParams::default()).await.unwrap();
    assert!(vpas(&client).list(&ListParams::default()).await.is_err());
}

#[tokio::test]
async fn what_the_schema_forbids_is_refused_and_what_it_does_not_know_is_dropped() {
    let (sandbox, client) = sandbox().await;
    hack::sandbox::install_crds(sandbox.api()).await.unwrap();
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let table = [
        (
            json!({"targetRef": target, "updatePolicy": {"updateMode": "Sometimes"}}),
            "spec.updatePolicy.updateMode: Unsupported value: \"Sometimes\": supported values: ",
        ),
        (
            json!({"targetRef": target, "updatePolicy": {"minReplicas": "two"}}),
            "spec.updatePolicy.minReplicas: Invalid value: \"string\": spec.updatePolicy.minReplicas in body must be of type integer",
        ),
        (
            json!({"targetRef": {"kind": "Deployment"}}),
            "spec.targetRef.name: Required value",
        ),
        (
            json!({"targetRef": target, "startupBoost": {"cpu": {"type": "Factor"}}}),
            "spec.startupBoost.cpu: Invalid value: \"object\": factor is required when type is Factor and forbidden otherwise",
        ),
    ];
    for (spec, message) in table {
        let (code, text) = refusal(vpas(&client).create(&PostParams::default(), &vpa(&spec)).await);
        assert!(code == 422 && text.contains(message), "{spec}: {text}");
    }
    let unknown = vpa(&json!({"targetRef": target, "what": 1}));
    let made = vpas(&client)
        .create(&PostParams::default(), &unknown)
        .await
        .unwrap();
    assert_eq!(made.data["spec"], json!({"targetRef": target}));
    let strategic = Patch::Strategic(json!({"metadata": {"labels": {"a": "b"}}}));
    assert_eq!(
        refusal(
            vpas(&client)
                .patch("web", &PatchParams::default(), &strategic)
                .await
        )
        .0,
        415
    );
}

#[tokio::test]
async fn the_status_of_a_custom_resource_has_its_own_door() {
    let (sandbox, client) = sandbox().await;
    hack::sandbox::install_crds(sandbox.api()).await.unwrap();
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let api = vpas(&client);
    api.create(&PostParams::default(), &vpa(&json!({"targetRef": target})))
        .await
        .unwrap();
    let status = json!({"status": {"recommendation": {"containerRecommendations": [
        {"containerName": "app", "target": {"cpu": "25m"}},
    ]}}});
    let ignored = api
        .patch("web", &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();
    assert_eq!(ignored.data.get("status"), None);
    let written = api
        .patch_status("web", &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();
    assert_eq!(written.data["status"], status["status"]);
    assert_eq!(written.metadata.generation, Some(1));
    let applied = Patch::Apply(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "status": {"recommendation": {
            "containerRecommendations": [{"containerName": "app", "target": {"cpu": "30m"}}],
        }},
    }));
    let params = PatchParams::apply("vpa-recommender").force();
    let written = api.patch_status("web", &params, &applied).await.unwrap();
    assert_eq!(
        written.data["status"]["recommendation"]["containerRecommendations"],
        json!([{"containerName": "app", "target": {"cpu": "30m"}}])
    );
}

#[tokio::test]
async fn a_definition_can_have_several_versions_and_a_scale() {
    let (_sandbox, client) = sandbox().await;
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            "subresources": {"scale": {
                "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            }},
        })
    };
    let definition: CustomResourceDefinition = object(json!({
        "metadata": {"name": "things.x.io"},
        "spec": {
            "group": "x.io", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [version("v1alpha1", false), version("v1", true)],
        },
    }));
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions
        .create(&PostParams::default(), &definition)
        .await
        .unwrap();
    let things = |version: &str| -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("x.io", version, "Thing");
        Api::default_namespaced_with(client.clone(), &ApiResource::from_gvk_with_plural(&gvk, "things"))
    };
    let thing: DynamicObject = object(json!({
        "apiVersion": "x.io/v1alpha1", "kind": "Thing", "metadata": {"name": "t"},
        "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "app=t"},
    }));
    things("v1alpha1")
        .create(&PostParams::default(), &thing)
        .await
        .unwrap();
    let read = things("v1").get("t").await.unwrap();
    assert_eq!(read.types.unwrap().api_version, "x.io/v1");
    let scale = things("v1").get_scale("t").await.unwrap();
    let (spec, status) = (scale.spec.unwrap(), scale.status.unwrap());
    assert_eq!(
        (spec.replicas, status.replicas, status.selector.as_deref()),
        (Some(3), 2, Some("app=t"))
    );
    let group = kube::discovery::group(&client, "x.io").await.unwrap();
    assert_eq!(group.preferred_version_or_latest(), "v1");
}
