//! What the LimitRanges of a namespace say together, and how a container's recommendation is held within them
//! (`spec/vpa.md` 4.6).

use super::{
    reason::{Cap, Reason},
    resource::{Resource, set},
    sizing::parsed,
};
use crate::{
    api::k8s::{self, LimitRange, LimitRangeItem},
    pod::{ResourceList, Resources},
    quantity::{Quantity, Rounding},
};

/// The LimitRanges of one namespace, merged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LimitRanges {
    /// The items of type Container; none if no such item says anything.
    pub container: Option<Range>,
    /// The items of type Pod.
    pub pod: Option<Range>,
}

/// Items of one type, merged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Range {
    /// The limit of a container that has none.
    pub default: Option<ResourceList>,
    /// The largest limit.
    pub max: Option<ResourceList>,
    /// The smallest request and limit.
    pub min: Option<ResourceList>,
}

impl LimitRanges {
    /// Merges the objects of one namespace: the last default, the smallest maxima, the largest minima. Default requests
    /// and ratios play no part.
    pub fn merge<'a>(objects: impl IntoIterator<Item = &'a LimitRange>) -> Self {
        let mut merged = Self::default();
        let specs = objects.into_iter().filter_map(|object| object.spec.as_ref());
        for item in specs.flat_map(|spec| &spec.limits) {
            let range = match item.type_.as_str() {
                "Container" => &mut merged.container,
                "Pod" => &mut merged.pod,
                _ => continue,
            };
            if item.max.is_some() || item.default.is_some() || item.min.is_some() {
                range.get_or_insert_default().add(item);
            }
        }
        merged
    }

    pub(super) fn container_defaults(&self) -> Option<&ResourceList> {
        self.container.as_ref()?.default.as_ref()
    }
}

impl Range {
    fn add(&mut self, item: &LimitRangeItem) {
        if let Some(default) = &item.default {
            self.default = Some(parsed(default));
        }
        tighten(&mut self.max, item.max.as_ref(), |tightest, next| {
            next.cmp_value(tightest).is_lt()
        });
        tighten(&mut self.min, item.min.as_ref(), |tightest, next| {
            next.cmp_value(tightest).is_gt()
        });
    }

    /// Holds a recommendation for a container that has `base` within the range.
    pub(super) fn apply(&self, base: &Resources, list: &mut ResourceList) -> Vec<Reason> {
        let mut reasons = Vec::new();
        for resource in Resource::BOTH {
            let name = resource.name();
            let Some(recommended) = list.get_mut(name) else {
                continue;
            };
            if let Some(min) = self.smallest(resource, base)
                && recommended.cmp_value(&min).is_lt()
            {
                *recommended = min;
                reasons.push(capped(name, Cap::LimitRangeMin));
            }
            if let Some(max) = self.boundary(resource, base, self.max.as_ref())
                && recommended.cmp_value(&max).is_gt()
            {
                *recommended = max;
                reasons.push(capped(name, Cap::LimitRangeMax));
            }
        }
        reasons
    }

    /// The minimum holds for the request itself, and for the limit that goes with it.
    fn smallest(&self, resource: Resource, base: &Resources) -> Option<Quantity> {
        let for_request = set(self.min.as_ref(), resource.name())?;
        match self.boundary(resource, base, self.min.as_ref()) {
            Some(for_limit) => Some(for_limit.max_value(for_request.clone())),
            None => Some(for_request.clone()),
        }
    }

    /// The request whose limit in proportion is the bound. None: nothing is bounded.
    fn boundary(
        &self,
        resource: Resource,
        base: &Resources,
        bound: Option<&ResourceList>,
    ) -> Option<Quantity> {
        let name = resource.name();
        let bound = set(bound, name)?;
        let limit = set(base.limits.as_ref(), name).or(set(self.default.as_ref(), name))?;
        let Some(request) = set(base.requests.as_ref(), name) else {
            return Some(bound.clone());
        };
        let scaled = resource.scaled(request, bound, limit, Rounding::Floor)?;
        Some(scaled.value).filter(|quantity| !quantity.is_zero())
    }
}

pub(super) fn capped(resource: &str, by: Cap) -> Reason {
    Reason::Capped {
        resource: resource.to_owned(),
        by,
    }
}

/// The first list is taken whole; of later ones cpu and memory count.
fn tighten(
    tightest: &mut Option<ResourceList>,
    next: Option<&k8s::ResourceList>,
    tighter: impl Fn(&Quantity, &Quantity) -> bool,
) {
    let Some(next) = next else { return };
    let next = parsed(next);
    let Some(tightest) = tightest else {
        *tightest = Some(next);
        return;
    };
    for name in Resource::BOTH.map(Resource::name) {
        if let Some(next) = next.get(name)
            && tightest.get(name).is_none_or(|tightest| tighter(tightest, next))
        {
            tightest.insert(name.to_owned(), next.clone());
        }
    }
}
