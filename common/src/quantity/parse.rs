//! From text to quantity: sign, digits with at most one point, and a suffix that names a power of ten or two.

use std::cmp::Ordering::{Greater, Less};

use num_bigint::BigInt;

use super::decimal::{Decimal, NANO, UNITS};
use super::integer::Integer;
use super::{Format, Quantity, QuantityError};

/// The largest number of written digits, and the largest exponent. Kubernetes has no bound and computes for minutes
/// on `1e-2147483648`; from a few dozen digits on no number means anything.
pub(super) const MAX_DIGITS: i64 = 10_000;

/// Numbers of up to this many digits are always an `i64`.
const I64_DIGITS: usize = 18;

pub(super) fn parse(text: &str) -> Result<Quantity, QuantityError> {
    let number = Number::split(text)?;
    let suffix = Suffix::read(number.suffix)?;
    if number.is_short(suffix) {
        number.parse_short(text, suffix)
    } else {
        number.parse_long(suffix)
    }
}

/// The pieces of a quantity's text.
#[derive(Clone, Copy)]
struct Number<'a> {
    plus: bool,
    minus: bool,
    /// Digits before the point, with their leading zeros.
    whole: &'a [u8],
    point: bool,
    fraction: &'a [u8],
    suffix: &'a [u8],
}

#[derive(Clone, Copy)]
enum Suffix {
    /// `n` … `E`, or none.
    Decimal { exponent: i64 },
    /// `Ki` … `Ei`.
    Binary { bits: u32 },
    /// `e3`, `E-9`; `canonical` if it is spelled as it would be printed.
    Exponent { exponent: i64, canonical: bool },
}

impl<'a> Number<'a> {
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        let bytes = text.as_bytes();
        let (plus, minus, rest) = match bytes {
            [] => return Err(QuantityError::Format),
            [b'+', rest @ ..] => (true, false, rest),
            [b'-', rest @ ..] => (false, true, rest),
            _ => (false, false, bytes),
        };
        let (whole, rest) = take_while(rest, |b| b.is_ascii_digit());
        let (point, rest) = match rest {
            [b'.', rest @ ..] => (true, rest),
            _ => (false, rest),
        };
        let (fraction, suffix) = if point {
            take_while(rest, |b| b.is_ascii_digit())
        } else {
            (&[][..], rest)
        };

        let (_, rest) = take_while(suffix, |b| b"eEinumkKMGTP".contains(&b));
        let rest = match rest {
            [b'+' | b'-', rest @ ..] => rest,
            _ => rest,
        };
        match take_while(rest, |b| b.is_ascii_digit()) {
            (_, []) => Ok(Self {
                plus,
                minus,
                whole,
                point,
                fraction,
                suffix,
            }),
            _ => Err(QuantityError::Format),
        }
    }

    /// The digits before the point that count.
    fn significant(&self) -> &'a [u8] {
        take_while(self.whole, |b| b == b'0').1
    }

    /// Whether Kubernetes holds the number as a machine integer and a power of ten. It does by the number of digits
    /// (a missing whole part counts as one), and that decides three visible things: which text without any digit is
    /// a zero, which texts keep their spelling, and from which form the approximate double is computed.
    fn is_short(&self, suffix: Suffix) -> bool {
        let digits = self.significant().len().max(1) + self.fraction.len();
        match suffix {
            Suffix::Decimal { exponent } | Suffix::Exponent { exponent, .. } => {
                digits <= I64_DIGITS && exponent.saturating_sub(length(self.fraction)) >= i64::from(NANO)
            }
            Suffix::Binary { bits } => {
                // Three decimal digits for ten bits; fifteen decimal digits in all.
                self.fraction.is_empty() && digits + usize::try_from(bits / 10 * 3).unwrap_or(usize::MAX) < 15
            }
        }
    }

    fn parse_short(&self, text: &str, suffix: Suffix) -> Result<Quantity, QuantityError> {
        let format = suffix.format();
        let written = self.significant().iter().chain(self.fraction);
        let magnitude = written.fold(0_i64, |n, digit| n * 10 + i64::from(digit - b'0'));
        if magnitude == 0 {
            return Ok(Quantity::zero(format));
        }
        let digits = if self.minus { -magnitude } else { magnitude };
        let (amount, lowest_terms) = match suffix {
            Suffix::Binary { bits } => (Decimal::new(digits << bits, UNITS), magnitude % 8 != 0),
            Suffix::Decimal { exponent } | Suffix::Exponent { exponent, .. } => {
                let scale = i32::try_from(exponent.saturating_sub(length(self.fraction)))
                    .ok()
                    .filter(|scale| i64::from(*scale) <= MAX_DIGITS)
                    .ok_or(QuantityError::TooLong)?;
                (
                    Decimal::new(digits, scale),
                    scale % 3 == 0 && magnitude % 1000 != 0,
                )
            }
        };
        // Kubernetes keeps the spelling of what it takes to be in lowest terms already, if it starts with a number.
        let keeps_spelling = lowest_terms && !self.significant().is_empty();
        let spelling = (keeps_spelling && !self.is_canonical(suffix)).then(|| text.into());
        Ok(Quantity {
            amount,
            format,
            spelling,
        })
    }

    /// Whether a text in lowest terms is spelled as it would be printed.
    fn is_canonical(&self, suffix: Suffix) -> bool {
        let plain_exponent = !matches!(suffix, Suffix::Exponent { canonical: false, .. });
        !self.plus && !self.point && self.whole.first() != Some(&b'0') && plain_exponent
    }

    fn parse_long(&self, suffix: Suffix) -> Result<Quantity, QuantityError> {
        if self.whole.is_empty() && self.fraction.is_empty() {
            return Err(QuantityError::Numeric);
        }
        let format = suffix.format();
        let digits = self.digits()?;
        if digits.is_zero() {
            return Ok(Quantity::exact(Decimal::ZERO.unbounded(), format));
        }
        let fraction = length(self.fraction);
        let amount = match suffix {
            Suffix::Decimal { exponent } | Suffix::Exponent { exponent, .. } => {
                Decimal::new(nanos_of(&digits, exponent.saturating_sub(fraction))?, NANO)
            }
            Suffix::Binary { bits } => {
                let scaled = Integer::from(digits.to_big() << bits);
                let amount = Decimal::new(nanos_of(&scaled, -fraction)?, NANO);
                // Kubernetes holds what has a binary suffix within an int64 of whole units, on either side.
                let cap = Decimal::new(if self.minus { -i64::MAX } else { i64::MAX }, UNITS);
                let beyond = amount.compare(&cap) == if self.minus { Less } else { Greater };
                if beyond { cap } else { amount }
            }
        }
        .unbounded();
        // Kubernetes does not count a part of one byte in powers of 1024.
        let format = match format {
            Format::BinarySi if amount.is_below_one() => Format::DecimalSi,
            Format::BinarySi | Format::DecimalSi | Format::DecimalExponent => format,
        };
        Ok(Quantity {
            amount,
            format,
            spelling: None,
        })
    }

    /// All digits as one signed integer.
    fn digits(&self) -> Result<Integer, QuantityError> {
        let written: Vec<u8> = self.significant().iter().chain(self.fraction).copied().collect();
        if length(&written) > MAX_DIGITS {
            return Err(QuantityError::TooLong);
        }
        if written.is_empty() {
            return Ok(Integer::ZERO);
        }
        let number = BigInt::parse_bytes(&written, 10).ok_or(QuantityError::Numeric)?;
        Ok(Integer::from(if self.minus { -number } else { number }))
    }
}

