//! The API server without HTTP: every verb as a function, with the same rules, for the router as well as for
//! controllers and a kubelet in the same process.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use common::clock::Clock;
use serde_json::Value;

use super::{
    admission::Webhooks,
    error::{ApiError, Result},
    events,
    faults::Faults,
    measured::{Measured, MetricsProvider},
    object::stamp,
    registry::{Form, Kind, Registry},
    store::{Change, Expect, Key, Object, Store},
    tree,
};

/// Called after a pod has come into being or has gone.
pub type PodHook = Arc<dyn Fn(Change, &Arc<Object>) + Send + Sync>;

/// What appliers have applied, by resource and object, and for each by part and manager.
pub(super) type Applied = HashMap<(String, Key), HashMap<(Part, String), Value>>;

/// The verbs over the store.
pub struct Api {
    pub(super) store: Arc<Store>,
    pub(super) kinds: Registry,
    pub(super) clock: Clock,
    pub(super) faults: Faults,
    pub(super) webhooks: Webhooks,
    pub(super) applied: Mutex<Applied>,
    pod_metrics: RwLock<Option<MetricsProvider>>,
    node_metrics: RwLock<Option<MetricsProvider>>,
    pod_hooks: RwLock<Vec<PodHook>>,
    random: AtomicU64,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// What becomes of a write with unknown fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Nothing is said about it.
    #[default]
    Ignore,
    /// The answer carries warnings.
    Warn,
    /// It is refused.
    Strict,
}

/// How a write is to be done.
#[derive(Clone, Debug, Default)]
pub struct Write {
    /// Do everything but the write.
    pub dry_run: bool,
    /// What becomes of fields that the kind does not know; they are dropped in any case.
    pub fields: FieldValidation,
    /// Who applies.
    pub manager: String,
    pub(super) warnings: Arc<Mutex<Vec<String>>>,
}

impl Write {
    /// Adds a warning to the answer.
    pub fn warn(&self, text: impl Into<String>) {
        self.warnings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(text.into());
    }

    /// The warnings so far.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Which part of an object a write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Everything but the status, where the kind keeps that apart.
    Main,
    /// The status alone.
    Status,
    /// The resources of a pod's containers.
    Resize,
    /// The ephemeral containers of a pod.
    Ephemeral,
}

impl Part {
    /// As in the path; empty for the object itself.
    #[must_use]
    pub fn subresource(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Resize => "resize",
            Self::Ephemeral => "ephemeralcontainers",
        }
    }
}

impl Api {
    pub(super) fn new(
        store: Arc<Store>,
        clock: Clock,
        faults: Faults,
        webhooks: Webhooks,
        seed: u64,
    ) -> Self {
        let kinds = Registry::builtin();
        for kind in kinds.all() {
            store.register(&kind.storage, &kind.fields);
        }
        Self {
            store,
            kinds,
            clock,
            faults,
            webhooks,
            applied: Mutex::default(),
            pod_metrics: RwLock::default(),
            node_metrics: RwLock::default(),
            pod_hooks: RwLock::default(),
            random: AtomicU64::new(seed),
        }
    }

    /// The objects and their history.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The kind that the store keeps under a name, such as `pods` or `deployments.apps`.
    ///
    /// # Errors
    /// 404 when there is none.
    pub fn kind(&self, storage: &str) -> Result<Arc<Kind>> {
        let none = || ApiError::new(404, "NotFound", format!("no resource {storage} is served"));
        self.kinds.stored(storage).ok_or_else(none)
    }

    /// All kinds served.
    #[must_use]
    pub fn kinds(&self) -> &Registry {
        &self.kinds
    }

    /// Serves these pod metrics from now on.
    pub fn serve_pod_metrics(&self, provider: MetricsProvider) {
        *self.pod_metrics.write().unwrap_or_else(PoisonError::into_inner) = Some(provider);
    }

    /// Serves these node metrics from now on.
    pub fn serve_node_metrics(&self, provider: MetricsProvider) {
        *self.node_metrics.write().unwrap_or_else(PoisonError::into_inner) = Some(provider);
    }

    /// Calls `hook` after every creation and removal of a pod from now on.
    pub fn on_pod(&self, hook: PodHook) {
        self.pod_hooks
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .push(hook);
    }

    pub(super) fn metrics(&self, kind: &Kind) -> Option<Vec<Measured>> {
        let provider = if kind.namespaced {
            &self.pod_metrics
        } else {
            &self.node_metrics
        };
        let provider = provider.read().unwrap_or_else(PoisonError::into_inner).clone();
        provider.map(|provider| provider())
    }

    /// One object.
    ///
    /// # Errors
    /// 404.
    pub fn get(&self, kind: &Kind, key: &Key) -> Result<Arc<Object>> {
        let found = self.store.get(&kind.storage, key);
        found.ok_or_else(|| ApiError::not_found(&kind.resource(), &key.name))
    }

    /// The time as the API writes it.
    #[must_use]
    pub fn now(&self) -> String {
        stamp(self.clock.now())
    }

