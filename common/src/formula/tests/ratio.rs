//! Exact fractions, and the way from them to doubles by the book: the second evaluator trusts no floating point.

use num_bigint::{BigInt, BigUint, Sign};

/// `numerator ÷ denominator`, not in lowest terms.
#[derive(Clone, Debug)]
pub(super) struct Ratio {
    numerator: BigInt,
    denominator: BigUint,
}

impl Ratio {
    pub(super) fn new(numerator: impl Into<BigInt>, denominator: impl Into<BigUint>) -> Self {
        Self {
            numerator: numerator.into(),
            denominator: denominator.into(),
        }
    }

    /// A plain decimal number, with an exponent or without.
    pub(super) fn decimal(text: &str) -> Self {
        let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let exponent = exponent.parse::<i64>().unwrap() - i64::try_from(fraction.len()).unwrap();
        let digits: BigInt = format!("0{whole}{fraction}").parse().unwrap();
        let power = BigUint::from(10_u8).pow(u32::try_from(exponent.unsigned_abs()).unwrap());
        if exponent < 0 {
            Self::new(digits, power)
        } else {
            Self::new(digits * BigInt::from(power), 1_u8)
        }
    }

    /// What a finite double is.
    pub(super) fn of_double(number: f64) -> Self {
        let bits = number.to_bits();
        let field = (bits >> 52) & 0x7ff;
        let fraction = bits & ((1 << 52) - 1);
        let (mantissa, exponent) = match field {
            0 => (fraction, -1074),
            _ => (fraction | (1 << 52), i64::try_from(field).unwrap() - 1075),
        };
        let power = BigUint::from(1_u8) << exponent.unsigned_abs();
        let size = if exponent < 0 {
            Self::new(mantissa, power)
        } else {
            Self::new(BigInt::from(mantissa) * BigInt::from(power), 1_u8)
        };
        if number.is_sign_negative() {
            size.negated()
        } else {
            size
        }
    }

    /// The nearest double, the even one of two; `None` if it would be infinite.
    pub(super) fn to_double(&self) -> Option<f64> {
        let (size, divisor) = (self.numerator.magnitude(), &self.denominator);
        if size.bits() == 0 {
            return Some(0.0);
        }
        let bits = |n: &BigUint| i64::try_from(n.bits()).unwrap();
        let mut exponent = (bits(size) - bits(divisor) - 53).max(-1074);
        let (quotient, rest, divisor) = loop {
            let shift = BigUint::from(1_u8) << exponent.unsigned_abs();
            let (upper, lower) = if exponent < 0 {
                (size * shift, divisor.clone())
            } else {
                (size.clone(), divisor * shift)
            };
            let quotient = &upper / &lower;
            if quotient.bits() <= 53 {
                break (
                    u64::try_from(&quotient).unwrap(),
                    &upper - &quotient * &lower,
                    lower,
                );
            }
            exponent += 1;
        };
        let up = match (rest * 2_u8).cmp(&divisor) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Equal => quotient % 2,
            std::cmp::Ordering::Greater => 1,
        };
        let (mut mantissa, mut field) = (quotient + up, exponent + 1075);
        if mantissa == 1 << 53 {
            (mantissa, field) = (1 << 52, field + 1);
        }
        if mantissa < 1 << 52 {
            field = 0;
        }
        if field >= 2047 {
            return None;
        }
        let size = f64::from_bits(u64::try_from(field).unwrap() << 52 | (mantissa & ((1 << 52) - 1)));
        Some(if self.is_negative() { -size } else { size })
    }

    /// The whole number next to it on the side of zero.
    pub(super) fn truncated(&self) -> BigInt {
        &self.numerator / BigInt::from(self.denominator.clone())
    }

    /// The whole number next to it on the side away from zero, or itself.
    pub(super) fn away(&self) -> BigInt {
        let divisor = BigInt::from(self.denominator.clone());
        let whole = self.truncated();
        match (&self.numerator - &whole * divisor).sign() {
            Sign::NoSign => whole,
            Sign::Plus => whole + 1,
            Sign::Minus => whole - 1,
        }
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        let (a, b) = (
            BigInt::from(self.denominator.clone()),
            BigInt::from(other.denominator.clone()),
        );
        Self::new(
            &self.numerator * &b + &other.numerator * &a,
            &self.denominator * &other.denominator,
        )
    }

    pub(super) fn times(&self, other: &Self) -> Self {
        Self::new(
            &self.numerator * &other.numerator,
            &self.denominator * &other.denominator,
        )
    }

    /// The other must not be zero.
    pub(super) fn over(&self, other: &Self) -> Self {
        let sign = BigInt::from_biguint(other.numerator.sign(), 1_u8.into());
        Self::new(
            &self.numerator * BigInt::from(other.denominator.clone()) * sign,
            &self.denominator * other.numerator.magnitude(),
        )
    }

    pub(super) fn negated(&self) -> Self {
        Self::new(-&self.numerator, self.denominator.clone())
    }

    pub(super) fn is_negative(&self) -> bool {
        self.numerator.sign() == Sign::Minus
    }

    pub(super) fn is_zero(&self) -> bool {
        self.numerator.sign() == Sign::NoSign
    }

    pub(super) fn is_less_than(&self, other: &Self) -> bool {
        self.plus(&other.negated()).is_negative()
    }
}

#[test]
fn doubles_come_and_go() {
    for number in [
        0.0,
        1.0,
        -0.1,
        1e308,
        f64::MAX,
        f64::MIN_POSITIVE,
        5e-324,
        1.0 / 3.0,
        9_007_199_254_740_993.0,
    ] {
        assert_eq!(Ratio::of_double(number).to_double(), Some(number));
    }
    for text in [
        "0.1",
        "1e23",
        "2.2250738585072011e-308",
        "9007199254740993",
        "4.9e-324",
        "2e-324",
        "0.3e1",
    ] {
        assert_eq!(Ratio::decimal(text).to_double(), text.parse().ok(), "{text}");
    }
    assert_eq!(Ratio::decimal("1.8e308").to_double(), None);
}
