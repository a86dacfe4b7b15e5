//! One `resourcesPolicy` on one pod: which containers count, what their resources come to, and what the formulas make
//! of that (`spec/sidecarset.md` 3.1 to 3.3, 3.7). Where the result goes is the plan's business.

use std::fmt::{self, Write as _};

use regex::Regex;

use super::aggregate::Aggregate;
use super::parse;
use super::pattern::{self, PatternError};
use super::program::Program;
use super::{FormulaError, Value, check, evaluate};
use crate::api::sidecarset::{ResourceExpressions, ResourcesPolicy, TargetContainersMode};
use crate::gates::{Gate, Gates};
use crate::pod::{Kind, Pod, ResourceList, Resources, Side};
use crate::quantity::Quantity;

/// A resource that plans and formulas compute with. Every other resource is only ever copied and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// `cpu`, in millicores.
    Cpu,
    /// `memory`, in bytes.
    Memory,
}

/// One of the four numbers that a policy computes. It prints as `CPU limits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Field {
    /// Requests or limits.
    pub side: Side,
    /// Of what.
    pub resource: Resource,
}

/// A policy that has been read. It is made once for a SidecarSet and evaluated for each pod.
#[derive(Clone)]
pub struct Policy {
    source: ResourcesPolicy,
    mode: TargetContainersMode,
    pattern: String,
    regex: Result<Regex, PatternError>,
    /// In the order of [`Field::ALL`].
    programs: [Option<Program>; 4],
}

/// A container of the pod that may be a target.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'p> {
    /// Native sidecars come before the others, and ordinary init containers never count.
    pub kind: Kind,
    /// Its name.
    pub name: &'p str,
    /// What it has, or is planned to have.
    pub resources: &'p Resources,
}

/// What a policy gives for one pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizing {
    /// The names of the containers that count, in the order in which they do.
    pub targets: Vec<String>,
    /// In the order of [`Field::ALL`].
    outcomes: [Outcome; 4],
}

/// What a policy gives for one field.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// There is no formula, so there is no entry.
    NoFormula,
    /// A target has no limit, so the sidecar has none either, whatever the formula says.
    Unlimited,
    /// The formula's result.
    Computed {
        /// What its variable stood for.
        aggregate: Quantity,
        /// What it gave.
        result: Quantity,
    },
}

/// Why a policy gives nothing for a pod. The text is Kruise's, with a hint where it helps.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// The regular expression is none.
    #[error(
        "failed to get target containers: invalid regex pattern {}: {error}",
        Quoted(pattern)
    )]
    Pattern {
        /// The regular expression.
        pattern: String,
        /// What is wrong with it.
        error: PatternError,
    },
    /// No container counts.
    #[error("no containers match the regex pattern {}", Quoted(pattern))]
    NoTarget {
        /// The regular expression.
        pattern: String,
    },
    /// A formula has no result.
    #[error(
        "failed to evaluate {field} expression: failed to parse expression {}: {error}",
        Quoted(text)
    )]
    Formula {
        /// Which of the four.
        field: Field,
        /// The formula.
        text: String,
        /// What is wrong with it.
        error: FormulaError,
    },
}

impl Policy {
    /// Reads a policy. What is wrong with it is told by [`check`](Self::check), and by [`evaluate`](Self::evaluate) as
    /// far as it matters for the pod.
    #[must_use]
    pub fn new(policy: &ResourcesPolicy) -> Self {
        let pattern = policy.name_regex();
        let read = |field: Field| {
            let ResourceExpressions { cpu, memory } = match field.side {
                Side::Requests => &policy.resources_expr.requests,
                Side::Limits => &policy.resources_expr.limits,
            };
            let text = match field.resource {
                Resource::Cpu => cpu,
                Resource::Memory => memory,
            };
            text.as_deref().filter(|text| !text.is_empty()).map(parse::read)
        };
        Self {
            source: policy.clone(),
            // Kruise treats a mode that is missing like one it does not know.
            mode: policy
                .target_containers_mode
                .clone()
                .unwrap_or(TargetContainersMode::Other(String::new())),
            pattern: pattern.to_owned(),
            regex: pattern::compile(pattern),
            programs: Field::ALL.map(read),
        }
    }

