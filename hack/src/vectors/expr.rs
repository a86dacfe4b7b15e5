//! Family `expr`: the calculator of SidecarSet formulas. Everything must be as in Kruise, error texts and columns too,
//! except what Kruise computes from nothing: an unparsable number, infinity, an overflow.

use anyhow::Context as _;
use common::formula::{self, FormulaError, Stricter, Value as Calculated};
use serde_json::{Map, Value, json};

use super::{
    compare::{Comparison, differences},
    family::Context,
};

const TOO_LARGE: &str = "quantities beyond int64 milli, where the original wraps: held to their text";

pub(super) fn answer(input: &Value, _context: &Context) -> anyhow::Result<Value> {
    let (text, variables) = read(input)?;
    Ok(describe(&formula::calculate(text, &borrowed(&variables))))
}

pub(super) fn compare(input: &Value, expected: &Value, got: &Value) -> Comparison {
    let (mut expected, mut got) = (expected.clone(), got.clone());
    let stricter = take(&mut got, "stricter");
    let mut comparison = compare_answers(&mut expected, &got);
    if let Some(reason) = stricter.as_ref().and_then(Value::as_str)
        && !comparison.differences.is_empty()
    {
        // With 0 in place of what is no number, it must be Kruise's answer again.
        comparison = match read(input).map(|(text, variables)| with_zeros(text, &borrowed(&variables))) {
            Ok(Some(answer)) if answer.get("stricter").is_none() => compare_answers(&mut expected, &answer),
            _ => Comparison::default(),
        };
        comparison.stricter = Some(format!("{}: {reason}", input["expr"]));
    }
    comparison
}

fn compare_answers(expected: &mut Value, got: &Value) -> Comparison {
    let mut comparison = Comparison::default();
    // Of a number the bits are compared, and the decimal text is not.
    take(expected, "number");
    if got.get("milliValue") == Some(&Value::Null) {
        take(expected, "milliValue");
        comparison.notes.push(TOO_LARGE);
    }
    comparison.differences = differences(expected, got);
    comparison
}

/// An outcome in the schema of the family.
fn describe(outcome: &Result<Calculated, FormulaError>) -> Value {
    match outcome {
        Ok(Calculated::Number(number)) => json!({
            "kind": "number",
            "string": Calculated::Number(*number).to_string(),
            "bits": format!("{:016x}", number.to_bits()),
        }),
        Ok(Calculated::Quantity(quantity)) => json!({
            "kind": "quantity",
            "canonical": quantity.clone().canonical().to_string(),
            "string": quantity.to_string(),
            "json": quantity,
            "format": quantity.format().name(),
            "milliValue": quantity.milli().map(|milli| milli.to_string()),
        }),
        Err(error) => {
            let mut answer = json!({ "error": error.fault().to_string() });
            if let Some(reason) = error.first_stricter().and_then(FormulaError::stricter) {
                answer["stricter"] = json!(summary(reason));
            }
            answer
        }
    }
}

/// Why we refuse what Kruise computes, in a few words.
pub(super) fn summary(reason: &Stricter) -> String {
    match reason {
        Stricter::UnparsableNumber(token) => format!("unparsable number {token:?}"),
        Stricter::NotFinite => "not finite".to_owned(),
        Stricter::Overflow => "overflow".to_owned(),
        Stricter::TooLong => "longer than a formula can be".to_owned(),
        Stricter::TooDeep => "nested deeper than a formula can be".to_owned(),
    }
}

/// The answer when every number that is none is replaced by 0, as Kruise does; `None` if there is none to replace.
fn with_zeros(text: &str, variables: &[(&str, Calculated)]) -> Option<Value> {
    let mut text = text.to_owned();
    let mut replaced = false;
    loop {
        let outcome = formula::calculate(&text, variables);
        let first = outcome.as_ref().err().and_then(FormulaError::first_stricter);
        let Some(token) = first
            .filter(|error| matches!(error.stricter(), Some(Stricter::UnparsableNumber(_))))
            .map(FormulaError::at)
        else {
            return replaced.then(|| describe(&outcome));
        };
        // Half a character cannot be replaced in a text, and a point would join the 0. The rest keeps its columns.
        text.get(token.clone())?;
        if text[token.end..].starts_with('.') {
            return None;
        }
        text.replace_range(token.clone(), &format!("{:<1$}", "0", token.len()));
        replaced = true;
    }
}

/// The expression and its variables.
fn read(input: &Value) -> anyhow::Result<(&str, Vec<(String, Calculated)>)> {
    let text = input["expr"].as_str().context("no input expr")?;
    let empty = Map::new();
    let map = |key: &str| input.get(key).and_then(Value::as_object).unwrap_or(&empty);
    let quantities = map("vars").iter().map(|(name, value)| {
        let text = value.as_str().context("not a text")?;
        Ok((name.clone(), Calculated::Quantity(text.parse()?)))
    });
    let numbers = map("numbers").iter().map(|(name, value)| {
        let number = value.as_f64().context("not a number")?;
        Ok((name.clone(), Calculated::Number(number)))
    });
    Ok((text, quantities.chain(numbers).collect::<anyhow::Result<_>>()?))
}

fn borrowed(variables: &[(String, Calculated)]) -> Vec<(&str, Calculated)> {
    variables
        .iter()
        .map(|(name, value)| (name.as_str(), value.clone()))
        .collect()
}

fn take(value: &mut Value, key: &str) -> Option<Value> {
    value.as_object_mut()?.remove(key)
}
