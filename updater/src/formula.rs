//! Formulas that stay true: which formulas the sidecars of a running pod have, and which they should have. A sidecar follows
//! its application by the formula that its pod remembers; a formula that has changed reaches it as far as its SidecarSet rolls
//! out, in place and never by eviction. A pod that remembers none is left alone.

use std::collections::{BTreeMap, HashMap, HashSet};

use common::{
    plan::{ContainerPlan, FormulaFate, FormulaOf, Formulas, PodPlan},
    pod::Pod,
    sidecarset::{
        FormulaIndex,
        choice::Share,
        sizing::{self, Rollout},
    },
    time,
};

use crate::{reason::Skip, unboost};

/// What is known of formulas in one loop.
#[derive(Clone, Debug, Default)]
pub struct Formulary {
    index: FormulaIndex,
    /// The pods, by set, that a changed formula has come to.
    released: HashMap<String, HashSet<String>>,
    /// Whether formulas play no part, not even those that pods remember.
    is_off: bool,
}

/// The formulas of one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodFormulas {
    /// Those it was sized by.
    carried: Option<Formulas>,
    /// Those it should be sized by, where that differs.
    wanted: Option<Formulas>,
}

impl Formulary {
    /// Of the sets that are known, and all pods that may have been sized by them: how many stay behind is counted over these.
    pub fn new<'p>(index: FormulaIndex, pods: impl IntoIterator<Item = &'p Pod>) -> Self {
        let mut behind: BTreeMap<String, Behind<'p>> = BTreeMap::new();
        for pod in pods {
            let carried = index.remembered(pod);
            for of in carried.iter().flat_map(|formulas| &formulas.containers) {
                let Some(rollout) = index.rollout(&of.set).filter(|rollout| rollout.moves) else {
                    continue;
                };
                let behind = behind.entry(of.set.clone()).or_default();
                behind.sized.insert(uid(pod));
                let now = index.current(&of.set, &of.sidecar);
                if is_selected(rollout, pod) && now.is_some_and(|now| *now.policy != of.policy) {
                    behind.old.insert(uid(pod), pod);
                }
            }
        }
        let released = behind.into_iter().filter_map(|(set, behind)| {
            let released = behind.released(index.rollout(&set)?.partition);
            Some((set, released))
        });
        Self {
            released: released.collect(),
            index,
            is_off: false,
        }
    }

    /// For whom SidecarSets are none of our business.
    #[must_use]
    pub fn off() -> Self {
        Self {
            is_off: true,
            ..Self::default()
        }
    }

    /// Whether turns may come out otherwise by this one than by another that was before: the sets are others, or a pod is
    /// reached that was not. That one is reached no more is no news, since it has come to its new formula, or is gone.
    #[must_use]
    pub fn is_news_to(&self, before: &Self) -> bool {
        let was_reached =
            |set: &str, uid: &String| before.released.get(set).is_some_and(|pods| pods.contains(uid));
        self.index != before.index
            || self
                .released
                .iter()
                .any(|(set, pods)| pods.iter().any(|uid| !was_reached(set, uid)))
    }

    /// The formulas of a pod. One that is boosted is looked at when that is over.
    #[must_use]
    pub fn of(&self, pod: &Pod) -> PodFormulas {
        if self.is_off || unboost::is_boosted(pod) {
            return PodFormulas::default();
        }
        let carried = self.index.remembered(pod);
        let wanted = carried.as_ref().map(|carried| Formulas {
            containers: carried.containers.iter().map(|of| self.wanted(pod, of)).collect(),
            ..carried.clone()
        });
        PodFormulas {
            wanted: wanted.filter(|wanted| Some(wanted) != carried.as_ref()),
            carried,
        }
    }

    fn wanted(&self, pod: &Pod, of: &FormulaOf) -> FormulaOf {
        let is_released = self
            .released
            .get(&of.set)
            .is_some_and(|pods| pods.contains(uid(pod)));
        match self.index.current(&of.set, &of.sidecar).filter(|_| is_released) {
            Some(now) => FormulaOf {
                policy: now.policy.clone(),
                revision: now.revision.to_owned(),
                ..of.clone()
            },
            None => of.clone(),
        }
    }
}

impl PodFormulas {
    /// Those that a resize goes by.
    #[must_use]
    pub fn for_resize(&self) -> Option<&Formulas> {
        self.wanted.as_ref().or(self.carried.as_ref())
    }

    /// Those that count for an eviction: nobody is evicted for a formula that has changed.
    #[must_use]
    pub fn for_eviction(&self) -> Option<&Formulas> {
        self.carried.as_ref()
    }
}

/// The pods of one set.
#[derive(Default)]
struct Behind<'p> {
    sized: HashSet<&'p str>,
    old: BTreeMap<&'p str, &'p Pod>,
}

impl Behind<'_> {
    /// Those that the new formula has come to: the youngest of those that have the old one, but as many as the partition says
    /// stay. Below all of them at least one does not (`spec/sidecarset.md` 5).
    fn released(self, partition: Share) -> HashSet<String> {
        let sized = u32::try_from(self.sized.len()).unwrap_or(u32::MAX);
        let mut staying = partition.pods(sized);
        if matches!(partition, Share::Percent(..100)) && sized > 1 {
            staying = staying.min(sized - 1);
        }
        let mut old: Vec<_> = self.old.into_iter().collect();
        old.sort_by_key(|(uid, pod)| {
            let created = pod.metadata.creation_timestamp.as_ref().map(time::from_k8s);
            (std::cmp::Reverse(created), *uid)
        });
        let released = old
            .len()
            .saturating_sub(usize::try_from(staying).unwrap_or(usize::MAX));
        let released = old.into_iter().take(released);
        released.map(|(uid, _)| uid.to_owned()).collect()
    }
}

fn is_selected(rollout: &Rollout, pod: &Pod) -> bool {
    let label = |key: &str| pod.metadata.labels.as_ref()?.get(key).map(String::as_str);
    rollout
        .selector
        .as_ref()
        .is_none_or(|selector| selector.matches(label))
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// Whether a container has a formula and no recommendation: only then the formula is its target.
pub(crate) fn is_formula_alone(plan: &PodPlan<'_>, container: &ContainerPlan<'_>) -> bool {
    let name = container.container.name();
    container.is_by_formula()
        && !plan
            .recommendations
            .iter()
            .any(|recommendation| recommendation.amounts.container == name)
}

/// Why a formula is not followed, if one is not.
pub(crate) fn skipped(plan: &PodPlan<'_>) -> Option<Skip> {
    let formulas = plan.containers.iter().filter_map(|plan| plan.formula.as_ref());
    let mut skips = formulas.filter_map(|formula| match formula.fate {
        FormulaFate::LimitWouldVanish(_) => Some(Skip::LimitWouldVanish),
        FormulaFate::Failed(_) => Some(Skip::FormulaFailed),
        FormulaFate::Followed | FormulaFate::OnOwnValues => None,
    });
    skips.next()
}

/// What a pod is to remember after a resize by this plan, if that is news.
pub(crate) fn annotation(pod: &Pod, plan: &PodPlan<'_>) -> Option<(&'static str, String)> {
    if !plan.containers.iter().any(ContainerPlan::is_by_formula) {
        return None;
    }
    Some((sizing::ANNOTATION, sizing::news(pod, plan)?))
}

#[cfg(test)]
mod tests;
