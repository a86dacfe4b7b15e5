//! Step 2 of the plan: recommendations, held within LimitRanges and policies (`spec/vpa.md` 4.6).

use super::{
    Base, PlanInput,
    limit_range::capped,
    pod_limit_range,
    reason::{Cap, Reason},
    resource::{cmp_milli, set},
    sizing::{Policy, Recommended},
};
use crate::pod::{ResourceList, Resources};

/// A recommendation within its bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Recommendation {
    /// The container and its amounts. Only the uncapped target is as the status has it.
    pub amounts: Recommended,
    /// What moved the target.
    pub reasons: Vec<Reason>,
}

/// The recommendations for containers that the pod has, as the status orders them, then those that stand in for
/// containers without one.
pub(super) fn capped_recommendations(input: &PlanInput<'_>, base: &[Base<'_>]) -> Vec<Recommendation> {
    let Some(recommended) = input.sizing.recommended() else {
        return Vec::new();
    };
    let recommendations = recommended.iter().map(|amounts| Recommendation {
        amounts: amounts.clone(),
        reasons: Vec::new(),
    });
    let mut recommendations: Vec<_> = recommendations.collect();
    if let Some(range) = &input.limit_ranges.pod {
        stand_in(&mut recommendations, base);
        pod_limit_range::apply(range, input.quirks, &mut recommendations, base);
    }
    recommendations.retain_mut(|recommendation| {
        let container = base
            .iter()
            .find(|base| base.container.name() == recommendation.amounts.container);
        if let Some(container) = container {
            cap(input, container.resources, recommendation);
        }
        container.is_some()
    });
    recommendations
}

/// A container without a recommendation has a share of the pod's LimitRange too: what it requests now.
fn stand_in(recommendations: &mut Vec<Recommendation>, base: &[Base<'_>]) {
    let recommended = recommendations.len();
    for base in base {
        let name = base.container.name();
        let known = recommendations.iter().take(recommended);
        let is_known = known.into_iter().any(|known| known.amounts.container == name);
        if let Some(requests) = &base.resources.requests
            && !requests.is_empty()
            && !is_known
        {
            recommendations.push(Recommendation {
                amounts: Recommended {
                    container: name.to_owned(),
                    target: requests.clone(),
                    lower_bound: None,
                    upper_bound: None,
                    uncapped_target: None,
                },
                reasons: Vec::new(),
            });
        }
    }
}

fn cap(input: &PlanInput<'_>, base: &Resources, recommendation: &mut Recommendation) {
    let Recommendation { amounts, reasons } = recommendation;
    let policy = input.sizing.policy(&amounts.container);
    let process = |list: &mut ResourceList| {
        let mut reasons = Vec::new();
        if let Some(range) = &input.limit_ranges.container {
            reasons.extend(range.apply(base, list));
        }
        if let Some(policy) = policy {
            apply_policy(policy, list, &mut reasons);
            if policy.requests_only {
                hold_to_limits(base, list, &mut reasons);
            }
        }
        reasons
    };
    reasons.extend(process(&mut amounts.target));
    for bound in [&mut amounts.lower_bound, &mut amounts.upper_bound] {
        bound.iter_mut().for_each(|list| _ = process(list));
    }
}

/// The policy wins over LimitRanges, and its maximum over its minimum.
fn apply_policy(policy: &Policy, list: &mut ResourceList, reasons: &mut Vec<Reason>) {
    for (name, recommended) in list {
        if let Some(min) = set(Some(&policy.min_allowed), name)
            && recommended.cmp_value(min).is_lt()
        {
            *recommended = min.clone();
            reasons.push(capped(name, Cap::MinAllowed));
        }
        if let Some(max) = set(Some(&policy.max_allowed), name)
            && recommended.cmp_value(max).is_gt()
        {
            *recommended = max.clone();
            reasons.push(capped(name, Cap::MaxAllowed));
        }
    }
}

/// A limit that is not controlled is not exceeded.
fn hold_to_limits(base: &Resources, list: &mut ResourceList, reasons: &mut Vec<Reason>) {
    for (name, recommended) in list {
        if let Some(limit) = base.limit(name)
            && cmp_milli(recommended, limit).is_gt()
        {
            *recommended = limit.clone();
            reasons.push(capped(name, Cap::ContainerLimit));
        }
    }
}
