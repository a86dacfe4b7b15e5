//! The conditions of a VPA that follow from what the recommender knows of it (`spec/vpa.md` 1.5). The others are left
//! as they came.

use chrono::{DateTime, Utc};
use common::api::vpa::{ConditionStatus, ConditionType, VerticalPodAutoscalerCondition};
use std::collections::BTreeMap;

const NO_PODS: &str = "NoPodsMatched";
const NO_PODS_MESSAGE: &str = "No pods match this VPA object";

/// The conditions of a VPA, one of each type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions(BTreeMap<String, VerticalPodAutoscalerCondition>);

impl Conditions {
    /// Says whether there is a recommendation and whether there are pods to make one for.
    pub fn observe(&mut self, pods: usize, provided: bool, now: DateTime<Utc>) {
        self.remove(&ConditionType::ConfigDeprecated);
        let (reason, message) = if pods == 0 {
            (NO_PODS, NO_PODS_MESSAGE)
        } else {
            ("", "")
        };
        if pods == 0 {
            self.set(
                ConditionType::NoPodsMatched,
                ConditionStatus::True,
                NO_PODS,
                NO_PODS_MESSAGE,
                now,
            );
        } else {
            self.remove(&ConditionType::NoPodsMatched);
        }
        if provided {
            self.set(
                ConditionType::RecommendationProvided,
                ConditionStatus::True,
                "",
                "",
                now,
            );
        } else {
            self.set(
                ConditionType::RecommendationProvided,
                ConditionStatus::False,
                reason,
                message,
                now,
            );
        }
    }

    /// Sets a condition; the time of its last change moves only if its status does.
    pub fn set(
        &mut self,
        type_: ConditionType,
        status: ConditionStatus,
        reason: &str,
        message: &str,
        now: DateTime<Utc>,
    ) {
        let key = type_.to_string();
        let unchanged = self.0.get(&key).filter(|condition| condition.status == status);
        let since = unchanged
            .and_then(|condition| condition.last_transition_time)
            .unwrap_or(now);
        let condition = VerticalPodAutoscalerCondition {
            type_,
            status,
            last_transition_time: Some(since),
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: 0,
        };
        self.0.insert(key, condition);
    }

    /// Takes a condition away.
    pub fn remove(&mut self, type_: &ConditionType) {
        self.0.remove(&type_.to_string());
    }

    /// Whether a condition is there and holds.
    #[must_use]
    pub fn is_true(&self, type_: &ConditionType) -> bool {
        let condition = self.0.get(&type_.to_string());
        condition.is_some_and(|condition| condition.status == ConditionStatus::True)
    }

    /// All of them, sorted by type.
    #[must_use]
    pub fn to_vec(&self) -> Vec<VerticalPodAutoscalerCondition> {
        self.0.values().cloned().collect()
    }
}

impl FromIterator<VerticalPodAutoscalerCondition> for Conditions {
    fn from_iter<I: IntoIterator<Item = VerticalPodAutoscalerCondition>>(conditions: I) -> Self {
        let keyed = conditions
            .into_iter()
            .map(|condition| (condition.type_.to_string(), condition));
        Self(keyed.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(seconds, 0).unwrap()
    }

    fn summary(conditions: &Conditions) -> Vec<(String, String, String, i64)> {
        let summary = |condition: VerticalPodAutoscalerCondition| {
            let since = condition.last_transition_time.unwrap().timestamp();
            (
                condition.type_.to_string(),
                condition.status.to_string(),
                condition.reason,
                since,
            )
        };
        conditions.to_vec().into_iter().map(summary).collect()
    }

    #[test]
    fn they_follow_pods_and_recommendation_and_keep_their_time() {
        let row = |type_: &str, status: &str, reason: &str, since| {
            (type_.to_owned(), status.to_owned(), reason.to_owned(), since)
        };
        let mut conditions = Conditions::default();
        conditions.set(
            ConditionType::LowConfidence,
            ConditionStatus::True,
            "theirs",
            "",
            at(1),
        );
        conditions.set(
            ConditionType::ConfigDeprecated,
            ConditionStatus::True,
            "",
            "",
            at(1),
        );

        conditions.observe(0, false, at(10));
        assert_eq!(
            summary(&conditions),
            [
                row("LowConfidence", "True", "theirs", 1),
                row("NoPodsMatched", "True", "NoPodsMatched", 10),
                row("RecommendationProvided", "False", "NoPodsMatched", 10),
            ]
        );
        conditions.observe(3, false, at(20));
        assert_eq!(
            summary(&conditions),
            [
                row("LowConfidence", "True", "theirs", 1),
                row("RecommendationProvided", "False", "", 10),
            ]
        );
        conditions.observe(3, true, at(30));
        conditions.observe(0, true, at(40));
        assert_eq!(
            summary(&conditions),
            [
                row("LowConfidence", "True", "theirs", 1),
                row("NoPodsMatched", "True", "NoPodsMatched", 40),
                row("RecommendationProvided", "True", "", 30),
            ]
        );
        assert!(conditions.is_true(&ConditionType::RecommendationProvided));
    }
}
