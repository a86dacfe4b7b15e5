//! The last step of the plan: more CPU while a pod starts (`spec/vpa.md` 4.5).

use std::borrow::Cow;

use super::{
    ContainerPlan, PlanInput, proportion,
    reason::Reason,
    resource::{Resource, set},
    sizing::CpuBoost,
};
use crate::{
    pod::Resources,
    quantity::{Format, MilliCpu, Quantity},
    quirks::Quirk,
};

const CPU: &str = "cpu";

/// Boosts a container that has a boost and is not switched off. VPA goes by the pod's spec here, whatever its status.
pub(super) fn apply<'a>(input: &PlanInput<'_>, original: &'a Resources, plan: &mut ContainerPlan<'a>) {
    let Some(boost) = input.sizing.cpu_boost(plan.container.name()) else {
        return;
    };
    // What a formula gives takes the place of what the container has.
    let original = if plan.is_by_formula() {
        Cow::Owned(Resources {
            requests: Some(plan.requests.clone()),
            limits: Some(plan.limits.clone()),
        })
    } else {
        Cow::Borrowed(original)
    };
    let recommended = set(Some(&plan.requests), CPU).or(set(original.requests.as_ref(), CPU));
    let from = recommended.cloned().unwrap_or_default();
    let writes_zero = input.quirks.has(Quirk::BoostWritesZeroRequest);
    if plan.switched_off || (from.is_zero() && matches!(boost, CpuBoost::Factor(_)) && !writes_zero) {
        return;
    }
    let mut to = boosted(MilliCpu::from_quantity(&from), boost).to_quantity_as(Format::DecimalSi);
    if to.sign().is_lt() {
        return;
    }
    if let Some(max) = input.max_cpu_boost
        && !max.is_zero()
        && to.cmp_value(max).is_gt()
    {
        to = max.clone();
    }

    let policy = input.sizing.policy(plan.container.name());
    if policy.is_some_and(|policy| policy.requests_only) {
        if let Some(limit) = original.limit(CPU)
            && to.cmp_value(limit).is_gt()
        {
            to = just_below(limit);
        }
    } else {
        let default = set(input.limit_ranges.container_defaults(), CPU)
            .filter(|_| !input.quirks.has(Quirk::BoostForgetsDefaultLimit));
        if let Some(limit) = proportion::limit(Resource::Cpu, &original, Some(&to), default).limit() {
            plan.limits.insert(CPU.to_owned(), limit);
        }
    }
    plan.requests.insert(CPU.to_owned(), to.clone());
    plan.reasons.push(Reason::Boosted { from, to });
    plan.boosted_from = Some(original);
}

fn boosted(base: MilliCpu, boost: &CpuBoost) -> MilliCpu {
    match boost {
        CpuBoost::Factor(factor) => MilliCpu(base.0.saturating_mul(i64::from(*factor))),
        CpuBoost::Plus(more) => base.saturating_add(MilliCpu::from_quantity(more)),
    }
}

/// A request equal to the limit would make the pod Guaranteed, and it would stay so after the boost.
fn just_below(limit: &Quantity) -> Quantity {
    let milli = Quantity::from_milli(1, Format::DecimalSi);
    if limit.cmp_value(&milli).is_gt() {
        limit - &milli
    } else {
        limit.clone()
    }
}
