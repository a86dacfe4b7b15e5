//! The weights of a histogram's buckets, kept only where there are any: most containers touch a few dozen of the 176
//! buckets. Reads and sums give the same bits as an array with a zero in every other place.

use super::buckets::LAST;
use std::{iter, ops::RangeInclusive};

/// Bucket → weight; what was never written is 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Weights {
    /// One bit for each bucket that is stored.
    stored: [u64; 3],
    /// The weights of the stored buckets, in order of the buckets.
    values: Vec<f64>,
}

impl Weights {
    /// The weight of a bucket.
    pub(crate) fn get(&self, bucket: u8) -> f64 {
        self.position(bucket).map_or(0.0, |at| self.values[at])
    }

    /// Changes the weight of a bucket, and answers with the new one.
    pub(crate) fn update(&mut self, bucket: u8, change: impl FnOnce(f64) -> f64) -> f64 {
        let bucket = bucket.min(LAST);
        let at = self.position(bucket).unwrap_or_else(|at| {
            let (word, bit) = place(bucket);
            self.stored[word] |= bit;
            // A new bucket is rare and the last one soon reached: never double.
            self.values.reserve_exact(1);
            self.values.insert(at, 0.0);
            at
        });
        self.values[at] = change(self.values[at]);
        self.values[at]
    }

    /// Multiplies the weights of a range of buckets, and forgets what became nothing.
    pub(crate) fn scale(&mut self, range: &RangeInclusive<u8>, factor: f64) {
        let scaled: Vec<(u8, f64)> = self
            .iter()
            .map(|(bucket, weight)| {
                let factor = if range.contains(&bucket) { factor } else { 1.0 };
                (bucket, weight * factor)
            })
            .filter(|(_, weight)| *weight != 0.0)
            .collect();
        *self = Self::default();
        self.values.reserve_exact(scaled.len());
        for (bucket, weight) in scaled {
            let (word, bit) = place(bucket);
            self.stored[word] |= bit;
            self.values.push(weight);
        }
    }

    /// The stored buckets with their weights, lowest bucket first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u8, f64)> + '_ {
        let buckets = [0, 64, 128]
            .into_iter()
            .zip(self.stored)
            .flat_map(|(first, stored)| {
                let mut left = stored;
                iter::from_fn(move || {
                    let bit = u8::try_from(left.trailing_zeros()).ok().filter(|bit| *bit < 64)?;
                    left &= left - 1;
                    Some(first + bit)
                })
            });
        buckets.zip(self.values.iter().copied())
    }

    /// Where the weight of a bucket is, or would be.
    fn position(&self, bucket: u8) -> Result<usize, usize> {
        let (word, bit) = place(bucket.min(LAST));
        let below: u32 = self.stored[..word].iter().map(|word| word.count_ones()).sum();
        let at = below + (self.stored[word] & (bit - 1)).count_ones();
        let at = usize::try_from(at).unwrap_or(0);
        if self.stored[word] & bit == 0 {
            Err(at)
        } else {
            Ok(at)
        }
    }
}

fn place(bucket: u8) -> (usize, u64) {
    (usize::from(bucket / 64), 1 << (bucket % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The sparse form against the plain array it stands for.
        #[test]
        fn it_is_an_array_with_zeros_in_between(
            changes in prop::collection::vec((0..=LAST, 0.0_f64..10.0, any::<bool>()), 0..60),
        ) {
            let mut weights = Weights::default();
            let mut array = [0.0_f64; 176];
            for (bucket, weight, scale) in changes {
                if scale {
                    let range = bucket..=bucket.saturating_add(20);
                    weights.scale(&range, weight);
                    for bucket in 0..=LAST {
                        if range.contains(&bucket) {
                            array[usize::from(bucket)] *= weight;
                        }
                    }
                } else {
                    weights.update(bucket, |old| old + weight);
                    array[usize::from(bucket)] += weight;
                }
            }
            for bucket in 0..=LAST {
                prop_assert_eq!(weights.get(bucket).to_bits(), array[usize::from(bucket)].to_bits());
            }
            let stored: Vec<(u8, f64)> = weights.iter().filter(|(_, weight)| *weight != 0.0).collect();
            let expected: Vec<(u8, f64)> = (0..=LAST)
                .map(|bucket| (bucket, array[usize::from(bucket)]))
                .filter(|(_, weight)| *weight != 0.0)
                .collect();
            prop_assert_eq!(stored, expected);
        }
    }
}
