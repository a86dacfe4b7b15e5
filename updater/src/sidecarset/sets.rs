//! The formulas of SidecarSets as the updater knows them: watched as soon as there are any, in modes `size` and `inject`.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use common::{
    daemon::{Handles, Namespaces},
    kube::{
        sidecarsets::{self, GuardedSet},
        watch::{Change, WatchMetrics, WatchSet},
    },
    sidecarset::FormulaIndex,
};
use kube::{Api, runtime::watcher};

/// The formulas that are known; nobody holds them while waiting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known(Arc<Mutex<FormulaIndex>>);

impl Known {
    /// As they are now.
    pub(crate) fn get(&self) -> FormulaIndex {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: &Change<'_, GuardedSet>) {
        let mut index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sidecarsets::set_changed(&mut index, change);
    }

    /// Keeps them in step with the cluster until shutdown is requested. A pod remembers the formula of its revision itself,
    /// so revisions are not looked at.
    pub(crate) async fn follow(self, handles: Handles, metrics: WatchMetrics) -> Result<()> {
        let shutdown = handles.shutdown.clone();
        tokio::select! {
            () = sidecarsets::wait(&handles, &metrics, None, || {}) => {}
            () = shutdown.requested() => return Ok(()),
        }
        let sets: Api<GuardedSet> = Api::all(handles.client.clone());
        let mut watches = WatchSet::new(handles, Namespaces::All, metrics);
        watches.start_on(
            "formulas of SidecarSets",
            sets,
            watcher::Config::default(),
            move |change| self.change(&change),
        );
        tokio::select! {
            () = shutdown.requested() => Ok(()),
            ended = watches.ended() => ended,
        }
    }
}
