//! Create, update and patch: system metadata, the split between an object and its status, generations, optimistic
//! concurrency, admission and validation, in the order of the real server.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    admission::Operation,
    api::{Api, Part, Write},
    crd, defaults,
    error::{ApiError, Cause, Result},
    events, limits,
    patch::Patch,
    pod,
    registry::{Form, Kind},
    store::{Expect, Key, Object},
    tree,
};

/// How often a write that gave no resource version is tried again after losing a race.
const TRIES: usize = 10;

impl Api {
    /// Creates an object; `namespace` is that of the request (empty for cluster-scoped kinds).
    ///
    /// # Errors
    /// As the API server: 400, 403, 404 for a missing namespace, 409, 422, or what a webhook says.
    pub async fn create(
        &self,
        kind: &Kind,
        namespace: &str,
        body: Value,
        write: &Write,
    ) -> Result<Arc<Object>> {
        let mut value = self.decode(kind, body, write)?;
        let metadata = tree::object(&mut value, &["metadata"]);
        match metadata.get("namespace").and_then(Value::as_str) {
            Some(other) if !other.is_empty() && other != namespace => {
                let why =
                    "the namespace of the provided object does not match the namespace sent on the request";
                return Err(ApiError::bad_request(why));
            }
            _ if kind.namespaced => metadata.insert("namespace".into(), namespace.into()),
            _ => metadata.remove("namespace"),
        };
        if metadata
            .get("resourceVersion")
            .is_some_and(|version| version != "")
        {
            return Err(ApiError::internal(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        for system in [
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
        ] {
            metadata.remove(system);
        }
        self.check_namespace(kind, namespace, tree::text(&value, "/metadata/name"))?;
        self.reset_status(kind, &mut value);
        defaults::apply(kind, &mut value);
        if kind.storage == "pods" {
            limits::apply(self, &mut value);
        }
        let mut value = self
            .mutate(Operation::Create, kind, Part::Main, None, value, write)
            .await?;
        self.name_and_stamp(kind, &mut value)?;
        defaults::apply(kind, &mut value);
        self.validate_new(kind, &mut value)?;
        self.review(Operation::Create, kind, Part::Main, None, &value, write)
            .await?;
        let key = Key::new(namespace, tree::text(&value, "/metadata/name"));
        if write.dry_run {
            let revision = self.store.revision();
            return Ok(Arc::new(Object::new(key.into(), value, revision, &kind.fields)));
        }
        let taken = || ApiError::already_exists(&kind.resource(), &key.name);
        self.commit(kind, &key, Expect::Absent, Some(value))
            .ok_or_else(taken)
    }

    /// Puts an object there as it is, without defaults, validation or admission: a fast way to fill a sandbox.
    ///
    /// # Errors
    /// 409 when it is there already.
    pub fn plant(&self, kind: &Kind, namespace: &str, mut value: Value) -> Result<Arc<Object>> {
        if kind.namespaced {
            tree::object(&mut value, &["metadata"]).insert("namespace".into(), namespace.into());
        }
        self.name_and_stamp(kind, &mut value)?;
        let key = Key::new(namespace, tree::text(&value, "/metadata/name"));
        let taken = || ApiError::already_exists(&kind.resource(), &key.name);
        self.commit(kind, &key, Expect::Absent, Some(value))
            .ok_or_else(taken)
    }

    /// Replaces an object, or one part of it.
    ///
    /// # Errors
    /// As the API server; 409 when `body` has an old resource version.
    pub async fn update(
        &self,
        kind: &Kind,
        key: &Key,
        part: Part,
        body: Value,
        write: &Write,
    ) -> Result<Arc<Object>> {
        let value = self.decode(kind, body, write)?;
        let versioned = !tree::text(&value, "/metadata/resourceVersion").is_empty();
        if !versioned && !kind.unconditional && self.get(kind, key).is_ok() {
            let why = "must be specified for an update";
            let cause = Cause::invalid("metadata.resourceVersion", &json!(0), why);
            return Err(ApiError::invalid(&kind.qualified(), &key.name, &[cause]));
        }
        let created_by_put = kind.storage == "leases.coordination.k8s.io" || kind.storage == "events";
        if created_by_put && self.get(kind, key).is_err() {
            let mut value = events::from_stored(kind, value);
            tree::object(&mut value, &["metadata"]).remove("resourceVersion");
            return self.create(kind, &key.namespace, value, write).await;
        }
        self.modify(kind, key, part, write, &|_| Ok(value.clone())).await
    }

    /// Patches an object, or one part of it; an apply also creates.
    ///
    /// # Errors
    /// As the API server.
    pub async fn patch(
        &self,
        kind: &Kind,
        key: &Key,
        part: Part,
        patch: &Patch,
        write: &Write,
    ) -> Result<Arc<Object>> {
        if let Patch::Apply(body) = patch {
            self.check_applied(kind, key, body)?;
            let last = self.remember_applied(kind, key, part, body, write);
            if part == Part::Main && self.get(kind, key).is_err() {
                let mut body = body.clone();
                tree::object(&mut body, &["metadata"]).insert("name".into(), (*key.name).into());
                match self.create(kind, &key.namespace, body, write).await {
                    // Somebody else was faster: there is something to apply to now.
                    Err(error) if error.reason == "AlreadyExists" => {}
                    outcome => return outcome,
                }
            }
            return self
                .modify(kind, key, part, write, &|old| {
                    let mut value = Self::encode(kind, old.clone());
                    patch.apply_config(kind, &mut value, last.as_ref());
                    self.decode(kind, value, write)
                })
                .await;
        }
        self.modify(kind, key, part, write, &|old| {
            let mut value = Self::encode(kind, old.clone());
            patch.apply(kind, &mut value)?;
            self.decode(kind, value, write)
        })
        .await
    }

    /// Changes an object by a function of what is there, as often as it takes.
    ///
    /// # Errors
    /// What `change` says, and as the API server.
    pub async fn modify(
        &self,
        kind: &Kind,
        key: &Key,
        part: Part,
        write: &Write,
        change: &(dyn Fn(&Value) -> Result<Value> + Send + Sync),
    ) -> Result<Arc<Object>> {
        let conflict = || ApiError::conflict(&kind.resource(), &key.name);
        for _ in 0..TRIES {
            let before = self.get(kind, key)?;
            let old = before.value();
            let mut new = change(&old)?;
            self.check_identity(kind, key, &before, &new)?;
            tree::object(&mut new, &["metadata"])
                .insert("resourceVersion".into(), before.revision.to_string().into());
            defaults::apply(kind, &mut new);
            let new = self
                .mutate(Operation::Update, kind, part, Some(&old), new, write)
                .await?;
            let new = self.prepare(kind, part, &old, new)?;
            self.review(Operation::Update, kind, part, Some(&old), &new, write)
                .await?;
            if new == old {
                return Ok(before);
            }
            if write.dry_run {
                return Ok(Arc::new(Object::new(
                    before.key.clone(),
                    new,
                    before.revision,
                    &kind.fields,
                )));
            }
            let expect = Expect::Revision(before.revision);
            if finished(kind, &new) {
                if let Some(gone) = self.commit(kind, key, expect, None) {
                    self.collect(kind, gone.clone());
                    return Ok(gone);
                }
            } else if let Some(object) = self.commit(kind, key, expect, Some(new)) {
                return Ok(object);
            }
        }
        Err(conflict())
    }

    fn check_identity(&self, kind: &Kind, key: &Key, before: &Object, new: &Value) -> Result<()> {
        let at = |field: &str| tree::text(new, &format!("/metadata/{field}"));
        for (field, what, expected) in [
            ("name", "name", &key.name),
            ("namespace", "namespace", &key.namespace),
        ] {
            if !at(field).is_empty() && at(field) != &**expected {
                return Err(ApiError::bad_request(format!(
                    "the {what} of the object ({}) does not match the {what} on the URL ({expected})",
                    at(field)
                )));
            }
        }
        let (uid, version) = (at("uid"), at("resourceVersion"));
        if !uid.is_empty() && uid != &*before.uid {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                before.uid
            );
            return Err(ApiError::conflict_because(&kind.resource(), &key.name, why));
        }
        if !version.is_empty() && version != before.revision.to_string() {
            return Err(ApiError::conflict(&kind.resource(), &key.name));
        }
        Ok(())
    }

    /// What may change through this part, from `old` to `new`, and nothing else.
    fn prepare(&self, kind: &Kind, part: Part, old: &Value, mut new: Value) -> Result<Value> {
        let name = tree::text(old, "/metadata/name");
        let invalid = |causes: &[Cause]| ApiError::invalid(&kind.qualified(), name, causes);
        match part {
            Part::Main if kind.has("status") => tree::carry(old, tree::object(&mut new, &[]), "status"),
            Part::Main => {}
            Part::Status => {
                let mut kept = old.clone();
                tree::carry(&new, tree::object(&mut kept, &[]), "status");
                if !kind.is_custom() {
                    for field in ["labels", "annotations", "finalizers"] {
                        tree::carry(&new["metadata"], tree::object(&mut kept, &["metadata"]), field);
                    }
                }
                new = kept;
            }
            Part::Resize => new = pod::resize(self, old, &new)?,
            Part::Ephemeral => {
                let mut kept = old.clone();
                tree::carry(
                    &new["spec"],
                    tree::object(&mut kept, &["spec"]),
                    "ephemeralContainers",
                );
                new = kept;
            }
        }
        let metadata = tree::object(&mut new, &["metadata"]);
        for system in [
            "name",
            "namespace",
            "generateName",
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
        ] {
            tree::carry(&old["metadata"], metadata, system);
        }
        let finalizers: Vec<_> = tree::items(old, "/metadata/finalizers").collect();
        let added = tree::items(&new, "/metadata/finalizers").any(|one| !finalizers.contains(&one));
        if added && old.pointer("/metadata/deletionTimestamp").is_some() {
            let why = "no new finalizers can be added if the object is being deleted";
            return Err(invalid(&[Cause::forbidden("metadata.finalizers", why)]));
        }
        if kind.storage == "pods" && part == Part::Main {
            pod::check_update(old, &new).map_err(|cause| invalid(&[cause]))?;
        }
        if kind.generation && !specifies_the_same(kind, old, &new) {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or_default() + 1;
            tree::object(&mut new, &["metadata"]).insert("generation".into(), generation.into());
        }
        self.validate(kind, &mut new)?;
        Ok(new)
    }

    fn validate_new(&self, kind: &Kind, value: &mut Value) -> Result<()> {
        if kind.storage == "pods" {
            limits::check(self, value)?;
        }
        self.validate(kind, value)
    }

    fn validate(&self, kind: &Kind, value: &mut Value) -> Result<()> {
        let mut causes = match &kind.form {
            Form::Custom(version) => version.schema.validate(value),
            Form::Builtin(_) | Form::Metrics => Vec::new(),
        };
        match kind.storage.as_str() {
            "pods" => causes.extend(pod::validate(&value["spec"], "spec")),
            "customresourcedefinitions.apiextensions.k8s.io" => {
                causes.extend(crd::validate(value));
                crd::establish(value, &self.now());
            }
            _ => causes.extend(defaults::validate(kind, value)),
        }
        if causes.is_empty() {
            return Ok(());
        }
        Err(ApiError::invalid(
            &kind.qualified(),
            tree::text(value, "/metadata/name"),
            &causes,
        ))
    }

    fn check_namespace(&self, kind: &Kind, namespace: &str, name: &str) -> Result<()> {
        if !kind.namespaced {
            return Ok(());
        }
        let missing = || ApiError::not_found("namespaces", namespace);
        let found = self
            .store
            .get("namespaces", &Key::new("", namespace))
            .ok_or_else(missing)?;
        if found.value().pointer("/metadata/deletionTimestamp").is_none() {
            return Ok(());
        }
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let cause = format!("namespace {namespace} is being terminated");
        Err(ApiError::forbidden(&kind.resource(), name, why).because("NamespaceTerminating", &cause))
    }

    fn reset_status(&self, kind: &Kind, value: &mut Value) {
        // A kubelet registers its node together with the status; all other kinds begin without one.
        if kind.has("status") && kind.storage != "nodes" {
            tree::object(value, &[]).remove("status");
        }
    }

    fn name_and_stamp(&self, kind: &Kind, value: &mut Value) -> Result<()> {
        let now = self.now();
        let prefix = tree::text(value, "/metadata/generateName").to_owned();
        let metadata = tree::object(value, &["metadata"]);
        let named = metadata.get("name").is_some_and(|name| name != "");
        if !named && prefix.is_empty() {
            let cause = Cause::required("metadata.name", "name or generateName is required");
            return Err(ApiError::invalid(&kind.qualified(), "", &[cause]));
        }
        if !named {
            metadata.insert("name".into(), format!("{prefix}{}", self.suffix()).into());
        }
        metadata.insert("uid".into(), self.uid().into());
        metadata.insert("creationTimestamp".into(), now.into());
        if kind.generation {
            metadata.insert("generation".into(), 1.into());
        }
        let name = tree::text(value, "/metadata/name");
        let valid = name.len() <= 253
            && name.split('.').all(|part| {
                let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
                part.starts_with(inside)
                    && part.ends_with(inside)
                    && part.chars().all(|c| inside(c) || c == '-')
            });
        if !valid && !kind.group.starts_with("rbac.") {
            let why = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
                       '.', and must start and end with an alphanumeric character";
            let cause = Cause::invalid("metadata.name", &name.into(), why);
            return Err(ApiError::invalid(&kind.qualified(), name, &[cause]));
        }
        Ok(())
    }
}

/// Whether an object that is being deleted has nothing left to wait for.
pub(super) fn finished(kind: &Kind, value: &Value) -> bool {
    let metadata = &value["metadata"];
    let waits = kind.storage == "pods" && metadata["deletionGracePeriodSeconds"].as_i64() != Some(0);
    let emptied = kind.storage != "namespaces" || tree::items(value, "/spec/finalizers").next().is_none();
    metadata.get("deletionTimestamp").is_some()
        && tree::items(value, "/metadata/finalizers").next().is_none()
        && emptied
        && !waits
}

/// Whether nothing differs whose changes the generation counts.
fn specifies_the_same<'a>(kind: &Kind, old: &'a Value, new: &'a Value) -> bool {
    let counts = |(field, _): &(&String, &Value)| match field.as_str() {
        "metadata" => false,
        "status" => kind.is_custom() && !kind.has("status"),
        _ => true,
    };
    let fields = |value: &'a Value| value.as_object().into_iter().flatten().filter(counts);
    fields(old).eq(fields(new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::{DeleteOptions, Options, Sandbox, install_crds};
    use proptest::prelude::*;

    /// Objects with the right names in the wrong places.
    fn nonsense() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-z0-9.*/-]{0,8}".prop_map(Value::from),
        ];
        let names = "metadata|spec|status|name|labels|finalizers|ownerReferences|uid|containers|initContainers|\
                     resources|requests|limits|cpu|template|selector|matchLabels|webhooks|rules|versions|names|\
                     replicas|type|image|targetRef|\\$patch|deletionTimestamp|terminationGracePeriodSeconds";
        leaf.prop_recursive(6, 64, 6, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map(names, inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]
        #[test]
        fn no_body_brings_the_server_down(body in nonsense(), patch in nonsense()) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let sandbox = Sandbox::start(Options::default()).await.unwrap();
                let api = sandbox.api();
                install_crds(api).await.unwrap();
                let write = Write::default();
                for kind in api.kinds().all().iter().filter(|kind| !matches!(kind.form, Form::Metrics)) {
                    let namespace = if kind.namespaced { "default" } else { "" };
                    // Whatever the answers are, there are answers.
                    drop(api.create(kind, namespace, body.clone(), &write).await);
                    let mut named = body.clone();
                    tree::object(&mut named, &["metadata"]).insert("name".into(), "x".into());
                    let key = Key::new(namespace, "x");
                    drop(api.create(kind, namespace, named, &write).await);
                    for patch in [Patch::Merge(patch.clone()), Patch::Strategic(patch.clone()), Patch::Apply(patch.clone())] {
                        for part in [Part::Main, Part::Status, Part::Resize] {
                            drop(api.patch(kind, &key, part, &patch, &write).await);
                        }
                    }
                    drop(api.delete(kind, &key, &DeleteOptions::default(), &write).await);
                }
            });
        }
    }
}
