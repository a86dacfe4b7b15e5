//! The `resourcesPolicy` language of SidecarSets: a formula is read once, kept, and evaluated on the resources of a pod.
//! Results are Kruise's to the last digit wherever they mean something; what means nothing is an error here
//! (`spec/sidecarset.md` 3, `DESIGN.md` 4).
//!
//! ```
//! use common::formula::Formula;
//!
//! let formula = Formula::parse("max(cpu*50%, 50m)")?;
//! let cpu: common::quantity::Quantity = "333m".parse()?;
//! assert_eq!(formula.evaluate(&[("cpu", cpu.into())])?.to_string(), "166m");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod aggregate;
mod error;
mod eval;
mod lex;
mod parse;
mod pattern;
mod policy;
mod program;
mod value;

use std::fmt;

use eval::Slot;
use program::{Op, Program};

pub use error::{Caret, Fault, FormulaError, Stricter};
pub use pattern::PatternError;
pub use policy::{Candidate, Field, Outcome, Policy, PolicyError, Resource, Sizing};
pub use value::{Kind, Value};

/// The longest formula there is, in bytes.
pub const MAX_LENGTH: usize = 1024;

/// How deep parentheses and calls can be nested.
pub const MAX_DEPTH: usize = 64;

/// A formula that has been read.
#[derive(Clone, Debug)]
pub struct Formula(Program);

impl Formula {
    /// Reads a formula.
    ///
    /// # Errors
    /// If it does not follow the grammar, or gives no result whatever its variables are.
    pub fn parse(text: &str) -> Result<Self, FormulaError> {
        let program = parse::read(text);
        eval::run(&program, |_| Some(Slot::Failed))?;
        Ok(Self(program))
    }

    /// The result for these values of variables. Names of variables are in lower case.
    ///
    /// # Errors
    /// If there is none.
    pub fn evaluate(&self, variables: &[(&str, Value)]) -> Result<Value, FormulaError> {
        evaluate(&self.0, variables)
    }

    /// Which kind of result it gives when these variables, and no other, are quantities. To be asked before there are
    /// values: what does not depend on the amounts is found wrong here, what does is not.
    ///
    /// # Errors
    /// If it gives no result whatever the amounts are.
    pub fn check(&self, variables: &[&str]) -> Result<Kind, FormulaError> {
        check(&self.0, variables)
    }

    /// The names of its variables in lower case, as often as they occur.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.0.steps.iter().filter_map(|step| match &step.op {
            Op::Variable(name) => Some(name.as_ref()),
            _ => None,
        })
    }

    /// The text it was read from.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.text
    }
}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Reads and evaluates a formula that is needed only once. Of several errors it tells the one that Kruise tells, which
/// can be one of a value before a syntax error (`spec/sidecarset.md` 3.8).
///
/// # Errors
/// If there is no result.
pub fn calculate(text: &str, variables: &[(&str, Value)]) -> Result<Value, FormulaError> {
    evaluate(&parse::read(text), variables)
}

fn evaluate(program: &Program, variables: &[(&str, Value)]) -> Result<Value, FormulaError> {
    let variable = |name: &str| {
        let (_, value) = variables.iter().find(|(known, _)| *known == name)?;
        Some(Slot::from(value))
    };
    eval::run(program, variable)?
        .into_value()
        .ok_or_else(|| parse::nothing(&program.text))
}

fn check(program: &Program, variables: &[&str]) -> Result<Kind, FormulaError> {
    let variable = |name: &str| variables.contains(&name).then_some(Slot::SomeQuantity);
    Ok(match eval::run(program, variable)? {
        Slot::Number(_) => Kind::Number,
        Slot::Quantity(_) | Slot::SomeQuantity | Slot::Failed => Kind::Quantity,
    })
}

#[cfg(test)]
mod tests;
