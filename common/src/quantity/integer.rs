//! Whole numbers without a bound: an `i64` as long as they fit, heap-allocated beyond. Only what exact decimals need
//! is here: powers of ten, sums and comparison.

use std::cmp::Ordering;

use num_bigint::{BigInt, Sign};

/// An exact integer. `Big` is only used for what does not fit `Small`, so equal numbers look alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Integer {
    /// Everything of a realistic size.
    Small(i64),
    /// The rest.
    Big(Box<BigInt>),
}

impl Integer {
    pub(super) const ZERO: Self = Self::Small(0);

    pub(super) fn sign(&self) -> Ordering {
        match self {
            Self::Small(n) => n.cmp(&0),
            Self::Big(n) => match n.sign() {
                Sign::Minus => Ordering::Less,
                Sign::NoSign => Ordering::Equal,
                Sign::Plus => Ordering::Greater,
            },
        }
    }

    pub(super) fn is_zero(&self) -> bool {
        self.sign() == Ordering::Equal
    }

    /// The number itself if it is an `i64`.
    pub(super) fn to_i64(&self) -> Option<i64> {
        match self {
            Self::Small(n) => Some(*n),
            Self::Big(_) => None,
        }
    }

    pub(super) fn to_big(&self) -> BigInt {
        match self {
            Self::Small(n) => BigInt::from(*n),
            Self::Big(n) => n.as_ref().clone(),
        }
    }

    /// The nearest double; infinite where there is none.
    pub(super) fn to_f64(&self) -> f64 {
        match self {
            #[expect(
                clippy::cast_precision_loss,
                reason = "rounding to the nearest double is the purpose"
            )]
            Self::Small(n) => *n as f64,
            // The decimal text is the one correctly rounding way from a big integer to a double.
            Self::Big(n) => n.to_string().parse().unwrap_or(f64::NAN),
        }
    }

    pub(super) fn negated(&self) -> Self {
        match self {
            Self::Small(n) => Self::from(-i128::from(*n)),
            Self::Big(n) => Self::from(-n.as_ref()),
        }
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Small(a), Self::Small(b)) => Self::from(i128::from(*a) + i128::from(*b)),
            _ => Self::from(self.to_big() + other.to_big()),
        }
    }

    /// `self × 10^power`.
    pub(super) fn times_ten_to(&self, power: u32) -> Self {
        if power == 0 || self.is_zero() {
            return self.clone();
        }
        if let Self::Small(n) = self
            && let Some(factor) = 10_i64.checked_pow(power)
        {
            return Self::from(i128::from(*n) * i128::from(factor));
        }
        Self::from(self.to_big() * ten_to(power))
    }

    /// `self ÷ 10^power`, rounded away from zero.
    pub(super) fn over_ten_to(&self, power: u32) -> Self {
        match self {
            Self::Small(n) => match 10_i64.checked_pow(power) {
                Some(divisor) => {
                    let away = if n % divisor == 0 { 0 } else { n.signum() };
                    Self::Small(n / divisor + away)
                }
                None => Self::Small(n.signum()),
            },
            Self::Big(n) => {
                let divisor = ten_to(power);
                let quotient = n.as_ref() / &divisor;
                if n.as_ref() == &(&quotient * &divisor) {
                    Self::from(quotient)
                } else if n.sign() == Sign::Minus {
                    Self::from(quotient - 1)
                } else {
                    Self::from(quotient + 1)
                }
            }
        }
    }

    /// Whether 10^power divides it.
    pub(super) fn is_multiple_of_ten_to(&self, power: u32) -> bool {
        match self {
            Self::Small(n) => match 10_i64.checked_pow(power) {
                Some(divisor) => n % divisor == 0,
                None => *n == 0,
            },
            Self::Big(n) => (n.as_ref() % ten_to(power)).sign() == Sign::NoSign,
        }
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Small(a), Self::Small(b)) => a.cmp(b),
            (Self::Big(a), Self::Big(b)) => a.cmp(b),
            // What does not fit an i64 is further from zero than everything that does.
            (Self::Big(_), Self::Small(_)) => self.sign(),
            (Self::Small(_), Self::Big(_)) => other.sign().reverse(),
        }
    }
}

impl From<i64> for Integer {
    fn from(n: i64) -> Self {
        Self::Small(n)
    }
}

impl From<i128> for Integer {
    fn from(n: i128) -> Self {
        i64::try_from(n).map_or_else(|_| Self::Big(Box::new(BigInt::from(n))), Self::Small)
    }
}

impl From<BigInt> for Integer {
    fn from(n: BigInt) -> Self {
        i64::try_from(&n).map_or_else(|_| Self::Big(Box::new(n)), Self::Small)
    }
}

fn ten_to(power: u32) -> BigInt {
    BigInt::from(10).pow(power)
}
