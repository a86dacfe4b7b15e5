//! What a pod's containers had before the first call, kept in an annotation of the pod.
//!
//! With `reinvocationPolicy: IfNeeded` the API server asks again when another webhook changed the pod after us. Most plans
//! can be made again from their own result. Those that cannot (a boost on a boost, a share of a share) write
//! [`ANNOTATION`]: `{"CONTAINER":{"had":{"requests":{…},"limits":{…}},"got":{…}}}`, where `got` is what was set and `had`
//! what stood there before. A resource whose request and limit are still `got` is planned from `had`; one that somebody
//! set since is planned as it is. The text takes up at most [`MAX_BYTES`], and never lifts a pod's annotations above what the API
//! server allows; where it would, [`TOO_LARGE`] stands there instead and a second call leaves the pod alone.

use std::collections::{BTreeMap, BTreeSet};

use common::{
    gates::Gates,
    plan::{ContainerPlan, PlanInput, PodPlan, plan},
    pod::{Pod, ResourceList, Resources, Side},
    quantity::Quantity,
};
use serde::{Deserialize, Serialize};

/// The annotation's name.
pub const ANNOTATION: &str = "outrigger.dev/original-resources";
const TOO_LARGE: &str = "too large";
const MAX_BYTES: usize = 32 * 1024;
/// The API server's limit for the sum over keys and values.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// What is remembered of a pod.
#[derive(Debug, PartialEq)]
pub(super) enum Memory {
    /// Nothing: it comes in for the first time, or as good as.
    None,
    /// That there was too much of it.
    Lost,
    /// What some containers had.
    Kept(Kept),
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Kept {
    /// What the containers had, by name.
    pub(super) before: BTreeMap<String, Resources>,
    changes: BTreeMap<String, Change>,
}

/// What was done to one container.
#[derive(Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
struct Change {
    #[serde(skip_serializing_if = "Amounts::is_empty")]
    had: Amounts,
    got: Amounts,
}

#[derive(Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
struct Amounts {
    #[serde(skip_serializing_if = "ResourceList::is_empty")]
    requests: ResourceList,
    #[serde(skip_serializing_if = "ResourceList::is_empty")]
    limits: ResourceList,
}

impl Memory {
    /// What a pod says of itself. What cannot be read, or is not so any more, is not remembered.
    pub(super) fn of(pod: &Pod, gates: &Gates) -> Self {
        let annotations = pod.metadata.annotations.as_ref();
        let Some(text) = annotations.and_then(|annotations| annotations.get(ANNOTATION)) else {
            return Self::None;
        };
        if text == TOO_LARGE {
            return Self::Lost;
        }
        if text.len() > MAX_BYTES {
            return Self::None;
        }
        let mut changes: BTreeMap<String, Change> = serde_json::from_str(text).unwrap_or_default();
        let mut kept = Kept::default();
        for container in pod.managed(gates) {
            let name = container.name();
            let Some(mut change) = changes.remove(name) else {
                continue;
            };
            change.retain_what_is_so_still(container.spec_resources());
            if !change.got.is_empty() {
                let before = change.undone(container.spec_resources());
                kept.before.insert(name.to_owned(), before);
                kept.changes.insert(name.to_owned(), change);
            }
        }
        if kept.before.is_empty() {
            Self::None
        } else {
            Self::Kept(kept)
        }
    }

    /// Whether a container still is as an earlier call left it.
    pub(super) fn knows(&self, container: &str) -> bool {
        match self {
            Self::None | Self::Lost => false,
            Self::Kept(kept) => kept.before.contains_key(container),
        }
    }

    /// What was set on a container, and what stood there before.
    pub(super) fn set_on(
        &self,
        container: &str,
        side: Side,
    ) -> impl Iterator<Item = (&str, Option<&Quantity>)> {
        let change = match self {
            Self::None | Self::Lost => None,
            Self::Kept(kept) => kept.changes.get(container),
        };
        change.into_iter().flat_map(move |change| {
            let got = change.got.side(side).iter();
            got.map(move |(name, _)| (name.as_str(), change.had.side(side).get(name)))
        })
    }
}

impl Change {
    fn of(plan: &ContainerPlan<'_>) -> Self {
        let had = |base: &Option<ResourceList>, got: &ResourceList| -> ResourceList {
            let base = base.iter().flatten();
            base.filter(|(name, _)| got.contains_key(name))
                .map(|(name, amount)| (name.clone(), amount.clone()))
                .collect()
        };
        Self {
            had: Amounts {
                requests: had(&plan.base.requests, &plan.requests),
                limits: had(&plan.base.limits, &plan.limits),
            },
            got: Amounts {
                requests: plan.requests.clone(),
                limits: plan.limits.clone(),
            },
        }
    }

