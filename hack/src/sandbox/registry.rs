//! The kinds that the sandbox serves: a table of built-in ones, and those that custom resource definitions add while
//! it runs.

use std::{
    any::TypeId,
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use k8s_openapi::{
    ClusterResourceScope,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet},
        batch::v1::{CronJob, Job},
        coordination::v1::Lease,
        core::v1::{
            ConfigMap, Endpoints, Event, LimitRange, Namespace, Node, Pod, ReplicationController,
            ResourceQuota, Secret, Service, ServiceAccount,
        },
        events::v1::Event as NewEvent,
        policy::v1::PodDisruptionBudget,
        scheduling::v1::PriorityClass,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::crd;

/// One kind in one version.
#[derive(Debug)]
pub struct Kind {
    /// The API group; empty for the core.
    pub group: String,
    /// The version within the group.
    pub version: String,
    /// Such as `Pod`.
    pub kind: String,
    /// Such as `PodList`.
    pub list_kind: String,
    /// Such as `pods`.
    pub plural: String,
    /// Such as `pod`.
    pub singular: String,
    /// What kubectl lets people type.
    pub short_names: Vec<String>,
    /// Such as `all`.
    pub categories: Vec<String>,
    /// Whether it lives in namespaces.
    pub namespaced: bool,
    /// Where the store keeps it, the same for all its versions: `pods`, `deployments.apps`.
    pub storage: String,
    /// Beyond the object itself: `status`, `scale`, `resize` and so on.
    pub subresources: Vec<&'static str>,
    /// Whether a change of the specification counts `metadata.generation` up.
    pub generation: bool,
    /// Whether a PUT may leave out the resource version.
    pub unconditional: bool,
    /// What field selectors may use, beyond name and namespace.
    pub fields: Vec<String>,
    /// How an object is brought into form.
    pub form: Form,
}

/// How an object of a kind is brought into form.
#[derive(Debug)]
pub enum Form {
    /// Through the published type: wrong types are refused and unknown fields dropped.
    Builtin(fn(Value) -> serde_json::Result<Value>),
    /// By the schema of its definition.
    Custom(Arc<crd::Version>),
    /// Read-only, computed by the metrics provider.
    Metrics,
}

impl Kind {
    /// `v1` or `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `pods` or `deployments.apps`, as messages name it.
    #[must_use]
    pub fn resource(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// `Pod` or `Deployment.apps`, as messages about invalid objects name it.
    #[must_use]
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.kind.clone()
        } else {
            format!("{}.{}", self.kind, self.group)
        }
    }

    /// Whether it has this subresource.
    #[must_use]
    pub fn has(&self, subresource: &str) -> bool {
        self.subresources.contains(&subresource)
    }

    /// Whether a definition brought it.
    #[must_use]
    pub fn is_custom(&self) -> bool {
        matches!(self.form, Form::Custom(_))
    }
}

/// All kinds served now, by group, version and plural.
#[derive(Debug)]
pub struct Registry(RwLock<BTreeMap<(String, String, String), Arc<Kind>>>);

impl Registry {
    /// The built-in kinds.
    #[must_use]
    pub fn builtin() -> Self {
        let keyed = |kind: Kind| {
            (
                (kind.group.clone(), kind.version.clone(), kind.plural.clone()),
                Arc::new(kind),
            )
        };
        Self(RwLock::new(builtin_kinds().into_iter().map(keyed).collect()))
    }

    /// Serves these versions, and no others, of what the store keeps there.
    pub fn replace(&self, storage: &str, versions: Vec<Kind>) {
        let mut kinds = self.0.write().unwrap_or_else(PoisonError::into_inner);
        kinds.retain(|_, kind| kind.storage != storage);
        for kind in versions {
            let key = (kind.group.clone(), kind.version.clone(), kind.plural.clone());
            kinds.insert(key, Arc::new(kind));
        }
    }

    /// The kind at a path.
    #[must_use]
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        let key = (group.to_owned(), version.to_owned(), plural.to_owned());
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
            .cloned()
    }

    /// The kind kept there; any version does.
    #[must_use]
    pub fn stored(&self, storage: &str) -> Option<Arc<Kind>> {
        let kinds = self.0.read().unwrap_or_else(PoisonError::into_inner);
        kinds.values().find(|kind| kind.storage == storage).cloned()
    }

    /// The kind that an owner reference or a manifest names.
    #[must_use]
    pub fn named(&self, api_version: &str, name: &str) -> Option<Arc<Kind>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kinds = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut matching = kinds
            .values()
            .filter(|kind| kind.group == group && kind.kind == name);
        let any = matching.next()?.clone();
        Some(
            matching
                .find(|kind| kind.version == version)
                .cloned()
                .unwrap_or(any),
        )
    }

    /// All kinds, ordered by group, version and plural.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Kind>> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }
}

