//! Which bucket a value falls into and where a bucket starts: exponential buckets, each 5 % wider than the one
//! before (`spec/vpa.md` 2.5).

use super::power::powi;
use crate::num;

/// How many buckets a histogram has, for either resource.
pub const BUCKETS: u8 = 176;

/// The index of the last bucket.
pub(crate) const LAST: u8 = BUCKETS - 1;

const RATIO: f64 = 1.05;

/// What a histogram counts: its unit and the width of its first bucket follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// CPU, in cores.
    Cpu,
    /// Memory, in bytes.
    Memory,
}

impl Resource {
    /// The index of the bucket that holds a value. What is too large falls into the last bucket, what is negative or
    /// not a number into the first.
    #[must_use]
    pub fn bucket(self, value: f64) -> u8 {
        if value.is_nan() || value < self.first() {
            return 0;
        }
        let index = (value * (RATIO - 1.0) / self.first() + 1.0).ln() / RATIO.ln();
        u8::try_from(num::trunc(index)).unwrap_or(LAST).min(LAST)
    }

    /// Where a bucket starts; beyond the last one, where the last one starts.
    #[must_use]
    pub fn start(self, bucket: u8) -> f64 {
        let starts = match self {
            Self::Cpu => &CPU_STARTS,
            Self::Memory => &MEMORY_STARTS,
        };
        starts[usize::from(bucket.min(LAST))]
    }

    const fn first(self) -> f64 {
        match self {
            Self::Cpu => 0.01,
            Self::Memory => 1e7,
        }
    }
}

const COUNT: usize = 176;
const CPU_STARTS: [f64; COUNT] = starts(Resource::Cpu);
const MEMORY_STARTS: [f64; COUNT] = starts(Resource::Memory);

const fn starts(resource: Resource) -> [f64; COUNT] {
    let mut starts = [0.0; COUNT];
    let mut bucket = 1;
    let mut power = 1;
    while bucket < COUNT {
        starts[bucket] = resource.first() * (powi(RATIO, power) - 1.0) / (RATIO - 1.0);
        bucket += 1;
        power += 1;
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_start_where_the_worked_numbers_say() {
        for (bucket, start) in [
            (0, 0.0),
            (1, 0.01),
            (2, 0.020_499_999_999_999_987),
            (3, 0.031_525),
            (4, 0.043_101_249_999_999_966),
            (10, 0.125_778_925_355_488_2),
            (50, 2.093_479_957_150_735),
            (100, 26.100_251_569_260_7),
            (150, 301.395_499_210_608_2),
            (174, 972.475_627_528_437_9),
            (175, 1_021.109_408_904_860_1),
            (200, 1_021.109_408_904_860_1),
        ] {
            assert_eq!(
                Resource::Cpu.start(bucket).to_bits(),
                f64::to_bits(start),
                "bucket {bucket}"
            );
        }
        assert_eq!(num::trunc(Resource::Memory.start(4)), 43_101_249);
    }

    #[test]
    fn values_fall_where_the_worked_numbers_say() {
        for (cores, bucket) in [
            (f64::NEG_INFINITY, 0),
            (-1.0, 0),
            (0.0, 0),
            (0.005, 0),
            (0.01, 1),
            (0.0205, 1),
            (0.5, 25),
            (1.0, 36),
            (7.3, 74),
            (1000.0, 174),
            (2000.0, 175),
            (1e300, 175),
            (f64::INFINITY, 175),
            (f64::NAN, 0),
        ] {
            assert_eq!(Resource::Cpu.bucket(cores), bucket, "{cores}");
        }
    }

    #[test]
    fn the_number_of_buckets_follows_from_the_largest_value() {
        for (resource, largest) in [(Resource::Cpu, 1000.0_f64), (Resource::Memory, 1e12)] {
            let count = (largest * (RATIO - 1.0) / resource.first() + 1.0).ln() / RATIO.ln();
            assert_eq!(num::trunc(count.ceil()) + 1, i64::from(BUCKETS));
        }
    }
}
