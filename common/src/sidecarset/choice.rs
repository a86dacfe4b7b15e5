//! Which revision of a set a new pod gets: the newest, or an older one that the injection strategy names
//! (`spec/sidecarset.md` 2.11).

use std::{borrow::Cow, collections::BTreeMap};

use super::revision::{RevisionError, Revisions, Wanted, restore};
use crate::{
    api::{
        k8s::IntOrString,
        sidecarset::{RevisionPolicy, SidecarSet, SidecarSetSpec},
    },
    selector::{Selector, SelectorError},
};

/// The part of the pods that stays on the older revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// So many of them. Kruise takes any number for none.
    Count(u32),
    /// So many of a hundred. It may be more than all.
    Percent(u32),
}

impl Share {
    /// Of a partition; none where there is none.
    ///
    /// # Errors
    /// If it is a text but no percentage.
    pub fn of(partition: Option<&IntOrString>) -> Result<Self, ChoiceError> {
        match partition {
            None => Ok(Self::Count(0)),
            Some(IntOrString::Int(count)) => Ok(Self::Count(u32::try_from(*count).unwrap_or(0))),
            Some(IntOrString::String(text)) => {
                let number = text.strip_suffix('%').ok_or(ChoiceError::NoPercentage)?;
                let percent = number.parse();
                percent
                    .map(Self::Percent)
                    .map_err(|_| ChoiceError::Percentage(text.clone()))
            }
        }
    }

    /// Whether a number drawn from 0 to below 1 falls into the share, of so many pods.
    #[must_use]
    pub fn falls(self, drawn: f64, pods: u32) -> bool {
        match self {
            Self::Percent(percent) => drawn <= f64::from(percent) / 100.0,
            Self::Count(count) => drawn < f64::from(count) / f64::from(pods.max(1)),
        }
    }

    /// How many of so many pods that is, rounded up.
    #[must_use]
    pub fn pods(self, of: u32) -> u32 {
        match self {
            Self::Count(count) => count.min(of),
            Self::Percent(percent) => {
                let pods = (u64::from(percent) * u64::from(of)).div_ceil(100);
                u32::try_from(pods).map_or(of, |pods| pods.min(of))
            }
        }
    }
}

/// Why nobody can say which revision a pod gets.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ChoiceError {
    /// There is no such revision.
    #[error(transparent)]
    Revision(#[from] RevisionError),
    /// The selector of the update strategy is none.
    #[error("spec.updateStrategy.selector: {0}")]
    Selector(#[from] SelectorError),
    /// The partition is a text and has no percent sign.
    #[error("spec.updateStrategy.partition: invalid type: string is not a percentage")]
    NoPercentage,
    /// There is no number before the percent sign.
    #[error(
        "spec.updateStrategy.partition: invalid value {0:?}: write a whole number before the percent sign"
    )]
    Percentage(String),
}

/// Which revision a pod gets, once the older one is known to be there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// The set as it is.
    Current,
    /// The older one.
    Older,
    /// The older one for this share of the pods: somebody has to draw, or to count.
    Shared(Share),
}

/// Decides by policy, pause, selector and partition.
///
/// # Errors
/// If the strategy cannot be read.
pub fn decide(spec: &SidecarSetSpec, labels: &BTreeMap<String, String>) -> Result<Decision, ChoiceError> {
    let revision = spec.injection_strategy.revision.as_ref();
    let strategy = &spec.update_strategy;
    if Wanted::by(revision).is_none() {
        return Ok(Decision::Current);
    }
    let is_partial = revision.and_then(|revision| revision.policy.as_ref()) == Some(&RevisionPolicy::Partial);
    if strategy.paused || !is_partial {
        return Ok(Decision::Older);
    }
    if let Some(selector) = &strategy.selector {
        let selector = Selector::try_from(selector)?;
        if !selector.matches(|key| labels.get(key).map(String::as_str)) {
            return Ok(Decision::Older);
        }
    }
    Ok(match Share::of(strategy.partition.as_ref())? {
        Share::Count(0) => Decision::Current,
        share => Decision::Shared(share),
    })
}

