//! The two resources the plan computes with, in their own units: millicores and bytes. Every other resource of a
//! recommendation is only ever copied and compared.

use std::cmp::Ordering;

pub use crate::formula::Resource;
use crate::{
    pod::ResourceList,
    quantity::{Bytes, MilliCpu, Quantity, Rounding, Scaled},
};

impl Resource {
    /// `value × numerator ÷ denominator` in whole units of the resource, exact before the rounding, printed as `value`
    /// is. `None` if the denominator is zero.
    pub(super) fn scaled(
        self,
        value: &Quantity,
        numerator: &Quantity,
        denominator: &Quantity,
        rounding: Rounding,
    ) -> Option<Scaled<Quantity>> {
        macro_rules! in_units {
            ($unit:ident) => {{
                let [value_units, numerator, denominator] =
                    [value, numerator, denominator].map($unit::from_quantity);
                let scaled = value_units.scaled(numerator, denominator, rounding)?;
                Scaled {
                    value: scaled.value.to_quantity_as(value.format()),
                    overflowed: scaled.overflowed,
                }
            }};
        }
        Some(match self {
            Self::Cpu => in_units!(MilliCpu),
            Self::Memory => in_units!(Bytes),
        })
    }
}

/// The amount of a resource that is set to something: a zero counts as not set (`spec/vpa.md` 1.3, 4.7).
pub(super) fn set<'l>(list: Option<&'l ResourceList>, name: &str) -> Option<&'l Quantity> {
    list?.get(name).filter(|quantity| !quantity.is_zero())
}

/// How two amounts compare in thousandths, in which VPA compares them with limits.
pub(super) fn cmp_milli(left: &Quantity, right: &Quantity) -> Ordering {
    match (left.milli(), right.milli()) {
        (Some(left), Some(right)) => left.cmp(&right),
        _ => left.cmp_value(right),
    }
}
