//! The text form of a load: `40Mi + 2Mi * traffic`, `daily(100m, 600m, 14h) * noise(5%)`.

use std::{str::FromStr, time::Duration};

use common::quantity::Quantity;

use super::shape::Load;

/// What is wrong with the text of a load, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("in the load {text:?} at column {column}: {problem}")]
pub struct LoadError {
    text: String,
    column: usize,
    problem: String,
}

/// Deeper parentheses are somebody's mistake.
const DEPTH: usize = 16;

const FORMS: &str = "write an amount such as 100m or 64Mi, traffic, daily(low, high, hour), ramp(from, to, time), \
                     burst(low, high, every, time), leak(start, perHour), noise(part), with + and * between them";

impl FromStr for Load {
    type Err = LoadError;

    fn from_str(text: &str) -> Result<Self, LoadError> {
        let mut parser = Parser { text, at: 0 };
        let load = parser.sum(DEPTH)?;
        if parser.peek().is_some() {
            return parser.fail("nothing is expected here but + or *");
        }
        Ok(load)
    }
}

/// A span such as `90s`, `10min`, `1.5h` or `2d`.
///
/// # Errors
/// When it is none.
pub(super) fn duration(text: &str) -> Result<Duration, LoadError> {
    let mut parser = Parser { text, at: 0 };
    match parser.literal()? {
        Literal::Time(time) if parser.peek().is_none() => Ok(time),
        _ => parser.fail("a time such as 90s, 10min, 2h or 1d is expected"),
    }
}

#[derive(Clone, Copy)]
enum Literal {
    Amount(f64),
    Time(Duration),
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn sum(&mut self, depth: usize) -> Result<Load, LoadError> {
        let mut parts = vec![self.product(depth)?];
        while self.take('+') {
            parts.push(self.product(depth)?);
        }
        Ok(one_or(parts, Load::Sum))
    }

    fn product(&mut self, depth: usize) -> Result<Load, LoadError> {
        let mut parts = vec![self.atom(depth)?];
        while self.take('*') {
            parts.push(self.atom(depth)?);
        }
        Ok(one_or(parts, Load::Product))
    }

    fn atom(&mut self, depth: usize) -> Result<Load, LoadError> {
        if self.take('(') {
            let Some(depth) = depth.checked_sub(1) else {
                return self.fail("the parentheses are too deep");
            };
            let inner = self.sum(depth)?;
            return if self.take(')') {
                Ok(inner)
            } else {
                self.fail("a ) is missing")
            };
        }
        match self.peek() {
            Some(c) if c.is_ascii_digit() || c == '.' => self.amount().map(Load::Constant),
            Some(c) if c.is_ascii_alphabetic() => self.named(),
            _ => self.fail(FORMS),
        }
    }

    fn named(&mut self) -> Result<Load, LoadError> {
        let start = self.at;
        let name = self.word(|c| c.is_ascii_alphabetic());
        if name == "traffic" {
            return Ok(Load::Traffic);
        }
        if !["daily", "ramp", "burst", "leak", "noise"].contains(&name) {
            self.at = start;
            return self.fail(FORMS);
        }
        self.expect('(')?;
        let load = match name {
            "daily" => Load::Daily {
                low: self.amount()?,
                high: self.next_amount()?,
                peak: self.next_time()?,
            },
            "ramp" => Load::Ramp {
                from: self.amount()?,
                to: self.next_amount()?,
                over: self.next_time()?,
            },
            "burst" => Load::Burst {
                low: self.amount()?,
                high: self.next_amount()?,
                every: self.next_time()?,
                lasting: self.next_time()?,
            },
            "leak" => Load::Leak {
                start: self.amount()?,
                per_hour: self.next_amount()?,
            },
            _ => Load::Noise(self.amount()?.min(1.0)),
        };
        self.expect(')')?;
        Ok(load)
    }

    fn next_amount(&mut self) -> Result<f64, LoadError> {
        self.expect(',')?;
        self.amount()
    }

