//! How much a container uses, as a pure function of time, of its workload's traffic and of a seed.

use std::{f64::consts::TAU, time::Duration};

use chrono::{DateTime, Timelike, Utc};

use crate::sandbox::api::mix;

/// An amount over time: cores, bytes, or requests per second. It is written as the module [`super`] says.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// Always the same.
    Constant(f64),
    /// A sine over the day (UTC), highest at `peak` after midnight and lowest twelve hours later.
    Daily {
        /// The least.
        low: f64,
        /// The most.
        high: f64,
        /// The time of day of the most.
        peak: Duration,
    },
    /// A straight line since the load was told, then level.
    Ramp {
        /// At the beginning.
        from: f64,
        /// At the end and from then on.
        to: f64,
        /// How long it takes.
        over: Duration,
    },
    /// High for a while at the end of every period since the load was told, low otherwise.
    Burst {
        /// Between the bursts.
        low: f64,
        /// In a burst.
        high: f64,
        /// From one burst's end to the next one's.
        every: Duration,
        /// How long a burst is.
        lasting: Duration,
    },
    /// Grows without end since the container started.
    Leak {
        /// At the start.
        start: f64,
        /// How much is added in an hour.
        per_hour: f64,
    },
    /// The workload's traffic, divided by its ready pods.
    Traffic,
    /// A factor around 1, at most this part away from it, new every [`NOISE_SECONDS`].
    Noise(f64),
    /// All of them together.
    Sum(Vec<Load>),
    /// One times the other.
    Product(Vec<Load>),
}

/// How long a draw of [`Load::Noise`] holds.
pub const NOISE_SECONDS: i64 = 15;

/// For when and whom a load is asked.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The time.
    pub now: DateTime<Utc>,
    /// When the load was told.
    pub told: DateTime<Utc>,
    /// When the container started.
    pub started: DateTime<Utc>,
    /// The traffic of one pod.
    pub traffic: f64,
    /// Decides the noise.
    pub seed: u64,
}

impl Load {
    /// The amount at a moment.
    #[must_use]
    pub fn at(&self, moment: &Moment) -> f64 {
        let age = (moment.now - moment.told).as_seconds_f64().max(0.0);
        match self {
            Self::Constant(amount) => *amount,
            Self::Daily { low, high, peak } => {
                let second = f64::from(moment.now.num_seconds_from_midnight());
                let turn = (second - peak.as_secs_f64()) / 86_400.0 * TAU;
                low.midpoint(*high) + (high - low) / 2.0 * turn.cos()
            }
            Self::Ramp { from, to, over } => {
                let part = if over.is_zero() {
                    1.0
                } else {
                    (age / over.as_secs_f64()).min(1.0)
                };
                from + (to - from) * part
            }
            Self::Burst {
                low,
                high,
                every,
                lasting,
            } => {
                let into = age % every.as_secs_f64().max(1e-3);
                if into >= every.saturating_sub(*lasting).as_secs_f64() {
                    *high
                } else {
                    *low
                }
            }
            Self::Leak { start, per_hour } => {
                let hours = (moment.now - moment.started).as_seconds_f64().max(0.0) / 3600.0;
                start + per_hour * hours
            }
            Self::Traffic => moment.traffic,
            Self::Noise(part) => {
                let draw = moment.now.timestamp().div_euclid(NOISE_SECONDS).cast_unsigned();
                let bits = u32::try_from(mix(moment.seed ^ mix(draw)) >> 32).unwrap_or(u32::MAX);
                1.0 + part * (f64::from(bits) / f64::from(u32::MAX) * 2.0 - 1.0)
            }
            Self::Sum(parts) => parts.iter().map(|part| part.at(moment)).sum(),
            Self::Product(parts) => parts.iter().map(|part| part.at(moment)).product(),
        }
    }

