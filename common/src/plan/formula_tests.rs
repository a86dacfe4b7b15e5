//! The user stories of the proposal (`spec/sidecarset.md` 4.6), and what becomes of formulas beside recommendations.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::*;
use crate::{api::vpa::VerticalPodAutoscaler, formula::Policy};

/// One situation; each test changes what it is about. The pod has the sidecar `side`, whose formula it is.
struct Case {
    containers: Value,
    init_containers: Value,
    policy: Value,
    others: &'static [&'static str],
    recommendations: Value,
    policies: Value,
    composition: &'static str,
    limits: Value,
    boost: Value,
    pod_resources: Value,
    gates: &'static str,
    stage: Stage,
}

/// An app of 200m and 400Mi, half of which its sidecar gets.
fn case() -> Case {
    Case {
        containers: json!([
            container("app", ["200m", "400Mi"], ["100m", "200Mi"]),
            {"name": "side"}
        ]),
        init_containers: json!([]),
        policy: policy("sum", ".*", ["cpu*50%", "memory*50%"], ["cpu*50%", "memory*50%"]),
        others: &[],
        recommendations: json!([]),
        policies: json!([]),
        composition: "recommendation",
        limits: json!([]),
        boost: Value::Null,
        pod_resources: Value::Null,
        gates: "",
        stage: Stage::New,
    }
}

/// Limits, then requests; an empty text is none.
fn container(name: &str, limits: [&str; 2], requests: [&str; 2]) -> Value {
    json!({"name": name, "resources": {"limits": amounts(limits), "requests": amounts(requests)}})
}

fn amounts([cpu, memory]: [&str; 2]) -> Value {
    let entries = [("cpu", cpu), ("memory", memory)];
    let entries = entries.into_iter().filter(|(_, text)| !text.is_empty());
    entries
        .map(|(name, text)| (name.to_owned(), json!(text)))
        .collect()
}

fn policy(mode: &str, regex: &str, limits: [&str; 2], requests: [&str; 2]) -> Value {
    json!({
        "targetContainersMode": mode, "targetContainersNameRegex": regex,
        "resourcesExpr": {"limits": amounts(limits), "requests": amounts(requests)},
    })
}

fn target(name: &str, cpu: &str, memory: &str) -> Value {
    json!({"containerName": name, "target": amounts([cpu, memory])})
}

impl Case {
    /// `NAME: limits; requests` of every container, cpu and memory, `-` for what stays as it is; then the reasons.
    fn planned(&self) -> (String, Vec<String>) {
        let formulas = Formulas {
            containers: vec![FormulaOf {
                container: "side".to_owned(),
                sidecar: "side".to_owned(),
                set: "set".to_owned(),
                revision: "set-1".to_owned(),
                policy: Policy::new(&serde_json::from_value(self.policy.clone()).unwrap()).into(),
            }],
            sidecars: std::iter::once("side")
                .chain(self.others.iter().copied())
                .map(str::to_owned)
                .collect(),
            unknown: Vec::new(),
        };
        let pod = json!({"spec": {
            "containers": self.containers, "initContainers": self.init_containers, "resources": self.pod_resources,
        }});
        let vpa: VerticalPodAutoscaler = serde_json::from_value(json!({
            "metadata": {"name": "v", "annotations": {COMPOSITION_ANNOTATION: self.composition}},
            "spec": {
                "resourcePolicy": {"containerPolicies": self.policies},
                "startupBoost": self.boost,
            },
            "status": {"recommendation": {"containerRecommendations": self.recommendations}},
        }))
        .unwrap();
        let limits = serde_json::from_value(json!({"spec": {"limits": self.limits}})).unwrap();
        let (sizing, limit_ranges) = (Sizing::from(&vpa), LimitRanges::merge([&limits]));
        let gates = self.gates.parse().unwrap();
        let pod = serde_json::from_value(pod).unwrap();
        let plan = plan(&PlanInput {
            pod: &pod,
            sizing: &sizing,
            formulas: Some(&formulas),
            limit_ranges: &limit_ranges,
            stage: self.stage,
            remembered: None,
            even_if_off: false,
            max_cpu_boost: None,
            gates: &gates,
            quirks: Quirks::none(),
        });
        let mut lines = Vec::new();
        let mut reasons = Vec::new();
        for plan in &plan.containers {
            let side = |list: &ResourceList| {
                let amounts = Resource::BOTH.map(|resource| match list.get(resource.name()) {
                    Some(amount) => amount.to_string(),
                    None => "-".to_owned(),
                });
                amounts.join(",")
            };
            let mut line = format!(
                "{}: {};{}",
                plan.container.name(),
                side(&plan.limits),
                side(&plan.requests)
            );
            for dropped in &plan.dropped {
                write!(line, " without {dropped}").unwrap();
            }
            lines.push(line);
            reasons.extend(plan.reasons.iter().map(ToString::to_string));
        }
        lines.extend(
            plan.failed_formulas()
                .map(|(of, error)| format!("denied for {}: {error}", of.set)),
        );
        (lines.join("\n"), reasons)
    }

