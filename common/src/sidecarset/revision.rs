//! Revisions: what a set was, kept as ControllerRevisions (`spec/sidecarset.md` 2.11). How they are made, named, found and
//! turned into a set again.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    go_json::{sidecars, write_value},
    hash::{Hashes, safe_encode},
    record::{HASH, HASH_WITHOUT_IMAGE},
};
use crate::{
    api::{
        k8s::{ControllerRevision, ObjectMeta, OwnerReference, RawExtension},
        sidecarset::{InjectRevision, SidecarSet, SidecarSetSpec},
    },
    time::from_k8s,
};

/// The label with the name of a revision's set.
pub const SET_NAME: &str = "kruise.io/sidecarset-name";
/// The label with the custom version of a revision's set, and of a v1alpha1 set.
pub const CUSTOM_VERSION: &str = "apps.kruise.io/sidecarset-custom-version";
/// The label with the hash in a revision's name.
pub const REVISION_HASH: &str = "controller.kubernetes.io/hash";

/// The keys of a set's spec that a revision keeps.
const KEPT: [&str; 5] = [
    "containers",
    "imagePullSecrets",
    "initContainers",
    "patchPodMetadata",
    "volumes",
];
/// What a name may have before the hash.
const MAX_PREFIX: usize = 223;

/// What a revision keeps of a set. Two sets are of the same revision if this is the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Data(Value);

impl Data {
    /// Of a set.
    #[must_use]
    pub fn of(spec: &SidecarSetSpec) -> Self {
        let list =
            |containers| -> Value { serde_json::from_str(&sidecars(containers, true)).unwrap_or_default() };
        let or_null = |value: Result<Value, serde_json::Error>| match value {
            Ok(Value::Array(items)) if items.is_empty() => Value::Null,
            Ok(value) => value,
            Err(_) => Value::Null,
        };
        Self(json!({"spec": {
            "$patch": "replace",
            "containers": list(&spec.containers),
            "imagePullSecrets": or_null(serde_json::to_value(&spec.image_pull_secrets)),
            "initContainers": list(&spec.init_containers),
            "patchPodMetadata": or_null(serde_json::to_value(&spec.patch_pod_metadata)),
            "volumes": or_null(Ok(spec.volumes.clone().unwrap_or_default())),
        }}))
    }

    /// Of a revision.
    #[must_use]
    pub fn in_revision(revision: &ControllerRevision) -> Option<Self> {
        revision.data.as_ref().map(|data| Self(data.0.clone()))
    }

    /// The hash in the name: it depends on the text, and on how many names turned out to be taken.
    #[must_use]
    pub fn hash(&self, collisions: i32) -> String {
        let mut text = String::new();
        write_value(&mut text, &self.0);
        text.push_str(&collisions.to_string());
        safe_encode(&fnv1(text.as_bytes()).to_string())
    }
}

/// The revision object of a set, to be created in the namespace where revisions are kept.
#[must_use]
pub fn new_revision(set: &SidecarSet, namespace: &str, number: i64, collisions: i32) -> ControllerRevision {
    let data = Data::of(&set.spec);
    let hash = data.hash(collisions);
    let set_name = set.metadata.name.as_deref().unwrap_or_default();
    let mut labels = set.metadata.labels.clone().unwrap_or_default();
    labels.insert(REVISION_HASH.to_owned(), hash.clone());
    labels.insert(SET_NAME.to_owned(), set_name.to_owned());
    if !set.spec.custom_version.is_empty() {
        labels.insert(CUSTOM_VERSION.to_owned(), set.spec.custom_version.clone());
    }
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(revision_name(set_name, &hash)),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels),
            annotations: set.metadata.annotations.clone(),
            owner_references: Some(vec![OwnerReference {
                api_version: "apps.kruise.io/v1beta1".to_owned(),
                kind: "SidecarSet".to_owned(),
                name: set_name.to_owned(),
                uid: set.metadata.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data.0)),
        revision: number,
    }
}

/// The name of a revision: as much of the set's as there is room for, and the hash.
#[must_use]
pub fn revision_name(set: &str, hash: &str) -> String {
    let end = (0..=MAX_PREFIX.min(set.len()))
        .rev()
        .find(|end| set.is_char_boundary(*end))
        .unwrap_or(0);
    format!("{}-{hash}", &set[..end])
}

/// The 32-bit FNV-1 hash.
fn fnv1(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash: u32, byte| {
        hash.wrapping_mul(0x0100_0193) ^ u32::from(*byte)
    })
}

