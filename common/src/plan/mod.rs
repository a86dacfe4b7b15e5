//! The plan: what the containers of one pod should have, and why. Admission makes a patch of it, the updater a resize, a
//! priority or nothing, `explain` prints it; nobody else computes resources.

mod boost;
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

use std::collections::BTreeMap;

pub use limit_range::{LimitRanges, Range};
pub use limit_range_index::LimitRangeIndex;
pub use reason::{Bound, Cap, NoLimit, Reason};
pub use recommend::Recommendation;
pub use resource::Resource;
pub use sizing::{Recommended, Sizing};

use crate::{
    gates::{Gate, Gates},
    pod::{Managed, Pod, ResourceList, Resources},
    quantity::Quantity,
    quirks::{Quirk, Quirks},
};

/// What a plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct PlanInput<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The VPA that controls it.
    pub sizing: &'a Sizing,
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
    /// Why they are as they are.
    pub reasons: Vec<Reason>,
    /// Whether its policy says that it is not sized.
    pub switched_off: bool,
    /// What it goes back to when the start is over, if it is boosted.
    pub boosted_from: Option<&'a Resources>,
}

/// What the containers of a pod should have, in the order of the steps: base, recommendations, boost, and the pod's own
/// resources around all of them.
#[must_use]
pub fn plan<'a>(input: &PlanInput<'a>) -> PodPlan<'a> {
    let base: Vec<_> = Base::of(input).collect();
    let recommendations = recommend::capped_recommendations(input, &base);
    let mut containers: Vec<_> = base
        .iter()
        .map(|base| recommended(input, &recommendations, base))
        .collect();
    if input.stage == Stage::New && input.gates.enabled(Gate::CPUStartupBoost) {
        for (plan, base) in containers.iter_mut().zip(&base) {
            boost::apply(input, base.spec, plan);
        }
    }
    pod_resources::fit(input, &mut containers);
    PodPlan {
        vpa: &input.sizing.name,
        recommendations,
        containers,
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
        reasons: Vec::new(),
        switched_off: policy.is_some_and(|policy| policy.off)
            && ((input.stage == Stage::New && input.gates.enabled(Gate::CPUStartupBoost))
                || !input.quirks.has(Quirk::AppliesToContainersSwitchedOff)),
        boosted_from: None,
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
