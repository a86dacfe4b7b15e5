//! The sidecars and their volumes: what injection does with them has to come out as a pod.

use std::collections::{BTreeMap, BTreeSet};

use common::api::{
    OpenEnum,
    sidecarset::{SidecarContainer, SidecarSet},
};
use serde_json::Value;

use super::{super::field_path, Faults};

pub(super) fn check(set: &SidecarSet, faults: &mut Faults) {
    let spec = &set.spec;
    if spec.containers.is_empty() && spec.init_containers.is_empty() {
        faults.required("spec", "no initContainer or container defined for SidecarSet");
    }
    let volumes = check_volumes(set, faults);
    let mut names = BTreeSet::new();
    for (list, sidecars) in [
        ("initContainers", &spec.init_containers),
        ("containers", &spec.containers),
    ] {
        for (index, sidecar) in sidecars.iter().enumerate() {
            let field = format!("spec.{list}[{index}]");
            check_container(&field, sidecar, &volumes, faults);
            if !names.insert(sidecar.name()) {
                faults.duplicate(format!("{field}.name"), sidecar.name());
            }
            if list == "containers" {
                check_sidecar(&field, sidecar, faults);
            }
        }
    }
}

/// What only sets have, for regular containers.
fn check_sidecar(field: &str, sidecar: &SidecarContainer, faults: &mut Faults) {
    check_enum(
        &format!("{field}.podInjectPolicy"),
        sidecar.pod_inject_policy.as_ref(),
        faults,
    );
    check_enum(
        &format!("{field}.shareVolumePolicy.type"),
        sidecar.share_volume_policy.type_.as_ref(),
        faults,
    );
    check_enum(
        &format!("{field}.upgradeStrategy.upgradeType"),
        sidecar.upgrade_strategy.upgrade_type.as_ref(),
        faults,
    );
    for (index, transfer) in sidecar.transfer_env.iter().enumerate() {
        let source = transfer.source_container_name_from.as_ref();
        let Some(reference) = source.and_then(|from| from.field_ref.as_ref()) else {
            continue;
        };
        let field = format!("{field}.transferEnv[{index}].sourceContainerNameFrom.fieldRef");
        if reference
            .api_version
            .as_deref()
            .is_some_and(|version| version != "v1")
        {
            let version = reference.api_version.as_deref().unwrap_or_default();
            faults.invalid(format!("{field}.apiVersion"), version, "must be v1");
        }
        if field_path(&reference.field_path).is_none_or(|(_, key)| key.is_empty()) {
            faults.invalid(
                format!("{field}.fieldPath"),
                &reference.field_path,
                "must be metadata.labels['KEY'] or metadata.annotations['KEY']",
            );
        }
    }
}

/// That a value is one of those that there are.
pub(super) fn check_enum<T: OpenEnum>(field: &str, value: Option<&T>, faults: &mut Faults) {
    if let Some(value) = value
        && !T::known_names().contains(&value.as_str())
    {
        faults.not_supported(field, value.as_str(), &T::known_names());
    }
}

fn check_container(field: &str, sidecar: &SidecarContainer, volumes: &BTreeSet<&str>, faults: &mut Faults) {
    if sidecar.name().is_empty() {
        faults.required(format!("{field}.name"), "a container needs a name");
    } else if !is_dns_label(sidecar.name()) {
        let detail = "must be a lower-case DNS label";
        faults.invalid(format!("{field}.name"), sidecar.name(), detail);
    }
    let container = match sidecar.parse_container() {
        Ok(container) => container,
        Err(error) => {
            faults.invalid(field, sidecar.name(), format_args!("not a container: {error}"));
            return;
        }
    };
    if container.image.is_none_or(|image| image.trim().is_empty()) {
        faults.required(format!("{field}.image"), "a container needs an image");
    }
    for (list, path) in [("volumeMounts", "mountPath"), ("volumeDevices", "devicePath")] {
        let mut paths = BTreeSet::new();
        let entries = sidecar.core.get(list).and_then(Value::as_array);
        for (index, entry) in entries.into_iter().flatten().enumerate() {
            let field = format!("{field}.{list}[{index}]");
            let name = entry["name"].as_str().unwrap_or_default();
            if !volumes.contains(name) {
                faults.push(format!("{field}.name"), format!("Not found: {name:?}"));
            }
            let place = entry[path].as_str().unwrap_or_default();
            if place.is_empty() {
                faults.required(format!("{field}.{path}"), "a place in the container is needed");
            } else if !paths.insert(place) {
                faults.invalid(format!("{field}.{path}"), place, "must be unique");
            }
        }
    }
}

/// Gives the names of the volumes there are.
fn check_volumes<'s>(set: &'s SidecarSet, faults: &mut Faults) -> BTreeSet<&'s str> {
    if let Err(error) = set.spec.parse_volumes() {
        faults.push(
            "spec.volumes".to_owned(),
            format!("Invalid value: not volumes: {error}"),
        );
    }
    let volumes = set.spec.volumes.as_ref().and_then(Value::as_array);
    let mut names = BTreeSet::new();
    for (index, volume) in volumes.into_iter().flatten().enumerate() {
        let field = format!("spec.volumes[{index}].name");
        let name = volume["name"].as_str().unwrap_or_default();
        if !is_dns_label(name) {
            faults.invalid(&field, name, "must be a lower-case DNS label");
        }
        if !names.insert(name) {
            faults.duplicate(field, name);
        }
    }
    names
}

fn is_dns_label(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty()
        && text.len() <= 63
        && text.chars().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// What a change may not do: running pods could not follow.
pub(super) fn check_update(set: &SidecarSet, old: &SidecarSet, faults: &mut Faults) {
    let before: BTreeMap<&str, &SidecarContainer> = old
        .spec
        .containers
        .iter()
        .map(|sidecar| (sidecar.name(), sidecar))
        .collect();
    for (index, sidecar) in set.spec.containers.iter().enumerate() {
        let field = format!("spec.containers[{index}]");
        let name = sidecar.name();
        let Some(old) = before.get(name) else {
            faults.forbidden(
                field,
                format_args!("container {name} is not found: a SidecarSet gets no new containers"),
            );
            continue;
        };
        let was = old.upgrade_strategy.upgrade_type.as_ref();
        let is = sidecar.upgrade_strategy.upgrade_type.as_ref();
        if was.is_some() && is != was {
            let value = is.map(OpenEnum::as_str).unwrap_or_default();
            faults.invalid(
                format!("{field}.upgradeStrategy.upgradeType"),
                value,
                format_args!("upgradeType of container {name} is immutable"),
            );
        }
    }
}
