//! `updater explain`: for each pod of a VPA what the next loop would do to it, or why it would do nothing, with the numbers.
//! The answer is the daemon's own turn over what the API server says now; nothing is sent.

mod read;
#[cfg(test)]
mod tests;
mod text;

pub use read::{ExplainError, explain};

use chrono::{DateTime, Utc};
use common::{
    api::OpenEnum as _,
    plan::{PodPlan, Recommended},
    pod::{Managed, Phase, Pod, ResourceList},
};
use serde::Serialize;

use crate::{
    decide::{Act, Evictions, Fate, Outcome, Turn},
    eligible::Candidate,
    feed::Work,
    formula::Formulary,
    group::Group,
    memory::Memory,
    observed::{Observed, Purpose},
    reason::Skip,
    settings::Settings,
};

/// What the next loop would do for a VPA.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its update mode.
    pub update_mode: String,
    /// Whether the admission component's lease is fresh; nothing if that does not matter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_fresh: Option<bool>,
    /// What may be evicted.
    pub evictions: EvictionsView,
    /// The replica groups of its pods that may be acted on.
    pub groups: Vec<GroupView>,
    /// Its live pods.
    pub pods: Vec<PodView>,
}

/// What may be evicted. A process that was just started knows of evidence only what the pods tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum EvictionsView {
    /// As many pods as the disruption budget allows.
    Budget,
    /// One, to see whether admission sizes what comes after it.
    Probe,
    /// None, for this reason.
    Stopped(&'static str),
    /// The whole loop is skipped.
    LoopSkipped,
}

/// A replica group, as it is before the loop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupView {
    /// The kind of its controller.
    pub kind: String,
    /// The name of its controller.
    pub name: String,
    /// How many pods are wanted.
    pub configured: i64,
    /// How many run.
    pub running: i64,
    /// How many have not started.
    pub pending: i64,
    /// How many may be disrupted at once.
    pub tolerance: i64,
    /// Whether it has fewer live pods than `minReplicas`.
    pub below_min_replicas: bool,
}

/// What would become of a pod.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodView {
    /// Its name.
    pub name: String,
    /// Its phase.
    pub phase: String,
    /// Since when it runs.
    pub started: Option<DateTime<Utc>>,
    /// What would be done.
    pub decision: DecisionView,
    /// Why nothing would.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// The same in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// How urgent it is.
    pub priority: PriorityView,
    /// Its managed containers.
    pub containers: Vec<ContainerView>,
}

/// What would be done to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum DecisionView {
    Resize,
    Evict,
    Unboost,
    Leave,
}

/// How urgent it is to act on a pod.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PriorityView {
    /// The relative change of its requests, over all resources.
    pub resource_diff: f64,
    /// Whether some request is below its target.
    pub scale_up: bool,
    /// Whether some request is outside its bounds.
    pub outside_bounds: bool,
}

/// A container, what it has and what it should have.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerView {
    /// Its name.
    pub name: String,
    /// `container`, or `initContainer` for a native sidecar.
    pub kind: &'static str,
    /// Whether it counts for an eviction.
    pub counts_for_eviction: bool,
    /// Its requests as they are.
    pub requests: ResourceList,
    /// Its limits as they are.
    pub limits: ResourceList,
    /// The requests it should have.
    pub planned_requests: ResourceList,
    /// The limits it should have.
    pub planned_limits: ResourceList,
    /// Below this it is out of bounds.
    pub lower_bound: ResourceList,
    /// Above this it is out of bounds.
    pub upper_bound: ResourceList,
    /// What moved the numbers.
    pub reasons: Vec<String>,
}

