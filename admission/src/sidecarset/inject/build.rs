//! The containers that a pod gets: a set's own, with what they take over from the pod's: mounts, devices, environment,
//! and resources by formula (`spec/sidecarset.md` 2.6, 2.7, 2.10, 3.1).

use std::{borrow::Cow, cmp::Ordering, collections::BTreeSet};

use common::{
    api::sidecarset::{
        PodInjectPolicy, ShareVolumePolicy, ShareVolumePolicyType, SidecarContainer, SidecarSet,
        TransferEnvVar,
    },
    formula::{Candidate, Policy},
    gates::{Gate, Gates},
    pod::{Pod, ResourceList, Resources},
    sidecarset::{Records, hot},
};
use serde_json::{Map, Value, json};

use super::{
    InjectError,
    json::{child, items, objects, text},
    metadata,
};

/// The variable by which an injected container is known.
const IS_INJECTED: &str = "IS_INJECTED";

/// What a pod gets.
#[derive(Debug, Default)]
pub(super) struct Built {
    /// Sorted by name.
    pub(super) init_containers: Vec<Placed>,
    /// As the sets have them.
    pub(super) containers: Vec<Placed>,
    /// The names of hot-upgraded sidecars.
    pub(super) hot: Vec<String>,
}

/// A container, and on which side of the pod's own it goes.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) container: Map<String, Value>,
    pub(super) before: bool,
}

impl Built {
    pub(super) fn is_empty(&self) -> bool {
        self.init_containers.is_empty() && self.containers.is_empty()
    }
}

