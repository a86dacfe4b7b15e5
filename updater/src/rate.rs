//! `--eviction-rate-limit`: how fast pods are acted on. VPA has two limiters with the same settings, one for evictions and
//! one for resizes, and ends a loop in which a pod would have to wait for longer than the loop may take.

use std::time::Duration;

use common::kube::limit::{Bucket, RateLimit};
use tokio::time::Instant;

/// Lets pods through at a rate.
pub(crate) struct Limiter {
    bucket: Option<Bucket>,
    begun: Instant,
}

impl Limiter {
    /// A limiter, or none at all.
    pub(crate) fn new(limit: Option<RateLimit>) -> Self {
        Self {
            bucket: limit.map(Bucket::new),
            begun: Instant::now(),
        }
    }

    /// Waits for the next pod's turn; false, at once, if that is not within `patience`.
    pub(crate) async fn wait(&mut self, patience: Duration) -> bool {
        let Some(bucket) = &mut self.bucket else {
            return true;
        };
        let wait = bucket.take(self.begun.elapsed());
        if wait > patience {
            bucket.give_back();
            return false;
        }
        // Requests are counted by the machine's time too: the API server's patience is not virtual.
        tokio::time::sleep(wait).await;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pods_go_at_the_rate_and_not_beyond_the_loop() {
        let mut limiter = Limiter::new(RateLimit::from_flags(0.5, 1.0).unwrap());
        let patience = Duration::from_secs(3);
        let begun = Instant::now();
        assert!(limiter.wait(patience).await);
        assert!(limiter.wait(patience).await);
        assert_eq!(begun.elapsed().as_secs(), 2);
        assert!(!limiter.wait(Duration::from_secs(1)).await);
        assert_eq!(begun.elapsed().as_secs(), 2);
        assert!(Limiter::new(None).wait(Duration::ZERO).await);
    }
}