    /// Forgets every resource whose request or limit somebody has set since.
    fn retain_what_is_so_still(&mut self, now: &Resources) {
        let is_so = |list: &ResourceList, now: &Option<ResourceList>, name: &str| {
            let now = now.as_ref().and_then(|now| now.get(name));
            list.get(name)
                .is_none_or(|got| now.is_some_and(|now| now.same_value(got)))
        };
        let got = &self.got;
        let names: BTreeSet<String> = got.requests.keys().chain(got.limits.keys()).cloned().collect();
        for name in names {
            if !is_so(&self.got.requests, &now.requests, &name)
                || !is_so(&self.got.limits, &now.limits, &name)
            {
                for amounts in [&mut self.had, &mut self.got] {
                    amounts.requests.remove(&name);
                    amounts.limits.remove(&name);
                }
            }
        }
    }

    /// The resources without the change.
    fn undone(&self, now: &Resources) -> Resources {
        let side = |now: &Option<ResourceList>, got: &ResourceList, had: &ResourceList| {
            let mut before = now.clone().unwrap_or_default();
            before.retain(|name, _| !got.contains_key(name));
            before.extend(had.clone());
            // The API server writes no empty maps: there was none.
            Some(before).filter(|before| !before.is_empty())
        };
        Resources {
            requests: side(&now.requests, &self.got.requests, &self.had.requests),
            limits: side(&now.limits, &self.got.limits, &self.had.limits),
        }
    }
}

impl Amounts {
    fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.limits.is_empty()
    }

    fn side(&self, side: Side) -> &ResourceList {
        match side {
            Side::Requests => &self.requests,
            Side::Limits => &self.limits,
        }
    }
}

/// What has to be remembered of a plan, beside annotations of that many bytes; none if nothing has to. A container needs
/// it if a second call that sees the result, or the result and more containers, would say something else of it: boosts are
/// counted from where they started, and what bounds the pod as a whole is shared out anew.
pub(super) fn text(first: &PodPlan<'_>, input: &PlanInput<'_>, annotation_bytes: usize) -> Option<String> {
    let bounds_the_pod = input.limit_ranges.pod.is_some() || input.pod.spec.resources.is_some();
    let results = results(first);
    let second = plan(&PlanInput {
        remembered: Some(&results),
        ..*input
    });
    let both = first.containers.iter().zip(&second.containers);
    // A formula that goes back to what the pod had must find it again.
    let goes_back = both
        .clone()
        .any(|(first, second)| first.formula != second.formula);
    let changes: BTreeMap<&str, Change> = both
        .filter(|(first, _)| !first.requests.is_empty() || !first.limits.is_empty())
        .filter(|(first, second)| {
            bounds_the_pod || goes_back || first.boosted_from.is_some() || !says_the_same(first, second)
        })
        .map(|(first, _)| (first.container.name(), Change::of(first)))
        .collect();
    if changes.is_empty() {
        return None;
    }
    let room = MAX_ANNOTATION_BYTES.saturating_sub(annotation_bytes + ANNOTATION.len());
    let text = serde_json::to_string(&changes).ok();
    let fits = text.filter(|text| text.len() <= MAX_BYTES.min(room));
    Some(fits.unwrap_or_else(|| TOO_LARGE.to_owned()))
}

/// What the containers have once the plan is carried out.
fn results(plan: &PodPlan<'_>) -> BTreeMap<String, Resources> {
    let result = |base: &Option<ResourceList>, planned: &ResourceList| {
        let mut result = base.clone();
        if !planned.is_empty() {
            result.get_or_insert_default().extend(planned.clone());
        }
        result
    };
    let containers = plan.containers.iter();
    containers
        .map(|plan| {
            let mut resources = Resources {
                requests: result(&plan.base.requests, &plan.requests),
                limits: result(&plan.base.limits, &plan.limits),
            };
            for field in &plan.dropped {
                let list = match field.side {
                    Side::Requests => &mut resources.requests,
                    Side::Limits => &mut resources.limits,
                };
                list.iter_mut()
                    .for_each(|list| _ = list.remove(field.resource.name()));
            }
            (plan.container.name().to_owned(), resources)
        })
        .collect()
}

fn says_the_same(first: &ContainerPlan<'_>, second: &ContainerPlan<'_>) -> bool {
    let [ours, theirs] =
        [first, second].map(|plan| plan.reasons.iter().filter(|reason| reason.is_annotated()));
    first.requests == second.requests && first.limits == second.limits && ours.eq(theirs)
}
