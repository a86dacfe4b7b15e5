//! The two kinds of values: numbers, which are doubles, and quantities, which are exact.

use std::fmt;

use super::error::Stricter;
use crate::quantity::{Format, Quantity};

/// A value of the language.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A plain number or percentage.
    Number(f64),
    /// An amount of cpu or memory.
    Quantity(Quantity),
}

/// Which values a formula gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Plain numbers.
    Number,
    /// Amounts.
    Quantity,
}

impl Value {
    /// Which of the two it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Number(_) => Kind::Number,
            Self::Quantity(_) => Kind::Quantity,
        }
    }

    /// As an amount to write into a pod. A number becomes thousandths, what is finer is cut off, for cpu and memory
    /// alike (`spec/sidecarset.md` 3.7).
    ///
    /// # Errors
    /// If a number is not finite or too large.
    pub fn into_quantity(self) -> Result<Quantity, Stricter> {
        match self {
            Self::Number(number) => quantity_of(number),
            Self::Quantity(quantity) => Ok(quantity),
        }
    }
}

impl From<Quantity> for Value {
    fn from(quantity: Quantity) -> Self {
        Self::Quantity(quantity)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => Shortest(*number).fmt(f),
            Self::Quantity(quantity) => quantity.fmt(f),
        }
    }
}

/// A number as a quantity: thousandths, in double arithmetic, cut off.
pub(super) fn quantity_of(number: f64) -> Result<Quantity, Stricter> {
    if !number.is_finite() {
        return Err(Stricter::NotFinite);
    }
    Ok(Quantity::from_milli(
        truncated(number * 1000.0)?,
        Format::DecimalSi,
    ))
}

/// A quantity changed by a number: its thousandths as a double, the operation, and cut off again.
pub(super) fn scaled(quantity: &Quantity, by: impl Fn(f64) -> f64) -> Result<Quantity, Stricter> {
    let milli = quantity.milli_as_kubernetes().ok_or(Stricter::Overflow)?;
    #[expect(clippy::cast_precision_loss, reason = "Kruise computes on the nearest double")]
    let milli = milli as f64;
    Ok(Quantity::from_milli(truncated(by(milli))?, quantity.format()))
}

fn truncated(number: f64) -> Result<i64, Stricter> {
    // The bounds are powers of two, so the comparison is exact.
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "cutting off the fraction is the purpose"
        )]
        Ok(number as i64)
    } else {
        Err(Stricter::Overflow)
    }
}

/// A double in the fewest digits that are this double and no other, as Go's `%g` writes it.
struct Shortest(f64);

impl fmt::Display for Shortest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number) = *self;
        if number.is_nan() {
            return f.write_str("NaN");
        }
        if number.is_infinite() {
            return f.write_str(if number > 0.0 { "+Inf" } else { "-Inf" });
        }
        let scientific = scientific(number);
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let exponent: i32 = exponent.parse().map_err(|_| fmt::Error)?;
        if (-4..6).contains(&exponent) {
            let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len());
            let decimals = i32::try_from(decimals).map_err(|_| fmt::Error)? - exponent;
            write!(f, "{number:.*}", usize::try_from(decimals).unwrap_or(0))
        } else {
            let sign = if exponent < 0 { '-' } else { '+' };
            write!(f, "{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
    }
}

/// The fewest digits, and of two texts that are equally near the one with an even last digit, as Go chooses.
fn scientific(number: f64) -> String {
    let shortest = format!("{number:e}");
    let mantissa = shortest.split('e').next().unwrap_or_default();
    let decimals = mantissa.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let even = format!("{number:.decimals$e}");
    if even.parse() == Ok(number) {
        even
    } else {
        shortest
    }
}
