//! Whether a pod's change is worth acting on (`spec/vpa.md` 3.4).

use chrono::{DateTime, TimeDelta, Utc};
use common::{
    gates::Gate,
    plan::{PodPlan, Recommended},
    pod::{ContainerStatus, Managed, Pod, ResourceList, Resources},
    quirks::Quirk,
};

use crate::{
    formula,
    observed::{Observed, Purpose},
    priority::Priority,
    reason::Skip,
    requirements,
    settings::Settings,
    vpa::{Vpa, Way},
};

/// A pod that is looked at, and what for.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The VPA that controls it.
    pub vpa: &'a Vpa,
    /// What it should have.
    pub plan: &'a PodPlan<'a>,
    /// Which of its containers admission knows.
    pub observed: &'a Observed<'a>,
    /// What is to be done to it.
    pub purpose: Purpose,
}

/// Why a pod is worth acting on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Due {
    /// Some request is outside its bounds.
    OutOfBounds,
    /// It ran out of memory soon after its start.
    QuickOom,
    /// It is old enough for a change that is large enough.
    LargeChange,
}

impl Candidate<'_> {
    /// The priority of the pod.
    #[must_use]
    pub fn priority(&self, settings: &Settings) -> Priority {
        Priority::of(
            self.plan,
            |container| self.counts(container, settings),
            |container| self.purpose == Purpose::Resize && self.observed.counts(container, self.purpose),
        )
    }

    /// Why the pod is worth acting on, or why it is not.
    ///
    /// # Errors
    /// The reason to leave it as it is.
    pub fn due(&self, priority: &Priority, settings: &Settings, now: DateTime<Utc>) -> Result<Due, Skip> {
        if self.vpa.sizing.recommendation.is_none() && !settings.quirks.has(Quirk::ActsWithoutChange) {
            return Err(Skip::NoRecommendation);
        }
        if !settings.quirks.has(Quirk::ActsWithoutChange) && !self.changes(settings) {
            return Err(Skip::NoChange);
        }
        self.due_by_amounts(priority, settings, now)
    }

    /// Whether the VPA's requirements are met.
    #[must_use]
    pub fn meets_requirements(&self, settings: &Settings) -> bool {
        requirements::are_met(self.vpa, self.plan, |container| {
            self.observed.counts_unfiltered(container, self.purpose)
                && !self.is_switched_off(container, settings)
        })
    }

    fn due_by_amounts(
        &self,
        priority: &Priority,
        settings: &Settings,
        now: DateTime<Utc>,
    ) -> Result<Due, Skip> {
        let quick_oom = self.has_quick_oom(settings);
        if quick_oom && priority.resource_diff == 0.0 {
            return Err(Skip::NoChange);
        }
        if priority.outside_recommended_range {
            return Ok(Due::OutOfBounds);
        }
        if quick_oom {
            return Ok(Due::QuickOom);
        }
        if is_young(self.pod, settings, now) {
            return Err(Skip::TooYoung);
        }
        if priority.resource_diff < settings.pod_update_threshold {
            return Err(Skip::SmallChange);
        }
        Ok(Due::LargeChange)
    }

    fn has_quick_oom(&self, settings: &Settings) -> bool {
        let own = self.vpa.evict_after_oom;
        let threshold = own
            .filter(|_| settings.gates.enabled(Gate::PerVPAConfig))
            .unwrap_or(settings.evict_after_oom);
        self.pod
            .managed(&settings.gates)
            .filter(|container| {
                self.observed.counts(container, self.purpose)
                    && !self.vpa.sizing.switches_off(container.name())
            })
            .filter_map(|container| container.status())
            .any(|status| ran_out_of_memory_within(status, threshold))
    }

    /// Whether what is to be done would change anything: of the running containers, and by a resize of the spec too.
    fn changes(&self, settings: &Settings) -> bool {
        self.plan.containers.iter().any(|plan| {
            let from = |has| differs(&plan.requests, &plan.limits, has);
            match self.purpose {
                // A pod whose spec is as it should be is being resized: its replacement would be no better.
                Purpose::Evict => {
                    let by_formula = formula::is_formula_alone(self.plan, plan);
                    self.counts(&plan.container, settings)
                        && !by_formula
                        && from(plan.base)
                        && (self.vpa.way() != Some(Way::Evict) || from(plan.container.spec_resources()))
                }
                Purpose::Resize => from(plan.base) || from(plan.container.spec_resources()),
            }
        })
    }

    fn counts(&self, container: &Managed<'_>, settings: &Settings) -> bool {
        self.observed.counts(container, self.purpose) && !self.is_switched_off(container, settings)
    }

    /// A recommendation may be left over from before the container was switched off.
    fn is_switched_off(&self, container: &Managed<'_>, settings: &Settings) -> bool {
        !settings.quirks.has(Quirk::AppliesToContainersSwitchedOff)
            && self.vpa.sizing.switches_off(container.name())
    }
}

