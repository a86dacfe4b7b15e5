//! What happens to a recommendation before it is published: whole cores for those who asked for them, then the
//! bounds of the policy and of the recommender (`spec/vpa.md` 2.10).

use crate::{
    cluster::Name,
    estimate::Bounds,
    policy::{PerResource, Policies},
    recommend::{Amounts, Recommendation, Recommended},
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

/// Why an amount is not what was estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Cap {
    /// The VPA is annotated so.
    WholeCores,
    /// The policy's minimum.
    MinAllowed,
    /// The policy's maximum.
    MaxAllowed,
    /// The recommender's maximum.
    GlobalMaxAllowed,
}

/// Why the amounts of one container are not what was estimated.
pub type Caps = PerResource<Bounds<Vec<Cap>>>;

impl PostProcessing {
    /// The recommendation to publish.
    #[must_use]
    pub fn apply(
        &self,
        mut recommendation: Recommendation,
        annotations: &BTreeMap<String, String>,
        policies: &Policies,
    ) -> Recommendation {
        self.apply_and_tell(&mut recommendation, annotations, policies, |_, _| {});
        recommendation
    }

    /// Makes a recommendation the one to publish, and tells what was changed of each container for what reason.
    pub(crate) fn apply_and_tell(
        &self,
        recommendation: &mut Recommendation,
        annotations: &BTreeMap<String, String>,
        policies: &Policies,
        mut tell: impl FnMut(&Name, Caps),
    ) {
        for (name, recommended) in recommendation {
            let caps = self.process(name, recommended, annotations, policies);
            tell(name, caps);
        }
    }

    /// Makes what is published of what was recommended for one container, and says what was changed for what reason.
    fn process(
        &self,
        container: &str,
        recommended: &mut Recommended,
        annotations: &BTreeMap<String, String>,
        policies: &Policies,
    ) -> Caps {
        let mut caps = Caps::default();
        if self.integer_cpu && wants_whole_cores(annotations, container) {
            let reasons = &mut caps.cpu;
            round_up(&mut recommended.target.cpu, &mut reasons.target);
            round_up(&mut recommended.lower.cpu, &mut reasons.lower);
            round_up(&mut recommended.upper.cpu, &mut reasons.upper);
            round_up(&mut recommended.uncapped.cpu, &mut Vec::new());
        }
        let policy = policies.get(container);
        let limits = |min: fn(&Amounts) -> Option<&Quantity>| Limits {
            min: policy.and_then(|policy| min(&policy.min_allowed)),
            max: policy.and_then(|policy| min(&policy.max_allowed)),
            global_max: min(&self.max_allowed),
        };
        let (cpu, memory) = (
            limits(|amounts| amounts.cpu.as_ref()),
            limits(|amounts| amounts.memory.as_ref()),
        );
        let Recommended {
            target, lower, upper, ..
        } = recommended;
        cpu.hold(&mut target.cpu, &mut caps.cpu.target);
        cpu.hold(&mut lower.cpu, &mut caps.cpu.lower);
        cpu.hold(&mut upper.cpu, &mut caps.cpu.upper);
        memory.hold(&mut target.memory, &mut caps.memory.target);
        memory.hold(&mut lower.memory, &mut caps.memory.lower);
        memory.hold(&mut upper.memory, &mut caps.memory.upper);
        caps
    }
}

fn wants_whole_cores(annotations: &BTreeMap<String, String>, container: &str) -> bool {
    let mut containers = integer_cpu_containers(annotations);
    containers.any(|annotated| annotated == container)
}

fn round_up(cpu: &mut Option<Quantity>, caps: &mut Vec<Cap>) {
    let Some(amount) = cpu else { return };
    let rounded = amount.rounded_up_to_units();
    if rounded.cmp_value(amount) != Ordering::Equal {
        caps.push(Cap::WholeCores);
    }
    *amount = rounded;
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

/// The bounds of one resource.
struct Limits<'p> {
    min: Option<&'p Quantity>,
    max: Option<&'p Quantity>,
    /// Counts where the policy has none.
    global_max: Option<&'p Quantity>,
}

