//! The named differences from VPA: what it gets wrong, and we do right unless an operator wants its way back with
//! `--quirks`. A value that the pure code takes as an argument; crashes and leaks of VPA are no switches.

use std::{fmt, str::FromStr};

/// One thing VPA does that we do not. The numbers up to 28 are those of the register in `spec/vpa.md` 10, what was found
/// later goes on from there; KA is an issue of kubernetes/autoscaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quirk {
    /// Q3
    LaxPrometheusAuth,
    /// Q4
    MissingVpaStopsWorker,
    /// Q5
    ScaleCachedForever,
    /// Q6
    StickyOverrides,
    /// Q8
    ZeroSampleFreezesPeak,
    /// Q10
    ActsOnMinimumWithoutSamples,
    /// Q11
    MatrixLabelsOnly,
    /// Q12
    UnknownOwnerHasNoBudget,
    /// Q13
    ResizeClockByName,
    /// Q14
    PatchesDeferredPods,
    /// Q15
    WebhookIgnoresNamespace,
    /// Q18
    BoostedPodFreesGroup,
    /// Q20
    BoostWritesZeroRequest,
    /// Q21
    ObservedNeedsSpace,
    /// Q22
    NamedPodKeepsNoNamespace,
    /// Q26
    LeaseBlocksResizes,
    /// kubernetes/autoscaler#9521
    OomBumpIgnoresCap,
    /// kubernetes/autoscaler#9891
    SelectorChangeDropsHistory,
    /// kubernetes/autoscaler#10042
    RestartLosesPeaks,
    /// kubernetes/autoscaler#10211
    MemoryOnlyIsEmpty,
    /// kubernetes/autoscaler#10255
    UnboundedMemoryWindow,
    /// Q29
    AppliesToContainersSwitchedOff,
    /// Q30
    AdmissionReadsStatus,
    /// Q31
    PodLimitRangeScalesNothing,
    /// Q32
    BoostForgetsDefaultLimit,
    /// Q33
    FirstResizeConditionHidesOthers,
    /// Q34
    ActsWithoutChange,
    /// Q35
    SendsHopelessResizes,
    /// Q36
    RestartsBelowMinReplicas,
    /// Q37
    EvictsWithoutEvidence,
}

impl Quirk {
    /// Every quirk, by number.
    pub const ALL: [Self; 30] = [
        Self::LaxPrometheusAuth,
        Self::MissingVpaStopsWorker,
        Self::ScaleCachedForever,
        Self::StickyOverrides,
        Self::ZeroSampleFreezesPeak,
        Self::ActsOnMinimumWithoutSamples,
        Self::MatrixLabelsOnly,
        Self::UnknownOwnerHasNoBudget,
        Self::ResizeClockByName,
        Self::PatchesDeferredPods,
        Self::WebhookIgnoresNamespace,
        Self::BoostedPodFreesGroup,
        Self::BoostWritesZeroRequest,
        Self::ObservedNeedsSpace,
        Self::NamedPodKeepsNoNamespace,
        Self::LeaseBlocksResizes,
        Self::OomBumpIgnoresCap,
        Self::SelectorChangeDropsHistory,
        Self::RestartLosesPeaks,
        Self::MemoryOnlyIsEmpty,
        Self::UnboundedMemoryWindow,
        Self::AppliesToContainersSwitchedOff,
        Self::AdmissionReadsStatus,
        Self::PodLimitRangeScalesNothing,
        Self::BoostForgetsDefaultLimit,
        Self::FirstResizeConditionHidesOthers,
        Self::ActsWithoutChange,
        Self::SendsHopelessResizes,
        Self::RestartsBelowMinReplicas,
        Self::EvictsWithoutEvidence,
    ];

