//! A VPA as the plan reads it: every quantity parsed once, when the object comes in, and not for every pod.
//! A quantity that cannot be read is as good as absent; the webhook and the schema refuse it before it is stored.

use std::sync::LazyLock;

use chrono::TimeDelta;

use crate::{
    api::{
        k8s,
        vpa::{
            ANY_CONTAINER, ContainerControlledValues, ContainerResourcePolicy, ContainerScalingMode,
            GenericStartupBoost, StartupBoost, StartupBoostType, UpdateMode, VerticalPodAutoscaler,
        },
    },
    pod::ResourceList,
    quantity::Quantity,
};

/// On a VPA: what becomes of a container that has a recommendation and a SidecarSet's formula.
pub const COMPOSITION_ANNOTATION: &str = "outrigger.dev/formula-sidecars";

/// For a pod that no VPA controls: nothing is recommended.
pub static NO_VPA: LazyLock<Sizing> = LazyLock::new(|| Sizing {
    name: String::new(),
    mode: UpdateMode::Off,
    composition: Composition::Recommendation,
    has_policy: false,
    policies: Box::default(),
    boost: None,
    boost_seconds: None,
    recommendation: None,
});

/// What becomes of a container that has a recommendation and a formula.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Composition {
    /// `recommendation`: what was measured beats what was guessed. The formula serves until there is a measurement, and
    /// gives the proportion of limits.
    #[default]
    Recommendation,
    /// `floor`: the larger of the two.
    Floor,
    /// `formula`: the formula alone.
    Formula,
}

impl Composition {
    /// All, as [`COMPOSITION_ANNOTATION`] writes them.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("recommendation", Self::Recommendation),
        ("floor", Self::Floor),
        ("formula", Self::Formula),
    ];

    /// What a VPA says; a word that is none of the three is as good as absent.
    fn of(vpa: &VerticalPodAutoscaler) -> Self {
        let annotations = vpa.metadata.annotations.as_ref();
        let word = annotations.and_then(|annotations| annotations.get(COMPOSITION_ANNOTATION));
        let known = word.and_then(|word| Self::NAMES.into_iter().find(|(name, _)| name == word));
        known.map_or_else(Self::default, |(_, composition)| composition)
    }
}

/// What one VPA says about the containers of its pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizing {
    /// The object's name.
    pub name: String,
    /// When pods get what is recommended.
    pub mode: UpdateMode,
    /// What becomes of containers that have a formula too.
    pub composition: Composition,
    has_policy: bool,
    policies: Box<[Policy]>,
    boost: Option<CpuBoost>,
    boost_seconds: Option<i32>,
    /// What the status recommends; none if it has no recommendation yet.
    pub recommendation: Option<Vec<Recommended>>,
}

/// A recommendation for one container.
#[derive(Clone, Debug, PartialEq)]
pub struct Recommended {
    /// Which container.
    pub container: String,
    /// What it should request.
    pub target: ResourceList,
    /// Below this it is likely to suffer.
    pub lower_bound: Option<ResourceList>,
    /// What is above this is likely to be wasted.
    pub upper_bound: Option<ResourceList>,
    /// The target before any bound was applied.
    pub uncapped_target: Option<ResourceList>,
}

/// What is set for one container, or for all without an own entry.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Policy {
    container: String,
    pub(super) off: bool,
    pub(super) requests_only: bool,
    pub(super) min_allowed: ResourceList,
    pub(super) max_allowed: ResourceList,
    boost: OwnBoost,
    boost_seconds: Option<i32>,
}

/// A container's own word on the boost.
#[derive(Clone, Debug, PartialEq)]
enum OwnBoost {
    Inherited,
    /// An empty setting replaces the pod's as any other does, where VPA crashes on it (`spec/vpa.md` 10, Q16).
    Nothing,
    Cpu(CpuBoost),
}

/// How much more CPU while the pod starts.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CpuBoost {
    /// The request times this.
    Factor(i32),
    /// The request and this (`spec/vpa.md` 10, Q1).
    Plus(Quantity),
}

