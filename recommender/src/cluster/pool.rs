//! Names that occur many times, kept once. What nobody uses any more is dropped when the pool has doubled, so it
//! shrinks with the cluster and costs nothing per use.

use std::{collections::HashSet, sync::Arc};

/// A pooled text: a pod, a container, a label.
pub type Name = Arc<str>;

/// The texts in use.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    names: HashSet<Name>,
    /// How many there were when the last sweep was over.
    kept: usize,
}

impl Pool {
    /// The pooled form of a text.
    pub(crate) fn name(&mut self, text: &str) -> Name {
        if let Some(name) = self.names.get(text) {
            return Arc::clone(name);
        }
        if self.names.len() >= 2 * self.kept.max(512) {
            self.sweep();
        }
        let name: Name = text.into();
        self.names.insert(Arc::clone(&name));
        name
    }

    /// Drops what only the pool still holds.
    pub(crate) fn sweep(&mut self) {
        self.names.retain(|name| Arc::strong_count(name) > 1);
        self.names.shrink_to_fit();
        self.kept = self.names.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one_and_unused_ones_go() {
        let mut pool = Pool::default();
        let kept = pool.name("kept");
        assert!(Arc::ptr_eq(&kept, &pool.name("kept")));
        for number in 0..10_000 {
            pool.name(&number.to_string());
        }
        assert!(pool.names.len() <= 1024);
        pool.sweep();
        assert_eq!(pool.names.len(), 1);
    }
}
