//! Kubernetes quantities, exact: parsed, compared, added and printed as the API server does, without a float and
//! without a size at which they wrap. [`MilliCpu`] and [`Bytes`] are the plain integers the model computes with.

mod decimal;
mod integer;
#[cfg(test)]
mod laws;
mod parse;
mod print;
#[cfg(test)]
mod tests;
mod units;
mod wire;

use std::cmp::Ordering;
use std::ops::{Add, Neg, Sub};
use std::str::FromStr;

use decimal::{Decimal, MILLI, UNITS};

pub use units::{Bytes, MilliCpu, Rounding, Scaled};

/// An exact amount of a resource, with the format it prints in.
///
/// Two quantities are equal (`==`) if they mean the same amount and print the same text; `1Gi` and `1024Mi` are equal,
/// `1Gi` and `1073741824` are not, and `+1Gi` is not either. Amounts alone are compared by
/// [`cmp_value`](Self::cmp_value). There is no `Ord`, since it would have to agree with `==`.
///
/// ```
/// use common::quantity::Quantity;
///
/// let request: Quantity = "123456789n".parse()?;
/// assert_eq!(request.milli(), Some(124));
/// assert_eq!((&request + &"1".parse()?).to_string(), "1123456789n");
/// # Ok::<(), common::quantity::QuantityError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Quantity {
    amount: Decimal,
    format: Format,
    /// The text it was parsed from, where Kubernetes would print that instead of the canonical text, and it differs.
    /// Arithmetic loses it.
    spelling: Option<Box<str>>,
}

/// In which units a quantity is printed. Copies and results inherit it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// `500m`, `2`, `3G`: powers of a thousand.
    #[default]
    DecimalSi,
    /// `128Mi`: powers of 1024, as far as the amount is whole and at least 1024.
    BinarySi,
    /// `5e-3`, `3e9`.
    DecimalExponent,
}

/// Why a text is not a quantity. The first three are Kubernetes' own words, which users and vectors know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not of the form number and suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// A suffix that names nothing.
    #[error("unable to parse quantity's suffix")]
    Suffix,
    /// No digits where there should be some.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// More than ten thousand digits.
    #[error("quantity is too long: use at most 10000 digits and an exponent of at most 10000")]
    TooLong,
}

impl Quantity {
    /// Nothing, in a format.
    #[must_use]
    pub const fn zero(format: Format) -> Self {
        Self {
            amount: Decimal::ZERO,
            format,
            spelling: None,
        }
    }

    /// A number of whole units: cores, bytes.
    #[must_use]
    pub fn from_units(units: i64, format: Format) -> Self {
        Self::exact(Decimal::new(units, UNITS), format)
    }

    /// A number of thousandths: millicores.
    #[must_use]
    pub fn from_milli(milli: i64, format: Format) -> Self {
        Self::exact(Decimal::new(milli, MILLI), format)
    }

    /// The format it prints in.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether it is nothing.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.amount.is_zero()
    }

    /// How it compares with zero.
    #[must_use]
    pub fn sign(&self) -> Ordering {
        self.amount.sign()
    }

    /// How its amount compares with another, whatever their formats and spellings.
    #[must_use]
    pub fn cmp_value(&self, other: &Self) -> Ordering {
        self.amount.compare(&other.amount)
    }

    /// Whether both are the same amount.
    #[must_use]
    pub fn same_value(&self, other: &Self) -> bool {
        self.cmp_value(other).is_eq()
    }

    /// The larger amount; this one if they are the same.
    #[must_use]
    pub fn max_value(self, other: Self) -> Self {
        if other.cmp_value(&self).is_gt() {
            other
        } else {
            self
        }
    }

    /// The smaller amount; this one if they are the same.
    #[must_use]
    pub fn min_value(self, other: Self) -> Self {
        if other.cmp_value(&self).is_lt() {
            other
        } else {
            self
        }
    }

    /// Thousandths, a broken one rounded away from zero: 123456789n is 124. `None` if that is no `i64`, where
    /// Kubernetes wraps or collapses to zero.
    #[must_use]
    pub fn milli(&self) -> Option<i64> {
        self.amount.rounded_away(MILLI).to_i64()
    }

    /// Thousandths as Kubernetes computes them, for results that must be those of programs built on it
    /// (`spec/sidecarset.md` 3.6). It is [`milli`](Self::milli) except for negative amounts that Kubernetes holds in
    /// arbitrary precision, such as -10.5Gi: a broken thousandth makes them two too large, and there is `None` where
    /// they wrap.
    #[must_use]
    pub fn milli_as_kubernetes(&self) -> Option<i64> {
        self.amount.as_kubernetes_rounds(MILLI)
    }

    /// Whole units, a broken one rounded away from zero. `None` if that is no `i64`.
    #[must_use]
    pub fn units(&self) -> Option<i64> {
        self.amount.rounded_away(UNITS).to_i64()
    }

    /// Whether it can be said in thousandths without rounding.
    #[must_use]
    pub fn is_whole_milli(&self) -> bool {
        self.amount.is_whole_at(MILLI)
    }

    /// Whether it can be said in whole units without rounding.
    #[must_use]
    pub fn is_whole_units(&self) -> bool {
        self.amount.is_whole_at(UNITS)
    }

    /// The same, with broken units rounded away from zero. What is whole stays as it is, spelling included.
    #[must_use]
    pub fn rounded_up_to_units(&self) -> Self {
        if self.is_whole_units() {
            return self.clone();
        }
        Self::exact(Decimal::new(self.amount.rounded_away(UNITS), UNITS), self.format)
    }

    /// About this many units. For display and statistics; decisions are made on exact amounts.
    #[must_use]
    pub fn approximate_f64(&self) -> f64 {
        self.amount.approximate_f64()
    }

    /// The same amount and format without the spelling it came with.
    #[must_use]
    pub fn canonical(mut self) -> Self {
        self.spelling = None;
        self
    }

    /// The same amount printed in another format.
    #[must_use]
    pub fn with_format(mut self, format: Format) -> Self {
        self.format = format;
        self.canonical()
    }

    fn exact(amount: Decimal, format: Format) -> Self {
        Self {
            amount,
            format,
            spelling: None,
        }
    }

    /// A zero has no opinion on the format of a result (`spec/sidecarset.md` 3.6).
    fn result_format(&self, other: &Self) -> Format {
        if self.is_zero() { other.format } else { self.format }
    }
}

impl Format {
    /// The name Kubernetes gives it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DecimalSi => "DecimalSI",
            Self::BinarySi => "BinarySI",
            Self::DecimalExponent => "DecimalExponent",
        }
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Self::zero(Format::default())
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.format == other.format && self.spelling == other.spelling && self.same_value(other)
    }
}

impl Eq for Quantity {}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse::parse(text)
    }
}

impl Add for &Quantity {
    type Output = Quantity;

    fn add(self, other: Self) -> Quantity {
        Quantity::exact(self.amount.plus(&other.amount), self.result_format(other))
    }
}

impl Sub for &Quantity {
    type Output = Quantity;

    fn sub(self, other: Self) -> Quantity {
        Quantity::exact(
            self.amount.plus(&other.amount.negated()),
            self.result_format(other),
        )
    }
}

impl Neg for &Quantity {
    type Output = Quantity;

    fn neg(self) -> Quantity {
        Quantity::exact(self.amount.negated(), self.format)
    }
}
