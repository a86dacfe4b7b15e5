//! What the resource policy of a VPA says about its containers, read once: quantities parsed, defaults filled in,
//! the entry of a container found as `spec/vpa.md` 1.3 says.

use crate::{aggregate::Settings, cluster::ModelConfig, num};
use chrono::TimeDelta;
use common::{
    api::k8s::ResourceList,
    api::vpa::{ANY_CONTAINER, ContainerResourcePolicy, ContainerScalingMode, PodResourcePolicy},
    quantity::{Bytes, Quantity},
    quirks::Quirk,
};

/// An amount for each of the two resources, where there is one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PerResource<T> {
    /// Of CPU.
    pub cpu: T,
    /// Of memory.
    pub memory: T,
}

impl<T: Copy> PerResource<T> {
    /// The same of something else.
    pub(crate) fn each<U>(&self, change: impl Fn(T) -> U) -> PerResource<U> {
        PerResource {
            cpu: change(self.cpu),
            memory: change(self.memory),
        }
    }
}

/// The policies of a VPA's containers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policies(Vec<ContainerPolicy>);

/// The policy of one container.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerPolicy {
    name: String,
    /// Nothing is recommended for it.
    pub off: bool,
    /// Which resources are recommended.
    pub controlled: PerResource<bool>,
    /// What it should have at least. A zero is as good as nothing.
    pub min_allowed: PerResource<Option<Quantity>>,
    /// What it may have at most. A zero means that there is no limit, and no global one either.
    pub max_allowed: PerResource<Option<Quantity>>,
    oom_ratio: Option<f64>,
    oom_min_bump: Option<f64>,
    interval: Option<TimeDelta>,
    interval_count: Option<i64>,
}

impl Policies {
    /// The policy of a container: the first that names it, otherwise the last for `*`.
    #[must_use]
    pub fn get(&self, container: &str) -> Option<&ContainerPolicy> {
        let policies = &self.0;
        let named = policies.iter().find(|policy| policy.name == container);
        named.or_else(|| policies.iter().rfind(|policy| policy.name == ANY_CONTAINER))
    }

    /// Whether nothing is recommended for a container.
    #[must_use]
    pub fn is_off(&self, container: &str) -> bool {
        self.get(container).is_some_and(|policy| policy.off)
    }

    /// Which resources are recommended for a container.
    #[must_use]
    pub fn controlled(&self, container: &str) -> PerResource<bool> {
        self.get(container)
            .map_or(BOTH, |policy| policy.controlled.clone())
    }

    /// The settings of a container, in place of those now in force. VPA leaves an override in force when it goes
    /// from the policy (Q6); we return to the defaults.
    #[must_use]
    pub fn settings(&self, container: &str, current: Settings, config: &ModelConfig) -> Settings {
        let defaults = &config.settings;
        let sticky = config.quirks.has(Quirk::StickyOverrides);
        let mut settings = if sticky { current } else { *defaults };
        let Some(policy) = self.get(container) else {
            settings.memory_cap = defaults.memory_cap;
            return settings;
        };
        settings.memory_cap = match &policy.max_allowed.memory {
            None => defaults.memory_cap,
            Some(cap) => Some(Bytes::from_quantity(cap)).filter(|cap| *cap > Bytes::ZERO),
        };
        if config.per_vpa_settings {
            settings.oom_ratio = policy.oom_ratio.unwrap_or(settings.oom_ratio);
            settings.oom_min_bump = policy.oom_min_bump.unwrap_or(settings.oom_min_bump);
            settings.interval = policy.interval.unwrap_or(settings.interval);
            settings.interval_count = policy.interval_count.unwrap_or(settings.interval_count);
        }
        settings
    }
}

const BOTH: PerResource<bool> = PerResource {
    cpu: true,
    memory: true,
};

impl From<&PodResourcePolicy> for Policies {
    fn from(policy: &PodResourcePolicy) -> Self {
        Self(
            policy
                .container_policies
                .iter()
                .map(ContainerPolicy::from)
                .collect(),
        )
    }
}

