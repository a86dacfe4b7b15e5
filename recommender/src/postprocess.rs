//! What happens to a recommendation before it is published: whole cores for those who asked for them, then the
//! bounds of the policy and of the recommender (`spec/vpa.md` 2.10).

use crate::{
    policy::{PerResource, Policies},
    recommend::{Amounts, Recommendation},
};
use common::quantity::Quantity;
use std::{cmp::Ordering, collections::BTreeMap};

/// What is done to every recommendation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PostProcessing {
    /// Annotated containers get whole cores.
    pub integer_cpu: bool,
    /// The most that any container gets, where its policy does not say; a zero means no limit.
    pub max_allowed: Amounts,
}

/// The annotation of a VPA that asks for whole cores is this, the container's name, and [`INTEGER_CPU_SUFFIX`].
const INTEGER_CPU_PREFIX: &str = "vpa-post-processor.kubernetes.io/";
const INTEGER_CPU_SUFFIX: &str = "_integerCPU";

impl PostProcessing {
    /// The recommendation to publish.
    #[must_use]
    pub fn apply(
        &self,
        mut recommendation: Recommendation,
        annotations: &BTreeMap<String, String>,
        policies: &Policies,
    ) -> Recommendation {
        if self.integer_cpu {
            for container in integer_cpu_containers(annotations) {
                let Some(recommended) = recommendation.get_mut(container) else {
                    continue;
                };
                for amounts in recommended.lists() {
                    amounts.cpu = amounts.cpu.take().map(|cpu| cpu.rounded_up_to_units());
                }
            }
        }
        for (name, recommended) in &mut recommendation {
            let policy = policies.get(name);
            let min = policy.map(|policy| &policy.min_allowed);
            let max = PerResource {
                cpu: policy
                    .and_then(|policy| policy.max_allowed.cpu.as_ref())
                    .or(self.max_allowed.cpu.as_ref()),
                memory: policy
                    .and_then(|policy| policy.max_allowed.memory.as_ref())
                    .or(self.max_allowed.memory.as_ref()),
            };
            for amounts in [
                &mut recommended.target,
                &mut recommended.lower,
                &mut recommended.upper,
            ] {
                cap(&mut amounts.cpu, min.and_then(|min| min.cpu.as_ref()), max.cpu);
                cap(
                    &mut amounts.memory,
                    min.and_then(|min| min.memory.as_ref()),
                    max.memory,
                );
            }
        }
        recommendation
    }
}

fn integer_cpu_containers(annotations: &BTreeMap<String, String>) -> impl Iterator<Item = &str> {
    annotations
        .iter()
        .filter(|(_, value)| *value == "true")
        .filter_map(|(key, _)| {
            let container = key.strip_prefix(INTEGER_CPU_PREFIX)?;
            container.strip_suffix(INTEGER_CPU_SUFFIX)
        })
}

/// Raises an amount to the minimum, then lowers it to the maximum, which wins where they contradict each other.
fn cap(amount: &mut Option<Quantity>, min: Option<&Quantity>, max: Option<&Quantity>) {
    let Some(amount) = amount else { return };
    let given = |bound: Option<&Quantity>| bound.filter(|bound| !bound.is_zero()).cloned();
    if let Some(min) = given(min)
        && amount.cmp_value(&min) == Ordering::Less
    {
        *amount = min;
    }
    if let Some(max) = given(max)
        && amount.cmp_value(&max) == Ordering::Greater
    {
        *amount = max;
    }
}
