//! `admission formula`: for people who write formulas. One formula on a value, the picture of it, or whole SidecarSets on a
//! pod, with the reason for every number.

mod pictures;
mod plot;
mod sets;

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use clap::Parser;
use common::{
    formula::{Fault, Formula, FormulaError, Value},
    quantity::{Quantity, QuantityError},
};

/// The word that turns the daemon's program into this one.
pub const WORD: &str = "formula";

const EXAMPLES: &str = "Examples:
  admission formula 'max(cpu*50%, 50m)' --cpu 200m
  admission formula '0.5*cpu - 0.3*max(0, cpu-4) + 0.3*max(0, cpu-8)' --plot=story.svg --to 12
  admission formula --pod pod.yaml --sidecarset set.yaml --vpa vpa.yaml

Names: cpu and memory. Numbers: 2, 0.5, 50%, 1e3. Quantities: 50m, 1.5, 200Mi; units m k M G T P Ki Mi Gi Ti Pi.
Operators: + - * / and parentheses. Functions of two values: max, min.";

/// Evaluate, draw or explain the formulas of SidecarSets
#[derive(Clone, Debug, Parser)]
#[command(name = "admission formula", bin_name = "admission formula", max_term_width = 110, after_help = EXAMPLES)]
pub struct FormulaArgs {
    /// A formula
    #[arg(required_unless_present = "sidecarset", allow_hyphen_values = true)]
    formula: Option<String>,
    /// What `cpu` stands for
    #[arg(long, value_name = "QUANTITY")]
    cpu: Option<Quantity>,
    /// What `memory` stands for
    #[arg(long, value_name = "QUANTITY")]
    memory: Option<Quantity>,
    /// Draw it here, and into a file
    #[arg(long, value_name = "FILE.svg", num_args = 0..=1, require_equals = true, default_missing_value = "formula.svg")]
    plot: Option<PathBuf>,
    /// Where the picture begins
    #[arg(long, value_name = "QUANTITY", requires = "plot")]
    from: Option<Quantity>,
    /// Where it ends [default: 8 of cpu, 16Gi of memory]
    #[arg(long, value_name = "QUANTITY", requires = "plot")]
    to: Option<Quantity>,
    /// A pod, as YAML or JSON
    #[arg(long, value_name = "FILE", requires = "sidecarset")]
    pod: Option<PathBuf>,
    /// SidecarSets whose sidecars the pod gets
    #[arg(long, value_name = "FILE", requires = "pod", conflicts_with = "formula")]
    sidecarset: Vec<PathBuf>,
    /// The VPA that controls the pod, with its recommendation
    #[arg(long, value_name = "FILE", requires = "pod")]
    vpa: Option<PathBuf>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum CliError {
    #[error("{}{}", .0.caret(), hint(.0))]
    Formula(Box<FormulaError>),
    #[error("{0}")]
    Quantity(#[from] QuantityError),
    #[error("--from has to be less than --to")]
    Range,
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, std::io::Error),
    #[error("cannot write {0}: {1}")]
    Write(PathBuf, std::io::Error),
    #[error("{0}: {1}")]
    Object(PathBuf, String),
}

impl From<FormulaError> for CliError {
    fn from(error: FormulaError) -> Self {
        Self::Formula(Box::new(error))
    }
}

/// Runs if the command line asks for it: the word counts only right behind the program's name.
#[must_use]
pub fn asked(argv: impl IntoIterator<Item = OsString>) -> Option<FormulaArgs> {
    let mut argv = argv.into_iter();
    let program = argv.next()?;
    let is_asked = argv.next().is_some_and(|word| word == WORD);
    is_asked.then(|| {
        FormulaArgs::try_parse_from(std::iter::once(program).chain(argv)).unwrap_or_else(|error| error.exit())
    })
}

impl FormulaArgs {
    /// Answers on the terminal.
    #[must_use]
    pub fn run(&self) -> ExitCode {
        match self.answer() {
            Ok(answer) => {
                println!("{}", answer.trim_end());
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        }
    }

    fn answer(&self) -> Result<String, CliError> {
        match &self.formula {
            Some(text) => self.formula(text),
            None => sets::explain(self.pod.as_deref(), &self.sidecarset, self.vpa.as_deref()),
        }
    }

    fn formula(&self, text: &str) -> Result<String, CliError> {
        let formula = Formula::parse(text)?;
        let mut lines = Vec::new();
        if let Some(file) = &self.plot {
            let curve = plot::curve(&formula, self.from.as_ref(), self.to.as_ref())?;
            std::fs::write(file, pictures::svg(&curve))
                .map_err(|error| CliError::Write(file.clone(), error))?;
            lines.push(pictures::terminal(&curve));
            lines.push(format!("written to {}", file.display()));
        }
        // A picture needs no value.
        if self.plot.is_none() || self.cpu.is_some() || self.memory.is_some() {
            let given = [("cpu", &self.cpu), ("memory", &self.memory)];
            let variables: Vec<(&str, Value)> = given
                .into_iter()
                .filter_map(|(name, value)| Some((name, value.clone()?.into())))
                .collect();
            lines.push(formula.evaluate(&variables)?.to_string());
        }
        Ok(lines.join("\n"))
    }
}

/// What may help, on a line of its own.
fn hint(error: &FormulaError) -> String {
    match error.fault() {
        Fault::UndefinedVariable(name) if ["cpu", "memory"].contains(&name.as_str()) => {
            format!("\nsay what it stands for: --{name} QUANTITY")
        }
        Fault::UndefinedVariable(_) => "\nformulas know cpu and memory".to_owned(),
        Fault::Negative(_) => {
            "\nin a SidecarSet, a pod with this result is refused; write max(…, 0)".to_owned()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
