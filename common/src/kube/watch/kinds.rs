//! The well-known controllers as they are watched: who they are, who controls them, and which pods are theirs. The pod
//! template, the status and the rest of their kilobytes are skipped while parsing.

use std::{borrow::Cow, collections::BTreeMap, fmt::Debug, marker::PhantomData};

use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
        batch::v1::{CronJob, Job},
        core::v1::ReplicationController,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use kube::Resource;
use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    pod::{null_is_default, slim_metadata},
    target::{Controller, ControllerKey, WellKnown},
};

/// A controller that can be watched.
pub trait WatchedController:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static
{
    /// Its kind.
    const KIND: WellKnown;

    /// What matching knows of it.
    fn controller(&self) -> Controller;

    /// Namespace and name.
    fn key(&self) -> (&str, &str) {
        let meta = self.meta();
        (
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        )
    }
}

/// A well-known kind of the API.
pub trait ControllerObject: Resource<DynamicType = ()> + Send + 'static {
    /// Which.
    const KIND: WellKnown;
}

macro_rules! well_known {
    ($($kind:ident),+) => {
        $(impl ControllerObject for $kind {
            const KIND: WellKnown = WellKnown::$kind;
        })+
    };
}

well_known!(
    CronJob,
    DaemonSet,
    Deployment,
    Job,
    ReplicaSet,
    ReplicationController,
    StatefulSet
);

/// A controller of which `metadata` and a part of `spec` are read.
#[derive(Deserialize)]
#[serde(bound(deserialize = "S: Default + Deserialize<'de>"))]
pub struct Slim<K, S> {
    #[serde(default, deserialize_with = "slim_metadata")]
    metadata: ObjectMeta,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: S,
    #[serde(default, deserialize_with = "null_is_default")]
    status: SlimStatus,
    #[serde(skip)]
    kind: PhantomData<fn() -> K>,
}

/// A controller with `spec.selector`.
pub type SlimSelecting<K> = Slim<K, Selecting>;
/// A CronJob: its pods are known by the labels of its template.
pub type SlimCronJob = Slim<CronJob, CronJobSpec>;
/// A ReplicationController, whose selector is a plain map.
pub type SlimReplicationController = Slim<ReplicationController, LabelMap>;

/// The spec of most controllers.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Selecting {
    selector: Option<LabelSelector>,
    replicas: Option<i32>,
}

/// Of the status, what a DaemonSet says of its pods.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimStatus {
    number_ready: Option<i32>,
}

/// The spec of a ReplicationController.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct LabelMap {
    selector: Option<BTreeMap<String, String>>,
    replicas: Option<i32>,
}

/// The spec of a CronJob, as far as the labels of its pods.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronJobSpec {
    job_template: JobTemplate,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct JobTemplate {
    spec: JobSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct JobSpec {
    template: PodTemplate,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodTemplate {
    metadata: TemplateMetadata,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateMetadata {
    labels: Option<BTreeMap<String, String>>,
}

impl<K, S: Clone> Clone for Slim<K, S> {
    fn clone(&self) -> Self {
        Self {
            metadata: self.metadata.clone(),
            spec: self.spec.clone(),
            status: self.status,
            kind: PhantomData,
        }
    }
}

impl<K, S: Debug> Debug for Slim<K, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slim")
            .field("metadata", &self.metadata)
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}

impl<K: Resource<DynamicType = ()>, S> Resource for Slim<K, S> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<K, S> Slim<K, S> {
    fn owner(&self) -> Option<ControllerKey> {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        let owners = self.metadata.owner_references.as_deref().unwrap_or_default();
        ControllerKey::controller_of(namespace, owners)
    }
}

impl<K> WatchedController for SlimSelecting<K>
where
    K: ControllerObject<Scope = NamespaceResourceScope>,
{
    const KIND: WellKnown = K::KIND;

    fn controller(&self) -> Controller {
        let replicas = match K::KIND {
            WellKnown::DaemonSet => self.status.number_ready,
            _ => self.spec.replicas,
        };
        Controller::selecting(self.owner(), self.spec.selector.as_ref()).wanting(replicas)
    }
}

impl WatchedController for SlimCronJob {
    const KIND: WellKnown = WellKnown::CronJob;

    fn controller(&self) -> Controller {
        let template = &self.spec.job_template.spec.template;
        Controller::labelling(self.owner(), template.metadata.labels.as_ref())
    }
}

impl WatchedController for SlimReplicationController {
    const KIND: WellKnown = WellKnown::ReplicationController;

    fn controller(&self) -> Controller {
        Controller::labelling(self.owner(), self.spec.selector.as_ref()).wanting(self.spec.replicas)
    }
}
