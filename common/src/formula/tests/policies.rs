//! Policies on pods (`spec/sidecarset.md` 3.1 to 3.3, 3.7, and the tables of 4.3 to 4.7). Resources are written
//! `limits.cpu limits.memory requests.cpu requests.memory`, with `-` for what is absent.

use serde_json::{Value, json};

use crate::api::sidecarset::ResourcesPolicy;
use crate::formula::{Candidate, Field, Outcome, Policy, PolicyError, Resource};
use crate::pod::{Pod, Resources, Side};

const KEYS: [(&str, &str); 4] = [
    ("limits", "cpu"),
    ("limits", "memory"),
    ("requests", "cpu"),
    ("requests", "memory"),
];

/// `name(200m 200Mi 50m 100Mi)`; with `native ` before it a native sidecar, with `init ` an ordinary init container.
fn pod(containers: &[&str]) -> Pod {
    let mut spec = json!({"initContainers": [], "containers": []});
    for text in containers {
        let (kind, text) = match text.split_once(' ') {
            Some((kind @ ("native" | "init"), rest)) => (kind, rest),
            _ => ("", *text),
        };
        let (name, resources) = text.trim_end_matches(')').split_once('(').unwrap();
        let mut container = json!({"name": name, "resources": four(resources)});
        if kind == "native" {
            container["restartPolicy"] = json!("Always");
        }
        let list = if kind.is_empty() {
            "containers"
        } else {
            "initContainers"
        };
        spec[list].as_array_mut().unwrap().push(container);
    }
    serde_json::from_value(json!({ "spec": spec })).unwrap()
}

fn four(words: &str) -> Value {
    let mut resources = json!({});
    for ((side, resource), word) in KEYS.iter().zip(words.split_whitespace()) {
        if word != "-" {
            resources[side][resource] = json!(word);
        }
    }
    resources
}

fn shown(resources: &Resources) -> String {
    let entry = |(side, resource): &(&str, &str)| {
        let quantity = match *side {
            "limits" => resources.limit(resource),
            _ => resources.request(resource),
        };
        quantity.map_or_else(|| "-".to_owned(), ToString::to_string)
    };
    KEYS.iter().map(entry).collect::<Vec<_>>().join(" ")
}

/// A policy of a mode, a regular expression and four formulas, of which some are empty.
fn policy(mode: &str, regex: &str, formulas: [&str; 4]) -> Policy {
    let mut expr = json!({});
    for ((side, resource), formula) in KEYS.iter().zip(formulas) {
        expr[side][resource] = json!(formula);
    }
    let policy: ResourcesPolicy = serde_json::from_value(json!({
        "targetContainersMode": mode, "targetContainersNameRegex": regex, "resourcesExpr": expr,
    }))
    .unwrap();
    Policy::new(&policy)
}

/// What a sidecar gets, where nothing is excluded.
fn sized(policy: &Policy, containers: &[&str]) -> String {
    match policy.evaluate(Candidate::of_pod(&pod(containers)), |_| false) {
        Ok(sizing) => shown(&sizing.resources()),
        Err(error) => format!("ERR {error}"),
    }
}

const STORY: [&str; 4] = ["max(cpu*50%, 50m)", "200Mi", "max(cpu*50%, 50m)", "100Mi"];
const V4: &str = "large-engine-v4(200m 200Mi 50m 100Mi)";
const V8: &str = "large-engine-v8(400m 400Mi 100m 200Mi)";

