//! The watches that fill the feed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::{
    api::{
        k8s::{Lease, LimitRange},
        vpa::VerticalPodAutoscaler,
    },
    kube::watch::{Change, ControllerSink, WatchSet, WatchedController},
    pod::Pod,
};
use kube::{Api, Client, core::DeserializeGuard, runtime::watcher};

use super::Feed;
use crate::config::AdmissionStatus;

/// Of pods that have ended nobody wants to know.
const LIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// A feed that watches and the loop share; nobody holds it while waiting.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<Feed>>);

impl Shared {
    pub(crate) fn new(feed: Feed) -> Self {
        Self(Arc::new(Mutex::new(feed)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Feed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches everything that decisions depend on.
    pub(crate) fn watch(&self, watches: &mut WatchSet, client: &Client, admission: Option<&AdmissionStatus>) {
        let feed = self.clone();
        watches.start(
            "VPAs",
            watcher::Config::default(),
            move |change: Change<'_, DeserializeGuard<VerticalPodAutoscaler>>| feed.lock().vpa(change),
        );
        let feed = self.clone();
        watches.start(
            "LimitRanges",
            watcher::Config::default(),
            move |change: Change<'_, LimitRange>| feed.lock().limit_range(change),
        );
        watches.start_controllers(self);
        let feed = self.clone();
        watches.start(
            "pods",
            watcher::Config::default().fields(LIVE),
            move |change: Change<'_, Pod>| feed.lock().pod(change),
        );
        if let Some(AdmissionStatus { namespace, name, .. }) = admission {
            let feed = self.clone();
            let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
            let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
            watches.start_on("admission lease", api, only, move |change: Change<'_, Lease>| {
                feed.lock().lease(change);
            });
        }
    }
}

impl ControllerSink for Shared {
    fn tell<C: WatchedController>(&self, change: Change<'_, C>) {
        self.lock().controller(change);
    }
}
