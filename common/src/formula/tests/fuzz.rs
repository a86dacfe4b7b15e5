//! Random formulas. A short run is part of the tests; the long one, of `FORMULAS` formulas from `SEED` on, is ignored
//! among them and started as `CONTRIBUTING.md` says. What fails names the `SEED` that begins with it.

use std::time::{Duration, Instant};

use super::naive::{self, Exact};
use super::random::{Random, UNITS};
use crate::formula::{Fault, Formula, FormulaError, Kind, Value, calculate};

#[test]
fn a_few_thousand_formulas_keep_the_laws() {
    run(1, 4_000);
}

#[test]
#[ignore = "takes minutes; see the module's text"]
fn millions_of_formulas_keep_the_laws() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.replace('_', "").parse().unwrap())
    };
    run(number("SEED", 2), number("FORMULAS", 10_000_000));
}

fn run(seed: u64, formulas: u64) {
    let mut random = Random(seed);
    let (mut values, mut slowest) = (0_u64, (Duration::ZERO, String::new()));
    for _ in 0..formulas {
        let start = random.0;
        let (text, time, gave_value) = if random.chance(30) {
            compare_with_the_second_evaluator(&mut random)
        } else {
            keep_the_laws(&mut random)
        };
        values += u64::from(gave_value);
        if time > slowest.0 {
            slowest = (time, format!("{text:?} (SEED={start})"));
        }
    }
    println!(
        "{formulas} formulas, {values} with a value; the slowest took {:?}: {}",
        slowest.0, slowest.1
    );
}

/// A whole formula has the value that exact fractions have.
fn compare_with_the_second_evaluator(random: &mut Random) -> (String, Duration, bool) {
    let start = random.0;
    let depth = random.below(5);
    let tree = random.tree(depth);
    let text = random.written(&tree);
    let (exact, values): (Vec<_>, Vec<_>) = ["cpu", "memory"]
        .into_iter()
        .map(|name| {
            let (exact, value) = variable(random);
            ((name, exact), (name, value))
        })
        .unzip();
    let (real, time) = timed(|| calculate(&text, &values));
    let naive = naive::evaluate(&tree, &exact);
    assert!(
        naive::agrees(&naive, &real),
        "SEED={start}: {text:?} with {values:?} is {real:?}, and in fractions {naive:?}"
    );
    (text, time, real.is_ok())
}

/// A result and how long it took; the shortest of some times if long, since somebody else may have had the processor.
fn timed<T>(work: impl Fn() -> T) -> (T, Duration) {
    let once = || {
        let begun = Instant::now();
        (work(), begun.elapsed())
    };
    let (result, time) = once();
    let again = if time > Duration::from_micros(100) { 5 } else { 0 };
    let shortest = (0..again).map(|_| once().1).fold(time, Duration::min);
    (result, shortest)
}

fn variable(random: &mut Random) -> (Exact, Value) {
    let digits = random.digits();
    if random.chance(20) {
        let number: f64 = digits.parse().unwrap_or(1.0);
        return (Exact::number(number), Value::Number(number));
    }
    let unit = if random.chance(20) {
        ""
    } else {
        random.one_of(&UNITS)
    };
    let quantity = format!("{digits}{unit}").parse().unwrap();
    (Exact::quantity(&digits, unit), Value::Quantity(quantity))
}

/// Whatever the text, there is an answer, and the answers of the several ways to ask agree.
fn keep_the_laws(random: &mut Random) -> (String, Duration, bool) {
    let start = random.0;
    let text = random.noise();
    let absurd = ["1e500", "-3Gi", "1n", "8Ei", "0", "1.5Ti", "333m", "1e9"];
    let quantity = Value::Quantity(random.one_of(&absurd).parse().unwrap());
    let number = Value::Number(random.one_of(&[0.0, -0.0, 1.0, 1e308, -2.5, f64::NAN, f64::INFINITY]));

    let (parsed, time) = timed(|| Formula::parse(&text));
    let outcomes = [
        calculate(&text, &[("cpu", quantity.clone())]),
        calculate(&text, &[("cpu", quantity.clone()), ("memory", quantity.clone())]),
        calculate(&text, &[("cpu", number), ("memory", quantity.clone())]),
    ];

    for outcome in &outcomes {
        check_outcome(&text, outcome, start);
    }
    match &parsed {
        Ok(formula) => {
            assert_eq!(formula.text(), text);
            let again = formula.evaluate(&[("cpu", quantity.clone())]);
            assert_eq!(
                format!("{again:?}"),
                format!("{:?}", outcomes[0]),
                "SEED={start}: {text:?}"
            );
            check_kinds(formula, &quantity, start);
        }
        Err(error) => {
            check_error(&text, error, start);
            assert!(
                outcomes.iter().all(Result::is_err),
                "SEED={start}: {text:?} was {error}"
            );
        }
    }
    (text, time, outcomes.iter().any(Result::is_ok))
}

/// What the check of kinds refuses has no value, and the kind is as it says.
fn check_kinds(formula: &Formula, quantity: &Value, start: u64) {
    let value = formula.evaluate(&[("cpu", quantity.clone()), ("memory", quantity.clone())]);
    match (formula.check(&["cpu", "memory"]), value) {
        (Ok(kind), Ok(value)) => assert_eq!(kind, value.kind(), "SEED={start}: {formula}"),
        (Err(error), Ok(value)) => panic!("SEED={start}: {formula} is {value} though {error}"),
        (Ok(Kind::Number | Kind::Quantity) | Err(_), Err(_)) => {}
    }
}

fn check_outcome(text: &str, outcome: &Result<Value, FormulaError>, start: u64) {
    match outcome {
        Ok(Value::Number(number)) => {
            assert!(
                number.is_finite() && *number >= 0.0,
                "SEED={start}: {text:?} is {number}"
            );
        }
        Ok(Value::Quantity(quantity)) => {
            assert!(quantity.sign().is_ge(), "SEED={start}: {text:?} is {quantity}");
        }
        Err(error) => check_error(text, error, start),
    }
}

fn check_error(text: &str, error: &FormulaError, start: u64) {
    let at = error.at();
    assert!(
        at.start <= at.end && at.end <= text.len(),
        "SEED={start}: {text:?} {at:?}"
    );
    let drawn = error.caret().to_string();
    assert!(drawn.contains('^'), "SEED={start}: {text:?} {drawn}");
    let is_syntax = matches!(error.fault(), Fault::Syntax { .. });
    assert_eq!(
        is_syntax,
        error.to_string().starts_with("parse error: "),
        "SEED={start}: {text:?}"
    );
}
