//! The quality-of-service class of a pod, which no resize may change. Every container counts for it, ordinary init containers
//! too.

use std::collections::BTreeMap;

use super::{Pod, ResourceList};
use crate::quantity::Quantity;

/// How a pod is treated when its node runs short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QosClass {
    /// Nothing is requested.
    BestEffort,
    /// Neither of the others.
    Burstable,
    /// Everything that may be used is requested.
    Guaranteed,
}

impl Pod {
    /// The class of the pod if containers had these requests and limits besides what the spec says, by name. None if the
    /// pod has resources of its own, which then decide alone.
    #[must_use]
    pub fn qos_class_with(&self, amounts: &BTreeMap<&str, [&ResourceList; 2]>) -> Option<QosClass> {
        if self.spec.resources.is_some() {
            return None;
        }
        let containers = self.spec.init_containers.iter().chain(&self.spec.containers);
        let mut nothing = true;
        let mut guaranteed = true;
        for container in containers {
            let set = amounts.get(container.name.as_str());
            for resource in ["cpu", "memory"] {
                let side = |own: &Option<ResourceList>, index: usize| -> Option<Quantity> {
                    let set = set.and_then(|set| set.get(index)?.get(resource));
                    let amount = set.or_else(|| own.as_ref()?.get(resource))?;
                    (!amount.is_zero()).then(|| amount.clone())
                };
                let request = side(&container.resources.requests, 0);
                let limit = side(&container.resources.limits, 1);
                nothing &= request.is_none() && limit.is_none();
                // A request that is not said is the limit.
                guaranteed &= limit
                    .as_ref()
                    .is_some_and(|limit| request.is_none_or(|request| request.same_value(limit)));
            }
        }
        Some(match (nothing, guaranteed) {
            (true, _) => QosClass::BestEffort,
            (false, true) => QosClass::Guaranteed,
            (false, false) => QosClass::Burstable,
        })
    }
}