    /// What the sidecar of this policy gets in a pod with these containers, of which those that `excluded` names are
    /// sidecars of SidecarSets themselves. The order of the candidates matters within a kind only.
    ///
    /// # Errors
    /// If it gets nothing: Kruise denies such a pod.
    pub fn evaluate<'p>(
        &self,
        candidates: impl IntoIterator<Item = Candidate<'p>>,
        excluded: impl Fn(&str) -> bool,
    ) -> Result<Sizing, PolicyError> {
        let regex = self.regex.as_ref().map_err(|error| PolicyError::Pattern {
            pattern: self.pattern.clone(),
            error: error.clone(),
        })?;
        let mut targets: Vec<Candidate<'p>> = candidates
            .into_iter()
            .filter(|candidate| !excluded(candidate.name) && regex.is_match(candidate.name))
            .collect();
        targets.sort_by_key(|target| match target.kind {
            Kind::NativeSidecar => 0,
            Kind::Regular => 1,
        });
        if targets.is_empty() {
            return Err(PolicyError::NoTarget {
                pattern: self.pattern.clone(),
            });
        }

        let mut outcomes = [const { Outcome::NoFormula }; 4];
        for ((field, program), outcome) in Field::ALL.into_iter().zip(&self.programs).zip(&mut outcomes) {
            if let Some(program) = program {
                *outcome = self.outcome(field, program, &targets)?;
            }
        }
        Ok(Sizing {
            targets: targets.iter().map(|target| target.name.to_owned()).collect(),
            outcomes,
        })
    }

    /// What is wrong with the policy whatever the pod, by field; nothing for a formula that is refused only for small
    /// amounts (`DESIGN.md` 4). The regular expression is asked for by [`pattern_error`](Self::pattern_error).
    pub fn check(&self) -> impl Iterator<Item = (Field, FormulaError)> {
        Field::ALL
            .into_iter()
            .zip(&self.programs)
            .filter_map(|(field, program)| {
                let program = program.as_ref()?;
                // Kruise's validator knows the field's variable, its injection the one that is bound: both must do.
                let variables = [field.resource.name(), bound_variable(&program.text)];
                let error = variables
                    .iter()
                    .find_map(|variable| check(program, &[variable]).err())?;
                Some((field, error))
            })
    }

    /// What is wrong with the regular expression.
    #[must_use]
    pub fn pattern_error(&self) -> Option<&PatternError> {
        self.regex.as_ref().err()
    }

    /// The policy as it was written.
    #[must_use]
    pub fn source(&self) -> &ResourcesPolicy {
        &self.source
    }

    /// The text of one of its formulas.
    #[must_use]
    pub fn formula(&self, field: Field) -> Option<&str> {
        let (_, program) = Field::ALL
            .into_iter()
            .zip(&self.programs)
            .find(|(known, _)| *known == field)?;
        program.as_ref().map(|program| program.text.as_ref())
    }

    fn outcome(
        &self,
        field: Field,
        program: &Program,
        targets: &[Candidate<'_>],
    ) -> Result<Outcome, PolicyError> {
        let amounts = targets.iter().map(|target| field.of(target.resources));
        let aggregate = match Aggregate::of(&self.mode, field.side, amounts) {
            Aggregate::Amount(amount) => amount,
            Aggregate::Unlimited => return Ok(Outcome::Unlimited),
        };
        let bindings = [(bound_variable(&program.text), Value::Quantity(aggregate.clone()))];
        let result = evaluate(program, &bindings).and_then(|value| {
            value
                .into_quantity()
                .map_err(|stricter| program.whole_error(stricter))
        });
        match result {
            Ok(result) => Ok(Outcome::Computed { aggregate, result }),
            Err(error) => Err(PolicyError::Formula {
                field,
                text: program.text.to_string(),
                error,
            }),
        }
    }
}

