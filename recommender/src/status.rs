//! The status that a VPA should have, and whether that differs from the one it has in anything a reader can see.

use std::{cmp::Ordering, collections::BTreeMap};

use chrono::{DateTime, SubsecRound as _, Utc};
use common::{
    api::{
        k8s::ResourceList,
        vpa::{
            ConditionStatus, ConditionType, RecommendedContainerResources, RecommendedPodResources,
            VerticalPodAutoscalerStatus,
        },
    },
    quantity::Quantity,
};

use crate::{
    aggregate::History,
    cluster::{Name, VpaView},
    conditions::Conditions,
    estimate::EstimatorConfig,
    feed::vpas::Row,
    postprocess::{Caps, PostProcessing},
    recommend::{Recommendation, Rounding, recommend, to_wire},
};

/// How statuses are made.
#[derive(Clone, Debug)]
pub(crate) struct StatusConfig {
    pub(crate) estimator: EstimatorConfig,
    pub(crate) rounding: Rounding,
    pub(crate) post_processing: PostProcessing,
    pub(crate) quirks: common::quirks::Quirks,
}

impl StatusConfig {
    /// The status that a VPA should have now, with this recommendation.
    pub(crate) fn status(
        &self,
        row: &Row,
        view: &VpaView<'_>,
        recommendation: &Recommendation,
        now: DateTime<Utc>,
    ) -> VerticalPodAutoscalerStatus {
        // What the API carries are whole seconds.
        let now = now.trunc_subsecs(0);
        let mut conditions: Conditions = row.observed.conditions.iter().cloned().collect();
        match &row.unsupported {
            Some(reason) => {
                let type_ = ConditionType::ConfigUnsupported;
                conditions.set(type_, ConditionStatus::True, "", reason, now);
            }
            None => conditions.remove(&ConditionType::ConfigUnsupported),
        }
        conditions.observe(view.pod_count(), !recommendation.is_empty(), now);
        VerticalPodAutoscalerStatus {
            recommendation: Some(to_wire(recommendation)),
            conditions: conditions.to_vec(),
            observed_generation: row.generation,
        }
    }
}

impl StatusConfig {
    /// What is recommended for the containers of a VPA; tells what the policy changed of each.
    pub(crate) fn recommendation(
        &self,
        row: &Row,
        histories: &BTreeMap<&Name, History>,
        tell: impl FnMut(&Name, Caps),
    ) -> Recommendation {
        let mut recommendation = recommend(
            histories,
            &row.policies,
            row.published(),
            &self.estimator,
            self.rounding,
            self.quirks,
        );
        self.post_processing
            .apply_and_tell(&mut recommendation, &row.annotations, &row.policies, tell);
        recommendation
    }
}

/// Whether two statuses say the same: quantities count by value, and nothing is as good as an empty list.
pub(crate) fn same(one: &VerticalPodAutoscalerStatus, other: &VerticalPodAutoscalerStatus) -> bool {
    one.conditions == other.conditions
        && one.observed_generation == other.observed_generation
        && same_recommendation(containers(one), containers(other))
}

fn containers(status: &VerticalPodAutoscalerStatus) -> &[RecommendedContainerResources] {
    let recommendation: Option<&RecommendedPodResources> = status.recommendation.as_ref();
    recommendation.map_or(&[], |recommendation| &recommendation.container_recommendations)
}

fn same_recommendation(
    one: &[RecommendedContainerResources],
    other: &[RecommendedContainerResources],
) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| {
            one.container_name == other.container_name
                && same_amounts(&one.target, &other.target)
                && same_amounts(&one.lower_bound, &other.lower_bound)
                && same_amounts(&one.upper_bound, &other.upper_bound)
                && same_amounts(&one.uncapped_target, &other.uncapped_target)
        })
}

fn same_amounts(one: &ResourceList, other: &ResourceList) -> bool {
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|((name, amount), (other_name, other_amount))| {
                let parsed = (Quantity::try_from(amount), Quantity::try_from(other_amount));
                let same_value = match parsed {
                    (Ok(amount), Ok(other)) => amount.cmp_value(&other) == Ordering::Equal,
                    _ => amount == other_amount,
                };
                name == other_name && same_value
            })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(json: serde_json::Value) -> VerticalPodAutoscalerStatus {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn statuses_are_compared_by_what_they_say() {
        let of = |cpu: &str| {
            status(json!({"recommendation": {"containerRecommendations": [
                {"containerName": "web", "target": {"cpu": cpu}}]}, "observedGeneration": 1}))
        };
        let empty = |recommendation| status(json!({"recommendation": recommendation}));
        let cases = [
            (of("1"), of("1000m"), true),
            (of("1"), of("1001m"), false),
            (empty(json!(null)), empty(json!({})), true),
            (empty(json!({})), of("1"), false),
            (
                status(json!({"observedGeneration": 1})),
                status(json!({"observedGeneration": 2})),
                false,
            ),
        ];
        for (one, other, expected) in cases {
            assert_eq!(same(&one, &other), expected, "{one:?} {other:?}");
        }
    }
}