/// The set as a new pod gets it. `stays` says of a share whether this pod is in it; it is asked only if that decides.
///
/// # Errors
/// If an older revision is wanted and cannot be had, whether this pod would have got it or not: the pod is denied.
pub fn effective<'s>(
    set: &'s SidecarSet,
    labels: &BTreeMap<String, String>,
    revisions: &Revisions,
    stays: impl FnOnce(Share, &str) -> bool,
) -> Result<Cow<'s, SidecarSet>, ChoiceError> {
    let Some(wanted) = Wanted::by(set.spec.injection_strategy.revision.as_ref()) else {
        return Ok(Cow::Borrowed(set));
    };
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let revision = revisions.find(name, wanted)?;
    let restored = restore(set, revision)?;
    let is_older = match decide(&set.spec, labels)? {
        Decision::Current => false,
        Decision::Older => true,
        Decision::Shared(share) => stays(share, revision.metadata.name.as_deref().unwrap_or_default()),
    };
    Ok(if is_older {
        Cow::Owned(restored)
    } else {
        Cow::Borrowed(set)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sidecarset::revision::new_revision;
    use serde_json::{Value, json};

    fn labels(canary: bool) -> BTreeMap<String, String> {
        BTreeMap::from([("canary".to_owned(), canary.to_string())])
    }

    fn set(image: &str, update: Value, revision: Value) -> SidecarSet {
        let mut spec = json!({
            "containers": [{"name": "c", "image": image}],
            "injectionStrategy": {},
            "customVersion": "0",
        });
        spec["updateStrategy"] = update;
        spec["injectionStrategy"]["revision"] = revision;
        serde_json::from_value(json!({"metadata": {"name": "s"}, "spec": spec})).unwrap()
    }

    /// The image a pod gets where `stable` is the older and `canary` the current one.
    fn image(update: Value, revision: Value, pod: bool, drawn: f64) -> Result<String, String> {
        let mut revisions = Revisions::kept_in("n");
        let mut old = new_revision(&set("stable", json!({}), Value::Null), "n", 1, 0);
        old.metadata.name = Some("s-old".to_owned());
        revisions.apply(old);
        let set = set("canary", update, revision);
        let stays = |share: Share, _: &str| share.falls(drawn, 4);
        let set = effective(&set, &labels(pod), &revisions, stays).map_err(|error| error.to_string())?;
        Ok(set.spec.containers[0].core["image"].as_str().unwrap().to_owned())
    }

    /// `spec/sidecarset.md` 4.8, and 2.11 where it says more.
    #[test]
    fn a_pod_gets_the_revision_that_the_strategies_say() {
        let partial = json!({"revisionName": "s-old", "policy": "Partial"});
        let always = json!({"customVersion": "0", "policy": "Always"});
        let selector = json!({"matchLabels": {"canary": "true"}});
        let by = |partition: Value| json!({"selector": selector, "partition": partition});
        for (what, update, revision, pod, drawn, expected) in [
            ("no revision", json!({}), Value::Null, true, 0.0, "canary"),
            (
                "neither name nor version",
                json!({"paused": true}),
                json!({"policy": "Always"}),
                true,
                0.0,
                "canary",
            ),
            ("Always", json!({}), always.clone(), true, 0.9, "stable"),
            (
                "Always, even where it matches the selector",
                by(json!("0%")),
                always.clone(),
                true,
                0.9,
                "stable",
            ),
            (
                "no policy is Always",
                json!({}),
                json!({"revisionName": "s-old"}),
                true,
                0.9,
                "stable",
            ),
            (
                "Partial, not matching",
                json!({"selector": selector}),
                partial.clone(),
                false,
                0.9,
                "stable",
            ),
            (
                "Partial, matching, no partition",
                json!({"selector": selector}),
                partial.clone(),
                true,
                0.0,
                "canary",
            ),
            (
                "Partial, 100%",
                by(json!("100%")),
                partial.clone(),
                true,
                0.999,
                "stable",
            ),
            (
                "Partial, 150%",
                by(json!("150%")),
                partial.clone(),
                true,
                0.999,
                "stable",
            ),
            (
                "Partial, 0%",
                by(json!("0%")),
                partial.clone(),
                true,
                0.001,
                "canary",
            ),
            (
                "Partial, 30% and a low draw",
                by(json!("30%")),
                partial.clone(),
                true,
                0.3,
                "stable",
            ),
            (
                "Partial, 30% and a high draw",
                by(json!("30%")),
                partial.clone(),
                true,
                0.31,
                "canary",
            ),
            (
                "paused",
                json!({"selector": selector, "partition": "0%", "paused": true}),
                partial.clone(),
                true,
                0.9,
                "stable",
            ),
            (
                "beyond Kruise: 1 of 4",
                by(json!(1)),
                partial.clone(),
                true,
                0.24,
                "stable",
            ),
            (
                "beyond Kruise: not among 1 of 4",
                by(json!(1)),
                partial.clone(),
                true,
                0.25,
                "canary",
            ),
            (
                "a number as it is by default",
                by(json!(0)),
                partial.clone(),
                true,
                0.0,
                "canary",
            ),
        ] {
            assert_eq!(
                image(update, revision, pod, drawn).as_deref(),
                Ok(expected),
                "{what}"
            );
        }
    }

    #[test]
    fn what_cannot_be_decided_is_said() {
        let partial = json!({"revisionName": "s-old", "policy": "Partial"});
        for (what, update, revision, expected) in [
            (
                "no number",
                json!({"partition": "abc%"}),
                partial.clone(),
                "spec.updateStrategy.partition: invalid value \"abc%\": write a whole number before the percent sign",
            ),
            (
                "no percent sign",
                json!({"partition": "30"}),
                partial.clone(),
                "spec.updateStrategy.partition: invalid type: string is not a percentage",
            ),
            (
                "an operator nobody knows",
                json!({"selector": {"matchExpressions": [{"key": "a", "operator": "badOp"}]}}),
                partial.clone(),
                "spec.updateStrategy.selector: unknown operator \"badOp\": use In, NotIn, Exists or DoesNotExist",
            ),
        ] {
            assert_eq!(
                image(update, revision, true, 0.0),
                Err(expected.to_owned()),
                "{what}"
            );
        }
        let missing = json!({"revisionName": "gone", "policy": "Partial"});
        let error = image(json!({}), missing, true, 0.0).unwrap_err();
        assert!(
            error.contains("ControllerRevision n/gone of SidecarSet s is not found"),
            "even for a pod that would get the current one: {error}"
        );
    }

    #[test]
    fn a_share_of_so_many_pods_rounds_up() {
        for (share, of, expected) in [
            (Share::Count(3), 2, 2),
            (Share::Count(3), 5, 3),
            (Share::Percent(0), 5, 0),
            (Share::Percent(u32::MAX), u32::MAX, u32::MAX),
            (Share::Percent(30), 0, 0),
            (Share::Percent(30), 1, 1),
            (Share::Percent(30), 10, 3),
            (Share::Percent(29), 100, 29),
            (Share::Percent(30), 11, 4),
            (Share::Percent(100), 7, 7),
            (Share::Percent(150), 7, 7),
        ] {
            assert_eq!(share.pods(of), expected, "{share:?} of {of}");
        }
    }
}