impl Suffix {
    fn read(text: &[u8]) -> Result<Self, QuantityError> {
        let decimal = |exponent| Ok(Self::Decimal { exponent });
        let binary = |bits| Ok(Self::Binary { bits });
        match text {
            b"" => decimal(0),
            b"n" => decimal(-9),
            b"u" => decimal(-6),
            b"m" => decimal(-3),
            b"k" => decimal(3),
            b"M" => decimal(6),
            b"G" => decimal(9),
            b"T" => decimal(12),
            b"P" => decimal(15),
            b"E" => decimal(18),
            b"Ki" => binary(10),
            b"Mi" => binary(20),
            b"Gi" => binary(30),
            b"Ti" => binary(40),
            b"Pi" => binary(50),
            b"Ei" => binary(60),
            [letter @ (b'e' | b'E'), exponent @ ..] => {
                let canonical = *letter == b'e'
                    && match exponent {
                        [b'-', digits @ ..] | digits => !matches!(digits, [b'0' | b'+', ..]),
                    };
                std::str::from_utf8(exponent)
                    .ok()
                    .and_then(|text| text.parse().ok())
                    .map(|exponent| Self::Exponent { exponent, canonical })
                    .ok_or(QuantityError::Suffix)
            }
            _ => Err(QuantityError::Suffix),
        }
    }

    fn format(self) -> Format {
        match self {
            Self::Decimal { .. } => Format::DecimalSi,
            Self::Binary { .. } => Format::BinarySi,
            Self::Exponent { .. } => Format::DecimalExponent,
        }
    }
}

/// `digits × 10^scale` in nano units; what is finer is rounded away from zero.
fn nanos_of(digits: &Integer, scale: i64) -> Result<Integer, QuantityError> {
    let shift = scale.saturating_sub(i64::from(NANO));
    if shift > MAX_DIGITS {
        return Err(QuantityError::TooLong);
    }
    let power = u32::try_from(shift.unsigned_abs().min(2 * MAX_DIGITS.unsigned_abs())).unwrap_or(u32::MAX);
    Ok(if shift >= 0 {
        digits.times_ten_to(power)
    } else {
        digits.over_ten_to(power)
    })
}

fn take_while(bytes: &[u8], wanted: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    let end = bytes
        .iter()
        .position(|byte| !wanted(*byte))
        .unwrap_or(bytes.len());
    bytes.split_at(end)
}

fn length(bytes: &[u8]) -> i64 {
    i64::try_from(bytes.len()).unwrap_or(i64::MAX)
}
