//! docs/troubleshooting.md has every reason that the code can give, in the words in which it is given.
use std::fs;

use admission::{PodOutcome, Refused};
use common::{
    api::vpa::ConditionType,
    formula::{Field, Resource as FormulaResource},
    plan::{Bound, Cap, NoLimit, Reason, Resource},
    pod::Side,
    target::{ControllerKey, TargetError, TopmostError},
};
use recommender::{recommend::Source, window::Rejected};
use updater::{Failure, reason::Skip};

fn page() -> String {
    fs::read_to_string(format!("{}/troubleshooting.md", hack::docs::DIRECTORY)).unwrap()
}

#[track_caller]
fn has(page: &str, text: &str) {
    assert!(page.contains(text), "docs/troubleshooting.md lacks: {text}");
}

#[test]
fn every_reason_of_the_updater() {
    let page = page();
    for skip in Skip::ALL {
        has(&page, &format!("\n| `{}` | ", skip.name()));
    }
    for failure in Failure::ALL {
        has(&page, &format!("`{}`", failure.reason()));
    }
    for event in [
        "EvictedByVPA",
        "EvictedPod",
        "InPlaceResizedByVPA",
        "InPlaceResizeSkipped",
        "EvictionBreakerOpen",
    ] {
        has(&page, &format!("`{event}`"));
    }
}

#[test]
fn every_outcome_of_admission() {
    let page = page();
    for outcome in PodOutcome::ALL {
        has(&page, &format!("\n| `{}` | ", outcome.name()));
    }
    for refused in Refused::ALL {
        has(&page, &format!("`{}`", refused.name()));
    }
}

#[test]
fn every_reason_of_the_recommender() {
    let page = page();
    for condition in [
        ConditionType::RecommendationProvided,
        ConditionType::NoPodsMatched,
        ConditionType::ConfigUnsupported,
    ] {
        has(&page, &format!("condition `{condition}`"));
    }
    for because in Source::ALL.into_iter().filter_map(Source::because) {
        has(&page, &format!("explain: `{because}`"));
    }
    for rejected in [
        Rejected::UnknownPod,
        Rejected::UnknownContainer,
        Rejected::InitContainer,
        Rejected::Negative,
        Rejected::OutOfOrder,
        Rejected::TooOld,
        Rejected::FromTheFuture,
    ] {
        // A new one does not compile before it stands in the list above.
        match rejected {
            Rejected::UnknownPod
            | Rejected::UnknownContainer
            | Rejected::InitContainer
            | Rejected::Negative
            | Rejected::OutOfOrder
            | Rejected::TooOld
            | Rejected::FromTheFuture => {}
        }
        has(&page, &rejected.to_string());
    }
}

#[test]
fn every_reason_why_a_target_cannot_be_read() {
    let page = page();
    let key = |kind: &str| ControllerKey {
        namespace: "shop".to_owned(),
        api_version: "apps/v1".to_owned(),
        kind: kind.to_owned(),
        name: "web".to_owned(),
    };
    let error = || "not found".to_owned();
    for reason in [
        TargetError::DoesNotExist(key("Deployment")),
        TargetError::Unhandled {
            key: key("Rollout"),
            error: error(),
        },
        TargetError::EmptySelector(key("Rollout")),
        TargetError::NeedsScale(key("Rollout")),
    ] {
        match &reason {
            TargetError::DoesNotExist(_)
            | TargetError::Unhandled { .. }
            | TargetError::EmptySelector(_)
            | TargetError::NeedsScale(_) => {}
            // Its words are the selector's own.
            TargetError::Selector(_) => {}
        }
        has(&page, &format!("`{reason}`"));
    }
    for reason in [
        TopmostError::DoesNotExist(key("Deployment")),
        TopmostError::NodeInvalidOwner,
        TopmostError::Cycle,
        TopmostError::Unhandled {
            key: key("Rollout"),
            error: error(),
        },
        TopmostError::NeedsScale(key("Rollout")),
    ] {
        match &reason {
            TopmostError::DoesNotExist(_)
            | TopmostError::NodeInvalidOwner
            | TopmostError::Cycle
            | TopmostError::Unhandled { .. }
            | TopmostError::NeedsScale(_) => {}
        }
        has(&page, &format!("`{reason}`"));
    }
}

#[test]
fn every_reason_of_the_plan() {
    let page = page();
    let cpu = || "cpu".to_owned();
    let amount = |text: &str| text.parse().unwrap();
    let limit = Field {
        side: Side::Limits,
        resource: FormulaResource::Cpu,
    };
    let mut reasons = vec![
        Reason::LimitOverflowed(Resource::Cpu),
        Reason::Boosted {
            from: amount("100m"),
            to: amount("300m"),
        },
        Reason::FittedToPod { resource: cpu() },
        Reason::LeftToFitPod { resource: cpu() },
        Reason::Computed {
            field: limit,
            set: "mesh".to_owned(),
            formula: "max(cpu*50%, 50m)".to_owned(),
            aggregate: amount("200m"),
            result: amount("100m"),
        },
        Reason::Unlimited { field: limit },
        Reason::OnOwnValues {
            error: "…".to_owned(),
        },
        Reason::FormulaFailed {
            set: "mesh".to_owned(),
            error: "…".to_owned(),
        },
        Reason::LimitWouldVanish(Resource::Cpu),
        Reason::HeldToLimit {
            resource: cpu(),
            from: amount("300m"),
        },
        Reason::Recommended {
            resource: cpu(),
            vpa: "web".to_owned(),
        },
        Reason::Floor {
            resource: cpu(),
            recommended: amount("50m"),
        },
    ];
    for by in [
        Cap::MinAllowed,
        Cap::MaxAllowed,
        Cap::ContainerLimit,
        Cap::LimitRangeMax,
        Cap::LimitRangeMin,
    ] {
        match by {
            Cap::MinAllowed
            | Cap::MaxAllowed
            | Cap::ContainerLimit
            | Cap::LimitRangeMax
            | Cap::LimitRangeMin => {}
        }
        reasons.push(Reason::Capped { resource: cpu(), by });
    }
    for bound in [Bound::Min, Bound::Max] {
        reasons.push(Reason::PodLimitRange {
            resource: Resource::Cpu,
            bound,
        });
    }
    for because in [NoLimit::NoOriginalLimit, NoLimit::NoRecommendedRequest] {
        reasons.push(Reason::LimitNotSet {
            resource: Resource::Cpu,
            because,
        });
    }
    for reason in reasons {
        match &reason {
            Reason::Capped { .. }
            | Reason::PodLimitRange { .. }
            | Reason::LimitNotSet { .. }
            | Reason::LimitOverflowed(_)
            | Reason::Boosted { .. }
            | Reason::FittedToPod { .. }
            | Reason::LeftToFitPod { .. }
            | Reason::Computed { .. }
            | Reason::Unlimited { .. }
            | Reason::OnOwnValues { .. }
            | Reason::FormulaFailed { .. }
            | Reason::LimitWouldVanish(_)
            | Reason::HeldToLimit { .. }
            | Reason::Recommended { .. }
            | Reason::Floor { .. } => {}
        }
        has(&page, &format!("`{reason}`"));
    }
}
