//! Keeping revisions (`spec/sidecarset.md` 2.11): each change of a set becomes one, what was before may be again, and old
//! ones go unless something names them.

use std::collections::BTreeSet;

use common::{
    api::{k8s::ControllerRevision, sidecarset::SidecarSet},
    sidecarset::{
        record::{self, HASH},
        revision::{CUSTOM_VERSION, Data, Revisions, Wanted, label, new_revision, to_prune},
    },
};

use super::pod::SidecarPod;

/// What is to be done so that a set's newest revision is there.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing: it is the newest already.
    Keep,
    /// It is there, and has another custom version by now; none where the set has none.
    Relabel {
        /// The version.
        version: Option<String>,
    },
    /// It was there before others, and is the newest again.
    Renumber {
        /// Its new number.
        number: i64,
    },
    /// It has to be made.
    Create(Box<ControllerRevision>),
}

/// The newest revision of a set, and what has to be done for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    /// Its name.
    pub name: String,
    /// What has to be done.
    pub step: Step,
    /// How many names turned out to be taken by others.
    pub collisions: Option<i32>,
}

/// The newest revision of a set, among those that are kept.
#[must_use]
pub fn register(set: &SidecarSet, namespace: &str, revisions: &Revisions) -> Registration {
    let set_name = set.metadata.name.as_deref().unwrap_or_default();
    let oldest_first = revisions.of_set(set_name);
    let data = Data::of(&set.spec);
    let is_same = |revision: &&&ControllerRevision| Data::in_revision(revision).as_ref() == Some(&data);
    let newest_number = oldest_first.last().map_or(0, |newest| newest.revision);
    let collisions = set.status.as_ref().and_then(|status| status.collision_count);
    let name = |revision: &ControllerRevision| revision.metadata.name.clone().unwrap_or_default();

    if let Some(found) = oldest_first.iter().rev().find(is_same) {
        let version = Some(set.spec.custom_version.clone()).filter(|version| !version.is_empty());
        let step = if found.revision < newest_number {
            Step::Renumber {
                number: newest_number.saturating_add(1),
            }
        } else if label(found, CUSTOM_VERSION) != version.as_deref() {
            Step::Relabel { version }
        } else {
            Step::Keep
        };
        return Registration {
            name: name(found),
            step,
            collisions,
        };
    }
    let mut count = collisions.unwrap_or(0);
    let mut revision = new_revision(set, namespace, newest_number.saturating_add(1), count);
    // A name that is taken is taken by other content, or it would have been found.
    while revisions.get(&name(&revision)).is_some() && count < i32::MAX {
        count += 1;
        revision = new_revision(set, namespace, newest_number.saturating_add(1), count);
    }
    Registration {
        name: name(&revision),
        step: Step::Create(Box::new(revision)),
        collisions: collisions.or_else(|| (count > 0).then_some(0)).map(|_| count),
    }
}