#[test]
fn the_stories_of_the_proposal() {
    let table = [
        (
            "1, by name",
            policy("sum", "^large-engine-v4$", STORY),
            vec![V4, "large-engine-v8(200m 200Mi 50m 100Mi)"],
            "100m 200Mi 50m 100Mi",
        ),
        (
            "2, sum",
            policy("sum", "^large-engine-v.*$", STORY),
            vec![V4, V8],
            "300m 200Mi 75m 100Mi",
        ),
        (
            "3, max",
            policy("max", "^large-engine-v.*$", STORY),
            vec![V4, V8],
            "200m 200Mi 50m 100Mi",
        ),
        (
            "4, unlimited",
            policy("max", "^large-engine-v.*$", STORY),
            vec![V4, "large-engine-v8(- 400Mi 100m 200Mi)"],
            "- 200Mi 50m 100Mi",
        ),
        (
            "5, linear",
            policy(
                "sum",
                ".*",
                ["0.5*cpu - 0.3*max(0, cpu-4) + 0.3*max(0, cpu-8)", "", "", ""],
            ),
            vec!["a(2 - - -)", "b(4 - - -)"],
            "2400m - - -",
        ),
        (
            "6, native sidecar",
            policy(
                "sum",
                "^app.*$",
                [
                    "max(cpu*30%, 50m)",
                    "max(memory*25%, 100Mi)",
                    "cpu*20%",
                    "memory*15%",
                ],
            ),
            vec!["app1(400m 800Mi 200m 400Mi)", "app2(600m 1200Mi 300m 600Mi)"],
            "300m 500Mi 100m 150Mi",
        ),
    ];
    for (story, policy, containers, expected) in table {
        assert_eq!(sized(&policy, &containers), expected, "story {story}");
    }
}

#[test]
fn sums_and_maxima() {
    let app1 = "app1(200m 200Mi 100m 100Mi)";
    let table = [
        (
            "sum",
            ["cpu*50%", "200Mi", "cpu*50%", "100Mi"],
            vec![V4, V8],
            "300m 200Mi 75m 100Mi",
        ),
        (
            "sum",
            ["cpu*50%", "memory*30%", "cpu*30%", "memory*20%"],
            vec![app1, "app2(- 400Mi 50m 200Mi)"],
            "- 180Mi 45m 60Mi",
        ),
        (
            "max",
            ["cpu*40%", "memory*30%", "cpu*25%", "memory*20%"],
            vec![app1, "app2(400m - 200m -)"],
            "160m - 50m 20Mi",
        ),
        (
            "sum",
            ["cpu*50%", "memory*30%", "cpu*30%", "memory*20%"],
            vec![app1, "app2(400m 400Mi - -)"],
            "300m 180Mi 30m 20Mi",
        ),
        (
            "max",
            ["cpu", "memory", "cpu", "memory"],
            vec![V4, V8],
            "400m 400Mi 100m 200Mi",
        ),
        (
            "sum",
            ["cpu", "memory", "cpu", "memory"],
            vec!["a(- - - -)"],
            "- - 0 0",
        ),
        (
            "sum",
            ["cpu*50%", "memory*50%", "cpu*50%", "memory*50%"],
            vec!["a(0 0 0 0)"],
            "0 0 0 0",
        ),
        // The format is that of the first amount, or of the largest, the first of equals.
        (
            "sum",
            ["", "memory", "", ""],
            vec!["a(- 1G - -)", "b(- 1Gi - -)"],
            "- 2073741824 - -",
        ),
        (
            "sum",
            ["", "memory", "", ""],
            vec!["a(- 0 - -)", "b(- 1Gi - -)"],
            "- 1Gi - -",
        ),
        (
            "max",
            ["", "memory", "", ""],
            vec!["a(- 1Gi - -)", "b(- 1073741824 - -)"],
            "- 1Gi - -",
        ),
        (
            "max",
            ["", "memory", "", ""],
            vec!["a(- 1073741824 - -)", "b(- 1Gi - -)"],
            "- 1073741824 - -",
        ),
        // A mode that got past the schema.
        (
            "avg",
            ["cpu", "200Mi", "cpu + 10m", "memory"],
            vec![V4, V8],
            "- - 10m 0",
        ),
        (
            "sum",
            ["cpu*50%", "", "cpu*2", ""],
            vec!["a(1 - 1 -)"],
            "500m - 2 -",
        ),
    ];
    for (mode, formulas, containers, expected) in table {
        assert_eq!(
            sized(&policy(mode, ".*", formulas), &containers),
            expected,
            "{mode} {formulas:?}"
        );
    }
}

