//! SidecarSets at admission: their sidecars are put into new pods, and the sets themselves are defaulted, validated and
//! converted (`spec/sidecarset.md` 1, 2). How an injected sidecar's resources follow a recommendation is the plan's business.

pub mod convert;
pub mod default;
pub(crate) mod feed;
pub mod inject;
pub(crate) mod injector;
pub(crate) mod known;
pub mod quota;
pub mod register;
pub(crate) mod replica;
pub mod review;
pub mod settings;
pub mod size;
pub mod validate;

/// The map and the key of a field like `metadata.labels['app']`, if it is one.
fn field_path(path: &str) -> Option<(&str, &str)> {
    let (map, rest) = path.strip_prefix("metadata.")?.split_once("['")?;
    let key = rest.strip_suffix("']")?;
    ["labels", "annotations"].contains(&map).then_some((map, key))
}
