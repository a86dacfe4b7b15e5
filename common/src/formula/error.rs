//! Why a formula gives no result: what is wrong, where in its text, and what was expected there.

use std::fmt;
use std::ops::Range;

use super::{MAX_DEPTH, MAX_LENGTH};
use crate::quantity::QuantityError;

/// Why a formula gives no result, and where.
///
/// It prints in one line for events and statuses; [`caret`](Self::caret) prints the formula with the place marked.
///
/// ```
/// use common::formula::Formula;
///
/// let error = Formula::parse("max(cpu*50%, 50m").unwrap_err();
/// assert_eq!(
///     error.caret().to_string(),
///     "max(cpu*50%, 50m\n                ^ expected an operator or \")\", found the end"
/// );
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FormulaError {
    fault: Fault,
    at: Range<usize>,
    text: Box<str>,
    /// What only we refuse, where this error comes before it.
    hides: Option<Box<Self>>,
}

/// What is wrong with a formula. The text is Kruise's own, which users and vectors know, except for what Kruise lets
/// pass (`spec/sidecarset.md` 3.8).
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Fault {
    /// It does not follow the grammar. The column is Kruise's: it counts bytes and includes the offending token.
    #[error("parse error: syntax error at line {line}, col {column}")]
    Syntax {
        /// The line of the offending token, from 1.
        line: usize,
        /// One more than the bytes up to the end of that token in its line.
        column: usize,
        /// What could have stood there.
        expected: &'static str,
        /// What stood there.
        found: String,
    },
    /// A quantity literal that Kubernetes cannot read.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// A variable that has no value here.
    #[error("undefined variable: {0}")]
    UndefinedVariable(String),
    /// Neither `max` nor `min`.
    #[error("unknown function: {0}")]
    UnknownFunction(String),
    /// `max` or `min` of one value.
    #[error("{0} function requires exactly 2 arguments, got 1")]
    OneArgument(&'static str),
    /// A quotient by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// A quotient by an amount of cpu or memory.
    #[error("division by quantity")]
    DivisionByQuantity,
    /// A product of two amounts of cpu or memory.
    #[error("multiplication of two quantities")]
    QuantityProduct,
    /// The result is below zero, and this is it.
    #[error("calculation result is negative: {0}")]
    Negative(String),
    /// Kruise computes something; it means nothing.
    #[error(transparent)]
    Stricter(#[from] Stricter),
}

/// What Kruise lets pass and we do not: its result would have nothing to do with what is written, or the formula is
/// larger than anybody needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stricter {
    /// Kruise takes it for 0.
    #[error(
        "{0:?} is not a number: write a number, a percentage such as 50%, or a quantity with one of the units m, k, \
         M, G, T, P, Ki, Mi, Gi, Ti, Pi"
    )]
    UnparsableNumber(String),
    /// Kruise computes with infinity.
    #[error("the number is out of range: use numbers up to 1e308")]
    NotFinite,
    /// Kruise wraps around or collapses to 0.
    #[error(
        "the quantity is out of range: only amounts up to 9223372036854775 can be multiplied, divided or mixed with \
         numbers, and negative ones with fractions of Ki to Pi only up to 9223372036"
    )]
    Overflow,
    /// The text is longer than [`MAX_LENGTH`].
    #[error("the formula is longer than {MAX_LENGTH} bytes")]
    TooLong,
    /// Parentheses and calls are nested deeper than [`MAX_DEPTH`].
    #[error("the formula is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

impl FormulaError {
    pub(super) fn new(fault: impl Into<Fault>, at: Range<usize>, text: &str) -> Self {
        Self {
            fault: fault.into(),
            at,
            text: text.into(),
            hides: None,
        }
    }

    /// The same, told instead of another.
    pub(super) fn instead_of(self, other: Option<Self>) -> Self {
        Self {
            hides: other.map(Box::new),
            ..self
        }
    }

    /// What is wrong.
    #[must_use]
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// Where, in bytes of the formula's text. Not always on the border of a character: the language reads bytes.
    #[must_use]
    pub fn at(&self) -> Range<usize> {
        self.at.clone()
    }

    /// Why we refuse what Kruise computes, if it does.
    #[must_use]
    pub fn stricter(&self) -> Option<&Stricter> {
        match &self.fault {
            Fault::Stricter(reason) => Some(reason),
            _ => None,
        }
    }

    /// The first error that only we have: this one, or one that it is told instead of. If there is one, Kruise computes
    /// further than we do and can come to another error than this.
    #[must_use]
    pub fn first_stricter(&self) -> Option<&Self> {
        match self.fault {
            Fault::Stricter(_) => Some(self),
            _ => self.hides.as_deref(),
        }
    }

    /// The line of the formula that is wrong, and below it the place and what is wrong there.
    #[must_use]
    pub fn caret(&self) -> Caret<'_> {
        Caret(self)
    }

    fn note(&self) -> Note<'_> {
        Note(&self.fault)
    }
}

impl fmt::Display for FormulaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            Fault::Syntax { .. } => write!(f, "{}: {}", self.fault, self.note()),
            fault => fault.fmt(f),
        }
    }
}

impl std::error::Error for FormulaError {}

/// Prints a formula with the place of its error marked; see [`FormulaError::caret`].
#[derive(Clone, Copy, Debug)]
pub struct Caret<'e>(&'e FormulaError);

impl fmt::Display for Caret<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FormulaError { at, text, .. } = self.0;
        let start = text.floor_char_boundary(at.start);
        let end = text.ceil_char_boundary(at.end.max(start));
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[start..]
            .find('\n')
            .map_or(text.len(), |length| start + length);
        for c in text[line_start..line_end].chars() {
            write!(f, "{}", visible(c))?;
        }
        writeln!(f)?;
        for c in text[line_start..start].chars() {
            write!(f, "{}", if c == '\t' { c } else { ' ' })?;
        }
        let marked = text[start..end.min(line_end).max(start)].chars().count();
        for _ in 0..marked.max(1) {
            f.write_str("^")?;
        }
        write!(f, " {}", self.0.note())
    }
}

/// What is wrong, for somebody who sees where.
struct Note<'e>(&'e Fault);

impl fmt::Display for Note<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Fault::Syntax { expected, found, .. } => write!(f, "expected {expected}, found {found}"),
            fault => fault.fmt(f),
        }
    }
}

/// A control character could move the cursor away from under the caret.
fn visible(c: char) -> char {
    if c.is_control() && c != '\t' { ' ' } else { c }
}
