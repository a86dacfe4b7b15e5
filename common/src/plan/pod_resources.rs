//! Pods with resources of their own (`spec.resources`): the API server refuses one whose containers request more than
//! the pod, or have a limit above the pod's. VPA does not look at them; here the containers are fitted to the pod.

use super::{
    ContainerPlan, PlanInput,
    reason::Reason,
    resource::{Resource, set},
};
use crate::{
    gates::{Gate, Gates},
    pod::{Pod, Resources},
    quantity::{Quantity, Rounding},
};

/// Fits what is planned to the pod's own resources.
pub(super) fn fit(input: &PlanInput<'_>, containers: &mut [ContainerPlan<'_>]) {
    let Some(pod) = &input.pod.spec.resources else {
        return;
    };
    for resource in Resource::BOTH {
        let name = resource.name();
        if let Some(limit) = set(pod.limits.as_ref(), name) {
            fit_limits(name, limit, containers);
        }
        // Without a request of its own the pod requests what its containers do, which its limit bounds.
        if let Some(total) = set(pod.requests.as_ref(), name).or(set(pod.limits.as_ref(), name)) {
            let others = others(input.pod, name, containers);
            fit_requests(resource, total, &others, containers);
        }
    }
}

fn fit_limits(name: &str, pod_limit: &Quantity, containers: &mut [ContainerPlan<'_>]) {
    for plan in containers {
        if let Some(limit) = plan.limits.get_mut(name)
            && limit.cmp_value(pod_limit).is_gt()
        {
            *limit = pod_limit.clone();
            if let Some(request) = plan.requests.get_mut(name)
                && request.cmp_value(pod_limit).is_gt()
            {
                *request = pod_limit.clone();
            }
            plan.reasons.push(Reason::FittedToPod {
                resource: name.to_owned(),
            });
        }
    }
}

/// What the containers request for which nothing is planned; native sidecars count whatever the gate says.
fn others(pod: &Pod, name: &str, containers: &[ContainerPlan<'_>]) -> Quantity {
    let planned = |container: &str| {
        containers
            .iter()
            .any(|plan| plan.container.name() == container && plan.requests.contains_key(name))
    };
    pod.managed(&Gates::default().with(Gate::NativeSidecar, true))
        .filter(|container| !planned(container.name()))
        .filter_map(|container| effective_request(container.spec_resources(), name))
        .fold(Quantity::default(), |sum, request| &sum + request)
}

/// A limit without a request is a request too.
fn effective_request<'r>(resources: &'r Resources, name: &str) -> Option<&'r Quantity> {
    resources.request(name).or(resources.limit(name))
}

fn fit_requests(
    resource: Resource,
    total: &Quantity,
    others: &Quantity,
    containers: &mut [ContainerPlan<'_>],
) {
    let name = resource.name();
    let planned = containers.iter().filter_map(|plan| plan.requests.get(name));
    let planned = planned.fold(Quantity::default(), |sum, request| &sum + request);
    let room = total - others;
    if planned.cmp_value(&room).is_le() {
        return;
    }
    let fitted: Option<Vec<Option<Quantity>>> = containers
        .iter()
        .map(|plan| {
            let Some(request) = plan.requests.get(name) else {
                return Some(None);
            };
            let scaled = resource.scaled(request, &room, &planned, Rounding::Floor)?;
            // Less than nothing fits nobody, and nothing at all is no request.
            scaled.value.sign().is_gt().then_some(Some(scaled.value))
        })
        .collect();
    match fitted {
        Some(fitted) => {
            for (plan, request) in containers.iter_mut().zip(fitted) {
                if let Some(request) = request {
                    plan.requests.insert(name.to_owned(), request);
                    plan.reasons.push(Reason::FittedToPod {
                        resource: name.to_owned(),
                    });
                }
            }
        }
        None => {
            for plan in containers
                .iter_mut()
                .filter(|plan| plan.requests.contains_key(name))
            {
                plan.requests.remove(name);
                plan.limits.remove(name);
                if resource == Resource::Cpu {
                    plan.boosted_from = None;
                    plan.reasons
                        .retain(|reason| !matches!(reason, Reason::Boosted { .. }));
                }
                plan.reasons.push(Reason::LeftToFitPod {
                    resource: name.to_owned(),
                });
            }
        }
    }
}
