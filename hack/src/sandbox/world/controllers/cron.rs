//! Schedules of five fields (minute, hour, day, month, weekday), in UTC, with lists, ranges, steps, names and the usual
//! macros.

use std::str::FromStr;

use chrono::{DateTime, Datelike, Days, TimeDelta, Timelike, Utc};

/// When something is to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// A day must match both unless both are restricted; then one is enough.
    either_day: bool,
}

/// What is wrong with a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ScheduleError {
    /// Too many or too few.
    #[error("a schedule has five fields (minute hour day month weekday), not {0}")]
    Fields(usize),
    /// One that is not understood.
    #[error("{0:?} is no {1}: use *, a number, a range such as 1-5, a list, or a step such as */5")]
    Field(String, &'static str),
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let text = match text.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        let fields: Vec<_> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields.as_slice() else {
            return Err(ScheduleError::Fields(fields.len()));
        };
        let mut weekdays = bits(weekday, "weekday", 0, 7, &WEEKDAYS)?;
        // Seven is Sunday too.
        weekdays |= (weekdays >> 7) & 1;
        Ok(Self {
            minutes: bits(minute, "minute", 0, 59, &[])?,
            hours: bits(hour, "hour", 0, 23, &[])?,
            days: bits(day, "day of the month", 1, 31, &[])?,
            months: bits(month, "month", 1, 12, &MONTHS)?,
            weekdays,
            either_day: !day.starts_with('*') && !weekday.starts_with('*'),
        })
    }
}

impl Schedule {
    /// The first time after `time`; none if there is none within some years.
    pub(super) fn after(&self, time: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut at = (time + TimeDelta::minutes(1))
            .with_second(0)?
            .with_nanosecond(0)?;
        let end = time + TimeDelta::days(366 * 5);
        while at < end {
            if !self.is_day(at) {
                at = at.checked_add_days(Days::new(1))?.with_hour(0)?.with_minute(0)?;
            } else if self.hours >> at.hour() & 1 == 0 {
                at = (at + TimeDelta::hours(1)).with_minute(0)?;
            } else if self.minutes >> at.minute() & 1 == 0 {
                at += TimeDelta::minutes(1);
            } else {
                return Some(at);
            }
        }
        None
    }

    /// The last time after `since` and not after `until`.
    pub(super) fn last_between(&self, since: DateTime<Utc>, until: DateTime<Utc>) -> Option<DateTime<Utc>> {
        // After a long sleep only the latest is of interest, so the way there may be short.
        let from = since.max(until - TimeDelta::hours(25));
        let found = |from| {
            let times = std::iter::successors(self.after(from), |last| self.after(*last));
            times.take_while(|time| *time <= until).last()
        };
        found(from).or_else(|| found(since))
    }

    fn is_day(&self, at: DateTime<Utc>) -> bool {
        let month = self.months >> at.month() & 1 == 1;
        let day = self.days >> at.day() & 1 == 1;
        let weekday = self.weekdays >> at.weekday().num_days_from_sunday() & 1 == 1;
        month
            && if self.either_day {
                day || weekday
            } else {
                day && weekday
            }
    }
}

fn bits(text: &str, what: &'static str, least: u32, most: u32, names: &[&str]) -> Result<u64, ScheduleError> {
    let bad = || ScheduleError::Field(text.to_owned(), what);
    let number = |text: &str| {
        let name = names.iter().position(|name| text.eq_ignore_ascii_case(name));
        let number = match name {
            Some(at) => u32::try_from(at).ok().map(|at| at + u32::from(least == 1)),
            None => text.parse().ok(),
        };
        number
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(bad)
    };
    let mut bits = 0;
    for part in text.split(',') {
        let (range, step) = part.split_once('/').unwrap_or((part, "1"));
        let step = step
            .parse::<usize>()
            .ok()
            .filter(|step| *step > 0)
            .ok_or_else(bad)?;
        let (from, to) = match range.split_once('-') {
            _ if range == "*" || range == "?" => (least, most),
            Some((from, to)) => (number(from)?, number(to)?),
            None if part.contains('/') => (number(range)?, most),
            None => (number(range)?, number(range)?),
        };
        if from > to {
            return Err(bad());
        }
        (from..=to).step_by(step).for_each(|bit| bits |= 1_u64 << bit);
    }
    Ok(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        DateTime::parse_from_rfc3339(&format!("{text}:00Z"))
            .unwrap()
            .into()
    }

    #[test]
    fn the_next_times() {
        // 2026-03-01 is a Sunday.
        let table = [
            ("* * * * *", "2026-03-01T12:00", "2026-03-01T12:01"),
            ("*/5 * * * *", "2026-03-01T12:00", "2026-03-01T12:05"),
            ("*/5 * * * *", "2026-03-01T12:04", "2026-03-01T12:05"),
            ("30 4 * * *", "2026-03-01T12:00", "2026-03-02T04:30"),
            ("0 9-17/4 * * mon-fri", "2026-03-01T12:00", "2026-03-02T09:00"),
            ("0 9-17/4 * * 1-5", "2026-03-02T13:00", "2026-03-02T17:00"),
            ("0 0 29 2 *", "2026-03-01T12:00", "2028-02-29T00:00"),
            ("0 0 13 * 5", "2026-03-01T12:00", "2026-03-06T00:00"),
            ("0 0 * * 7", "2026-03-01T12:00", "2026-03-08T00:00"),
            ("15,45 * * JAN,Mar *", "2026-03-31T23:50", "2027-01-01T00:15"),
            ("@hourly", "2026-03-01T12:00", "2026-03-01T13:00"),
            ("@monthly", "2026-03-01T12:00", "2026-04-01T00:00"),
        ];
        for (schedule, from, expected) in table {
            let next = schedule.parse::<Schedule>().unwrap().after(at(from));
            assert_eq!(next, Some(at(expected)), "{schedule} after {from}");
        }
        let never: Schedule = "0 0 31 2 *".parse().unwrap();
        assert_eq!(never.after(at("2026-03-01T12:00")), None);
    }

    #[test]
    fn only_the_last_missed_time_counts() {
        let schedule: Schedule = "*/5 * * * *".parse().unwrap();
        let last = |since, until| schedule.last_between(at(since), at(until));
        assert_eq!(last("2026-03-01T12:00", "2026-03-01T12:04"), None);
        assert_eq!(
            last("2026-03-01T12:00", "2026-03-01T12:05"),
            Some(at("2026-03-01T12:05"))
        );
        assert_eq!(
            last("2025-01-01T00:00", "2026-03-01T12:18"),
            Some(at("2026-03-01T12:15"))
        );
    }

    #[test]
    fn what_is_no_schedule() {
        for text in [
            "",
            "* * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "*/0 * * * *",
            "5-1 * * * *",
            "* * * foo *",
        ] {
            assert!(text.parse::<Schedule>().is_err(), "{text}");
        }
    }
}
