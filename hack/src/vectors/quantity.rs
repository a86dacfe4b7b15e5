//! Family `quantity`: parsing, printing and arithmetic of Kubernetes quantities. Whole values are always held to exact
//! arithmetic, and to the original's too except where its own are known to be wrong.

use std::cmp::Ordering;

use anyhow::Context as _;
use common::quantity::Quantity;
use num_bigint::{BigInt, Sign};
use serde_json::{Value, json};

use super::{
    compare::{Comparison, Difference, differences},
    exact,
    family::Context,
};

const TOO_LARGE: &str = "integers beyond int64, where the original wraps: held to exact arithmetic";
const NEGATIVE: &str =
    "negative integers of arbitrary precision, where the original is wrong: held to exact arithmetic";
const ZERO_TIMES_INFINITY: &str =
    "zeros with an exponent beyond double range, where the original computes NaN: 0";

pub(super) fn answer(input: &Value, _context: &Context) -> anyhow::Result<Value> {
    let a = read(input, "a")?.context("no input a")?;
    let mut answer = json!({ "a": describe(&a) });
    if let Some(b) = read(input, "b")? {
        answer["b"] = describe(&b);
        if let (Ok(a), Ok(b)) = (&a, &b) {
            answer["cmp"] = sign(a.cmp_value(b));
            answer["add"] = summary(&(a + b));
            answer["sub"] = summary(&(a - b));
        }
    }
    Ok(answer)
}

pub(super) fn compare(input: &Value, expected: &Value, got: &Value) -> Comparison {
    let (mut expected, mut got) = (expected.clone(), got.clone());
    let mut comparison = Comparison::default();
    let [a, b] = ["a", "b"].map(|key| input.get(key).and_then(Value::as_str).and_then(exact::nanos));
    let add = a.as_ref().zip(b.as_ref()).map(|(a, b)| a + b);
    let sub = a.as_ref().zip(b.as_ref()).map(|(a, b)| a - b);

    for (key, nanos) in [("a", a), ("b", b), ("add", add), ("sub", sub)] {
        if let (Some(expected), Some(got), Some(nanos)) = (expected.get_mut(key), got.get_mut(key), nanos) {
            compare_doubles(expected, got, &nanos, &mut comparison);
            compare_integers(key, expected, got, &nanos, &mut comparison);
        }
    }
    comparison.differences.extend(differences(&expected, &got));
    comparison
}

/// The bits are compared and the decimal text is not.
fn compare_doubles(expected: &mut Value, got: &mut Value, nanos: &BigInt, comparison: &mut Comparison) {
    take(expected, "f64");
    let bits = expected
        .get("f64bits")
        .and_then(Value::as_str)
        .and_then(|bits| u64::from_str_radix(bits, 16).ok());
    if bits.is_some_and(|bits| f64::from_bits(bits).is_nan()) && nanos.sign() == Sign::NoSign {
        expected["f64bits"] = json!("0000000000000000");
        comparison.notes.push(ZERO_TIMES_INFINITY);
    }
    take(got, "f64");
}

/// Ours are always held to exact arithmetic. So are the original's, except beyond int64, where it wraps, and in negative
/// numbers, where its arbitrary-precision path is wrong (`-2.470614646m` is −1 milli there, `-9.0Gi` is positive).
fn compare_integers(
    key: &str,
    expected: &mut Value,
    got: &mut Value,
    nanos: &BigInt,
    comparison: &mut Comparison,
) {
    for (name, unit) in [("milliValue", 1_000_000), ("value", 1_000_000_000)] {
        let (Some(expected), got) = (take(expected, name), take(got, name).unwrap_or(Value::Null)) else {
            continue;
        };
        let whole = exact::over(nanos, &BigInt::from(unit));
        let fits = i64::try_from(&whole).is_ok();
        let right = if fits {
            json!(whole.to_string())
        } else {
            Value::Null
        };
        if got != right {
            comparison.differences.push(Difference {
                path: format!("{key}.{name} (exact)"),
                expected: right,
                got,
            });
        } else if !fits {
            comparison.notes.push(TOO_LARGE);
        } else if got != expected {
            if nanos.sign() == Sign::Minus {
                comparison.notes.push(NEGATIVE);
            } else {
                comparison.differences.push(Difference {
                    path: format!("{key}.{name}"),
                    expected,
                    got,
                });
            }
        }
    }
}

fn read(
    input: &Value,
    key: &str,
) -> anyhow::Result<Option<Result<Quantity, common::quantity::QuantityError>>> {
    match input.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(text) => Ok(Some(
            text.as_str()
                .with_context(|| format!("input {key} is not a text"))?
                .parse(),
        )),
    }
}

fn describe(parsed: &Result<Quantity, common::quantity::QuantityError>) -> Value {
    let quantity = match parsed {
        Ok(quantity) => quantity,
        Err(error) => return json!({ "error": error.to_string() }),
    };
    json!({
        "string": quantity.to_string(),
        "json": quantity,
        "format": quantity.format().name(),
        "milliValue": quantity.milli().map(|milli| milli.to_string()),
        "value": quantity.units().map(|units| units.to_string()),
        "sign": sign(quantity.sign()),
        "isZero": quantity.is_zero(),
        "wholeMilli": quantity.is_whole_milli(),
        "wholeUnits": quantity.is_whole_units(),
        "neg": (-quantity).to_string(),
        "afterAddZero": (quantity + &Quantity::default()).to_string(),
        "roundUp0": quantity.rounded_up_to_units().to_string(),
        "f64": quantity.approximate_f64(),
        "f64bits": format!("{:016x}", quantity.approximate_f64().to_bits()),
    })
}

fn summary(quantity: &Quantity) -> Value {
    json!({
        "string": quantity.to_string(),
        "format": quantity.format().name(),
        "milliValue": quantity.milli().map(|milli| milli.to_string()),
        "value": quantity.units().map(|units| units.to_string()),
    })
}

fn sign(ordering: Ordering) -> Value {
    json!(match ordering {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    })
}

fn take(value: &mut Value, key: &str) -> Option<Value> {
    value.as_object_mut()?.remove(key)
}
