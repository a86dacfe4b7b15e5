//! A formula over a range of values.

use common::{
    formula::{Fault, Formula, Value},
    quantity::{Format, Quantity},
};

use super::CliError;

/// So many steps from one end to the other.
const STEPS: i64 = 240;

/// A formula's values.
pub(super) struct Curve {
    /// What was drawn.
    pub(super) formula: String,
    /// The variable along the bottom.
    pub(super) variable: &'static str,
    /// Values of the variable with the formula's; none where it has no value.
    pub(super) points: Vec<(Quantity, Option<Quantity>)>,
}

impl Curve {
    /// The largest value.
    pub(super) fn top(&self) -> f64 {
        let values = self.points.iter().filter_map(|(_, value)| value.as_ref());
        let top = values.map(Quantity::approximate_f64).fold(0.0, f64::max);
        if top > 0.0 { top } else { 1.0 }
    }

    /// How far a point is along, and how far up, both from 0 to 1.
    pub(super) fn places(&self) -> impl Iterator<Item = (f64, Option<f64>)> {
        let [from, to] = [self.points.first(), self.points.last()]
            .map(|point| point.map_or(0.0, |(at, _)| at.approximate_f64()));
        let (width, top) = ((to - from).max(f64::MIN_POSITIVE), self.top());
        self.points.iter().map(move |(at, value)| {
            let along = (at.approximate_f64() - from) / width;
            (along, value.as_ref().map(|value| value.approximate_f64() / top))
        })
    }
}

/// The values of a formula between two amounts.
pub(super) fn curve(
    formula: &Formula,
    from: Option<&Quantity>,
    to: Option<&Quantity>,
) -> Result<Curve, CliError> {
    let variable = if formula.variables().any(|name| name == "memory") {
        "memory"
    } else {
        "cpu"
    };
    formula.check(&[variable])?;
    let usual = if variable == "memory" { "16Gi" } else { "8" };
    let from = from.cloned().unwrap_or_default();
    let to = match to {
        Some(to) => to.clone(),
        None => usual.parse()?,
    };
    let out_of_range = || CliError::Range;
    let [first, last] = [&from, &to].map(|end| end.milli().ok_or_else(out_of_range));
    let (first, last) = (first?, last?);
    if first >= last {
        return Err(CliError::Range);
    }
    let format = if variable == "memory" {
        Format::BinarySi
    } else {
        Format::DecimalSi
    };
    let mut points = Vec::new();
    for step in 0..=STEPS {
        let share = i128::from(last - first) * i128::from(step) / i128::from(STEPS);
        let milli = first.saturating_add(i64::try_from(share).unwrap_or(i64::MAX));
        let at = Quantity::from_milli(milli, format);
        let value = match formula.evaluate(&[(variable, Value::Quantity(at.clone()))]) {
            Ok(value) => value.into_quantity().ok(),
            Err(error) if matches!(error.fault(), Fault::Negative(_)) => None,
            Err(error) => return Err(error.into()),
        };
        points.push((at, value));
    }
    Ok(Curve {
        formula: formula.text().to_owned(),
        variable,
        points,
    })
}