    /// The sidecar alone.
    fn sidecar(&self) -> String {
        let (lines, _) = self.planned();
        let line = lines.lines().find_map(|line| line.strip_prefix("side: "));
        line.unwrap_or("nothing").to_owned()
    }
}

#[test]
fn the_stories_of_the_proposal() {
    let engines = |v4: [[&str; 2]; 2], v8: [[&str; 2]; 2]| {
        json!([
            container("large-engine-v4", v4[0], v4[1]),
            container("large-engine-v8", v8[0], v8[1]),
            {"name": "side"},
        ])
    };
    let small = [["200m", "200Mi"], ["50m", "100Mi"]];
    let large = [["400m", "400Mi"], ["100m", "200Mi"]];
    let half = |mode: &str, regex: &str| {
        policy(
            mode,
            regex,
            ["max(cpu*50%, 50m)", "200Mi"],
            ["max(cpu*50%, 50m)", "100Mi"],
        )
    };
    let apps = |one: [[&str; 2]; 2], two: [[&str; 2]; 2]| json!([container("app1", one[0], one[1]), container("app2", two[0], two[1]), {"name": "side"}]);
    let native = json!({"name": "side", "restartPolicy": "Always"});
    let plain = |name: &str, limits, requests| container(name, limits, requests);
    let one_app = json!([container("app1", ["200m", "200Mi"], ["100m", "100Mi"]), {"name": "side"}]);
    for (story, case, expected) in [
        (
            "1: one container by name",
            Case {
                containers: engines(small, small),
                policy: half("sum", "^large-engine-v4$"),
                ..case()
            },
            "100m,200Mi;50m,100Mi",
        ),
        (
            "2: the sum of several",
            Case {
                containers: engines(small, large),
                policy: half("sum", "^large-engine-v.*$"),
                ..case()
            },
            "300m,200Mi;75m,100Mi",
        ),
        (
            "3: the largest of several",
            Case {
                containers: engines(small, large),
                policy: half("max", "^large-engine-v.*$"),
                ..case()
            },
            "200m,200Mi;50m,100Mi",
        ),
        (
            "4: one has no limit, so the sidecar has none",
            Case {
                containers: engines(small, [["", "400Mi"], ["100m", "200Mi"]]),
                policy: half("max", "^large-engine-v.*$"),
                ..case()
            },
            "-,200Mi;50m,100Mi",
        ),
        (
            "5: less and less for more and more",
            Case {
                containers: json!([container("app", ["6", "8Gi"], ["4", "4Gi"]), {"name": "side"}]),
                policy: policy(
                    "sum",
                    ".*",
                    [
                        "0.5*cpu - 0.3*max(0, cpu-4) + 0.3*max(0, cpu-8)",
                        "0.5*memory + max(0, memory-2Gi)",
                    ],
                    ["0.5*cpu - 0.3*max(0, cpu-4) + 0.3*max(0, cpu-8)", "memory*10%"],
                ),
                ..case()
            },
            "2400m,10Gi;2,429496729600m",
        ),
        (
            "5 as Kruise tests it",
            Case {
                containers: apps(
                    [["200m", "400Mi"], ["100m", "200Mi"]],
                    [["400m", "600Mi"], ["200m", "300Mi"]],
                ),
                policy: policy(
                    "sum",
                    ".*",
                    ["cpu*50% + 100m", "max(memory*20% + 100Mi, 200Mi)"],
                    ["cpu*30% + 50m", "memory*15% + 50Mi"],
                ),
                ..case()
            },
            "400m,300Mi;140m,125Mi",
        ),
        (
            "6: a native sidecar",
            Case {
                containers: json!([
                    container("app1", ["400m", "800Mi"], ["200m", "400Mi"]),
                    container("app2", ["600m", "1200Mi"], ["300m", "600Mi"]),
                ]),
                init_containers: json!([native]),
                policy: policy(
                    "sum",
                    "^app.*$",
                    ["max(cpu*30%, 50m)", "max(memory*25%, 100Mi)"],
                    ["cpu*20%", "memory*15%"],
                ),
                gates: "NativeSidecar=true",
                ..case()
            },
            "300m,500Mi;100m,150Mi",
        ),
        (
            "6 with the gate off: what Kruise computed stays",
            Case {
                containers: json!([container("app1", ["400m", "800Mi"], ["200m", "400Mi"])]),
                init_containers: json!([native]),
                ..case()
            },
            "nothing",
        ),
        (
            "an ordinary init container is no target",
            Case {
                containers: one_app.clone(),
                init_containers: json!([plain("init", ["100m", "100Mi"], ["50m", "50Mi"])]),
                policy: policy("sum", ".*", ["cpu*50%", "memory*50%"], ["cpu*40%", "memory*40%"]),
                ..case()
            },
            "100m,100Mi;40m,40Mi",
        ),
        (
            "nor are sidecars of SidecarSets",
            Case {
                containers: json!([
                    one_app[0],
                    one_app[1],
                    container("other", ["100m", "100Mi"], ["50m", "50Mi"]),
                ]),
                others: &["other"],
                policy: policy("sum", ".*", ["cpu*50%", "memory*50%"], ["cpu*40%", "memory*40%"]),
                ..case()
            },
            "100m,100Mi;40m,40Mi",
        ),
        (
            "a native sidecar of somebody else is one, whatever the gate says",
            Case {
                init_containers: json!([{
                    "name": "mesh", "restartPolicy": "Always", "resources": one_app[0]["resources"],
                }]),
                ..case()
            },
            "200m,300Mi;100m,150Mi",
        ),
    ] {
        assert_eq!(case.sidecar(), expected, "{story}");
    }
}

