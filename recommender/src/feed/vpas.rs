//! The VPA objects as the shell keeps them: what publishing compares with and what the model does not hold.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use common::{
    api::vpa::{
        ConditionType, CrossVersionObjectReference, RecommendedPodResources, UpdateMode,
        VerticalPodAutoscaler, VerticalPodAutoscalerStatus,
    },
    selector::Selector,
    time,
};

use crate::{conditions::Conditions, instant, policy::Policies};

/// Namespace and name.
pub(crate) type Key = (String, String);

/// All VPAs, other recommenders' too: their checkpoints are not orphans.
#[derive(Debug, Default)]
pub(crate) struct Vpas {
    pub(crate) ours: BTreeMap<Key, Row>,
    pub(crate) others: std::collections::BTreeSet<Key>,
    /// The checkpoints have been read: those of a VPA that comes now have not.
    pub(crate) late: bool,
}

/// How long a VPA may be without a recommendation before that is worth a word, and how long until the next word.
const PATIENCE: TimeDelta = TimeDelta::minutes(30);

/// A VPA that this recommender serves.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) target: Option<CrossVersionObjectReference>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) update_mode: UpdateMode,
    pub(crate) policies: Policies,
    pub(crate) generation: Option<i64>,
    pub(crate) created: Option<DateTime<Utc>>,
    /// The status on the server, as far as we know.
    pub(crate) observed: VerticalPodAutoscalerStatus,
    /// Which pods are its target's.
    pub(crate) selector: Selector,
    /// Why its target cannot be sized; nothing means that it can.
    pub(crate) unsupported: Option<String>,
    /// Something besides the model has changed since its status was last computed.
    pub(crate) changed: bool,
    /// Its checkpoints are still to be read, and must not be overwritten before.
    pub(crate) unread: bool,
    /// When it was last said that it has no recommendation.
    complained: Option<DateTime<Utc>>,
}

impl Row {
    fn read(vpa: VerticalPodAutoscaler) -> Self {
        let VerticalPodAutoscaler {
            metadata,
            spec,
            status,
        } = vpa;
        Self {
            update_mode: spec.update_mode().clone(),
            policies: spec
                .resource_policy
                .as_ref()
                .map(Policies::from)
                .unwrap_or_default(),
            target: spec.target_ref,
            annotations: metadata.annotations.unwrap_or_default(),
            generation: metadata.generation,
            created: metadata.creation_timestamp.as_ref().map(time::from_k8s),
            observed: status.unwrap_or_default(),
            selector: Selector::Nothing,
            unsupported: None,
            changed: true,
            unread: false,
            complained: None,
        }
    }

    /// Whether it should be said now that there still is no recommendation.
    pub(crate) fn lacks_recommendation(&mut self, now: DateTime<Utc>) -> bool {
        if self.published().is_some() {
            self.complained = None;
            return false;
        }
        let since = *self.complained.get_or_insert(self.created.unwrap_or(now));
        let overdue = instant::plus(since, PATIENCE) < now;
        if overdue {
            self.complained = Some(now);
        }
        overdue
    }

    /// What was published and still counts.
    pub(crate) fn published(&self) -> Option<&RecommendedPodResources> {
        let conditions: Conditions = self.observed.conditions.iter().cloned().collect();
        conditions
            .is_true(&ConditionType::RecommendationProvided)
            .then_some(self.observed.recommendation.as_ref())
            .flatten()
    }
}

impl Vpas {
    /// Takes in a VPA that is new or has changed. Says whether one of ours is now somebody else's.
    pub(crate) fn apply(&mut self, recommender: &str, vpa: VerticalPodAutoscaler) -> Option<Key> {
        let key = key(&vpa.metadata);
        if serves(recommender, &vpa) {
            self.others.remove(&key);
            let mut row = Row::read(vpa);
            row.unread = self.late;
            if let Some(known) = self.ours.get(&key) {
                row.unread = known.unread;
                row.complained = known.complained;
                row.unsupported.clone_from(&known.unsupported);
                row.selector.clone_from(&known.selector);
                let same = known.observed == row.observed
                    && known.generation == row.generation
                    && known.annotations == row.annotations;
                row.changed = known.changed || !same;
            }
            self.ours.insert(key, row);
            None
        } else {
            let lost = self.ours.remove(&key).map(|_| key.clone());
            self.others.insert(key);
            lost
        }
    }

    /// Forgets one that is gone.
    pub(crate) fn remove(&mut self, key: &Key) {
        self.ours.remove(key);
        self.others.remove(key);
    }

    /// Whether there is one of that name, whoever serves it.
    pub(crate) fn exists(&self, key: &Key) -> bool {
        self.ours.contains_key(key) || self.others.contains(key)
    }
}

pub(crate) fn key(metadata: &common::api::k8s::ObjectMeta) -> Key {
    (
        metadata.namespace.clone().unwrap_or_default(),
        metadata.name.clone().unwrap_or_default(),
    )
}

/// Whether a VPA is for this recommender: the default one also serves those that name none.
fn serves(recommender: &str, vpa: &VerticalPodAutoscaler) -> bool {
    let chosen = &vpa.spec.recommenders;
    let named = chosen.iter().any(|choice| choice.name == recommender);
    named || (chosen.is_empty() && recommender == "default")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn vpa(status: &serde_json::Value) -> VerticalPodAutoscaler {
        serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": "web", "creationTimestamp": "2026-03-01T00:00:00Z"},
            "spec": {},
            "status": status,
        }))
        .unwrap()
    }

    fn at(minutes: i64) -> DateTime<Utc> {
        "2026-03-01T00:00:00Z".parse::<DateTime<Utc>>().unwrap() + TimeDelta::minutes(minutes)
    }

    #[test]
    fn a_missing_recommendation_is_told_of_every_half_hour() {
        let mut vpas = Vpas::default();
        vpas.apply("default", vpa(&json!({})));
        let key = ("shop".to_owned(), "web".to_owned());
        let mut told = Vec::new();
        for minute in 1..=100 {
            // Every change of the object makes a new row.
            vpas.apply("default", vpa(&json!({})));
            if vpas.ours.get_mut(&key).unwrap().lacks_recommendation(at(minute)) {
                told.push(minute);
            }
        }
        assert_eq!(told, [31, 62, 93]);
        let provided = json!({
            "conditions": [{"type": "RecommendationProvided", "status": "True"}],
            "recommendation": {"containerRecommendations": [{"containerName": "a", "target": {"cpu": "1"}}]},
        });
        vpas.apply("default", vpa(&provided));
        assert!(!vpas.ours.get_mut(&key).unwrap().lacks_recommendation(at(1000)));
    }

    #[test]
    fn who_comes_after_the_checkpoints_were_read_has_unread_ones() {
        let mut vpas = Vpas::default();
        let key = ("shop".to_owned(), "web".to_owned());
        vpas.apply("default", vpa(&json!({})));
        assert!(!vpas.ours[&key].unread);
        vpas.late = true;
        vpas.apply("default", vpa(&json!({})));
        assert!(!vpas.ours[&key].unread, "it was there before");
        vpas.remove(&key);
        vpas.apply("default", vpa(&json!({})));
        assert!(vpas.ours[&key].unread);
        vpas.apply("default", vpa(&json!({})));
        assert!(vpas.ours[&key].unread, "a change of the object reads nothing");
    }
}