    /// The name on the command line.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::LaxPrometheusAuth => "Q3",
            Self::MissingVpaStopsWorker => "Q4",
            Self::ScaleCachedForever => "Q5",
            Self::StickyOverrides => "Q6",
            Self::ZeroSampleFreezesPeak => "Q8",
            Self::ActsOnMinimumWithoutSamples => "Q10",
            Self::MatrixLabelsOnly => "Q11",
            Self::UnknownOwnerHasNoBudget => "Q12",
            Self::ResizeClockByName => "Q13",
            Self::PatchesDeferredPods => "Q14",
            Self::WebhookIgnoresNamespace => "Q15",
            Self::BoostedPodFreesGroup => "Q18",
            Self::BoostWritesZeroRequest => "Q20",
            Self::ObservedNeedsSpace => "Q21",
            Self::NamedPodKeepsNoNamespace => "Q22",
            Self::LeaseBlocksResizes => "Q26",
            Self::OomBumpIgnoresCap => "KA9521",
            Self::SelectorChangeDropsHistory => "KA9891",
            Self::RestartLosesPeaks => "KA10042",
            Self::MemoryOnlyIsEmpty => "KA10211",
            Self::UnboundedMemoryWindow => "KA10255",
            Self::AppliesToContainersSwitchedOff => "Q29",
            Self::AdmissionReadsStatus => "Q30",
            Self::PodLimitRangeScalesNothing => "Q31",
            Self::BoostForgetsDefaultLimit => "Q32",
            Self::FirstResizeConditionHidesOthers => "Q33",
            Self::ActsWithoutChange => "Q34",
            Self::SendsHopelessResizes => "Q35",
            Self::RestartsBelowMinReplicas => "Q36",
            Self::EvictsWithoutEvidence => "Q37",
        }
    }

    /// What VPA does, in one line.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::LaxPrometheusAuth => {
                "conflicting Prometheus credentials are refused only if all three are given"
            }
            Self::MissingVpaStopsWorker => {
                "a VPA missing from the model ends its worker for the rest of the loop"
            }
            Self::ScaleCachedForever => "scale look-ups are remembered for good, failed ones too",
            Self::StickyOverrides => {
                "per-VPA OOM and interval settings outlive their removal from the object"
            }
            Self::ZeroSampleFreezesPeak => "a first memory sample of 0 bytes keeps the window's peak at 0",
            Self::ActsOnMinimumWithoutSamples => {
                "containers without any sample are recommended the bare minimum, and resized to it"
            }
            Self::MatrixLabelsOnly => "pod labels from Prometheus history must be a range vector",
            Self::UnknownOwnerHasNoBudget => {
                "pods of unknown controller kinds are evicted without a disruption budget"
            }
            Self::ResizeClockByName => "a stuck resize is timed by pod name and never forgotten",
            Self::PatchesDeferredPods => {
                "mode InPlace patches pods whose resize is deferred, every loop again"
            }
            Self::WebhookIgnoresNamespace => {
                "--vpa-object-namespace does not narrow the webhook's namespaces"
            }
            Self::BoostedPodFreesGroup => "one boosted pod lets its whole group pass the replica minimum",
            Self::BoostWritesZeroRequest => {
                "a factor boost on a container without CPU request writes request 0"
            }
            Self::ObservedNeedsSpace => {
                "names in vpaObservedContainers without a space behind the comma switch the filter off"
            }
            Self::NamedPodKeepsNoNamespace => {
                "a named pod does not get its namespace from the admission request"
            }
            Self::LeaseBlocksResizes => "without the admission lease in-place resizes stop too",
            Self::OomBumpIgnoresCap => "an OOM counts as more memory than maxAllowed lets anyone have",
            Self::SelectorChangeDropsHistory => {
                "a VPA whose target cannot be resolved for a moment loses what its checkpoints held"
            }
            Self::RestartLosesPeaks => {
                "a restart of the recommender forgets the memory peaks of the current windows"
            }
            Self::MemoryOnlyIsEmpty => "a history of memory without any CPU sample is thrown away as empty",
            Self::UnboundedMemoryWindow => {
                "memory peaks older than the aggregation window still count, however little"
            }
            Self::AppliesToContainersSwitchedOff => {
                "a recommendation left over for a container with mode Off reaches new pods"
            }
            Self::AdmissionReadsStatus => {
                "a status written by whoever creates the pod counts, and the patch may not apply to the spec"
            }
            Self::PodLimitRangeScalesNothing => {
                "a pod LimitRange gives containers without an amount 0 of CPU and -1 of memory"
            }
            Self::BoostForgetsDefaultLimit => {
                "a boosted request exceeds the limit that a LimitRange's default gave"
            }
            Self::FirstResizeConditionHidesOthers => {
                "a resize condition that is not True hides the one behind it"
            }
            Self::ActsWithoutChange => "pods are resized and evicted for resources that they have already",
            Self::SendsHopelessResizes => {
                "a resize that would change the QoS class is sent, to be refused by the API server"
            }
            Self::RestartsBelowMinReplicas => {
                "a group below minReplicas that resizes may pass by is resized even if containers restart"
            }
            Self::EvictsWithoutEvidence => "evictions go on whether or not the pods that follow are sized",
        }
    }

    fn from_id(id: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|quirk| quirk.id().eq_ignore_ascii_case(id))
    }

    fn bit(self) -> u64 {
        Self::ALL
            .iter()
            .take_while(|quirk| **quirk != self)
            .fold(1, |bit, _| bit << 1)
    }
}