impl From<&ContainerResourcePolicy> for ContainerPolicy {
    fn from(policy: &ContainerResourcePolicy) -> Self {
        let has = |list: &Vec<String>, name: &str| list.iter().any(|resource| resource == name);
        Self {
            name: policy.container_name.clone(),
            off: policy.mode == Some(ContainerScalingMode::Off),
            controlled: policy
                .controlled_resources
                .as_ref()
                .map_or(BOTH, |list| PerResource {
                    cpu: has(list, "cpu"),
                    memory: has(list, "memory"),
                }),
            min_allowed: PerResource::from(&policy.min_allowed),
            max_allowed: PerResource::from(&policy.max_allowed),
            oom_ratio: policy.oom_bump_up_ratio.as_ref().and_then(thousandths),
            oom_min_bump: policy.oom_min_bump_up.as_ref().and_then(thousandths),
            interval: policy
                .memory_aggregation_interval_seconds
                .map(|seconds| TimeDelta::seconds(i64::from(seconds))),
            interval_count: policy.memory_aggregation_interval_count,
        }
    }
}

impl From<&ResourceList> for PerResource<Option<Quantity>> {
    /// What is no quantity cannot come from an API server, and says nothing.
    fn from(list: &ResourceList) -> Self {
        let amount = |name| {
            list.get(name)
                .and_then(|quantity| Quantity::try_from(quantity).ok())
        };
        Self {
            cpu: amount("cpu"),
            memory: amount("memory"),
        }
    }
}

fn thousandths(quantity: &common::api::k8s::Quantity) -> Option<f64> {
    let quantity = Quantity::try_from(quantity).ok()?;
    Some(num::float(quantity.milli()?) / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{aggregate::HalfLives, histogram::HalfLife};
    use common::quirks::Quirks;
    use serde_json::{Value, json};

    fn policies(policies: &Value) -> Policies {
        let policy = serde_json::from_value(json!({ "containerPolicies": policies })).unwrap();
        Policies::from(&policy)
    }

    fn config() -> ModelConfig {
        let day = HalfLife::new(TimeDelta::days(1)).unwrap();
        ModelConfig {
            half_lives: HalfLives {
                cpu: day,
                memory: day,
            },
            settings: Settings {
                interval: TimeDelta::days(1),
                interval_count: 8,
                oom_ratio: 1.2,
                oom_min_bump: 1e8,
                memory_cap: None,
            },
            per_vpa_settings: true,
            native_sidecars: false,
            quirks: Quirks::none(),
        }
    }

    #[test]
    fn the_first_by_name_wins_and_the_last_for_all_others() {
        let policies = policies(&json!([
            {"containerName": "*", "mode": "Auto"},
            {"containerName": "a", "mode": "Off"},
            {"containerName": "a", "mode": "Auto"},
            {"containerName": "*", "mode": "Off", "controlledResources": ["memory", "gpu"]},
        ]));
        assert!(policies.is_off("a") && policies.is_off("b"));
        assert_eq!(policies.controlled("a"), BOTH);
        assert_eq!(
            policies.controlled("b"),
            PerResource {
                cpu: false,
                memory: true
            }
        );
        assert!(!Policies::default().is_off("a"));
    }

    #[test]
    fn settings_are_read_in_thousandths() {
        let policies = policies(&json!([{
            "containerName": "a",
            "oomBumpUpRatio": "1500m",
            "oomMinBumpUp": "2Mi",
            "memoryAggregationIntervalSeconds": 600,
            "memoryAggregationIntervalCount": 3,
            "maxAllowed": {"memory": "1Gi"},
        }]));
        let config = config();
        let expected = Settings {
            interval: TimeDelta::minutes(10),
            interval_count: 3,
            oom_ratio: 1.5,
            oom_min_bump: 2_097_152.0,
            memory_cap: Some(Bytes(1 << 30)),
        };
        assert_eq!(policies.settings("a", config.settings, &config), expected);
        assert_eq!(policies.settings("b", expected, &config), config.settings);
        let gate_off = ModelConfig {
            per_vpa_settings: false,
            ..config
        };
        let capped = Settings {
            memory_cap: Some(Bytes(1 << 30)),
            ..config.settings
        };
        assert_eq!(policies.settings("a", config.settings, &gate_off), capped);
    }
}
