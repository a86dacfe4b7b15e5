//! The objects, each kept as its JSON bytes with a small index, under one revision counter, and per resource a bounded
//! history for watches and consistent pages. It knows no Kubernetes rule; `verbs` does.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    fmt,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use serde_json::Value;
use tokio::sync::watch;

pub use super::object::{Key, Object};

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Added,
    /// It changed.
    Modified,
    /// It is gone; the event carries its last state.
    Deleted,
}

/// One entry of a resource's history.
#[derive(Clone, Debug)]
pub struct Event {
    /// What happened.
    pub change: Change,
    /// The object after it (for a deletion: as it was, with the revision of the deletion).
    pub object: Arc<Object>,
    /// The object before it.
    pub before: Option<Arc<Object>>,
}

/// The history asked for is no longer kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the history before revision {oldest} is gone; list again")]
pub struct Expired {
    /// The oldest revision from which a watch can start.
    pub oldest: u64,
}

/// What the writer believes to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing of this name.
    Absent,
    /// Exactly this version.
    Revision(u64),
}

/// The writer was wrong; what is there instead.
#[derive(Debug, thiserror::Error)]
#[error("the object is not what the writer expected; read it again")]
pub struct Stale(pub Option<Arc<Object>>);

/// A part of a list.
#[derive(Debug, Default)]
pub struct Page {
    /// The revision at which this is the truth.
    pub revision: u64,
    /// The objects, ordered by key.
    pub objects: Vec<Arc<Object>>,
    /// How many that match no filter at all come after the last one; none means that the list is complete.
    pub remaining: usize,
}

/// What to list.
#[derive(Clone, Debug, Default)]
pub struct Range {
    /// One namespace, or all.
    pub namespace: Option<String>,
    /// The revision to list at; the latest when not given.
    pub at: Option<u64>,
    /// Continue behind this key.
    pub after: Option<Key>,
    /// At most so many.
    pub limit: Option<usize>,
}

/// All objects of the sandbox.
pub struct Store {
    inner: RwLock<Inner>,
    history: usize,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("revision", &self.revision())
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Inner {
    revision: u64,
    tables: HashMap<String, Table>,
    /// By the uid of the owner.
    dependents: HashMap<Box<str>, BTreeSet<Place>>,
}

/// A resource and a key in it.
pub type Place = (Arc<str>, Arc<Key>);

struct Table {
    name: Arc<str>,
    fields: Vec<String>,
    objects: BTreeMap<Arc<Key>, Arc<Object>>,
    history: VecDeque<Event>,
    /// Watches may start here or later.
    oldest: u64,
    changed: watch::Sender<u64>,
}

impl Store {
    /// An empty store that keeps `history` events per resource.
    #[must_use]
    pub fn new(history: usize) -> Self {
        Self {
            inner: RwLock::new(Inner {
                revision: 1,
                ..Inner::default()
            }),
            history,
        }
    }

    /// Makes room for a resource; `fields` are the dotted paths that field selectors may use.
    pub fn register(&self, resource: &str, fields: &[String]) {
        let mut inner = self.write();
        let oldest = inner.revision;
        inner.tables.entry(resource.to_owned()).or_insert_with(|| Table {
            name: resource.into(),
            fields: fields.to_vec(),
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            oldest,
            changed: watch::Sender::new(oldest),
        });
    }

    /// Forgets a resource with all its objects; its watches end.
    pub fn unregister(&self, resource: &str) {
        self.write().tables.remove(resource);
    }

    /// The latest revision.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.read().revision
    }

    /// One object.
    #[must_use]
    pub fn get(&self, resource: &str, key: &Key) -> Option<Arc<Object>> {
        self.read().tables.get(resource)?.objects.get(key).cloned()
    }

    /// How many objects a resource has.
    #[must_use]
    pub fn count(&self, resource: &str) -> usize {
        self.read()
            .tables
            .get(resource)
            .map_or(0, |table| table.objects.len())
    }

    /// All objects of a resource, in one namespace or in all.
    #[must_use]
    pub fn all(&self, resource: &str, namespace: Option<&str>) -> Vec<Arc<Object>> {
        let range = Range {
            namespace: namespace.map(str::to_owned),
            ..Range::default()
        };
        self.list(resource, &range, &|_| true)
            .map(|page| page.objects)
            .unwrap_or_default()
    }

