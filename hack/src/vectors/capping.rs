//! Family `capping`: a recommendation within LimitRanges and policies, and the resources it gives a pod's containers.

use std::collections::BTreeMap;

use anyhow::Context as _;
use common::{
    api::{k8s::LimitRange, vpa::VerticalPodAutoscaler},
    plan::{ContainerPlan, LimitRanges, PlanInput, Range, Reason, Recommendation, Sizing, Stage, plan},
    pod::Pod,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    compare::{self, Comparison},
    family::Context,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    pod: Pod,
    vpa: VerticalPodAutoscaler,
    #[serde(default)]
    limit_ranges: Vec<LimitRange>,
}

pub(super) fn answer(input: &Value, context: &Context) -> anyhow::Result<Value> {
    let input = Input::deserialize(input).context("cannot read the input")?;
    let namespace = &input.pod.metadata.namespace;
    let here = |range: &&LimitRange| range.metadata.namespace == *namespace;
    let limit_ranges = LimitRanges::merge(input.limit_ranges.iter().filter(here));
    let sizing = Sizing::from(&input.vpa);
    let planned = plan(&PlanInput {
        pod: &input.pod,
        sizing: &sizing,
        formulas: None,
        limit_ranges: &limit_ranges,
        stage: Stage::Running,
        remembered: None,
        even_if_off: true,
        max_cpu_boost: None,
        gates: &context.gates,
        quirks: context.quirks,
    });
    let recommendations: Vec<_> = planned.recommendations.iter().map(recommendation).collect();
    let range = |range: &Option<Range>, name| range.as_ref().map(|range| merged(range, name));
    Ok(json!({
        "mergedContainerLimitRange": range(&limit_ranges.container, "Container"),
        "mergedPodLimitRange": range(&limit_ranges.pod, "Pod"),
        "recommendation": (!recommendations.is_empty()).then(|| json!({"containerRecommendations": recommendations})),
        "annotations": notes(planned.recommendations.iter().map(|recommendation| {
            (recommendation.amounts.container.as_str(), recommendation.reasons.as_slice())
        })),
        "containerResources": planned.containers.iter().map(resources).collect::<Vec<_>>(),
        "containerAnnotations": notes(planned.containers.iter().map(|container| {
            (container.container.name(), container.reasons.as_slice())
        })),
    }))
}

/// Where only the provider crashed, the recommendation counts and the resources do not.
pub(super) fn compare(input: &Value, expected: &Value, got: &Value) -> Comparison {
    let (mut expected, mut got) = (expected.clone(), got.clone());
    if expected.get("providerPanic").is_some() {
        for value in [&mut expected, &mut got]
            .into_iter()
            .filter_map(Value::as_object_mut)
        {
            for key in ["providerPanic", "containerResources", "containerAnnotations"] {
                value.remove(key);
            }
        }
    }
    compare::as_json(input, &expected, &got)
}

fn merged(range: &Range, name: &str) -> Value {
    json!({"type": name, "default": range.default, "max": range.max, "min": range.min})
}

fn recommendation(recommendation: &Recommendation) -> Value {
    let amounts = &recommendation.amounts;
    json!({
        "containerName": amounts.container,
        "target": amounts.target,
        "lowerBound": amounts.lower_bound,
        "upperBound": amounts.upper_bound,
        "uncappedTarget": amounts.uncapped_target,
    })
}

fn resources(container: &ContainerPlan<'_>) -> Value {
    json!({"requests": container.requests, "limits": container.limits})
}

fn notes<'a>(containers: impl Iterator<Item = (&'a str, &'a [Reason])>) -> BTreeMap<&'a str, Vec<String>> {
    containers
        .map(|(name, reasons)| {
            let reasons = reasons.iter().filter(|reason| reason.is_annotated());
            (name, reasons.map(ToString::to_string).collect::<Vec<_>>())
        })
        .filter(|(_, notes)| !notes.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_of_the_provider_leaves_the_recommendation_to_compare() {
        let expected = json!({"annotations": {"a": ["note"]}, "providerPanic": "nil map"});
        let got = |note: &str| json!({"annotations": {"a": [note]}, "containerResources": [{"requests": {"cpu": "1"}}]});
        assert_eq!(compare(&json!({}), &expected, &got("note")).differences, []);
        assert_eq!(compare(&json!({}), &expected, &got("other")).differences.len(), 1);
    }
}
