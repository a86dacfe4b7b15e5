//! The rules are held to VPA by its vectors; here is what those do not show, and what people read first.

use serde_json::{Value, json};

use super::*;

fn review_of(operation: &str, object: &Value, old: &Value) -> String {
    json!({"request": {
        "uid": "u", "name": "x", "operation": operation, "object": object, "oldObject": old,
        "requestKind": {"group": "autoscaling.k8s.io", "version": "v1", "kind": "VerticalPodAutoscaler"},
        "resource": {"group": "autoscaling.k8s.io", "version": "v1", "resource": "verticalpodautoscalers"},
    }})
    .to_string()
}

fn reviewed(operation: &str, object: &Value, old: &Value, gates: &str) -> Response {
    let body = review_of(operation, object, old);
    review(&Request::parse(body.as_bytes()).unwrap(), &gates.parse().unwrap())
}

fn created(spec: &Value, gates: &str) -> Response {
    reviewed("CREATE", &json!({"spec": spec}), &Value::Null, gates)
}

/// `FIELD: MESSAGE`, one line for each cause.
fn causes(response: &Response) -> Vec<String> {
    let status = response.status.as_ref();
    let causes = status.and_then(|status| status.details.causes.as_ref());
    causes
        .into_iter()
        .flatten()
        .map(|cause| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            format!("{}: {}", text(&cause.field), text(&cause.message))
        })
        .collect()
}

fn container(policy: &Value) -> Value {
    let mut policy = policy.clone();
    policy["containerName"] = json!("a");
    json!({"updatePolicy": {"updateMode": "Off"}, "resourcePolicy": {"containerPolicies": [policy]}})
}

#[test]
fn a_refusal_on_the_wire() {
    let spec = json!({"updatePolicy": {"updateMode": "Off", "minReplicas": 0}});
    let body = serde_json::from_slice::<Value>(&created(&spec, "").to_body().unwrap()).unwrap();
    assert_eq!(
        body,
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {
            "uid": "u", "allowed": false,
            "status": {
                "metadata": {}, "status": "Failure", "reason": "Invalid", "code": 422,
                "message": "VerticalPodAutoscaler.autoscaling.k8s.io \"x\" is invalid: \
                    spec.updatePolicy.minReplicas: Invalid value: 0: minReplicas has to be positive",
                "details": {"name": "x", "group": "autoscaling.k8s.io", "kind": "VerticalPodAutoscaler", "causes": [{
                    "reason": "FieldValueInvalid", "field": "spec.updatePolicy.minReplicas",
                    "message": "Invalid value: 0: minReplicas has to be positive",
                }]},
            },
        }})
    );
}

#[test]
fn a_default_on_the_wire() {
    let body = serde_json::from_slice::<Value>(&created(&json!({}), "").to_body().unwrap()).unwrap();
    assert_eq!(
        body["response"],
        json!({
            "uid": "u", "allowed": true, "patchType": "JSONPatch",
            "patch": "W3sib3AiOiJhZGQiLCJwYXRoIjoiL3NwZWMvdXBkYXRlUG9saWN5IiwidmFsdWUiOnsidXBkYXRlTW9kZSI6IlJlY3JlYXRlIn19XQ==",
        })
    );
}

#[test]
fn an_error_that_occurs_twice_is_said_once_and_counted_twice() {
    let policy = json!({"minAllowed": {"cpu": "1u"}});
    let mut spec = container(&policy);
    spec["resourcePolicy"]["containerPolicies"][0]["controlledResources"] = json!(["a<b", "a<b"]);
    let response = created(&spec, "");
    assert_eq!(
        causes(&response),
        [
            "spec.resourcePolicy.containerPolicies[0].minAllowed[cpu]: Invalid value: \"1u\": \
             must be a whole number of milli CPUs",
            "spec.resourcePolicy.containerPolicies[0].controlledResources[0]: Unsupported value: \"a\\u003cb\": \
             supported values: \"cpu\", \"memory\"",
            "spec.resourcePolicy.containerPolicies[0].controlledResources[1]: Unsupported value: \"a\\u003cb\": \
             supported values: \"cpu\", \"memory\"",
        ]
    );
}