impl From<&VerticalPodAutoscaler> for Sizing {
    fn from(vpa: &VerticalPodAutoscaler) -> Self {
        let policies = vpa.spec.resource_policy.iter();
        let recommendation = vpa
            .status
            .as_ref()
            .and_then(|status| status.recommendation.as_ref());
        Self {
            name: vpa.metadata.name.clone().unwrap_or_default(),
            mode: vpa.spec.update_mode().clone(),
            composition: Composition::of(vpa),
            has_policy: vpa.spec.resource_policy.is_some(),
            policies: policies
                .flat_map(|policy| &policy.container_policies)
                .map(Policy::from)
                .collect(),
            boost: vpa.spec.startup_boost.as_ref().and_then(cpu_boost),
            boost_seconds: vpa.spec.startup_boost.as_ref().and_then(boost_seconds),
            recommendation: recommendation.map(|recommendation| {
                let containers = recommendation.container_recommendations.iter();
                containers
                    .map(|container| Recommended {
                        container: container.container_name.clone(),
                        target: parsed(&container.target),
                        lower_bound: non_empty(&container.lower_bound),
                        upper_bound: non_empty(&container.upper_bound),
                        uncapped_target: non_empty(&container.uncapped_target),
                    })
                    .collect()
            }),
        }
    }
}

impl Sizing {
    /// Whether pods are never given what is recommended.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.mode == UpdateMode::Off
    }

    /// Whether the policy for a container says that it is not sized.
    #[must_use]
    pub fn switches_off(&self, container: &str) -> bool {
        self.policy(container).is_some_and(|policy| policy.off)
    }

    /// How long after a pod is ready a container keeps its boost: by its own policy, otherwise by the pod's.
    #[must_use]
    pub fn boost_duration(&self, container: &str) -> TimeDelta {
        let own = self.policy(container).and_then(|policy| policy.boost_seconds);
        let seconds = own.or(self.boost_seconds).unwrap_or_default();
        TimeDelta::seconds(seconds.into())
    }

    /// What there is to hold within bounds: nothing at all only without both a recommendation and a policy.
    pub(super) fn recommended(&self) -> Option<&[Recommended]> {
        match &self.recommendation {
            Some(recommendation) => Some(recommendation),
            None => self.has_policy.then_some(&[]),
        }
    }

    /// The policy for a container: the first that names it, otherwise the last for `*`.
    pub(super) fn policy(&self, container: &str) -> Option<&Policy> {
        let own = self.policies.iter().find(|policy| policy.container == container);
        own.or_else(|| {
            self.policies
                .iter()
                .rfind(|policy| policy.container == ANY_CONTAINER)
        })
    }

    /// The boost for a container: its own setting, otherwise the pod's.
    pub(super) fn cpu_boost(&self, container: &str) -> Option<&CpuBoost> {
        match self.policy(container).map(|policy| &policy.boost) {
            Some(OwnBoost::Cpu(boost)) => Some(boost),
            Some(OwnBoost::Nothing) => None,
            Some(OwnBoost::Inherited) | None => self.boost.as_ref(),
        }
    }
}

impl From<&ContainerResourcePolicy> for Policy {
    fn from(policy: &ContainerResourcePolicy) -> Self {
        Self {
            container: policy.container_name.clone(),
            off: *policy.scaling_mode() == ContainerScalingMode::Off,
            requests_only: *policy.values_controlled() == ContainerControlledValues::RequestsOnly,
            min_allowed: parsed(&policy.min_allowed),
            max_allowed: parsed(&policy.max_allowed),
            boost: match &policy.startup_boost {
                None => OwnBoost::Inherited,
                Some(boost) => cpu_boost(boost).map_or(OwnBoost::Nothing, OwnBoost::Cpu),
            },
            boost_seconds: policy.startup_boost.as_ref().and_then(boost_seconds),
        }
    }
}

fn cpu_boost(boost: &StartupBoost) -> Option<CpuBoost> {
    let GenericStartupBoost {
        type_,
        factor,
        quantity,
        duration_seconds: _,
    } = boost.cpu.as_ref()?;
    match type_.as_ref()? {
        // The webhook refuses less, but it may not have seen the object.
        StartupBoostType::Factor => factor.filter(|factor| *factor >= 1).map(CpuBoost::Factor),
        StartupBoostType::Quantity => Some(CpuBoost::Plus(Quantity::try_from(quantity.as_ref()?).ok()?)),
        StartupBoostType::Other(_) => None,
    }
}

fn boost_seconds(boost: &StartupBoost) -> Option<i32> {
    boost.cpu.as_ref()?.duration_seconds
}

/// A map that is absent and one that is empty are one on the wire.
fn non_empty(list: &k8s::ResourceList) -> Option<ResourceList> {
    (!list.is_empty()).then(|| parsed(list))
}

pub(super) fn parsed(list: &k8s::ResourceList) -> ResourceList {
    list.iter()
        .filter_map(|(name, quantity)| Some((name.clone(), Quantity::try_from(quantity).ok()?)))
        .collect()
}