/// Whether a pod has not run for long enough to be disturbed for a change within its bounds.
pub(crate) fn is_young(pod: &Pod, settings: &Settings, now: DateTime<Utc>) -> bool {
    let started = pod.status.start_time;
    started.is_none_or(|started| now.signed_duration_since(started) < settings.pod_lifetime)
}

/// Whether pods that were looked at are due, by all that this depends on.
#[derive(Default)]
pub(crate) struct Looks<'a>(Vec<(&'a Pod, bool, Result<Priority, Skip>)>);

impl<'a> Looks<'a> {
    /// How many pods are compared with, the last ones first: those of one controller are in most cases all alike.
    const REACH: usize = 16;

    pub(crate) fn find(&self, pod: &Pod, is_young: bool) -> Option<Result<Priority, Skip>> {
        let mut looks = self.0.iter().rev().take(Self::REACH);
        let alike = looks.find(|(other, was_young, _)| *was_young == is_young && other.is_made_like(pod));
        alike.map(|(.., found)| *found)
    }

    pub(crate) fn add(&mut self, pod: &'a Pod, is_young: bool, found: Result<Priority, Skip>) {
        self.0.push((pod, is_young, found));
    }
}

/// The purpose that a way has at first.
impl From<Way> for Purpose {
    fn from(way: Way) -> Self {
        match way {
            Way::Evict => Self::Evict,
            Way::ResizeOrEvict | Way::Resize => Self::Resize,
        }
    }
}

/// Whether some target is lower than in a recommendation that was infeasible: then it is worth another try.
#[must_use]
pub fn is_lower<'r>(now: impl IntoIterator<Item = &'r Recommended>, infeasible: &[Recommended]) -> bool {
    now.into_iter().any(|now| {
        let before = infeasible.iter().find(|before| before.container == now.container);
        before.is_some_and(|before| {
            now.target.iter().any(|(resource, target)| {
                let before = before.target.get(resource);
                before.is_some_and(|before| target.cmp_value(before).is_lt())
            })
        })
    })
}

/// Whether a container has something else than it should have.
#[must_use]
pub fn differs(requests: &ResourceList, limits: &ResourceList, has: &Resources) -> bool {
    let side = |planned: &ResourceList, has: Option<&ResourceList>| {
        planned.iter().any(|(resource, amount)| {
            let has = has.and_then(|has| has.get(resource));
            has.is_none_or(|has| !has.same_value(amount))
        })
    };
    side(requests, has.requests.as_ref()) || side(limits, has.limits.as_ref())
}

/// An absent time is the beginning of all time, as in Go.
fn ran_out_of_memory_within(status: &ContainerStatus, threshold: TimeDelta) -> bool {
    status.last_state.terminated.as_ref().is_some_and(|ended| {
        let [started, finished] =
            [ended.started_at, ended.finished_at].map(|time| time.unwrap_or(DateTime::<Utc>::MIN_UTC));
        ended.reason == "OOMKilled" && finished.signed_duration_since(started) < threshold
    })
}
