//! The rows of the admission suite (`spec/vpa.md` 6.3) and the worked numbers (9), as the plan answers them.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::*;
use crate::api::vpa::VerticalPodAutoscaler;

/// One situation; each test changes what it is about.
struct Case {
    containers: Value,
    init_containers: Value,
    pod_resources: Value,
    recommendations: Value,
    policies: Value,
    boost: Value,
    mode: &'static str,
    limits: Value,
    max_cpu_boost: Option<&'static str>,
    gates: &'static str,
    stage: Stage,
    quirks: &'static str,
}

/// A container that requests 100m and 100Mi, recommended 250m and 200Mi.
fn case() -> Case {
    Case {
        containers: json!([requesting("app", "100m", "100Mi")]),
        init_containers: json!([]),
        pod_resources: Value::Null,
        recommendations: json!([target("app", "250m", "200Mi")]),
        policies: json!([]),
        boost: Value::Null,
        mode: "Recreate",
        limits: json!([]),
        max_cpu_boost: None,
        gates: "",
        stage: Stage::New,
        quirks: "none",
    }
}

fn requesting(name: &str, cpu: &str, memory: &str) -> Value {
    json!({"name": name, "resources": {"requests": {"cpu": cpu, "memory": memory}}})
}

fn limited(name: &str, requests: [&str; 2], limits: [&str; 2]) -> Value {
    json!({"name": name, "resources": {
        "requests": {"cpu": requests[0], "memory": requests[1]}, "limits": {"cpu": limits[0], "memory": limits[1]},
    }})
}

fn target(name: &str, cpu: &str, memory: &str) -> Value {
    json!({"containerName": name, "target": {"cpu": cpu, "memory": memory}})
}

impl Case {
    /// `NAME: cpu/memory requests, cpu/memory limits (reasons)`, one line for each container.
    fn planned(&self) -> String {
        let pod = json!({"metadata": {"name": "p"}, "spec": {
            "containers": self.containers, "initContainers": self.init_containers, "resources": self.pod_resources,
        }});
        let vpa: VerticalPodAutoscaler = serde_json::from_value(json!({
            "metadata": {"name": "v"},
            "spec": {
                "updatePolicy": {"updateMode": self.mode},
                "resourcePolicy": {"containerPolicies": self.policies},
                "startupBoost": self.boost,
            },
            "status": {"recommendation": {"containerRecommendations": self.recommendations}},
        }))
        .unwrap();
        let limits = serde_json::from_value(json!({"spec": {"limits": self.limits}})).unwrap();
        let plan = plan(&PlanInput {
            pod: &serde_json::from_value(pod).unwrap(),
            sizing: &Sizing::from(&vpa),
            formulas: None,
            limit_ranges: &LimitRanges::merge([&limits]),
            stage: self.stage,
            remembered: None,
            even_if_off: false,
            max_cpu_boost: self.max_cpu_boost.map(|max| max.parse().unwrap()).as_ref(),
            gates: &self.gates.parse().unwrap(),
            quirks: self.quirks.parse().unwrap(),
        })
        .containers
        .iter()
        .map(line)
        .collect::<Vec<_>>();
        plan.join("\n")
    }
}

fn line(plan: &ContainerPlan<'_>) -> String {
    let amounts = |list: &ResourceList| {
        let amounts =
            ["cpu", "memory"].map(|name| list.get(name).map_or("-".to_owned(), ToString::to_string));
        amounts.join("/")
    };
    let mut line = format!(
        "{}: {} {}",
        plan.container.name(),
        amounts(&plan.requests),
        amounts(&plan.limits)
    );
    for reason in &plan.reasons {
        write!(line, "; {reason}").unwrap();
    }
    line
}

