//! A VPA as the updater reads it: everything parsed once, when the object comes in, and not for every pod.

use chrono::TimeDelta;
use common::{
    api::vpa::{ChangeRequirement, EvictionRequirement, UpdateMode, VerticalPodAutoscaler},
    gates::{Gate, Gates},
    plan::{Formulas, LimitRanges, PlanInput, PodPlan, Sizing, Stage, plan},
    pod::Pod,
};

use crate::settings::Settings;

/// On a VPA, `"true"` lets resizes that restart nothing pass by `minReplicas` and the disruption budget, as the flag
/// `--in-place-skip-disruption-budget` does for all.
pub const SKIP_BUDGET_ANNOTATION: &str = "outrigger.dev/in-place-skip-disruption-budget";

/// What one VPA says about its pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Vpa {
    /// The object's namespace.
    pub namespace: String,
    /// What its pods should have.
    pub sizing: Sizing,
    /// Whether its pods have more while they start.
    pub has_boost: bool,
    /// Its own word on the smallest group that may be disrupted.
    pub min_replicas: Option<i64>,
    /// Its own word on what a quick OOM is.
    pub evict_after_oom: Option<TimeDelta>,
    /// What must be true of a change; none if it has no update policy at all.
    pub requirements: Option<Vec<Requirement>>,
    /// Whether resizes that restart nothing are outside the disruption budget.
    pub skips_budget: bool,
}

/// One thing that must be true of a change.
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    /// It is enough if it is true of one of these.
    pub resources: Vec<String>,
    /// Which way the change goes; none for a word that is newer than we are, which nothing satisfies.
    pub direction: Option<Direction>,
}

/// Which way a change goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The target is higher than the request.
    Up,
    /// The target is lower than the request.
    Down,
}

/// How running pods get what they should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By eviction: modes Recreate and Auto.
    Evict,
    /// In place, and by eviction where that will not do.
    ResizeOrEvict,
    /// In place or not at all.
    Resize,
}

impl Way {
    /// Whether resizes come first.
    #[must_use]
    pub fn resizes(self) -> bool {
        matches!(self, Self::ResizeOrEvict | Self::Resize)
    }
}

impl From<&VerticalPodAutoscaler> for Vpa {
    fn from(vpa: &VerticalPodAutoscaler) -> Self {
        let update = vpa.spec.update_policy.as_ref();
        let policies = vpa.spec.resource_policy.iter();
        let mut policies = policies.flat_map(|policy| &policy.container_policies);
        let annotations = vpa.metadata.annotations.as_ref();
        let skips_budget = annotations.and_then(|annotations| annotations.get(SKIP_BUDGET_ANNOTATION));
        Self {
            namespace: vpa.metadata.namespace.clone().unwrap_or_default(),
            sizing: Sizing::from(vpa),
            has_boost: vpa.spec.startup_boost.is_some()
                || policies.any(|policy| policy.startup_boost.is_some()),
            min_replicas: update.and_then(|update| update.min_replicas).map(i64::from),
            evict_after_oom: update
                .and_then(|update| update.evict_after_oom_seconds)
                .map(|seconds| TimeDelta::seconds(seconds.into())),
            requirements: update.map(|update| {
                let requirements = update.eviction_requirements.iter();
                requirements.map(Requirement::from).collect()
            }),
            skips_budget: skips_budget.is_some_and(|text| text == "true"),
        }
    }
}

impl Vpa {
    /// How its running pods get what they should have; none if they do not.
    #[must_use]
    pub fn way(&self) -> Option<Way> {
        match &self.sizing.mode {
            UpdateMode::Recreate | UpdateMode::Auto => Some(Way::Evict),
            UpdateMode::InPlaceOrRecreate => Some(Way::ResizeOrEvict),
            UpdateMode::InPlace => Some(Way::Resize),
            UpdateMode::Off | UpdateMode::Initial | UpdateMode::Other(_) => None,
        }
    }

    /// What a running pod should have. Nobody else in the updater asks for a plan.
    #[must_use]
    pub fn plan<'a>(
        &'a self,
        pod: &'a Pod,
        formulas: Option<&'a Formulas>,
        limit_ranges: &'a LimitRanges,
        settings: &'a Settings,
    ) -> PodPlan<'a> {
        plan(&PlanInput {
            pod,
            sizing: &self.sizing,
            formulas,
            limit_ranges,
            stage: Stage::Running,
            remembered: None,
            even_if_off: false,
            max_cpu_boost: None,
            gates: &settings.gates,
            quirks: settings.quirks,
        })
    }

    /// Whether the updater has anything to do for its pods: to update them, or to end their boost.
    #[must_use]
    pub fn acts(&self) -> bool {
        self.way().is_some() || self.has_boost
    }

    /// Whether boosts of its pods are to be ended.
    #[must_use]
    pub fn unboosts(&self, gates: &Gates) -> bool {
        self.has_boost && gates.enabled(Gate::CPUStartupBoost)
    }
}

impl From<&EvictionRequirement> for Requirement {
    fn from(requirement: &EvictionRequirement) -> Self {
        Self {
            resources: requirement.resources.clone(),
            direction: match &requirement.change_requirement {
                Some(ChangeRequirement::TargetHigherThanRequests) => Some(Direction::Up),
                Some(ChangeRequirement::TargetLowerThanRequests) => Some(Direction::Down),
                Some(ChangeRequirement::Other(_)) | None => None,
            },
        }
    }
}
