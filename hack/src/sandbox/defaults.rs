//! Defaults of the built-in kinds, as far as our daemons, controllers and kubectl rely on them, and the few checks that
//! catch manifests which a real server would refuse.

use serde_json::{Map, Value, json};

use super::{
    error::Cause,
    pod, quantity,
    registry::Kind,
    selector::{of_object, selects},
    tree::{self, default, items, items_mut, object},
};

/// Fills in what is not said. Idempotent.
pub(super) fn apply(kind: &Kind, value: &mut Value) {
    match kind.storage.as_str() {
        "pods" => pod::defaults(value),
        "namespaces" => namespace(value),
        "deployments.apps" => deployment(value),
        "replicasets.apps" | "replicationcontrollers" => {
            default(object(value, &["spec"]), "replicas", 1);
            template(value);
        }
        "statefulsets.apps" => {
            let spec = object(value, &["spec"]);
            default(spec, "replicas", 1);
            default(spec, "podManagementPolicy", "OrderedReady");
            default(spec, "revisionHistoryLimit", 10);
            default(
                object(value, &["spec", "updateStrategy"]),
                "type",
                "RollingUpdate",
            );
            template(value);
        }
        "daemonsets.apps" => {
            default(object(value, &["spec"]), "revisionHistoryLimit", 10);
            let strategy = object(value, &["spec", "updateStrategy"]);
            default(strategy, "type", "RollingUpdate");
            default(
                strategy,
                "rollingUpdate",
                json!({"maxSurge": 0, "maxUnavailable": 1}),
            );
            template(value);
        }
        "jobs.batch" => job(value),
        "cronjobs.batch" => {
            let spec = object(value, &["spec"]);
            default(spec, "concurrencyPolicy", "Allow");
            default(spec, "suspend", false);
            default(spec, "successfulJobsHistoryLimit", 3);
            default(spec, "failedJobsHistoryLimit", 1);
            pod::spec_defaults(object(
                value,
                &["spec", "jobTemplate", "spec", "template", "spec"],
            ));
        }
        "services" => {
            let spec = object(value, &["spec"]);
            default(spec, "type", "ClusterIP");
            default(spec, "sessionAffinity", "None");
            for port in items_mut(value, "/spec/ports") {
                let number = port["port"].clone();
                let port = object(port, &[]);
                default(port, "protocol", "TCP");
                default(port, "targetPort", number);
            }
        }
        "limitranges" => items_mut(value, "/spec/limits").for_each(limit_range_item),
        "nodes" => {
            for list in ["/status/allocatable", "/status/capacity"] {
                value
                    .pointer_mut(list)
                    .into_iter()
                    .for_each(quantity::canonicalize);
            }
        }
        "mutatingwebhookconfigurations.admissionregistration.k8s.io"
        | "validatingwebhookconfigurations.admissionregistration.k8s.io" => {
            let mutating = kind.storage.starts_with('m');
            items_mut(value, "/webhooks").for_each(|hook| webhook(hook, mutating));
        }
        _ => {}
    }
}

/// What a real server would refuse in these kinds.
#[must_use]
pub(super) fn validate(kind: &Kind, value: &Value) -> Vec<Cause> {
    let has_selector = matches!(
        kind.storage.as_str(),
        "deployments.apps" | "replicasets.apps" | "statefulsets.apps" | "daemonsets.apps"
    );
    let mut causes = Vec::new();
    if has_selector {
        let selector = of_object(&value["spec"]["selector"]);
        if selector.is_everything() {
            causes.push(Cause::invalid(
                "spec.selector",
                &json!({}),
                "empty selector is invalid for deployment",
            ));
        } else if !selects(&selector, &value["spec"]["template"]) {
            let field = "spec.template.metadata.labels";
            let labels = &value["spec"]["template"]["metadata"]["labels"];
            causes.push(Cause::invalid(
                field,
                labels,
                "`selector` does not match template `labels`",
            ));
        }
    }
    if has_selector || kind.storage == "jobs.batch" {
        causes.extend(pod::validate(
            &value["spec"]["template"]["spec"],
            "spec.template.spec",
        ));
    }
    causes
}