impl fmt::Debug for Policy {
    /// As it was written; what was made of that says nothing more.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Policy").field(&self.source).finish()
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl<'p> Candidate<'p> {
    /// The containers of a pod as its spec has them. Native sidecars count whatever the gate says, as in Kruise: to
    /// read what they have is not to manage them.
    pub fn of_pod(pod: &'p Pod) -> impl Iterator<Item = Self> {
        let gates = Gates::default().with(Gate::NativeSidecar, true);
        let containers: Vec<_> = pod.managed(&gates).collect();
        containers.into_iter().map(|container| Self {
            kind: container.kind(),
            name: container.name(),
            resources: container.spec_resources(),
        })
    }
}

impl Sizing {
    /// What there is for one field, and why.
    #[must_use]
    pub fn outcome(&self, field: Field) -> &Outcome {
        let [limits_cpu, limits_memory, requests_cpu, requests_memory] = &self.outcomes;
        match (field.side, field.resource) {
            (Side::Limits, Resource::Cpu) => limits_cpu,
            (Side::Limits, Resource::Memory) => limits_memory,
            (Side::Requests, Resource::Cpu) => requests_cpu,
            (Side::Requests, Resource::Memory) => requests_memory,
        }
    }

    /// The whole resources that the sidecar gets in place of what it has. Maps without an entry are absent.
    #[must_use]
    pub fn resources(&self) -> Resources {
        let side = |side: Side| {
            let entries = Field::ALL.into_iter().filter(|field| field.side == side);
            let list: ResourceList = entries
                .filter_map(|field| match self.outcome(field) {
                    Outcome::Computed { result, .. } => {
                        Some((field.resource.name().to_owned(), result.clone()))
                    }
                    Outcome::NoFormula | Outcome::Unlimited => None,
                })
                .collect();
            (!list.is_empty()).then_some(list)
        };
        Resources {
            requests: side(Side::Requests),
            limits: side(Side::Limits),
        }
    }
}

impl Resource {
    /// Both, in the order in which everything lists them.
    pub const BOTH: [Self; 2] = [Self::Cpu, Self::Memory];

    /// Its key in `requests` and `limits`, and its variable.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        }
    }
}

impl Field {
    /// All four, in the order in which Kruise computes them.
    pub const ALL: [Self; 4] = [
        Self::new(Side::Limits, Resource::Cpu),
        Self::new(Side::Limits, Resource::Memory),
        Self::new(Side::Requests, Resource::Cpu),
        Self::new(Side::Requests, Resource::Memory),
    ];

    /// The requests or the limits of a resource.
    #[must_use]
    pub const fn new(side: Side, resource: Resource) -> Self {
        Self { side, resource }
    }

    fn of(self, resources: &Resources) -> Option<&Quantity> {
        match self.side {
            Side::Limits => resources.limit(self.resource.name()),
            Side::Requests => resources.request(self.resource.name()),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resource = match self.resource {
            Resource::Cpu => "CPU",
            Resource::Memory => "memory",
        };
        let side = match self.side {
            Side::Limits => "limits",
            Side::Requests => "requests",
        };
        write!(f, "{resource} {side}")
    }
}

/// The one variable that has a value: `memory` if the formula says so as a whole word in lower case, else `cpu`,
/// whichever field it is for (`spec/sidecarset.md` 3.7).
fn bound_variable(text: &str) -> &'static str {
    let bytes = text.as_bytes();
    let word = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let found = text.match_indices("memory").any(|(start, found)| {
        let before = start.checked_sub(1).and_then(|before| bytes.get(before));
        !word(before) && !word(bytes.get(start + found.len()))
    });
    if found { "memory" } else { "cpu" }
}

/// A text in quotes as Go writes it.
struct Quoted<'t>(&'t str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\x07' => f.write_str("\\a")?,
                '\x08' => f.write_str("\\b")?,
                '\x0C' => f.write_str("\\f")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                '\x0B' => f.write_str("\\v")?,
                c if c.is_ascii_control() => write!(f, "\\x{:02x}", u32::from(c))?,
                c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}