impl fmt::Display for Quirk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// Which of VPA's quirks are in force. None by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Quirks(u64);

impl Quirks {
    /// VPA's way throughout.
    #[must_use]
    pub fn all() -> Self {
        Quirk::ALL.into_iter().collect()
    }

    /// Our way throughout.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Whether a quirk is in force.
    #[must_use]
    pub fn has(self, quirk: Quirk) -> bool {
        self.0 & quirk.bit() != 0
    }

    /// These and one more.
    #[must_use]
    pub fn with(self, quirk: Quirk) -> Self {
        Self(self.0 | quirk.bit())
    }

    /// These but one.
    #[must_use]
    pub fn without(self, quirk: Quirk) -> Self {
        Self(self.0 & !quirk.bit())
    }

    /// Those in force, by number.
    pub fn iter(self) -> impl Iterator<Item = Quirk> {
        Quirk::ALL.into_iter().filter(move |quirk| self.has(*quirk))
    }

    /// One line for each known quirk, for `--help`.
    #[must_use]
    pub fn help() -> String {
        Quirk::ALL
            .map(|quirk| format!("{quirk}: {}", quirk.description()))
            .join("\n")
    }
}

impl FromIterator<Quirk> for Quirks {
    fn from_iter<I: IntoIterator<Item = Quirk>>(quirks: I) -> Self {
        quirks.into_iter().fold(Self::none(), Self::with)
    }
}

impl fmt::Display for Quirks {
    /// In a form that can be parsed again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::none() {
            f.write_str("none")
        } else if *self == Self::all() {
            f.write_str("all")
        } else {
            f.write_str(&self.iter().map(Quirk::id).collect::<Vec<_>>().join(","))
        }
    }
}

/// Why a `--quirks` value is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown quirk {name:?}: use all, none, or a list of {known}", known = Quirk::ALL.map(Quirk::id).join(", "))]
pub struct QuirkError {
    name: String,
}

impl FromStr for Quirks {
    type Err = QuirkError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim() {
            "all" => return Ok(Self::all()),
            "none" | "" => return Ok(Self::none()),
            _ => {}
        }
        text.split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(|name| {
                Quirk::from_id(name).ok_or_else(|| QuirkError {
                    name: name.to_owned(),
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_printed() {
        let cases = [
            ("all", "all"),
            ("none", "none"),
            ("", "none"),
            ("Q8,Q10", "Q8,Q10"),
            (" q10 , Q8,, ", "Q8,Q10"),
            ("Q26", "Q26"),
            ("ka9521", "KA9521"),
        ];
        for (text, printed) in cases {
            let quirks: Quirks = text.parse().unwrap();
            assert_eq!(quirks.to_string(), printed, "{text:?}");
            assert_eq!(quirks.to_string().parse(), Ok(quirks), "{text:?}");
        }
    }

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        // Q1 is matched on purpose and Q16 is a crash: neither is a switch.
        for name in ["Q1", "Q16", "Q17", "Q19", "Q", "All"] {
            let error = format!("Q8,{name}").parse::<Quirks>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!(
                    "unknown quirk {name:?}: use all, none, or a list of Q3, Q4, "
                )),
                "{error}"
            );
            for quirk in Quirk::ALL {
                assert!(error.contains(quirk.id()), "{quirk} is not in {error}");
            }
        }
    }

    #[test]
    fn each_quirk_is_switched_alone() {
        for quirk in Quirk::ALL {
            let only = Quirks::none().with(quirk);
            assert_eq!(only.iter().collect::<Vec<_>>(), [quirk]);
            assert_eq!(only.to_string().parse(), Ok(only));
            assert!(!Quirks::all().without(quirk).has(quirk));
            assert_eq!(Quirks::all().without(quirk).with(quirk), Quirks::all());
        }
    }
}
