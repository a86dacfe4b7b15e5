//! Why a pod is left as it is: a closed set, each with a name for metrics and a sentence for people.

use std::fmt;

/// Why a pod that the updater looked at is left as it is in this loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Skip {
    /// The VPA's mode acts on new pods only, or on none.
    Mode,
    /// Mode InPlace, and its gate is off.
    GateOff,
    /// No controller owns it, or its controller is not known.
    NoController,
    /// Its controller wants no pods.
    NoReplicas,
    /// Its group has fewer live pods than may be disrupted.
    TooFewReplicas,
    /// The VPA has no recommendation yet.
    NoRecommendation,
    /// It has not started, and cannot be resized before.
    Pending,
    /// Enough of its group is disrupted already.
    Budget,
    /// It has more while it starts, and that time is not over.
    Boosted,
    /// The node has no room for the resize now.
    ResizeDeferred,
    /// A resize of it goes on.
    ResizeInProgress,
    /// The kubelet failed to resize it and tries again.
    ResizeFailing,
    /// Its node never has room for the resize.
    ResizeInfeasible,
    /// Its node did not have room for as much before, and no target is lower since.
    InfeasibleBefore,
    /// Its requests are within bounds and it has not started long enough ago.
    TooYoung,
    /// Its requests are within bounds and the change would be small.
    SmallChange,
    /// It has what it should have.
    NoChange,
    /// The VPA's eviction requirements are not met.
    Requirements,
    /// What would change is a native sidecar that admission does not know of.
    SidecarNotObserved,
    /// A resize would change its QoS class, which the API server refuses.
    QosWouldChange,
    /// The cluster cannot resize pods.
    ResizeUnsupported,
    /// The cluster cannot lower a memory limit in place.
    MemoryLimitDecrease,
    /// A formula gives no limit any more, and none can be taken from a running container.
    LimitWouldVanish,
    /// A formula fails on what the pod has.
    FormulaFailed,
    /// Only formulas have changed, for which nobody is evicted.
    FormulaAlone,
    /// The API server refused the resize.
    ResizeRefused,
    /// The API server refused the eviction.
    EvictionRefused,
    /// A PodDisruptionBudget allows no eviction of it now.
    DisruptionBudget,
    /// A ResourceQuota has no room for what it should have, and would have none for its replacement.
    QuotaExceeded,
    /// The API server could not answer, or somebody else changed the pod at the same time.
    ApiUnavailable,
    /// It is gone already.
    Gone,
    /// As many as may be were acted on in this time.
    RateLimited,
    /// The loop ended before its turn came.
    OutOfTime,
    /// The admission controller does not show that it works.
    AdmissionStale,
    /// One eviction of the workload is out to show that admission works.
    ProbePending,
    /// Evictions of the workload, or of all, were not followed by sized pods.
    BreakerOpen,
}

impl Skip {
    /// Every reason.
    pub const ALL: [Self; 36] = [
        Self::Mode,
        Self::GateOff,
        Self::NoController,
        Self::NoReplicas,
        Self::TooFewReplicas,
        Self::NoRecommendation,
        Self::Pending,
        Self::Budget,
        Self::Boosted,
        Self::ResizeDeferred,
        Self::ResizeInProgress,
        Self::ResizeFailing,
        Self::ResizeInfeasible,
        Self::InfeasibleBefore,
        Self::TooYoung,
        Self::SmallChange,
        Self::NoChange,
        Self::Requirements,
        Self::SidecarNotObserved,
        Self::QosWouldChange,
        Self::ResizeUnsupported,
        Self::MemoryLimitDecrease,
        Self::LimitWouldVanish,
        Self::FormulaFailed,
        Self::FormulaAlone,
        Self::ResizeRefused,
        Self::EvictionRefused,
        Self::DisruptionBudget,
        Self::QuotaExceeded,
        Self::ApiUnavailable,
        Self::Gone,
        Self::RateLimited,
        Self::OutOfTime,
        Self::AdmissionStale,
        Self::ProbePending,
        Self::BreakerOpen,
    ];

    /// Whether something would be done to the pod if it were not for this: what an operator wants to be told of.
    #[must_use]
    pub fn holds_back(self) -> bool {
        !matches!(
            self,
            Self::Mode
                | Self::NoRecommendation
                | Self::Pending
                | Self::Boosted
                | Self::ResizeInProgress
                | Self::TooYoung
                | Self::SmallChange
                | Self::NoChange
                | Self::Gone
                | Self::OutOfTime
        )
    }

    /// Whether it stays as it is until something that the updater is told of changes.
    #[must_use]
    pub fn lasts(self) -> bool {
        match self {
            Self::Mode
            | Self::GateOff
            | Self::NoController
            | Self::NoReplicas
            | Self::TooFewReplicas
            | Self::NoRecommendation
            | Self::Pending
            | Self::ResizeInfeasible
            | Self::InfeasibleBefore
            | Self::SmallChange
            | Self::NoChange
            | Self::Requirements
            | Self::SidecarNotObserved
            | Self::QosWouldChange
            | Self::ResizeUnsupported
            | Self::LimitWouldVanish
            | Self::FormulaFailed
            | Self::FormulaAlone
            | Self::MemoryLimitDecrease => true,
            Self::Budget
            | Self::Boosted
            | Self::ResizeDeferred
            | Self::ResizeInProgress
            | Self::ResizeFailing
            | Self::TooYoung
            | Self::ResizeRefused
            | Self::EvictionRefused
            | Self::DisruptionBudget
            | Self::QuotaExceeded
            | Self::ApiUnavailable
            | Self::Gone
            | Self::RateLimited
            | Self::OutOfTime
            | Self::AdmissionStale
            | Self::ProbePending
            | Self::BreakerOpen => false,
        }
    }

