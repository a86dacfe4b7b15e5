//! Reviews of new pods: matched to the VPA that controls them, planned, and patched (`spec/vpa.md` 4.4, 4.5).
//! What goes wrong here never keeps a pod from being created; the caller allows it unpatched.

mod memory;
mod patch;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, str::FromStr};

use common::{
    gates::Gates,
    plan::{Formulas, LimitRanges, NO_VPA, PlanInput, Sizing, Stage, plan},
    pod::Pod,
    quantity::Quantity,
    quirks::{Quirk, Quirks},
    sidecarset::FormulaIndex,
    target::{Controllers, TargetingVpa, TopmostError, VpaIndex, controlling_vpa},
};
use serde_json::value::RawValue;

use self::memory::Memory;
use crate::{
    review::{Operation, Request},
    sidecarset::size,
};

/// The annotation that remembers what a pod's containers had before the first call.
pub use memory::ANNOTATION as MEMORY_ANNOTATION;

/// What is known when a pod comes in.
#[derive(Clone, Copy, Debug)]
pub struct World<'a, C> {
    /// The VPAs.
    pub vpas: &'a VpaIndex,
    /// Who owns whom.
    pub controllers: &'a C,
    /// The LimitRanges, by namespace.
    pub limit_ranges: &'a HashMap<String, LimitRanges>,
    /// The formulas of SidecarSets; none where these play no part.
    pub formulas: &'a FormulaIndex,
}

/// How pods are treated, whatever they are.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The gates.
    pub gates: Gates,
    /// VPA's ways that are in force.
    pub quirks: Quirks,
    /// Whether a pod may come in twice.
    pub reinvocation: Reinvocation,
    /// No boost exceeds this.
    pub max_cpu_boost: Option<Quantity>,
}

/// `reinvocationPolicy` of the webhook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reinvocation {
    /// A pod that another webhook changes after us comes in again, and gets what is new in it.
    #[default]
    IfNeeded,
    /// Each pod comes in once, and its patch is VPA's to the byte.
    Never,
}

impl Reinvocation {
    /// As the API server writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::IfNeeded => "IfNeeded",
            Self::Never => "Never",
        }
    }
}

/// Why a text is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown reinvocation policy {0:?}: use IfNeeded or Never")]
pub struct ReinvocationError(String);

impl FromStr for Reinvocation {
    type Err = ReinvocationError;

    fn from_str(text: &str) -> Result<Self, ReinvocationError> {
        let both = [Self::IfNeeded, Self::Never];
        let found = both.into_iter().find(|policy| policy.name() == text);
        found.ok_or_else(|| ReinvocationError(text.to_owned()))
    }
}

/// Why a pod is left as it is.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// Pods of another version are another type.
    #[error("only v1 pods are supported, not {0:?}")]
    Version(String),
    /// The object is no pod.
    #[error("cannot read the pod: {0}")]
    Json(#[from] serde_json::Error),
    /// The review has no object.
    #[error("the admission review has no object")]
    NoObject,
    /// Its controllers cannot be followed to the top, or a scale has to be asked for first.
    #[error("cannot find the pod's controller: {0}")]
    Controller(#[from] TopmostError),
}

/// The patch for a new pod; empty if nothing is to be changed.
///
/// # Errors
/// If the pod cannot be read or matched. It is to be allowed as it is then.
pub fn review<C: Controllers>(
    request: &Request<'_>,
    world: &World<'_, C>,
    settings: &Settings,
) -> Result<Vec<Operation>, PodError> {
    if request.resource.version != "v1" {
        return Err(PodError::Version(request.resource.version.clone()));
    }
    let pod: Pod = serde_json::from_str(request.object.map(RawValue::get).ok_or(PodError::NoObject)?)?;
    let namespace = namespace(request, &pod, settings.quirks);
    let takes = |vpa: &TargetingVpa| !vpa.sizing.is_off() || vpa.has_boost;
    let formulas = size::formulas(&pod, world.formulas);
    let vpa = controlling_vpa(&pod, namespace, world.vpas, world.controllers, takes)?;
    if vpa.is_none() && formulas.is_none() {
        return Ok(Vec::new());
    }
    let sizing = vpa.map(|vpa| &vpa.sizing);
    let none = LimitRanges::default();
    let limit_ranges = world.limit_ranges.get(namespace).unwrap_or(&none);
    Ok(patch(&pod, sizing, formulas.as_ref(), limit_ranges, settings))
}

/// The patch for a pod with this VPA and these formulas.
fn patch(
    pod: &Pod,
    vpa: Option<&Sizing>,
    formulas: Option<&Formulas>,
    limit_ranges: &LimitRanges,
    settings: &Settings,
) -> Vec<Operation> {
    let memory = match settings.reinvocation {
        Reinvocation::Never => Memory::None,
        Reinvocation::IfNeeded => Memory::of(pod, &settings.gates),
    };
    let remembered = match &memory {
        Memory::None => None,
        Memory::Lost => return Vec::new(),
        Memory::Kept(kept) => Some(&kept.before),
    };
    let input = PlanInput {
        pod,
        sizing: vpa.unwrap_or(&NO_VPA),
        formulas,
        limit_ranges,
        stage: Stage::New,
        remembered,
        even_if_off: false,
        max_cpu_boost: settings.max_cpu_boost.as_ref(),
        gates: &settings.gates,
        quirks: settings.quirks,
    };
    let plan = plan(&input);
    if vpa.is_none() {
        return patch::formulas_alone(pod, &plan);
    }
    match settings.reinvocation {
        Reinvocation::Never => patch::whole(pod, &plan),
        Reinvocation::IfNeeded => patch::what_is_new(pod, &plan, &input, &memory),
    }
}

/// Where the pod will be: the request knows, and the pod itself may not yet. VPA asks the request only for a pod without
/// a name (`spec/vpa.md` 10, Q22).
fn namespace<'a>(request: &'a Request<'_>, pod: &'a Pod, quirks: Quirks) -> &'a str {
    let of_pod = pod.metadata.namespace.as_deref().unwrap_or_default();
    let is_named = pod.metadata.name.as_ref().is_some_and(|name| !name.is_empty());
    let keeps_its_own = quirks.has(Quirk::NamedPodKeepsNoNamespace) && is_named;
    if keeps_its_own || request.namespace.is_empty() {
        of_pod
    } else {
        &request.namespace
    }
}
