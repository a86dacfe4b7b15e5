//! The rules for a VPA, in the order in which VPA applies them. What the object had before may stay though it would not
//! be let in anew.

use common::{
    gates::{Gate, Gates},
    quantity::Quantity,
};

use super::{
    field::{FieldError, Path, quoted},
    object::{ContainerPolicy, GenericBoost, ResourcePolicy, Spec, StartupBoost, UpdatePolicy, Vpa},
};

const MODES: [&str; 5] = ["InPlace", "InPlaceOrRecreate", "Initial", "Off", "Recreate"];
const RESOURCES: [&str; 2] = ["cpu", "memory"];
const NO_PER_VPA_CONFIG: &str = "not supported when feature flag PerVPAConfig is disabled";
const AT_LEAST_1: &str = "must be greater than or equal to 1";

/// What is to be said about an object.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Findings {
    pub(super) errors: Vec<FieldError>,
    pub(super) warnings: Vec<String>,
}

pub(super) fn validate(new: &Vpa, old: &Vpa, gates: &Gates) -> Findings {
    let allowed = Allowed::of(&old.spec, gates);
    let mut findings = Findings::default();
    if let Some(policy) = &new.spec.update_policy {
        update_policy(policy, &allowed, &mut findings);
    }
    if let Some(policy) = &new.spec.resource_policy {
        resource_policy(policy, &allowed, &mut findings);
    }
    if let Some(boost) = &new.spec.startup_boost {
        startup_boost(boost, &Path::spec("startupBoost"), &allowed, &mut findings);
    }
    let recommenders = new.spec.recommenders.len();
    if recommenders > 1 {
        let path = Path::spec("recommenders");
        findings.errors.push(FieldError::too_many(&path, recommenders, 1));
    }
    findings
}

/// What this object may use: what the gates open, and what it has used before.
struct Allowed<'o> {
    in_place: bool,
    startup_boost: bool,
    per_vpa_config: bool,
    /// Of the resources that nobody can control.
    resources: Vec<&'o str>,
}

impl<'o> Allowed<'o> {
    fn of(old: &'o Spec, gates: &Gates) -> Self {
        let policies = || {
            old.resource_policy
                .iter()
                .flat_map(|policy| &policy.container_policies)
        };
        let update = old.update_policy.as_ref();
        let had_in_place = update.is_some_and(|policy| policy.update_mode.as_deref() == Some("InPlace"));
        let had_boost = old
            .startup_boost
            .as_ref()
            .is_some_and(|boost| boost.cpu.is_some())
            || policies().any(|policy| policy.startup_boost.is_some());
        let had_config = update.is_some_and(|policy| policy.evict_after_oom_seconds.is_some())
            || policies().any(uses_per_vpa_config);
        Self {
            in_place: gates.enabled(Gate::InPlace) || had_in_place,
            startup_boost: gates.enabled(Gate::CPUStartupBoost) || had_boost,
            per_vpa_config: gates.enabled(Gate::PerVPAConfig) || had_config,
            resources: policies()
                .flat_map(|policy| policy.controlled_resources.iter().flatten())
                .map(String::as_str)
                .collect(),
        }
    }
}

fn uses_per_vpa_config(policy: &ContainerPolicy) -> bool {
    policy.oom_bump_up_ratio.is_some()
        || policy.oom_min_bump_up.is_some()
        || policy.memory_aggregation_interval_seconds.is_some()
        || policy.memory_aggregation_interval_count.is_some()
}