/// Builds all sidecars of all sets.
pub(super) fn sidecars(
    sets: &[Cow<'_, SidecarSet>],
    known: &Records,
    pod: &Pod,
    pod_json: &Map<String, Value>,
    gates: &Gates,
    warnings: &mut Vec<String>,
) -> Result<Built, InjectError> {
    let spec = child(pod_json, "spec");
    let list = |key| spec.map_or_else(Vec::new, |spec| objects(spec, key).collect::<Vec<_>>());
    let mut builder = Builder {
        pod,
        metadata: child(pod_json, "metadata"),
        init_containers: list("initContainers"),
        containers: list("containers"),
        own_names: own_names(sets),
        built: Built::default(),
        warnings,
    };
    for set in sets {
        let is_noted = metadata::is_noted(known, set);
        for sidecar in &set.spec.init_containers {
            if is_noted && has(&builder.init_containers, sidecar) {
                continue;
            }
            let sizes = gates.enabled(Gate::NativeSidecar) && sidecar.restarts_always();
            let is_hot = hot::is_hot(sidecar) && sidecar.restarts_always();
            let containers = builder.build(set, sidecar, sizes, is_hot)?;
            builder.built.init_containers.extend(containers);
        }
        for sidecar in &set.spec.containers {
            if is_noted && has(&builder.containers, sidecar) {
                continue;
            }
            let containers = builder.build(set, sidecar, true, hot::is_hot(sidecar))?;
            builder.built.containers.extend(containers);
        }
    }
    let mut built = builder.built;
    built
        .init_containers
        .sort_by(|a, b| text(&a.container, "name").cmp(text(&b.container, "name")));
    Ok(built)
}

/// Whether a pod that comes in a second time has a sidecar from the first: it stays, with what others have done to it.
fn has(present: &[&Map<String, Value>], sidecar: &SidecarContainer) -> bool {
    let has = |name: &str| {
        let mut present = present.iter();
        present.any(|container| text(container, "name") == name && is_injected(container))
    };
    has(sidecar.name()) || hot::pair(sidecar.name()).iter().all(|name| has(name))
}

/// The sidecars of all sets never are targets of a formula. Those of a pair are not in the pod yet, unless it comes in a
/// second time.
fn own_names(sets: &[Cow<'_, SidecarSet>]) -> BTreeSet<String> {
    let sidecars = sets
        .iter()
        .flat_map(|set| set.spec.init_containers.iter().chain(&set.spec.containers));
    sidecars
        .flat_map(|sidecar| {
            let pair = if hot::is_hot(sidecar) {
                hot::pair(sidecar.name()).to_vec()
            } else {
                Vec::new()
            };
            pair.into_iter().chain([sidecar.name().to_owned()])
        })
        .collect()
}

struct Builder<'p> {
    pod: &'p Pod,
    metadata: Option<&'p Map<String, Value>>,
    init_containers: Vec<&'p Map<String, Value>>,
    containers: Vec<&'p Map<String, Value>>,
    own_names: BTreeSet<String>,
    built: Built,
    warnings: &'p mut Vec<String>,
}

impl Builder<'_> {
    fn build(
        &mut self,
        set: &SidecarSet,
        sidecar: &SidecarContainer,
        sizes: bool,
        is_hot: bool,
    ) -> Result<Vec<Placed>, InjectError> {
        let mut container = sidecar.core.clone();
        self.size(set, sidecar, sizes, &mut container)?;
        let shared_env = self.share(sidecar, &mut container);

        let mut env = items(&container, "env").to_vec();
        let is_marked = |entry: &Value| entry["name"] == IS_INJECTED && entry["value"] == "true";
        if !env.iter().any(is_marked) {
            env.push(json!({"name": IS_INJECTED, "value": "true"}));
        }
        for entry in self
            .transferred(&sidecar.transfer_env)
            .into_iter()
            .chain(shared_env)
        {
            if !env.iter().any(|known| known["name"] == entry["name"]) {
                env.push(entry);
            }
        }
        container.insert("env".to_owned(), Value::Array(env));

        let before = sidecar.pod_inject_policy == Some(PodInjectPolicy::BeforeAppContainer);
        if !is_hot {
            return Ok(vec![Placed { container, before }]);
        }
        self.built.hot.push(sidecar.name().to_owned());
        let [working, idle] = hot::pair(sidecar.name());
        let mut second = container.clone();
        let empty = &sidecar.upgrade_strategy.hot_upgrade_empty_image;
        second.insert("image".to_owned(), empty.as_str().into());
        Ok([(working, container), (idle, second)]
            .map(|(name, container)| Placed {
                container: one_of_a_pair(name, container),
                before,
            })
            .into())
    }

    /// Gives the container what its formula makes of the resources that the pod itself has. What a recommendation
    /// changes about these comes later.
    fn size(
        &mut self,
        set: &SidecarSet,
        sidecar: &SidecarContainer,
        sizes: bool,
        container: &mut Map<String, Value>,
    ) -> Result<(), InjectError> {
        let Some(policy) = &sidecar.resources_policy else {
            return Ok(());
        };
        let set_name = set.metadata.name.as_deref().unwrap_or_default();
        if !sizes {
            self.warnings.push(format!(
                "SidecarSet {set_name}: container {}: resourcesPolicy of an init container is left out; it is only for \
                 native sidecars, with --feature-gates=NativeSidecar=true",
                sidecar.name()
            ));
            return Ok(());
        }
        let sizing = Policy::new(policy)
            .evaluate(Candidate::of_pod(self.pod), |name| self.own_names.contains(name))
            .map_err(|error| InjectError::Formula {
                set: set_name.to_owned(),
                container: sidecar.name().to_owned(),
                error: Box::new(error),
            })?;
        let mut resources = sizing.resources();
        for lowered in requests_within_limits(&mut resources) {
            self.warnings.push(format!(
                "SidecarSet {set_name}: container {}: the {lowered} request exceeds the limit and is lowered to it",
                sidecar.name()
            ));
        }
        container.insert("resources".to_owned(), resources_json(&resources));
        Ok(())
    }

    /// Adds the mounts and devices of the pod's own containers; gives the variables that their paths need.
    fn share(&self, sidecar: &SidecarContainer, container: &mut Map<String, Value>) -> Vec<Value> {
        let mut mounts = items(container, "volumeMounts").to_vec();
        let mut devices = items(container, "volumeDevices").to_vec();
        let mut taken: BTreeSet<String> = mounts
            .iter()
            .map(|mount| &mount["mountPath"])
            .chain(devices.iter().map(|device| &device["devicePath"]))
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        let mut env = Vec::new();
        let apps = || {
            self.containers
                .iter()
                .copied()
                .filter(|container| !is_injected(container))
        };
        if is_enabled(Some(&sidecar.share_volume_policy)) {
            for app in apps() {
                for mount in objects(app, "volumeMounts") {
                    if !taken.insert(text(mount, "mountPath").to_owned()) {
                        continue;
                    }
                    mounts.push(Value::Object(mount.clone()));
                    let names = variables(text(mount, "subPathExpr"));
                    env.extend(names.filter_map(|name| variable(app, name)));
                }
            }
        }
        if is_enabled(sidecar.share_volume_device_policy.as_ref()) {
            for device in apps().flat_map(|app| objects(app, "volumeDevices")) {
                if taken.insert(text(device, "devicePath").to_owned()) {
                    devices.push(Value::Object(device.clone()));
                }
            }
        }
        super::json::set_items(container, "volumeMounts", mounts);
        super::json::set_items(container, "volumeDevices", devices);
        env
    }

    /// The variables that are taken over from the pod's own containers.
    fn transferred(&self, transfers: &[TransferEnvVar]) -> Vec<Value> {
        let mut found = Vec::new();
        for transfer in transfers {
            let source = match &transfer.source_container_name_from {
                Some(from) => from
                    .field_ref
                    .as_ref()
                    .and_then(|field| self.field(&field.field_path)),
                None => Some(transfer.source_container_name.as_str()),
            };
            let Some(container) = self.containers.iter().find(|container| {
                let name = text(container, "name");
                source == Some(name)
            }) else {
                continue;
            };
            let names: BTreeSet<&str> = transfer
                .env_names
                .iter()
                .chain([&transfer.env_name])
                .map(String::as_str)
                .filter(|name| !name.is_empty())
                .collect();
            found.extend(names.into_iter().filter_map(|name| variable(container, name)));
        }
        found
    }

    /// A label or an annotation of the pod: `metadata.labels['key']`.
    fn field(&self, path: &str) -> Option<&str> {
        let (map, key) = super::super::field_path(path)?;
        child(self.metadata?, map)?.get(key)?.as_str()
    }
}

