//! Durations as Go writes them on command lines and in messages: `15s`, `1h30m`, `1.5h`.
//! One newtype reads and prints them, so that manifests written for VPA keep working.

use std::{fmt, str::FromStr, time::Duration};

/// A duration in Go's notation. Never negative, and at most what Go can hold (292 years).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(pub Duration);

impl From<GoDuration> for Duration {
    fn from(duration: GoDuration) -> Self {
        duration.0
    }
}

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not of the form "number unit, number unit, …".
    #[error("invalid duration {0:?}: write numbers with units, such as 15s, 1m30s, 100ms or 1.5h")]
    Invalid(String),
    /// A number alone.
    #[error("missing unit in duration {0:?}: write for example {0}s or {0}m")]
    MissingUnit(String),
    /// A unit that does not exist.
    #[error("unknown unit {unit:?} in duration {text:?}: use ns, us, ms, s, m or h")]
    UnknownUnit {
        /// The whole text.
        text: String,
        /// The unit in it.
        unit: String,
    },
    /// Below zero.
    #[error("duration {0:?} is negative: nothing here can take less than no time")]
    Negative(String),
    /// More than Go's 64 bits of nanoseconds.
    #[error("duration {0:?} is too long: the longest is about 292 years")]
    TooLong(String),
}

const NANOS_PER_SECOND: u128 = 1_000_000_000;

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let (negative, unsigned) = match text.as_bytes() {
            [sign @ (b'-' | b'+'), ..] => (*sign == b'-', text.get(1..).unwrap_or("")),
            _ => (false, text),
        };
        let nanos = read_unsigned(unsigned, text)?;
        if negative && nanos > 0 {
            return Err(DurationError::Negative(text.to_owned()));
        }
        i64::try_from(nanos)
            .ok()
            .and_then(|nanos| u64::try_from(nanos).ok())
            .map(|nanos| Self(Duration::from_nanos(nanos)))
            .ok_or_else(|| DurationError::TooLong(text.to_owned()))
    }
}

fn read_unsigned(unsigned: &str, text: &str) -> Result<u128, DurationError> {
    if unsigned == "0" {
        return Ok(0);
    }
    if unsigned.is_empty() {
        return Err(DurationError::Invalid(text.to_owned()));
    }
    let mut nanos = 0;
    let mut rest = unsigned;
    while !rest.is_empty() {
        let (part, tail) = read_part(rest, text)?;
        nanos = u128::saturating_add(nanos, part);
        rest = tail;
    }
    Ok(nanos)
}

/// Reads one number with its unit; gives its nanoseconds and what follows it.
fn read_part<'a>(rest: &'a str, text: &str) -> Result<(u128, &'a str), DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (whole, tail) = split_digits(rest);
    let (fraction, tail) = tail.strip_prefix('.').map_or(("", tail), split_digits);
    if whole.is_empty() && fraction.is_empty() {
        return Err(invalid());
    }
    let unit_end = tail
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(tail.len());
    let (unit, tail) = tail.split_at(unit_end);
    let nanos_per_unit: u128 = match unit {
        "" => return Err(DurationError::MissingUnit(text.to_owned())),
        "ns" => 1,
        // Three spellings of micro: ASCII, the micro sign, and the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => NANOS_PER_SECOND,
        "m" => 60 * NANOS_PER_SECOND,
        "h" => 3_600 * NANOS_PER_SECOND,
        unit => {
            return Err(DurationError::UnknownUnit {
                text: text.to_owned(),
                unit: unit.to_owned(),
            });
        }
    };
    let whole = if whole.is_empty() {
        0
    } else {
        whole
            .parse::<u64>()
            .map_err(|_| DurationError::TooLong(text.to_owned()))?
    };
    // Digits beyond the eighteenth are below a nanosecond of an hour, and Go drops them too.
    let fraction = fraction.get(..18).unwrap_or(fraction);
    let (value, scale) = fraction.bytes().fold((0_u128, 1_u128), |(value, scale), digit| {
        (value * 10 + u128::from(digit - b'0'), scale * 10)
    });
    Ok((
        u128::from(whole) * nanos_per_unit + value * nanos_per_unit / scale,
        tail,
    ))
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        if nanos == 0 {
            return f.write_str("0s");
        }
        if nanos < NANOS_PER_SECOND {
            let (per_unit, unit) = match nanos {
                0..1_000 => (1, "ns"),
                1_000..1_000_000 => (1_000, "µs"),
                _ => (1_000_000, "ms"),
            };
            return write!(f, "{}{unit}", Decimal(nanos, per_unit));
        }
        let minute = 60 * NANOS_PER_SECOND;
        let (hours, minutes) = (nanos / (60 * minute), nanos / minute);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if minutes > 0 {
            write!(f, "{}m", minutes % 60)?;
        }
        write!(f, "{}s", Decimal(nanos % minute, NANOS_PER_SECOND))
    }
}

