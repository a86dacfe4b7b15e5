//! `apps.kruise.io` SidecarSet (`spec/sidecarset.md` 1): [`v1beta1`] is the version that is stored and the one our
//! code works with, [`v1alpha1`] is read and written besides. What the schema leaves unchecked stays JSON here.

mod container;
mod policy;
mod strategy;
pub mod v1alpha1;
pub mod v1beta1;

pub use container::{
    PodInjectPolicy, ShareVolumePolicy, ShareVolumePolicyType, SidecarContainer, SourceContainerNameSource,
    TransferEnvVar, UpgradeStrategy, UpgradeType,
};
pub use policy::{ANY_NAME_REGEX, ResourceExpressions, ResourcesExpr, ResourcesPolicy, TargetContainersMode};
pub use strategy::{
    InjectRevision, InjectionStrategy, PatchPodMetadata, PatchPolicy, PriorityOrderTerm, PriorityStrategy,
    PriorityWeightTerm, RevisionPolicy, ScatterTerm, UpdateStrategy, UpdateStrategyType,
};
pub use v1beta1::{SidecarSet, SidecarSetSpec, SidecarSetStatus};
