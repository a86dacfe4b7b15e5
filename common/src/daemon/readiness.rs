//! Whether the daemon is ready to do its work: every part that has to get ready holds a handle.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::Shutdown;

/// Who is ready. Cloning gives another handle to the same.
#[derive(Clone, Debug)]
pub struct Readiness {
    parts: Arc<Mutex<BTreeMap<&'static str, bool>>>,
    shutdown: Shutdown,
}

impl Readiness {
    /// Ready, until somebody asks for a part; and never again once shutdown is requested.
    #[must_use]
    pub fn new(shutdown: Shutdown) -> Self {
        let parts = Arc::default();
        Self { parts, shutdown }
    }

    /// A part that is not ready until its handle says so.
    #[must_use]
    pub fn part(&self, name: &'static str) -> Part {
        self.lock().insert(name, false);
        Part {
            name,
            readiness: self.clone(),
        }
    }

    /// What is not ready; nothing means that all is.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let stopping = self.shutdown.is_requested().then_some("shutting down");
        let parts = self.lock();
        let waiting = parts.iter().filter(|(_, ready)| !**ready).map(|(name, _)| *name);
        stopping.into_iter().chain(waiting).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, bool>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One part's handle. Dropping it changes nothing: a part that never got ready keeps the daemon from being so.
#[derive(Debug)]
pub struct Part {
    name: &'static str,
    readiness: Readiness,
}

impl Part {
    /// Says that this part is ready.
    pub fn ready(&self) {
        self.readiness.lock().insert(self.name, true);
    }

    /// Says that this part is not ready any more.
    pub fn unready(&self) {
        self.readiness.lock().insert(self.name, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_when_every_part_is_and_not_when_stopping() {
        let shutdown = Shutdown::new();
        let readiness = Readiness::new(shutdown.clone());
        assert_eq!(readiness.missing(), Vec::<&str>::new());
        let (pods, vpas) = (readiness.part("pods"), readiness.part("vpas"));
        assert_eq!(readiness.missing(), ["pods", "vpas"]);
        pods.ready();
        assert_eq!(readiness.missing(), ["vpas"]);
        vpas.ready();
        assert_eq!(readiness.missing(), Vec::<&str>::new());
        pods.unready();
        drop(pods);
        assert_eq!(readiness.missing(), ["pods"]);
        shutdown.request();
        assert_eq!(readiness.missing(), ["shutting down", "pods"]);
    }
}