#[test]
fn what_the_gates_open_and_what_the_old_object_had() {
    let boost = json!({"cpu": {"type": "Factor", "factor": 2}});
    let specs = [
        ("InPlace", json!({"updatePolicy": {"updateMode": "InPlace"}})),
        (
            "PerVPAConfig",
            json!({"updatePolicy": {"updateMode": "Off", "evictAfterOOMSeconds": 5}}),
        ),
        ("PerVPAConfig", container(&json!({"oomBumpUpRatio": 1.5}))),
        ("PerVPAConfig", container(&json!({"oomMinBumpUp": "1Mi"}))),
        (
            "PerVPAConfig",
            container(&json!({"memoryAggregationIntervalSeconds": 1})),
        ),
        (
            "PerVPAConfig",
            container(&json!({"memoryAggregationIntervalCount": 1})),
        ),
        (
            "CPUStartupBoost",
            json!({"updatePolicy": {"updateMode": "Off"}, "startupBoost": boost}),
        ),
        ("CPUStartupBoost", container(&json!({"startupBoost": boost}))),
    ];
    for (gate, spec) in specs {
        let object = json!({"spec": spec});
        assert!(created(&spec, &format!("{gate}=true")).allowed, "{spec}");
        assert!(!created(&spec, "").allowed, "{spec}");
        assert!(reviewed("UPDATE", &object, &object, "").allowed, "{spec}");
        assert!(
            !reviewed("UPDATE", &object, &json!({"spec": {}}), "").allowed,
            "{spec}"
        );
    }
}

#[test]
fn what_vpa_lets_through() {
    for spec in [
        json!({"updatePolicy": {"updateMode": "Off"}, "startupBoost": {}}),
        container(&json!({"startupBoost": {}})),
        container(&json!({"mode": "Off", "controlledValues": "RequestsOnly"})),
        container(&json!({"controlledResources": null, "minAllowed": null, "maxAllowed": {"gpu": "1u"}})),
        container(&json!({"minAllowed": {"cpu": 1, "memory": null}, "maxAllowed": {"cpu": 1.5}})),
    ] {
        let response = created(&spec, "CPUStartupBoost=true");
        assert_eq!(causes(&response), [""; 0], "{spec}");
        assert!(response.allowed, "{spec}");
    }
}

#[test]
fn what_cannot_be_decoded() {
    const QUANTITY: &str =
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    let quantity = format!(".: Internal error: {QUANTITY}");
    for value in [
        json!("not-a-number"),
        json!(true),
        json!({"cpu": "1"}),
        json!([1]),
    ] {
        let response = created(&container(&json!({"oomBumpUpRatio": value})), "PerVPAConfig=true");
        assert_eq!(causes(&response), [quantity.as_str()], "{value}");
    }
    let objects = [
        Value::Null,
        json!("text"),
        json!([]),
        json!({"spec": []}),
        json!({"spec": {"targetRef": "x"}}),
        json!({"spec": {"targetRef": {"name": 1}}}),
        json!({"spec": {"updatePolicy": []}}),
        json!({"spec": {"updatePolicy": {"minReplicas": 3_000_000_000_i64}}}),
        json!({"spec": {"updatePolicy": {"evictionRequirements": [{"resources": "cpu"}]}}}),
        json!({"spec": {"resourcePolicy": {"containerPolicies": {}}}}),
        json!({"spec": {"recommenders": [{"name": 1}]}}),
        json!({"kind": 5}),
        json!({"apiVersion": ["v1"]}),
        json!({"metadata": {"labels": []}}),
        json!({"status": {"recommendation": {"containerRecommendations": [{"target": {"cpu": "x"}}]}}}),
    ];
    for object in objects {
        for (operation, object, old) in [("CREATE", &object, &Value::Null), ("UPDATE", &json!({}), &object)] {
            let response = reviewed(operation, object, old, "");
            assert!(!response.allowed, "{operation} {object} {old}");
            assert!(
                causes(&response)[0].starts_with(".: Internal error: "),
                "{operation} {object} {old}"
            );
            assert_eq!(response.patch, [], "{operation} {object} {old}");
        }
    }
}