fn one_of_a_pair(name: String, mut container: Map<String, Value>) -> Map<String, Value> {
    let from = |key: String| json!({"fieldRef": {"apiVersion": "v1", "fieldPath": format!("metadata.annotations['{key}']")}});
    let mut env = items(&container, "env").to_vec();
    env.push(json!({"name": "SIDECARSET_VERSION", "valueFrom": from(hot::version_key(&name))}));
    env.push(json!({"name": "SIDECARSET_VERSION_ALT", "valueFrom": from(hot::alternate_version_key(&name))}));
    container.insert("env".to_owned(), Value::Array(env));
    container.insert("name".to_owned(), name.into());
    container
}

fn is_enabled(policy: Option<&ShareVolumePolicy>) -> bool {
    policy.and_then(|policy| policy.type_.as_ref()) == Some(&ShareVolumePolicyType::Enabled)
}

fn is_injected(container: &Map<String, Value>) -> bool {
    objects(container, "env").any(|env| text(env, "name") == IS_INJECTED && text(env, "value") == "true")
}

fn variable(container: &Map<String, Value>, name: &str) -> Option<Value> {
    let mut env = objects(container, "env");
    env.find(|env| text(env, "name") == name)
        .map(|env| Value::Object(env.clone()))
}

/// The names in `$(NAME)`.
fn variables(expression: &str) -> impl Iterator<Item = &str> {
    expression.split("$(").skip(1).filter_map(|rest| {
        let (name, _) = rest.split_once(')')?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let starts_well = name.starts_with(|c: char| is_name(c) && !c.is_ascii_digit());
        (starts_well && name.chars().all(is_name)).then_some(name)
    })
}

/// A pod whose request exceeds its limit would be refused: the limit holds. Gives the names of what was lowered.
fn requests_within_limits(resources: &mut Resources) -> Vec<String> {
    let Resources { requests, limits } = resources;
    let mut lowered = Vec::new();
    for (name, request) in requests.iter_mut().flatten() {
        if let Some(limit) = limits.as_ref().and_then(|limits| limits.get(name))
            && request.cmp_value(limit) == Ordering::Greater
        {
            *request = limit.clone();
            lowered.push(name.clone());
        }
    }
    lowered
}

fn resources_json(resources: &Resources) -> Value {
    let list = |list: &ResourceList| {
        let amounts = list.iter();
        amounts
            .map(|(name, amount)| (name.clone(), Value::from(amount.to_string())))
            .collect::<Map<_, _>>()
    };
    let sides = [("limits", &resources.limits), ("requests", &resources.requests)];
    sides
        .into_iter()
        .filter_map(|(side, amounts)| Some((side.to_owned(), Value::Object(list(amounts.as_ref()?)))))
        .collect::<Map<_, _>>()
        .into()
}
