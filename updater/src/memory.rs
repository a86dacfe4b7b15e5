//! What is remembered from loop to loop: since when resizes are under way, and which did not fit their node. A value, keyed by
//! the pod's UID and forgotten with it.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use common::{
    plan::Recommended,
    pod::Pod,
    quirks::{Quirk, Quirks},
};

use crate::inplace::ResizeState;

/// What is remembered of pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    resizes: HashMap<String, Seen>,
    infeasible: HashMap<String, Vec<Recommended>>,
}

/// A resize that was seen under way.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    state: ResizeState,
    since: DateTime<Utc>,
}

impl Memory {
    /// Since when a resize is in its state: by the kubelet's word, and from the first look where it says nothing.
    pub(crate) fn resize_since(
        &mut self,
        pod: &Pod,
        state: ResizeState,
        said: Option<DateTime<Utc>>,
        quirks: Quirks,
        now: DateTime<Utc>,
    ) -> DateTime<Utc> {
        if quirks.has(Quirk::ResizeClockByName) {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let first = Seen { state, since: now };
            return self
                .resizes
                .entry(format!("{namespace}/{name}"))
                .or_insert(first)
                .since;
        }
        let Some(uid) = &pod.metadata.uid else {
            return now;
        };
        let since = said.unwrap_or(now).min(now);
        match self.resizes.get_mut(uid) {
            Some(seen) if seen.state == state => seen.since = seen.since.min(since),
            Some(seen) => *seen = Seen { state, since },
            None => _ = self.resizes.insert(uid.clone(), Seen { state, since }),
        }
        self.resizes.get(uid).map_or(now, |seen| seen.since)
    }

    /// A pod without a resize under way starts anew with the next one.
    pub(crate) fn no_resize(&mut self, pod: &Pod, quirks: Quirks) {
        if let Some(uid) = &pod.metadata.uid
            && !quirks.has(Quirk::ResizeClockByName)
        {
            self.resizes.remove(uid);
        }
    }

    /// The recommendation that did not fit a pod's node.
    #[must_use]
    pub fn infeasible(&self, pod: &Pod) -> Option<&[Recommended]> {
        self.infeasible.get(pod.metadata.uid.as_ref()?).map(Vec::as_slice)
    }

    /// Remembers a recommendation that did not fit.
    pub fn remember_infeasible(&mut self, pod: &Pod, recommendation: &[Recommended]) {
        if let Some(uid) = &pod.metadata.uid {
            self.infeasible.insert(uid.clone(), recommendation.to_vec());
        }
    }

    /// The UIDs of pods that something did not fit, in no order.
    pub fn infeasible_uids(&self) -> impl Iterator<Item = &str> {
        self.infeasible.keys().map(String::as_str)
    }

    /// Forgets a pod that is gone.
    pub fn forget(&mut self, uid: &str) {
        self.infeasible.remove(uid);
        self.resizes.remove(uid);
    }

    /// Forgets all pods but these.
    pub fn keep(&mut self, live: &HashSet<&str>, quirks: Quirks) {
        self.infeasible.retain(|uid, _| live.contains(uid.as_str()));
        if !quirks.has(Quirk::ResizeClockByName) {
            self.resizes.retain(|uid, _| live.contains(uid.as_str()));
        }
    }
}
