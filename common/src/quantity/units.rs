//! The two resources as the model computes with them: whole millicores and whole bytes. They never wrap.

use super::{Format, Quantity};

/// CPU in thousandths of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MilliCpu(pub i64);

/// Memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub i64);

/// Which whole number a broken result becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// The next smaller one.
    Floor,
    /// The next larger one.
    Ceil,
}

/// A number that was scaled by a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaled<T> {
    /// The result, or the largest number there is if it does not fit.
    pub value: T,
    /// Whether it did not fit.
    pub overflowed: bool,
}

macro_rules! unit {
    ($unit:ident, $of_quantity:ident, $to_quantity:ident, $format:expr) => {
        impl $unit {
            /// None of it.
            pub const ZERO: Self = Self(0);
            /// The most that can be said.
            pub const MAX: Self = Self(i64::MAX);

            /// A quantity in this unit, a broken one rounded away from zero; `None` if it does not fit.
            #[must_use]
            pub fn checked_from_quantity(quantity: &Quantity) -> Option<Self> {
                quantity.$of_quantity().map(Self)
            }

            /// A quantity in this unit, a broken one rounded away from zero, cut to what fits.
            #[must_use]
            pub fn from_quantity(quantity: &Quantity) -> Self {
                Self::checked_from_quantity(quantity).unwrap_or(Self(if quantity.sign().is_lt() {
                    i64::MIN
                } else {
                    i64::MAX
                }))
            }

            /// The quantity in the format this resource is usually written in.
            #[must_use]
            pub fn to_quantity(self) -> Quantity {
                self.to_quantity_as($format)
            }

            /// The quantity in the format of something it was derived from.
            #[must_use]
            pub fn to_quantity_as(self, format: Format) -> Quantity {
                Quantity::$to_quantity(self.0, format)
            }

            /// Whether it is nothing.
            #[must_use]
            pub fn is_zero(self) -> bool {
                self.0 == 0
            }

            /// The sum, or `None` if it does not fit.
            #[must_use]
            pub fn checked_add(self, other: Self) -> Option<Self> {
                self.0.checked_add(other.0).map(Self)
            }

            /// The difference, or `None` if it does not fit.
            #[must_use]
            pub fn checked_sub(self, other: Self) -> Option<Self> {
                self.0.checked_sub(other.0).map(Self)
            }

            /// The sum, cut to what fits.
            #[must_use]
            pub fn saturating_add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }

            /// The difference, cut to what fits.
            #[must_use]
            pub fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }

            /// `self × numerator ÷ denominator`, exact before the rounding (`spec/vpa.md` 4.6, 4.7). `None` if the
            /// denominator is zero.
            #[must_use]
            pub fn scaled(
                self,
                numerator: Self,
                denominator: Self,
                rounding: Rounding,
            ) -> Option<Scaled<Self>> {
                let scaled = scale(self.0, numerator.0, denominator.0, rounding)?;
                Some(Scaled {
                    value: Self(scaled.value),
                    overflowed: scaled.overflowed,
                })
            }
        }
    };
}

unit!(MilliCpu, milli, from_milli, Format::DecimalSi);
unit!(Bytes, units, from_units, Format::BinarySi);

fn scale(value: i64, numerator: i64, denominator: i64, rounding: Rounding) -> Option<Scaled<i64>> {
    if denominator == 0 {
        return None;
    }
    // Two 64-bit factors fit 127 bits and a sign.
    let (product, divisor) = (i128::from(value) * i128::from(numerator), i128::from(denominator));
    let (quotient, broken) = (product / divisor, product % divisor != 0);
    let negative = (product < 0) != (divisor < 0);
    let rounded = match rounding {
        Rounding::Floor if broken && negative => quotient - 1,
        Rounding::Ceil if broken && !negative => quotient + 1,
        Rounding::Floor | Rounding::Ceil => quotient,
    };
    Some(match i64::try_from(rounded) {
        Ok(value) => Scaled {
            value,
            overflowed: false,
        },
        Err(_) => Scaled {
            value: i64::MAX,
            overflowed: true,
        },
    })
}
