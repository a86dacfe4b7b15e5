//! One VPA's turn in a loop: which of its pods are acted on, one after the other, and why the others are not
//! (`spec/vpa.md` 3.2). Commands go out as values and what came of them comes back in, because it counts for the next.

use std::collections::VecDeque;

use chrono::{DateTime, Utc};
use common::{
    gates::Gate,
    plan::{Formulas, LimitRanges, PodPlan, Recommended},
    pod::{Phase, Pod},
    quirks::{Quirk, Quirks},
};

use crate::{
    eligible::{Candidate, Looks, is_lower, is_young},
    formula::{self, PodFormulas},
    group::{Groups, Replicas},
    hopeless,
    inplace::{Decision, Restrictions},
    memory::Memory,
    observed::{Observed, Purpose},
    priority::Priority,
    reason::Skip,
    resize::{Resize, resize},
    settings::Settings,
    unboost,
    vpa::{Vpa, Way},
};

/// What is to be done next.
#[derive(Clone, Debug, PartialEq)]
pub struct Command<'a> {
    /// To which pod.
    pub pod: &'a Pod,
    /// What.
    pub act: Act,
}

/// What is done to a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Its boost is ended in place.
    Unboost(Resize),
    /// It is resized in place.
    Resize(Resize),
    /// It is evicted.
    Evict,
}

/// What came of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// The API server refused it, for good or for now.
    Refused,
    /// The API server refused a resize because the node is too small.
    NodeCapacity,
    /// It could not be done now, for this reason: nothing is done in its place, and it is tried again.
    NotNow(Skip),
    /// Nobody knows whether it was done. It counts as if it was, until the pod itself shows.
    Unanswered,
}

/// What became of a pod in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Left as it is.
    Skipped(Skip),
    /// Its boost was ended.
    Unboosted,
    /// Resized.
    Resized,
    /// Evicted.
    Evicted,
}

/// Whether evictions are safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evictions {
    /// They are.
    Allowed,
    /// One is to be tried.
    Probe,
    /// They are not, for this reason; whatever needs none goes on.
    Stopped(Skip),
}

impl Evictions {
    /// What a loop may do, given whether admission's lease is fresh: without it nothing is evicted. None: the loop is
    /// skipped, resizes and all (`spec/vpa.md` 10, Q26).
    #[must_use]
    pub fn with_lease(is_fresh: bool, quirks: Quirks) -> Option<Self> {
        if is_fresh {
            Some(Self::Allowed)
        } else if quirks.has(Quirk::LeaseBlocksResizes) {
            None
        } else {
            Some(Self::Stopped(Skip::AdmissionStale))
        }
    }
}

/// The turn of one VPA.
#[derive(Debug)]
pub struct Turn<'a> {
    restrictions: Restrictions<'a>,
    limit_ranges: &'a LimitRanges,
    /// Of the pods, in their order; none where formulas play no part.
    formulas: &'a [PodFormulas],
    evictions: Evictions,
    unboosts: VecDeque<usize>,
    /// The pods that may be updated; none once that was looked at.
    updatable: Option<Vec<usize>>,
    /// How many of them were due.
    lined_up: usize,
    resizes: VecDeque<usize>,
    evict: VecDeque<Eviction>,
    /// Those that a disruption budget has refused.
    refused: Vec<usize>,
    /// What was asked for and is not answered yet.
    pending: Option<(usize, Kind)>,
    fates: Vec<Fate>,
}

#[derive(Clone, Copy, Debug)]
struct Eviction {
    pod: usize,
    /// Whether it takes the place of a resize that will not do.
    is_fallback: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Unboost,
    Resize {
        /// Whether the kubelet says of what the pod asks for now that it can never be.
        after_infeasible: bool,
    },
    Evict,
}

