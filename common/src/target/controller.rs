//! Controllers as matching sees them: their kind, their owner and which pods they select. Well-known kinds are watched;
//! of any other only the scale subresource is known, if it was asked for.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    fmt,
};

use crate::{
    api::k8s::{LabelSelector, OwnerReference},
    selector::{Selector, SelectorError},
};

/// A kind whose objects are watched. Its API version never matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names of the kinds")]
pub enum WellKnown {
    CronJob,
    DaemonSet,
    Deployment,
    Job,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
}

impl WellKnown {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::CronJob,
        Self::DaemonSet,
        Self::Deployment,
        Self::Job,
        Self::ReplicaSet,
        Self::ReplicationController,
        Self::StatefulSet,
    ];

    /// The name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CronJob => "CronJob",
            Self::DaemonSet => "DaemonSet",
            Self::Deployment => "Deployment",
            Self::Job => "Job",
            Self::ReplicaSet => "ReplicaSet",
            Self::ReplicationController => "ReplicationController",
            Self::StatefulSet => "StatefulSet",
        }
    }

    /// The well-known kind of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Names a controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ControllerKey {
    /// Its namespace.
    pub namespace: String,
    /// Its API version, as the reference to it has it.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

impl ControllerKey {
    /// The controller of an object in a namespace, by the first reference that says so.
    #[must_use]
    pub fn controller_of(namespace: &str, references: &[OwnerReference]) -> Option<Self> {
        let owner = references.iter().find(|owner| owner.controller == Some(true))?;
        Some(Self::referenced(namespace, owner))
    }

    pub(super) fn referenced(namespace: &str, owner: &OwnerReference) -> Self {
        Self {
            namespace: namespace.to_owned(),
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            name: owner.name.clone(),
        }
    }
}

impl fmt::Display for ControllerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// What is known of a well-known controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Controller {
    /// Who controls it.
    pub owner: Option<ControllerKey>,
    /// Which pods are its own.
    pub selector: Result<Selector, SelectorError>,
    /// How many pods it wants: `spec.replicas`, or `status.numberReady` of a DaemonSet. None if it does not say.
    pub replicas: Option<i32>,
}

impl Controller {
    /// A controller with a selector in its spec. Without one it has no pods.
    #[must_use]
    pub fn selecting(owner: Option<ControllerKey>, selector: Option<&LabelSelector>) -> Self {
        Self {
            owner,
            selector: selector.map_or(Ok(Selector::Nothing), Selector::try_from),
            replicas: None,
        }
    }

    /// The same with the number of pods that it wants.
    #[must_use]
    pub fn wanting(self, replicas: Option<i32>) -> Self {
        Self { replicas, ..self }
    }

    /// A controller whose pods have certain labels: a ReplicationController, or a CronJob by its template.
    #[must_use]
    pub fn labelling(owner: Option<ControllerKey>, labels: Option<&BTreeMap<String, String>>) -> Self {
        let selector = labels.map(|labels| LabelSelector {
            match_labels: Some(labels.clone()),
            ..LabelSelector::default()
        });
        Self::selecting(owner, selector.as_ref())
    }
}

/// What a scale subresource says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Who controls the object.
    pub owner: Option<ControllerKey>,
    /// `status.selector`.
    pub selector: String,
    /// `spec.replicas`.
    pub replicas: Option<i32>,
}

/// What came of asking for a scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScaleLookup<'a> {
    /// It has one.
    Found(&'a Scale),
    /// The API server knows the kind, and there is no such object or it has no scale.
    NotFound(&'a str),
    /// It could not be asked, or does not know the kind.
    Failed(&'a str),
    /// Nobody has asked yet.
    Unasked,
}

/// What is known of controllers.
pub trait Controllers {
    /// A watched controller.
    fn well_known(&self, kind: WellKnown, namespace: &str, name: &str) -> Option<&Controller>;

    /// The scale of any other.
    fn scale(&self, key: &ControllerKey) -> ScaleLookup<'_>;
}

/// Why a target has no selector. The words are VPA's, which stand in conditions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// A watched kind, and no such object.
    #[error("{0} does not exist")]
    DoesNotExist(ControllerKey),
    /// Its selector cannot be read.
    #[error(transparent)]
    Selector(#[from] SelectorError),
    /// Neither watched nor scalable.
    #[error("unhandled targetRef {} / {} / {}, last error {error}", .key.api_version, .key.kind, .key.name)]
    Unhandled {
        /// The target.
        key: ControllerKey,
        /// What the API server said.
        error: String,
    },
    /// Scalable, without saying which pods it scales.
    #[error("resource {}/{} has an empty selector for scale sub-resource", .0.namespace, .0.name)]
    EmptySelector(ControllerKey),
    /// The caller has to ask for this scale and come back.
    #[error("the scale of {0} has not been asked for yet")]
    NeedsScale(ControllerKey),
}

/// Which pods a target has.
///
/// # Errors
/// If that cannot be told.
pub fn selector_of<'c>(
    target: &ControllerKey,
    controllers: &'c impl Controllers,
) -> Result<Cow<'c, Selector>, TargetError> {
    if let Some(kind) = WellKnown::from_name(&target.kind) {
        let controller = controllers
            .well_known(kind, &target.namespace, &target.name)
            .ok_or_else(|| TargetError::DoesNotExist(target.clone()))?;
        return match &controller.selector {
            Ok(selector) => Ok(Cow::Borrowed(selector)),
            Err(error) => Err(error.clone().into()),
        };
    }
    match controllers.scale(target) {
        ScaleLookup::Found(scale) if scale.selector.is_empty() => {
            Err(TargetError::EmptySelector(target.clone()))
        }
        ScaleLookup::Found(scale) => Ok(Cow::Owned(scale.selector.parse()?)),
        ScaleLookup::NotFound(error) | ScaleLookup::Failed(error) => Err(TargetError::Unhandled {
            key: target.clone(),
            error: error.to_owned(),
        }),
        ScaleLookup::Unasked => Err(TargetError::NeedsScale(target.clone())),
    }
}

/// The watched controllers, by kind, namespace and name.
#[derive(Clone, Debug, Default)]
pub struct ControllerIndex(HashMap<WellKnown, HashMap<String, HashMap<String, Controller>>>);

impl ControllerIndex {
    /// Takes in a controller that is new or has changed.
    pub fn apply(&mut self, kind: WellKnown, namespace: &str, name: &str, controller: Controller) {
        let namespaces = self.0.entry(kind).or_default();
        let names = namespaces.entry(namespace.to_owned()).or_default();
        names.insert(name.to_owned(), controller);
    }

    /// Forgets one that is gone.
    pub fn remove(&mut self, kind: WellKnown, namespace: &str, name: &str) {
        if let Some(namespaces) = self.0.get_mut(&kind)
            && let Some(names) = namespaces.get_mut(namespace)
        {
            names.remove(name);
            if names.is_empty() {
                namespaces.remove(namespace);
            }
        }
    }

    /// Forgets those of one kind that are not to be kept, by namespace and name.
    pub fn retain(&mut self, kind: WellKnown, keep: impl Fn(&str, &str) -> bool) {
        if let Some(namespaces) = self.0.get_mut(&kind) {
            namespaces.retain(|namespace, names| {
                names.retain(|name, _| keep(namespace, name));
                !names.is_empty()
            });
        }
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, kind: WellKnown, namespace: &str, name: &str) -> Option<&Controller> {
        self.0.get(&kind)?.get(namespace)?.get(name)
    }
}
