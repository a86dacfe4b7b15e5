//! The hashes by which a pod is known to have a set's newest sidecars, the same to the byte as Kruise's
//! (`spec/sidecarset.md` 2.9), so that neither side updates what the other has injected.

use std::fmt::Write as _;

use ring::digest::{SHA256, digest};

use super::go_json::sidecars;
use crate::api::sidecarset::{SidecarContainer, SidecarSetSpec};

/// Both hashes of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hashes {
    /// Of the sidecars.
    pub hash: String,
    /// Of all but their images: where this one is the same, an update needs no new pod.
    pub without_image: String,
}

impl Hashes {
    /// The hashes of a spec.
    #[must_use]
    pub fn of(spec: &SidecarSetSpec) -> Self {
        Self {
            hash: hash(spec, true),
            without_image: hash(spec, false),
        }
    }
}

/// Plain init containers have run when an update could come, so they count only beside native ones.
fn hash(spec: &SidecarSetSpec, with_image: bool) -> String {
    let mut text = format!("{{\"containers\":{}", sidecars(&spec.containers, with_image));
    if spec.init_containers.iter().any(SidecarContainer::restarts_always) {
        text.push_str(",\"initContainers\":");
        text.push_str(&sidecars(&spec.init_containers, with_image));
    }
    text.push('}');
    let mut hex = String::with_capacity(64);
    for byte in digest(&SHA256, text.as_bytes()).as_ref() {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    safe_encode(&hex)
}

/// Characters that make no words and are not mistaken for one another.
const SAFE: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Each character becomes a safe one.
pub(super) fn safe_encode(text: &str) -> String {
    text.bytes()
        .filter_map(|byte| SAFE.get(usize::from(byte) % SAFE.len()))
        .map(|byte| char::from(*byte))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn hashes(spec: Value) -> (String, String) {
        let Hashes { hash, without_image } = Hashes::of(&serde_json::from_value(spec).unwrap());
        (hash, without_image)
    }

    /// The published vectors of `spec/sidecarset.md` 2.9.
    #[test]
    fn hashes_are_kruise_s() {
        let container = json!({"name": "container1", "image": "test-image"});
        let plain = (
            "w26c4x8fz245642fdv499b464248f974xddx4x55z5dw55bc6x66464fxz77dc78".to_owned(),
            "8wzddb4dvv9c6x8zdc77z4z75987424f457dfv6724ddw6zbdx467wz5x24fc759".to_owned(),
        );
        assert_eq!(hashes(json!({"containers": [container]})), plain);
        assert_eq!(
            hashes(json!({"containers": [container], "initContainers": [container]})),
            plain,
            "a plain init container does not count"
        );
        let native = json!({"name": "container1", "image": "test-image", "restartPolicy": "Always"});
        assert_eq!(
            hashes(json!({"containers": [container], "initContainers": [native]})),
            (
                "4xwx4d4844vd4v9x79wb4xbxf4xb29475cc4446v8cz2c2f2f5c5bw448vd42z8w".to_owned(),
                "5725fw8bwbx249bw57v5892c847dzf48bww9zb7c86xb95264fdz26654847b2c8".to_owned(),
            )
        );
    }

    #[test]
    fn what_is_not_of_the_sidecars_does_not_count() {
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        let mut more = spec.clone();
        more["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
        more["imagePullSecrets"] = json!([{"name": "s"}]);
        more["patchPodMetadata"] = json!([{"annotations": {"a": "b"}}]);
        more["updateStrategy"] = json!({"partition": 3});
        assert_eq!(hashes(spec.clone()), hashes(more));
        let mut other = spec.clone();
        other["containers"][0]["image"] = json!("j");
        let ((old, old_without), (new, new_without)) = (hashes(spec.clone()), hashes(other));
        assert_ne!(old, new);
        assert_eq!(old_without, new_without);
        let mut formula = spec.clone();
        formula["containers"][0]["resourcesPolicy"] =
            json!({"targetContainersMode": "sum", "resourcesExpr": {"limits": {"cpu": "cpu"}}});
        assert_ne!(hashes(formula).1, new_without, "a formula changes both");
    }
}
