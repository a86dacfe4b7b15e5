//! What keeps SidecarSets where we are the injector (`spec/sidecarset.md` 5): their revisions, their status, and the rollout
//! of new images. Pure: what is to be done comes out as values; who does it is the shell's business.

pub(crate) mod keep;
mod order;
pub mod pod;
pub mod revise;
pub mod rollout;
pub mod rows;
pub(crate) mod sets;
pub mod standing;
#[cfg(test)]
mod tests;
pub mod update;

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use common::{
    api::sidecarset::{SidecarSet, SidecarSetStatus},
    sidecarset::Revisions,
};
use serde_json::Value;

use self::{pod::SidecarPod, revise::Registration, rollout::Reach, standing::Standing, update::UpdateError};

/// What is to be done for a set, in this order.
#[derive(Debug)]
pub struct Work {
    /// Its newest revision; the rest waits until it is there.
    pub registration: Registration,
    /// Its status, if that has changed.
    pub status: Option<SidecarSetStatus>,
    /// The pods that get its newest images: uid, and a strategic merge patch.
    pub updates: Vec<(String, Result<Value, UpdateError>)>,
    /// The pods that have to tell whether they can be updated.
    pub conditions: Vec<Upgradable>,
    /// The revisions that go.
    pub prune: Vec<String>,
}

/// What a pod has to tell.
#[derive(Clone, Debug, PartialEq)]
pub struct Upgradable {
    /// The pod.
    pub uid: String,
    /// Whether nothing but images is between it and the newest sidecars of this set.
    pub is_upgradable: bool,
    /// The patch of its status.
    pub patch: Value,
}

/// Finds what is to be done for a set that has these pods. `in_flight` are pods that were updated a moment ago, and of which
/// nothing has been heard since: they count as updated and not ready.
#[must_use]
pub fn work(
    set: &SidecarSet,
    pods: &[&SidecarPod],
    revisions: &Revisions,
    namespace: &str,
    in_flight: &BTreeSet<String>,
    now: DateTime<Utc>,
) -> Work {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let registration = revise::register(set, namespace, revisions);
    let standings: Vec<Standing<'_>> = pods
        .iter()
        .map(|pod| Standing::of(set, pod, in_flight.contains(pod.uid())))
        .collect();
    let status = standing::status(set, &standings, &registration.name, registration.collisions);
    let updates = rollout::next(set, &standings)
        .into_iter()
        .map(|standing| {
            let patch = update::patch(set, standing.pod, &registration.name, now);
            (standing.pod.uid().to_owned(), patch)
        })
        .collect();
    // Only a pod that is to be updated can be found not to be upgradable.
    let reach = Reach::of(set);
    let conditions = standings
        .iter()
        .filter(|standing| !in_flight.contains(standing.pod.uid()))
        .filter_map(|standing| {
            let is_upgradable = standing.is_updated || standing.is_upgradable;
            let is_meant = || reach.as_ref().is_some_and(|reach| reach.includes(standing.pod));
            if !is_upgradable && !is_meant() {
                return None;
            }
            Some(Upgradable {
                uid: standing.pod.uid().to_owned(),
                is_upgradable,
                patch: update::condition(name, is_upgradable, standing.pod, now)?,
            })
        })
        .collect();
    Work {
        status: Some(status).filter(|status| set.status.as_ref() != Some(status)),
        prune: revise::prune(set, revisions, pods),
        registration,
        updates,
        conditions,
    }
}