/// Why there is no set of an older revision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RevisionError {
    /// Nobody made one of that name.
    #[error(
        "ControllerRevision {namespace}/{name} of SidecarSet {set} is not found: correct \
         spec.injectionStrategy.revision.revisionName, or remove it to inject the newest revision"
    )]
    NoName {
        /// The set.
        set: String,
        /// Where revisions are kept.
        namespace: String,
        /// The name.
        name: String,
    },
    /// Nobody made one of that version.
    #[error(
        "no ControllerRevision of SidecarSet {set} in namespace {namespace} has custom version {version:?}: correct \
         spec.injectionStrategy.revision.customVersion, or remove it to inject the newest revision"
    )]
    NoVersion {
        /// The set.
        set: String,
        /// Where revisions are kept.
        namespace: String,
        /// The custom version.
        version: String,
    },
    /// It does not hold a set.
    #[error("ControllerRevision {name} of SidecarSet {set} cannot be restored: {error}")]
    Unreadable {
        /// The set.
        set: String,
        /// The revision's name.
        name: String,
        /// Why not.
        error: String,
    },
}

/// Which revision a set names for new pods, if it does. The name wins over the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted<'s> {
    /// The one of this name.
    Name(&'s str),
    /// The newest one of this custom version.
    CustomVersion(&'s str),
}

impl<'s> Wanted<'s> {
    /// What a set's injection strategy names.
    #[must_use]
    pub fn by(revision: Option<&'s InjectRevision>) -> Option<Self> {
        let revision = revision?;
        match (&revision.revision_name, &revision.custom_version) {
            (Some(name), _) => Some(Self::Name(name)),
            (None, Some(version)) => Some(Self::CustomVersion(version)),
            (None, None) => None,
        }
    }
}

/// The revisions that are known, by name. All are of the one namespace where they are kept.
#[derive(Clone, Debug, Default)]
pub struct Revisions {
    namespace: String,
    by_name: BTreeMap<String, ControllerRevision>,
}

impl Revisions {
    /// None yet, of this namespace.
    #[must_use]
    pub fn kept_in(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            by_name: BTreeMap::new(),
        }
    }

    /// Takes in one that is new or has changed.
    pub fn apply(&mut self, mut revision: ControllerRevision) {
        revision.metadata.managed_fields = None;
        if let Some(name) = revision.metadata.name.clone() {
            self.by_name.insert(name, revision);
        }
    }

    /// Forgets one.
    pub fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
    }

    /// Forgets those of which `keep` says no.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.by_name.retain(|name, _| keep(name));
    }

    /// The one of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ControllerRevision> {
        self.by_name.get(name)
    }

    /// Those of a set, oldest first: by number, then by age, then by name.
    #[must_use]
    pub fn of_set(&self, set: &str) -> Vec<&ControllerRevision> {
        let mut found: Vec<_> = self
            .by_name
            .values()
            .filter(|revision| label(revision, SET_NAME) == Some(set))
            .collect();
        found.sort_by_key(|revision| {
            let created = revision.metadata.creation_timestamp.as_ref().map(from_k8s);
            (revision.revision, created, revision.metadata.name.clone())
        });
        found
    }

    /// The one that is wanted for a set. That a named one belongs to the set is not asked, as in Kruise.
    ///
    /// # Errors
    /// If there is none.
    pub fn find(&self, set: &str, wanted: Wanted<'_>) -> Result<&ControllerRevision, RevisionError> {
        match wanted {
            Wanted::Name(name) => self.get(name).ok_or_else(|| RevisionError::NoName {
                set: set.to_owned(),
                namespace: self.namespace.clone(),
                name: name.to_owned(),
            }),
            Wanted::CustomVersion(version) => self
                .of_set(set)
                .into_iter()
                .rfind(|revision| label(revision, CUSTOM_VERSION) == Some(version))
                .ok_or_else(|| RevisionError::NoVersion {
                    set: set.to_owned(),
                    namespace: self.namespace.clone(),
                    version: version.to_owned(),
                }),
        }
    }
}

/// A label of a revision.
#[must_use]
pub fn label<'r>(revision: &'r ControllerRevision, key: &str) -> Option<&'r str> {
    let labels = revision.metadata.labels.as_ref()?;
    labels.get(key).map(String::as_str)
}

