//! The recommendation of a VPA: the estimates of its containers in the form in which the API carries them. Bounds of
//! the policy come later, in [`crate::postprocess`].

use crate::{
    aggregate::History,
    cluster::Name,
    estimate::{Estimate, EstimatorConfig, sampled},
    num,
    policy::{PerResource, Policies},
};
use common::{
    api::{
        k8s::ResourceList,
        vpa::{RecommendedContainerResources, RecommendedPodResources},
    },
    quantity::{Bytes, MilliCpu, Quantity},
    quirks::{Quirk, Quirks},
};
use std::collections::BTreeMap;

/// How amounts are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounding {
    /// CPU is a multiple of this many millicores.
    pub cpu_millicores: i64,
    /// Memory is a multiple of this many bytes.
    pub memory_bytes: i64,
    /// Memory has two decimals and a binary suffix.
    pub humanize_memory: bool,
}

/// What is recommended for one container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recommended {
    /// What it should have.
    pub target: Amounts,
    /// What it should have at least.
    pub lower: Amounts,
    /// What is more than it needs.
    pub upper: Amounts,
    /// The target before the policy had its say.
    pub uncapped: Amounts,
}

/// An amount of each resource that is recommended.
pub type Amounts = PerResource<Option<Quantity>>;

/// What is recommended, by container.
pub type Recommendation = BTreeMap<Name, Recommended>;

/// Where the numbers of one resource come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// From usage.
    Measured,
    /// There is no usage yet; what was published before stands.
    Published,
    /// There is no usage yet; the policy names a minimum.
    Minimum,
    /// There is no usage yet, and nothing is recommended.
    NoSamples,
    /// The policy does not want it.
    NotControlled,
}

impl Source {
    /// Every one.
    pub const ALL: [Self; 5] = [
        Self::Measured,
        Self::Published,
        Self::Minimum,
        Self::NoSamples,
        Self::NotControlled,
    ];

    /// What `explain` says of it; nothing if usage speaks for itself.
    #[must_use]
    pub fn because(self) -> Option<&'static str> {
        match self {
            Self::Measured => None,
            Self::Published => Some("no usage yet: what was published before stands"),
            Self::Minimum => Some("no usage yet: the policy names a minimum"),
            Self::NoSamples => Some("no usage yet: nothing is recommended"),
            Self::NotControlled => Some("not controlled by the policy: nothing is recommended"),
        }
    }

    fn is_estimated(self) -> bool {
        matches!(self, Self::Measured | Self::Minimum)
    }
}

/// Makes the recommendation of a VPA from the merged histories of its containers.
///
/// Where there is no sample of a resource VPA recommends the bare minimum, and its updater acts on that (Q10). With us
/// what was published before stays until there is something better; otherwise what nobody knows is left out, unless
/// the policy names a minimum.
#[must_use]
pub fn recommend(
    histories: &BTreeMap<&Name, History>,
    policies: &Policies,
    published: Option<&RecommendedPodResources>,
    estimator: &EstimatorConfig,
    rounding: Rounding,
    quirks: Quirks,
) -> Recommendation {
    let mut recommendation = Recommendation::new();
    for (name, history) in histories {
        let sources = sources(name, history, policies, published, quirks);
        let estimate = estimator.estimate(history, histories.len());
        let mut recommended = Recommended::default();
        recommended.take(rounding.write(&estimate), &sources.each(Source::is_estimated));
        if let Some(published) = published.and_then(|published| find(published, name)) {
            let kept = sources.each(|source| source == Source::Published);
            recommended.take(published.into(), &kept);
        }
        // A policy that controls nothing gets what it asks for: an entry without amounts.
        let unknown = sources.cpu == Source::NoSamples || sources.memory == Source::NoSamples;
        if !(unknown && recommended.is_empty()) {
            recommendation.insert(Name::clone(name), recommended);
        }
    }
    recommendation
}

