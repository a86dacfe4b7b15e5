//! The watches that fill the feed.

use common::{
    api::{k8s::Event, vpa::VerticalPodAutoscaler},
    clock::Clock,
    kube::watch::{Change, ControllerSink, Relist, WatchSet, WatchedController},
    pod::Pod,
};
use kube::{api::ListParams, runtime::watcher};

use super::Shared;

/// How many objects a page of a list has.
const PAGE: u32 = 500;

/// Parameters of one page of a list.
pub(crate) fn page(next: Option<&str>) -> ListParams {
    let first = ListParams::default().limit(PAGE);
    match next {
        Some(token) => first.continue_token(token),
        None => first,
    }
}

impl ControllerSink for Shared {
    fn tell<C: WatchedController>(&self, change: Change<'_, C>) {
        self.lock().controller(change);
    }
}

impl Shared {
    /// Watches VPAs and the well-known controllers.
    pub(crate) fn watch_targets(&self, watches: &mut WatchSet) {
        let feed = self.clone();
        watches.start(
            "VPAs",
            watcher::Config::default(),
            move |change: Change<'_, VerticalPodAutoscaler>| feed.lock().vpa(change),
        );
        watches.start_controllers(self);
    }

    /// Watches pods; the handle makes the watch list them all again.
    pub(crate) fn watch_pods(&self, watches: &mut WatchSet, clock: Clock) -> Relist {
        let feed = self.clone();
        let config = watcher::Config::default().fields("status.phase!=Pending");
        // History from Prometheus may have brought pods that are gone.
        watches.start_filled("pods", config, move |change: Change<'_, Pod>| {
            feed.lock().pod(change, clock.now());
        })
    }

    /// Watches the events that tell of evictions.
    pub(crate) fn watch_evictions(&self, watches: &mut WatchSet, clock: Clock) {
        let feed = self.clone();
        let config = watcher::Config::default().fields("reason=Evicted");
        watches.start("evictions", config, move |change: Change<'_, Event>| {
            feed.lock().eviction(change, clock.now());
        });
    }
}
