//! From a plan to the two patches of a resize: the pod's resources, and its annotations (`spec/vpa.md` 3.6, 3.7).

use chrono::{DateTime, Utc};
use common::{
    patch::{ANNOTATIONS, Operation, annotation_path, set_amounts},
    plan::{ContainerPlan, PodPlan},
    pod::{Pod, ResourceList, Resources},
    quirks::Quirk,
};

use crate::{
    reason::Skip,
    settings::Settings,
    unboost::{self, Boost},
    vpa::Vpa,
};

const IN_PLACE_UPDATED: &str = "vpaInPlaceUpdated";

/// What is sent to resize a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Resize {
    /// For the subresource `resize`.
    pub resources: Vec<Operation>,
    /// For the pod itself, afterwards.
    pub annotations: Vec<Operation>,
}

/// The patches that bring a running pod to its plan.
///
/// # Errors
/// If there is nothing to change.
pub fn resize(
    pod: &Pod,
    vpa: &Vpa,
    plan: &PodPlan<'_>,
    settings: &Settings,
    now: DateTime<Utc>,
) -> Result<Resize, Skip> {
    let containers = plan.containers.iter();
    let resources: Vec<_> = containers
        .flat_map(|container| container_patch(pod, vpa, container, settings, now))
        .collect();
    if resources.is_empty() {
        return Err(Skip::NoChange);
    }
    let mut annotations = Vec::new();
    if pod.metadata.annotations.is_none() {
        annotations.push(Operation::make(ANNOTATIONS.to_owned()));
    }
    annotations.push(Operation::set(annotation_path(IN_PLACE_UPDATED), "true"));
    annotations.extend(unboost::over(pod, vpa, now).map(|container| Operation::Remove {
        path: annotation_path(&unboost::annotation(container)),
    }));
    Ok(Resize {
        resources,
        annotations,
    })
}

fn container_patch(
    pod: &Pod,
    vpa: &Vpa,
    plan: &ContainerPlan<'_>,
    settings: &Settings,
    now: DateTime<Utc>,
) -> Vec<Operation> {
    let original;
    let container = &plan.container;
    let (requests, limits): (&ResourceList, &ResourceList) =
        match unboost::boost_of(pod, container.name(), vpa, now) {
            Boost::Running => return Vec::new(),
            Boost::None if plan.switched_off => return Vec::new(),
            Boost::Over(text) if plan.requests.is_empty() && plan.limits.is_empty() => {
                let Resources { requests, limits } = unboost::original(text);
                original = [requests, limits].map(Option::unwrap_or_default);
                (&original[0], &original[1])
            }
            Boost::Over(_) | Boost::None => (&plan.requests, &plan.limits),
        };
    // Quantities that a container has already are sent along: one patch is one whole answer, whatever came between.
    let even_empty = settings.quirks.has(Quirk::ActsWithoutChange);
    set_amounts(
        container,
        container.spec_resources(),
        requests,
        limits,
        even_empty,
    )
}