#[test]
fn a_sidecar_follows_the_application_as_it_will_run() {
    let planned = Case {
        recommendations: json!([target("app", "500m", "300Mi")]),
        ..case()
    }
    .planned();
    assert_eq!(planned.0, "app: 1,600Mi;500m,300Mi\nside: 500m,300Mi;250m,150Mi");
    assert_eq!(
        planned.1,
        [
            "cpu limit 500m from cpu*50% of 1 (SidecarSet set)",
            "memory limit 300Mi from memory*50% of 600Mi (SidecarSet set)",
            "cpu request 250m from cpu*50% of 500m (SidecarSet set)",
            "memory request 150Mi from memory*50% of 300Mi (SidecarSet set)",
        ]
    );
}

#[test]
fn a_recommendation_on_a_formula() {
    // The formula: limits 100m,200Mi; requests 50m,100Mi.
    let both = || Case {
        recommendations: json!([target("side", "20m", "150Mi")]),
        ..case()
    };
    for (choice, case, expected) in [
        (
            "recommendation: it wins, limits in proportion",
            both(),
            "40m,300Mi;20m,150Mi",
        ),
        (
            "floor: the larger wins",
            Case {
                composition: "floor",
                ..both()
            },
            "100m,300Mi;50m,150Mi",
        ),
        (
            "formula: alone",
            Case {
                composition: "formula",
                ..both()
            },
            "100m,200Mi;50m,100Mi",
        ),
        (
            "an unknown word is the default",
            Case {
                composition: "Floor",
                ..both()
            },
            "40m,300Mi;20m,150Mi",
        ),
        (
            "mode Off is the formula alone too",
            Case {
                policies: json!([{"containerName": "side", "mode": "Off"}]),
                ..both()
            },
            "100m,200Mi;50m,100Mi",
        ),
        (
            "no recommendation yet: the formula serves",
            Case {
                recommendations: json!([]),
                ..both()
            },
            "100m,200Mi;50m,100Mi",
        ),
        (
            "a recommendation for one resource leaves the other to the formula",
            Case {
                recommendations: json!([target("side", "20m", "")]),
                ..both()
            },
            "40m,200Mi;20m,100Mi",
        ),
        (
            "requests only: limits are the formula's and hold",
            Case {
                policies: json!([{"containerName": "side", "controlledValues": "RequestsOnly"}]),
                recommendations: json!([target("side", "20m", "1Gi")]),
                ..both()
            },
            "100m,200Mi;20m,200Mi",
        ),
        (
            "bounds of the policy hold for the recommendation",
            Case {
                policies: json!([{"containerName": "side", "minAllowed": {"cpu": "25m"}}]),
                ..both()
            },
            "50m,300Mi;25m,150Mi",
        ),
    ] {
        assert_eq!(case.sidecar(), expected, "{choice}");
    }
    let (_, reasons) = Case {
        composition: "floor",
        ..both()
    }
    .planned();
    assert_eq!(
        reasons[4..],
        [
            "cpu request by formula since only 20m is recommended",
            "memory request recommended by VPA v"
        ]
    );
}

