//! Reading a formula, evaluating one that has been read, and a whole policy on a pod.

use std::hint::black_box;

use common::{
    api::sidecarset::ResourcesPolicy,
    formula::{Candidate, Formula, Policy, Value},
    pod::Pod,
};
use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::json;

/// The fifth story of the proposal.
const LINEAR: &str = "0.5*cpu - 0.3*max(0, cpu-4) + 0.3*max(0, cpu-8)";

fn formulas(c: &mut Criterion) {
    for text in [LINEAR, "max(cpu*50%, 50m)"] {
        c.bench_function(&format!("parse {text}"), |b| {
            b.iter(|| Formula::parse(black_box(text)));
        });
        let (Ok(formula), Ok(cpu)) = (Formula::parse(text), "7777m".parse()) else {
            return;
        };
        let variables = [("cpu", Value::Quantity(cpu))];
        c.bench_function(&format!("evaluate {text}"), |b| {
            b.iter(|| black_box(&formula).evaluate(black_box(&variables)));
        });
    }
}

fn policies(c: &mut Criterion) {
    let policy = serde_json::from_value::<ResourcesPolicy>(json!({
        "targetContainersMode": "sum",
        "targetContainersNameRegex": "^app.*$",
        "resourcesExpr": {
            "limits": {"cpu": "max(cpu*30%, 50m)", "memory": "max(memory*25%, 100Mi)"},
            "requests": {"cpu": "cpu*20%", "memory": "memory*15%"},
        },
    }));
    let resources = json!({
        "limits": {"cpu": "400m", "memory": "800Mi"}, "requests": {"cpu": "200m", "memory": "400Mi"},
    });
    let pod = serde_json::from_value::<Pod>(json!({"spec": {"containers": [
        {"name": "app1", "resources": resources}, {"name": "app2", "resources": resources}, {"name": "web"},
    ]}}));
    let (Ok(policy), Ok(pod)) = (policy, pod) else {
        return;
    };
    c.bench_function("read a policy", |b| b.iter(|| Policy::new(black_box(&policy))));
    let policy = Policy::new(&policy);
    c.bench_function("evaluate a policy", |b| {
        b.iter(|| {
            policy
                .evaluate(Candidate::of_pod(black_box(&pod)), |name| name == "sidecar")
                .is_ok()
        });
    });
}

criterion_group!(benches, formulas, policies);
criterion_main!(benches);
