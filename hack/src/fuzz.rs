//! `hack fuzz formula`: texts that grew out of good formulas by chance, through lexer, parser, checker and evaluator, and
//! through whole policies with their regular expressions. Nothing may panic; the slowest is told.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use clap::Subcommand;
use common::{
    api::sidecarset::ResourcesPolicy,
    formula::{Candidate, Formula, Policy, Value, calculate},
    pod::{Kind, Resources},
    quantity::Quantity,
};
use serde_json::json;

/// Where texts start from: every construct of the language, and what has gone wrong elsewhere.
const SEEDS: &[&str] = &[
    "0.5*cpu - 0.3*max(0, cpu-4) + 0.3*max(0, cpu-8)",
    "min(max(max(max(0.5,0.5*cpu),cpu-1.0),cpu-1.0),3.0)",
    "max(memory*20% + 100Mi, 200Mi)",
    "(100m + 50m) * 2 - 50m",
    "1e3+-200",
    "-cpu + 3.0",
    "9223372036854775807m*1",
    "1e400",
    "50%5",
    ".5Mi",
    "cpu/0",
    "((((1))))",
];
const PATTERNS: &[&str] = &[
    "^large-engine-v.*$",
    "(a+)+$",
    "[a-z]{1,1000}",
    "\\Qa.b\\E",
    "(?i)APP|x*",
    "[[:alpha:]]+",
];
const BYTES: &[u8] = b"0123456789.eE+-*/(),% mkMGTPiKcpumeorynax\t\n_@^[]{}|?\\\"\xc3\xa9\0";
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Try what nobody thought of
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Formulas of SidecarSets
    Formula {
        /// How many texts
        #[arg(long, default_value_t = 10_000_000)]
        inputs: u64,
        /// Where chance begins: the same number gives the same texts
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

impl Command {
    /// Runs it.
    ///
    /// # Errors
    /// If something panicked.
    pub fn run(&self) -> Result<()> {
        let Self::Formula { inputs, seed } = self;
        formulas(*inputs, *seed)
    }
}

fn formulas(inputs: u64, seed: u64) -> Result<()> {
    let mut chance = Chance(seed.max(1));
    let begun = Instant::now();
    let mut told = begun;
    let mut slowest = (Duration::ZERO, String::new());
    let (mut read, mut valued) = (0_u64, 0_u64);
    for input in 0..inputs {
        let start = chance.0;
        let text = chance.text(SEEDS);
        let pattern = (input % 16 == 0).then(|| chance.text(PATTERNS));
        let variable = chance.quantity();
        let first = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| try_all(&text, &variable, pattern.as_deref())));
        let Ok(Tried { is_read, has_value }) = outcome else {
            bail!(
                "a panic on {text:?} with {variable} and pattern {pattern:?}: again with --seed {start} --inputs 1"
            );
        };
        // Somebody else may have had the processor: only what is slow again is slow.
        let mut time = first.elapsed();
        if time > slowest.0 {
            let second = Instant::now();
            try_all(&text, &variable, pattern.as_deref());
            time = time.min(second.elapsed());
        }
        if time > slowest.0 {
            slowest = (time, format!("{text:?} {pattern:?}"));
        }
        read += u64::from(is_read);
        valued += u64::from(has_value);
        if told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            println!(
                "{} of {inputs} texts, {read} formulas, {valued} with a value",
                input + 1
            );
        }
    }
    println!(
        "{inputs} texts in {:.0} s, {read} formulas, {valued} with a value, no panic; the slowest took {:?}: {}",
        begun.elapsed().as_secs_f64(),
        slowest.0,
        slowest.1
    );
    Ok(())
}

struct Tried {
    is_read: bool,
    has_value: bool,
}

fn try_all(text: &str, variable: &Quantity, pattern: Option<&str>) -> Tried {
    let variables = [
        ("cpu", Value::Quantity(variable.clone())),
        ("memory", Value::Number(1.5)),
    ];
    let direct = calculate(text, &variables);
    let has_value = direct.is_ok();
    if let Err(error) = direct {
        std::hint::black_box((error.to_string(), error.caret().to_string()));
    }
    let formula = Formula::parse(text);
    if let Ok(formula) = &formula {
        std::hint::black_box((formula.check(&["cpu"]), formula.evaluate(&variables)).0.is_ok());
    }
    if let Some(pattern) = pattern {
        let policy = json!({
            "targetContainersMode": "sum", "targetContainersNameRegex": pattern,
            "resourcesExpr": {"requests": {"cpu": text}},
        });
        if let Ok(policy) = serde_json::from_value::<ResourcesPolicy>(policy) {
            let policy = Policy::new(&policy);
            let resources = Resources::default();
            let candidate = Candidate {
                kind: Kind::Regular,
                name: "large-engine-v4",
                resources: &resources,
            };
            std::hint::black_box(policy.evaluate([candidate], |_| false).is_ok());
        }
    }
    Tried {
        is_read: formula.is_ok(),
        has_value,
    }
}

/// Chance that repeats itself.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.next() % end).unwrap_or(0)
    }

    /// A seed with parts cut out, doubled, taken from others or put in by the byte; now and then very long.
    fn text(&mut self, seeds: &[&str]) -> String {
        let pick = self.below(seeds.len());
        let mut bytes: Vec<u8> = seeds.get(pick).copied().unwrap_or_default().bytes().collect();
        for _ in 0..self.below(8) {
            let at = self.below(bytes.len() + 1);
            let to = (at + self.below(9)).min(bytes.len());
            match self.below(5) {
                0 => _ = bytes.drain(at..to),
                1 => {
                    let part = bytes[at..to].to_vec();
                    bytes.splice(at..at, part);
                }
                2 => {
                    let pick = self.below(seeds.len());
                    let other = seeds.get(pick).copied().unwrap_or_default().as_bytes();
                    let from = self.below(other.len());
                    let end = (from + self.below(12)).min(other.len());
                    bytes.splice(at..at, other[from..end].iter().copied());
                }
                _ => {
                    let byte = BYTES.get(self.below(BYTES.len())).copied().unwrap_or(b'0');
                    bytes.insert(at, byte);
                }
            }
        }
        if self.below(1000) == 0 {
            bytes = bytes.repeat(1 + self.below(200));
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn quantity(&mut self) -> Quantity {
        let texts = [
            "0",
            "100m",
            "7777m",
            "1Gi",
            "1e9",
            "-5",
            "9E",
            "0.000000001",
            "1e1000",
        ];
        let pick = self.below(texts.len());
        texts
            .get(pick)
            .and_then(|text| text.parse().ok())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_thousand_texts_are_tried() {
        formulas(5_000, 7).unwrap();
    }
}