/// The set as it was: of its spec only what revisions keep, the metadata as they are now with the hashes of then, and
/// the revision as its newest one.
///
/// # Errors
/// If the revision holds no set.
pub fn restore(current: &SidecarSet, revision: &ControllerRevision) -> Result<SidecarSet, RevisionError> {
    let name = revision.metadata.name.clone().unwrap_or_default();
    let unreadable = |error: String| RevisionError::Unreadable {
        set: current.metadata.name.clone().unwrap_or_default(),
        name: name.clone(),
        error,
    };
    let data = revision.data.as_ref().map(|data| &data.0);
    let stored = data
        .and_then(|data| data.get("spec"))
        .and_then(Value::as_object)
        .ok_or_else(|| unreadable("it has no data.spec".to_owned()))?;
    let kept: Map<String, Value> = KEPT
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), stored.get(key)?.clone())))
        .collect();
    let spec: SidecarSetSpec =
        serde_json::from_value(Value::Object(kept)).map_err(|error| unreadable(error.to_string()))?;

    let mut set = SidecarSet {
        metadata: current.metadata.clone(),
        spec,
        status: current.status.clone(),
    };
    let computed = Hashes::of(&set.spec);
    let annotations = set.metadata.annotations.get_or_insert_default();
    for (key, computed) in [
        (HASH, computed.hash),
        (HASH_WITHOUT_IMAGE, computed.without_image),
    ] {
        let of_revision = revision
            .metadata
            .annotations
            .as_ref()
            .and_then(|found| found.get(key));
        annotations.insert(key.to_owned(), of_revision.cloned().unwrap_or(computed));
    }
    set.status.get_or_insert_default().latest_revision = name;
    Ok(set)
}

