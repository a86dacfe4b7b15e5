//! Formulas (`spec/sidecarset.md` 3.9): checked with a quantity in place of Kruise's number 1, so that what cannot be
//! computed is found here, and `cpu-2` is not refused for being small (`DESIGN.md` 4).

use common::{
    api::{
        OpenEnum,
        sidecarset::{ResourcesPolicy, SidecarContainer, SidecarSetSpec, TargetContainersMode},
    },
    formula::Policy,
    gates::{Gate, Gates},
    pod::Side,
};
use serde_json::Value;

use super::Faults;

pub(super) fn check(spec: &SidecarSetSpec, gates: &Gates, faults: &mut Faults) {
    for (index, sidecar) in spec.init_containers.iter().enumerate() {
        if let Some(policy) = &sidecar.resources_policy {
            let field = format!("spec.initContainers[{index}]");
            let detail = if !sidecar.restarts_always() {
                Some("resourcesPolicy is only supported for containers with RestartPolicy Always")
            } else if !gates.enabled(Gate::NativeSidecar) {
                Some(
                    "resourcesPolicy is only supported for spec.containers while the feature gate NativeSidecar is off: \
                     switch it on for native sidecars, on admission and updater",
                )
            } else {
                None
            };
            if let Some(detail) = detail {
                faults.invalid(format!("{field}.resourcesPolicy"), sidecar.name(), detail);
            }
            check_policy(&field, sidecar, policy, faults);
        }
    }
    for (index, sidecar) in spec.containers.iter().enumerate() {
        if let Some(policy) = &sidecar.resources_policy {
            check_policy(&format!("spec.containers[{index}]"), sidecar, policy, faults);
        }
    }
}

fn check_policy(field: &str, sidecar: &SidecarContainer, policy: &ResourcesPolicy, faults: &mut Faults) {
    let has = |side: &str| {
        let resources = sidecar
            .core
            .get("resources")
            .and_then(|resources| resources.get(side));
        resources
            .and_then(Value::as_object)
            .is_some_and(|amounts| !amounts.is_empty())
    };
    let field = format!("{field}.resourcesPolicy");
    if has("limits") || has("requests") {
        faults.invalid(
            field,
            sidecar.name(),
            "resourcesPolicy and resources cannot be configured together",
        );
        return;
    }
    match &policy.target_containers_mode {
        Some(TargetContainersMode::Sum | TargetContainersMode::Max) => {}
        mode => {
            let mode = mode.as_ref().map(OpenEnum::as_str).unwrap_or_default();
            let known = TargetContainersMode::known_names();
            faults.not_supported(format!("{field}.targetContainersMode"), mode, &known);
        }
    }
    let read = Policy::new(policy);
    let regex = format!("{field}.targetContainersNameRegex");
    if policy.name_regex().is_empty() {
        faults.required(regex, "invalid empty regex");
    } else if let Some(error) = read.pattern_error() {
        faults.invalid(
            regex,
            policy.name_regex(),
            format_args!("invalid regex pattern: {error}"),
        );
    }
    let expressions = &policy.resources_expr;
    if *expressions == Default::default() {
        faults.invalid(
            format!("{field}.resourcesExpr"),
            "{}",
            "at least one of limits or requests must be configured",
        );
    }
    for (which, error) in read.check() {
        let side = match which.side {
            Side::Limits => "limits",
            Side::Requests => "requests",
        };
        faults.invalid(
            format!("{field}.resourcesExpr.{side}.{}", which.resource.name()),
            read.formula(which).unwrap_or_default(),
            format_args!("invalid expression: {error}"),
        );
    }
}
