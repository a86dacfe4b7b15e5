//! Watches that drive an index: objects come one by one as they are listed or change, and nothing is kept here. Lists
//! stream where the server can do that, and come in pages where it cannot (`spec/stack.md` 3.2).

mod kinds;
mod set;

pub use set::{ControllerSink, WatchSet};

pub use kinds::{ControllerObject, SlimCronJob, SlimReplicationController, SlimSelecting, WatchedController};

use std::{collections::HashSet, fmt::Debug, pin::pin};

use futures::{Stream, StreamExt as _};
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt as _, watcher},
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::daemon::{Part, Shutdown, metrics::sample};

/// What an index is told.
#[derive(Debug)]
pub enum Change<'s, K> {
    /// An object is there, or has changed.
    Applied(K),
    /// An object is gone.
    Deleted(K),
    /// Everything was listed once more: what is not among these is gone, though nobody said so.
    Relisted(&'s Seen),
}

/// The objects of a complete list.
#[derive(Debug, Default)]
pub struct Seen(HashSet<(Box<str>, Box<str>)>);

impl Seen {
    /// Whether an object was in the list.
    #[must_use]
    pub fn contains(&self, namespace: &str, name: &str) -> bool {
        // A set of pairs of boxes cannot be asked with borrowed pairs; this happens once for each object of a relist.
        self.0.contains(&(namespace.into(), name.into()))
    }

    /// Whether the list was empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object of that name was in the list, in whichever namespace: for lists of one.
    #[must_use]
    pub fn contains_name(&self, name: &str) -> bool {
        self.0.iter().any(|(_, known)| **known == *name)
    }

    fn insert(&mut self, object: &impl Resource) {
        let meta = object.meta();
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let name = meta.name.as_deref().unwrap_or_default();
        self.0.insert((namespace.into(), name.into()));
    }
}

/// Tells whether a watch has listed everything once.
#[derive(Clone, Debug)]
pub struct Synced(watch::Receiver<bool>);

impl Synced {
    /// Waits until it has. Never, if the watch ends first.
    pub async fn wait(&mut self) {
        if self.0.wait_for(|synced| *synced).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// `outrigger_watch_errors_total`, `outrigger_watch_relists_total` and `outrigger_watch_forbidden`, by watch.
#[derive(Clone, Debug)]
pub struct WatchMetrics {
    errors: Family<WatchLabel, Counter>,
    relists: Family<WatchLabel, Counter>,
    forbidden: Family<WatchLabel, Gauge>,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct WatchLabel {
    watch: &'static str,
}

impl WatchMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let (errors, relists) = (Family::default(), Family::default());
        registry.register(
            "outrigger_watch_errors",
            "Failed lists and watches",
            Family::clone(&errors),
        );
        registry.register(
            "outrigger_watch_relists",
            "Complete lists, the first included",
            Family::clone(&relists),
        );
        let forbidden = Family::default();
        registry.register(
            "outrigger_watch_forbidden",
            "1 while there is no right to list and watch these, so that they play no part",
            Family::clone(&forbidden),
        );
        Self {
            errors,
            relists,
            forbidden,
        }
    }

    /// Notes whether there is a right to watch; says whether that is news.
    pub fn note_forbidden(&self, watch: &'static str, forbidden: bool) -> bool {
        let gauge = self.forbidden.get_or_create(&WatchLabel { watch });
        gauge.set(forbidden.into()) != i64::from(forbidden)
    }

    /// One of each, for the documentation.
    pub(super) fn sample(&self) {
        sample(&self.errors);
        sample(&self.relists);
    }
}

/// A watch to be run.
pub struct Watch {
    name: &'static str,
    part: Part,
    metrics: WatchMetrics,
    synced: watch::Sender<bool>,
    restart: watch::Receiver<u64>,
    lists: Lists,
}

/// Makes a watch list everything again.
#[derive(Clone, Debug)]
pub struct Relist(watch::Sender<u64>);

impl Relist {
    /// Does so.
    pub fn request(&self) {
        self.0.send_modify(|count| *count = count.wrapping_add(1));
    }
}

impl Watch {
    /// A watch of that name; ready, for its part, when it has listed everything once.
    #[must_use]
    pub fn new(name: &'static str, part: Part, metrics: &WatchMetrics) -> (Self, Synced, Relist) {
        let (synced, receiver) = watch::channel(false);
        let (relist, restart) = watch::channel(0);
        let watch = Self {
            name,
            part,
            metrics: metrics.clone(),
            synced,
            restart,
            lists: Lists::default(),
        };
        (watch, Synced(receiver), Relist(relist))
    }

