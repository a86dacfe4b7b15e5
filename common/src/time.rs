//! The one border between the time types of the Kubernetes API (jiff) and ours (chrono).
//! Nothing else in the tree names jiff.

use chrono::{DateTime, Utc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};

/// A Kubernetes time as ours.
#[must_use]
pub fn from_k8s(time: &Time) -> DateTime<Utc> {
    from_jiff(time.0)
}

/// A Kubernetes time with microseconds as ours.
#[must_use]
pub fn from_k8s_micro(time: &MicroTime) -> DateTime<Utc> {
    from_jiff(time.0)
}

/// Our time as a Kubernetes time; the API prints whole seconds of it.
#[must_use]
pub fn to_k8s(time: DateTime<Utc>) -> Time {
    Time(to_jiff(time))
}

/// Our time as a Kubernetes time with microseconds, as leases carry it.
#[must_use]
pub fn to_k8s_micro(time: DateTime<Utc>) -> MicroTime {
    MicroTime(to_jiff(time))
}

fn from_jiff(time: jiff::Timestamp) -> DateTime<Utc> {
    let nanos = u32::try_from(time.subsec_nanosecond()).unwrap_or(0);
    // jiff's range lies inside chrono's, and before 1970 it counts nanoseconds backwards: borrow a second.
    let (seconds, nanos) = if time.subsec_nanosecond() < 0 {
        let borrowed = 1_000_000_000_i32.saturating_add(time.subsec_nanosecond());
        (time.as_second() - 1, u32::try_from(borrowed).unwrap_or(0))
    } else {
        (time.as_second(), nanos)
    };
    DateTime::from_timestamp(seconds, nanos).unwrap_or(DateTime::UNIX_EPOCH)
}

/// Chrono reaches further than jiff (years ±262,000 against ±9,999): such times are clamped, since the API can
/// carry neither.
fn to_jiff(time: DateTime<Utc>) -> jiff::Timestamp {
    let nanos = i32::try_from(time.timestamp_subsec_nanos()).unwrap_or(0);
    jiff::Timestamp::new(time.timestamp(), nanos).unwrap_or(if time.timestamp() < 0 {
        jiff::Timestamp::MIN
    } else {
        jiff::Timestamp::MAX
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_print_as_the_api_prints_them() {
        let time = DateTime::from_timestamp(1_772_359_800, 123_456_789).unwrap();
        assert_eq!(
            serde_json::to_value(to_k8s(time)).unwrap(),
            "2026-03-01T10:10:00Z"
        );
        assert_eq!(
            serde_json::to_value(to_k8s_micro(time)).unwrap(),
            "2026-03-01T10:10:00.123456Z"
        );
    }

    #[test]
    fn a_time_no_api_can_carry_is_clamped() {
        assert_eq!(to_k8s(DateTime::<Utc>::MAX_UTC).0, jiff::Timestamp::MAX);
        assert_eq!(to_k8s(DateTime::<Utc>::MIN_UTC).0, jiff::Timestamp::MIN);
    }

    proptest! {
        #[test]
        fn there_and_back_is_the_same(seconds in -62_135_596_800_i64..=253_402_207_199, nanos in 0_u32..1_000_000_000) {
            let time = DateTime::from_timestamp(seconds, nanos).unwrap();
            prop_assert_eq!(from_k8s(&to_k8s(time)), time);
        }
    }
}
