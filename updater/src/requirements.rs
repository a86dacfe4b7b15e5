//! The VPA's say in which changes are worth a disruption (`spec/vpa.md` 3.5). As in VPA it is heard for resizes too
//! (`spec/vpa.md` 10, Q23).

use common::{
    plan::{PodPlan, Recommended, Resource},
    pod::{Managed, Resources},
    quantity::Quantity,
};

use crate::{
    num::milli,
    vpa::{Direction, Requirement, Vpa},
};

/// Whether a change is worth it: it is if it is for one of the containers that count.
#[must_use]
pub fn are_met(vpa: &Vpa, plan: &PodPlan<'_>, counts: impl Fn(&Managed<'_>) -> bool) -> bool {
    let Some(requirements) = &vpa.requirements else {
        return true;
    };
    plan.containers
        .iter()
        .filter(|container| counts(&container.container))
        .any(|container| {
            let mut recommendations = plan.recommendations.iter().map(|one| &one.amounts);
            recommendations
                .find(|one| one.container == container.container.name())
                .is_some_and(|recommended| are_met_by(requirements, container.base, recommended))
        })
}

fn are_met_by(requirements: &[Requirement], current: &Resources, recommended: &Recommended) -> bool {
    let has_all_requests = Resource::BOTH
        .iter()
        .all(|resource| current.request(resource.name()).is_some());
    !has_all_requests
        || requirements
            .iter()
            .all(|requirement| requirement.is_met(current, recommended))
}

impl Requirement {
    fn is_met(&self, current: &Resources, recommended: &Recommended) -> bool {
        let amount = |quantity: Option<&Quantity>| quantity.map_or(0, milli);
        self.resources.iter().any(|resource| {
            let target = amount(recommended.target.get(resource));
            let request = amount(current.request(resource));
            match self.direction {
                Some(Direction::Up) => target > request,
                Some(Direction::Down) => target < request,
                None => false,
            }
        })
    }
}
