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

impl ResizeSupport {
    /// What a server of this version can do, by the words it says itself: `1` and `33`, or `33+` where somebody changed it.
    #[must_use]
    pub fn of(major: &str, minor: &str) -> Self {
        let number = |text: &str| {
            let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u32>().ok()
        };
        match (number(major), number(minor)) {
            (Some(1), Some(..33)) => Self::None,
            (Some(1), Some(33)) => Self::NoMemoryDecrease,
            _ => Self::Full,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_can_do_is_known_by_its_version() {
        for (major, minor, expected) in [
            ("1", "28", ResizeSupport::None),
            ("1", "32+", ResizeSupport::None),
            ("1", "33", ResizeSupport::NoMemoryDecrease),
            ("1", "34", ResizeSupport::Full),
            ("1", "36+", ResizeSupport::Full),
            ("", "", ResizeSupport::Full),
        ] {
            assert_eq!(ResizeSupport::of(major, minor), expected, "{major}.{minor}");
        }
    }
}
