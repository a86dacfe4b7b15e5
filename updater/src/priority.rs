//! How urgent it is to act on a pod: how far its requests are from their targets (`spec/vpa.md` 3.4).

use std::{cmp::Ordering, collections::BTreeMap};

use common::{plan::PodPlan, pod::Managed};

use crate::num::{milli, to_f64};

/// How urgent it is to act on a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Priority {
    /// Whether some request is below its target.
    pub scale_up: bool,
    /// Whether some request is outside its bounds.
    pub outside_recommended_range: bool,
    /// The relative changes of the pod's requests, summed over the resources.
    pub resource_diff: f64,
}

impl Priority {
    /// The priority of a pod with this plan, by those of its containers that count.
    #[must_use]
    pub fn of(plan: &PodPlan<'_>, counts: impl Fn(&Managed<'_>) -> bool) -> Self {
        let mut priority = Self::default();
        let mut totals: BTreeMap<&str, Totals> = BTreeMap::new();
        for container in plan.containers.iter().filter(|plan| counts(&plan.container)) {
            let mut recommendations = plan.recommendations.iter().map(|one| &one.amounts);
            let Some(recommended) = recommendations.find(|one| one.container == container.container.name())
            else {
                continue;
            };
            for (resource, target) in &recommended.target {
                let total = totals.entry(resource).or_default();
                total.recommended = total.recommended.saturating_add(milli(target));
                let Some(request) = container.base.request(resource) else {
                    priority.scale_up = true;
                    priority.outside_recommended_range = true;
                    continue;
                };
                total.requested = total.requested.saturating_add(milli(request));
                priority.scale_up |= milli(target) > milli(request);
                let lower = recommended
                    .lower_bound
                    .as_ref()
                    .and_then(|list| list.get(resource));
                let upper = recommended
                    .upper_bound
                    .as_ref()
                    .and_then(|list| list.get(resource));
                priority.outside_recommended_range |= lower
                    .is_some_and(|lower| request.cmp_value(lower).is_lt())
                    || upper.is_some_and(|upper| request.cmp_value(upper).is_gt());
            }
        }
        priority.resource_diff = totals
            .values()
            .map(Totals::relative_change)
            .fold(0.0, |sum, change| sum + change);
        priority
    }

    /// Most urgent first: those that need more before those that have too much, then the larger change. Equals keep
    /// their order.
    #[must_use]
    pub fn urgency(&self, other: &Self) -> Ordering {
        other
            .scale_up
            .cmp(&self.scale_up)
            .then(other.resource_diff.total_cmp(&self.resource_diff))
    }
}

/// One resource, summed over the containers, in thousandths.
#[derive(Default)]
struct Totals {
    requested: i64,
    recommended: i64,
}

impl Totals {
    fn relative_change(&self) -> f64 {
        let requested = to_f64(self.requested).max(1.0);
        (requested - to_f64(self.recommended)).abs() / requested
    }
}
