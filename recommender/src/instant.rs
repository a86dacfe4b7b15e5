//! Arithmetic on times that no input can break: differences and sums beyond what a type holds end at its end.

use chrono::{DateTime, TimeDelta, Utc};

/// The year 1, which is where VPA's clock starts and what an absent time means to it.
pub(crate) const NEVER: DateTime<Utc> = match DateTime::from_timestamp(-62_135_596_800, 0) {
    Some(time) => time,
    None => DateTime::UNIX_EPOCH,
};

/// Nanoseconds since 1970.
pub(crate) fn nanos(time: DateTime<Utc>) -> i128 {
    i128::from(time.timestamp()) * 1_000_000_000 + i128::from(time.timestamp_subsec_nanos())
}

/// The time that many nanoseconds after 1970, or the nearest one that can be told.
pub(crate) fn at(nanos: i128) -> DateTime<Utc> {
    let end = if nanos < 0 {
        DateTime::<Utc>::MIN_UTC
    } else {
        DateTime::<Utc>::MAX_UTC
    };
    let rest = u32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or(0);
    i64::try_from(nanos.div_euclid(1_000_000_000))
        .ok()
        .and_then(|seconds| DateTime::from_timestamp(seconds, rest))
        .unwrap_or(end)
}

/// Nanoseconds from one time to another; beyond 292 years the largest number of them.
pub(crate) fn since(later: DateTime<Utc>, earlier: DateTime<Utc>) -> i64 {
    saturate(nanos(later) - nanos(earlier))
}

/// A length in nanoseconds; beyond 292 years the largest number of them.
pub(crate) fn length(delta: TimeDelta) -> i64 {
    saturate(i128::from(delta.num_seconds()) * 1_000_000_000 + i128::from(delta.subsec_nanos()))
}

/// A time moved by a length.
pub(crate) fn plus(time: DateTime<Utc>, delta: TimeDelta) -> DateTime<Utc> {
    at(nanos(time) + i128::from(length(delta)))
}

/// A time moved back by a length.
pub(crate) fn minus(time: DateTime<Utc>, delta: TimeDelta) -> DateTime<Utc> {
    at(nanos(time) - i128::from(length(delta)))
}

/// A length taken several times; beyond 292 years the longest one.
pub(crate) fn times(delta: TimeDelta, count: i64) -> TimeDelta {
    TimeDelta::nanoseconds(saturate(i128::from(length(delta)) * i128::from(count)))
}

fn saturate(nanos: i128) -> i64 {
    i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ends_hold() {
        let (min, max) = (DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC);
        assert_eq!(since(max, min), i64::MAX);
        assert_eq!(since(min, max), i64::MIN);
        assert_eq!(at(i128::MAX), max);
        assert_eq!(at(i128::MIN), min);
        assert_eq!(plus(max, TimeDelta::MAX), max);
        assert_eq!(plus(min, TimeDelta::MIN), min);
        assert_eq!(minus(max, TimeDelta::MIN), max);
        assert_eq!(length(TimeDelta::MAX), i64::MAX);
        assert_eq!(length(times(TimeDelta::days(1), i64::MIN)), i64::MIN);
    }

    proptest! {
        #[test]
        fn there_and_back(nanos_since_1970 in any::<i64>(), delta in any::<i64>()) {
            let time = at(i128::from(nanos_since_1970));
            prop_assert_eq!(nanos(time), i128::from(nanos_since_1970));
            prop_assert_eq!(length(TimeDelta::nanoseconds(delta)), delta);
            let delta = TimeDelta::nanoseconds(delta);
            prop_assert_eq!(nanos(plus(time, delta)), nanos(time) + i128::from(length(delta)));
            prop_assert_eq!(minus(plus(time, delta), delta), time);
        }
    }
}