#[test]
fn who_gets_a_recommendation() {
    let two = json!([requesting("a", "100m", "100Mi"), requesting("b", "100m", "100Mi")]);
    for (what, case, expected) in [
        ("a container with one", case(), "app: 250m/200Mi -/-"),
        (
            "one for a container that is not there is ignored",
            Case {
                recommendations: json!([target("other", "1", "1Gi"), target("app", "250m", "200Mi")]),
                ..case()
            },
            "app: 250m/200Mi -/-",
        ),
        (
            "a container without one",
            Case {
                recommendations: json!([target("other", "1", "1Gi")]),
                ..case()
            },
            "app: -/- -/-",
        ),
        (
            "one of two",
            Case {
                containers: two.clone(),
                recommendations: json!([target("a", "250m", "200Mi")]),
                ..case()
            },
            "a: 250m/200Mi -/-\nb: -/- -/-",
        ),
        (
            "only the resources that are recommended",
            Case {
                recommendations: json!([{"containerName": "app", "target": {"memory": "200Mi"}}]),
                ..case()
            },
            "app: -/200Mi -/-",
        ),
        (
            "mode Off",
            Case {
                mode: "Off",
                ..case()
            },
            "app: -/- -/-",
        ),
        (
            "a policy that says Off, though the status has an old recommendation",
            Case {
                policies: json!([{"containerName": "app", "mode": "Off"}]),
                ..case()
            },
            "app: -/- -/-",
        ),
        (
            "the same in VPA",
            Case {
                policies: json!([{"containerName": "app", "mode": "Off"}]),
                quirks: "Q29",
                ..case()
            },
            "app: 250m/200Mi -/-",
        ),
    ] {
        assert_eq!(case.planned(), expected, "{what}");
    }
}

#[test]
fn limits_follow_requests() {
    let with = |requests, limits| json!([limited("app", requests, limits)]);
    for (what, containers, policies, expected) in [
        (
            "a guaranteed pod stays one",
            with(["100m", "100Mi"], ["100m", "100Mi"]),
            json!([]),
            "app: 250m/200Mi 250m/200Mi",
        ),
        (
            "ratios 1.5 and 2",
            with(["100m", "100Mi"], ["150m", "200Mi"]),
            json!([]),
            "app: 250m/200Mi 375m/400Mi",
        ),
        (
            "requests only",
            with(["100m", "100Mi"], ["500m", "500Mi"]),
            json!([{"containerName": "app", "controlledValues": "RequestsOnly"}]),
            "app: 250m/200Mi -/-",
        ),
        (
            "requests only, up to the limit",
            with(["100m", "100Mi"], ["200m", "500Mi"]),
            json!([{"containerName": "app", "controlledValues": "RequestsOnly"}]),
            "app: 200m/200Mi -/-; cpu capped to container limit",
        ),
        (
            "a limit without a request",
            json!([{"name": "app", "resources": {"limits": {"memory": "1Gi"}}}]),
            json!([]),
            "app: 250m/200Mi -/200Mi; cpu: limit NOT set since originalLimit is nil or 0",
        ),
        (
            "rounded down",
            with(["3m", "3"], ["10m", "7"]),
            json!([]),
            "app: 250m/200Mi 833m/489335466",
        ),
        (
            "as large as can be",
            with(["100m", "1"], ["100m", "1Pi"]),
            json!([]),
            "app: 250m/200Mi 250m/9223372036854775807; \
             memory: failed to keep limit to request ratio; capping limit to int64",
        ),
    ] {
        let case = Case {
            containers,
            policies,
            ..case()
        };
        assert_eq!(case.planned(), expected, "{what}");
    }
}

