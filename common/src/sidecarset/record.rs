//! What a pod's annotations tell of the sets it was injected by: which, their hashes, which sidecars, which revision
//! (`spec/sidecarset.md` 2.9). Read from pods that Kruise has injected, written for those that we do.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::hash::Hashes;
use crate::api::{k8s::Time, sidecarset::SidecarSet};

/// The annotation with a record for each set, its hash and revision; on a set itself, the set's hash.
pub const HASH: &str = "kruise.io/sidecarset-hash";
/// The same with the hashes that leave images out.
pub const HASH_WITHOUT_IMAGE: &str = "kruise.io/sidecarset-hash-without-image";
/// The annotation with the names of the sets.
pub const INJECTED_LIST: &str = "kruise.io/sidecarset-injected-list";

/// The annotations of an object.
pub type Annotations = BTreeMap<String, String>;

/// What a pod has of one set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// When it got that.
    pub update_timestamp: Option<Time>,
    /// The set's hash then.
    #[serde(deserialize_with = "nullable")]
    pub hash: String,
    /// The set.
    #[serde(deserialize_with = "nullable")]
    pub sidecar_set_name: String,
    /// The names of its sidecars: a hot-upgraded pair has one here.
    #[serde(deserialize_with = "nullable")]
    pub sidecar_list: Vec<String>,
    /// Name of the revision, where it is known.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub controller_revision: String,
}

impl Record {
    /// What is noted of a set in one of the two annotations, all but the time. The set's own hash is taken where it has
    /// one.
    #[must_use]
    pub fn of(set: &SidecarSet, key: &str) -> Self {
        let of_set = set.metadata.annotations.as_ref().and_then(|found| found.get(key));
        let hash = of_set.cloned().unwrap_or_else(|| {
            let Hashes { hash, without_image } = Hashes::of(&set.spec);
            if key == HASH { hash } else { without_image }
        });
        let native = set.spec.init_containers.iter();
        let native = native.filter(|sidecar| sidecar.restarts_always());
        let mut sidecar_list: Vec<String> = native
            .chain(&set.spec.containers)
            .map(|sidecar| sidecar.name().to_owned())
            .collect();
        sidecar_list.sort();
        sidecar_list.dedup();
        let status = set.status.as_ref().filter(|_| key == HASH);
        Self {
            update_timestamp: None,
            hash,
            sidecar_set_name: set.metadata.name.clone().unwrap_or_default(),
            sidecar_list,
            controller_revision: status
                .map(|status| status.latest_revision.clone())
                .unwrap_or_default(),
        }
    }
}

/// The records of a pod, by the name of the set.
pub type Records = BTreeMap<String, Record>;

/// Why the records of a pod cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("invalid annotations[{key}] {value:?} of the pod: unmarshal failed: {error}")]
pub struct RecordError {
    key: &'static str,
    value: String,
    error: serde_json::Error,
}

/// The records in one of the two annotations; none where it is missing. Before there were records each set had its hash
/// there and nothing else, which is read too.
///
/// # Errors
/// If there is something else.
pub fn records(annotations: Option<&Annotations>, key: &'static str) -> Result<Records, RecordError> {
    let Some(value) = annotations
        .and_then(|annotations| annotations.get(key))
        .filter(|value| !value.is_empty())
    else {
        return Ok(Records::new());
    };
    let error = |error| RecordError {
        key,
        value: value.clone(),
        error,
    };
    match serde_json::from_str::<Option<Records>>(value) {
        Ok(records) => Ok(records.unwrap_or_default()),
        Err(first) => match serde_json::from_str::<BTreeMap<String, String>>(value) {
            Ok(legacy) => Ok(legacy.into_iter().map(from_legacy).collect()),
            Err(_) => Err(error(first)),
        },
    }
}

fn from_legacy((name, hash): (String, String)) -> (String, Record) {
    let record = Record {
        hash,
        sidecar_set_name: name.clone(),
        ..Record::default()
    };
    (name, record)
}

/// The names of the sets in the annotation that lists them.
pub fn injected_sets(annotations: Option<&Annotations>) -> impl Iterator<Item = &str> {
    let list = annotations.and_then(|annotations| annotations.get(INJECTED_LIST));
    list.into_iter()
        .flat_map(|list| list.split(','))
        .filter(|name| !name.is_empty())
}

fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(input: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Result<Records, String> {
        let annotations = BTreeMap::from([(HASH.to_owned(), value.to_owned())]);
        records(Some(&annotations), HASH).map_err(|error| error.to_string())
    }

    #[test]
    fn records_are_read_and_written_as_kruise_writes_them() {
        let text = concat!(
            r#"{"log":{"updateTimestamp":"2026-03-01T10:10:00Z","hash":"h","sidecarSetName":"log","#,
            r#""sidecarList":["agent","dns"],"controllerRevision":"log-1"},"#,
            r#""plain":{"updateTimestamp":null,"hash":"","sidecarSetName":"plain","sidecarList":[]}}"#,
        );
        let records = read(text).unwrap();
        assert_eq!(records["log"].sidecar_list, ["agent", "dns"]);
        assert_eq!(records["log"].controller_revision, "log-1");
        assert_eq!(serde_json::to_string(&records).unwrap(), text);
    }

    #[test]
    fn the_older_form_is_taken_and_anything_else_is_not() {
        let records = read(r#"{"log":"h"}"#).unwrap();
        assert_eq!(records["log"].hash, "h");
        assert_eq!(records["log"].sidecar_set_name, "log");
        assert_eq!(read("").unwrap(), Records::new());
        assert_eq!(read("null").unwrap(), Records::new());
        let error = read("[1]").unwrap_err();
        assert!(
            error.starts_with("invalid annotations[kruise.io/sidecarset-hash] \"[1]\""),
            "{error}"
        );
        assert!(error.contains("unmarshal failed"), "{error}");
    }

    #[test]
    fn injected_sets_are_listed() {
        let annotations = BTreeMap::from([(INJECTED_LIST.to_owned(), "a,,b".to_owned())]);
        assert_eq!(injected_sets(Some(&annotations)).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(injected_sets(None).count(), 0);
    }
}
