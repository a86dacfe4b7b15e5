//! Why a number has the value it has. The annotation `vpaUpdates`, events, `explain` and log lines are printed from
//! these, and nothing parses the text again.

use std::fmt;

use super::resource::Resource;
use crate::{formula::Field, pod::Side, quantity::Quantity};

/// The most of a formula that is said; the whole of it stands in the SidecarSet.
const FORMULA_BYTES: usize = 80;

/// One thing to be said about a container's resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The recommendation was moved into bounds.
    Capped {
        /// Which resource.
        resource: String,
        /// Which bound.
        by: Cap,
    },
    /// The pod's sum was moved into the bounds of a LimitRange of type Pod, and this container's share with it.
    PodLimitRange {
        /// Which resource.
        resource: Resource,
        /// Which bound.
        bound: Bound,
    },
    /// There is no limit in proportion, though another resource has one.
    LimitNotSet {
        /// Which resource.
        resource: Resource,
        /// Why.
        because: NoLimit,
    },
    /// The limit in proportion is larger than any number, and is the largest there is.
    LimitOverflowed(Resource),
    /// More CPU while the pod starts.
    Boosted {
        /// The request without the boost.
        from: Quantity,
        /// The request with it.
        to: Quantity,
    },
    /// Made smaller, so that the containers stay within the pod's own `spec.resources`.
    FittedToPod {
        /// Which resource.
        resource: String,
    },
    /// Left as the pod has it, because nothing else stays within the pod's own `spec.resources`.
    LeftToFitPod {
        /// Which resource.
        resource: String,
    },
    /// A formula's result.
    Computed {
        /// Of which amount.
        field: Field,
        /// Whose formula.
        set: String,
        /// The formula.
        formula: String,
        /// What its variable stood for.
        aggregate: Quantity,
        /// What it gave.
        result: Quantity,
    },
    /// A formula gives no limit, because a container that it looks at has none.
    Unlimited {
        /// Which limit.
        field: Field,
    },
    /// The formula was evaluated on what the pod's containers have, because it fails on what is recommended for them.
    OnOwnValues {
        /// How it fails on that.
        error: String,
    },
    /// The formula was not followed.
    FormulaFailed {
        /// Whose formula.
        set: String,
        /// How it fails.
        error: String,
    },
    /// The formula was not followed: no limit can be taken from a container that runs.
    LimitWouldVanish(Resource),
    /// A request above the limit was brought down to it.
    HeldToLimit {
        /// Which resource.
        resource: String,
        /// What the request was.
        from: Quantity,
    },
    /// A recommendation took the place of the formula's result.
    Recommended {
        /// Which resource.
        resource: String,
        /// Whose recommendation.
        vpa: String,
    },
    /// The formula's result was kept, because it is larger than the recommendation.
    Floor {
        /// Which resource.
        resource: String,
        /// The recommendation.
        recommended: Quantity,
    },
}

/// What a recommendation is held by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cap {
    /// The policy's `minAllowed`.
    MinAllowed,
    /// The policy's `maxAllowed`.
    MaxAllowed,
    /// The container's own limit, where only requests are controlled.
    ContainerLimit,
    /// The largest limit that a LimitRange allows, in proportion.
    LimitRangeMax,
    /// The smallest that a LimitRange allows.
    LimitRangeMin,
}

/// The side of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The lower end.
    Min,
    /// The upper end.
    Max,
}

/// Why there is no limit in proportion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLimit {
    /// The container has none, and no LimitRange gives one.
    NoOriginalLimit,
    /// Nothing is requested.
    NoRecommendedRequest,
}

impl Reason {
    /// Whether `vpaUpdates` says it. VPA is silent on the pod's LimitRange and on boosts (`spec/vpa.md` 4.5).
    #[must_use]
    pub fn is_annotated(&self) -> bool {
        match self {
            Self::Capped { .. }
            | Self::LimitNotSet { .. }
            | Self::LimitOverflowed(_)
            | Self::FittedToPod { .. }
            | Self::LeftToFitPod { .. }
            | Self::Computed { .. }
            | Self::Unlimited { .. }
            | Self::OnOwnValues { .. }
            | Self::FormulaFailed { .. }
            | Self::LimitWouldVanish(_)
            | Self::HeldToLimit { .. }
            | Self::Recommended { .. }
            | Self::Floor { .. } => true,
            Self::PodLimitRange { .. } | Self::Boosted { .. } => false,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capped { resource, by } => write!(f, "{resource} capped to {by}"),
            Self::PodLimitRange { resource, bound } => {
                write!(f, "{} scaled to fit {bound} in pod LimitRange", resource.name())
            }
            Self::LimitNotSet { resource, because } => {
                write!(
                    f,
                    "{}: limit NOT set since {because} is nil or 0",
                    resource.name()
                )
            }
            Self::LimitOverflowed(resource) => write!(
                f,
                "{}: failed to keep limit to request ratio; capping limit to int64",
                resource.name()
            ),
            Self::Boosted { from, to } => write!(f, "cpu boosted from {from} to {to}"),
            Self::FittedToPod { resource } => write!(f, "{resource} capped to fit the pod's resources"),
            Self::LeftToFitPod { resource } => {
                write!(f, "{resource} NOT set since it does not fit the pod's resources")
            }
            Self::Computed {
                field,
                set,
                formula,
                aggregate,
                result,
            } => {
                let shown = &formula[..formula.floor_char_boundary(FORMULA_BYTES)];
                let more = if shown.len() < formula.len() { "..." } else { "" };
                let field = Amount(*field);
                write!(
                    f,
                    "{field} {result} from {shown}{more} of {aggregate} (SidecarSet {set})"
                )
            }
            Self::Unlimited { field } => {
                write!(f, "{} NOT set since a target has none", Amount(*field))
            }
            Self::OnOwnValues { error } => {
                write!(
                    f,
                    "formula computed without recommendations, since with them: {error}"
                )
            }
            Self::FormulaFailed { set, error } => {
                write!(f, "formula of SidecarSet {set} NOT applied: {error}")
            }
            Self::LimitWouldVanish(resource) => write!(
                f,
                "formula NOT applied: the {} limit of a running container cannot be removed",
                resource.name()
            ),
            Self::HeldToLimit { resource, from } => {
                write!(f, "{resource} request lowered from {from} to the limit")
            }
            Self::Recommended { resource, vpa } => write!(f, "{resource} request recommended by VPA {vpa}"),
            Self::Floor {
                resource,
                recommended,
            } => write!(
                f,
                "{resource} request by formula since only {recommended} is recommended"
            ),
        }
    }
}

/// A field as `vpaUpdates` calls it: `cpu limit`.
struct Amount(Field);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.0.side {
            Side::Requests => "request",
            Side::Limits => "limit",
        };
        write!(f, "{} {side}", self.0.resource.name())
    }
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MinAllowed => "minAllowed",
            Self::MaxAllowed => "maxAllowed",
            Self::ContainerLimit => "container limit",
            Self::LimitRangeMax => "fit Max in container LimitRange",
            Self::LimitRangeMin => "fit Min in container LimitRange",
        })
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Min => "Min",
            Self::Max => "Max",
        })
    }
}

impl fmt::Display for NoLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoOriginalLimit => "originalLimit",
            Self::NoRecommendedRequest => "recommendedRequest",
        })
    }
}
