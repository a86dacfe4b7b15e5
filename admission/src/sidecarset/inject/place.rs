//! Where things go in the pod: containers among its own, the volumes they mount, the secrets for their images
//! (`spec/sidecarset.md` 2.5, 2.6).

use std::{borrow::Cow, collections::BTreeSet};

use common::api::sidecarset::SidecarSet;
use serde_json::{Map, Value};

use super::{
    build::{Built, Placed},
    json::{child_mut, items, objects, set_items, text},
};

/// Puts everything into the pod.
pub(super) fn merge(pod: &mut Map<String, Value>, sets: &[Cow<'_, SidecarSet>], built: Built) {
    let Some(spec) = child_mut(pod, "spec") else {
        return;
    };
    volumes(spec, sets);
    secrets(spec, sets);
    for (key, placed) in [
        ("initContainers", built.init_containers),
        ("containers", built.containers),
    ] {
        let merged = containers(items(spec, key).to_vec(), placed);
        set_items(spec, key, merged);
    }
}

/// One of a name that is there takes its place; others go before or after all that are.
pub(super) fn containers(mut present: Vec<Value>, injected: Vec<Placed>) -> Vec<Value> {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for Placed {
        container,
        before: goes_before,
    } in injected
    {
        let name = text(&container, "name");
        let same_name = present.iter().position(|known| known["name"] == name);
        match same_name.and_then(|index| present.get_mut(index)) {
            Some(known) => *known = Value::Object(container),
            None if goes_before => before.push(Value::Object(container)),
            None => after.push(Value::Object(container)),
        }
    }
    before.append(&mut present);
    before.append(&mut after);
    before
}

/// The volumes that the sidecars themselves mount. The pod's own volume of a name wins.
fn volumes(spec: &mut Map<String, Value>, sets: &[Cow<'_, SidecarSet>]) {
    let mut volumes = items(spec, "volumes").to_vec();
    for set in sets {
        let of_set = match &set.spec.volumes {
            Some(Value::Array(volumes)) => volumes.as_slice(),
            _ => &[],
        };
        for sidecar in set.spec.init_containers.iter().chain(&set.spec.containers) {
            let mounts = ["volumeMounts", "volumeDevices"].into_iter();
            for mount in mounts.flat_map(|key| objects(&sidecar.core, key)) {
                let name = text(mount, "name");
                if volumes.iter().any(|volume| volume["name"] == name) {
                    continue;
                }
                volumes.extend(of_set.iter().find(|volume| volume["name"] == name).cloned());
            }
        }
    }
    set_items(spec, "volumes", volumes);
}

fn secrets(spec: &mut Map<String, Value>, sets: &[Cow<'_, SidecarSet>]) {
    let key = "imagePullSecrets";
    let mut seen = BTreeSet::new();
    let mut secrets: Vec<Value> = Vec::new();
    for secret in objects(spec, key) {
        if seen.insert(text(secret, "name").to_owned()) {
            secrets.push(Value::Object(secret.clone()));
        }
    }
    for secret in sets.iter().flat_map(|set| &set.spec.image_pull_secrets) {
        if seen.insert(secret.name.clone()) {
            secrets.extend(serde_json::to_value(secret));
        }
    }
    set_items(spec, key, secrets);
}