/// A limit that a target does not have is not computed at all, whatever the formula says.
#[test]
fn unlimited_is_not_a_value() {
    for formula in ["200m", "min(cpu*50%,200m)", "cpu*cpu", "@@@", "1K", "-1"] {
        assert_eq!(
            sized(&policy("sum", ".*", [formula, formula, "", ""]), &["a(- - - -)"]),
            "- - - -"
        );
    }
    let constants = policy("sum", ".*", ["200m", "200Mi", "50m", "100Mi"]);
    assert_eq!(sized(&constants, &["a(- - - -)"]), "- - 50m 100Mi");
}

#[test]
fn one_formula_of_an_aggregate() {
    let table = [
        ("cpu*50%", "200m", "100m"),
        ("max(cpu*50%, 100m)", "150m", "100m"),
        ("max(cpu*50%, 100m)", "400m", "200m"),
        ("cpu + 50m", "100m", "150m"),
        ("500m", "100m", "500m"),
        ("1Gi", "500Mi", "1Gi"),
        ("1", "2", "1"),
        ("1000", "2", "1k"),
        ("0.5", "2", "500m"),
        ("memory*30%", "600Mi", "180Mi"),
        ("max(memory*20% + 100Mi, 200Mi)", "800Mi", "260Mi"),
    ];
    for (formula, amount, expected) in table {
        let container = format!("a({amount} - - -)");
        let sized = sized(&policy("sum", ".*", [formula, "", "", ""]), &[&container]);
        assert_eq!(sized, format!("{expected} - - -"), "{formula} of {amount}");
    }
}

/// One variable is bound: `memory` if the text has that word, else `cpu`, in every field.
#[test]
fn the_bound_variable_goes_by_the_text() {
    let undefined = |field: &str, text: &str, name: &str| {
        format!(
            "ERR failed to evaluate {field} expression: failed to parse expression {text:?}: undefined variable: {name}"
        )
    };
    let app = ["app(2 1Gi 1 512Mi)"];
    let table = [
        (["CPU*2", "", "", ""], "4 - - -".to_owned()),
        (["memory*2", "", "", ""], "4 - - -".to_owned()),
        (["", "cpu*2", "", ""], "- 2Gi - -".to_owned()),
        (
            ["", "", "", "MEMORY*50%"],
            undefined("memory requests", "MEMORY*50%", "memory"),
        ),
        (["", "memory + Memory", "", ""], "- 2Gi - -".to_owned()),
        (
            ["cpu + memory", "", "", ""],
            undefined("CPU limits", "cpu + memory", "cpu"),
        ),
        (
            ["", "", "memory1", ""],
            undefined("CPU requests", "memory1", "memory1"),
        ),
        (
            ["", "memory_", "", ""],
            undefined("memory limits", "memory_", "memory_"),
        ),
    ];
    for (formulas, expected) in table {
        assert_eq!(
            sized(&policy("sum", ".*", formulas), &app),
            expected,
            "{formulas:?}"
        );
    }
}

#[test]
fn who_is_a_target() {
    let all = policy("sum", "^.*$", ["cpu", "", "", ""]);
    let pod = pod(&[
        "init init-sidecar1(1 - - -)",
        "init plain-init-container(2 - - -)",
        "native sidecar-container(4 - - -)",
        "app1(8 - - -)",
        "app2(16 - - -)",
        "sidecar1(32 - - -)",
    ]);
    let own = ["init-sidecar1", "sidecar1"];
    let sizing = all
        .evaluate(Candidate::of_pod(&pod), |name| own.contains(&name))
        .unwrap();
    assert_eq!(sizing.targets, ["sidecar-container", "app1", "app2"]);
    assert_eq!(shown(&sizing.resources()), "28 - - -");
    let limit = Field {
        side: Side::Limits,
        resource: Resource::Cpu,
    };
    assert_eq!(
        sizing.outcome(limit),
        &Outcome::Computed {
            aggregate: "28".parse().unwrap(),
            result: "28".parse().unwrap(),
        }
    );
    let request = Field {
        side: Side::Requests,
        resource: Resource::Cpu,
    };
    assert_eq!(sizing.outcome(request), &Outcome::NoFormula);
    assert_eq!((all.formula(limit), all.formula(request)), (Some("cpu"), None));
}

