//! The families of vectors. To build one: write its file beside this one and give its row an answer.

use anyhow::Context as _;
use common::{gates::Gates, quirks::Quirks};
use serde_json::Value;

use super::{
    admission, capping, compare, eviction, expr, histogram, oom, policy, priority, quantity, recommendation,
    sidecar, updater_loop,
};

/// What every family's code is told besides the input.
#[derive(Clone, Debug)]
pub struct Context {
    /// The gates of this run; a family sets those of the case's `gates` on top.
    pub gates: Gates,
    /// Which of VPA's quirks are on.
    pub quirks: Quirks,
}

/// One kind of vectors.
#[derive(Debug)]
pub struct Family {
    /// The `family` key of its files.
    pub name: &'static str,
    /// Our code's answer in the schema of `expect`; none if it is not built yet.
    pub answer: Option<fn(&Value, &Context) -> anyhow::Result<Value>>,
    /// How an answer is compared, given input, expectation and answer.
    pub compare: fn(&Value, &Value, &Value) -> compare::Comparison,
    /// Adds a native sidecar to every pod of an input.
    pub add_sidecars: fn(&mut Value),
}

/// Every family there is.
pub static FAMILIES: [Family; 12] = [
    Family {
        answer: Some(histogram::answer),
        ..unbuilt("histogram", sidecar::nowhere)
    },
    Family {
        answer: Some(recommendation::answer),
        ..unbuilt("recommendation", sidecar::in_recommendation)
    },
    Family {
        answer: Some(capping::answer),
        compare: capping::compare,
        ..unbuilt("capping", sidecar::in_pods)
    },
    Family {
        answer: Some(admission::answer),
        ..unbuilt("admission", sidecar::in_admission)
    },
    Family {
        answer: Some(admission::answer),
        compare: admission::compare_validation,
        ..unbuilt("vpa-validation", sidecar::nowhere)
    },
    Family {
        answer: Some(priority::answer),
        ..unbuilt("priority", sidecar::in_pods)
    },
    Family {
        answer: Some(eviction::answer),
        ..unbuilt("eviction", sidecar::in_pods)
    },
    Family {
        answer: Some(expr::answer),
        compare: expr::compare,
        ..unbuilt("expr", sidecar::nowhere)
    },
    Family {
        answer: Some(policy::answer),
        compare: policy::compare,
        ..unbuilt("policy", sidecar::in_policy)
    },
    Family {
        answer: Some(quantity::answer),
        compare: quantity::compare,
        ..unbuilt("quantity", sidecar::nowhere)
    },
    Family {
        answer: Some(updater_loop::answer),
        ..unbuilt("updater-loop", sidecar::in_pods)
    },
    Family {
        answer: Some(oom::answer),
        ..unbuilt("oom", sidecar::in_pods)
    },
];

/// The family of that name.
///
/// # Errors
/// If there is none.
pub fn find(name: &str) -> anyhow::Result<&'static Family> {
    FAMILIES
        .iter()
        .find(|family| family.name == name)
        .with_context(|| {
            let names: Vec<_> = FAMILIES.iter().map(|family| family.name).collect();
            format!("unknown family {name:?}: use one of {}", names.join(", "))
        })
}

const fn unbuilt(name: &'static str, add_sidecars: fn(&mut Value)) -> Family {
    Family {
        name,
        answer: None,
        compare: compare::as_json,
        add_sidecars,
    }
}
