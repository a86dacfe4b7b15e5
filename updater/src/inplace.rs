//! What may be done to a pod now: evict it, resize it, end its boost, or wait. The state of a resize under way is read from
//! the pod's conditions (`spec/vpa.md` 3.3, 3.6, 3.7).

use chrono::{DateTime, TimeDelta, Utc};
use common::{
    gates::Gate,
    plan::Resource,
    pod::{Condition, Phase, Pod},
    quirks::{Quirk, Quirks},
};

use crate::{
    eligible::is_lower,
    group::{Group, Groups},
    memory::Memory,
    reason::Skip,
    settings::Settings,
    unboost,
    vpa::{Vpa, Way},
};

const DEFERRED_TIMEOUT: TimeDelta = TimeDelta::minutes(5);
const IN_PROGRESS_TIMEOUT: TimeDelta = TimeDelta::hours(1);
const PENDING: &str = "PodResizePending";
const IN_PROGRESS: &str = "PodResizeInProgress";

/// Where a resize under way stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResizeState {
    /// The node has no room now.
    Deferred,
    /// The node never has room.
    Infeasible,
    /// The kubelet waits for something that we do not know.
    PendingOtherwise,
    /// The kubelet is at it.
    InProgress,
    /// The kubelet failed, and tries again.
    Failing,
    /// The kubelet is at it and says something that we do not know.
    InProgressOtherwise,
}

/// What may be done to a pod in an in-place mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Resize it.
    Approved,
    /// Wait.
    Deferred(Skip),
    /// Its resize is stuck: evict it.
    Evict,
    /// Its resize does not fit the node: remember that, and try again with what is recommended now.
    Infeasible,
    /// As much did not fit the node before.
    InfeasibleCached,
}

impl ResizeState {
    /// Reads a pod's conditions, and since when they are so.
    #[must_use]
    pub fn of(pod: &Pod, quirks: Quirks) -> Option<(Self, Option<DateTime<Utc>>)> {
        let mut resizing = conditions(pod, &[PENDING, IN_PROGRESS]);
        let is_true = |condition: &&Condition| condition.status == "True";
        if quirks.has(Quirk::FirstResizeConditionHidesOthers) {
            // Whichever comes first says whether; then the pending one, True or not, says how.
            resizing.next().filter(is_true)?;
            let condition = conditions(pod, &[PENDING]).next();
            let condition = condition.or_else(|| conditions(pod, &[IN_PROGRESS]).next())?;
            return Some((Self::read(condition), condition.last_transition_time));
        }
        let condition = conditions(pod, &[PENDING]).find(is_true);
        let condition = condition.or_else(|| conditions(pod, &[IN_PROGRESS]).find(is_true))?;
        Some((Self::read(condition), condition.last_transition_time))
    }

    fn read(condition: &Condition) -> Self {
        if condition.type_ == PENDING {
            match condition.reason.as_str() {
                "Deferred" => Self::Deferred,
                "Infeasible" => Self::Infeasible,
                _ => Self::PendingOtherwise,
            }
        } else {
            match (condition.reason.as_str(), condition.message.as_str()) {
                ("", "") => Self::InProgress,
                ("Error", _) => Self::Failing,
                _ => Self::InProgressOtherwise,
            }
        }
    }

    /// How long it may last until the pod is evicted instead.
    fn patience(self) -> Option<TimeDelta> {
        match self {
            Self::Deferred => Some(DEFERRED_TIMEOUT),
            Self::InProgress => Some(IN_PROGRESS_TIMEOUT),
            Self::Infeasible | Self::PendingOtherwise | Self::Failing | Self::InProgressOtherwise => None,
        }
    }

    fn skip(self) -> Skip {
        match self {
            Self::Deferred | Self::PendingOtherwise => Skip::ResizeDeferred,
            Self::Infeasible => Skip::ResizeInfeasible,
            Self::InProgress | Self::InProgressOtherwise => Skip::ResizeInProgress,
            Self::Failing => Skip::ResizeFailing,
        }
    }
}

/// Whether a condition tells of a resize under way.
pub(crate) fn is_about_resize(condition: &Condition) -> bool {
    [PENDING, IN_PROGRESS].contains(&condition.type_.as_str())
}

fn conditions<'p>(pod: &'p Pod, types: &'p [&str]) -> impl Iterator<Item = &'p Condition> {
    let conditions = pod.status.conditions.iter();
    conditions.filter(|condition| types.contains(&condition.type_.as_str()))
}

/// The pods of one VPA and what has been done to them in this loop.
#[derive(Clone, Debug)]
pub struct Restrictions<'a> {
    /// The live pods.
    pub pods: &'a [&'a Pod],
    /// Their groups.
    pub groups: Groups<'a>,
    /// The VPA.
    pub vpa: &'a Vpa,
    /// The flags.
    pub settings: &'a Settings,
}