impl Limits<'_> {
    /// Raises an amount to the minimum, then lowers it to the maximum, which wins where they contradict each other.
    fn hold(&self, amount: &mut Option<Quantity>, caps: &mut Vec<Cap>) {
        let Some(amount) = amount else { return };
        let given = |bound: Option<&Quantity>| bound.filter(|bound| !bound.is_zero()).cloned();
        let (max, named) = match self.max {
            Some(max) => (Some(max), Cap::MaxAllowed),
            None => (self.global_max, Cap::GlobalMaxAllowed),
        };
        if let Some(min) = given(self.min)
            && amount.cmp_value(&min) == Ordering::Less
        {
            *amount = min;
            caps.push(Cap::MinAllowed);
        }
        if let Some(max) = given(max)
            && amount.cmp_value(&max) == Ordering::Greater
        {
            *amount = max;
            caps.push(named);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recommend::to_wire;
    use serde_json::{Value, json};

    fn amounts(cpu: &str, memory: &str) -> Amounts {
        Amounts {
            cpu: Some(cpu.parse().unwrap()),
            memory: Some(memory.parse().unwrap()),
        }
    }

    /// What becomes of a recommendation for container `a`.
    fn processed(processing: &PostProcessing, annotations: &Value, policy: &Value) -> Value {
        let recommended = Recommended {
            target: amounts("1200m", "300Mi"),
            lower: amounts("600m", "200Mi"),
            upper: amounts("2500m", "1Gi"),
            uncapped: amounts("1200m", "300Mi"),
        };
        let recommendation = Recommendation::from([("a".into(), recommended)]);
        let policy = serde_json::from_value(json!({ "containerPolicies": policy })).unwrap();
        let annotations = serde_json::from_value(annotations.clone()).unwrap();
        let processed = processing.apply(recommendation, &annotations, &Policies::from(&policy));
        let wire = to_wire(&processed).container_recommendations.remove(0);
        json!([
            wire.lower_bound,
            wire.target,
            wire.upper_bound,
            wire.uncapped_target
        ])
    }

    #[test]
    fn the_policy_bounds_all_but_the_uncapped_target() {
        let processing = PostProcessing::default();
        for (policy, expected) in [
            (
                json!([{"containerName": "a", "minAllowed": {"cpu": "1"}, "maxAllowed": {"memory": "512Mi"}}]),
                json!([
                    {"cpu": "1", "memory": "200Mi"},
                    {"cpu": "1200m", "memory": "300Mi"},
                    {"cpu": "2500m", "memory": "512Mi"},
                    {"cpu": "1200m", "memory": "300Mi"},
                ]),
            ),
            // The maximum wins over the minimum, and a zero bounds nothing.
            (
                json!([{
                    "containerName": "*",
                    "minAllowed": {"cpu": "4", "memory": "0"},
                    "maxAllowed": {"cpu": "2", "memory": "0"},
                }]),
                json!([
                    {"cpu": "2", "memory": "200Mi"},
                    {"cpu": "2", "memory": "300Mi"},
                    {"cpu": "2", "memory": "1Gi"},
                    {"cpu": "1200m", "memory": "300Mi"},
                ]),
            ),
        ] {
            assert_eq!(processed(&processing, &json!({}), &policy), expected, "{policy}");
        }
    }

    #[test]
    fn the_global_maximum_fills_what_the_policy_leaves_open() {
        let processing = PostProcessing {
            integer_cpu: false,
            max_allowed: amounts("1", "256Mi"),
        };
        let bounds = |policy: Value| processed(&processing, &json!({}), &policy)[2].clone();
        assert_eq!(bounds(json!([])), json!({"cpu": "1", "memory": "256Mi"}));
        let policy = json!([{"containerName": "a", "maxAllowed": {"cpu": "2"}}]);
        assert_eq!(bounds(policy), json!({"cpu": "2", "memory": "256Mi"}));
    }

    #[test]
    fn whole_cores_are_for_those_who_ask() {
        let processing = PostProcessing {
            integer_cpu: true,
            max_allowed: Amounts::default(),
        };
        let cpus = |annotations: Value, processing: &PostProcessing| {
            let lists = processed(processing, &annotations, &json!([]));
            lists
                .as_array()
                .unwrap()
                .iter()
                .map(|list| list["cpu"].clone())
                .collect::<Vec<_>>()
        };
        let key = "vpa-post-processor.kubernetes.io/a_integerCPU";
        assert_eq!(cpus(json!({key: "true"}), &processing), ["1", "2", "3", "2"]);
        for annotations in [json!({key: "True"}), json!({}), json!({"a_integerCPU": "true"})] {
            assert_eq!(
                cpus(annotations, &processing),
                ["600m", "1200m", "2500m", "1200m"]
            );
        }
        let off = PostProcessing::default();
        assert_eq!(
            cpus(json!({key: "true"}), &off),
            ["600m", "1200m", "2500m", "1200m"]
        );
    }
}
