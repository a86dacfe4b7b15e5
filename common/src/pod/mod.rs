//! The view of a pod that every component shares: which of its containers are managed, of which kind, where they
//! stand in the spec, and what they have. No other code asks for `restartPolicy: Always` or builds a path into
//! `/spec/initContainers`.

mod qos;
mod resource_list;
mod slim;

pub use qos::QosClass;
pub use resource_list::ResourceList;
pub use slim::{
    Condition, ContainerState, ContainerStatus, Phase, Pod, PodSpec, PodStatus, ResizePolicy, ResizeRestart,
    Resources, Running, Terminated,
};

pub(crate) use slim::{null_is_default, slim_metadata};

use std::{fmt, sync::Arc};

use slim::Container;

use crate::gates::{Gate, Gates};

/// Where a managed container stands in its pod, and so which patch path it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An entry of `spec.containers`.
    Regular,
    /// An entry of `spec.initContainers` with `restartPolicy: Always`.
    NativeSidecar,
}

impl Kind {
    /// The field of the pod's spec that lists containers of this kind.
    #[must_use]
    pub fn spec_field(self) -> &'static str {
        match self {
            Self::Regular => "containers",
            Self::NativeSidecar => "initContainers",
        }
    }

    /// How annotations and log lines call a container of this kind.
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            Self::Regular => "container",
            Self::NativeSidecar => "initContainer",
        }
    }
}

/// Where resources were read from; the values are the label of `vpa_resources_get_resources_count`
/// (`spec/vpa.md` 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// What the pod asks for.
    Spec(Kind),
    /// What the kubelet says the running container has.
    Status(Kind),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spec(Kind::Regular) => "Pod.Spec.Containers",
            Self::Spec(Kind::NativeSidecar) => "Pod.Spec.InitContainers",
            Self::Status(Kind::Regular) => "Pod.Status.ContainerStatuses",
            Self::Status(Kind::NativeSidecar) => "Pod.Status.InitContainerStatuses",
        })
    }
}

/// Requests or limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// `resources.requests`
    Requests,
    /// `resources.limits`
    Limits,
}

impl Side {
    fn field(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Limits => "limits",
        }
    }
}

/// A container that recommendations and formulas may size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Managed<'p> {
    kind: Kind,
    index: usize,
    spec: &'p Container,
    status: Option<&'p ContainerStatus>,
}

impl<'p> Managed<'p> {
    /// Its name, unique in the pod over all kinds.
    #[must_use]
    pub fn name(&self) -> &'p str {
        &self.spec.name
    }

    /// Where it stands.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its place in the list of its kind, other entries counted: the index of a patch path.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The JSON pointer of its `resources`.
    #[must_use]
    pub fn resources_path(&self) -> String {
        format!("/spec/{}/{}/resources", self.kind.spec_field(), self.index)
    }

    /// The JSON pointer of its requests or limits.
    #[must_use]
    pub fn side_path(&self, side: Side) -> String {
        format!("{}/{}", self.resources_path(), side.field())
    }

    /// The JSON pointer of one request or limit, with the resource's name escaped (RFC 6901).
    #[must_use]
    pub fn resource_path(&self, side: Side, resource: &str) -> String {
        let escaped = resource.replace('~', "~0").replace('/', "~1");
        format!("{}/{escaped}", self.side_path(side))
    }

    /// What the pod's spec says it has. A requests or limits map that is absent differs from an empty one in what
    /// a patch must add first.
    #[must_use]
    pub fn spec_resources(&self) -> &'p Resources {
        &self.spec.resources
    }

    /// What the kubelet says the running container has, if it says so.
    #[must_use]
    pub fn status_resources(&self) -> Option<&'p Resources> {
        self.status?.resources.as_ref()
    }

    /// What it has: the kubelet's word where there is one, else the spec (`spec/vpa.md` 3.4, 4.5), and which it is.
    #[must_use]
    pub fn current_resources(&self) -> (&'p Resources, Source) {
        match self.status_resources() {
            Some(resources) => (resources, Source::Status(self.kind)),
            None => (self.spec_resources(), Source::Spec(self.kind)),
        }
    }

    /// Its status, if the kubelet has written one.
    #[must_use]
    pub fn status(&self) -> Option<&'p ContainerStatus> {
        self.status
    }

    /// Whether a change of `resource` restarts it (`resizePolicy`). A policy we cannot read is taken to.
    #[must_use]
    pub fn restarts_on_resize_of(&self, resource: &str) -> bool {
        self.spec.resize_policy.iter().any(|policy| {
            policy.resource_name == resource && policy.restart_policy != ResizeRestart::NotRequired
        })
    }
}