fn update_policy(policy: &UpdatePolicy, allowed: &Allowed<'_>, findings: &mut Findings) {
    let errors = &mut findings.errors;
    let path = Path::spec("updatePolicy");
    let mode_path = path.child("updateMode");
    match policy.update_mode.as_deref() {
        None => errors.push(FieldError::required(
            &mode_path,
            "updateMode is required if UpdatePolicy is used",
        )),
        Some("Auto") => findings.warnings.push(format!(
            "{path}: \"Auto\" mode is deprecated and will be removed in a future API version. Use explicit update modes \
             like: [{}]. See https://github.com/kubernetes/autoscaler/issues/8424 for more details.",
            MODES.join(" ")
        )),
        Some("InPlace") if !allowed.in_place => errors.push(FieldError::forbidden(
            &mode_path,
            "in order to use UpdateMode InPlace, you must enable feature gate InPlace in the admission-controller args",
        )),
        Some(mode) if !MODES.contains(&mode) => {
            errors.push(FieldError::not_supported(&mode_path, mode, &MODES));
        }
        Some(_) => {}
    }
    if let Some(replicas) = policy.min_replicas.filter(|replicas| *replicas <= 0) {
        let path = path.child("minReplicas");
        errors.push(FieldError::invalid_number(
            &path,
            replicas,
            "minReplicas has to be positive",
        ));
    }
    let path = path.child("evictAfterOOMSeconds");
    at_least_1(
        policy.evict_after_oom_seconds.map(i64::from),
        &path,
        allowed,
        errors,
    );
}

fn resource_policy(policy: &ResourcePolicy, allowed: &Allowed<'_>, findings: &mut Findings) {
    let path = Path::spec("resourcePolicy.containerPolicies");
    for (index, policy) in policy.container_policies.iter().enumerate() {
        container_policy(policy, &path.at(index), allowed, findings);
    }
}

fn container_policy(policy: &ContainerPolicy, path: &Path, allowed: &Allowed<'_>, findings: &mut Findings) {
    let errors = &mut findings.errors;
    if policy.container_name.is_empty() {
        errors.push(FieldError::required(&path.child("containerName"), ""));
    }
    let mode = policy.mode.as_deref();
    if let Some(mode) = mode.filter(|mode| !["Auto", "Off"].contains(mode)) {
        errors.push(FieldError::not_supported(
            &path.child("mode"),
            mode,
            &["Auto", "Off"],
        ));
    }
    bounds(policy, path, errors);
    if mode == Some("Off") && policy.controlled_values.as_deref() == Some("RequestsAndLimits") {
        errors.push(FieldError::forbidden(
            &path.child("controlledValues"),
            "controlledValues shouldn't be specified if container scaling mode is off",
        ));
    }
    for (index, name) in policy.controlled_resources.iter().flatten().enumerate() {
        let path = path.child("controlledResources").at(index);
        if RESOURCES.contains(&name.as_str()) {
            continue;
        }
        if allowed.resources.contains(&name.as_str()) {
            findings.warnings.push(format!(
                "{path}: unsupported value {} is allowed only because it is present in the existing VPA object; \
                 supported values: {}",
                quoted(name),
                RESOURCES.map(quoted).join(", ")
            ));
        } else {
            errors.push(FieldError::not_supported(&path, name, &RESOURCES));
        }
    }
    oom(policy, path, allowed, errors);
    for (field, value) in [
        (
            "memoryAggregationIntervalSeconds",
            policy.memory_aggregation_interval_seconds.map(i64::from),
        ),
        (
            "memoryAggregationIntervalCount",
            policy.memory_aggregation_interval_count,
        ),
    ] {
        at_least_1(value, &path.child(field), allowed, errors);
    }
    if let Some(boost) = &policy.startup_boost {
        startup_boost(boost, &path.child("startupBoost"), allowed, findings);
    }
}

fn bounds(policy: &ContainerPolicy, path: &Path, errors: &mut Vec<FieldError>) {
    let max_path = path.child("maxAllowed");
    for (name, min) in &policy.min_allowed {
        whole(name, min, &path.child("minAllowed").at(name), errors);
        if let Some(max) = policy.max_allowed.get(name)
            && max.cmp_value(min).is_lt()
        {
            let min = quoted(&min.to_string());
            let detail = format!("max resource for {name} is lower than min of {min}");
            errors.push(FieldError::invalid_quantity(&max_path.at(name), max, &detail));
        }
    }
    for (name, max) in &policy.max_allowed {
        whole(name, max, &max_path.at(name), errors);
    }
}

