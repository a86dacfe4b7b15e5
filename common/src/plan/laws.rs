//! Laws of the plan, whatever the pod, the VPA and the LimitRanges: bounds, proportions, and an answer to everything.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{resource::set, *};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// An amount of memory or CPU, in the resource's own units.
fn amount() -> impl Strategy<Value = i64> {
    prop_oneof![1..50_i64, 50..5_000_i64, 5_000..4_000_000_000_i64]
}

fn cpu(milli: i64) -> Value {
    json!(format!("{milli}m"))
}

fn list(cpu_milli: Option<i64>, bytes: Option<i64>) -> Value {
    let mut list = serde_json::Map::new();
    list.extend(cpu_milli.map(|milli| ("cpu".to_owned(), cpu(milli))));
    list.extend(bytes.map(|bytes| ("memory".to_owned(), json!(bytes.to_string()))));
    list.into()
}

fn amounts() -> impl Strategy<Value = Value> {
    (option(), option()).prop_map(|(cpu, memory)| list(cpu, memory))
}

fn option() -> impl Strategy<Value = Option<i64>> {
    prop::option::weighted(0.7, amount())
}

/// Requests and limits as the API server lets them in: no request is above its limit.
fn resources() -> impl Strategy<Value = Value> {
    let sides = || {
        (option(), option()).prop_map(|(one, other)| match (one, other) {
            (Some(one), Some(other)) => (Some(one.min(other)), Some(one.max(other))),
            sides => sides,
        })
    };
    (sides(), sides()).prop_map(|((cpu, cpu_limit), (memory, memory_limit))| {
        json!({"requests": list(cpu, memory), "limits": list(cpu_limit, memory_limit)})
    })
}

fn pod() -> impl Strategy<Value = Pod> {
    (1..=4_usize, 0..=2_usize, prop::collection::vec(resources(), 4)).prop_map(
        |(count, sidecars, resources)| {
            let container = |index: usize| json!({"name": NAMES[index], "resources": resources[index]});
            let sidecars = sidecars.min(count - 1);
            let init: Vec<_> = (0..sidecars)
                .map(|index| {
                    let mut sidecar = container(index);
                    sidecar["restartPolicy"] = json!("Always");
                    sidecar
                })
                .collect();
            let containers: Vec<_> = (sidecars..count).map(container).collect();
            serde_json::from_value(json!({
                "metadata": {"name": "p"}, "spec": {"initContainers": init, "containers": containers},
            }))
            .unwrap()
        },
    )
}

fn policy() -> impl Strategy<Value = Value> {
    (amounts(), amounts(), any::<bool>()).prop_map(|(min, max, requests_only)| {
        let values = if requests_only {
            "RequestsOnly"
        } else {
            "RequestsAndLimits"
        };
        json!({"minAllowed": min, "maxAllowed": max, "controlledValues": values})
    })
}

fn vpa() -> impl Strategy<Value = Sizing> {
    let recommendations = prop::collection::vec(prop::option::of((amounts(), amounts(), amounts())), 4);
    let policies = prop::collection::vec(prop::option::of(policy()), 4);
    let boost = prop_oneof![
        Just(Value::Null),
        (1..5_i32).prop_map(|factor| json!({"cpu": {"type": "Factor", "factor": factor}})),
        amount().prop_map(|more| json!({"cpu": {"type": "Quantity", "quantity": cpu(more)}})),
    ];
    (recommendations, policies, boost).prop_map(|(recommendations, policies, boost)| {
        let recommendations: Vec<_> = NAMES
            .iter()
            .zip(recommendations)
            .filter_map(|(name, recommendation)| {
                let (target, lower, upper) = recommendation?;
                Some(json!({"containerName": name, "target": target, "lowerBound": lower, "upperBound": upper}))
            })
            .collect();
        let policies: Vec<_> = NAMES
            .iter()
            .zip(policies)
            .filter_map(|(name, policy)| {
                let mut policy = policy?;
                policy["containerName"] = json!(name);
                Some(policy)
            })
            .collect();
        sizing(json!({
            "metadata": {"name": "v"},
            "spec": {"resourcePolicy": {"containerPolicies": policies}, "startupBoost": boost},
            "status": {"recommendation": {"containerRecommendations": recommendations}},
        }))
    })
}

fn sizing(vpa: Value) -> Sizing {
    Sizing::from(&serde_json::from_value::<crate::api::vpa::VerticalPodAutoscaler>(vpa).unwrap())
}