/// Where the numbers of a container come from.
#[must_use]
pub fn sources(
    container: &str,
    history: &History,
    policies: &Policies,
    published: Option<&RecommendedPodResources>,
    quirks: Quirks,
) -> PerResource<Source> {
    let controlled = policies.controlled(container);
    let sampled = sampled(history);
    let minimum = minimum_given(policies, container);
    let published = published.and_then(|published| find(published, container));
    let was_published = |resource: &str| {
        published.is_some_and(|published| {
            let amount = published.target.get(resource);
            amount.is_some_and(|amount| Quantity::try_from(amount).is_ok())
        })
    };
    let source = |resource: &str, controlled: bool, sampled: bool, minimum: bool| {
        if !controlled {
            Source::NotControlled
        } else if sampled || quirks.has(Quirk::ActsOnMinimumWithoutSamples) {
            Source::Measured
        } else if was_published(resource) {
            Source::Published
        } else if minimum {
            Source::Minimum
        } else {
            Source::NoSamples
        }
    };
    PerResource {
        cpu: source("cpu", controlled.cpu, sampled.cpu, minimum.cpu),
        memory: source("memory", controlled.memory, sampled.memory, minimum.memory),
    }
}

fn minimum_given(policies: &Policies, container: &str) -> PerResource<bool> {
    let given = |amount: &Option<Quantity>| amount.as_ref().is_some_and(|amount| !amount.is_zero());
    policies
        .get(container)
        .map_or_else(PerResource::default, |policy| PerResource {
            cpu: given(&policy.min_allowed.cpu),
            memory: given(&policy.min_allowed.memory),
        })
}

fn find<'a>(published: &'a RecommendedPodResources, name: &str) -> Option<&'a RecommendedContainerResources> {
    published
        .container_recommendations
        .iter()
        .find(|candidate| candidate.container_name == name)
}

impl Rounding {
    fn write(&self, estimate: &Estimate) -> Recommended {
        let write = |pick: fn(&Estimate) -> (MilliCpu, Bytes)| {
            let (cpu, memory) = pick(estimate);
            PerResource {
                cpu: Some(self.cpu(cpu)),
                memory: Some(self.memory(memory)),
            }
        };
        let target = write(|estimate| (estimate.cpu.target, estimate.memory.target));
        Recommended {
            lower: write(|estimate| (estimate.cpu.lower, estimate.memory.lower)),
            upper: write(|estimate| (estimate.cpu.upper, estimate.memory.upper)),
            uncapped: target.clone(),
            target,
        }
    }

    fn cpu(&self, cpu: MilliCpu) -> Quantity {
        MilliCpu(round_up(cpu.0, self.cpu_millicores)).to_quantity()
    }

    fn memory(&self, memory: Bytes) -> Quantity {
        let memory = Bytes(round_up(memory.0, self.memory_bytes));
        let humanized = if self.humanize_memory {
            humanize(memory)
        } else {
            None
        };
        humanized.unwrap_or_else(|| memory.to_quantity())
    }
}

/// The next multiple of a factor; a factor of nothing changes nothing.
fn round_up(value: i64, factor: i64) -> i64 {
    if factor <= 1 || value <= 0 {
        return value;
    }
    let over = value % factor;
    if over == 0 {
        value
    } else {
        value.saturating_add(factor - over)
    }
}

