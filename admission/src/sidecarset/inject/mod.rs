//! Injection (`spec/sidecarset.md` 2.4 to 2.10): what new pods get of the sets they are for. A pure function of the pod, the
//! sets and their revisions; who draws or counts for a share of the pods is the caller's business.

mod build;
mod json;
mod metadata;
mod patch;
mod place;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use common::{
    api::sidecarset::SidecarSet,
    formula::PolicyError,
    gates::Gates,
    pod::{Phase, Pod},
    sidecarset::{
        ChoiceError, Labels, MatchError, MetadataError, Record, RecordError, Revisions, Sets, Share,
        effective,
        record::{self, HASH},
    },
};
use serde_json::{Map, Value};

use crate::review::Operation;

/// What is known when a pod comes in.
#[derive(Clone, Copy, Debug)]
pub struct World<'w> {
    /// The sets.
    pub sets: &'w Sets,
    /// Their revisions.
    pub revisions: &'w Revisions,
    /// The labels of the pod's namespace.
    pub namespace: &'w Labels,
    /// The gates.
    pub gates: &'w Gates,
    /// The time.
    pub now: DateTime<Utc>,
}

/// Whether a new pod stays on an older revision, where the set wants that for a share of them.
pub trait Quota {
    /// Asked at most once for a pod and a set.
    fn stays(&mut self, set: &SidecarSet, share: Share, revision: &str) -> bool;

    /// What the pod is to be known by, if it has to be.
    fn annotation(&self) -> Option<(&'static str, String)> {
        None
    }
}

impl<F: FnMut(&SidecarSet, Share, &str) -> bool> Quota for F {
    fn stays(&mut self, set: &SidecarSet, share: Share, revision: &str) -> bool {
        self(set, share, revision)
    }
}

/// A pod with its sidecars.
#[derive(Clone, Debug, PartialEq)]
pub struct Injected {
    /// The pod as it is with them.
    pub pod: Value,
    /// From the pod as it came to that.
    pub patch: Vec<Operation>,
    /// What people should know.
    pub warnings: Vec<String>,
}

/// Why a pod is denied.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// It is no pod.
    #[error("cannot read the pod: {0}")]
    Pod(#[from] serde_json::Error),
    /// Nobody can say whether a set is for it.
    #[error(transparent)]
    Match(#[from] MatchError),
    /// Nobody can say which revision it gets.
    #[error("SidecarSet {set}: {error}")]
    Choice {
        /// The set.
        set: String,
        /// Why not.
        error: Box<ChoiceError>,
    },
    /// What it tells of earlier injections cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// What a set adds to its annotations does not go together with what is there.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// A formula fails on the resources that the pod itself has.
    #[error("SidecarSet {set}: container {container}: {error}")]
    Formula {
        /// The set.
        set: String,
        /// The sidecar.
        container: String,
        /// Why.
        error: Box<PolicyError>,
    },
}

/// The pod with the sidecars of the sets it is for; nothing if it is for none, or is over.
///
/// # Errors
/// If it has to be denied.
pub fn inject(
    pod: &Value,
    world: &World<'_>,
    quota: &mut impl Quota,
) -> Result<Option<Injected>, InjectError> {
    let slim: Pod = serde::Deserialize::deserialize(pod)?;
    if slim.metadata.deletion_timestamp.is_some()
        || matches!(slim.status.phase, Phase::Succeeded | Phase::Failed)
    {
        return Ok(None);
    }
    let none = Labels::new();
    let labels = slim.metadata.labels.as_ref().unwrap_or(&none);
    let sets = world.sets.matching(labels, world.namespace)?;
    let Some(before) = pod.as_object().filter(|_| !sets.is_empty()) else {
        return Ok(None);
    };
    let known = record::records(slim.metadata.annotations.as_ref(), HASH)?;
    let sets = sets
        .into_iter()
        .map(|set| {
            // A pod that comes in a second time keeps what it got the first time. As long as nobody keeps revisions the
            // newest has no name, and is known by its hash.
            let had = known.get(set.name());
            effective(
                &set.object,
                labels,
                world.revisions,
                |share, revision| match had {
                    Some(had) if !had.controller_revision.is_empty() => had.controller_revision == revision,
                    Some(had) if had.hash == Record::of(&set.object, HASH).hash => false,
                    _ => quota.stays(&set.object, share, revision),
                },
            )
            .map_err(|error| InjectError::Choice {
                set: set.name().to_owned(),
                error: Box::new(error),
            })
        })
        .collect::<Result<Vec<Cow<'_, SidecarSet>>, _>>()?;

    let mut after: Map<String, Value> = before.clone();
    let mut warnings = Vec::new();
    for set in &sets {
        metadata::patch(&mut after, set)?;
    }
    let built = build::sidecars(&sets, &known, &slim, before, world.gates, &mut warnings)?;
    if !built.is_empty() {
        metadata::note(&mut after, &sets, &built, quota.annotation(), world.now)?;
        place::merge(&mut after, &sets, built);
    }
    Ok(Some(Injected {
        patch: patch::between(before, &after),
        pod: Value::Object(after),
        warnings,
    }))
}
