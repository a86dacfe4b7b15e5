mod errors;
mod fuzz;
mod language;
mod naive;
mod patterns;
mod policies;
mod random;
mod ratio;

use super::{FormulaError, Value, calculate};

/// A result with the variables written as `cpu=200m memory=1Gi`; `cpu=#2` is the number 2.
fn evaluated(text: &str, variables: &str) -> Result<Value, FormulaError> {
    let variables: Vec<(&str, Value)> = variables
        .split_whitespace()
        .map(|variable| {
            let (name, value) = variable.split_once('=').unwrap();
            let value = match value.strip_prefix('#') {
                Some(number) => Value::Number(number.parse().unwrap()),
                None => Value::Quantity(value.parse().unwrap()),
            };
            (name, value)
        })
        .collect();
    calculate(text, &variables)
}

/// The text of a result, or of its error in Kruise's words.
fn told(text: &str, variables: &str) -> String {
    match evaluated(text, variables) {
        Ok(value) => value.to_string(),
        Err(error) => format!("ERR {}", error.fault()),
    }
}