#[test]
fn the_policy_bounds() {
    for (what, policies, expected) in [
        (
            "minAllowed",
            json!([{"containerName": "app", "minAllowed": {"cpu": "300m"}}]),
            "app: 300m/200Mi -/-; cpu capped to minAllowed",
        ),
        (
            "maxAllowed, printed as it is written",
            json!([{"containerName": "app", "maxAllowed": {"cpu": "0.2", "memory": "150Mi"}}]),
            "app: 200m/150Mi -/-; cpu capped to maxAllowed; memory capped to maxAllowed",
        ),
        (
            "zero is no bound",
            json!([{"containerName": "app", "maxAllowed": {"cpu": "0"}}]),
            "app: 250m/200Mi -/-",
        ),
        (
            "of several for all the last, unless one names the container",
            json!([
                {"containerName": "*", "minAllowed": {"cpu": "1"}}, {"containerName": "*", "minAllowed": {"cpu": "2"}},
            ]),
            "app: 2/200Mi -/-; cpu capped to minAllowed",
        ),
        (
            "the first that names the container",
            json!([
                {"containerName": "app", "minAllowed": {"cpu": "3"}}, {"containerName": "app", "minAllowed": {"cpu": "4"}},
                {"containerName": "*", "minAllowed": {"cpu": "5"}},
            ]),
            "app: 3/200Mi -/-; cpu capped to minAllowed",
        ),
    ] {
        let case = Case { policies, ..case() };
        assert_eq!(case.planned(), expected, "{what}");
    }
}

