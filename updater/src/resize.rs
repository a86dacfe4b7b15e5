//! From a plan to the two patches of a resize: the pod's resources, and its annotations (`spec/vpa.md` 3.6, 3.7).

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use common::{
    patch::{ANNOTATIONS, Operation, annotation_path, set_amounts},
    plan::{ContainerPlan, PodPlan},
    pod::{Pod, ResourceList, Resources},
    quirks::Quirk,
};

use crate::{
    eligible::differs,
    formula,
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
    let acts_without_change = settings.quirks.has(Quirk::ActsWithoutChange);
    let mut resources = Vec::new();
    let mut changes = unboost::over(pod, vpa, now).next().is_some();
    for container in &plan.containers {
        if let Some(wanted) = Wanted::of(pod, vpa, container, now) {
            // What a container has already is sent along: one patch is one whole answer, whatever came between.
            let spec = container.container.spec_resources();
            changes |= differs(&wanted.requests, &wanted.limits, spec);
            let (requests, limits) = (&*wanted.requests, &*wanted.limits);
            resources.extend(set_amounts(
                &container.container,
                spec,
                requests,
                limits,
                acts_without_change,
            ));
        }
    }
    if resources.is_empty() || !(changes || acts_without_change) {
        return Err(Skip::NoChange);
    }
    let mut annotations = Vec::new();
    if pod.metadata.annotations.is_none() {
        annotations.push(Operation::make(ANNOTATIONS.to_owned()));
    }
    annotations.push(Operation::set(annotation_path(IN_PLACE_UPDATED), "true"));
    annotations
        .extend(formula::annotation(pod, plan).map(|(key, text)| Operation::set(annotation_path(key), text)));
    annotations.extend(unboost::over(pod, vpa, now).map(|container| Operation::Remove {
        path: annotation_path(&unboost::annotation(container)),
    }));
    Ok(Resize {
        resources,
        annotations,
    })
}

/// What a container is to have.
struct Wanted<'p> {
    requests: Cow<'p, ResourceList>,
    limits: Cow<'p, ResourceList>,
}

impl<'p> Wanted<'p> {
    /// None for a container that is left as it is.
    fn of(pod: &Pod, vpa: &Vpa, plan: &'p ContainerPlan<'_>, now: DateTime<Utc>) -> Option<Self> {
        match unboost::boost_of(pod, plan.container.name(), vpa, now) {
            Boost::Running => None,
            Boost::None if plan.is_left_alone() || vpa.sizing.is_off() => None,
            Boost::Over(text) if plan.requests.is_empty() && plan.limits.is_empty() => {
                let Resources { requests, limits } = unboost::original(text);
                Some(Self {
                    requests: Cow::Owned(requests.unwrap_or_default()),
                    limits: Cow::Owned(limits.unwrap_or_default()),
                })
            }
            Boost::Over(_) | Boost::None => Some(Self {
                requests: Cow::Borrowed(&plan.requests),
                limits: Cow::Borrowed(&plan.limits),
            }),
        }
    }
}
