//! Resizes that the API server is known to refuse, so that they are not sent: VPA sends them and takes the refusal for an
//! answer.

use std::collections::BTreeMap;

use common::{
    plan::{ContainerPlan, PodPlan},
    pod::Pod,
    quirks::Quirk,
};

use crate::{reason::Skip, settings::Settings};

/// What a cluster can do in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResizeSupport {
    /// Nothing: before 1.33, or with the feature switched off.
    None,
    /// All but lowering a memory limit without a restart: 1.33.
    NoMemoryDecrease,
    /// All.
    #[default]
    Full,
}

/// Why a resize by this plan would be refused, if it would.
#[must_use]
pub fn reason(pod: &Pod, plan: &PodPlan<'_>, settings: &Settings) -> Option<Skip> {
    if settings.quirks.has(Quirk::SendsHopelessResizes) {
        return None;
    }
    match settings.resize_support {
        ResizeSupport::None => return Some(Skip::ResizeUnsupported),
        ResizeSupport::NoMemoryDecrease if plan.containers.iter().any(lowers_memory_limit) => {
            return Some(Skip::MemoryLimitDecrease);
        }
        ResizeSupport::NoMemoryDecrease | ResizeSupport::Full => {}
    }
    let planned = plan.containers.iter();
    let planned = planned.map(|plan| (plan.container.name(), [&plan.requests, &plan.limits]));
    let after = pod.qos_class_with(&planned.collect());
    (pod.qos_class_with(&BTreeMap::new()) != after).then_some(Skip::QosWouldChange)
}

fn lowers_memory_limit(plan: &ContainerPlan<'_>) -> bool {
    let now = plan.container.spec_resources().limit("memory");
    let planned = plan.limits.get("memory");
    !plan.container.restarts_on_resize_of("memory")
        && now
            .zip(planned)
            .is_some_and(|(now, planned)| planned.cmp_value(now).is_lt())
}
