//! From tokens to steps, by recursive descent (`spec/sidecarset.md` 3.5). Steps come out in the order in which an LALR
//! parser reduces, because that order decides which of several errors is told.

use std::ops::Range;

use super::error::{Fault, FormulaError, Stricter};
use super::lex::{Lexer, Token, TokenKind, shown};
use super::program::{Binary, Op, Program, Step};
use super::{MAX_DEPTH, MAX_LENGTH};

const OPERAND: &str = "a number, a quantity, a variable, max, min, \"(\" or \"-\"";
const AT_END: &str = "an operator or the end";
const IN_PARENTHESES: &str = "an operator or \")\"";
const IN_FIRST_ARGUMENT: &str = "an operator or \",\"";

/// Reads as much of a text as there is to read.
pub(super) fn read(text: &str) -> Program {
    if text.len() > MAX_LENGTH {
        return Program {
            text: Box::default(),
            steps: Box::default(),
            height: 0,
            stop: Some(FormulaError::new(Stricter::TooLong, 0..0, "")),
        };
    }
    let mut parser = Parser::new(text);
    let stop = parser.formula().err();
    Program {
        text: text.into(),
        steps: parser.steps.into(),
        height: parser.height,
        stop,
    }
}

/// The error of a text in which there is nothing to compute.
pub(super) fn nothing(text: &str) -> FormulaError {
    Parser::new(text).syntax_error(OPERAND)
}

struct Parser<'t> {
    text: &'t str,
    lexer: Lexer<'t>,
    /// The token that comes next.
    token: Token,
    steps: Vec<Step>,
    /// Open parentheses, those of calls included.
    depth: usize,
    /// Values on the stack after the steps so far, and the most there were.
    values: usize,
    height: usize,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Self {
        let mut lexer = Lexer::new(text);
        let token = lexer.next();
        Self {
            text,
            lexer,
            token,
            steps: Vec::new(),
            depth: 0,
            values: 0,
            height: 0,
        }
    }

    fn formula(&mut self) -> Result<(), FormulaError> {
        self.expression()?;
        self.expect(TokenKind::End, AT_END).map(drop)
    }

    fn expression(&mut self) -> Result<(), FormulaError> {
        self.term()?;
        loop {
            let operator = match self.token.kind {
                TokenKind::Plus => Binary::Add,
                TokenKind::Minus => Binary::Subtract,
                _ => return Ok(()),
            };
            let at = self.advance().at;
            self.term()?;
            self.emit(Op::Binary(operator), &at);
        }
    }

    fn term(&mut self) -> Result<(), FormulaError> {
        self.factor()?;
        loop {
            let operator = match self.token.kind {
                TokenKind::Times => Binary::Multiply,
                TokenKind::Over => Binary::Divide,
                _ => return Ok(()),
            };
            let at = self.advance().at;
            self.factor()?;
            self.emit(Op::Binary(operator), &at);
        }
    }

    fn factor(&mut self) -> Result<(), FormulaError> {
        let mut signs = Vec::new();
        while self.token.kind == TokenKind::Minus {
            signs.push(self.advance().at);
        }
        match self.token.kind {
            TokenKind::Number => {
                let token = self.advance();
                let op = number(shown(self.lexer.bytes(&token)));
                self.emit(op, &token.at);
            }
            TokenKind::Quantity => {
                let token = self.advance();
                let op = match shown(self.lexer.bytes(&token)).parse() {
                    Ok(quantity) => Op::Quantity(quantity),
                    Err(error) => Op::invalid(Fault::Quantity(error)),
                };
                self.emit(op, &token.at);
            }
            TokenKind::Identifier => {
                let name = self.advance();
                if self.token.kind == TokenKind::Open {
                    self.call(&name)?;
                } else {
                    let lower = shown(self.lexer.bytes(&name)).to_lowercase();
                    self.emit(Op::Variable(lower.into()), &name.at);
                }
            }
            TokenKind::Open => {
                self.open()?;
                self.expression()?;
                self.close()?;
            }
            _ => return Err(self.syntax_error(OPERAND)),
        }
        for at in signs.iter().rev() {
            self.emit(Op::Negate, at);
        }
        Ok(())
    }

    /// The part of a call after the name.
    fn call(&mut self, name: &Token) -> Result<(), FormulaError> {
        self.open()?;
        self.expression()?;
        let arguments = match self.token.kind {
            TokenKind::Comma => {
                self.advance();
                self.expression()?;
                self.close()?;
                2
            }
            TokenKind::Close => {
                self.close()?;
                1
            }
            _ => return Err(self.syntax_error(IN_FIRST_ARGUMENT)),
        };
        let written = shown(self.lexer.bytes(name));
        let known = match written.to_lowercase().as_str() {
            "max" => Some((Binary::Max, "max")),
            "min" => Some((Binary::Min, "min")),
            _ => None,
        };
        let op = match (known, arguments) {
            (Some((function, _)), 2) => Op::Binary(function),
            (Some((_, name)), _) => Op::BadCall {
                arguments,
                fault: Box::new(Fault::OneArgument(name)),
            },
            (None, _) => Op::BadCall {
                arguments,
                fault: Box::new(Fault::UnknownFunction(written)),
            },
        };
        self.emit(op, &name.at);
        Ok(())
    }

    fn open(&mut self) -> Result<(), FormulaError> {
        if self.depth == MAX_DEPTH {
            return Err(FormulaError::new(
                Stricter::TooDeep,
                self.token.at.clone(),
                self.text,
            ));
        }
        self.depth += 1;
        self.advance();
        Ok(())
    }

    fn close(&mut self) -> Result<(), FormulaError> {
        self.expect(TokenKind::Close, IN_PARENTHESES)?;
        self.depth -= 1;
        Ok(())
    }

    fn expect(&mut self, kind: TokenKind, expected: &'static str) -> Result<Token, FormulaError> {
        if self.token.kind == kind {
            Ok(self.advance())
        } else {
            Err(self.syntax_error(expected))
        }
    }

    fn advance(&mut self) -> Token {
        std::mem::replace(&mut self.token, self.lexer.next())
    }

    fn emit(&mut self, op: Op, at: &Range<usize>) {
        match &op {
            Op::Number(_) | Op::Quantity(_) | Op::Variable(_) | Op::Invalid(_) => self.values += 1,
            Op::Negate | Op::BadCall { arguments: 1, .. } => {}
            Op::Binary(_) | Op::BadCall { .. } => self.values -= 1,
        }
        self.height = self.height.max(self.values);
        self.steps.push(Step::new(op, at));
    }

    fn syntax_error(&self, expected: &'static str) -> FormulaError {
        let Token { kind, at } = &self.token;
        let before = &self.text.as_bytes()[..at.end];
        let line_start = before
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |newline| newline + 1);
        let fault = Fault::Syntax {
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            column: 1 + before.len() - line_start,
            expected,
            found: match kind {
                TokenKind::End => "the end".to_owned(),
                _ => format!("{:?}", shown(self.lexer.bytes(&self.token))),
            },
        };
        FormulaError::new(fault, at.clone(), self.text)
    }
}

/// A double as Go reads it, and `%` as a hundredth.
fn number(token: String) -> Op {
    let (digits, percent) = match token.strip_suffix('%') {
        Some(digits) => (digits, true),
        None => (token.as_str(), false),
    };
    match digits.parse::<f64>() {
        Ok(number) if !number.is_finite() => Op::invalid(Stricter::NotFinite),
        Ok(number) => Op::Number(if percent { number / 100.0 } else { number }),
        Err(_) => Op::unparsable(token),
    }
}
