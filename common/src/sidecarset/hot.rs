//! Hot-upgraded sidecars: two containers of which one works and the other waits with an empty image
//! (`spec/sidecarset.md` 2.10).

use std::collections::BTreeMap;

use super::record::Annotations;
use crate::api::sidecarset::{SidecarContainer, UpgradeType};

/// The annotation that says which container of each pair works: a JSON object, the sidecar's name to the container's.
pub const WORKING_CONTAINER: &str = "kruise.io/sidecarset-working-hotupgrade-container";

/// The names of the two containers; the first is the one that works at first.
#[must_use]
pub fn pair(name: &str) -> [String; 2] {
    [format!("{name}-1"), format!("{name}-2")]
}

/// Whether a sidecar becomes a pair.
#[must_use]
pub fn is_hot(container: &SidecarContainer) -> bool {
    container.upgrade_strategy.upgrade_type == Some(UpgradeType::HotUpgrade)
}

/// The annotation with a container's version.
#[must_use]
pub fn version_key(container: &str) -> String {
    format!("version.sidecarset.kruise.io/{container}")
}

/// The annotation with the version of the other container of the pair.
#[must_use]
pub fn alternate_version_key(container: &str) -> String {
    format!("versionalt.sidecarset.kruise.io/{container}")
}

/// Which container of each pair works, by the sidecar's name. What cannot be read is none.
#[must_use]
pub fn working(annotations: Option<&Annotations>) -> BTreeMap<String, String> {
    annotations
        .and_then(|annotations| annotations.get(WORKING_CONTAINER))
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

/// The names of the containers that a pod has of a sidecar.
#[must_use]
pub fn container_names(annotations: Option<&Annotations>, sidecar: &str) -> Vec<String> {
    if working(annotations).contains_key(sidecar) {
        pair(sidecar).into()
    } else {
        vec![sidecar.to_owned()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_known_by_the_annotation() {
        let text = r#"{"dns-f":"dns-f-1"}"#.to_owned();
        let annotations = Annotations::from([(WORKING_CONTAINER.to_owned(), text)]);
        assert_eq!(
            container_names(Some(&annotations), "dns-f"),
            ["dns-f-1", "dns-f-2"]
        );
        assert_eq!(container_names(Some(&annotations), "log"), ["log"]);
        assert_eq!(container_names(None, "dns-f"), ["dns-f"]);
        let broken = Annotations::from([(WORKING_CONTAINER.to_owned(), "[".to_owned())]);
        assert_eq!(container_names(Some(&broken), "dns-f"), ["dns-f"]);
    }
}