/// The revisions that go.
#[must_use]
pub fn prune(set: &SidecarSet, revisions: &Revisions, pods: &[&SidecarPod]) -> Vec<String> {
    let set_name = set.metadata.name.as_deref().unwrap_or_default();
    let mut in_use: BTreeSet<String> = pods
        .iter()
        .filter_map(|pod| record::records(pod.annotations(), HASH).ok()?.remove(set_name))
        .map(|record| record.controller_revision)
        .collect();
    if let Some(wanted) = Wanted::by(set.spec.injection_strategy.revision.as_ref())
        && let Ok(revision) = revisions.find(set_name, wanted)
    {
        in_use.extend(revision.metadata.name.clone());
    }
    let oldest_first = revisions.of_set(set_name);
    let gone = to_prune(&oldest_first, set.spec.revision_history_limit, |name| {
        in_use.contains(name)
    });
    gone.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(image: &str, version: &str) -> SidecarSet {
        serde_json::from_value(json!({
            "metadata": {"name": "s"},
            "spec": {"containers": [{"name": "c", "image": image}], "customVersion": version},
        }))
        .unwrap()
    }

    /// Does what is to be done, as the API server would.
    fn done(revisions: &mut Revisions, set: &SidecarSet) -> Registration {
        let registration = register(set, "outrigger", revisions);
        match &registration.step {
            Step::Keep => {}
            Step::Create(revision) => revisions.apply(*revision.clone()),
            Step::Renumber { number } => {
                let mut revision = revisions.get(&registration.name).unwrap().clone();
                revision.revision = *number;
                revisions.apply(revision);
            }
            Step::Relabel { version } => {
                let mut revision = revisions.get(&registration.name).unwrap().clone();
                let labels = revision.metadata.labels.as_mut().unwrap();
                labels.remove(CUSTOM_VERSION);
                labels.extend(
                    version
                        .clone()
                        .map(|version| (CUSTOM_VERSION.to_owned(), version)),
                );
                revisions.apply(revision);
            }
        }
        registration
    }

    fn numbers(revisions: &Revisions) -> Vec<i64> {
        revisions
            .of_set("s")
            .iter()
            .map(|revision| revision.revision)
            .collect()
    }

    #[test]
    fn a_change_makes_a_revision_and_going_back_makes_the_old_one_the_newest() {
        let mut revisions = Revisions::kept_in("outrigger");
        let first = done(&mut revisions, &set("1", ""));
        assert!(matches!(first.step, Step::Create(_)));
        assert_eq!(done(&mut revisions, &set("1", "")).step, Step::Keep);
        let second = done(&mut revisions, &set("2", ""));
        assert_ne!(first.name, second.name);
        assert_eq!(numbers(&revisions), [1, 2]);
        let again = done(&mut revisions, &set("1", ""));
        assert_eq!(again.name, first.name);
        assert_eq!(again.step, Step::Renumber { number: 3 });
        assert_eq!(numbers(&revisions), [2, 3]);
        assert_eq!(done(&mut revisions, &set("1", "")).step, Step::Keep);
    }

    #[test]
    fn another_custom_version_of_the_same_content_is_a_label() {
        let mut revisions = Revisions::kept_in("outrigger");
        done(&mut revisions, &set("1", "a"));
        let version = |text: &str| Some(text.to_owned());
        let relabelled = done(&mut revisions, &set("1", "b"));
        assert_eq!(
            relabelled.step,
            Step::Relabel {
                version: version("b")
            }
        );
        assert!(revisions.find("s", Wanted::CustomVersion("b")).is_ok());
        assert!(revisions.find("s", Wanted::CustomVersion("a")).is_err());
        assert_eq!(
            done(&mut revisions, &set("1", "")).step,
            Step::Relabel { version: None }
        );
        assert_eq!(done(&mut revisions, &set("1", "")).step, Step::Keep);
    }

    #[test]
    fn a_name_that_is_taken_is_passed_over() {
        let mut revisions = Revisions::kept_in("outrigger");
        let taken = new_revision(&set("1", ""), "outrigger", 1, 0);
        let mut other = new_revision(&set("2", ""), "outrigger", 1, 0);
        other.metadata.name = taken.metadata.name.clone();
        revisions.apply(other);
        let registration = register(&set("1", ""), "outrigger", &revisions);
        assert_eq!(
            Some(&registration.name),
            new_revision(&set("1", ""), "", 1, 1).metadata.name.as_ref()
        );
        assert_eq!(registration.collisions, Some(1));
    }

    #[test]
    fn revisions_that_pods_or_the_set_name_stay() {
        let mut revisions = Revisions::kept_in("outrigger");
        let names: Vec<String> = (0..15)
            .map(|number| done(&mut revisions, &set(&number.to_string(), &number.to_string())).name)
            .collect();
        let mut newest = set("14", "14");
        assert_eq!(prune(&newest, &revisions, &[]), names[..5]);
        newest.spec.injection_strategy =
            serde_json::from_value(json!({"revision": {"customVersion": "1"}})).unwrap();
        let record =
            json!({"s": {"controllerRevision": names[0]}, "other": {"controllerRevision": names[2]}});
        let pod: SidecarPod =
            serde_json::from_value(json!({"metadata": {"annotations": {HASH: record.to_string()}}})).unwrap();
        assert_eq!(prune(&newest, &revisions, &[&pod]), names[2..7]);
    }
}