    /// The index knows things already that are gone if the first list does not have them.
    #[must_use]
    pub fn into_filled_index(mut self) -> Self {
        self.lists.begun = true;
        self
    }

    /// Watches until shutdown is requested and tells an index what happens. Errors are logged, counted and retried
    /// with growing pauses; what was known stays known meanwhile.
    pub async fn run<K>(
        mut self,
        api: Api<K>,
        config: watcher::Config,
        shutdown: Shutdown,
        mut index: impl FnMut(Change<'_, K>),
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let mut lists = std::mem::take(&mut self.lists);
        let mut streaming = true;
        let mut restart = self.restart.clone();
        let mut relist = async || {
            if restart.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        loop {
            let config = if streaming {
                config.clone().streaming_lists()
            } else {
                config.clone()
            };
            let events = watcher(api.clone(), config).default_backoff();
            let ended = tokio::select! {
                ended = self.follow(events, &mut lists, streaming, &mut index) => ended,
                () = relist() => Ended::Relist,
                () = shutdown.requested() => return,
            };
            match ended {
                Ended::NoStreaming => {
                    tracing::debug!(
                        watch = self.name,
                        "the server does not stream lists; asking for pages"
                    );
                    streaming = false;
                }
                Ended::Relist => {}
            }
        }
    }

    async fn follow<K: Resource>(
        &self,
        events: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
        lists: &mut Lists,
        streaming: bool,
        index: &mut impl FnMut(Change<'_, K>),
    ) -> Ended {
        let label = WatchLabel { watch: self.name };
        let mut events = pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    if lists.tell(event, index) {
                        self.metrics.relists.get_or_create(&label).inc();
                        if self.metrics.note_forbidden(self.name, false) {
                            tracing::info!(watch = self.name, "there is a right to watch now");
                        }
                        self.synced.send_replace(true);
                        self.part.ready();
                    }
                }
                Err(error) if streaming && refuses_streaming(&error) => return Ended::NoStreaming,
                // Said once: it is tried again now and then, and whoever gives the right sees it taken.
                Err(error) if is_forbidden(&error) => {
                    self.metrics.errors.get_or_create(&label).inc();
                    if self.metrics.note_forbidden(self.name, true) {
                        tracing::warn!(watch = self.name, %error, "there is no right to watch; tried again from time to time");
                    }
                }
                Err(error) => {
                    self.metrics.errors.get_or_create(&label).inc();
                    tracing::warn!(watch = self.name, %error, "watch failed, and is tried again");
                }
            }
        }
        Ended::Relist
    }
}

enum Ended {
    NoStreaming,
    Relist,
}

/// Whether a server answers so that does not know streaming lists, or has them switched off.
fn refuses_streaming(error: &watcher::Error) -> bool {
    matches!(refusal(error), Some(400 | 422))
}

fn is_forbidden(error: &watcher::Error) -> bool {
    refusal(error) == Some(403)
}

/// The status by which a list or watch was refused before it began.
fn refusal(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::InitialListFailed(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

/// Where the lists of a watch stand.
#[derive(Debug, Default)]
struct Lists {
    /// Whether a list has begun before, so that the index may know things that are gone.
    begun: bool,
    /// What the current list has had so far, where that matters.
    seen: Option<Seen>,
}

impl Lists {
    /// Tells an index of an event; says whether a list is complete with it.
    fn tell<K: Resource>(&mut self, event: watcher::Event<K>, index: &mut impl FnMut(Change<'_, K>)) -> bool {
        match event {
            watcher::Event::Init => {
                self.seen = self.begun.then(Seen::default);
                self.begun = true;
            }
            watcher::Event::InitApply(object) => {
                if let Some(seen) = &mut self.seen {
                    seen.insert(&object);
                }
                index(Change::Applied(object));
            }
            watcher::Event::InitDone => {
                if let Some(seen) = self.seen.take() {
                    index(Change::Relisted(&seen));
                }
                return true;
            }
            watcher::Event::Apply(object) => index(Change::Applied(object)),
            watcher::Event::Delete(object) => index(Change::Deleted(object)),
        }
        false
    }
}

#[cfg(test)]
mod tests;