    /// Brings a request's object into the form in which it is kept, without `apiVersion` and `kind`.
    pub(super) fn decode(&self, kind: &Kind, mut value: Value, write: &Write) -> Result<Value> {
        let api_version = kind.api_version();
        for (field, what, expected) in [
            ("apiVersion", "API version", &api_version),
            ("kind", "kind", &kind.kind),
        ] {
            let found = tree::text(&value, &format!("/{field}"));
            if !found.is_empty() && found != expected {
                return Err(ApiError::bad_request(format!(
                    "the {what} in the data ({found}) does not match the expected {what} ({expected})"
                )));
            }
        }
        let malformed = |why: String| {
            let (name, version) = (&kind.kind, &kind.version);
            ApiError::bad_request(format!(
                "{name} in version \"{version}\" cannot be handled as a {name}: {why}"
            ))
        };
        if !value.is_object() || !value.get("metadata").is_none_or(Value::is_object) {
            return Err(malformed("an object with metadata is expected".into()));
        }
        let mut unknown = Vec::new();
        match &kind.form {
            Form::Builtin(form) => {
                let formed = form(value.clone()).map_err(|error| malformed(error.to_string()))?;
                dropped(&value, &formed, "", &mut unknown);
                value = formed;
            }
            Form::Custom(version) => {
                // The metadata of custom resources is typed too: text in labels and annotations, and so on.
                let metadata = value
                    .get("metadata")
                    .cloned()
                    .unwrap_or_else(|| serde_json::json!({}));
                let metadata = metadata_form(metadata).map_err(|error| malformed(error.to_string()))?;
                unknown = version.schema.prune(&mut value);
                version.schema.default(&mut value);
                value["metadata"] = metadata;
            }
            Form::Metrics => return Err(ApiError::method_not_allowed()),
        }
        let unknown: Vec<_> = unknown
            .iter()
            .map(|field| format!("unknown field \"{field}\""))
            .collect();
        match write.fields {
            FieldValidation::Strict if !unknown.is_empty() => {
                let why = format!("strict decoding error: {}", unknown.join(", "));
                return Err(ApiError::bad_request(why));
            }
            FieldValidation::Warn => unknown.into_iter().for_each(|field| write.warn(field)),
            FieldValidation::Strict | FieldValidation::Ignore => {}
        }
        let map = tree::object(&mut value, &[]);
        map.remove("apiVersion");
        map.remove("kind");
        tree::object(&mut value, &["metadata"]).remove("managedFields");
        Ok(events::to_stored(kind, value))
    }

    /// A stored value as a client of this kind's version sees and sends it.
    pub(super) fn encode(kind: &Kind, value: Value) -> Value {
        let mut value = events::from_stored(kind, value);
        let map = tree::object(&mut value, &[]);
        map.insert("apiVersion".into(), kind.api_version().into());
        map.insert("kind".into(), kind.kind.clone().into());
        value
    }

    /// Writes to the store and tells the hooks.
    pub(super) fn commit(
        &self,
        kind: &Kind,
        key: &Key,
        expect: Expect,
        value: Option<Value>,
    ) -> Option<Arc<Object>> {
        let change = match (&value, expect) {
            (None, _) => Change::Deleted,
            (Some(_), Expect::Absent) => Change::Added,
            (Some(_), Expect::Revision(_)) => Change::Modified,
        };
        let object = self.store.commit(&kind.storage, key, expect, value).ok()?;
        if change == Change::Deleted {
            let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
            applied.remove(&(kind.storage.clone(), key.clone()));
        }
        if kind.storage == "pods" && change != Change::Modified {
            let hooks = self
                .pod_hooks
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            hooks.iter().for_each(|hook| hook(change, &object));
        }
        if kind.storage == "customresourcedefinitions.apiextensions.k8s.io" {
            self.serve_definition(&object, change);
        }
        Some(object)
    }

    fn serve_definition(&self, object: &Object, change: Change) {
        let name = &*object.key.name;
        if change == Change::Deleted {
            self.kinds.replace(name, Vec::new());
            self.store.unregister(name);
            return;
        }
        let kinds = super::crd::kinds(&object.value());
        for kind in &kinds {
            if let Form::Custom(version) = &kind.form {
                for rule in &version.schema.unchecked {
                    tracing::warn!(
                        definition = name,
                        rule,
                        "this CEL rule is not evaluated in the sandbox"
                    );
                }
            }
            self.store.register(&kind.storage, &kind.fields);
        }
        self.kinds.replace(name, kinds);
    }

    /// A uid, the same ones in the same order for the same seed.
    pub(super) fn uid(&self) -> String {
        let (a, b) = (self.next_random(), self.next_random());
        let (high, mid, low) = (a >> 32, a >> 16 & 0xffff, a & 0x0fff);
        let (variant, node) = (b >> 48 & 0x3fff | 0x8000, b & 0xffff_ffff_ffff);
        format!("{high:08x}-{mid:04x}-4{low:03x}-{variant:04x}-{node:012x}")
    }

    /// The tail of a generated name.
    pub(super) fn suffix(&self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut random = self.next_random();
        let letter = |_| {
            let at = usize::try_from(random % 27).unwrap_or_default();
            random /= 27;
            LETTERS.get(at).map_or('x', |letter| char::from(*letter))
        };
        (0..5).map(letter).collect()
    }

    fn next_random(&self) -> u64 {
        mix(self.random.fetch_add(1, Ordering::Relaxed))
    }
}

/// A well spread number for each number (the finaliser of splitmix64).
pub(crate) fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn metadata_form(metadata: Value) -> serde_json::Result<Value> {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    serde_json::to_value(serde_json::from_value::<ObjectMeta>(metadata)?)
}

/// The paths of what is in `given` and no longer in `formed`.
fn dropped(given: &Value, formed: &Value, path: &str, paths: &mut Vec<String>) {
    match (given, formed) {
        (Value::Object(given), Value::Object(formed)) => {
            for (name, value) in given.iter().filter(|(_, value)| !value.is_null()) {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                match formed.get(name) {
                    Some(formed) => dropped(value, formed, &path, paths),
                    None => paths.push(path),
                }
            }
        }
        (Value::Array(given), Value::Array(formed)) => {
            for (i, (given, formed)) in given.iter().zip(formed).enumerate() {
                dropped(given, formed, &format!("{path}[{i}]"), paths);
            }
        }
        _ => {}
    }
}
