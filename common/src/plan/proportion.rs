//! Limits that keep their proportion to the requests (`spec/vpa.md` 4.7).

use super::{
    reason::{NoLimit, Reason},
    resource::{Resource, cmp_milli, set},
};
use crate::{
    pod::{ResourceList, Resources},
    quantity::{Quantity, Rounding},
};

/// The limits that go with `requests` for a container that has `base`, and what is to be said about them. Nothing is
/// said where no limit is set at all.
pub(super) fn limits(
    base: &Resources,
    requests: &ResourceList,
    defaults: Option<&ResourceList>,
) -> (ResourceList, Vec<Reason>) {
    let mut limits = ResourceList::new();
    let mut reasons = Vec::new();
    for resource in Resource::BOTH {
        let recommended = requests.get(resource.name());
        match limit(resource, base, recommended, set(defaults, resource.name())) {
            Proportional::Limit(limit) => {
                limits.insert(resource.name().to_owned(), limit);
            }
            Proportional::Overflowed(limit) => {
                limits.insert(resource.name().to_owned(), limit);
                reasons.push(Reason::LimitOverflowed(resource));
            }
            Proportional::None(because) => reasons.push(Reason::LimitNotSet { resource, because }),
        }
    }
    if limits.is_empty() {
        reasons.clear();
    }
    (limits, reasons)
}

/// What becomes of one limit.
pub(super) enum Proportional {
    /// It follows the request.
    Limit(Quantity),
    /// It is the largest there is, since what it should be does not fit.
    Overflowed(Quantity),
    /// There is none.
    None(NoLimit),
}

impl Proportional {
    /// The limit alone.
    pub(super) fn limit(self) -> Option<Quantity> {
        match self {
            Self::Limit(limit) | Self::Overflowed(limit) => Some(limit),
            Self::None(_) => None,
        }
    }
}

pub(super) fn limit(
    resource: Resource,
    base: &Resources,
    recommended: Option<&Quantity>,
    default: Option<&Quantity>,
) -> Proportional {
    let name = resource.name();
    let Some(original) = set(base.limits.as_ref(), name).or(default) else {
        return Proportional::None(NoLimit::NoOriginalLimit);
    };
    let Some(recommended) = recommended.filter(|quantity| !quantity.is_zero()) else {
        return Proportional::None(NoLimit::NoRecommendedRequest);
    };
    // A container with a limit and no request runs as if they were equal, and equal they stay.
    let request = match set(base.requests.as_ref(), name) {
        Some(request) if cmp_milli(request, original).is_ne() => request,
        _ => return Proportional::Limit(recommended.clone()),
    };
    match resource.scaled(original, recommended, request, Rounding::Floor) {
        Some(scaled) if scaled.overflowed => Proportional::Overflowed(scaled.value),
        Some(scaled) => Proportional::Limit(scaled.value),
        None => Proportional::None(NoLimit::NoOriginalLimit),
    }
}
