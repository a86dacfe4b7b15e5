//! From the pod before to the pod after, as a JSON patch: annotations one by one, lists as a whole.

use common::patch::{ANNOTATIONS, annotation_path};
use serde_json::{Map, Value};

use super::json::child;
use crate::review::Operation;

/// The operations; none where nothing has changed.
pub(super) fn between(before: &Map<String, Value>, after: &Map<String, Value>) -> Vec<Operation> {
    let annotations = |pod| child(pod, "metadata").and_then(|metadata| child(metadata, "annotations"));
    let mut patch = Vec::new();
    if let Some(new) = annotations(after).filter(|new| !new.is_empty()) {
        match annotations(before) {
            None => patch.push(Operation::put(ANNOTATIONS.to_owned(), Value::Object(new.clone()))),
            Some(old) => {
                let changed = new.iter().filter(|(key, value)| old.get(*key) != Some(value));
                patch.extend(changed.map(|(key, value)| Operation::put(annotation_path(key), value.clone())));
            }
        }
    }
    for key in ["volumes", "imagePullSecrets", "initContainers", "containers"] {
        let list = |pod| child(pod, "spec").and_then(|spec| spec.get(key));
        if let Some(new) = list(after)
            && list(before) != Some(new)
        {
            patch.push(Operation::put(format!("/spec/{key}"), new.clone()));
        }
    }
    patch
}