#[test]
fn the_limit_beside_a_recommendation() {
    // The limit of the app is 200m, its request 100m; 40m are recommended for the sidecar.
    for (rule, limit, request, expected) in [
        ("no request: kept", "cpu*50%", "", "100m;40m"),
        ("a request of 0: kept", "cpu*50%", "0", "100m;40m"),
        ("a request under a tenth: kept", "cpu*50%", "9m", "100m;40m"),
        ("kept, and raised to the request", "15m", "1m", "40m;40m"),
        ("a tenth: in proportion", "cpu*50%", "10m", "400m;40m"),
        ("equal: equal", "cpu*50%", "100m", "40m;40m"),
        ("more: in proportion", "cpu*50%", "50m", "80m;40m"),
        ("no limit: none", "", "50m", "-;40m"),
    ] {
        let case = Case {
            policy: policy("sum", ".*", [limit, ""], [request, ""]),
            recommendations: json!([target("side", "40m", "")]),
            ..case()
        };
        assert_eq!(case.sidecar().replace(",-", ""), expected, "{rule}");
    }
}

#[test]
fn requests_limits_and_what_is_there_already() {
    let there = |limits, requests| {
        json!([
            container("app", ["200m", "400Mi"], ["100m", "200Mi"]),
            container("side", limits, requests)
        ])
    };
    let unlimited = |limits, requests| {
        json!([
            container("app", ["", "400Mi"], ["100m", "200Mi"]),
            container("side", limits, requests)
        ])
    };
    let cpu = |limit, request| policy("sum", ".*", [limit, ""], [request, ""]);
    let defaults = json!([{"type": "Container", "default": {"cpu": "30m"}}]);
    let odd = json!([
        container("app", ["200m", "201"], ["100m", "101"]),
        container("side", ["7m", "7"], ["7m", "7"])
    ]);
    for (what, case, expected, reason) in [
        (
            "a request above the limit comes down to it",
            Case {
                policy: cpu("cpu*50%", "cpu*2"),
                ..case()
            },
            "100m,-;100m,-",
            Some("cpu request lowered from 200m to the limit"),
        ),
        (
            "without a formula for the request it is the limit, as the API server has it",
            Case {
                policy: cpu("cpu*50%", ""),
                ..case()
            },
            "100m,-;100m,-",
            None,
        ),
        (
            "what was computed before is set aside",
            Case {
                containers: there(["7m", "7Mi"], ["7m", "7Mi"]),
                ..case()
            },
            "100m,200Mi;50m,100Mi",
            None,
        ),
        (
            "a limit computed before goes with the application's",
            Case {
                containers: unlimited(["7m", "7Mi"], ["7m", "7Mi"]),
                ..case()
            },
            "-,200Mi;50m,100Mi without CPU limits",
            Some("cpu limit NOT set since a target has none"),
        ),
        (
            "but not from a container that runs",
            Case {
                containers: unlimited(["7m", "7Mi"], ["7m", "7Mi"]),
                stage: Stage::Running,
                ..case()
            },
            "-,-;-,-",
            Some("formula NOT applied: the cpu limit of a running container cannot be removed"),
        ),
        (
            "nor where the namespace gives limits; there the request stays below",
            Case {
                containers: unlimited(["30m", "7Mi"], ["30m", "7Mi"]),
                limits: defaults,
                ..case()
            },
            "-,200Mi;30m,100Mi",
            Some("cpu request lowered from 50m to the limit"),
        ),
        (
            "a new pod has broken bytes, as Kruise gives them",
            Case {
                containers: odd.clone(),
                ..case()
            },
            "100m,100500m;50m,50500m",
            None,
        ),
        (
            "and a running one whole ones",
            Case {
                containers: odd,
                stage: Stage::Running,
                ..case()
            },
            "100m,101;50m,51",
            None,
        ),
        (
            "nothing is zero",
            Case {
                policy: cpu("cpu*0", "cpu-100m"),
                ..case()
            },
            "0,-;0,-",
            None,
        ),
        (
            "the pod's own resources hold",
            Case {
                pod_resources: json!({"requests": {"cpu": "120m"}}),
                ..case()
            },
            "100m,200Mi;20m,100Mi",
            Some("cpu capped to fit the pod's resources"),
        ),
    ] {
        assert_eq!(case.sidecar(), expected, "{what}");
        let reasons = case.planned().1;
        assert!(
            reason.is_none_or(|reason| reasons.iter().any(|said| said == reason)),
            "{what}: {reasons:?}"
        );
    }
}

