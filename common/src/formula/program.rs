//! A formula as it is kept: the steps of a stack machine, in the order in which Kruise's parser computes them.

use super::error::{Fault, FormulaError, Stricter};
use crate::quantity::Quantity;

/// What was read of a text. If the text breaks off with a syntax error, the steps before it are here: an error of
/// theirs comes first (`spec/sidecarset.md` 3.8).
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) text: Box<str>,
    pub(super) steps: Box<[Step]>,
    /// The most values that are ever on the stack.
    pub(super) height: usize,
    /// Why reading ended before the end.
    pub(super) stop: Option<FormulaError>,
}

/// One step, and the place in the text that it comes from.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) op: Op,
    start: u16,
    end: u16,
}

#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Pushes.
    Number(f64),
    /// Pushes.
    Quantity(Quantity),
    /// Pushes the variable's value. The name is in lower case.
    Variable(Box<str>),
    /// A literal that has no value: records why and pushes a failure.
    Invalid(Box<Fault>),
    /// Changes the top.
    Negate,
    /// Takes two and pushes one.
    Binary(Binary),
    /// A call that cannot be made: takes as many as it has arguments, records why, and pushes a failure.
    BadCall { arguments: usize, fault: Box<Fault> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Max,
    Min,
}

impl Program {
    /// An error of one of the steps.
    pub(super) fn error(&self, fault: impl Into<Fault>, step: &Step) -> FormulaError {
        FormulaError::new(fault, usize::from(step.start)..usize::from(step.end), &self.text)
    }

    /// An error of the formula as a whole.
    pub(super) fn whole_error(&self, fault: impl Into<Fault>) -> FormulaError {
        FormulaError::new(fault, 0..self.text.len(), &self.text)
    }
}

impl Step {
    /// Places are of texts no longer than [`super::MAX_LENGTH`].
    pub(super) fn new(op: Op, at: &std::ops::Range<usize>) -> Self {
        let place = |byte: usize| u16::try_from(byte).unwrap_or(u16::MAX);
        Self {
            op,
            start: place(at.start),
            end: place(at.end),
        }
    }
}

impl Op {
    pub(super) fn invalid(fault: impl Into<Fault>) -> Self {
        Self::Invalid(Box::new(fault.into()))
    }

    pub(super) fn unparsable(token: String) -> Self {
        Self::invalid(Stricter::UnparsableNumber(token))
    }
}