    /// The value of the metric's label and the reason of the event.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mode => "Mode",
            Self::GateOff => "GateOff",
            Self::NoController => "NoController",
            Self::NoReplicas => "NoReplicas",
            Self::TooFewReplicas => "TooFewReplicas",
            Self::NoRecommendation => "NoRecommendation",
            Self::Pending => "Pending",
            Self::Budget => "Budget",
            Self::Boosted => "Boosted",
            Self::ResizeDeferred => "ResizeDeferred",
            Self::ResizeInProgress => "ResizeInProgress",
            Self::ResizeFailing => "ResizeFailing",
            Self::ResizeInfeasible => "ResizeInfeasible",
            Self::InfeasibleBefore => "InfeasibleBefore",
            Self::TooYoung => "TooYoung",
            Self::SmallChange => "SmallChange",
            Self::NoChange => "NoChange",
            Self::Requirements => "Requirements",
            Self::SidecarNotObserved => "SidecarNotObserved",
            Self::QosWouldChange => "QosWouldChange",
            Self::ResizeUnsupported => "ResizeUnsupported",
            Self::MemoryLimitDecrease => "MemoryLimitDecrease",
            Self::LimitWouldVanish => "LimitWouldVanish",
            Self::FormulaFailed => "FormulaFailed",
            Self::FormulaAlone => "FormulaAlone",
            Self::ResizeRefused => "ResizeRefused",
            Self::EvictionRefused => "EvictionRefused",
            Self::DisruptionBudget => "DisruptionBudget",
            Self::QuotaExceeded => "QuotaExceeded",
            Self::ApiUnavailable => "ApiUnavailable",
            Self::Gone => "Gone",
            Self::RateLimited => "RateLimited",
            Self::OutOfTime => "OutOfTime",
            Self::AdmissionStale => "AdmissionStale",
            Self::ProbePending => "ProbePending",
            Self::BreakerOpen => "BreakerOpen",
        }
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mode => "the VPA's update mode leaves running pods alone",
            Self::GateOff => "update mode InPlace needs --feature-gates=InPlace=true",
            Self::NoController => "its controller is not known",
            Self::NoReplicas => "its controller wants no replicas",
            Self::TooFewReplicas => {
                "fewer live replicas than minReplicas; lower that, or let resizes pass by it"
            }
            Self::NoRecommendation => "the VPA has no recommendation yet",
            Self::Pending => "it has not started yet",
            Self::Budget => "enough pods of its group are disrupted for now",
            Self::Boosted => "its startup boost is not over",
            Self::ResizeDeferred => "its node has no room for the resize now",
            Self::ResizeInProgress => "it is being resized",
            Self::ResizeFailing => "the kubelet failed to resize it and tries again",
            Self::ResizeInfeasible => "its node can never have room for the resize",
            Self::InfeasibleBefore => {
                "a resize to no more than what is recommended now was infeasible on its node"
            }
            Self::TooYoung => "its requests are within bounds, and it is young",
            Self::SmallChange => "its requests are within bounds, and the change would be small",
            Self::NoChange => "it has the resources that it should have",
            Self::Requirements => "the VPA's eviction requirements are not met",
            Self::SidecarNotObserved => {
                "only native sidecars would change, which admission does not size in this pod"
            }
            Self::QosWouldChange => "a resize would change its QoS class",
            Self::ResizeUnsupported => "resizing pods needs Kubernetes 1.33",
            Self::MemoryLimitDecrease => "lowering a memory limit in place needs Kubernetes 1.34",
            Self::LimitWouldVanish => {
                "its sidecar's formula gives no limit any more, which only a new pod can follow"
            }
            Self::FormulaFailed => "its sidecar's formula fails on what the pod has",
            Self::FormulaAlone => {
                "only a sidecar's formula asks for a change, and nothing is evicted for that"
            }
            Self::ResizeRefused => "the API server refused the resize",
            Self::EvictionRefused => "the API server refused the eviction",
            Self::DisruptionBudget => "its PodDisruptionBudget allows no eviction now",
            Self::QuotaExceeded => "the ResourceQuota has no room for what it should have, evicted or not",
            Self::ApiUnavailable => "the API server could not do it now; it is tried again",
            Self::Gone => "it is gone already",
            Self::RateLimited => "--eviction-rate-limit lets no more through in this loop",
            Self::OutOfTime => "the loop ended before its turn came; it is tried again",
            Self::AdmissionStale => "the admission controller's lease is not fresh",
            Self::ProbePending => "one eviction is out to show that admission sizes new pods",
            Self::BreakerOpen => "evictions were not followed by sized pods",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_distinct_and_fit_an_event() {
        let names: BTreeSet<_> = Skip::ALL.iter().map(|skip| skip.name()).collect();
        assert_eq!(names.len(), Skip::ALL.len());
        for skip in Skip::ALL {
            assert_eq!(skip.name(), format!("{skip:?}"));
            assert!(!skip.to_string().is_empty());
        }
    }
}
