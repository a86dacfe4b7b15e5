//! How urgent it is to act on a pod: how far its requests are from their targets (`spec/vpa.md` 3.4).

use std::{cmp::Ordering, collections::BTreeMap};

use common::{plan::PodPlan, pod::Managed};

use crate::{
    formula,
    num::{milli, to_f64},
};

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
    /// The priority of a pod with this plan, by those of its containers that count, and of those that only have a formula by
    /// those that count for that. What a formula says has no bounds.
    #[must_use]
    pub fn of(
        plan: &PodPlan<'_>,
        counts: impl Fn(&Managed<'_>) -> bool,
        counts_by_formula: impl Fn(&Managed<'_>) -> bool,
    ) -> Self {
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
        let mut limits: BTreeMap<&str, Totals> = BTreeMap::new();
        for container in plan.containers.iter().filter(|container| {
            formula::is_formula_alone(plan, container) && counts_by_formula(&container.container)
        }) {
            for (resource, target) in &container.requests {
                let request = container.base.request(resource).map_or(0, milli);
                totals.entry(resource).or_default().add(request, milli(target));
                priority.scale_up |= milli(target) > request;
            }
            for (resource, target) in &container.limits {
                let limit = container.base.limit(resource).map_or(0, milli);
                limits.entry(resource).or_default().add(limit, milli(target));
            }
        }
        // A formula may change limits alone; where requests change too, limits change with them and count once.
        let [requests, limits] = [&totals, &limits].map(Totals::relative_changes);
        priority.resource_diff = requests.max(limits);
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
    fn add(&mut self, requested: i64, recommended: i64) {
        self.requested = self.requested.saturating_add(requested);
        self.recommended = self.recommended.saturating_add(recommended);
    }

    fn relative_changes(totals: &BTreeMap<&str, Self>) -> f64 {
        let changes = totals.values().map(Self::relative_change);
        changes.fold(0.0, |sum, change| sum + change)
    }

    fn relative_change(&self) -> f64 {
        let requested = to_f64(self.requested).max(1.0);
        (requested - to_f64(self.recommended)).abs() / requested
    }
}
