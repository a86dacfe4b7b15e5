//! Running a program on values (`spec/sidecarset.md` 3.6). A step that fails records its error and the rest goes on,
//! because Kruise tells the last error; a failure itself causes no further one.

use std::borrow::Cow;

use super::error::{Fault, FormulaError, Stricter};
use super::program::{Binary, Op, Program};
use super::value::{Value, quantity_of, scaled};
use crate::quantity::Quantity;

/// Formulas that need no more are computed without allocating.
const SMALL_HEIGHT: usize = 8;

/// The largest amount that a variable can stand for. Kubernetes takes exponents that make numbers of many thousand
/// digits, and a formula may compute with such a number hundreds of times.
const MAX_AMOUNT: f64 = 1e100;

/// A value on the stack.
#[derive(Clone, Debug)]
pub(super) enum Slot<'a> {
    Number(f64),
    Quantity(Cow<'a, Quantity>),
    /// Some quantity, when only kinds are checked.
    SomeQuantity,
    /// There was an error, or there is no telling.
    Failed,
}

impl<'a> From<&'a Value> for Slot<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Number(number) => Self::Number(*number),
            Value::Quantity(quantity) => Self::Quantity(Cow::Borrowed(quantity)),
        }
    }
}

impl Slot<'_> {
    /// Its value, if it has one.
    pub(super) fn into_value(self) -> Option<Value> {
        match self {
            Self::Number(number) => Some(Value::Number(number)),
            Self::Quantity(quantity) => Some(Value::Quantity(quantity.into_owned())),
            Self::SomeQuantity | Self::Failed => None,
        }
    }
}

/// Runs a program. `variable` says what a name stands for, `None` if for nothing.
pub(super) fn run<'a>(
    program: &'a Program,
    variable: impl Fn(&str) -> Option<Slot<'a>>,
) -> Result<Slot<'a>, FormulaError> {
    let mut small = [const { Slot::Failed }; SMALL_HEIGHT];
    let mut large;
    let slots = if program.height <= SMALL_HEIGHT {
        &mut small[..]
    } else {
        large = vec![Slot::Failed; program.height];
        &mut large[..]
    };
    let mut machine = Machine {
        program,
        stack: Stack { slots, height: 0 },
        last: None,
        first_stricter: None,
    };
    machine.run(variable);

    // What Kruise would say comes first, and what only we say after it.
    if let Some(error) = machine.last.or_else(|| program.stop.clone()) {
        return Err(error.instead_of(machine.first_stricter));
    }
    if let Some(error) = machine.first_stricter {
        return Err(error);
    }
    let result = machine.stack.pop();
    // Only the result must not be negative; on the way everything is allowed (`spec/sidecarset.md` 3.7).
    let negative = match &result {
        Slot::Number(number) => *number < 0.0,
        Slot::Quantity(quantity) => quantity.sign().is_lt(),
        Slot::SomeQuantity | Slot::Failed => false,
    };
    if !negative {
        return Ok(result);
    }
    let shown = result.into_value().map(|value| value.to_string());
    Err(program.whole_error(Fault::Negative(shown.unwrap_or_default())))
}

struct Machine<'p, 's, 'a> {
    program: &'p Program,
    stack: Stack<'s, 'a>,
    /// The last error that is Kruise's too.
    last: Option<FormulaError>,
    /// The first of those that Kruise has not.
    first_stricter: Option<FormulaError>,
}

impl<'a> Machine<'a, '_, 'a> {
    fn run(&mut self, variable: impl Fn(&str) -> Option<Slot<'a>>) {
        let program = self.program;
        for step in &program.steps {
            let result = match &step.op {
                Op::Number(number) => Ok(Slot::Number(*number)),
                Op::Quantity(quantity) => Ok(Slot::Quantity(Cow::Borrowed(quantity))),
                Op::Variable(name) => match variable(name) {
                    Some(Slot::Number(number)) => finite(number),
                    Some(Slot::Quantity(quantity)) if quantity.approximate_f64().abs() > MAX_AMOUNT => {
                        Err(Stricter::Overflow.into())
                    }
                    Some(slot) => Ok(slot),
                    None => Err(Fault::UndefinedVariable(name.to_string())),
                },
                Op::Invalid(fault) => Err(fault.as_ref().clone()),
                Op::Negate => Ok(negated(self.stack.pop())),
                Op::Binary(operation) => {
                    let right = self.stack.pop();
                    let left = self.stack.pop();
                    apply(*operation, left, right)
                }
                Op::BadCall { arguments, fault } => {
                    for _ in 0..*arguments {
                        self.stack.pop();
                    }
                    Err(fault.as_ref().clone())
                }
            };
            let slot = result.unwrap_or_else(|fault| {
                let error = program.error(fault, step);
                if error.stricter().is_none() {
                    self.last = Some(error);
                } else {
                    self.first_stricter.get_or_insert(error);
                }
                Slot::Failed
            });
            self.stack.push(slot);
        }
    }
}