/// Which revisions go: the oldest, down to the limit, which is at least one. The newest stays, and those that `in_use`
/// names.
#[must_use]
pub fn to_prune<'r>(
    oldest_first: &[&'r ControllerRevision],
    limit: Option<i32>,
    in_use: impl Fn(&str) -> bool,
) -> Vec<&'r str> {
    let limit = usize::try_from(limit.unwrap_or(10).max(1)).unwrap_or(1);
    let excess = oldest_first.len().saturating_sub(limit);
    let without_newest = oldest_first.split_last().map_or(&[][..], |(_, older)| older);
    without_newest
        .iter()
        .filter_map(|revision| revision.metadata.name.as_deref())
        .filter(|name| !in_use(name))
        .take(excess)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::from_value;

    fn set(spec: Value) -> SidecarSet {
        let labels = json!({"team": "a"});
        let mut set =
            json!({"metadata": {"name": "s", "uid": "u", "labels": labels, "annotations": {HASH: "now"}}});
        set["spec"] = spec;
        from_value(set).unwrap()
    }

    fn image(image: &str) -> SidecarSet {
        set(json!({"containers": [{"name": "c", "image": image}]}))
    }

    /// The vector of `spec/sidecarset.md` 2.11, which pins the hash of a text.
    #[test]
    fn names_are_kruise_s() {
        let text = concat!(
            r#"{"spec":{"$patch":"replace","containers":[{"name":"c","image":"old","resources":{},"upgradeStrategy":{},"#,
            r#""shareVolumePolicy":{}}],"imagePullSecrets":null,"initContainers":null,"patchPodMetadata":null,"#,
            r#""volumes":null}}"#,
        );
        let hash = safe_encode(&fnv1(format!("{text}0").as_bytes()).to_string());
        assert_eq!(revision_name("s", &hash), "s-65c56c8cc5");
        let long = "x".repeat(300);
        assert_eq!(revision_name(&long, "h").len(), 225);
        assert_eq!(
            revision_name(&"\u{e4}".repeat(112), "h").len(),
            224,
            "never half a character"
        );
    }

    #[test]
    fn a_revision_keeps_five_keys_always_and_sorted() {
        let mut text = String::new();
        write_value(&mut text, &Data::of(&image("old").spec).0);
        assert_eq!(
            text,
            concat!(
                r#"{"spec":{"$patch":"replace","containers":[{"image":"old","name":"c","resources":{},"#,
                r#""shareVolumePolicy":{},"upgradeStrategy":{}}],"imagePullSecrets":null,"initContainers":null,"#,
                r#""patchPodMetadata":null,"volumes":null}}"#,
            )
        );
    }

    #[test]
    fn a_new_revision_carries_what_the_set_has() {
        let mut set = image("old");
        set.spec.custom_version = "1".to_owned();
        let revision = new_revision(&set, "outrigger", 3, 0);
        let hash = Data::of(&set.spec).hash(0);
        assert_eq!(revision.revision, 3);
        assert_eq!(revision.metadata.name, Some(format!("s-{hash}")));
        assert_eq!(revision.metadata.namespace.as_deref(), Some("outrigger"));
        let labels = [
            (CUSTOM_VERSION, "1"),
            (REVISION_HASH, hash.as_str()),
            (SET_NAME, "s"),
            ("team", "a"),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(revision.metadata.labels, Some(labels.into()));
        assert_eq!(revision.metadata.annotations, set.metadata.annotations);
        assert_eq!(revision.metadata.owner_references.unwrap()[0].name, "s");
        assert_ne!(
            hash,
            Data::of(&set.spec).hash(1),
            "a collision gives another name"
        );
    }

    #[test]
    fn a_restored_set_has_the_stored_keys_and_nothing_else_of_its_spec() {
        let old = set(json!({
            "containers": [{"name": "c", "image": "old", "resourcesPolicy": {
                "targetContainersMode": "sum", "resourcesExpr": {"limits": {"cpu": "cpu*50%"}}}}],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "selector": {"matchLabels": {"app": "old"}},
        }));
        let mut revision = new_revision(&old, "n", 1, 0);
        let current = set(json!({
            "containers": [{"name": "c", "image": "new"}],
            "imagePullSecrets": [{"name": "p"}],
            "selector": {"matchLabels": {"app": "new"}},
            "revisionHistoryLimit": 3,
        }));
        let annotations = revision.metadata.annotations.get_or_insert_default();
        annotations.insert(HASH.to_owned(), "then".to_owned());
        let restored = restore(&current, &revision).unwrap();
        let spec = serde_json::to_value(&restored.spec).unwrap();
        assert_eq!(
            spec,
            json!({
                "containers": [{"name": "c", "image": "old", "resources": {}, "resourcesPolicy": {
                    "targetContainersMode": "sum", "resourcesExpr": {"limits": {"cpu": "cpu*50%"}}}}],
                "volumes": [{"name": "v", "emptyDir": {}}],
            })
        );
        let annotations = restored.metadata.annotations.unwrap();
        assert_eq!(annotations[HASH], "then");
        assert_eq!(
            annotations[HASH_WITHOUT_IMAGE],
            Hashes::of(&old.spec).without_image,
            "computed where the revision has none"
        );
        assert_eq!(
            restored.status.unwrap().latest_revision,
            revision.metadata.name.unwrap()
        );
        assert_eq!(
            Data::of(&restored.spec),
            Data::of(&old.spec),
            "and is of the same revision"
        );
    }

    #[test]
    fn what_holds_no_set_is_not_restored() {
        for data in [None, Some(json!(1)), Some(json!({"spec": {"containers": 5}}))] {
            let mut revision = new_revision(&image("old"), "n", 1, 0);
            revision.data = data.map(RawExtension);
            assert!(restore(&image("new"), &revision).is_err());
        }
    }

    fn revisions() -> Revisions {
        let mut revisions = Revisions::kept_in("outrigger");
        for (number, version) in [(1, "a"), (2, "b"), (4, "b"), (3, "b"), (5, "c")] {
            let mut set = image(&number.to_string());
            set.spec.custom_version = version.to_owned();
            let mut revision = new_revision(&set, "outrigger", number, 0);
            revision.metadata.name = Some(format!("s-{number}"));
            revisions.apply(revision);
        }
        revisions
    }

    #[test]
    fn a_revision_is_found_by_name_or_as_the_newest_of_its_version() {
        let revisions = revisions();
        let name = |wanted| {
            let found = revisions.find("s", wanted)?;
            Ok::<_, RevisionError>(found.metadata.name.clone().unwrap())
        };
        assert_eq!(name(Wanted::Name("s-3")).unwrap(), "s-3");
        assert_eq!(name(Wanted::CustomVersion("b")).unwrap(), "s-4");
        assert_eq!(
            name(Wanted::Name("gone")).unwrap_err().to_string(),
            "ControllerRevision outrigger/gone of SidecarSet s is not found: correct \
             spec.injectionStrategy.revision.revisionName, or remove it to inject the newest revision"
        );
        assert!(name(Wanted::CustomVersion("z")).is_err());
        assert!(revisions.find("other", Wanted::CustomVersion("b")).is_err());
    }

    #[test]
    fn the_name_wins_over_the_version() {
        let revision = |name: Option<&str>, version: Option<&str>| InjectRevision {
            revision_name: name.map(Into::into),
            custom_version: version.map(Into::into),
            policy: None,
        };
        assert_eq!(
            Wanted::by(Some(&revision(Some("n"), Some("v")))),
            Some(Wanted::Name("n"))
        );
        assert_eq!(
            Wanted::by(Some(&revision(None, Some("v")))),
            Some(Wanted::CustomVersion("v"))
        );
        assert_eq!(Wanted::by(Some(&revision(None, None))), None);
        assert_eq!(Wanted::by(None), None);
    }

    #[test]
    fn the_oldest_unused_revisions_are_pruned() {
        let revisions = revisions();
        let all = revisions.of_set("s");
        let pruned = |limit, used: &[&str]| to_prune(&all, limit, |name| used.contains(&name)).join(" ");
        assert_eq!(pruned(None, &[]), "");
        assert_eq!(pruned(Some(3), &[]), "s-1 s-2");
        assert_eq!(pruned(Some(3), &["s-1"]), "s-2 s-3");
        assert_eq!(
            pruned(Some(0), &["s-2"]),
            "s-1 s-3 s-4",
            "one at least stays, and that is the newest"
        );
        assert_eq!(pruned(Some(1), &["s-1", "s-2", "s-3", "s-4"]), "");
    }
}