fn limit_ranges() -> impl Strategy<Value = LimitRanges> {
    // The API server gives a container without a limit the default, and refuses it if its request is above that.
    let default = || prop::option::of((4_000_000_000..8_000_000_000_i64, 4_000_000_000..8_000_000_000_i64));
    let item = |kind: &'static str| {
        prop::option::of(
            (amounts(), amounts(), default()).prop_map(move |(min, max, default)| {
                let default = default.map(|(cpu, memory)| list(Some(cpu), Some(memory)));
                json!({"type": kind, "min": min, "max": max, "default": default})
            }),
        )
    };
    (item("Container"), item("Pod")).prop_map(|(container, pod)| {
        let limits: Vec<_> = container.into_iter().chain(pod).collect();
        LimitRanges::merge([&serde_json::from_value(json!({"spec": {"limits": limits}})).unwrap()])
    })
}

#[derive(Debug, Clone)]
struct World {
    pod: Pod,
    sizing: Sizing,
    limit_ranges: LimitRanges,
    gates: Gates,
}

impl World {
    fn any() -> impl Strategy<Value = Self> {
        (pod(), vpa(), limit_ranges(), any::<bool>()).prop_map(|(pod, sizing, limit_ranges, sidecars)| Self {
            pod,
            sizing,
            limit_ranges,
            gates: Gates::default().with(Gate::NativeSidecar, sidecars),
        })
    }

    fn input<'a>(&'a self, gates: &'a Gates) -> PlanInput<'a> {
        PlanInput {
            pod: &self.pod,
            sizing: &self.sizing,
            formulas: None,
            limit_ranges: &self.limit_ranges,
            stage: Stage::New,
            remembered: None,
            even_if_off: false,
            max_cpu_boost: None,
            gates,
            quirks: Quirks::none(),
        }
    }
}