#[test]
fn a_formula_that_fails() {
    let less = || Case {
        policy: policy("sum", ".*", ["", ""], ["cpu - 50m", ""]),
        ..case()
    };
    for (what, case, expected, reason) in [
        (
            "only on what is recommended: the pod's own values count",
            Case {
                recommendations: json!([target("app", "20m", "100Mi")]),
                ..less()
            },
            "app: 40m,200Mi;20m,100Mi\nside: -,-;50m,-",
            "formula computed without recommendations, since with them: failed to evaluate CPU requests expression: \
             failed to parse expression \"cpu - 50m\": calculation result is negative: -30m",
        ),
        (
            "on the pod's own values, and not on what is recommended",
            Case {
                policy: policy("sum", ".*", ["", ""], ["cpu - 150m", ""]),
                recommendations: json!([target("app", "200m", "100Mi")]),
                ..less()
            },
            "app: 400m,200Mi;200m,100Mi\nside: -,-;50m,-",
            "cpu request 50m from cpu - 150m of 200m (SidecarSet set)",
        ),
        (
            "on both",
            Case {
                policy: policy("sum", ".*", ["", ""], ["cpu - 1", ""]),
                ..less()
            },
            "app: -,-;-,-\nside: -,-;-,-\ndenied for set: failed to evaluate CPU requests expression: failed to parse \
             expression \"cpu - 1\": calculation result is negative: -900m",
            "formula of SidecarSet set NOT applied: failed to evaluate CPU requests expression: failed to parse \
             expression \"cpu - 1\": calculation result is negative: -900m",
        ),
        (
            "no target",
            Case {
                policy: policy("sum", "^web$", ["", ""], ["cpu", ""]),
                ..less()
            },
            "app: -,-;-,-\nside: -,-;-,-\ndenied for set: no containers match the regex pattern \"^web$\"",
            "formula of SidecarSet set NOT applied: no containers match the regex pattern \"^web$\"",
        ),
        (
            "it is no target of its own",
            Case {
                policy: policy("sum", "^side$", ["", ""], ["cpu", ""]),
                ..less()
            },
            "app: -,-;-,-\nside: -,-;-,-\ndenied for set: no containers match the regex pattern \"^side$\"",
            "formula of SidecarSet set NOT applied: no containers match the regex pattern \"^side$\"",
        ),
        (
            "a failing one leaves the recommendation",
            Case {
                policy: policy("sum", "^web$", ["", ""], ["cpu", ""]),
                recommendations: json!([target("side", "30m", "")]),
                ..less()
            },
            "app: -,-;-,-\nside: -,-;30m,-\ndenied for set: no containers match the regex pattern \"^web$\"",
            "formula of SidecarSet set NOT applied: no containers match the regex pattern \"^web$\"",
        ),
        (
            "an expression that nobody can read fails only where it is looked at",
            Case {
                containers: json!([container("app", ["", ""], ["100m", ""]), {"name": "side"}]),
                policy: policy("sum", ".*", ["@@@", ""], ["cpu", ""]),
                ..less()
            },
            "app: -,-;-,-\nside: -,-;100m,-",
            "cpu limit NOT set since a target has none",
        ),
    ] {
        let (planned, reasons) = case.planned();
        assert_eq!(planned, expected, "{what}");
        assert!(reasons.iter().any(|said| said == reason), "{what}: {reasons:#?}");
    }
}

