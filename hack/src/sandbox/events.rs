//! Events are served in two groups and kept once: the core form is stored, `events.k8s.io` is translated.

use serde_json::Value;

use super::registry::Kind;

/// The names that differ: in the core group, and in `events.k8s.io`.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Whether objects of this kind need translation at all.
#[must_use]
pub(super) fn translated(kind: &Kind) -> bool {
    kind.group == "events.k8s.io"
}

/// From what a client of this kind sends to what is kept.
#[must_use]
pub(super) fn to_stored(kind: &Kind, value: Value) -> Value {
    rename(kind, value, |(core, new)| (new, core))
}

/// From what is kept to what a client of this kind expects.
#[must_use]
pub(super) fn from_stored(kind: &Kind, value: Value) -> Value {
    rename(kind, value, |names| names)
}

fn rename<'a>(
    kind: &Kind,
    mut value: Value,
    direction: impl Fn((&'static str, &'static str)) -> (&'a str, &'a str),
) -> Value {
    if translated(kind)
        && let Some(map) = value.as_object_mut()
    {
        for (from, to) in NAMES.map(direction) {
            if let Some(field) = map.remove(from) {
                map.insert(to.to_owned(), field);
            }
        }
    }
    value
}
