//! Feature gates: which of the parts that are still on trial this process runs with. A value that is handed down
//! from the flags, never a global (`spec/vpa.md` 5.1).

use std::{collections::BTreeMap, fmt, str::FromStr};

/// A feature that can be switched on or off by `--feature-gates`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// Native sidecars (init containers with `restartPolicy: Always`) are managed like regular containers.
    NativeSidecar,
    /// The update mode `InPlace`: resize, and never evict.
    InPlace,
    /// OOM, aggregation and eviction settings in the VPA object's own policy.
    PerVPAConfig,
    /// More CPU while a pod starts.
    CPUStartupBoost,
}

/// How far a feature has come; `AllAlpha` and `AllBeta` switch by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// On trial, off by default.
    Alpha,
    /// Trusted, and still switchable.
    Beta,
}

impl Gate {
    /// Every gate, in the order in which help and errors list them.
    pub const ALL: [Self; 4] = [
        Self::CPUStartupBoost,
        Self::InPlace,
        Self::NativeSidecar,
        Self::PerVPAConfig,
    ];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NativeSidecar => "NativeSidecar",
            Self::InPlace => "InPlace",
            Self::PerVPAConfig => "PerVPAConfig",
            Self::CPUStartupBoost => "CPUStartupBoost",
        }
    }

    /// How far it has come.
    #[must_use]
    pub fn stage(self) -> Stage {
        match self {
            Self::NativeSidecar | Self::InPlace | Self::PerVPAConfig | Self::CPUStartupBoost => Stage::Alpha,
        }
    }

    /// Whether it is on where nobody says anything.
    #[must_use]
    pub fn default_on(self) -> bool {
        match self.stage() {
            Stage::Alpha => false,
            Stage::Beta => true,
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|gate| gate.name() == name)
    }
}

impl Stage {
    fn all_name(self) -> &'static str {
        match self {
            Self::Alpha => "AllAlpha",
            Self::Beta => "AllBeta",
        }
    }

    fn from_all_name(name: &str) -> Option<Self> {
        [Self::Alpha, Self::Beta]
            .into_iter()
            .find(|stage| stage.all_name() == name)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
        })
    }
}

/// Which gates are on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gates(BTreeMap<Gate, bool>);

impl Gates {
    /// Whether a gate is on.
    #[must_use]
    pub fn enabled(&self, gate: Gate) -> bool {
        self.0.get(&gate).copied().unwrap_or_else(|| gate.default_on())
    }

    /// These gates with one of them set.
    #[must_use]
    pub fn with(mut self, gate: Gate, on: bool) -> Self {
        self.0.insert(gate, on);
        self
    }

    /// One line for each known gate, for `--help`.
    #[must_use]
    pub fn help() -> String {
        let mut lines = vec![
            "AllAlpha=true|false (ALPHA - default=false)".to_owned(),
            "AllBeta=true|false (BETA - default=false)".to_owned(),
        ];
        lines.extend(Gate::ALL.map(|gate| {
            format!(
                "{}=true|false ({} - default={})",
                gate.name(),
                gate.stage(),
                gate.default_on()
            )
        }));
        lines.join("\n")
    }
}

impl fmt::Display for Gates {
    /// Every gate and whether it is on, in a form that can be parsed again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = Gate::ALL.map(|gate| format!("{}={}", gate.name(), self.enabled(gate)));
        f.write_str(&all.join(","))
    }
}

/// Why a `--feature-gates` value is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// A part without `=`.
    #[error("missing value for feature gate {0:?}: write {0}=true or {0}=false")]
    MissingValue(String),
    /// A value that is not a boolean.
    #[error("invalid value {value:?} for feature gate {name}: use true or false")]
    InvalidValue {
        /// The gate's name as given.
        name: String,
        /// What stood behind the `=`.
        value: String,
    },
    /// A name nobody knows.
    #[error("unrecognized feature gate {0:?}; known gates:\n{help}", help = Gates::help())]
    Unknown(String),
}

impl FromStr for Gates {
    type Err = GateError;

    /// Reads `A=true,B=false`. A gate that is named beats `AllAlpha` and `AllBeta`, wherever they stand; of two
    /// mentions of one name the later counts.
    fn from_str(text: &str) -> Result<Self, GateError> {
        let mut named = BTreeMap::new();
        let mut stages = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| GateError::MissingValue(part.to_owned()))?;
            let (name, value) = (name.trim(), value.trim());
            let on = parse_go_bool(value).ok_or_else(|| GateError::InvalidValue {
                name: name.to_owned(),
                value: value.to_owned(),
            })?;
            if let Some(stage) = Stage::from_all_name(name) {
                stages.push((stage, on));
            } else {
                let gate = Gate::from_name(name).ok_or_else(|| GateError::Unknown(name.to_owned()))?;
                named.insert(gate, on);
            }
        }
        let mut gates = Self::default();
        for (stage, on) in stages {
            for gate in Gate::ALL.into_iter().filter(|gate| gate.stage() == stage) {
                gates = gates.with(gate, on);
            }
        }
        gates.0.extend(named);
        Ok(gates)
    }
}

/// The spellings of a boolean that Go's flags take, so that manifests written for VPA keep working.
pub(crate) fn parse_go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn on(text: &str) -> Vec<&'static str> {
        let gates: Gates = text.parse().unwrap();
        Gate::ALL
            .into_iter()
            .filter(|gate| gates.enabled(*gate))
            .map(Gate::name)
            .collect()
    }

    #[test]
    fn what_is_on() {
        let all = vec!["CPUStartupBoost", "InPlace", "NativeSidecar", "PerVPAConfig"];
        for (text, expected) in [
            ("", vec![]),
            ("NativeSidecar=true", vec!["NativeSidecar"]),
            (
                " InPlace = true , PerVPAConfig=T,",
                vec!["InPlace", "PerVPAConfig"],
            ),
            ("AllAlpha=true", all.clone()),
            ("AllBeta=true", vec![]),
            (
                "AllAlpha=true,InPlace=false",
                vec!["CPUStartupBoost", "NativeSidecar", "PerVPAConfig"],
            ),
            (
                "InPlace=false,AllAlpha=true",
                vec!["CPUStartupBoost", "NativeSidecar", "PerVPAConfig"],
            ),
            ("InPlace=true,InPlace=false", vec![]),
            ("AllAlpha=true,AllAlpha=false", vec![]),
        ] {
            assert_eq!(on(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_refused_and_how() {
        for (text, expected) in [
            (
                "NativeSidecar",
                "missing value for feature gate \"NativeSidecar\": write NativeSidecar=true",
            ),
            (
                "NativeSidecar=yes",
                "invalid value \"yes\" for feature gate NativeSidecar: use true or false",
            ),
            (
                "nativesidecar=true",
                "unrecognized feature gate \"nativesidecar\"; known gates:\nAllAlpha=true|false",
            ),
        ] {
            let error = text.parse::<Gates>().unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        let error = "InPlaceOrRecreate=true".parse::<Gates>().unwrap_err().to_string();
        for gate in Gate::ALL {
            assert!(error.contains(gate.name()), "{error}");
        }
    }

    proptest! {
        #[test]
        fn printing_and_parsing_again_is_the_same(bits in prop::array::uniform4(any::<bool>())) {
            let gates = Gate::ALL.into_iter().zip(bits).fold(Gates::default(), |gates, (gate, on)| gates.with(gate, on));
            prop_assert_eq!(gates.to_string().parse::<Gates>().unwrap(), gates);
        }

        #[test]
        fn nothing_panics(text in ".{0,64}") {
            let _any: Result<Gates, _> = text.parse();
        }
    }
}