impl<'a> Turn<'a> {
    /// Begins a turn with the live pods that a VPA controls.
    #[must_use]
    pub fn begin(
        pods: &'a [&'a Pod],
        vpa: &'a Vpa,
        replicas: &impl Replicas,
        limit_ranges: &'a LimitRanges,
        settings: &'a Settings,
        evictions: Evictions,
        now: DateTime<Utc>,
    ) -> Self {
        let mut turn = Self {
            restrictions: Restrictions {
                pods,
                groups: Groups::count(pods, vpa, replicas, settings),
                vpa,
                settings,
            },
            limit_ranges,
            formulas: &[],
            evictions,
            unboosts: VecDeque::new(),
            updatable: None,
            lined_up: 0,
            resizes: VecDeque::new(),
            evict: VecDeque::new(),
            refused: Vec::new(),
            pending: None,
            fates: vec![Fate::Skipped(Skip::Mode); pods.len()],
        };
        let mut updatable = Vec::with_capacity(pods.len());
        let unboosts = vpa.unboosts(&settings.gates);
        for (index, pod) in pods.iter().enumerate() {
            if !unboosts || !unboost::is_boosted(pod) {
                updatable.push(index);
                continue;
            }
            match turn.restrictions.can_unboost(index, now) {
                Ok(()) => turn.unboosts.push_back(index),
                Err(skip) => turn.skip(index, skip),
            }
        }
        turn.updatable = Some(updatable);
        turn
    }

    /// The same turn, with the formulas of the pods' sidecars, in the order of the pods.
    #[must_use]
    pub fn with_formulas(mut self, formulas: &'a [PodFormulas]) -> Self {
        self.formulas = formulas;
        self
    }

    /// What is to be done next. The answer to it has to be given with [`Self::done`] before the next is asked for.
    pub fn next(&mut self, memory: &mut Memory, now: DateTime<Utc>) -> Option<Command<'a>> {
        while let Some(index) = self.unboosts.pop_front() {
            if let Some(command) = self.unboost(index, now) {
                return Some(command);
            }
        }
        if let Some(updatable) = self.updatable.take() {
            self.line_up(&updatable, memory, now);
        }
        while let Some(index) = self.resizes.pop_front() {
            if let Some(command) = self.resize(index, memory, now) {
                return Some(command);
            }
        }
        while let Some(eviction) = self.evict.pop_front() {
            if let Some(command) = self.evict(eviction, memory, now) {
                return Some(command);
            }
        }
        None
    }

    /// Takes in what came of the last command.
    pub fn done(&mut self, outcome: Outcome, memory: &mut Memory) {
        let Some((index, kind)) = self.pending.take() else {
            return;
        };
        match (kind, outcome) {
            (_, Outcome::NotNow(skip)) => {
                if skip == Skip::DisruptionBudget {
                    self.refused.push(index);
                }
                self.skip(index, skip);
            }
            (Kind::Unboost, Outcome::Done) => self.resized(index, Fate::Unboosted),
            (Kind::Resize { .. }, Outcome::Done) => self.resized(index, Fate::Resized),
            (Kind::Evict, Outcome::Done) => self.evicted(index, Fate::Evicted),
            (Kind::Evict, Outcome::Unanswered) => self.evicted(index, Fate::Skipped(Skip::ApiUnavailable)),
            (Kind::Unboost | Kind::Resize { .. }, Outcome::Unanswered) => {
                self.resized(index, Fate::Skipped(Skip::ApiUnavailable));
            }
            (Kind::Evict, _) => self.skip(index, Skip::EvictionRefused),
            (Kind::Unboost, _) => self.skip(index, Skip::ResizeRefused),
            (Kind::Resize { .. }, _) => self.instead_of_resize(index, Skip::ResizeRefused),
        }
        let was_tried = match (kind, outcome) {
            (Kind::Resize { .. }, Outcome::NodeCapacity) => self.restrictions.vpa.way() == Some(Way::Resize),
            // What never reached the pod is not remembered: it would not be tried again.
            (Kind::Resize { after_infeasible }, Outcome::Done) => after_infeasible,
            _ => false,
        };
        if was_tried {
            self.remember_infeasible(index, memory);
        }
    }

    /// Ends the turn here: whoever is in line is left as it is, for this reason.
    pub fn give_up(&mut self, skip: Skip) {
        let pending = self.pending.take().map(|(index, _)| index);
        let updatable = self.updatable.take().unwrap_or_default();
        let evictions = std::mem::take(&mut self.evict).into_iter();
        let waiting = std::mem::take(&mut self.unboosts)
            .into_iter()
            .chain(std::mem::take(&mut self.resizes))
            .chain(evictions.map(|eviction| eviction.pod));
        for index in pending.into_iter().chain(updatable).chain(waiting) {
            self.skip(index, skip);
        }
    }

    /// How many pods were due, by resize in the modes that have it and by eviction in the others.
    #[must_use]
    pub fn lined_up(&self) -> usize {
        self.lined_up
    }

    /// Until when a turn could only give the same again, as long as nothing changes that the updater is told of.
    #[must_use]
    pub fn quiet_until(&self) -> DateTime<Utc> {
        let settings = self.restrictions.settings;
        let looks = self
            .restrictions
            .pods
            .iter()
            .zip(&self.fates)
            .map(|(pod, fate)| match fate {
                Fate::Skipped(skip) if skip.lasts() => DateTime::<Utc>::MAX_UTC,
                Fate::Skipped(Skip::TooYoung) => match pod.status.start_time {
                    Some(started) => started
                        .checked_add_signed(settings.pod_lifetime)
                        .unwrap_or_default(),
                    None => DateTime::<Utc>::MAX_UTC,
                },
                Fate::Skipped(_) | Fate::Unboosted | Fate::Resized | Fate::Evicted => {
                    DateTime::<Utc>::MIN_UTC
                }
            });
        looks.min().unwrap_or(DateTime::<Utc>::MAX_UTC)
    }

    /// What became of the pods, in their order.
    #[must_use]
    pub fn fates(&self) -> &[Fate] {
        &self.fates
    }

    /// The groups, as they are now.
    #[must_use]
    pub fn groups(&self) -> &Groups<'a> {
        &self.restrictions.groups
    }

    fn unboost(&mut self, index: usize, now: DateTime<Utc>) -> Option<Command<'a>> {
        if let Err(skip) = self.restrictions.can_unboost(index, now) {
            self.skip(index, skip);
            return None;
        }
        let pod = self.pod(index)?;
        let plan = self.plan(pod, None);
        match resize(pod, self.restrictions.vpa, &plan, self.restrictions.settings, now) {
            Ok(resize) => Some(self.ask(index, pod, Kind::Unboost, Act::Unboost(resize))),
            Err(skip) => {
                self.skip(index, skip);
                None
            }
        }
    }

    /// Finds the pods that are due and puts them in order.
    fn line_up(&mut self, updatable: &[usize], memory: &mut Memory, now: DateTime<Utc>) {
        let Some(way) = self.restrictions.vpa.way() else {
            return;
        };
        if way == Way::Resize && !self.restrictions.settings.gates.enabled(Gate::InPlace) {
            for index in updatable {
                self.skip(*index, Skip::GateOff);
            }
            return;
        }
        let mut due: Vec<(usize, Priority)> = Vec::new();
        let mut looks = Looks::default();
        for index in updatable.iter().copied() {
            let look = self
                .is_candidate(index, way, memory, now)
                .and_then(|()| self.due_alike(index, way, memory, &mut looks, now));
            match look {
                Ok(priority) => due.push((index, priority)),
                Err(skip) => self.skip(index, skip),
            }
        }
        self.lined_up = due.len();
        due.sort_by(|(_, one), (_, other)| one.urgency(other));
        let ordered = due.into_iter().map(|(index, _)| index);
        if way.resizes() {
            self.resizes = ordered.collect();
        } else {
            let evictions = ordered.map(|pod| Eviction {
                pod,
                is_fallback: false,
            });
            self.evict = evictions.collect();
        }
    }

    /// Whether anything may be done to a pod now.
    fn is_candidate(
        &self,
        index: usize,
        way: Way,
        memory: &mut Memory,
        now: DateTime<Utc>,
    ) -> Result<(), Skip> {
        if way == Way::Evict {
            return self.restrictions.can_evict(index, memory, now);
        }
        match (self.restrictions.can_resize(index, memory, now), way) {
            (Decision::Approved, _)
            | (Decision::Infeasible, Way::Resize)
            | (Decision::Evict, Way::ResizeOrEvict) => Ok(()),
            (Decision::Deferred(_), Way::Resize) if self.quirks().has(Quirk::PatchesDeferredPods) => Ok(()),
            (Decision::Deferred(skip), _) => Err(skip),
            (Decision::Infeasible, _) => Err(Skip::ResizeInfeasible),
            (Decision::Evict, _) => Err(Skip::ResizeInProgress),
            (Decision::InfeasibleCached, _) => Err(Skip::InfeasibleBefore),
        }
    }

    /// Whether a pod is due, and how urgently; what was found for one of the same making holds for it too.
    fn due_alike(
        &self,
        index: usize,
        way: Way,
        memory: &Memory,
        looks: &mut Looks<'a>,
        now: DateTime<Utc>,
    ) -> Result<Priority, Skip> {
        let pod = self.pod(index).ok_or(Skip::NoController)?;
        if self.formulas(index, way.into()).is_some() || memory.infeasible(pod).is_some() {
            return self.due(index, way, memory, now);
        }
        let is_young = is_young(pod, self.restrictions.settings, now);
        if let Some(found) = looks.find(pod, is_young) {
            return found;
        }
        let found = self.due(index, way, memory, now);
        looks.add(pod, is_young, found);
        found
    }

    /// Whether a pod is due, and how urgently.
    fn due(&self, index: usize, way: Way, memory: &Memory, now: DateTime<Utc>) -> Result<Priority, Skip> {
        let pod = self.pod(index).ok_or(Skip::NoController)?;
        let purpose = way.into();
        let plan = self.plan(pod, self.formulas(index, purpose));
        if way == Way::Resize
            && let Some(infeasible) = memory.infeasible(pod)
        {
            let capped = plan.recommendations.iter().map(|one| &one.amounts);
            if !is_lower(capped, infeasible) {
                return Err(Skip::ResizeInfeasible);
            }
        }
        let unchanged = |skip| match skip {
            Skip::NoChange | Skip::SmallChange => formula::skipped(&plan).unwrap_or(skip),
            skip => skip,
        };
        self.worth_it(pod, &plan, purpose, now).map_err(unchanged)
    }

    fn worth_it(
        &self,
        pod: &Pod,
        plan: &PodPlan<'_>,
        purpose: Purpose,
        now: DateTime<Utc>,
    ) -> Result<Priority, Skip> {
        let settings = self.restrictions.settings;
        let observed = Observed::of(pod, settings.quirks);
        let candidate = Candidate {
            pod,
            vpa: self.restrictions.vpa,
            plan,
            observed: &observed,
            purpose,
        };
        let priority = candidate.priority(settings);
        candidate.due(&priority, settings, now)?;
        if !candidate.meets_requirements(settings) {
            return Err(Skip::Requirements);
        }
        Ok(priority)
    }

    /// Looks again at a pod in line: those before it count.
    fn resize(&mut self, index: usize, memory: &mut Memory, now: DateTime<Utc>) -> Option<Command<'a>> {
        let pod = self.pod(index)?;
        let Restrictions { vpa, settings, .. } = self.restrictions;
        let way = vpa.way();
        let decision = self.restrictions.can_resize(index, memory, now);
        match decision {
            Decision::Approved | Decision::Infeasible => {}
            Decision::Deferred(_)
                if way == Some(Way::Resize)
                    && settings.quirks.has(Quirk::PatchesDeferredPods)
                    && self.restrictions.groups.of(index).is_ok() => {}
            Decision::Deferred(skip) => {
                self.skip(index, skip);
                return None;
            }
            Decision::InfeasibleCached => {
                self.skip(index, Skip::InfeasibleBefore);
                return None;
            }
            Decision::Evict => {
                self.fall_back(index);
                return None;
            }
        }
        let after_infeasible = decision == Decision::Infeasible;
        let mut plan = self.plan(pod, self.formulas(index, Purpose::Resize));
        let mut hopeless = hopeless::reason(pod, &plan, settings);
        let mut unchanged = formula::skipped(&plan).unwrap_or(Skip::NoChange);
        if let (Some(skip), Some(_)) = (hopeless, plan.formulas) {
            // What a sidecar's formula asks for does not keep the application from what it should have.
            let without = self.plan(pod, None);
            if hopeless::reason(pod, &without, settings).is_none() {
                (plan, hopeless, unchanged) = (without, None, skip);
            }
        }
        let patches = match hopeless {
            Some(skip) => Err(skip),
            None => resize(pod, vpa, &plan, settings, now),
        };
        match patches {
            Ok(resize) => Some(self.ask(index, pod, Kind::Resize { after_infeasible }, Act::Resize(resize))),
            // The kubelet has this very resize already, and says what it says to it.
            Err(Skip::NoChange) if after_infeasible => {
                self.remember_infeasible(index, memory);
                if settings.quirks.has(Quirk::ActsWithoutChange) {
                    self.instead_of_resize(index, Skip::NoChange);
                } else {
                    self.skip(index, Skip::ResizeInfeasible);
                }
                None
            }
            Err(Skip::NoChange) if !settings.quirks.has(Quirk::ActsWithoutChange) => {
                self.skip(index, unchanged);
                None
            }
            Err(skip) => {
                self.instead_of_resize(index, skip);
                None
            }
        }
    }

    fn evict(&mut self, eviction: Eviction, memory: &mut Memory, now: DateTime<Utc>) -> Option<Command<'a>> {
        let Eviction { pod: index, .. } = eviction;
        let pod = self.pod(index)?;
        match self.may_evict(eviction, pod, memory, now) {
            Ok(()) => Some(self.ask(index, pod, Kind::Evict, Act::Evict)),
            Err(skip) => {
                self.skip(index, skip);
                None
            }
        }
    }

    fn may_evict(
        &self,
        eviction: Eviction,
        pod: &Pod,
        memory: &mut Memory,
        now: DateTime<Utc>,
    ) -> Result<(), Skip> {
        if let Evictions::Stopped(skip) = self.evictions {
            return Err(skip);
        }
        if self.is_refused_like(pod) {
            return Err(Skip::DisruptionBudget);
        }
        let settings = self.restrictions.settings;
        let observed = Observed::of(pod, settings.quirks);
        let formulas = self.formulas(eviction.pod, Purpose::Evict);
        if eviction.is_fallback && (formulas.is_some() || observed.purposes_differ(pod, &settings.gates)) {
            let plan = self.plan(pod, formulas);
            let because = match formulas {
                Some(_) => Skip::FormulaAlone,
                None => Skip::SidecarNotObserved,
            };
            self.worth_it(pod, &plan, Purpose::Evict, now)
                .map_err(|_| because)?;
        }
        self.restrictions.can_evict(eviction.pod, memory, now)
    }

    /// Whether a disruption budget has just refused a pod that is the same to it: budgets select by labels, and make a
    /// difference only between pods that are ready and pods that are not. Asking for each of hundreds would change nothing.
    fn is_refused_like(&self, pod: &Pod) -> bool {
        let refused = self.refused.iter().filter_map(|index| self.pod(*index));
        let mut alike = refused.filter(|refused| refused.metadata.labels == pod.metadata.labels);
        alike.any(|refused| is_healthy(refused) == is_healthy(pod))
    }

    /// A resize that will not do is followed by an eviction, in the mode that has it.
    fn instead_of_resize(&mut self, index: usize, skip: Skip) {
        self.skip(index, skip);
        if self.restrictions.vpa.way() == Some(Way::ResizeOrEvict) {
            self.fall_back(index);
        }
    }

    fn fall_back(&mut self, pod: usize) {
        self.evict.push_back(Eviction {
            pod,
            is_fallback: true,
        });
    }

    fn remember_infeasible(&self, index: usize, memory: &mut Memory) {
        let recommendation: Option<&[Recommended]> = self.restrictions.vpa.sizing.recommendation.as_deref();
        if let (Some(pod), Some(recommendation)) = (self.pod(index), recommendation) {
            memory.remember_infeasible(pod, recommendation);
        }
    }

    /// The formulas of a pod, for a look at it that is for this.
    fn formulas(&self, index: usize, purpose: Purpose) -> Option<&'a Formulas> {
        let formulas = self.formulas.get(index)?;
        match purpose {
            Purpose::Evict => formulas.for_eviction(),
            Purpose::Resize => formulas.for_resize(),
        }
    }

    fn plan<'p>(&self, pod: &'p Pod, formulas: Option<&'p Formulas>) -> PodPlan<'p>
    where
        'a: 'p,
    {
        let Restrictions { vpa, settings, .. } = self.restrictions;
        vpa.plan(pod, formulas, self.limit_ranges, settings)
    }

    fn ask(&mut self, index: usize, pod: &'a Pod, kind: Kind, act: Act) -> Command<'a> {
        self.pending = Some((index, kind));
        Command { pod, act }
    }

    fn resized(&mut self, index: usize, fate: Fate) {
        self.restrictions.resized(index);
        self.set_fate(index, fate);
    }

    fn evicted(&mut self, index: usize, fate: Fate) {
        if self.evictions == Evictions::Probe {
            self.evictions = Evictions::Stopped(Skip::ProbePending);
        }
        self.restrictions.evicted(index);
        self.set_fate(index, fate);
    }

    fn skip(&mut self, index: usize, skip: Skip) {
        self.set_fate(index, Fate::Skipped(skip));
    }

    fn set_fate(&mut self, index: usize, fate: Fate) {
        if let Some(slot) = self.fates.get_mut(index) {
            *slot = fate;
        }
    }

    fn pod(&self, index: usize) -> Option<&'a Pod> {
        self.restrictions.pods.get(index).copied()
    }

    fn quirks(&self) -> Quirks {
        self.restrictions.settings.quirks
    }
}

/// Whether a disruption budget counts a pod.
fn is_healthy(pod: &Pod) -> bool {
    let mut conditions = pod.status.conditions.iter();
    let is_unready = conditions.any(|condition| condition.type_ == "Ready" && condition.status != "True");
    pod.status.phase == Phase::Running && !is_unready
}
