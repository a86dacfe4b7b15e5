//! Exact decimal numbers: an integer and a power of ten. Nothing here rounds unless its name says so.

use std::cmp::Ordering;

use super::integer::Integer;

/// The finest unit a quantity can hold, as a power of ten.
pub(super) const NANO: i32 = -9;
/// The scale of millicores, as a power of ten.
pub(super) const MILLI: i32 = -3;
/// Whole units, as a power of ten.
pub(super) const UNITS: i32 = 0;

/// `digits × 10^scale`. One value has many such forms and the form is kept, because the approximate double that
/// Kubernetes derives from a quantity depends on it.
#[derive(Clone, Debug)]
pub(super) struct Decimal {
    pub(super) digits: Integer,
    pub(super) scale: i32,
    /// Whether Kubernetes holds it in its arbitrary-precision form, from which it converts badly below zero.
    pub(super) unbounded: bool,
}

impl Decimal {
    pub(super) const ZERO: Self = Self {
        digits: Integer::ZERO,
        scale: 0,
        unbounded: false,
    };

    pub(super) fn new(digits: impl Into<Integer>, scale: i32) -> Self {
        Self {
            digits: digits.into(),
            scale,
            unbounded: false,
        }
    }

    /// The same, as Kubernetes holds what is too long or too fine for its machine integers.
    pub(super) fn unbounded(self) -> Self {
        Self {
            unbounded: true,
            ..self
        }
    }

    pub(super) fn sign(&self) -> Ordering {
        self.digits.sign()
    }

    pub(super) fn is_zero(&self) -> bool {
        self.digits.is_zero()
    }

    pub(super) fn negated(&self) -> Self {
        Self {
            digits: self.digits.negated(),
            scale: self.scale,
            unbounded: self.unbounded,
        }
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        let scale = self.common_scale(other);
        let (left, right) = (self.rounded_away(scale), other.rounded_away(scale));
        let digits = left.plus(&right);
        let fits = [&left, &right, &digits].iter().all(|n| n.to_i64().is_some());
        Self {
            digits,
            scale,
            unbounded: self.unbounded || other.unbounded || !fits,
        }
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        if self.scale == other.scale {
            return self.digits.compare(&other.digits);
        }
        self.sign().cmp(&other.sign()).then_with(|| {
            let scale = self.common_scale(other);
            self.rounded_away(scale).compare(&other.rounded_away(scale))
        })
    }

    /// The number of units of 10^scale in it; a broken unit counts as a whole one, away from zero.
    pub(super) fn rounded_away(&self, scale: i32) -> Integer {
        let power = self.scale.abs_diff(scale);
        if self.scale >= scale {
            self.digits.times_ten_to(power)
        } else {
            self.digits.over_ten_to(power)
        }
    }

    /// What Kubernetes takes [`rounded_away`](Self::rounded_away) to be, as far as it does not wrap. From its
    /// arbitrary-precision form below zero it cuts the broken unit off and then adds one, and it wraps if the digits,
    /// nano units mostly, are no `i64`.
    pub(super) fn as_kubernetes_rounds(&self, scale: i32) -> Option<i64> {
        let exact = self.rounded_away(scale).to_i64()?;
        if !(self.unbounded && self.sign().is_lt()) {
            return Some(exact);
        }
        self.digits.to_i64()?;
        Some(if self.is_whole_at(scale) { exact } else { exact + 2 })
    }

    /// Whether it is a whole number of units of 10^scale.
    pub(super) fn is_whole_at(&self, scale: i32) -> bool {
        self.scale >= scale || self.digits.is_multiple_of_ten_to(self.scale.abs_diff(scale))
    }

    /// Whether it is nearer to zero than one is.
    pub(super) fn is_below_one(&self) -> bool {
        let one = Self::new(1_i64, UNITS);
        self.compare(&one).is_lt() && self.compare(&one.negated()).is_gt()
    }

    /// The double that Kubernetes computes: nearest double of the digits, times the power of ten in double arithmetic.
    /// It can be an ulp or two away from the nearest double of the value.
    pub(super) fn approximate_f64(&self) -> f64 {
        let digits = self.digits.to_f64();
        if self.scale == 0 || self.is_zero() {
            digits
        } else {
            digits * power_of_ten(self.scale)
        }
    }

    /// A scale at which both are whole. Zero is whole everywhere and does not refine the other, except in arbitrary
    /// precision.
    fn common_scale(&self, other: &Self) -> i32 {
        if self.unbounded || other.unbounded {
            return self.scale.min(other.scale);
        }
        match (self.is_zero(), other.is_zero()) {
            (true, _) => other.scale,
            (false, true) => self.scale,
            (false, false) => self.scale.min(other.scale),
        }
    }
}

/// Powers up to 31 are exact to the last bit; larger ones are the product of two such doubles, as in Go.
fn power_of_ten(power: i32) -> f64 {
    const LOW: [f64; 32] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17,
        1e18, 1e19, 1e20, 1e21, 1e22, 1e23, 1e24, 1e25, 1e26, 1e27, 1e28, 1e29, 1e30, 1e31,
    ];
    const HIGH: [f64; 10] = [1e0, 1e32, 1e64, 1e96, 1e128, 1e160, 1e192, 1e224, 1e256, 1e288];
    const SMALL: [f64; 10] = [1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9];
    let size = usize::try_from(power.unsigned_abs()).unwrap_or(usize::MAX);
    if power < 0 {
        SMALL.get(size).copied().unwrap_or(0.0)
    } else if power > 308 {
        f64::INFINITY
    } else {
        HIGH.get(size / 32).copied().unwrap_or(f64::INFINITY)
            * LOW.get(size % 32).copied().unwrap_or(f64::INFINITY)
    }
}
