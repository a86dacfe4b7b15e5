//! Family `policy`: one `resourcesPolicy` on the containers of one pod. Everything must be as in Kruise, error texts
//! too, except what Kruise computes from nothing, and Go's words about a bad regular expression.

use anyhow::Context as _;
use common::{
    api::sidecarset::ResourcesPolicy,
    formula::{Candidate, FormulaError, Policy, PolicyError},
    pod::{Pod, Resources},
};
use serde_json::{Value, json};

use super::{
    compare::{Comparison, differences},
    expr,
    family::Context,
    file::without_nulls,
};

pub(super) fn answer(input: &Value, _context: &Context) -> anyhow::Result<Value> {
    let pod: Pod = serde_json::from_value(json!({
        "spec": {"initContainers": input.get("initContainers"), "containers": input.get("containers")},
    }))?;
    let mut policy: ResourcesPolicy = serde_json::from_value(without_nulls(&input["policy"]))?;
    // The default is the schema's, and the vectors go past it.
    policy.target_containers_name_regex.get_or_insert_default();

    let own: Vec<&str> = ["sidecarNames", "sidecarInitNames"]
        .iter()
        .filter_map(|key| input.get(key)?.as_array())
        .flatten()
        .map(|name| name.as_str().context("a sidecar's name is not a text"))
        .collect::<anyhow::Result<_>>()?;
    let sizing = Policy::new(&policy).evaluate(Candidate::of_pod(&pod), |name| own.contains(&name));
    Ok(match sizing {
        Ok(sizing) => json!({ "resources": describe(&sizing.resources()) }),
        Err(error) => refusal(&error),
    })
}

pub(super) fn compare(_input: &Value, expected: &Value, got: &Value) -> Comparison {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let matches_up_to_the_pattern = text(got, "upTo")
        .zip(text(expected, "error"))
        .is_some_and(|(ours, theirs)| theirs.starts_with(&ours));
    let mut got = got.clone();
    let stricter = got.as_object_mut().and_then(|answer| answer.remove("stricter"));
    let differences = differences(expected, &got);
    if matches_up_to_the_pattern || differences.is_empty() {
        return Comparison::default();
    }
    match stricter.as_ref().and_then(Value::as_str) {
        Some(reason) => Comparison {
            stricter: Some(reason.to_owned()),
            ..Comparison::default()
        },
        None => Comparison {
            differences,
            ..Comparison::default()
        },
    }
}

fn describe(resources: &Resources) -> Value {
    json!({ "limits": resources.limits, "requests": resources.requests })
}

fn refusal(error: &PolicyError) -> Value {
    let text = error.to_string();
    match error {
        // What follows the pattern is Go's.
        PolicyError::Pattern { error, .. } => {
            let before = text.strip_suffix(&error.to_string()).unwrap_or(&text);
            json!({ "error": text, "upTo": before })
        }
        PolicyError::NoTarget { .. } => json!({ "error": text }),
        PolicyError::Formula {
            text: formula, error, ..
        } => {
            let hint = error.to_string();
            // Where we say more than Kruise, it comes after its words.
            let before = text.strip_suffix(&hint).unwrap_or(&text);
            let mut answer = json!({ "error": format!("{before}{}", error.fault()) });
            if let Some(reason) = error.first_stricter().and_then(FormulaError::stricter) {
                answer["stricter"] = json!(format!("{formula:?}: {}", expr::summary(reason)));
            }
            answer
        }
    }
}