fn builtin_kinds() -> Vec<Kind> {
    let status = &["status"];
    let scaled = &["status", "scale"];
    let pod = &["status", "resize", "eviction", "binding", "ephemeralcontainers"];
    let pod_fields = &[
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ];
    let event_fields = &[
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ];
    vec![
        kind::<Pod>(&["po"])
            .with(pod)
            .selectable(pod_fields)
            .counted()
            .in_all(),
        kind::<Service>(&["svc"])
            .with(status)
            .selectable(&["spec.clusterIP", "spec.type"])
            .in_all(),
        kind::<Namespace>(&["ns"])
            .with(status)
            .selectable(&["status.phase"]),
        kind::<Node>(&["no"])
            .with(status)
            .selectable(&["spec.unschedulable"]),
        kind::<Event>(&["ev"]).selectable(event_fields),
        Kind {
            storage: "events".into(),
            ..kind::<NewEvent>(&["ev"]).selectable(event_fields)
        },
        kind::<ConfigMap>(&["cm"]),
        kind::<Secret>(&[]).selectable(&["type"]),
        kind::<ServiceAccount>(&["sa"]),
        kind::<Endpoints>(&["ep"]),
        kind::<ReplicationController>(&["rc"])
            .with(scaled)
            .counted()
            .in_all(),
        kind::<LimitRange>(&["limits"]),
        kind::<ResourceQuota>(&["quota"]).with(status),
        kind::<Deployment>(&["deploy"]).with(scaled).counted().in_all(),
        kind::<ReplicaSet>(&["rs"])
            .with(scaled)
            .selectable(&["status.replicas"])
            .counted()
            .in_all(),
        kind::<StatefulSet>(&["sts"]).with(scaled).counted().in_all(),
        kind::<DaemonSet>(&["ds"]).with(status).counted().in_all(),
        kind::<ControllerRevision>(&[]),
        kind::<Job>(&[])
            .with(status)
            .selectable(&["status.successful"])
            .counted()
            .in_all(),
        kind::<CronJob>(&["cj"]).with(status).counted().in_all(),
        kind::<PodDisruptionBudget>(&["pdb"])
            .with(status)
            .counted()
            .conditional(),
        kind::<Lease>(&[]).conditional(),
        kind::<PriorityClass>(&["pc"]).conditional(),
        kind::<MutatingWebhookConfiguration>(&[]).counted().conditional(),
        kind::<ValidatingWebhookConfiguration>(&[])
            .counted()
            .conditional(),
        kind::<CustomResourceDefinition>(&["crd", "crds"])
            .with(status)
            .counted()
            .conditional(),
        metrics("NodeMetrics", "nodes", false),
        metrics("PodMetrics", "pods", true),
    ]
}

fn kind<T>(short_names: &[&str]) -> Kind
where
    T: k8s_openapi::Resource + Serialize + DeserializeOwned,
    T::Scope: 'static,
{
    let resource = if T::GROUP.is_empty() {
        T::URL_PATH_SEGMENT.to_owned()
    } else {
        format!("{}.{}", T::URL_PATH_SEGMENT, T::GROUP)
    };
    Kind {
        group: T::GROUP.into(),
        version: T::VERSION.into(),
        kind: T::KIND.into(),
        list_kind: format!("{}List", T::KIND),
        plural: T::URL_PATH_SEGMENT.into(),
        singular: T::KIND.to_lowercase(),
        short_names: short_names.iter().map(|&name| name.into()).collect(),
        categories: Vec::new(),
        namespaced: TypeId::of::<T::Scope>() != TypeId::of::<ClusterResourceScope>(),
        storage: resource,
        subresources: Vec::new(),
        generation: false,
        unconditional: true,
        fields: Vec::new(),
        form: Form::Builtin(|value| serde_json::to_value(serde_json::from_value::<T>(value)?)),
    }
}

fn metrics(name: &str, plural: &str, namespaced: bool) -> Kind {
    Kind {
        group: "metrics.k8s.io".into(),
        version: "v1beta1".into(),
        kind: name.into(),
        list_kind: format!("{name}List"),
        plural: plural.into(),
        singular: String::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced,
        storage: format!("{plural}.metrics.k8s.io"),
        subresources: Vec::new(),
        generation: false,
        unconditional: false,
        fields: Vec::new(),
        form: Form::Metrics,
    }
}

impl Kind {
    fn with(mut self, subresources: &[&'static str]) -> Self {
        self.subresources = subresources.to_vec();
        self
    }

    fn selectable(mut self, fields: &[&str]) -> Self {
        self.fields = fields.iter().map(|&field| field.into()).collect();
        self
    }

    fn counted(mut self) -> Self {
        self.generation = true;
        self
    }

    fn conditional(mut self) -> Self {
        self.unconditional = false;
        self
    }

    fn in_all(mut self) -> Self {
        self.categories = vec!["all".into()];
        self
    }
}
