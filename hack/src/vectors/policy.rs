//! Family `policy`: one `resourcesPolicy` on the containers of one pod. Everything must be as in Kruise, error texts
//! too, except what Kruise computes from nothing, and Go's words about a bad regular expression.

use anyhow::Context as _;
use common::{
    api::sidecarset::ResourcesPolicy,
    formula::{Candidate, Policy, PolicyError},
    pod::{Pod, Resources},
};
use serde_json::{Value, json};

use super::{
    compare::{Comparison, differences},
    expr,
    family::Context,
};

pub(super) fn answer(input: &Value, _context: &Context) -> anyhow::Result<Value> {
    let pod: Pod = serde_json::from_value(json!({
        "spec": {"initContainers": input.get("initContainers"), "containers": input.get("containers")},
    }))?;
    let mut policy: ResourcesPolicy = serde_json::from_value(input["policy"].clone())?;
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
    if let Some(reason) = got.get("stricter").and_then(Value::as_str) {
        return Comparison {
            stricter: Some(reason.to_owned()),
            ..Comparison::default()
        };
    }
    let error = expected.get("error").and_then(Value::as_str);
    let matches_up_to_the_pattern = got
        .get("upTo")
        .and_then(Value::as_str)
        .zip(error)
        .is_some_and(|(ours, theirs)| theirs.starts_with(ours));
    if matches_up_to_the_pattern {
        return Comparison::default();
    }
    Comparison {
        differences: differences(expected, got),
        ..Comparison::default()
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
            if let Some(reason) = error.stricter() {
                answer["stricter"] = json!(format!("{formula:?}: {}", expr::summary(reason)));
            }
            answer
        }
    }
}