fn namespace(value: &mut Value) {
    let name = tree::text(value, "/metadata/name").to_owned();
    if !name.is_empty() {
        default(
            object(value, &["metadata", "labels"]),
            "kubernetes.io/metadata.name",
            name,
        );
    }
    if value.pointer("/metadata/deletionTimestamp").is_none() {
        default(object(value, &["spec"]), "finalizers", json!(["kubernetes"]));
    }
    default(object(value, &["status"]), "phase", "Active");
}

fn deployment(value: &mut Value) {
    let spec = object(value, &["spec"]);
    default(spec, "replicas", 1);
    default(spec, "revisionHistoryLimit", 10);
    default(spec, "progressDeadlineSeconds", 600);
    let strategy = object(value, &["spec", "strategy"]);
    default(strategy, "type", "RollingUpdate");
    if strategy
        .get("type")
        .is_some_and(|r#type| r#type == "RollingUpdate")
    {
        let rolling = object(value, &["spec", "strategy", "rollingUpdate"]);
        default(rolling, "maxSurge", "25%");
        default(rolling, "maxUnavailable", "25%");
    }
    template(value);
}

fn job(value: &mut Value) {
    let spec = object(value, &["spec"]);
    default(spec, "backoffLimit", 6);
    default(spec, "completionMode", "NonIndexed");
    default(spec, "suspend", false);
    default(spec, "parallelism", 1);
    if spec.get("completions").is_none() && spec.get("parallelism").is_some_and(|n| n == 1) {
        spec.insert("completions".into(), 1.into());
    }
    let (uid, name) = (
        tree::text(value, "/metadata/uid").to_owned(),
        tree::text(value, "/metadata/name").to_owned(),
    );
    if !uid.is_empty() && value["spec"]["manualSelector"] != true {
        let selector = object(value, &["spec", "selector", "matchLabels"]);
        default(selector, "batch.kubernetes.io/controller-uid", uid.as_str());
        let labels = object(value, &["spec", "template", "metadata", "labels"]);
        for (label, text) in [("controller-uid", &uid), ("job-name", &name)] {
            default(labels, label, text.as_str());
            default(labels, &format!("batch.kubernetes.io/{label}"), text.as_str());
        }
    }
    template(value);
}

fn template(value: &mut Value) {
    if value.pointer("/spec/template/spec").is_some() {
        pod::spec_defaults(object(value, &["spec", "template", "spec"]));
        value
            .pointer_mut("/spec/template/spec")
            .into_iter()
            .for_each(quantity::canonicalize_containers);
    }
}

/// Absent defaults follow from the limits of the range itself, for containers only.
fn limit_range_item(item: &mut Value) {
    if item["type"] != "Container" {
        return;
    }
    let fill = |item: &mut Value, to: &str, from: &str| {
        let values: Map<_, _> = item[from].as_object().cloned().unwrap_or_default();
        if !values.is_empty() {
            let target = object(item, &[to]);
            values
                .into_iter()
                .for_each(|(name, amount)| default(target, &name, amount));
        }
    };
    for field in ["min", "max", "default", "defaultRequest", "maxLimitRequestRatio"] {
        item.get_mut(field).into_iter().for_each(quantity::canonicalize);
    }
    fill(item, "default", "max");
    fill(item, "defaultRequest", "default");
    fill(item, "defaultRequest", "min");
}

fn webhook(hook: &mut Value, mutating: bool) {
    let map = object(hook, &[]);
    default(map, "failurePolicy", "Fail");
    default(map, "matchPolicy", "Equivalent");
    default(map, "timeoutSeconds", 10);
    default(map, "namespaceSelector", json!({}));
    default(map, "objectSelector", json!({}));
    if mutating {
        default(map, "reinvocationPolicy", "Never");
    }
    items_mut(hook, "/rules").for_each(|rule| default(object(rule, &[]), "scope", "*"));
    if items(hook, "/clientConfig/service").next().is_none() && hook["clientConfig"].get("service").is_some()
    {
        default(object(hook, &["clientConfig", "service"]), "port", 443);
    }
}