    fn next_time(&mut self) -> Result<Duration, LoadError> {
        self.expect(',')?;
        let start = self.start();
        match self.literal()? {
            Literal::Time(time) => Ok(time),
            Literal::Amount(_) => {
                self.at = start;
                self.fail("a time such as 90s, 10min, 2h or 1d is expected")
            }
        }
    }

    fn amount(&mut self) -> Result<f64, LoadError> {
        let start = self.start();
        match self.literal()? {
            Literal::Amount(amount) => Ok(amount),
            Literal::Time(_) => {
                self.at = start;
                self.fail("an amount such as 100m, 64Mi or 5% is expected, not a time")
            }
        }
    }

    fn literal(&mut self) -> Result<Literal, LoadError> {
        let start = self.start();
        let number = self.word(|c| c.is_ascii_digit() || c == '.');
        let unit = self.word(|c| c.is_ascii_alphabetic() || c == '%');
        let parsed = match unit {
            "s" | "min" | "h" | "d" => {
                let size = match unit {
                    "s" => 1.0,
                    "min" => 60.0,
                    "h" => 3600.0,
                    _ => 86_400.0,
                };
                let seconds = number.parse::<f64>().ok().map(|number| number * size);
                seconds
                    .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                    .map(Literal::Time)
            }
            "%" => number
                .parse::<f64>()
                .ok()
                .map(|percent| Literal::Amount(percent / 100.0)),
            _ => format!("{number}{unit}")
                .parse::<Quantity>()
                .ok()
                .map(|quantity| Literal::Amount(quantity.approximate_f64())),
        };
        match parsed {
            Some(literal) => Ok(literal),
            None => {
                self.at = start;
                self.fail("a number is expected, with a unit such as m, Mi, %, s, min, h or d")
            }
        }
    }

    fn word(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !belongs(c)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    fn expect(&mut self, wanted: char) -> Result<(), LoadError> {
        if self.take(wanted) {
            return Ok(());
        }
        self.fail(&format!("a {wanted} is missing"))
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += if found { wanted.len_utf8() } else { 0 };
        found
    }

    fn peek(&mut self) -> Option<char> {
        self.start();
        self.rest().chars().next()
    }

    /// Where the next thing begins.
    fn start(&mut self) -> usize {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
        self.at
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn fail<T>(&self, problem: &str) -> Result<T, LoadError> {
        Err(LoadError {
            text: self.text.to_owned(),
            column: self.at + 1,
            problem: problem.to_owned(),
        })
    }
}

fn one_or(mut parts: Vec<Load>, many: fn(Vec<Load>) -> Load) -> Load {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        Some(last) => {
            parts.push(last);
            many(parts)
        }
        None => Load::Constant(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let table = [
            ("", 1, "write an amount"),
            ("100q", 1, "a number is expected"),
            ("100m +", 7, "write an amount"),
            ("dayly(1, 2, 3h)", 1, "write an amount"),
            ("daily(1, 2, 3)", 13, "a time such as"),
            ("daily(1, 2h, 3h)", 10, "an amount such as"),
            ("daily(1, 2)", 11, "a , is missing"),
            ("leak(1, 2", 10, "a ) is missing"),
            ("1 2", 3, "nothing is expected here"),
            ("((((((((((((((((((1))))))))))))))))))", 18, "too deep"),
        ];
        for (text, column, problem) in table {
            let error = text.parse::<Load>().unwrap_err();
            assert_eq!(error.column, column, "{error}");
            assert!(error.to_string().contains(problem), "{error}");
        }
    }

    #[test]
    fn times() {
        let table = [("90s", 90), ("10min", 600), ("1.5h", 5400), ("2d", 172_800)];
        for (text, seconds) in table {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)));
        }
        for text in ["", "5", "5m", "5h 3", "-5s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,40}") {
            drop(text.parse::<Load>());
        }

        #[test]
        fn near_texts_neither(text in "[a-z(),.+* 0-9%Mi]{0,40}") {
            drop(text.parse::<Load>());
        }
    }
}