    /// What it never passes; `traffic` is the same for the traffic. Amounts are never negative, so this is monotone.
    #[must_use]
    pub fn ceiling(&self, traffic: f64) -> f64 {
        match self {
            Self::Constant(amount) => *amount,
            Self::Daily { low, high, .. } | Self::Burst { low, high, .. } => low.max(*high),
            Self::Ramp { from, to, .. } => from.max(*to),
            Self::Leak { start, per_hour } if *per_hour <= 0.0 => *start,
            Self::Leak { .. } => f64::INFINITY,
            Self::Traffic => traffic,
            Self::Noise(part) => 1.0 + part,
            Self::Sum(parts) => parts.iter().map(|part| part.ceiling(traffic)).sum(),
            Self::Product(parts) => parts.iter().map(|part| part.ceiling(traffic)).product(),
        }
    }

    /// Whether it depends on the traffic.
    #[must_use]
    pub fn follows_traffic(&self) -> bool {
        match self {
            Self::Traffic => true,
            Self::Sum(parts) | Self::Product(parts) => parts.iter().any(Self::follows_traffic),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::TimeDelta;

    #[test]
    fn the_shapes_over_time() {
        // Sunday, 2026-03-01 12:00:00 UTC.
        let noon = DateTime::from_timestamp(1_772_366_400, 0).unwrap();
        let minutes = |minutes| noon + TimeDelta::minutes(minutes);
        let table: &[(&str, &[(i64, f64)])] = &[
            ("100m", &[(0, 0.1), (9999, 0.1)]),
            (
                "daily(100, 500, 14h)",
                &[(120, 500.0), (480, 300.0), (840, 100.0), (1560, 500.0)],
            ),
            (
                "ramp(10, 30, 1h)",
                &[(-5, 10.0), (0, 10.0), (30, 20.0), (60, 30.0), (600, 30.0)],
            ),
            ("ramp(10, 30, 0s)", &[(0, 30.0)]),
            (
                "burst(1, 9, 1h, 10min)",
                &[(0, 1.0), (49, 1.0), (50, 9.0), (59, 9.0), (60, 1.0), (110, 9.0)],
            ),
            ("leak(100, 60)", &[(0, 90.0 + 20.0), (30, 140.0)]),
            ("traffic", &[(0, 8.0)]),
            ("20 + 2 * traffic", &[(0, 36.0)]),
            ("(20 + 2) * traffic * 50%", &[(0, 88.0)]),
        ];
        for (text, points) in table {
            let load: Load = text.parse().unwrap();
            for (at, expected) in *points {
                let moment = Moment {
                    now: minutes(*at),
                    told: noon,
                    started: minutes(-10),
                    traffic: 8.0,
                    seed: 1,
                };
                let found = load.at(&moment);
                assert!(
                    (found - expected).abs() < 1e-6,
                    "{text} after {at} min: {found}, not {expected}"
                );
                assert!(found <= load.ceiling(8.0) + 1e-9, "{text} passes its ceiling");
            }
        }
    }

    #[test]
    fn noise_is_the_same_for_the_same_seed_and_within_bounds() {
        let load: Load = "100 * noise(10%)".parse().unwrap();
        let at = |seconds: i64, seed| {
            let now = DateTime::from_timestamp(seconds, 0).unwrap();
            load.at(&Moment {
                now,
                told: now,
                started: now,
                traffic: 0.0,
                seed,
            })
        };
        let all: Vec<_> = (0..1000).map(|n| at(n * NOISE_SECONDS, 7)).collect();
        assert_eq!(
            all,
            (0..1000)
                .map(|n| at(n * NOISE_SECONDS + 14, 7))
                .collect::<Vec<_>>()
        );
        assert_ne!(at(0, 7), at(0, 8));
        assert!(all.iter().all(|one| (90.0..=110.0).contains(one)));
        let mean = all.iter().sum::<f64>() / 1000.0;
        assert!((99.0..101.0).contains(&mean), "{mean}");
        assert!(all.iter().any(|one| *one < 92.0) && all.iter().any(|one| *one > 108.0));
    }
}
