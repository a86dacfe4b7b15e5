//! LimitRanges of type Pod: the sum over a pod's containers is held within them, each container keeping its share
//! (`spec/vpa.md` 4.6 A).

use super::{
    Base,
    limit_range::Range,
    proportion,
    reason::{Bound, Reason},
    recommend::Recommendation,
    resource::{Resource, set},
};
use crate::{
    pod::ResourceList,
    quantity::{Quantity, Rounding},
    quirks::{Quirk, Quirks},
};

type Field = fn(&mut Recommendation) -> Option<&mut ResourceList>;

/// Scales upper bounds, targets and lower bounds. With the gate on native sidecars are in the sums, as they are in the
/// API server's.
pub(super) fn apply(
    range: &Range,
    quirks: Quirks,
    recommendations: &mut [Recommendation],
    base: &[Base<'_>],
) {
    let fields: [Field; 3] = [
        |recommendation| recommendation.amounts.upper_bound.as_mut(),
        |recommendation| Some(&mut recommendation.amounts.target),
        |recommendation| recommendation.amounts.lower_bound.as_mut(),
    ];
    // Where each container's recommendation stands: the first of its name.
    let places: Vec<Option<usize>> = base
        .iter()
        .map(|base| {
            recommendations
                .iter()
                .position(|known| known.amounts.container == base.container.name())
        })
        .collect();
    for (field, is_target) in fields.into_iter().zip([false, true, false]) {
        for resource in Resource::BOTH {
            let Some(scale) = Scale::of(range, resource, &places, recommendations, base, field) else {
                continue;
            };
            for place in places.iter().flatten() {
                let Some(recommendation) = recommendations.get_mut(*place) else {
                    continue;
                };
                // A container without this bound is left alone, where VPA crashes (`spec/vpa.md` 10, Q17).
                let Some(list) = field(recommendation) else {
                    continue;
                };
                if scale.apply(resource, quirks, list) && is_target {
                    let bound = scale.bound;
                    recommendation
                        .reasons
                        .push(Reason::PodLimitRange { resource, bound });
                }
            }
        }
    }
}

/// What every container's share is multiplied by, and why.
struct Scale {
    to: Quantity,
    from: Quantity,
    rounding: Rounding,
    /// Whether it is the limits that are to fit, and not the requests alone.
    of_limits: bool,
    bound: Bound,
}

impl Scale {
    /// Scales one container's share. Who has none keeps none: VPA makes 0 of nothing, and where it scales limits it
    /// rounds 0 bytes down to -1.
    fn apply(&self, resource: Resource, quirks: Quirks, list: &mut ResourceList) -> bool {
        let name = resource.name();
        let writes_nothing = quirks.has(Quirk::PodLimitRangeScalesNothing);
        let amount = list.get(name).cloned();
        if amount.as_ref().is_none_or(Quantity::is_zero) && !writes_nothing {
            return false;
        }
        let amount = amount.unwrap_or_default();
        let Some(scaled) = resource.scaled(&amount, &self.to, &self.from, self.rounding) else {
            return false;
        };
        let mut scaled = scaled.value;
        if scaled.is_zero() && writes_nothing && self.of_limits && resource == Resource::Memory {
            scaled = Quantity::from_units(-1, scaled.format());
        }
        list.insert(name.to_owned(), scaled);
        true
    }

    /// None if the sums are within the range, or nothing can be scaled.
    fn of(
        range: &Range,
        resource: Resource,
        places: &[Option<usize>],
        recommendations: &mut [Recommendation],
        base: &[Base<'_>],
        field: Field,
    ) -> Option<Self> {
        let name = resource.name();
        let zero = Quantity::default();
        let default = set(range.default.as_ref(), name);
        let (mut sum, mut limit_sum) = (zero.clone(), zero.clone());
        for (base, place) in base.iter().zip(places) {
            let recommended = match place.and_then(|place| recommendations.get_mut(place)) {
                Some(recommendation) => field(recommendation).and_then(|list| list.get(name)),
                None => base.resources.request(name),
            };
            let limit = proportion::limit(resource, base.resources, recommended, default).limit();
            limit_sum = &limit_sum + limit.as_ref().unwrap_or(&zero);
            sum = &sum + recommended.unwrap_or(&zero);
        }

        let min = set(range.min.as_ref(), name).unwrap_or(&zero);
        let max = set(range.max.as_ref(), name);
        let too_large = max.filter(|max| max.cmp_value(&limit_sum).is_lt());
        if limit_sum.is_zero() {
            None
        } else if min.cmp_value(&sum).is_gt() {
            let rounding = match resource {
                Resource::Cpu => Rounding::Ceil,
                Resource::Memory => Rounding::Floor,
            };
            Some(Self {
                to: min.clone(),
                from: sum,
                rounding,
                of_limits: false,
                bound: Bound::Min,
            })
        } else {
            let (to, bound) = match too_large {
                Some(max) => (max, Bound::Max),
                None if min.cmp_value(&limit_sum).is_gt() => (min, Bound::Min),
                None => return None,
            };
            Some(Self {
                to: to.clone(),
                from: limit_sum,
                rounding: Rounding::Floor,
                of_limits: true,
                bound,
            })
        }
    }
}
