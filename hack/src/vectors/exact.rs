//! A slow second opinion on quantities: the amount of a text in exact rational arithmetic, written without a look at
//! the fast code, for the places where the original's integers are known to be wrong.

use num_bigint::{BigInt, Sign};

/// The amount of a valid quantity in nano units, rounded away from zero; `None` if the text is not one.
pub(super) fn nanos(text: &str) -> Option<BigInt> {
    let (negative, text) = match text.strip_prefix(['+', '-']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: BigInt = format!("0{whole}{fraction}").parse().ok()?;

    let (factor, exponent) = power(suffix)?;
    let exponent = exponent + 9 - i64::try_from(fraction.len()).ok()?;
    // Any more negative power makes the same single nano of it, or nothing.
    let shift = u32::try_from(exponent.unsigned_abs().min(30_000)).ok()?;
    let mut size = digits * factor;
    if exponent >= 0 {
        size *= BigInt::from(10).pow(shift);
    } else {
        size = over(&size, &BigInt::from(10).pow(shift));
    }
    if suffix.ends_with('i') {
        size = size.min(BigInt::from(i64::MAX) * 1_000_000_000);
    }
    Some(if negative { -size } else { size })
}

/// `n ÷ unit` rounded away from zero.
pub(super) fn over(n: &BigInt, unit: &BigInt) -> BigInt {
    let quotient = n / unit;
    let rest = n % unit;
    match rest.sign() {
        Sign::Plus => quotient + 1,
        Sign::Minus => quotient - 1,
        Sign::NoSign => quotient,
    }
}

/// A suffix as a factor and a power of ten.
fn power(suffix: &str) -> Option<(BigInt, i64)> {
    let one = BigInt::from(1);
    if let Some(exponent) = suffix
        .strip_prefix(['e', 'E'])
        .filter(|rest| !matches!(*rest, "" | "i"))
    {
        return Some((one, exponent.parse().ok()?));
    }
    let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"]
        .iter()
        .position(|name| *name == suffix);
    let binary = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
        .iter()
        .position(|name| *name == suffix);
    match (decimal, binary) {
        (Some(step), _) => Some((one, 3 * i64::try_from(step).ok()? - 9)),
        (None, Some(step)) => Some((one << (10 * step), 0)),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact() {
        let cases = [
            ("1", 1_000_000_000_i128),
            ("-1.5m", -1_500_000),
            ("0.1n", 1),
            ("-1e-100", -1),
            ("1Ki", 1_024_000_000_000),
            ("1.1Ki", 1_126_400_000_000),
            ("1E", 1_000_000_000_000_000_000_000_000_000),
            ("8Ei", 9_223_372_036_854_775_807_000_000_000),
            ("2e3", 2_000_000_000_000),
            (".", 0),
        ];
        for (text, amount) in cases {
            assert_eq!(nanos(text), Some(BigInt::from(amount)), "{text}");
        }
        assert_eq!(nanos("1K"), None);
    }
}
