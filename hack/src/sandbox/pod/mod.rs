//! What the API server knows about pods: defaults, the quality-of-service class, validation, and which fields may
//! change. Resizing, evicting and binding have their own files.

mod binding;
mod eviction;
mod resize;

use common::quantity::Quantity;
use serde_json::{Map, Value, json};

use super::{
    error::Cause,
    quantity,
    tree::{default, items, items_mut, object, text},
};

pub(super) use resize::resize;

/// Fills in what a pod does not say; requests follow from limits. Idempotent.
pub(super) fn defaults(pod: &mut Value) {
    spec_defaults(object(pod, &["spec"]));
    pod.pointer_mut("/spec")
        .into_iter()
        .for_each(quantity::canonicalize_containers);
    for list in ["/spec/initContainers", "/spec/containers"] {
        for container in items_mut(pod, list) {
            let limits = container["resources"]["limits"]
                .as_object()
                .cloned()
                .unwrap_or_default();
            if !limits.is_empty() {
                let requests = object(container, &["resources", "requests"]);
                limits
                    .into_iter()
                    .for_each(|(name, amount)| default(requests, &name, amount));
            }
        }
    }
    let spec = object(pod, &["spec"]);
    default(spec, "serviceAccountName", "default");
    default(spec, "preemptionPolicy", "PreemptLowerPriority");
    default(spec, "priority", 0);
    let class = quality_of_service(&pod["spec"]);
    let status = object(pod, &["status"]);
    default(status, "phase", "Pending");
    if status.get("phase").is_some_and(|phase| phase == "Pending") {
        status.insert("qosClass".into(), class.into());
    }
}

/// Fills in what a pod specification does not say, also in templates.
pub(super) fn spec_defaults(spec: &mut Map<String, Value>) {
    default(spec, "restartPolicy", "Always");
    default(spec, "dnsPolicy", "ClusterFirst");
    default(spec, "schedulerName", "default-scheduler");
    default(spec, "terminationGracePeriodSeconds", 30);
    default(spec, "securityContext", json!({}));
    for list in ["initContainers", "containers"] {
        for container in spec
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            container_defaults(container);
        }
    }
}

/// `Guaranteed`, `Burstable` or `BestEffort`, from the resources of all containers.
#[must_use]
pub(super) fn quality_of_service(spec: &Value) -> &'static str {
    let amount = |container: &Value, field: &str, name: &str| {
        quantity::at(&container["resources"][field][name]).filter(|amount| amount.sign().is_gt())
    };
    let mut nothing = true;
    let mut guaranteed = true;
    for container in all_containers(spec) {
        for name in ["cpu", "memory"] {
            let (request, limit) = (
                amount(container, "requests", name),
                amount(container, "limits", name),
            );
            guaranteed &= match (&request, &limit) {
                (Some(request), Some(limit)) => request.same_value(limit),
                _ => false,
            };
            nothing &= request.is_none() && limit.is_none();
        }
    }
    match (nothing, guaranteed) {
        (true, _) => "BestEffort",
        (false, true) => "Guaranteed",
        (false, false) => "Burstable",
    }
}

/// What a pod needs of a resource on its node: containers and native sidecars together, or the largest moment of
/// the initialisation.
#[must_use]
pub(super) fn total(spec: &Value, field: &str, name: &str) -> Quantity {
    let amount = |container: &Value| quantity::at(&container["resources"][field][name]).unwrap_or_default();
    let running = items(spec, "/containers").fold(Quantity::default(), |sum, one| &sum + &amount(one));
    let (mut sidecars, mut peak) = (Quantity::default(), Quantity::default());
    for container in items(spec, "/initContainers") {
        let with_this = &sidecars + &amount(container);
        peak = peak.max_value(with_this.clone());
        if is_native_sidecar(container) {
            sidecars = with_this;
        }
    }
    let overhead = quantity::at(&spec["overhead"][name]).unwrap_or_default();
    &(&running + &sidecars).max_value(peak) + &overhead
}

/// An init container that keeps running.
#[must_use]
pub(super) fn is_native_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

