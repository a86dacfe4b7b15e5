//! The VPA objects as the shell keeps them: what publishing compares with and what the model does not hold.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use common::{
    api::vpa::{
        ConditionType, CrossVersionObjectReference, RecommendedPodResources, UpdateMode,
        VerticalPodAutoscaler, VerticalPodAutoscalerStatus,
    },
    selector::Selector,
    time,
};

use crate::{conditions::Conditions, policy::Policies};

/// Namespace and name.
pub(crate) type Key = (String, String);

/// All VPAs, other recommenders' too: their checkpoints are not orphans.
#[derive(Debug, Default)]
pub(crate) struct Vpas {
    pub(crate) ours: BTreeMap<Key, Row>,
    pub(crate) others: std::collections::BTreeSet<Key>,
}

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
        }
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
            if let Some(known) = self.ours.get(&key) {
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
