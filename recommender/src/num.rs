//! The few conversions between integers and doubles that the model needs, each in one place with its rule.
//! Everything that decides on amounts goes through here, so no other module casts.

/// The integer part. Beyond the range of `i64` the nearest end, and 0 for what is not a number.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the language's float cast truncates and saturates, which is the rule wanted here"
)]
pub(crate) fn trunc(value: f64) -> i64 {
    value as i64
}

/// The nearest double.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    reason = "counts and amounts above 2^53 lose their last digits, as they do upstream"
)]
pub(crate) fn float(value: i64) -> f64 {
    value as f64
}
