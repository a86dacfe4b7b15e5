//! The VPAs by what they target, so that finding a pod's own costs the same among ten and among ten thousand.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use chrono::{DateTime, Utc};

use super::{
    controller::{ControllerKey, Controllers, TargetError, selector_of},
    topmost::{TopmostError, controlling_owner, topmost},
};
use crate::{api::vpa::VerticalPodAutoscaler, plan::Sizing, pod::Pod, time};

/// A VPA that has a target.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetingVpa {
    /// What it targets.
    pub target: ControllerKey,
    /// What it says about the target's pods.
    pub sizing: Sizing,
    /// Whether it boosts anything while pods start.
    pub has_boost: bool,
    created: Option<DateTime<Utc>>,
}

impl TargetingVpa {
    /// Of several for one pod the oldest counts, and of those of one second the first by name.
    fn strength(&self) -> (Option<DateTime<Utc>>, &str) {
        (self.created, &self.sizing.name)
    }

    fn read(vpa: &VerticalPodAutoscaler) -> Option<Self> {
        let target = vpa.spec.target_ref.as_ref()?;
        let policies = vpa.spec.resource_policy.iter();
        let mut policies = policies.flat_map(|policy| &policy.container_policies);
        Some(Self {
            target: ControllerKey {
                namespace: vpa.metadata.namespace.clone().unwrap_or_default(),
                api_version: target.api_version.clone(),
                kind: target.kind.clone(),
                name: target.name.clone(),
            },
            sizing: Sizing::from(vpa),
            has_boost: vpa.spec.startup_boost.is_some()
                || policies.any(|policy| policy.startup_boost.is_some()),
            created: vpa.metadata.creation_timestamp.as_ref().map(time::from_k8s),
        })
    }
}

/// The VPAs of all namespaces. A namespace holds what is targeted, by kind and name.
#[derive(Clone, Debug, Default)]
pub struct VpaIndex(HashMap<String, Namespace>);

#[derive(Clone, Debug, Default)]
struct Namespace {
    by_target: HashMap<String, HashMap<String, Vec<Arc<TargetingVpa>>>>,
    /// Where each VPA stands in the other map.
    targets: HashMap<String, (String, String)>,
}

impl VpaIndex {
    /// Takes in a VPA that is new or has changed.
    pub fn apply(&mut self, vpa: &VerticalPodAutoscaler) {
        let namespace = vpa.metadata.namespace.as_deref().unwrap_or_default();
        self.remove(namespace, vpa.metadata.name.as_deref().unwrap_or_default());
        if let Some(vpa) = TargetingVpa::read(vpa) {
            self.0.entry(namespace.to_owned()).or_default().insert(vpa);
        }
    }

    /// Forgets one that is gone.
    pub fn remove(&mut self, namespace: &str, name: &str) {
        if let Some(rows) = self.0.get_mut(namespace) {
            rows.remove(name);
            if rows.targets.is_empty() {
                self.0.remove(namespace);
            }
        }
    }

    /// Forgets those of which `keep`, given namespace and name, says no.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &str) -> bool) {
        self.0.retain(|namespace, rows| {
            let names: Vec<_> = rows.targets.keys().cloned().collect();
            for name in names {
                if !keep(namespace, &name) {
                    rows.remove(&name);
                }
            }
            !rows.targets.is_empty()
        });
    }

    /// Those that target a controller, strongest first.
    #[must_use]
    pub fn targeting(&self, target: &ControllerKey) -> &[Arc<TargetingVpa>] {
        let vpas = || {
            let kind = self.0.get(&target.namespace)?.by_target.get(&target.kind)?;
            kind.get(&target.name)
        };
        vpas().map_or(&[], Vec::as_slice)
    }
}

impl Namespace {
    fn insert(&mut self, vpa: TargetingVpa) {
        let (kind, name) = (vpa.target.kind.clone(), vpa.target.name.clone());
        self.targets
            .insert(vpa.sizing.name.clone(), (kind.clone(), name.clone()));
        let vpas = self.by_target.entry(kind).or_default().entry(name).or_default();
        // There is one, as a rule.
        vpas.reserve_exact(1);
        vpas.push(Arc::new(vpa));
        vpas.sort_by(|one, other| one.strength().cmp(&other.strength()));
    }

    fn remove(&mut self, vpa: &str) {
        let Some((kind, name)) = self.targets.remove(vpa) else {
            return;
        };
        let Some(kinds) = self.by_target.get_mut(&kind) else {
            return;
        };
        if let Some(vpas) = kinds.get_mut(&name) {
            vpas.retain(|row| row.sizing.name != vpa);
            if vpas.is_empty() {
                kinds.remove(&name);
            }
        }
        if kinds.is_empty() {
            self.by_target.remove(&kind);
        }
    }
}

/// The VPA that controls a pod: of those that target its topmost controller, that the caller takes and whose selector
/// matches the pod's labels, the strongest. One whose selector cannot be told is passed over.
///
/// # Errors
/// If the pod's controllers cannot be followed to the top, or a scale has to be asked for first.
pub fn controlling_vpa<'i>(
    pod: &Pod,
    namespace: &str,
    vpas: &'i VpaIndex,
    controllers: &impl Controllers,
    takes: impl Fn(&TargetingVpa) -> bool,
) -> Result<Option<&'i Arc<TargetingVpa>>, TopmostError> {
    // Where there is no VPA at all nobody's owners need to be followed.
    if !vpas.0.contains_key(namespace) {
        return Ok(None);
    }
    let Some(owner) = controlling_owner(pod, namespace) else {
        return Ok(None);
    };
    let Some(controller) = topmost(owner, controllers)? else {
        return Ok(None);
    };
    strongest(
        &controller,
        pod.metadata.labels.as_ref(),
        vpas,
        controllers,
        takes,
    )
}

/// The second half of [`controlling_vpa`]: the strongest VPA of a topmost controller for a pod with these labels.
///
/// # Errors
/// If a scale has to be asked for first.
pub fn strongest<'i>(
    controller: &ControllerKey,
    labels: Option<&BTreeMap<String, String>>,
    vpas: &'i VpaIndex,
    controllers: &impl Controllers,
    takes: impl Fn(&TargetingVpa) -> bool,
) -> Result<Option<&'i Arc<TargetingVpa>>, TopmostError> {
    for vpa in vpas.targeting(controller) {
        if !takes(vpa) {
            continue;
        }
        match selector_of(&vpa.target, controllers) {
            Ok(selector) if selector.matches(|name| label(labels, name)) => {
                return Ok(Some(vpa));
            }
            Err(TargetError::NeedsScale(key)) => return Err(TopmostError::NeedsScale(key)),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(None)
}

fn label<'l>(labels: Option<&'l BTreeMap<String, String>>, name: &str) -> Option<&'l str> {
    labels?.get(name).map(String::as_str)
}
