//! The Kubernetes types in use, so that the version they come from is named in one place.
//! The rest of the tree says `k8s::Pod` and never names the crate of the generated types.

pub use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{
            MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations,
            ServiceReference, ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
        },
        apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet},
        autoscaling::v1::Scale,
        batch::v1::{CronJob, Job},
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{
            Container, ContainerPort, ContainerState, ContainerStateRunning, ContainerStateTerminated,
            ContainerStateWaiting, ContainerStatus, EnvVar, EnvVarSource, Event, EventSource, LimitRange,
            LimitRangeItem, LimitRangeSpec, LocalObjectReference, Namespace, Node, ObjectFieldSelector,
            ObjectReference, Pod, PodCondition, PodSpec, PodStatus, PodTemplateSpec, ReplicationController,
            ResourceRequirements, Secret, Volume, VolumeMount,
        },
        policy::v1::Eviction,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceDefinition, CustomResourceDefinitionVersion, CustomResourceValidation, JSONSchemaProps,
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{
            DeleteOptions, LabelSelector, LabelSelectorRequirement, ListMeta, MicroTime, ObjectMeta,
            OwnerReference, Preconditions, Status, StatusCause, StatusDetails, Time,
        },
        runtime::RawExtension,
        util::intstr::IntOrString,
    },
};

/// Amounts by resource name, as in `requests`, `limits` and recommendations.
pub type ResourceList = std::collections::BTreeMap<String, Quantity>;