/// Init containers, then containers.
pub(super) fn all_containers(spec: &Value) -> impl Iterator<Item = &Value> {
    items(spec, "/initContainers").chain(items(spec, "/containers"))
}

/// What is wrong with a pod specification.
#[must_use]
pub(super) fn validate(spec: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    if items(spec, "/containers").next().is_none() {
        causes.push(Cause::required(format!("{path}.containers"), ""));
    }
    let mut names = Vec::new();
    for list in ["initContainers", "containers"] {
        for (i, container) in items(spec, &format!("/{list}")).enumerate() {
            let at = |field: &str| format!("{path}.{list}[{i}].{field}");
            for field in ["name", "image"] {
                if text(container, &format!("/{field}")).is_empty() {
                    causes.push(Cause::required(at(field), ""));
                }
            }
            let name = text(container, "/name");
            if names.contains(&name) {
                let message = format!("Duplicate value: \"{name}\"");
                causes.push(Cause {
                    reason: "FieldValueDuplicate",
                    field: at("name"),
                    message,
                });
            }
            names.push(name);
            causes.extend(validate_resources(&container["resources"], &at("resources")));
        }
    }
    causes
}

/// Refuses changes of a pod other than those few that are allowed outside of subresources.
///
/// # Errors
/// The cause of a 422.
pub(super) fn check_update(old: &Value, new: &Value) -> Result<(), Cause> {
    let rest = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        for list in ["/initContainers", "/containers"] {
            items_mut(&mut spec, list).for_each(|container| {
                object(container, &[]).remove("image");
            });
        }
        let map = object(&mut spec, &[]);
        for mutable in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
            map.remove(mutable);
        }
        spec
    };
    let kept = |list: &str| {
        let new: Vec<_> = items(new, list).collect();
        items(old, list).all(|one| new.contains(&one))
    };
    if rest(old) == rest(new) && kept("/spec/tolerations") {
        return Ok(());
    }
    let why = "pod updates may not change fields other than `spec.containers[*].image`,\
               `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
               existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
               previously negative)";
    Err(Cause::forbidden("spec", why))
}

fn validate_resources(resources: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in ["limits", "requests"] {
        for (name, amount) in resources[field].as_object().into_iter().flatten() {
            let at = format!("{path}.{field}[{name}]");
            match quantity::at(amount) {
                None => {
                    let why = "quantities must match the regular expression \
                               '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
                    causes.push(Cause::invalid(at, amount, why));
                }
                Some(number) if number.sign().is_lt() => {
                    causes.push(Cause::invalid(at, amount, "must be greater than or equal to 0"));
                }
                Some(number) if field == "requests" => {
                    let limit = &resources["limits"][name];
                    if quantity::at(limit).is_some_and(|limit| number.cmp_value(&limit).is_gt()) {
                        let limit = limit.as_str().unwrap_or_default();
                        let why = format!("must be less than or equal to {name} limit of {limit}");
                        causes.push(Cause::invalid(format!("{path}.requests"), amount, &why));
                    }
                }
                Some(_) => {}
            }
        }
    }
    causes
}

fn container_defaults(container: &mut Value) {
    let image = text(container, "/image").to_owned();
    let tag = image
        .rsplit('/')
        .next()
        .and_then(|last| last.split_once(':'))
        .map(|(_, tag)| tag);
    let policy = if image.contains('@') || tag.is_some_and(|tag| tag != "latest") {
        "IfNotPresent"
    } else {
        "Always"
    };
    let map = object(container, &[]);
    default(map, "imagePullPolicy", policy);
    default(map, "terminationMessagePath", "/dev/termination-log");
    default(map, "terminationMessagePolicy", "File");
    default(map, "resources", json!({}));
    items_mut(container, "/ports").for_each(|port| default(object(port, &[]), "protocol", "TCP"));
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if container.get(probe).is_some_and(Value::is_object) {
            let probe = object(container, &[probe]);
            for (name, value) in [
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ] {
                default(probe, name, value);
            }
        }
    }
}