/// A native sidecar comes first, as in the pod, so its format is the sum's.
#[test]
fn native_sidecars_come_first() {
    let memory = policy("sum", ".*", ["", "memory", "", ""]);
    assert_eq!(
        sized(&memory, &["app(- 1G - -)", "native proxy(- 1048576Ki - -)"]),
        "- 2073741824 - -"
    );
    let targets = memory
        .evaluate(
            Candidate::of_pod(&pod(&["app(- 1G - -)", "native proxy(- 1Gi - -)"])),
            |_| false,
        )
        .unwrap()
        .targets;
    assert_eq!(targets, ["proxy", "app"]);
    assert_eq!(
        sized(
            &policy("sum", "app", ["cpu", "", "", ""]),
            &["myapp1(1 - - -)", "other(4 - - -)"]
        ),
        "1 - - -"
    );
}

#[test]
fn what_is_denied_and_in_which_words() {
    let cpu = ["cpu*50%", "", "", ""];
    let table = [
        (
            policy("sum", "^nonexistent$", cpu),
            r#"no containers match the regex pattern "^nonexistent$""#,
        ),
        (
            policy("sum", "[bad(", cpu),
            r#"failed to get target containers: invalid regex pattern "[bad(": error parsing regexp: missing closing ]"#,
        ),
        (
            policy("sum", "\\", cpu),
            r#"failed to get target containers: invalid regex pattern "\\": error parsing regexp: trailing backslash at end of expression"#,
        ),
        (
            policy("sum", ".*", ["-cpu *\n2", "", "", ""]),
            r#"failed to evaluate CPU limits expression: failed to parse expression "-cpu *\n2": calculation result is negative: -400m"#,
        ),
        (
            policy("sum", ".*", ["", "1e16", "", ""]),
            r#"failed to evaluate memory limits expression: failed to parse expression "1e16": the quantity is out of range"#,
        ),
        (
            policy("sum", ".*", ["", "", "cpu +", "@"]),
            r#"failed to evaluate CPU requests expression: failed to parse expression "cpu +": parse error: syntax error at line 1, col 6: expected a number"#,
        ),
    ];
    for (policy, expected) in table {
        let told = sized(&policy, &["app1(200m 1Gi 100m 1Gi)"]);
        assert!(told.starts_with(&format!("ERR {expected}")), "{told}");
    }
    let error = policy("sum", ".*", cpu).evaluate([], |_| false).unwrap_err();
    assert_eq!(error, PolicyError::NoTarget { pattern: ".*".into() });
}

/// Before there is a pod: kinds and names are checked, amounts are not.
#[test]
fn a_policy_is_checked_without_a_pod() {
    let checked = |formulas| {
        policy("sum", ".*", formulas)
            .check()
            .map(|(field, error)| format!("{field}: {}", error.fault()))
            .collect::<Vec<_>>()
    };
    let fine = [
        [
            "max(cpu*50%, 50m)",
            "max(memory*50%, 100Mi)",
            "max( cpu * 0.5 , 50m )",
            "100Mi",
        ],
        ["cpu-2", "memory-100Mi", "2*cpu-3", ""],
        ["0.5*cpu - 0.3*max(0, cpu-4) + 0.3*max(0, cpu-8)", "", "CPU", "1"],
        ["", "", "", ""],
    ];
    for formulas in fine {
        assert_eq!(checked(formulas), [""; 0], "{formulas:?}");
    }
    assert_eq!(
        checked(["memory*50%", "cpu*50%", "cpu*cpu", "MEMORY*50%"]),
        [
            "CPU limits: undefined variable: memory",
            "memory limits: undefined variable: cpu",
            "CPU requests: multiplication of two quantities",
            "memory requests: undefined variable: memory",
        ]
    );
    assert_eq!(
        checked([
            "invalid expression @#$",
            "max(memory*50%, 50m",
            "max(cpu*50%)",
            "1/memory"
        ]),
        [
            "CPU limits: undefined variable: invalid",
            "memory limits: parse error: syntax error at line 1, col 20",
            "CPU requests: max function requires exactly 2 arguments, got 1",
            "memory requests: division by quantity",
        ]
    );
    assert!(policy("sum", "[bad(", ["", "", "", ""]).pattern_error().is_some());
    assert_eq!(policy("sum", "app", ["", "", "", ""]).pattern_error(), None);
}
