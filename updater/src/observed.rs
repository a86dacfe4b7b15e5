//! Which containers of a pod count for which purpose. Admission names in an annotation those it knows; who came later,
//! through another webhook, is not evicted for.

use common::{
    gates::Gates,
    pod::{Kind, Managed, Pod},
    quirks::{Quirk, Quirks},
};

pub(crate) const ANNOTATION: &str = "vpaObservedContainers";

/// What a look at a pod is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To have it made anew, which takes admission to size it.
    Evict,
    /// To change it as it runs.
    Resize,
}

/// The containers that admission named.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed<'p>(Option<Vec<&'p str>>);

impl<'p> Observed<'p> {
    /// Reads the annotation. One that cannot be read is as good as absent, and an empty one names nobody.
    #[must_use]
    pub fn of(pod: &'p Pod, quirks: Quirks) -> Self {
        let annotations = pod.metadata.annotations.as_ref();
        let text = annotations.and_then(|annotations| annotations.get(ANNOTATION));
        let names = text.and_then(|text| {
            let names: Vec<&str> = if text.is_empty() {
                Vec::new()
            } else if quirks.has(Quirk::ObservedNeedsSpace) {
                text.split(", ").collect()
            } else {
                text.split(',').map(str::trim).collect()
            };
            names.iter().all(|name| is_dns_label(name)).then_some(names)
        });
        Self(names)
    }

    /// Whether a container counts: a regular one unless the annotation leaves it out; a native sidecar for a resize
    /// always, and for an eviction only if the annotation names it, so that nothing is evicted for what admission would not
    /// size.
    #[must_use]
    pub fn counts(&self, container: &Managed<'_>, purpose: Purpose) -> bool {
        match container.kind() {
            Kind::Regular => self.0.is_none() || self.names(container.name()),
            Kind::NativeSidecar => purpose == Purpose::Resize || self.names(container.name()),
        }
    }

    /// The same where the annotation does not filter regular containers.
    #[must_use]
    pub fn counts_unfiltered(&self, container: &Managed<'_>, purpose: Purpose) -> bool {
        container.kind() == Kind::Regular || self.counts(container, purpose)
    }

    /// Whether an eviction and a resize look at different containers.
    #[must_use]
    pub fn purposes_differ(&self, pod: &Pod, gates: &Gates) -> bool {
        pod.managed(gates)
            .any(|container| container.kind() == Kind::NativeSidecar && !self.names(container.name()))
    }

    fn names(&self, container: &str) -> bool {
        self.0.as_ref().is_some_and(|names| names.contains(&container))
    }
}

fn is_dns_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}