/// The first number divided by the second, a power of ten, without trailing zeros.
struct Decimal(u128, u128);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value, per_unit) = *self;
        write!(f, "{}", value / per_unit)?;
        let fraction = value % per_unit;
        if fraction == 0 {
            return Ok(());
        }
        // 1 + fraction keeps the leading zeros, and its leading 1 is cut off again.
        let digits = (per_unit + fraction).to_string();
        write!(f, ".{}", digits.get(1..).unwrap_or("").trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_and_prints_as_go_does() {
        for (text, nanos, printed) in [
            ("0", 0, "0s"),
            ("-0", 0, "0s"),
            ("0s", 0, "0s"),
            ("-0s", 0, "0s"),
            ("15s", 15_000_000_000, "15s"),
            ("+5s", 5_000_000_000, "5s"),
            ("1m", 60_000_000_000, "1m0s"),
            ("1h30m", 5_400_000_000_000, "1h30m0s"),
            ("1.5h", 5_400_000_000_000, "1h30m0s"),
            ("100ms", 100_000_000, "100ms"),
            ("1500ms", 1_500_000_000, "1.5s"),
            ("1m0.25s", 60_250_000_000, "1m0.25s"),
            (".5s", 500_000_000, "500ms"),
            ("1.s", 1_000_000_000, "1s"),
            ("24h", 86_400_000_000_000, "24h0m0s"),
            ("1ns", 1, "1ns"),
            ("1100ns", 1_100, "1.1µs"),
            ("2us", 2_000, "2µs"),
            ("2µs", 2_000, "2µs"),
            ("2μs", 2_000, "2µs"),
            ("1.0000000000000000000000000001s", 1_000_000_000, "1s"),
            (
                "9223372036854775807ns",
                i64::MAX as u64,
                "2562047h47m16.854775807s",
            ),
        ] {
            let duration: GoDuration = text.parse().unwrap();
            assert_eq!(duration.0, Duration::from_nanos(nanos), "{text}");
            assert_eq!(duration.to_string(), printed, "{text}");
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, expected) in [
            ("", "invalid duration \"\""),
            ("s", "invalid duration"),
            (".s", "invalid duration"),
            ("+", "invalid duration"),
            ("1 s", "unknown unit \" s\""),
            ("15", "missing unit in duration \"15\": write for example 15s"),
            ("1m15", "missing unit"),
            (
                "1d",
                "unknown unit \"d\" in duration \"1d\": use ns, us, ms, s, m or h",
            ),
            ("1µ", "unknown unit \"µ\""),
            ("-1s", "duration \"-1s\" is negative"),
            ("--1s", "invalid duration \"--1s\""),
            (
                "9223372036854775808ns",
                "duration \"9223372036854775808ns\" is too long",
            ),
            (
                "99999999999999999999s",
                "duration \"99999999999999999999s\" is too long",
            ),
            ("3000000h", "duration \"3000000h\" is too long"),
        ] {
            let error = text.parse::<GoDuration>().unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn printing_and_reading_again_is_the_same(nanos in 0..=i64::MAX) {
            let duration = GoDuration(Duration::from_nanos(nanos.unsigned_abs()));
            prop_assert_eq!(duration.to_string().parse::<GoDuration>().unwrap(), duration);
        }

        #[test]
        fn nothing_panics(text in "[-+0-9.nuµmsh]{0,40}|.{0,20}") {
            let _any = text.parse::<GoDuration>();
        }
    }
}