impl fmt::Display for Managed<'_> {
    /// As the annotation `vpaUpdates` calls it: `container 0`, `initContainer 1` (`spec/vpa.md` 4.5).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.noun(), self.index)
    }
}

impl Pod {
    /// The containers that recommendations and formulas may size: the regular ones in their order, then, with the
    /// gate on, the native sidecars in theirs. An ordinary init container never is among them.
    pub fn managed(&self, gates: &Gates) -> impl Iterator<Item = Managed<'_>> {
        let sidecars = gates.enabled(Gate::NativeSidecar).then(|| self.native_sidecars());
        self.regular().chain(sidecars.into_iter().flatten())
    }

    /// One managed container by its name.
    #[must_use]
    pub fn managed_by_name(&self, name: &str, gates: &Gates) -> Option<Managed<'_>> {
        self.managed(gates).find(|container| container.name() == name)
    }

    /// The init containers that nothing here sizes: the ordinary ones, and with the gate off the native sidecars
    /// too. Their usage samples are dropped (`spec/vpa.md` 2.2, 2.12).
    pub fn unmanaged_init_containers(&self, gates: &Gates) -> impl Iterator<Item = &str> {
        let sidecars_managed = gates.enabled(Gate::NativeSidecar);
        self.spec
            .init_containers
            .iter()
            .filter(move |container| !(sidecars_managed && container.is_native_sidecar()))
            .map(|container| container.name.as_str())
    }

    /// Whether the pod has this container as a native sidecar, whatever the gate says: with the gate off, its
    /// checkpoint is set aside and not thrown away.
    #[must_use]
    pub fn has_native_sidecar(&self, name: &str) -> bool {
        self.native_sidecars().any(|container| container.name() == name)
    }

    /// Whether two pods are known to be the same to a plan without a closer look, as copies of one are.
    #[must_use]
    pub fn is_made_like(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.spec, &other.spec)
            && Arc::ptr_eq(&self.status.container_statuses, &other.status.container_statuses)
            && Arc::ptr_eq(
                &self.status.init_container_statuses,
                &other.status.init_container_statuses,
            )
            && self.metadata.annotations == other.metadata.annotations
    }

    /// Forgets what only tells of the past: how containers ran and ended, but for the last time one was killed for its memory.
    /// Pods of one controller are much alike without it.
    pub fn forget_runs(&mut self) {
        let status = &mut self.status;
        let all = Arc::make_mut(&mut status.container_statuses).iter_mut();
        for container in all.chain(Arc::make_mut(&mut status.init_container_statuses)) {
            container.restart_count = 0;
            container.state = ContainerState::default();
            let ended = container.last_state.terminated.as_ref();
            if ended.is_none_or(|ended| ended.reason != "OOMKilled") {
                container.last_state = ContainerState::default();
            }
        }
    }

    fn regular(&self) -> impl Iterator<Item = Managed<'_>> {
        self.spec
            .containers
            .iter()
            .enumerate()
            .map(|(index, spec)| Managed {
                kind: Kind::Regular,
                index,
                spec,
                status: status_of(&self.status.container_statuses, &spec.name),
            })
    }

    fn native_sidecars(&self) -> impl Iterator<Item = Managed<'_>> {
        let init = self.spec.init_containers.iter().enumerate();
        init.filter(|(_, spec)| spec.is_native_sidecar())
            .map(|(index, spec)| Managed {
                kind: Kind::NativeSidecar,
                index,
                spec,
                status: status_of(&self.status.init_container_statuses, &spec.name),
            })
    }
}

fn status_of<'s>(statuses: &'s [ContainerStatus], name: &str) -> Option<&'s ContainerStatus> {
    statuses.iter().find(|status| status.name == name)
}

#[cfg(test)]
mod tests;
