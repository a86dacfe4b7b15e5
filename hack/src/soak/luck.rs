//! Chance that is the same for the same seed.

use crate::sandbox::mix;

/// A stream of numbers.
#[derive(Clone, Debug)]
pub(super) struct Luck {
    seed: u64,
    drawn: u64,
}

impl Luck {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, drawn: 0 }
    }

    /// A number below `bound`; 0 where there is none.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.drawn += 1;
        let draw = mix(self.seed ^ mix(self.drawn));
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(draw % bound).unwrap_or_default()
    }

    /// Whether something happens that happens once in so many times.
    pub(super) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(super) fn one_of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len()))
    }
}