    /// The objects of a range that pass the filter, as they were at one revision.
    ///
    /// # Errors
    /// When the history since that revision is gone.
    pub fn list(
        &self,
        resource: &str,
        range: &Range,
        keep: &dyn Fn(&Object) -> bool,
    ) -> std::result::Result<Page, Expired> {
        let inner = self.read();
        let revision = range.at.unwrap_or(inner.revision).min(inner.revision);
        let Some(table) = inner.tables.get(resource) else {
            return Ok(Page {
                revision,
                ..Page::default()
            });
        };
        let mut page = Page {
            revision,
            ..Page::default()
        };
        let limit = range.limit.unwrap_or(usize::MAX);
        let undone = table.changed_since(revision)?;
        let in_range = |key: &Key| {
            range.namespace.as_deref().is_none_or(|ns| ns == &*key.namespace)
                && range.after.as_ref().is_none_or(|after| key > after)
        };
        let mut take = |object: &Arc<Object>| {
            if !keep(object) {
                return;
            }
            if page.objects.len() < limit {
                page.objects.push(object.clone());
            } else {
                page.remaining += 1;
            }
        };
        let from = match (&range.namespace, &range.after) {
            (_, Some(after)) => after.clone(),
            (Some(namespace), None) => Key::new(namespace, ""),
            (None, None) => Key::new("", ""),
        };
        let mut undone = undone.into_iter().filter(|(key, _)| in_range(key)).peekable();
        for (key, object) in table
            .objects
            .range(from..)
            .take_while(|(key, _)| range.namespace.as_deref().is_none_or(|ns| ns == &*key.namespace))
        {
            if !in_range(key) {
                continue;
            }
            while let Some((_, before)) = undone.next_if(|(other, _)| other < key) {
                before.iter().for_each(&mut take);
            }
            match undone.next_if(|(other, _)| other == key) {
                Some((_, before)) => before.iter().for_each(&mut take),
                None => take(object),
            }
        }
        for (_, before) in undone {
            before.iter().for_each(&mut take);
        }
        Ok(page)
    }

    /// Writes one object, or removes it when there is no `value`.
    ///
    /// # Errors
    /// When something else is there than the writer expects; also when the resource is unknown.
    pub fn commit(
        &self,
        resource: &str,
        key: &Key,
        expect: Expect,
        value: Option<Value>,
    ) -> std::result::Result<Arc<Object>, Stale> {
        let mut inner = self.write();
        let Inner {
            revision,
            tables,
            dependents,
        } = &mut *inner;
        let table = tables.get_mut(resource).ok_or(Stale(None))?;
        let before = table.objects.get(key).cloned();
        let expected = match (&before, expect) {
            (None, Expect::Absent) => true,
            (Some(object), Expect::Revision(at)) => object.revision == at,
            _ => false,
        };
        if !expected {
            return Err(Stale(before));
        }
        *revision += 1;
        let key = before
            .as_ref()
            .map_or_else(|| Arc::new(key.clone()), |object| object.key.clone());
        for owner in before.iter().flat_map(|object| object.owners.iter()) {
            if let Some(set) = dependents.get_mut(owner) {
                set.remove(&(table.name.clone(), key.clone()));
                if set.is_empty() {
                    dependents.remove(owner);
                }
            }
        }
        let (change, object) = match (value, &before) {
            (None, Some(last)) => {
                table.objects.remove(&key);
                let object = Object::new(key, last.value(), *revision, &table.fields);
                (Change::Deleted, Arc::new(object))
            }
            (None, None) => return Err(Stale(None)),
            (Some(value), last) => {
                let object = Arc::new(Object::new(key.clone(), value, *revision, &table.fields));
                for owner in &object.owners {
                    let entry = (table.name.clone(), key.clone());
                    dependents.entry(owner.clone()).or_default().insert(entry);
                }
                table.objects.insert(key, object.clone());
                let change = if last.is_some() {
                    Change::Modified
                } else {
                    Change::Added
                };
                (change, object)
            }
        };
        table.push(
            Event {
                change,
                object: object.clone(),
                before,
            },
            self.history,
        );
        Ok(object)
    }