fn units(resource: Resource, quantity: &Quantity) -> i128 {
    let units = match resource {
        Resource::Cpu => quantity.milli(),
        Resource::Memory => quantity.units(),
    };
    units.unwrap().into()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn before_the_boost_policies_hold(world in World::any()) {
        for container in plan(&world.input(&world.gates)).containers {
            let Some(policy) = world.sizing.policy(container.container.name()) else { continue };
            for (name, request) in &container.requests {
                let min = set(Some(&policy.min_allowed), name);
                let max = set(Some(&policy.max_allowed), name);
                prop_assert!(max.is_none_or(|max| request.cmp_value(max).is_le()), "{name} {request} above {max:?}");
                let held = [max, container.base.limit(name).filter(|_| policy.requests_only)];
                let below = min.is_some_and(|min| request.cmp_value(min).is_lt());
                prop_assert!(
                    !below || held.into_iter().flatten().any(|held| held.same_value(request)),
                    "{} {} below {:?}, held by none of {:?}", name, request, min, held
                );
            }
        }
    }

    #[test]
    fn no_request_is_above_a_limit_that_goes_with_it(world in World::any()) {
        for boosted in [false, true] {
            let gates = world.gates.clone().with(Gate::CPUStartupBoost, boosted);
            for container in plan(&world.input(&gates)).containers {
                for (name, limit) in &container.limits {
                    let request = container.requests.get(name).unwrap();
                    prop_assert!(request.cmp_value(limit).is_le(), "{name}: {request} above {limit}");
                }
            }
        }
    }

    #[test]
    fn limits_keep_their_proportion(world in World::any(), boosted: bool) {
        let gates = world.gates.clone().with(Gate::CPUStartupBoost, boosted);
        for container in plan(&world.input(&gates)).containers {
            for resource in Resource::BOTH {
                let name = resource.name();
                let (Some(request), Some(limit), Some(base_limit)) = (
                    container.requests.get(name), container.limits.get(name), container.base.limit(name),
                ) else { continue };
                let [request, limit, base_limit] = [request, limit, base_limit].map(|q| units(resource, q));
                let base_request = container.base.request(name).map_or(base_limit, |q| units(resource, q));
                // What does not fit is cut to the largest amount there is (`spec/vpa.md` 4.7).
                if limit == i128::from(i64::MAX) && request * base_limit / base_request > limit {
                    continue;
                }
                let lost = request * base_limit - limit * base_request;
                prop_assert!((0..base_request).contains(&lost), "{name}: {limit}:{request} of {base_limit}:{base_request}");
            }
        }
    }

    #[test]
    fn the_sum_of_a_pod_stays_within_its_own_resources(
        world in World::any(), spare in (0..1_000_i64, 0..1_000_i64), limits: bool, boosted: bool,
    ) {
        let mut world = world;
        let all = Gates::default().with(Gate::NativeSidecar, true);
        let sum = |pod: &Pod, planned: &dyn Fn(&str, Resource) -> Option<i128>, resource: Resource| -> i128 {
            pod.managed(&all).map(|container| {
                let own = container.spec_resources();
                let own = own.request(resource.name()).or(own.limit(resource.name()));
                planned(container.name(), resource).unwrap_or_else(|| own.map_or(0, |own| units(resource, own)))
            }).sum()
        };
        let [cpu_total, memory_total] = Resource::BOTH.map(|resource| {
            i64::try_from(sum(&world.pod, &|_, _| None, resource)).unwrap()
        });
        let total = list(Some(cpu_total + spare.0), Some(memory_total + spare.1));
        let own = if limits { json!({"requests": total, "limits": total}) } else { json!({"requests": total}) };
        Arc::make_mut(&mut world.pod.spec).resources = serde_json::from_value(own).unwrap();
        let gates = world.gates.clone().with(Gate::CPUStartupBoost, boosted);
        let plan = plan(&world.input(&gates));
        for (resource, total) in Resource::BOTH.into_iter().zip([cpu_total + spare.0, memory_total + spare.1]) {
            let planned = |name: &str, resource: Resource| {
                let container = plan.containers.iter().find(|plan| plan.container.name() == name)?;
                Some(units(resource, container.requests.get(resource.name())?))
            };
            prop_assert!(sum(&world.pod, &planned, resource) <= total.into());
            for container in &plan.containers {
                let limit = container.limits.get(resource.name());
                prop_assert!(!limits || limit.is_none_or(|limit| units(resource, limit) <= total.into()));
            }
        }
    }

    #[test]
    fn a_pod_without_sidecars_does_not_see_the_gate(world in World::any()) {
        let plain = Gates::default();
        prop_assume!(world.pod.unmanaged_init_containers(&plain).next().is_none());
        let on = Gates::default().with(Gate::NativeSidecar, true);
        prop_assert_eq!(plan(&world.input(&plain)), plan(&world.input(&on)));
    }

    #[test]
    fn every_amount_is_answered(
        texts in prop::collection::vec("[+-]?[0-9]{1,25}(\\.[0-9]{1,12})?([KMGTPE]i|[numkMGTPE]|e[+-]?[0-9]{1,3})?", 16),
        quirks: bool,
    ) {
        let mut texts = texts.into_iter().cycle();
        let mut list = || json!({"cpu": texts.next(), "memory": texts.next(), "": "1", "x/y": texts.next()});
        let pod = serde_json::from_value(json!({"spec": {
            "resources": {"requests": list(), "limits": list()},
            "containers": [{"name": "a", "resources": {"requests": list(), "limits": list()}}, {"name": "a"}, {"name": ""}],
        }})).unwrap();
        let sizing = sizing(json!({
            "metadata": {"name": "v"},
            "spec": {
                "startupBoost": {"cpu": {"type": "Quantity", "quantity": list()["cpu"]}},
                "resourcePolicy": {"containerPolicies": [{"containerName": "*", "minAllowed": list(), "maxAllowed": list()}]},
            },
            "status": {"recommendation": {"containerRecommendations": [
                {"containerName": "a", "target": list(), "lowerBound": list(), "upperBound": list()},
                {"containerName": "a", "target": {}}, {"containerName": "z", "target": list()},
            ]}},
        }));
        let limits = json!([
            {"type": "Pod", "max": list(), "min": list(), "default": list()},
            {"type": "Container", "max": list(), "min": list(), "default": list()},
        ]);
        let world = World {
            pod,
            sizing,
            limit_ranges: LimitRanges::merge([&serde_json::from_value(json!({"spec": {"limits": limits}})).unwrap()]),
            gates: Gates::default(),
        };
        let gates = Gates::default().with(Gate::CPUStartupBoost, true);
        let quirks = if quirks { Quirks::all() } else { Quirks::none() };
        let plan = plan(&PlanInput { quirks, ..world.input(&gates) });
        prop_assert_eq!(plan.containers.len(), 3);
    }
}