/// A stack that is large enough by the program's height; beyond it, it forgets.
struct Stack<'s, 'a> {
    slots: &'s mut [Slot<'a>],
    height: usize,
}

impl<'a> Stack<'_, 'a> {
    fn push(&mut self, value: Slot<'a>) {
        if let Some(slot) = self.slots.get_mut(self.height) {
            *slot = value;
            self.height += 1;
        }
    }

    fn pop(&mut self) -> Slot<'a> {
        self.height = self.height.saturating_sub(1);
        match self.slots.get_mut(self.height) {
            Some(slot) => std::mem::replace(slot, Slot::Failed),
            None => Slot::Failed,
        }
    }
}

fn negated(slot: Slot<'_>) -> Slot<'_> {
    match slot {
        Slot::Number(number) => Slot::Number(-number),
        Slot::Quantity(quantity) => owned(-quantity.as_ref()),
        Slot::SomeQuantity | Slot::Failed => slot,
    }
}

fn apply<'a>(operation: Binary, left: Slot<'a>, right: Slot<'a>) -> Result<Slot<'a>, Fault> {
    match (left, right) {
        (Slot::Failed, _) | (_, Slot::Failed) => Ok(Slot::Failed),
        (Slot::Number(left), Slot::Number(right)) => of_numbers(operation, left, right),
        (left, right) => match operation {
            Binary::Multiply => product(left, right),
            Binary::Divide => quotient(left, right),
            Binary::Add | Binary::Subtract | Binary::Max | Binary::Min => {
                of_quantities(operation, amount(left)?, amount(right)?)
            }
        },
    }
}

fn of_numbers<'a>(operation: Binary, left: f64, right: f64) -> Result<Slot<'a>, Fault> {
    match operation {
        Binary::Add => finite(left + right),
        Binary::Subtract => finite(left - right),
        Binary::Multiply => finite(left * right),
        Binary::Divide if right == 0.0 => Err(Fault::DivisionByZero),
        Binary::Divide => finite(left / right),
        Binary::Max => Ok(Slot::Number(if right > left { right } else { left })),
        Binary::Min => Ok(Slot::Number(if right < left { right } else { left })),
    }
}

fn finite<'a>(number: f64) -> Result<Slot<'a>, Fault> {
    if number.is_finite() {
        Ok(Slot::Number(number))
    } else {
        Err(Stricter::NotFinite.into())
    }
}

/// A quantity as it is, a number as a quantity.
fn amount(slot: Slot<'_>) -> Result<Slot<'_>, Fault> {
    match slot {
        Slot::Number(number) => Ok(owned(quantity_of(number)?)),
        Slot::Quantity(_) | Slot::SomeQuantity | Slot::Failed => Ok(slot),
    }
}

fn of_quantities<'a>(operation: Binary, left: Slot<'a>, right: Slot<'a>) -> Result<Slot<'a>, Fault> {
    let (Slot::Quantity(left), Slot::Quantity(right)) = (left, right) else {
        return Ok(Slot::SomeQuantity);
    };
    Ok(match operation {
        Binary::Add => owned(left.as_ref() + right.as_ref()),
        Binary::Subtract => owned(left.as_ref() - right.as_ref()),
        Binary::Max if right.cmp_value(&left).is_gt() => Slot::Quantity(right),
        Binary::Min if right.cmp_value(&left).is_lt() => Slot::Quantity(right),
        Binary::Max | Binary::Min => Slot::Quantity(left),
        Binary::Multiply => return Err(Fault::QuantityProduct),
        Binary::Divide => return Err(Fault::DivisionByQuantity),
    })
}

fn product<'a>(left: Slot<'a>, right: Slot<'a>) -> Result<Slot<'a>, Fault> {
    match (left, right) {
        (Slot::Number(number), Slot::Quantity(quantity))
        | (Slot::Quantity(quantity), Slot::Number(number)) => {
            Ok(owned(scaled(&quantity, |milli| milli * number)?))
        }
        (Slot::Number(_), _) | (_, Slot::Number(_)) => Ok(Slot::SomeQuantity),
        _ => Err(Fault::QuantityProduct),
    }
}

fn quotient<'a>(left: Slot<'a>, right: Slot<'a>) -> Result<Slot<'a>, Fault> {
    match (left, right) {
        (_, Slot::Number(0.0)) => Err(Fault::DivisionByZero),
        (Slot::Quantity(quantity), Slot::Number(number)) => {
            Ok(owned(scaled(&quantity, |milli| milli / number)?))
        }
        (_, Slot::Number(_)) => Ok(Slot::SomeQuantity),
        _ => Err(Fault::DivisionByQuantity),
    }
}

fn owned<'a>(quantity: Quantity) -> Slot<'a> {
    Slot::Quantity(Cow::Owned(quantity))
}