/// The amount with two decimals and the largest binary suffix, which for most amounts is not quite the amount.
fn humanize(memory: Bytes) -> Option<Quantity> {
    let suffixes = [(40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];
    let (power, suffix) = suffixes.into_iter().find(|(power, _)| memory.0 >= 1 << power)?;
    let amount = num::float(memory.0) / num::float(1 << power);
    format!("{amount:.2}{suffix}").parse().ok()
}

impl Recommended {
    /// Takes over the resources that are wanted from another recommendation.
    fn take(&mut self, other: Self, wanted: &PerResource<bool>) {
        let Self {
            target,
            lower,
            upper,
            uncapped,
        } = other;
        for (ours, theirs) in self.lists().into_iter().zip([target, lower, upper, uncapped]) {
            if wanted.cpu {
                ours.cpu = theirs.cpu;
            }
            if wanted.memory {
                ours.memory = theirs.memory;
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.target == Amounts::default()
    }

    /// All four lists: target, lower, upper, uncapped.
    pub(crate) fn lists(&mut self) -> [&mut Amounts; 4] {
        [
            &mut self.target,
            &mut self.lower,
            &mut self.upper,
            &mut self.uncapped,
        ]
    }
}

impl From<&RecommendedContainerResources> for Recommended {
    fn from(wire: &RecommendedContainerResources) -> Self {
        Self {
            target: Amounts::from(&wire.target),
            lower: Amounts::from(&wire.lower_bound),
            upper: Amounts::from(&wire.upper_bound),
            uncapped: Amounts::from(&wire.uncapped_target),
        }
    }
}

/// A recommendation as the status of a VPA carries it, sorted by container.
#[must_use]
pub fn to_wire(recommendation: &Recommendation) -> RecommendedPodResources {
    let containers = recommendation
        .iter()
        .map(|(name, recommended)| RecommendedContainerResources {
            container_name: name.to_string(),
            target: list(&recommended.target),
            lower_bound: list(&recommended.lower),
            upper_bound: list(&recommended.upper),
            uncapped_target: list(&recommended.uncapped),
        });
    RecommendedPodResources {
        container_recommendations: containers.collect(),
    }
}

fn list(amounts: &Amounts) -> ResourceList {
    let named = [("cpu", &amounts.cpu), ("memory", &amounts.memory)];
    let given = named
        .into_iter()
        .filter_map(|(name, amount)| Some((name, amount.as_ref()?)));
    given
        .map(|(name, amount)| (name.to_owned(), amount.into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{aggregate::HalfLives, estimate::Percentiles, histogram::HalfLife};
    use chrono::TimeDelta;
    use serde_json::{Value, json};

    const PLAIN: Rounding = Rounding {
        cpu_millicores: 1,
        memory_bytes: 1,
        humanize_memory: false,
    };

    fn estimator() -> EstimatorConfig {
        let percentiles = Percentiles {
            target: 0.9,
            lower: 0.5,
            upper: 0.95,
            confidence_interval: TimeDelta::days(1),
        };
        EstimatorConfig {
            margin: 0.15,
            pod_min_cpu_millicores: 25.0,
            pod_min_memory_mb: 250.0,
            cpu: percentiles,
            memory: percentiles,
        }
    }

    /// Container `a` with these samples and `b` without any: targets only.
    fn targets(cpu: bool, memory: bool, policy: &Value, published: &Value, quirks: Quirks) -> Value {
        let day = HalfLife::new(TimeDelta::days(1)).unwrap();
        let empty = History::new(HalfLives {
            cpu: day,
            memory: day,
        });
        let mut history = empty.clone();
        let time = "2026-03-01T00:00:00Z".parse().unwrap();
        if cpu {
            history.add_cpu(MilliCpu(200), time);
        }
        if memory {
            history.add_peak(Bytes(300_000_000), time);
        }
        let names: [Name; 2] = ["a".into(), "b".into()];
        let histories = BTreeMap::from([(&names[0], history), (&names[1], empty)]);
        let policy = serde_json::from_value(json!({ "containerPolicies": policy })).unwrap();
        let published = serde_json::from_value(json!({ "containerRecommendations": published })).unwrap();
        let policies = Policies::from(&policy);
        let recommendation = recommend(
            &histories,
            &policies,
            Some(&published),
            &estimator(),
            PLAIN,
            quirks,
        );
        let containers = to_wire(&recommendation).container_recommendations.into_iter();
        containers
            .map(|container| (container.container_name, json!(container.target)))
            .collect()
    }

    #[test]
    fn what_nobody_measured_is_left_out() {
        let none = Quirks::none();
        for (cpu, memory, policy, expected) in [
            (
                true,
                true,
                json!([]),
                json!({"a": {"cpu": "247m", "memory": "351198544"}}),
            ),
            (true, false, json!([]), json!({"a": {"cpu": "247m"}})),
            (false, true, json!([]), json!({"a": {"memory": "351198544"}})),
            (false, false, json!([]), json!({})),
            // A minimum in the policy is wish enough; the pod's minimum is shared with those left out.
            (
                true,
                false,
                json!([{"containerName": "b", "minAllowed": {"cpu": "5m", "memory": "0"}}]),
                json!({"a": {"cpu": "247m"}, "b": {"cpu": "12m"}}),
            ),
            (
                true,
                false,
                json!([{"containerName": "a", "controlledResources": ["memory"]}]),
                json!({}),
            ),
            (
                true,
                false,
                json!([{"containerName": "a", "controlledResources": []}]),
                json!({"a": {}}),
            ),
        ] {
            assert_eq!(
                targets(cpu, memory, &policy, &json!([]), none),
                expected,
                "{cpu} {memory} {policy}"
            );
        }
    }

    #[test]
    fn vpa_recommends_the_minimum_at_once() {
        let minimum = json!({"cpu": "12m", "memory": "125Mi"});
        assert_eq!(
            targets(true, true, &json!([]), &json!([]), Quirks::all()),
            json!({"a": {"cpu": "247m", "memory": "351198544"}, "b": minimum})
        );
    }

    #[test]
    fn what_was_published_stays_until_there_is_something_better() {
        let published = json!([
            {"containerName": "a", "target": {"cpu": "3", "memory": "3Gi"}},
            {"containerName": "b", "target": {"cpu": "1", "memory": "1Gi"}, "upperBound": {"cpu": "2"}},
            {"containerName": "gone", "target": {"cpu": "7"}},
        ]);
        assert_eq!(
            targets(true, false, &json!([]), &published, Quirks::none()),
            json!({"a": {"cpu": "247m", "memory": "3Gi"}, "b": {"cpu": "1", "memory": "1Gi"}})
        );
        // Even a minimum in the policy is only for those who have nothing better.
        let minimum = json!([{"containerName": "b", "minAllowed": {"cpu": "5m", "memory": "5Mi"}}]);
        let cpu_only = json!([{"containerName": "b", "target": {"cpu": "1"}}]);
        assert_eq!(
            targets(true, true, &minimum, &cpu_only, Quirks::none()),
            json!({"a": {"cpu": "247m", "memory": "351198544"}, "b": {"cpu": "1", "memory": "125Mi"}})
        );
        let memory_only = json!([{"containerName": "b", "controlledResources": ["memory"]}]);
        assert_eq!(
            targets(true, true, &memory_only, &published, Quirks::none()),
            json!({"a": {"cpu": "247m", "memory": "351198544"}, "b": {"memory": "1Gi"}})
        );
    }

    #[test]
    fn amounts_are_rounded_up() {
        for (value, factor, expected) in [
            (671, 1, 671),
            (671, 50, 700),
            (700, 50, 700),
            (0, 50, 0),
            (671, 0, 671),
            (671, -5, 671),
            (i64::MAX, 2, i64::MAX),
        ] {
            assert_eq!(round_up(value, factor), expected, "{value} {factor}");
        }
    }

    #[test]
    fn memory_for_people_has_two_decimals() {
        let humane = Rounding {
            humanize_memory: true,
            ..PLAIN
        };
        for (bytes, expected) in [
            (587_804_717, "587800248320m"),
            (262_144_000, "250Mi"),
            (1000, "1k"),
            (1024, "1Ki"),
        ] {
            assert_eq!(
                humane.memory(Bytes(bytes)).canonical().to_string(),
                expected,
                "{bytes}"
            );
        }
    }
}
