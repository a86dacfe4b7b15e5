//! The plan: what the containers of one pod should have, and why. Admission makes a patch of it, the updater a resize, a
//! priority or nothing, `explain` prints it; nobody else computes resources.

mod boost;
mod formula;
#[cfg(test)]
mod formula_tests;
#[cfg(test)]
mod laws;
mod limit_range;
mod limit_range_index;
mod pod_limit_range;
mod pod_resources;
mod proportion;
mod reason;
mod recommend;
mod resource;
mod sizing;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::BTreeMap};

pub use formula::{FormulaFate, FormulaOf, FormulaPlan, Formulas, UnknownFormula};
pub use limit_range::{LimitRanges, Range};
pub use limit_range_index::LimitRangeIndex;
pub use reason::{Bound, Cap, NoLimit, Reason};
pub use recommend::Recommendation;
pub use resource::Resource;
pub use sizing::{COMPOSITION_ANNOTATION, Composition, NO_VPA, Recommended, Sizing};

use crate::{
    formula::{Field, PolicyError},
    gates::{Gate, Gates},
    pod::{Managed, Pod, ResourceList, Resources, Side},
    quantity::Quantity,
    quirks::{Quirk, Quirks},
};

/// What a plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct PlanInput<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The VPA that controls it, or [`NO_VPA`].
    pub sizing: &'a Sizing,
    /// The formulas that size its sidecars, if it has any.
    pub formulas: Option<&'a Formulas>,
    /// The LimitRanges of the pod's namespace.
    pub limit_ranges: &'a LimitRanges,
    /// Whether the pod runs already.
    pub stage: Stage,
    /// What containers had, by name, before this component changed them: they start from this instead.
    pub remembered: Option<&'a BTreeMap<String, Resources>>,
    /// Whether recommendations count though the VPA's mode is Off: what would be, for those who ask.
    pub even_if_off: bool,
    /// No boost exceeds this.
    pub max_cpu_boost: Option<&'a Quantity>,
    /// The gates.
    pub gates: &'a Gates,
    /// VPA's ways that are in force.
    pub quirks: Quirks,
}

/// Where a pod is in its life, which decides where a plan starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It does not exist yet. Its spec is what it has, its status is what somebody typed, and it may be boosted.
    New,
    /// It runs. It has what the kubelet says, and what the spec says where the kubelet says nothing.
    Running,
}

/// What the containers of a pod should have.
#[derive(Clone, Debug, PartialEq)]
pub struct PodPlan<'a> {
    /// The VPA that says so.
    pub vpa: &'a str,
    /// The recommendations within their bounds: as the status orders them, without containers that the pod does not
    /// have, and followed by stand-ins for containers without one if a LimitRange bounds the pod.
    pub recommendations: Vec<Recommendation>,
    /// The managed containers, in the pod's order.
    pub containers: Vec<ContainerPlan<'a>>,
    /// The formulas that some of them have.
    pub formulas: Option<&'a Formulas>,
}

/// What one container should have.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerPlan<'a> {
    /// The container.
    pub container: Managed<'a>,
    /// What it has.
    pub base: &'a Resources,
    /// The requests to set. What is not named here stays as it is.
    pub requests: ResourceList,
    /// The limits to set.
    pub limits: ResourceList,
    /// What is to be taken away: a limit that a new pod has though its formula gives none any more, and the request that
    /// the API server made of it.
    pub dropped: Vec<Field>,
    /// Why they are as they are.
    pub reasons: Vec<Reason>,
    /// Whether its policy says that it is not sized.
    pub switched_off: bool,
    /// What it goes back to when the start is over, if it is boosted.
    pub boosted_from: Option<Cow<'a, Resources>>,
    /// What its formula came to, if it has one.
    pub formula: Option<FormulaPlan<'a>>,
}

impl ContainerPlan<'_> {
    /// Whether it is left to others: its policy says that it is not sized, and no formula sizes it.
    #[must_use]
    pub fn is_left_alone(&self) -> bool {
        self.switched_off && !self.is_by_formula()
    }

    /// Whether it has what its formula says, or what is recommended on top of that.
    #[must_use]
    pub fn is_by_formula(&self) -> bool {
        self.formula.as_ref().is_some_and(FormulaPlan::is_followed)
    }
}