    /// Everything whose owner has this uid, as (resource, key).
    #[must_use]
    pub fn dependents(&self, uid: &str) -> Vec<Place> {
        self.read()
            .dependents
            .get(uid)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// Everything in a namespace, as (resource, key).
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Vec<Place> {
        let start = Key::new(namespace, "");
        let inner = self.read();
        let inside = |table: &'_ Table| -> Vec<_> {
            let keys = table.objects.range(start.clone()..).map(|(key, _)| key);
            let keys = keys.take_while(|key| &*key.namespace == namespace);
            keys.map(|key| (table.name.clone(), key.clone())).collect()
        };
        inner.tables.values().flat_map(inside).collect()
    }

    /// What happened to a resource after `revision`, and the latest revision of all.
    ///
    /// # Errors
    /// When that history is gone.
    pub fn events_since(
        &self,
        resource: &str,
        revision: u64,
    ) -> std::result::Result<(Vec<Event>, u64), Expired> {
        let inner = self.read();
        let events = match inner.tables.get(resource) {
            Some(table) => table.tail(revision)?.cloned().collect(),
            None => Vec::new(),
        };
        Ok((events, inner.revision))
    }

    /// Follows a resource from the changes after `revision` on.
    #[must_use]
    pub fn watch(self: &Arc<Self>, resource: &str, revision: u64) -> Watch {
        let changed = self
            .read()
            .tables
            .get(resource)
            .map(|table| table.changed.subscribe());
        Watch {
            store: self.clone(),
            resource: resource.into(),
            revision,
            changed,
        }
    }

    /// Drops the history of a resource, or of all: watches that are not up to date expire.
    pub fn compact(&self, resource: Option<&str>) {
        let mut inner = self.write();
        let revision = inner.revision;
        for (name, table) in &mut inner.tables {
            if resource.is_none_or(|wanted| wanted == name) {
                table.history.clear();
                table.oldest = revision;
            }
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn push(&mut self, event: Event, keep: usize) {
        let revision = event.object.revision;
        self.history.push_back(event);
        while self.history.len() > keep {
            if let Some(gone) = self.history.pop_front() {
                self.oldest = gone.object.revision;
            }
        }
        self.changed.send_replace(revision);
    }

    fn tail(&self, revision: u64) -> std::result::Result<impl Iterator<Item = &Event>, Expired> {
        if revision < self.oldest {
            return Err(Expired { oldest: self.oldest });
        }
        let from = self
            .history
            .partition_point(|event| event.object.revision <= revision);
        Ok(self.history.range(from..))
    }

    /// For each object changed after `revision`, what it was then.
    fn changed_since(
        &self,
        revision: u64,
    ) -> std::result::Result<BTreeMap<Arc<Key>, Option<Arc<Object>>>, Expired> {
        let mut then = BTreeMap::new();
        for event in self.tail(revision)? {
            then.entry(event.object.key.clone())
                .or_insert_with(|| event.before.clone());
        }
        Ok(then)
    }
}

/// Follows one resource; see [`Store::watch`].
#[derive(Debug)]
pub struct Watch {
    store: Arc<Store>,
    resource: String,
    revision: u64,
    changed: Option<watch::Receiver<u64>>,
}

impl Watch {
    /// Waits for changes and gives all there are, in order; none at all when the resource is gone. Cancel-safe.
    ///
    /// # Errors
    /// When this watch has fallen behind the history that is kept.
    pub async fn next(&mut self) -> std::result::Result<Vec<Event>, Expired> {
        loop {
            if let Some(changed) = &mut self.changed {
                changed.mark_unchanged();
            }
            let (events, revision) = self.store.events_since(&self.resource, self.revision)?;
            self.revision = revision;
            if !events.is_empty() {
                return Ok(events);
            }
            let Some(changed) = &mut self.changed else {
                return Ok(Vec::new());
            };
            if changed.changed().await.is_err() {
                return Ok(Vec::new());
            }
        }
    }

    /// Up to which revision of the store everything has been given out.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Counts what has happened so far as seen; gives the revision up to which that is.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn catch_up(&mut self) -> std::result::Result<(Vec<Event>, u64), Expired> {
        let (events, revision) = self.store.events_since(&self.resource, self.revision)?;
        self.revision = revision;
        Ok((events, revision))
    }
}