#[test]
fn a_boost_is_not_what_a_sidecar_follows() {
    let boosted = Case {
        boost: json!({"cpu": {"type": "Factor", "factor": 2}}),
        gates: "CPUStartupBoost=true",
        ..case()
    };
    assert_eq!(
        boosted.planned().0,
        "app: 400m,-;200m,-\nside: 200m,200Mi;100m,100Mi"
    );
}

#[test]
fn a_pod_without_a_vpa_has_formulas_too() {
    let pod = serde_json::from_value(json!({"spec": {"containers": case().containers}})).unwrap();
    let formulas = Formulas {
        containers: vec![FormulaOf {
            container: "side".to_owned(),
            sidecar: "side".to_owned(),
            set: "set".to_owned(),
            revision: String::new(),
            policy: Policy::new(&serde_json::from_value(case().policy).unwrap()).into(),
        }],
        sidecars: ["side".to_owned()].into(),
        unknown: Vec::new(),
    };
    let gates = Gates::default();
    let limit_ranges = LimitRanges::default();
    let input = PlanInput {
        pod: &pod,
        sizing: &NO_VPA,
        formulas: Some(&formulas),
        limit_ranges: &limit_ranges,
        stage: Stage::New,
        remembered: None,
        even_if_off: false,
        max_cpu_boost: None,
        gates: &gates,
        quirks: Quirks::none(),
    };
    let sidecar = &plan(&input).containers[1];
    assert!(sidecar.is_by_formula());
    assert_eq!(
        sidecar.requests.get("cpu").map(ToString::to_string).as_deref(),
        Some("50m")
    );
    let none = Formulas {
        containers: Vec::new(),
        ..formulas.clone()
    };
    let without = plan(&PlanInput {
        formulas: None,
        ..input
    });
    assert_eq!(
        plan(&PlanInput {
            formulas: Some(&none),
            ..input
        }),
        without
    );
}
