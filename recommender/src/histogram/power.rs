//! Two power routines that are not correctly rounded, and must not be: VPA's numbers hang on their last bits
//! (`spec/vpa.md` 2.5), and the platform's routines round differently.

use crate::num;

/// `base^n` by repeated squaring of the mantissa, low bits of `n` first.
#[must_use]
pub(crate) const fn powi(base: f64, n: i32) -> f64 {
    if n == 0 {
        return 1.0;
    }
    if n == 1 || base.is_nan() {
        return base;
    }
    if base.is_infinite() {
        return match (n > 0, base > 0.0 || n % 2 == 0) {
            (true, true) => f64::INFINITY,
            (true, false) => f64::NEG_INFINITY,
            (false, _) => 0.0,
        };
    }
    let (mut square, mut square_exponent) = split(base);
    let (mut mantissa, mut exponent) = (1.0, 0_i32);
    let mut bits = n.unsigned_abs();
    while bits != 0 {
        // Beyond this the result is 0 or infinite whatever follows.
        if square_exponent < -4096 || square_exponent > 4096 {
            exponent = exponent.saturating_add(square_exponent);
            break;
        }
        if bits & 1 == 1 {
            mantissa *= square;
            exponent += square_exponent;
        }
        square *= square;
        square_exponent *= 2;
        if square < 0.5 {
            square += square;
            square_exponent -= 1;
        }
        bits >>= 1;
    }
    if n < 0 {
        mantissa = 1.0 / mantissa;
        exponent = exponent.saturating_neg();
    }
    join(mantissa, exponent)
}

/// `2^x`.
#[must_use]
pub(crate) fn exp2(x: f64) -> f64 {
    const LN2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    const P: [f64; 5] = [
        1.666_666_666_666_666_6e-1,
        -2.777_777_777_701_559_3e-3,
        6.613_756_321_437_934e-5,
        -1.653_390_220_546_525_2e-6,
        4.138_136_797_057_238_5e-8,
    ];
    if x.is_nan() {
        return x;
    }
    if x > 1100.0 {
        return f64::INFINITY;
    }
    if x < -1100.0 {
        return 0.0;
    }
    let whole = (x + 0.5_f64.copysign(x)).trunc();
    let rest = x - whole;
    let high = rest * LN2_HIGH;
    let low = -rest * LN2_LOW;
    let r = high - low;
    let s = r * r;
    let c = r - s * (P[0] + s * (P[1] + s * (P[2] + s * (P[3] + s * P[4]))));
    let y = 1.0 - ((low - r * c / (2.0 - c)) - high);
    join(y, i32::try_from(num::trunc(whole)).unwrap_or(0))
}

/// The mantissa in `[0.5, 1)`, with the sign, and the power of two that belongs to it.
const fn split(value: f64) -> (f64, i32) {
    if value == 0.0 {
        return (value, 0);
    }
    // A subnormal has no leading one: lift it first.
    let (value, lifted) = if value.abs() < f64::MIN_POSITIVE {
        (value * TWO_52, 52)
    } else {
        (value, 0)
    };
    let bits = value.to_bits();
    let exponent = biased(bits) - 1022 - lifted;
    (f64::from_bits(bits & !EXPONENT_MASK | 1022 << 52), exponent)
}

/// `mantissa × 2^exponent`, rounded once: a result below the normal doubles is reached by an exact step first.
const fn join(mantissa: f64, exponent: i32) -> f64 {
    if exponent > 1000 {
        let rest = if exponent > 2000 { 1000 } else { exponent - 1000 };
        mantissa * power_of_two(1000) * power_of_two(rest)
    } else if exponent < -900 {
        let rest = if exponent < -1900 { -1000 } else { exponent + 900 };
        mantissa * power_of_two(-900) * power_of_two(rest)
    } else {
        mantissa * power_of_two(exponent)
    }
}

const TWO_52: f64 = 4_503_599_627_370_496.0;
const EXPONENT_MASK: u64 = 0x7ff << 52;

const fn biased(bits: u64) -> i32 {
    (bits >> 52 & 0x7ff) as i32
}

/// `2^exponent` for exponents between -1000 and 1000.
#[expect(
    clippy::cast_sign_loss,
    reason = "the callers keep the sum between 23 and 2023"
)]
const fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_powers_of_two_are_exact() {
        for exponent in -1074..=1023 {
            let expected = f64::from(exponent).exp2();
            assert_eq!(
                exp2(f64::from(exponent)).to_bits(),
                expected.to_bits(),
                "2^{exponent}"
            );
            assert_eq!(powi(2.0, exponent).to_bits(), expected.to_bits(), "2^{exponent}");
        }
    }

    #[test]
    fn the_ends_of_the_range() {
        assert_eq!(exp2(5000.0), f64::INFINITY);
        assert_eq!(exp2(-5000.0), 0.0);
        assert!(exp2(f64::NAN).is_nan());
        assert_eq!(powi(f64::INFINITY, -2), 0.0);
        assert_eq!(powi(f64::INFINITY, 1), f64::INFINITY);
        assert_eq!(powi(0.0, -2), f64::INFINITY);
        assert_eq!(powi(1e300, 2), f64::INFINITY);
        assert_eq!(powi(1e-300, 2), 0.0);
        assert_eq!(powi(1e300, i32::MIN), 0.0);
        assert!(powi(f64::NAN, 3).is_nan());
    }

    proptest! {
        #[test]
        fn both_stay_close_to_the_platform(x in -1000.0_f64..1000.0, base in 0.001_f64..1000.0, n in -40_i32..40) {
            let (ours, theirs) = (exp2(x), x.exp2());
            prop_assert!((ours - theirs).abs() <= theirs * 1e-14, "2^{x}: {ours} {theirs}");
            let (ours, theirs) = (powi(base, n), base.powi(n));
            prop_assert!((ours - theirs).abs() <= theirs * 1e-12, "{base}^{n}: {ours} {theirs}");
        }

        #[test]
        fn any_input_is_answered(x in any::<f64>(), n in any::<i32>()) {
            let _ = (exp2(x), powi(x, n));
        }
    }
}