#[test]
fn the_container_limit_range() {
    let ratio = || json!([limited("app", ["100m", "100Mi"], ["150m", "200Mi"])]);
    for (what, containers, limits, expected) in [
        (
            "max 300m at ratio 1.5",
            ratio(),
            json!([{"type": "Container", "max": {"cpu": "300m"}}]),
            "app: 200m/200Mi 300m/400Mi; cpu capped to fit Max in container LimitRange",
        ),
        (
            "min 250Mi for the request",
            ratio(),
            json!([{"type": "Container", "min": {"memory": "250Mi"}}]),
            "app: 250m/250Mi 375m/500Mi; memory capped to fit Min in container LimitRange",
        ),
        (
            "the default is the limit of a container without one",
            json!([requesting("app", "100m", "100Mi")]),
            json!([{"type": "Container", "default": {"cpu": "200m"}, "max": {"cpu": "400m"}}]),
            "app: 200m/200Mi 400m/-; cpu capped to fit Max in container LimitRange; \
             memory: limit NOT set since originalLimit is nil or 0",
        ),
        (
            "no limit, nothing to bound",
            json!([requesting("app", "100m", "100Mi")]),
            json!([{"type": "Container", "max": {"cpu": "200m"}}]),
            "app: 250m/200Mi -/-",
        ),
        (
            "the last default, the smallest maximum",
            json!([requesting("app", "100m", "100Mi")]),
            json!([
                {"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "400m"}},
                {"type": "Container", "default": {"cpu": "100m"}, "max": {"cpu": "225m"}},
                {"type": "Container", "max": {"cpu": "1"}},
            ]),
            "app: 225m/200Mi 225m/-; cpu capped to fit Max in container LimitRange; \
             memory: limit NOT set since originalLimit is nil or 0",
        ),
    ] {
        let case = Case {
            containers,
            limits,
            ..case()
        };
        assert_eq!(case.planned(), expected, "{what}");
    }
}

#[test]
fn the_pod_limit_range() {
    let small = |name, cpu| limited(name, [cpu, "1Mi"], [cpu, "1Mi"]);
    let three = || json!([small("a", "100m"), small("b", "100m"), small("c", "100m")]);
    let recommended = || {
        json!([
            target("a", "4m", "1Mi"),
            target("b", "21m", "1Mi"),
            target("c", "90m", "1Mi")
        ])
    };
    for (what, containers, recommendations, limits, expected) in [
        (
            "raised to a minimum, rounded up",
            three(),
            recommended(),
            json!([{"type": "Pod", "min": {"cpu": "150m"}}]),
            ["a: 6m/1Mi 6m/1Mi", "b: 28m/1Mi 28m/1Mi", "c: 118m/1Mi 118m/1Mi"]
                .map(|line| format!("{line}; cpu scaled to fit Min in pod LimitRange"))
                .join("\n"),
        ),
        (
            "lowered to a maximum, rounded down",
            three(),
            recommended(),
            json!([{"type": "Pod", "max": {"cpu": "80m"}}]),
            ["a: 2m/1Mi 2m/1Mi", "b: 14m/1Mi 14m/1Mi", "c: 62m/1Mi 62m/1Mi"]
                .map(|line| format!("{line}; cpu scaled to fit Max in pod LimitRange"))
                .join("\n"),
        ),
        (
            "a container without a recommendation has its share",
            json!([limited("a", ["300m", "1Gi"], ["300m", "1Gi"]), limited("b", ["300m", "1Gi"], ["300m", "1Gi"])]),
            json!([target("a", "300m", "1Gi")]),
            json!([{"type": "Pod", "max": {"cpu": "400m", "memory": "1Gi"}}]),
            ["a: 200m/512Mi 200m/512Mi", "b: 200m/512Mi 200m/512Mi"]
                .map(|line| {
                    format!("{line}; cpu scaled to fit Max in pod LimitRange; memory scaled to fit Max in pod LimitRange")
                })
                .join("\n"),
        ),
        (
            "what is not recommended and not requested is not made up",
            json!([small("a", "300m"), {"name": "b", "resources": {"requests": {"memory": "1Mi"}}}, {"name": "c"}]),
            json!([target("a", "300m", "1Mi")]),
            json!([{"type": "Pod", "max": {"cpu": "200m"}}]),
            "a: 200m/1Mi 200m/1Mi; cpu scaled to fit Max in pod LimitRange\nb: -/1Mi -/-\nc: -/- -/-".to_owned(),
        ),
        (
            "without any limit nothing is bounded",
            json!([requesting("a", "300m", "1Mi")]),
            json!([target("a", "300m", "1Mi")]),
            json!([{"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "200m"}}]),
            "a: 300m/1Mi -/-".to_owned(),
        ),
    ] {
        let case = Case { containers, recommendations, limits, ..case() };
        assert_eq!(case.planned(), expected, "{what}");
    }
}

#[test]
fn vpa_scales_nothing_too() {
    let containers = json!([
        limited("a", ["300m", "2Gi"], ["600m", "4Gi"]),
        limited("b", ["300m", "0"], ["600m", "4Gi"]),
    ]);
    let only_cpu = json!({"containerName": "b", "target": {"cpu": "300m"}});
    for (bound, limits, expected) in [
        (
            "Min",
            json!([{"type": "Pod", "min": {"memory": "3Gi"}}]),
            ["a: 300m/3Gi 600m/6Gi", "b: 300m/0 600m/-"],
        ),
        (
            "Max",
            json!([{"type": "Pod", "max": {"memory": "2Gi"}}]),
            ["a: 300m/1Gi 600m/2Gi", "b: 300m/-1 600m/-1"],
        ),
        (
            "Min",
            json!([{"type": "Pod", "min": {"memory": "2Gi"}}]),
            ["a: 300m/2Gi 600m/4Gi", "b: 300m/- 600m/-"],
        ),
    ] {
        let case = Case {
            containers: containers.clone(),
            recommendations: json!([target("a", "300m", "2Gi"), only_cpu]),
            limits,
            quirks: "Q31",
            ..case()
        };
        let planned = case.planned();
        let lines = planned.lines().map(|line| line.split(';').next().unwrap());
        assert_eq!(lines.collect::<Vec<_>>(), expected, "{bound}");
    }
}

#[test]
fn native_sidecars() {
    let proxy = |restart: Value| {
        let mut proxy = limited("proxy", ["200m", "1Mi"], ["200m", "1Mi"]);
        proxy["restartPolicy"] = restart;
        proxy
    };
    let with = |restart, gates| Case {
        containers: json!([limited("app", ["200m", "1Mi"], ["200m", "1Mi"])]),
        init_containers: json!([proxy(restart)]),
        recommendations: json!([target("app", "300m", "1Mi"), target("proxy", "300m", "1Mi")]),
        limits: json!([{"type": "Pod", "max": {"cpu": "400m"}}]),
        gates,
        ..case()
    };
    let fitted = "; cpu scaled to fit Max in pod LimitRange";
    for (what, case, expected) in [
        (
            "on: sized, and in the sums of the pod's LimitRange",
            with(json!("Always"), "NativeSidecar=true"),
            format!("app: 200m/1Mi 200m/1Mi{fitted}\nproxy: 200m/1Mi 200m/1Mi{fitted}"),
        ),
        (
            "off",
            with(json!("Always"), ""),
            "app: 300m/1Mi 300m/1Mi".to_owned(),
        ),
        (
            "an ordinary init container never",
            with(Value::Null, "NativeSidecar=true"),
            "app: 300m/1Mi 300m/1Mi".to_owned(),
        ),
    ] {
        assert_eq!(case.planned(), expected, "{what}");
    }
}

#[test]
fn the_boost() {
    let on = || Case {
        gates: "CPUStartupBoost=true",
        boost: json!({"cpu": {"type": "Factor", "factor": 2}}),
        recommendations: json!([]),
        ..case()
    };
    let bare = || json!([{"name": "app"}]);
    for (what, case, expected) in [
        (
            "by a factor",
            on(),
            "app: 200m/- -/-; cpu boosted from 100m to 200m",
        ),
        (
            "by a quantity, which is added",
            Case {
                boost: json!({"cpu": {"type": "Quantity", "quantity": "500m"}}),
                ..on()
            },
            "app: 600m/- -/-; cpu boosted from 100m to 600m",
        ),
        (
            "in mode Off",
            Case { mode: "Off", ..on() },
            "app: 200m/- -/-; cpu boosted from 100m to 200m",
        ),
        (
            "on top of the recommendation, with the limit",
            Case {
                containers: json!([limited("app", ["100m", "100Mi"], ["150m", "200Mi"])]),
                recommendations: json!([target("app", "250m", "200Mi")]),
                boost: json!({"cpu": {"type": "Factor", "factor": 3}}),
                ..on()
            },
            "app: 750m/200Mi 1125m/400Mi; cpu boosted from 250m to 750m",
        ),
        ("gate off", Case { gates: "", ..on() }, "app: -/- -/-"),
        (
            "a pod that runs is not boosted",
            Case {
                stage: Stage::Running,
                ..on()
            },
            "app: -/- -/-",
        ),
        (
            "the container's own setting",
            Case {
                policies: json!([{"containerName": "app", "startupBoost": {"cpu": {"type": "Factor", "factor": 5}}}]),
                ..on()
            },
            "app: 500m/- -/-; cpu boosted from 100m to 500m",
        ),
        (
            "an empty setting is none",
            Case {
                policies: json!([{"containerName": "app", "startupBoost": {}}]),
                ..on()
            },
            "app: -/- -/-",
        ),
        (
            "an empty setting for all is none",
            Case {
                boost: json!({}),
                ..on()
            },
            "app: -/- -/-",
        ),
        (
            "a container that is switched off",
            Case {
                policies: json!([{"containerName": "app", "mode": "Off"}]),
                ..on()
            },
            "app: -/- -/-",
        ),
        (
            "up to the flag",
            Case {
                max_cpu_boost: Some("150m"),
                ..on()
            },
            "app: 150m/- -/-; cpu boosted from 100m to 150m",
        ),
        (
            "requests only: just below the limit",
            Case {
                containers: json!([limited("app", ["100m", "100Mi"], ["150m", "200Mi"])]),
                policies: json!([{"containerName": "app", "controlledValues": "RequestsOnly"}]),
                ..on()
            },
            "app: 149m/- -/-; cpu boosted from 100m to 149m",
        ),
        (
            "a factor that would take everything away",
            Case {
                boost: json!({"cpu": {"type": "Factor", "factor": 0}}),
                ..on()
            },
            "app: -/- -/-",
        ),
        (
            "a factor of nothing",
            Case {
                containers: bare(),
                ..on()
            },
            "app: -/- -/-",
        ),
        (
            "a factor of nothing in VPA",
            Case {
                containers: bare(),
                quirks: "Q20",
                ..on()
            },
            "app: 0/- -/-; cpu boosted from 0 to 0",
        ),
    ] {
        assert_eq!(case.planned(), expected, "{what}");
    }
}

#[test]
fn pods_with_resources_of_their_own() {
    let pod = |pod_resources| Case {
        containers: json!([
            limited("a", ["100m", "100Mi"], ["200m", "100Mi"]),
            limited("b", ["100m", "100Mi"], ["200m", "100Mi"]),
        ]),
        recommendations: json!([target("a", "300m", "100Mi"), target("b", "100m", "100Mi")]),
        pod_resources,
        ..case()
    };
    let left = "cpu NOT set since it does not fit the pod's resources";
    for (what, case, expected) in [
        (
            "room enough",
            pod(json!({"requests": {"cpu": "400m", "memory": "1Gi"}})),
            "a: 300m/100Mi 600m/100Mi\nb: 100m/100Mi 200m/100Mi".to_owned(),
        ),
        (
            "too much for the pod's request",
            pod(json!({"requests": {"cpu": "200m"}})),
            "a: 150m/100Mi 600m/100Mi; cpu capped to fit the pod's resources\n\
             b: 50m/100Mi 200m/100Mi; cpu capped to fit the pod's resources"
                .to_owned(),
        ),
        (
            "a limit above the pod's",
            pod(json!({"limits": {"cpu": "500m"}})),
            "a: 300m/100Mi 500m/100Mi; cpu capped to fit the pod's resources\nb: 100m/100Mi 200m/100Mi"
                .to_owned(),
        ),
        (
            "no room at all",
            pod(json!({"requests": {"cpu": "1m"}})),
            format!("a: -/100Mi -/100Mi; {left}\nb: -/100Mi -/100Mi; {left}"),
        ),
    ] {
        assert_eq!(case.planned(), expected, "{what}");
    }
}

#[test]
fn a_running_pod_has_what_the_kubelet_says() {
    let pod: Pod = serde_json::from_value(json!({
        "spec": {"containers": [limited("app", ["1", "1Gi"], ["1", "1Gi"])]},
        "status": {"containerStatuses": [limited("app", ["100m", "100Mi"], ["150m", "200Mi"])]},
    }))
    .unwrap();
    let vpa: VerticalPodAutoscaler = serde_json::from_value(json!({
        "metadata": {"name": "v"},
        "status": {"recommendation": {"containerRecommendations": [target("app", "250m", "200Mi")]}},
    }))
    .unwrap();
    let planned = |stage, quirks| {
        let input = PlanInput {
            pod: &pod,
            sizing: &Sizing::from(&vpa),
            formulas: None,
            limit_ranges: &LimitRanges::default(),
            stage,
            remembered: None,
            even_if_off: false,
            max_cpu_boost: None,
            gates: &Gates::default(),
            quirks,
        };
        plan(&input).containers.iter().map(line).collect::<Vec<_>>()
    };
    assert_eq!(
        planned(Stage::Running, Quirks::none()),
        ["app: 250m/200Mi 375m/400Mi"]
    );
    assert_eq!(
        planned(Stage::New, Quirks::none()),
        ["app: 250m/200Mi 250m/200Mi"]
    );
    assert_eq!(planned(Stage::New, Quirks::all()), ["app: 250m/200Mi 375m/400Mi"]);
}

#[test]
fn where_vpa_crashes_the_container_is_left_alone() {
    // Q17: the pod's maximum is exceeded by upper bounds, and one container has no recommendation.
    let case = Case {
        containers: json!([limited("a", ["1", "1Gi"], ["2", "2Gi"]), limited("b", ["1", "1Gi"], ["2", "2Gi"]), {"name": "c"}]),
        recommendations: json!([{"containerName": "b", "target": {"cpu": "1"}, "upperBound": {"cpu": "9"}, "lowerBound": {"cpu": "9"}}]),
        limits: json!([{"type": "Pod", "max": {"cpu": "2"}}]),
        quirks: "all",
        ..case()
    };
    let fitted = "cpu scaled to fit Max in pod LimitRange";
    assert_eq!(
        case.planned(),
        format!(
            "a: 500m/1Gi 1/2Gi; {fitted}\nb: 500m/- 1/-; {fitted}; memory: limit NOT set since recommendedRequest is nil or 0\nc: -/- -/-"
        )
    );
}
