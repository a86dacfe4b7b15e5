//! From quantity to text: the canonical form, in lowest terms and without a fraction, or the spelling it came with.

use std::fmt;

use num_bigint::BigInt;

use super::decimal::{Decimal, UNITS};
use super::integer::Integer;
use super::{Format, Quantity};

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.spelling {
            Some(spelling) => f.write_str(spelling),
            None => write_canonical(f, &self.amount, self.format),
        }
    }
}

fn write_canonical(f: &mut fmt::Formatter<'_>, amount: &Decimal, format: Format) -> fmt::Result {
    if amount.is_zero() {
        return f.write_str("0");
    }
    match format {
        Format::BinarySi if reads_as_binary(amount) => write_binary(f, &amount.rounded_away(UNITS)),
        Format::BinarySi | Format::DecimalSi => {
            let exponent = write_thousands(f, amount)?;
            f.write_str(decimal_suffix(exponent))
        }
        Format::DecimalExponent => match write_thousands(f, amount)? {
            0 => Ok(()),
            exponent => write!(f, "e{exponent}"),
        },
    }
}

/// What is broken or small reads better in decimal units, so Kubernetes writes `102400m` and `512`.
fn reads_as_binary(amount: &Decimal) -> bool {
    amount.is_whole_at(UNITS)
        && match amount.rounded_away(UNITS) {
            Integer::Small(units) => units.unsigned_abs() >= 1024,
            Integer::Big(_) => true,
        }
}

fn write_binary(f: &mut fmt::Formatter<'_>, units: &Integer) -> fmt::Result {
    match units {
        Integer::Small(n) => {
            let steps = n.trailing_zeros() / 10;
            write!(f, "{}{}", n >> (steps * 10), binary_suffix(u64::from(steps)))
        }
        Integer::Big(n) => {
            let steps = n.trailing_zeros().unwrap_or(0) / 10;
            let divisor = BigInt::from(1) << (steps * 10);
            write!(f, "{}{}", n.as_ref() / divisor, binary_suffix(steps))
        }
    }
}

/// Writes the digits for the largest power of a thousand that divides the amount, and returns that power's exponent.
fn write_thousands(f: &mut fmt::Formatter<'_>, amount: &Decimal) -> Result<i32, fmt::Error> {
    let mut exponent = amount.scale;
    match &amount.digits {
        Integer::Small(digits) => {
            let mut digits = i128::from(*digits);
            while digits % 10 == 0 {
                digits /= 10;
                exponent += 1;
            }
            while exponent % 3 != 0 {
                digits *= 10;
                exponent -= 1;
            }
            write!(f, "{digits}")?;
        }
        Integer::Big(digits) => {
            let text = digits.to_string();
            let lowest = text.trim_end_matches('0');
            exponent += i32::try_from(text.len() - lowest.len()).map_err(|_| fmt::Error)?;
            let zeros = usize::try_from(exponent.rem_euclid(3)).map_err(|_| fmt::Error)?;
            f.write_str(lowest)?;
            f.write_str(&"00"[..zeros])?;
            exponent -= exponent.rem_euclid(3);
        }
    }
    Ok(exponent)
}

/// There is no name beyond `E`. Kubernetes then prints the digits alone, so that 1000E reads `1`, and the API server
/// stores it so: whatever is written instead comes back as this.
fn decimal_suffix(exponent: i32) -> &'static str {
    match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        18 => "E",
        _ => "",
    }
}

fn binary_suffix(steps: u64) -> &'static str {
    match steps {
        1 => "Ki",
        2 => "Mi",
        3 => "Gi",
        4 => "Ti",
        5 => "Pi",
        6 => "Ei",
        _ => "",
    }
}
