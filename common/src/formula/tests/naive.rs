//! A second evaluator: slow, on trees, in exact fractions, written from `spec/sidecarset.md` 3.6 alone. It must agree
//! with the real one.

use num_bigint::BigInt;

use super::ratio::Ratio;
use crate::formula::{Fault, FormulaError, Stricter, Value};
use crate::quantity::{Format, Quantity};

/// A formula before it was written down.
#[derive(Clone, Debug)]
pub(super) enum Tree {
    /// With or without `%`.
    Number(String),
    /// Digits, and a unit of the language.
    Quantity(String, &'static str),
    Variable(&'static str),
    Negate(Box<Self>),
    Binary(char, Box<Self>, Box<Self>),
    Call(&'static str, Box<Self>, Box<Self>),
}

/// A value, in fractions.
#[derive(Clone, Debug)]
pub(super) enum Exact {
    /// A double, and so a fraction.
    Number(Ratio),
    Quantity(Amount),
}

#[derive(Clone, Debug)]
pub(super) struct Amount {
    value: Ratio,
    format: Format,
    /// Whether Kubernetes may hold it in arbitrary precision, where it is wrong below zero.
    doubtful: bool,
}

/// Why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum No {
    DivisionByZero,
    DivisionByQuantity,
    QuantityProduct,
    UndefinedVariable,
    Negative,
    NotFinite,
    Overflow,
    /// Where Kubernetes itself is wrong; there is nothing to agree on.
    Unknowable,
}

/// The value of a tree, or the error that is told.
pub(super) fn evaluate(tree: &Tree, variables: &[(&'static str, Exact)]) -> Result<Exact, No> {
    let mut errors = Vec::new();
    let value = tree.value(variables, &mut errors);
    if errors.contains(&No::Unknowable) {
        return Err(No::Unknowable);
    }
    let stricter = |no: &No| matches!(no, No::NotFinite | No::Overflow);
    if let Some(last) = errors.iter().rfind(|no| !stricter(no)) {
        return Err(*last);
    }
    match (value, errors.first()) {
        (_, Some(first)) => Err(*first),
        (Some(Exact::Number(n)), None) if n.is_negative() => Err(No::Negative),
        (Some(Exact::Quantity(q)), None) if q.value.is_negative() => Err(No::Negative),
        (value, None) => Ok(value.unwrap()),
    }
}

/// Whether the real evaluator says the same.
pub(super) fn agrees(naive: &Result<Exact, No>, real: &Result<Value, FormulaError>) -> bool {
    match (naive, real) {
        (Err(No::Unknowable), _) => true,
        (Ok(Exact::Number(exact)), Ok(Value::Number(number))) => exact.to_double() == Some(*number),
        (Ok(Exact::Quantity(exact)), Ok(Value::Quantity(quantity))) => {
            // Both are whole in nano units, and a zero has no format.
            let nanos = exact.value.times(&Ratio::new(1_000_000_000, 1_u8)).truncated();
            let nanos: Quantity = format!("{nanos}n").parse().unwrap();
            nanos.same_value(quantity) && (quantity.is_zero() || exact.format == quantity.format())
        }
        (Err(no), Err(error)) => no_of(error.fault()) == Some(*no),
        _ => false,
    }
}

fn no_of(fault: &Fault) -> Option<No> {
    match fault {
        Fault::DivisionByZero => Some(No::DivisionByZero),
        Fault::DivisionByQuantity => Some(No::DivisionByQuantity),
        Fault::QuantityProduct => Some(No::QuantityProduct),
        Fault::UndefinedVariable(_) => Some(No::UndefinedVariable),
        Fault::Negative(_) => Some(No::Negative),
        Fault::Stricter(Stricter::NotFinite) => Some(No::NotFinite),
        Fault::Stricter(Stricter::Overflow) => Some(No::Overflow),
        _ => None,
    }
}

impl Exact {
    pub(super) fn quantity(digits: &str, unit: &str) -> Self {
        let factor = match unit {
            "m" => Ratio::new(1, 1000_u16),
            "" => Ratio::new(1, 1_u8),
            unit if unit.ends_with('i') => {
                let steps = "KMGTP".find(&unit[..1]).unwrap() + 1;
                Ratio::new(BigInt::from(1) << (10 * steps), 1_u8)
            }
            unit => {
                let steps = u32::try_from("kMGTP".find(unit).unwrap()).unwrap() + 1;
                Ratio::new(BigInt::from(1000).pow(steps), 1_u8)
            }
        };
        let nano = Ratio::new(1_000_000_000, 1_u8);
        let nanos = Ratio::decimal(digits).times(&factor).times(&nano).away();
        let binary = unit.ends_with('i');
        // Kubernetes cuts amounts with a binary unit to an int64.
        let most = BigInt::from(i64::MAX) * 1_000_000_000;
        let nanos = if binary { nanos.min(most) } else { nanos };
        let value = Ratio::new(nanos, 1_000_000_000_u32);
        let below_one = !value.is_zero() && value.is_less_than(&Ratio::new(1, 1_u8));
        Self::Quantity(Amount {
            format: if binary && !below_one {
                Format::BinarySi
            } else {
                Format::DecimalSi
            },
            doubtful: (binary && digits.contains('.')) || digits.len() > 9,
            value,
        })
    }

    pub(super) fn number(number: f64) -> Self {
        Self::Number(Ratio::of_double(number))
    }
}

impl Tree {
    fn value(&self, variables: &[(&'static str, Exact)], errors: &mut Vec<No>) -> Option<Exact> {
        let result = match self {
            Self::Number(text) => literal(text),
            Self::Quantity(digits, unit) => Ok(Exact::quantity(digits, unit)),
            Self::Variable(name) => variables
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, value)| value.clone())
                .ok_or(No::UndefinedVariable),
            Self::Negate(operand) => Ok(match operand.value(variables, errors)? {
                Exact::Number(n) => Exact::Number(n.negated()),
                Exact::Quantity(q) => Exact::Quantity(Amount {
                    value: q.value.negated(),
                    ..q
                }),
            }),
            Self::Binary(operator, left, right) => {
                let (left, right) = (left.value(variables, errors), right.value(variables, errors));
                binary(*operator, left?, right?)
            }
            Self::Call(name, left, right) => {
                let (left, right) = (left.value(variables, errors), right.value(variables, errors));
                extreme(*name == "max", left?, right?)
            }
        };
        result.map_err(|no| errors.push(no)).ok()
    }
}

fn literal(text: &str) -> Result<Exact, No> {
    let double = |ratio: &Ratio| ratio.to_double().map(Ratio::of_double).ok_or(No::NotFinite);
    match text.strip_suffix('%') {
        Some(digits) => double(&double(&Ratio::decimal(digits))?.over(&Ratio::new(100, 1_u8))),
        None => double(&Ratio::decimal(text)),
    }
    .map(Exact::Number)
}

fn binary(operator: char, left: Exact, right: Exact) -> Result<Exact, No> {
    match (operator, left, right) {
        ('*', Exact::Quantity(_), Exact::Quantity(_)) => Err(No::QuantityProduct),
        ('*', Exact::Quantity(q), Exact::Number(n)) | ('*', Exact::Number(n), Exact::Quantity(q)) => {
            scaled(&q, |milli| milli.times(&n))
        }
        ('/', _, Exact::Quantity(_)) => Err(No::DivisionByQuantity),
        ('/', _, Exact::Number(n)) if n.is_zero() => Err(No::DivisionByZero),
        ('/', Exact::Quantity(q), Exact::Number(n)) => scaled(&q, |milli| milli.over(&n)),
        (operator, Exact::Number(a), Exact::Number(b)) => {
            let exact = match operator {
                '+' => a.plus(&b),
                '-' => a.plus(&b.negated()),
                '*' => a.times(&b),
                _ => a.over(&b),
            };
            let double = exact.to_double().ok_or(No::NotFinite)?;
            Ok(Exact::number(double))
        }
        (operator, left, right) => {
            let (left, right) = (amount(left)?, amount(right)?);
            let addend = if operator == '-' {
                right.value.negated()
            } else {
                right.value
            };
            let value = left.value.plus(&addend);
            let huge = value.times(&Ratio::new(1_000_000_000, 1_u8)).truncated();
            Ok(Exact::Quantity(Amount {
                format: if left.value.is_zero() {
                    right.format
                } else {
                    left.format
                },
                doubtful: left.doubtful || right.doubtful || i64::try_from(huge).is_err(),
                value,
            }))
        }
    }
}

fn extreme(max: bool, left: Exact, right: Exact) -> Result<Exact, No> {
    if let (Exact::Number(a), Exact::Number(b)) = (&left, &right) {
        let right_wins = if max { a.is_less_than(b) } else { b.is_less_than(a) };
        return Ok(if right_wins { right } else { left });
    }
    let (left, right) = (amount(left)?, amount(right)?);
    let right_wins = if max {
        left.value.is_less_than(&right.value)
    } else {
        right.value.is_less_than(&left.value)
    };
    Ok(Exact::Quantity(if right_wins { right } else { left }))
}

fn amount(value: Exact) -> Result<Amount, No> {
    match value {
        Exact::Quantity(amount) => Ok(amount),
        Exact::Number(n) => {
            let product = n.times(&Ratio::new(1000, 1_u8)).to_double().ok_or(No::Overflow)?;
            thousandths(&Ratio::of_double(product), Format::DecimalSi)
        }
    }
}

fn scaled(quantity: &Amount, by: impl Fn(&Ratio) -> Ratio) -> Result<Exact, No> {
    let milli = quantity.value.times(&Ratio::new(1000, 1_u8)).away();
    let milli = i64::try_from(milli).map_err(|_| No::Overflow)?;
    if quantity.doubtful && quantity.value.is_negative() {
        return Err(No::Unknowable);
    }
    let milli = Ratio::new(milli, 1_u8).to_double().unwrap();
    let result = by(&Ratio::of_double(milli)).to_double().ok_or(No::Overflow)?;
    thousandths(&Ratio::of_double(result), quantity.format).map(Exact::Quantity)
}

/// So many thousandths, cut off.
fn thousandths(milli: &Ratio, format: Format) -> Result<Amount, No> {
    let milli = i64::try_from(milli.truncated()).map_err(|_| No::Overflow)?;
    Ok(Amount {
        value: Ratio::new(milli, 1000_u16),
        format,
        doubtful: false,
    })
}
