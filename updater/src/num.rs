//! Conversions between numbers that have no exact counterpart.

use common::quantity::Quantity;

/// An amount in thousandths; the largest there is for one that does not fit.
pub(crate) fn milli(quantity: &Quantity) -> i64 {
    quantity.milli().unwrap_or(if quantity.sign().is_lt() {
        i64::MIN
    } else {
        i64::MAX
    })
}

/// To the nearest double.
#[expect(
    clippy::cast_precision_loss,
    reason = "the nearest double is wanted, as in VPA's own sums"
)]
pub(crate) fn to_f64(n: i64) -> f64 {
    n as f64
}

/// Towards zero, into the range of the integer.
#[expect(
    clippy::cast_possible_truncation,
    reason = "truncation is wanted, and it saturates"
)]
pub(crate) fn truncated(x: f64) -> i64 {
    x as i64
}
