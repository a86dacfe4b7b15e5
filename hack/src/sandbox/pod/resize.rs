//! `pods/resize`: what may change, and every refusal of the real server, first its validation (422), then its admission
//! plugins (403).

use common::quantity::Quantity;
use serde_json::{Value, json};

use crate::sandbox::{
    api::Api,
    error::{ApiError, Cause, Result},
    limits, quantity,
    store::Key,
    tree::{carry, items, items_mut, object, text},
};

use super::{is_native_sidecar, quality_of_service, total, validate};

/// A node names this in `status.declaredFeatures` when it can resize ordinary init containers.
const INIT_CONTAINERS: &str = "InPlacePodVerticalScalingInitContainers";

/// The pod with the resources of `new` and nothing else of it.
///
/// # Errors
/// 422 for what may never be, 403 for what this node cannot do.
pub(in crate::sandbox) fn resize(api: &Api, old: &Value, new: &Value) -> Result<Value> {
    let name = text(old, "/metadata/name");
    let mut causes = same_containers(old, new);
    if causes.is_empty() {
        causes = validate(&new["spec"], "spec");
        causes.extend(check(old, new));
    }
    if !causes.is_empty() {
        return Err(ApiError::invalid("Pod", name, &causes));
    }
    let mut pod = old.clone();
    for list in ["/spec/initContainers", "/spec/containers"] {
        for (container, wanted) in items_mut(&mut pod, list).zip(items(new, list)) {
            let map = object(container, &[]);
            carry(wanted, map, "resources");
            carry(wanted, map, "resizePolicy");
        }
    }
    if pod["spec"] != old["spec"] {
        admit(api, old, &pod)?;
        limits::check(api, &pod)?;
    }
    Ok(pod)
}

fn same_containers(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for list in ["containers", "initContainers"] {
        let names = |pod| -> Vec<&str> {
            items(pod, &format!("/spec/{list}"))
                .map(|container| text(container, "/name"))
                .collect()
        };
        let (old, new) = (names(old), names(new));
        if old.len() != new.len() {
            causes.push(Cause::forbidden(
                "spec",
                &format!("{list} may not be added or removed on resize"),
            ));
            continue;
        }
        for (i, _) in old
            .iter()
            .zip(&new)
            .enumerate()
            .filter(|(_, (old, new))| old != new)
        {
            let why = format!("{list} may not be renamed or reordered on resize");
            causes.push(Cause::forbidden(format!("spec.{list}[{i}].name"), &why));
        }
    }
    causes
}

fn check(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if old
        .pointer("/metadata/annotations/kubernetes.io~1config.mirror")
        .is_some()
    {
        causes.push(Cause::forbidden("", "static pods cannot be resized"));
    }
    let class = match text(old, "/status/qosClass") {
        "" => quality_of_service(&old["spec"]),
        class => class,
    };
    if class != quality_of_service(&new["spec"]) {
        let why = "Pod QOS Class may not change as a result of resizing";
        causes.push(Cause::invalid("spec", &class.into(), why));
    }
    let running =
        items(old, "/status/containerStatuses").find(|status| status["state"].get("running").is_some());
    if running.is_some_and(|status| status.get("resources").is_none()) {
        causes.push(Cause::forbidden(
            "spec",
            "Pod running on node without support for resize",
        ));
    }
    for list in ["initContainers", "containers"] {
        let pointer = format!("/spec/{list}");
        for (i, (old, new)) in items(old, &pointer).zip(items(new, &pointer)).enumerate() {
            for field in ["requests", "limits"] {
                let map = |container: &Value| {
                    container["resources"][field]
                        .as_object()
                        .cloned()
                        .unwrap_or_default()
                };
                let (old, new) = (map(old), map(new));
                if old.keys().any(|name| !new.contains_key(name)) {
                    let at = format!("spec.{list}[{i}].resources.{field}");
                    causes.push(Cause::forbidden(
                        at,
                        &format!("resource {field} cannot be removed"),
                    ));
                }
                let other = |(name, amount): (&String, &Value)| {
                    !matches!(name.as_str(), "cpu" | "memory")
                        && old.get(name).and_then(quantity::at) != quantity::at(amount)
                };
                if new.iter().any(other) {
                    causes.push(Cause::forbidden(
                        "spec",
                        "only cpu and memory resources are mutable",
                    ));
                }
            }
            if old["resources"].get("claims") != new["resources"].get("claims") {
                causes.push(Cause::forbidden(
                    "spec",
                    "only cpu and memory resources are mutable",
                ));
            }
        }
    }
    causes
}

/// The admission plugins that look at the node.
fn admit(api: &Api, old: &Value, pod: &Value) -> Result<()> {
    let (name, node_name) = (text(pod, "/metadata/name"), text(pod, "/spec/nodeName"));
    let forbidden = |why: String| ApiError::forbidden("pods", name, why);
    if node_name.is_empty() {
        return Ok(());
    }
    let Some(node) = api.store().get("nodes", &Key::new("", node_name)) else {
        return Err(forbidden(format!("node \"{node_name}\" not found")));
    };
    let node = node.value();
    let changed = items(old, "/spec/initContainers")
        .zip(items(pod, "/spec/initContainers"))
        .any(|(old, new)| !is_native_sidecar(old) && old["resources"] != new["resources"]);
    if changed && !items(&node, "/status/declaredFeatures").any(|feature| feature == INIT_CONTAINERS) {
        let why = format!(
            "pod update requires features {INIT_CONTAINERS} which are not available on node \"{node_name}\""
        );
        return Err(forbidden(why));
    }
    let none = json!({});
    let allocatable = node.pointer("/status/allocatable").unwrap_or(&none);
    let mut missing = Vec::new();
    for resource in ["cpu", "memory"] {
        let wanted = total(&pod["spec"], "requests", resource);
        let there = quantity::at(&allocatable[resource]).unwrap_or_default();
        if wanted.cmp_value(&there).is_gt() {
            let unit = if resource == "cpu" {
                Quantity::milli
            } else {
                Quantity::units
            };
            let (wanted, there) = (
                unit(&wanted).unwrap_or(i64::MAX),
                unit(&there).unwrap_or(i64::MAX),
            );
            missing.push(format!("{resource}, requested: {wanted}, allocatable: {there}"));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let why = format!(
        "node didn't have enough allocatable resources: {}",
        missing.join("; ")
    );
    Err(forbidden(why).because("NodeCapacity", ""))
}