impl<'a> PodPlan<'a> {
    /// The formulas that fail on what the pod itself says, and why: whoever injects their containers has to refuse the
    /// pod, as Kruise does.
    pub fn failed_formulas(&self) -> impl Iterator<Item = (&'a FormulaOf, &PolicyError)> {
        let formulas = self.containers.iter().filter_map(|plan| plan.formula.as_ref());
        formulas.filter_map(|formula| match &formula.fate {
            FormulaFate::Failed(error) => Some((formula.of, error)),
            FormulaFate::Followed | FormulaFate::OnOwnValues | FormulaFate::LimitWouldVanish(_) => None,
        })
    }
}

/// What the containers of a pod should have, in the order of the steps: base, recommendations, formulas, boost, and the
/// pod's own resources around all of them.
#[must_use]
pub fn plan<'a>(input: &PlanInput<'a>) -> PodPlan<'a> {
    let base: Vec<_> = Base::of(input).collect();
    let by_formula = input.formulas.filter(|formulas| !formulas.containers.is_empty());
    let (recommendations, mut containers) = match by_formula {
        Some(formulas) => formula::plan(input, formulas, &base),
        None => {
            let recommendations = recommend::capped_recommendations(input, &base);
            let containers = base.iter();
            let containers = containers.map(|base| recommended(input, &recommendations, base));
            let containers: Vec<_> = containers.collect();
            (recommendations, containers)
        }
    };
    if input.stage == Stage::New && input.gates.enabled(Gate::CPUStartupBoost) {
        for (plan, base) in containers.iter_mut().zip(&base) {
            boost::apply(input, base.spec, plan);
            let ContainerPlan { requests, limits, .. } = &*plan;
            let is_set = |field: &Field| match field.side {
                Side::Requests => requests.contains_key(field.resource.name()),
                Side::Limits => limits.contains_key(field.resource.name()),
            };
            let dropped = plan.dropped.iter().copied().filter(|field| !is_set(field));
            plan.dropped = dropped.collect();
        }
    }
    pod_resources::fit(input, &mut containers);
    PodPlan {
        vpa: &input.sizing.name,
        recommendations,
        containers,
        formulas: input
            .formulas
            .filter(|all| !all.containers.is_empty() || !all.unknown.is_empty()),
    }
}

/// A container and what it has before anything is planned.
struct Base<'a> {
    container: Managed<'a>,
    resources: &'a Resources,
    /// The same without a look at the status.
    spec: &'a Resources,
}

impl<'a> Base<'a> {
    fn of(input: &PlanInput<'a>) -> impl Iterator<Item = Self> {
        let remembered = input.remembered;
        let reads_status = match input.stage {
            Stage::New => input.quirks.has(Quirk::AdmissionReadsStatus),
            Stage::Running => true,
        };
        input.pod.managed(input.gates).map(move |container| {
            let remembered = remembered.and_then(|remembered| remembered.get(container.name()));
            let spec = remembered.unwrap_or(container.spec_resources());
            let resources = match remembered {
                None if reads_status => container.current_resources().0,
                None | Some(_) => spec,
            };
            Self {
                container,
                resources,
                spec,
            }
        })
    }
}

/// A container with its recommendation, if it has one and is to have it.
fn recommended<'a>(
    input: &PlanInput<'_>,
    recommendations: &[Recommendation],
    base: &Base<'a>,
) -> ContainerPlan<'a> {
    let name = base.container.name();
    let policy = input.sizing.policy(name);
    let mut plan = ContainerPlan {
        container: base.container,
        base: base.resources,
        requests: ResourceList::new(),
        limits: ResourceList::new(),
        dropped: Vec::new(),
        reasons: Vec::new(),
        switched_off: policy.is_some_and(|policy| policy.off)
            && ((input.stage == Stage::New && input.gates.enabled(Gate::CPUStartupBoost))
                || !input.quirks.has(Quirk::AppliesToContainersSwitchedOff)),
        boosted_from: None,
        formula: None,
    };
    if plan.switched_off || (input.sizing.is_off() && !input.even_if_off) {
        return plan;
    }
    let mut own = recommendations
        .iter()
        .filter(|recommendation| recommendation.amounts.container == name);
    let Some(recommendation) = own.next().filter(|_| input.sizing.recommendation.is_some()) else {
        return plan;
    };
    plan.requests = recommendation.amounts.target.clone();
    plan.requests.remove("");
    plan.reasons = recommendation.reasons.clone();
    // In mode Off VPA does not ask the policy, and it is the same limits that would be.
    let requests_only = policy.is_some_and(|policy| policy.requests_only) && !input.sizing.is_off();
    if !requests_only {
        let defaults = input.limit_ranges.container_defaults();
        let (limits, reasons) = proportion::limits(plan.base, &recommendation.amounts.target, defaults);
        plan.limits = limits;
        plan.reasons.extend(reasons);
    }
    plan
}
