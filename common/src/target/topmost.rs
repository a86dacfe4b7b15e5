//! From an owner up to the topmost controller that is well known or can be scaled.

use super::controller::{ControllerKey, Controllers, ScaleLookup, WellKnown};
use crate::pod::Pod;

/// Why the search for the topmost controller ends without an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopmostError {
    /// A watched kind in the chain, and no such object.
    #[error("{0} does not exist")]
    DoesNotExist(ControllerKey),
    /// Static pods are the node's own.
    #[error("node is not a valid owner")]
    NodeInvalidOwner,
    /// A owns B owns A.
    #[error("cycle detected in ownership chain")]
    Cycle,
    /// A link of the chain cannot be read.
    #[error("unhandled targetRef {} / {} / {}, last error {error}", .key.api_version, .key.kind, .key.name)]
    Unhandled {
        /// The link.
        key: ControllerKey,
        /// What the API server said.
        error: String,
    },
    /// The caller has to ask for this scale and come back.
    #[error("the scale of {0} has not been asked for yet")]
    NeedsScale(ControllerKey),
}

/// The controlling owner of a pod: the last that says it is.
#[must_use]
pub fn controlling_owner(pod: &Pod, namespace: &str) -> Option<ControllerKey> {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().rfind(|owner| owner.controller == Some(true))?;
    Some(ControllerKey::referenced(namespace, owner))
}

/// The highest controller above and including `start` that is well known or can be scaled, if there is one.
///
/// # Errors
/// If a link of the chain cannot be read.
pub fn topmost(
    start: ControllerKey,
    controllers: &impl Controllers,
) -> Result<Option<ControllerKey>, TopmostError> {
    let mut visited: Vec<ControllerKey> = Vec::new();
    let mut best = None;
    let mut current = start;
    loop {
        let link = Link::read(&current, controllers)?;
        if link.counts {
            best = Some(visited.len());
        }
        let parent = link.parent.cloned();
        visited.push(current);
        match parent {
            None => return Ok(best.map(|best| visited.swap_remove(best))),
            Some(parent) if visited.contains(&parent) => return Err(TopmostError::Cycle),
            Some(parent) => current = parent,
        }
    }
}

/// One controller of the chain.
struct Link<'c> {
    /// Whether a VPA can target it.
    counts: bool,
    parent: Option<&'c ControllerKey>,
}

impl<'c> Link<'c> {
    fn read(key: &ControllerKey, controllers: &'c impl Controllers) -> Result<Self, TopmostError> {
        if let Some(kind) = WellKnown::from_name(&key.kind) {
            let controller = controllers
                .well_known(kind, &key.namespace, &key.name)
                .ok_or_else(|| TopmostError::DoesNotExist(key.clone()))?;
            return Ok(Self {
                counts: true,
                parent: controller.owner.as_ref(),
            });
        }
        if key.kind == "Node" {
            return Err(TopmostError::NodeInvalidOwner);
        }
        match controllers.scale(key) {
            ScaleLookup::Found(scale) => Ok(Self {
                counts: true,
                parent: scale.owner.as_ref(),
            }),
            ScaleLookup::NotFound(_) => Ok(Self {
                counts: false,
                parent: None,
            }),
            ScaleLookup::Failed(error) => Err(TopmostError::Unhandled {
                key: key.clone(),
                error: error.to_owned(),
            }),
            ScaleLookup::Unasked => Err(TopmostError::NeedsScale(key.clone())),
        }
    }
}
