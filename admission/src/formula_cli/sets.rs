//! Whole SidecarSets on a pod: what every sidecar gets, and why.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use common::{
    api::{
        sidecarset::{SidecarContainer, SidecarSet},
        vpa::VerticalPodAutoscaler,
    },
    formula::{Policy, PolicyError},
    gates::{Gate, Gates},
    plan::{
        ContainerPlan, FormulaFate, FormulaOf, Formulas, LimitRanges, NO_VPA, PlanInput, PodPlan, Sizing,
        Stage, plan,
    },
    pod::{Pod, ResourceList},
    quirks::Quirks,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::CliError;

/// What the containers of a pod get, in words.
pub(super) fn explain(pod: Option<&Path>, sets: &[PathBuf], vpa: Option<&Path>) -> Result<String, CliError> {
    let mut object: Value = pod.map_or(Ok(Value::Null), read)?;
    let sets: Vec<SidecarSet> = sets.iter().map(read).collect::<Result<_, _>>()?;
    let vpa: Option<VerticalPodAutoscaler> = vpa.map(read).transpose()?;
    let mut formulas = Formulas::default();
    for set in &sets {
        inject(&mut object, set, &mut formulas);
    }
    default_requests(&mut object);
    let path = pod.map(Path::to_path_buf).unwrap_or_default();
    let pod: Pod =
        serde_json::from_value(object).map_err(|error| CliError::Object(path, error.to_string()))?;
    let sizing = vpa.as_ref().map(Sizing::from);
    let gates = Gates::default().with(Gate::NativeSidecar, true);
    let limit_ranges = LimitRanges::default();
    let plan = plan(&PlanInput {
        pod: &pod,
        sizing: sizing.as_ref().unwrap_or(&NO_VPA),
        formulas: Some(&formulas),
        limit_ranges: &limit_ranges,
        stage: Stage::New,
        remembered: None,
        even_if_off: true,
        max_cpu_boost: None,
        gates: &gates,
        quirks: Quirks::none(),
    });
    Ok(described(&plan))
}

fn read<T: DeserializeOwned>(path: impl AsRef<Path>) -> Result<T, CliError> {
    let path = path.as_ref();
    let text = std::fs::read_to_string(path).map_err(|error| CliError::Read(path.to_owned(), error))?;
    let wrong = |error: String| CliError::Object(path.to_owned(), error);
    // By way of JSON: types with all of a pod in them, read from YAML, would make this program a tenth larger.
    let object: Value = serde_saphyr::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_value(object).map_err(|error| wrong(error.to_string()))
}

/// Puts the sidecars of a set into a pod that does not have them yet.
fn inject(pod: &mut Value, set: &SidecarSet, formulas: &mut Formulas) {
    let lists: [(&str, &[SidecarContainer]); 2] = [
        ("initContainers", &set.spec.init_containers),
        ("containers", &set.spec.containers),
    ];
    for (list, sidecars) in lists {
        for sidecar in sidecars {
            let name = sidecar.name().to_owned();
            let known = pod["spec"][list].as_array();
            if !known.is_some_and(|known| known.iter().any(|container| container["name"] == name.as_str())) {
                let container = json!(sidecar.core);
                match &mut pod["spec"][list] {
                    Value::Array(known) => known.push(container),
                    list => *list = json!([container]),
                }
            }
            formulas.sidecars.insert(name.clone());
            formulas
                .containers
                .extend(sidecar.resources_policy.as_ref().map(|policy| FormulaOf {
                    container: name.clone(),
                    sidecar: name,
                    set: set.metadata.name.clone().unwrap_or_default(),
                    revision: String::new(),
                    policy: Arc::new(Policy::new(policy)),
                }));
        }
    }
}

/// A container with a limit and no request has that request, as soon as the API server has seen it.
fn default_requests(pod: &mut Value) {
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let Some(limits) = container["resources"]["limits"].as_object().cloned() else {
                continue;
            };
            for (name, limit) in limits {
                let request = &mut container["resources"]["requests"][name];
                if request.is_null() {
                    *request = limit;
                }
            }
        }
    }
}

fn described(plan: &PodPlan<'_>) -> String {
    let mut text = String::new();
    for container in &plan.containers {
        _ = writeln!(text, "{}: {}", container.container.name(), becomes(container));
        for reason in &container.reasons {
            _ = writeln!(text, "  {reason}");
        }
        if let Some(formula) = &container.formula
            && let FormulaFate::Failed(PolicyError::Formula { error, .. }) = &formula.fate
        {
            let caret = error.caret().to_string();
            for line in caret.lines() {
                _ = writeln!(text, "    {line}");
            }
        }
        let policy = container.formula.as_ref().map(|formula| &formula.of.policy);
        for (field, error) in policy.iter().flat_map(|policy| policy.check()) {
            _ = writeln!(text, "  {field}: wrong whatever the pod:");
            let caret = error.caret().to_string();
            for line in caret.lines() {
                _ = writeln!(text, "    {line}");
            }
        }
    }
    let failed: Vec<_> = plan.failed_formulas().map(|(of, _)| of.set.as_str()).collect();
    if !failed.is_empty() {
        _ = writeln!(
            text,
            "where sidecars are injected by SidecarSet {}, this pod is refused",
            failed.join(", ")
        );
    }
    text
}

fn becomes(plan: &ContainerPlan<'_>) -> String {
    let side = |noun: &str, planned: &ResourceList, has: Option<&ResourceList>| {
        let amounts = ["cpu", "memory"].map(|name| {
            let has = has.and_then(|list| list.get(name));
            match (planned.get(name), has) {
                (Some(amount), _) | (None, Some(amount)) => format!("{name} {amount}"),
                (None, None) => format!("{name} -"),
            }
        });
        format!("{noun} {}", amounts.join(", "))
    };
    // What a container with a formula had is set aside.
    let has = |list| (!plan.is_by_formula()).then_some(list);
    let requests = side(
        "requests",
        &plan.requests,
        has(plan.base.requests.as_ref()).flatten(),
    );
    let limits = side("limits", &plan.limits, has(plan.base.limits.as_ref()).flatten());
    format!("{requests}; {limits}")
}