impl Restrictions<'_> {
    /// Whether a pod may be evicted, by its place among the pods.
    ///
    /// # Errors
    /// Why it may not.
    pub fn can_evict(&self, index: usize, memory: &mut Memory, now: DateTime<Utc>) -> Result<(), Skip> {
        let (pod, group) = self.look(index)?;
        if pod.status.phase == Phase::Pending {
            return if group.unboost_only {
                Err(Skip::TooFewReplicas)
            } else {
                Ok(())
            };
        }
        if group.below_min_replicas {
            return Err(Skip::TooFewReplicas);
        }
        match ResizeState::of(pod, self.settings.quirks) {
            Some((state, said)) => {
                let since = memory.resize_since(pod, state, said, self.settings.quirks, now);
                stuck(state, since, group, now)
            }
            None => {
                memory.no_resize(pod, self.settings.quirks);
                disruptable(group)
            }
        }
    }

    /// What may be done to a pod in place.
    pub fn can_resize(&self, index: usize, memory: &mut Memory, now: DateTime<Utc>) -> Decision {
        let quirks = self.settings.quirks;
        let way = self.vpa.way();
        if way == Some(Way::Resize) && !self.settings.gates.enabled(Gate::InPlace) {
            return Decision::Deferred(Skip::GateOff);
        }
        let (pod, group) = match self.look(index) {
            Ok(found) => found,
            Err(skip) => return Decision::Deferred(skip),
        };
        if pod.status.phase == Phase::Pending {
            return Decision::Deferred(Skip::Pending);
        }
        if group.unboost_only {
            return Decision::Deferred(Skip::TooFewReplicas);
        }
        let Some(recommendation) = &self.vpa.sizing.recommendation else {
            return Decision::Deferred(Skip::NoRecommendation);
        };
        if way == Some(Way::Resize)
            && let Some(infeasible) = memory.infeasible(pod)
            && !is_lower(recommendation, infeasible)
        {
            return Decision::InfeasibleCached;
        }
        let Some((state, said)) = ResizeState::of(pod, quirks) else {
            memory.no_resize(pod, quirks);
            return self.start(pod, group);
        };
        if way == Some(Way::Resize) {
            return match (state, self.start(pod, group)) {
                (ResizeState::Infeasible, Decision::Deferred(skip))
                    if !quirks.has(Quirk::PatchesDeferredPods) =>
                {
                    Decision::Deferred(skip)
                }
                (ResizeState::Infeasible, _) => Decision::Infeasible,
                _ => Decision::Deferred(state.skip()),
            };
        }
        let since = memory.resize_since(pod, state, said, quirks, now);
        match stuck(state, since, group, now) {
            Ok(()) => Decision::Evict,
            Err(skip) => Decision::Deferred(skip),
        }
    }

    /// Whether the boosts of a pod that are over may be ended.
    ///
    /// # Errors
    /// Why they may not.
    pub fn can_unboost(&self, index: usize, now: DateTime<Utc>) -> Result<(), Skip> {
        if !self.settings.gates.enabled(Gate::CPUStartupBoost) {
            return Err(Skip::GateOff);
        }
        let (pod, group) = self.look(index)?;
        if unboost::over(pod, self.vpa, now).next().is_none() {
            return Err(Skip::Boosted);
        }
        if pod.status.phase == Phase::Pending {
            return Err(Skip::Pending);
        }
        if let Some((state, _)) = ResizeState::of(pod, self.settings.quirks) {
            return Err(state.skip());
        }
        disruptable(group)
    }

    /// Notes that a pod was evicted. One that had not started was no loss.
    pub fn evicted(&mut self, index: usize) {
        let pod = self.pods.get(index);
        if pod.is_some_and(|pod| pod.status.phase != Phase::Pending) {
            self.groups.evicted(index);
        }
    }

    /// Notes that a resize was started.
    pub fn resized(&mut self, index: usize) {
        self.groups.resized(index);
    }

    fn look(&self, index: usize) -> Result<(&Pod, &Group<'_>), Skip> {
        let pod = self.pods.get(index).ok_or(Skip::NoController)?;
        Ok((pod, self.groups.of(index)?))
    }

    fn start(&self, pod: &Pod, group: &Group<'_>) -> Decision {
        let skips_budget = self.settings.in_place_skip_disruption_budget || self.vpa.skips_budget;
        if skips_budget && !restarts_something(pod, self.settings) {
            return Decision::Approved;
        }
        if group.below_min_replicas && !self.settings.quirks.has(Quirk::RestartsBelowMinReplicas) {
            return Decision::Deferred(Skip::TooFewReplicas);
        }
        match disruptable(group) {
            Ok(()) => Decision::Approved,
            Err(skip) => Decision::Deferred(skip),
        }
    }
}

fn disruptable(group: &Group<'_>) -> Result<(), Skip> {
    group.is_disruptable().then_some(()).ok_or(Skip::Budget)
}

/// Whether it is time to evict a pod instead of waiting for its resize.
fn stuck(
    state: ResizeState,
    since: DateTime<Utc>,
    group: &Group<'_>,
    now: DateTime<Utc>,
) -> Result<(), Skip> {
    disruptable(group)?;
    match state.patience() {
        Some(patience) if now.signed_duration_since(since) <= patience => Err(state.skip()),
        Some(_) | None => Ok(()),
    }
}

/// Whether a resize may restart some container of a pod.
fn restarts_something(pod: &Pod, settings: &Settings) -> bool {
    pod.managed(&settings.gates).any(|container| {
        Resource::BOTH
            .iter()
            .any(|resource| container.restarts_on_resize_of(resource.name()))
    })
}