fn whole(name: &str, amount: &Quantity, path: &Path, errors: &mut Vec<FieldError>) {
    let (is_whole, detail) = match name {
        "cpu" => (amount.is_whole_milli(), "must be a whole number of milli CPUs"),
        "memory" => (amount.is_whole_units(), "must be a whole number of bytes"),
        _ => return,
    };
    if !is_whole {
        errors.push(FieldError::invalid_quantity(path, amount, detail));
    }
}

fn oom(policy: &ContainerPolicy, path: &Path, allowed: &Allowed<'_>, errors: &mut Vec<FieldError>) {
    let forbidden = |path: &Path| FieldError::forbidden(path, NO_PER_VPA_CONFIG);
    if let Some(ratio) = &policy.oom_bump_up_ratio {
        let path = path.child("oomBumpUpRatio");
        if !allowed.per_vpa_config {
            errors.push(forbidden(&path));
        } else if let Some(milli) = ratio.milli().filter(|milli| *milli < 1000) {
            let ratio = Thousandths(milli);
            let detail = "must be greater than or equal to 1.0";
            errors.push(FieldError::invalid_number(&path, ratio, detail));
        }
    }
    if let Some(more) = &policy.oom_min_bump_up {
        let path = path.child("oomMinBumpUp");
        if !allowed.per_vpa_config {
            errors.push(forbidden(&path));
        } else if let Some(bytes) = more.units().filter(|bytes| *bytes < 0) {
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid_number(&path, bytes, detail));
        }
    }
}

/// Prints as the number of units: `0.9`, `-1`.
struct Thousandths(i64);

impl std::fmt::Display for Thousandths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, rest) = (self.0.unsigned_abs() / 1000, self.0.unsigned_abs() % 1000);
        let text = format!("{sign}{whole}.{rest:03}");
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

fn at_least_1(value: Option<i64>, path: &Path, allowed: &Allowed<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Some(_) if !allowed.per_vpa_config => {
            errors.push(FieldError::forbidden(path, NO_PER_VPA_CONFIG));
        }
        Some(value) if value < 1 => {
            errors.push(FieldError::invalid_number(path, value, AT_LEAST_1));
        }
        Some(_) | None => {}
    }
}

fn startup_boost(boost: &StartupBoost, path: &Path, allowed: &Allowed<'_>, findings: &mut Findings) {
    if !allowed.startup_boost {
        findings.errors.push(FieldError::forbidden(
            path,
            "in order to use startupBoost, you must enable feature gate CPUStartupBoost in the admission-controller args",
        ));
    } else if let Some(boost) = &boost.cpu {
        cpu_boost(boost, &path.child("cpu"), &mut findings.errors);
    }
}

fn cpu_boost(boost: &GenericBoost, path: &Path, errors: &mut Vec<FieldError>) {
    let factor = path.child("factor");
    let quantity = path.child("quantity");
    match (boost.type_.as_str(), boost.factor, &boost.quantity) {
        ("", ..) => errors.push(FieldError::required(
            &path.child("type"),
            "must be either Factor or Quantity",
        )),
        ("Factor", None, _) => {
            errors.push(FieldError::required(&factor, "required when type is Factor"));
        }
        ("Factor", Some(value), _) if value < 1 => {
            let detail = "must be >= 1 for type Factor";
            errors.push(FieldError::invalid_number(&factor, value, detail));
        }
        ("Quantity", _, None) => {
            errors.push(FieldError::required(&quantity, "required when type is Quantity"));
        }
        ("Quantity", _, Some(value)) => whole("cpu", value, &quantity, errors),
        ("Factor", ..) => {}
        (other, ..) => errors.push(FieldError::not_supported(
            &path.child("type"),
            other,
            &["Factor", "Quantity"],
        )),
    }
}
