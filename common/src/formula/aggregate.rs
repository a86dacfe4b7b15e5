//! What the resources of several containers come to (`spec/sidecarset.md` 3.2, 3.3).

use crate::api::sidecarset::TargetContainersMode;
use crate::pod::Side;
use crate::quantity::Quantity;

/// The value of a formula's variable.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Aggregate {
    Amount(Quantity),
    /// No number, and nothing to compute with.
    Unlimited,
}

impl Aggregate {
    /// One field of all targets. A missing request counts as zero; a missing limit is no limit for all.
    pub(super) fn of<'p>(
        mode: &TargetContainersMode,
        side: Side,
        amounts: impl Iterator<Item = Option<&'p Quantity>> + Clone,
    ) -> Self {
        let missing = amounts.clone().any(|amount| amount.is_none());
        let present = amounts.flatten();
        match (mode, side) {
            (TargetContainersMode::Other(_), Side::Requests) => Self::Amount(Quantity::default()),
            (TargetContainersMode::Other(_), Side::Limits) => Self::Unlimited,
            (_, Side::Limits) if missing => Self::Unlimited,
            (TargetContainersMode::Sum, _) => {
                Self::Amount(present.fold(Quantity::default(), |sum, amount| &sum + amount))
            }
            (TargetContainersMode::Max, _) => {
                let largest = present.reduce(|largest, amount| {
                    if amount.cmp_value(largest).is_gt() {
                        amount
                    } else {
                        largest
                    }
                });
                Self::Amount(largest.cloned().unwrap_or_default())
            }
        }
    }
}
