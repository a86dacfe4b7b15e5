//! Follows the store.

use std::sync::Arc;

use crate::sandbox::store::{Change, Event, Range, Store, Watch};

/// Follows one resource of the store, beginning with everything there is.
#[derive(Debug)]
pub(in crate::sandbox::world) struct Feed {
    resource: &'static str,
    watch: Option<Watch>,
}

impl Feed {
    pub(in crate::sandbox::world) fn new(resource: &'static str) -> Self {
        Self {
            resource,
            watch: None,
        }
    }

    /// What has happened since the last call.
    pub(in crate::sandbox::world) fn drain(&mut self, store: &Arc<Store>) -> Drained {
        if let Some(Ok((events, _))) = self.watch.as_mut().map(Watch::catch_up) {
            return Drained {
                events,
                complete: false,
            };
        }
        let page = store
            .list(self.resource, &Range::default(), &|_| true)
            .unwrap_or_default();
        self.watch = Some(store.watch(self.resource, page.revision));
        let added = |object| Event {
            change: Change::Added,
            object,
            before: None,
        };
        Drained {
            events: page.objects.into_iter().map(added).collect(),
            complete: true,
        }
    }
}

/// See [`Feed::drain`].
pub(in crate::sandbox::world) struct Drained {
    pub(in crate::sandbox::world) events: Vec<Event>,
    /// These are all objects there are, because it is the first time or too much has happened since the last.
    pub(in crate::sandbox::world) complete: bool,
}