/// What a turn would do, if the API server did all that it is asked to.
#[must_use]
pub fn turn(
    work: &Work,
    settings: &Settings,
    evictions: Option<Evictions>,
    admission_fresh: Option<bool>,
    formulary: &Formulary,
    now: DateTime<Utc>,
) -> Explanation {
    let pods: Vec<&Pod> = work.pods.iter().collect();
    let allowed = evictions.unwrap_or(Evictions::Stopped(Skip::AdmissionStale));
    let mut memory = Memory::default();
    let formulas: Vec<_> = pods.iter().map(|pod| formulary.of(pod)).collect();
    let mut turn = Turn::begin(&pods, &work.vpa, work, &work.limit_ranges, settings, allowed, now)
        .with_formulas(&formulas);
    let groups = turn.groups().iter().map(group).collect();
    let mut done = Vec::new();
    while let Some(command) = turn.next(&mut memory, now).filter(|_| evictions.is_some()) {
        done.push((command.pod.metadata.name.clone(), DecisionView::of(&command.act)));
        turn.done(Outcome::Done, &mut memory);
    }
    let fates = turn.fates();
    let views = work
        .pods
        .iter()
        .zip(&formulas)
        .zip(fates)
        .map(|((pod, formulas), fate)| {
            let plan = work
                .vpa
                .plan(pod, formulas.for_resize(), &work.limit_ranges, settings);
            let act = done.iter().rfind(|(name, _)| *name == pod.metadata.name);
            let (decision, skip) = match (fate, act) {
                (Fate::Skipped(skip), _) => (DecisionView::Leave, Some(*skip)),
                (_, Some((_, decision))) => (*decision, None),
                (_, None) => (DecisionView::Leave, None),
            };
            view(pod, &plan, work, settings, decision, skip)
        });
    Explanation {
        namespace: work.key.namespace.to_string(),
        name: work.key.name.to_string(),
        update_mode: work.vpa.sizing.mode.as_str().to_owned(),
        admission_fresh,
        evictions: match evictions {
            None => EvictionsView::LoopSkipped,
            Some(Evictions::Allowed) => EvictionsView::Budget,
            Some(Evictions::Probe) => EvictionsView::Probe,
            Some(Evictions::Stopped(skip)) => EvictionsView::Stopped(skip.name()),
        },
        groups,
        pods: views.collect(),
    }
}

impl DecisionView {
    fn of(act: &Act) -> Self {
        match act {
            Act::Unboost(_) => Self::Unboost,
            Act::Resize(_) => Self::Resize,
            Act::Evict => Self::Evict,
        }
    }
}

fn group(group: &Group<'_>) -> GroupView {
    GroupView {
        kind: group.key.kind.to_owned(),
        name: group.key.name.to_owned(),
        configured: group.configured,
        running: group.running,
        pending: group.pending,
        tolerance: group.tolerance,
        below_min_replicas: group.below_min_replicas,
    }
}

fn view(
    pod: &Pod,
    plan: &PodPlan<'_>,
    work: &Work,
    settings: &Settings,
    decision: DecisionView,
    skip: Option<Skip>,
) -> PodView {
    let observed = Observed::of(pod, settings.quirks);
    let purpose = work.vpa.way().map_or(Purpose::Resize, Purpose::from);
    let priority = Candidate {
        pod,
        vpa: &work.vpa,
        plan,
        observed: &observed,
        purpose,
    }
    .priority(settings);
    let containers = plan.containers.iter().map(|planned| {
        let name = planned.container.name();
        let mut recommended = plan.recommendations.iter().map(|one| &one.amounts);
        let recommended = recommended.find(|one| one.container == name);
        let bound = |of: fn(&Recommended) -> &Option<ResourceList>| {
            recommended.and_then(|one| of(one).clone()).unwrap_or_default()
        };
        ContainerView {
            name: name.to_owned(),
            kind: planned.container.kind().noun(),
            counts_for_eviction: counts(&observed, &planned.container),
            requests: planned.base.requests.clone().unwrap_or_default(),
            limits: planned.base.limits.clone().unwrap_or_default(),
            planned_requests: planned.requests.clone(),
            planned_limits: planned.limits.clone(),
            lower_bound: bound(|one| &one.lower_bound),
            upper_bound: bound(|one| &one.upper_bound),
            reasons: planned.reasons.iter().map(ToString::to_string).collect(),
        }
    });
    PodView {
        name: pod.metadata.name.clone().unwrap_or_default(),
        phase: phase(pod.status.phase).to_owned(),
        started: pod.status.start_time,
        decision,
        reason: skip.map(Skip::name),
        because: skip.map(|skip| skip.to_string()),
        priority: PriorityView {
            resource_diff: priority.resource_diff,
            scale_up: priority.scale_up,
            outside_bounds: priority.outside_recommended_range,
        },
        containers: containers.collect(),
    }
}

fn counts(observed: &Observed<'_>, container: &Managed<'_>) -> bool {
    observed.counts(container, Purpose::Evict)
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "Pending",
        Phase::Running => "Running",
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
        Phase::Unknown => "Unknown",
    }
}
