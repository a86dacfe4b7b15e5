//! `--kube-api-qps` and `--kube-api-burst`: a token bucket before the client, in order of arrival.
//! Leases pass it by, since a queue of status writes must not cost the lease.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use http::Request;
use tokio::time::Instant;
use tower::{Layer, Service};

/// How many requests may be made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    per_second: f64,
    burst: f64,
}

/// Why a rate is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RateLimitError {
    /// Zero, or not a number.
    #[error(
        "{0} requests a second would stop all work: use a positive number, or a negative one for no limit"
    )]
    Rate(f64),
    /// Less than one.
    #[error("a burst of {0} would let no request through: use 1 or more")]
    Burst(f64),
}

impl RateLimit {
    /// From the flags; none if the rate is negative, as client-go has it.
    pub fn from_flags(per_second: f64, burst: f64) -> Result<Option<Self>, RateLimitError> {
        if per_second < 0.0 {
            return Ok(None);
        }
        if per_second == 0.0 || !per_second.is_finite() {
            return Err(RateLimitError::Rate(per_second));
        }
        // client-go counts whole requests.
        let burst = burst.trunc();
        if burst < 1.0 || !burst.is_finite() {
            return Err(RateLimitError::Burst(burst));
        }
        Ok(Some(Self { per_second, burst }))
    }
}

/// The bucket, as a function of time: `now` counts from when it was made, full.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    limit: RateLimit,
    /// Below zero when requests wait: each has taken its token in advance, so that nobody overtakes.
    tokens: f64,
    filled: Duration,
}

impl Bucket {
    /// A full one.
    #[must_use]
    pub fn new(limit: RateLimit) -> Self {
        Self {
            limit,
            tokens: limit.burst,
            filled: Duration::ZERO,
        }
    }

    /// Takes a token; gives how long to wait before using it.
    pub fn take(&mut self, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.filled);
        self.filled = self.filled.max(now);
        self.tokens =
            (self.tokens + passed.as_secs_f64() * self.limit.per_second).min(self.limit.burst) - 1.0;
        Duration::try_from_secs_f64(-self.tokens / self.limit.per_second).unwrap_or(Duration::ZERO)
    }

    /// Gives back a token that was not used.
    pub fn give_back(&mut self) {
        self.tokens = (self.tokens + 1.0).min(self.limit.burst);
    }
}

/// Holds requests back so that there are never more than the limit allows.
#[derive(Clone, Debug)]
pub(super) struct LimitLayer {
    bucket: Arc<Mutex<Bucket>>,
    start: Instant,
}

impl LimitLayer {
    pub(super) fn new(limit: RateLimit) -> Self {
        Self {
            bucket: Arc::new(Mutex::new(Bucket::new(limit))),
            start: Instant::now(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Bucket> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn wait(self) {
        let wait = self.lock().take(self.start.elapsed());
        if wait > Duration::ZERO {
            let mut waiting = Waiting {
                limit: &self,
                used: false,
            };
            tokio::time::sleep(wait).await;
            waiting.used = true;
        }
    }
}

/// A request that waits. If its caller goes away, its token goes back.
struct Waiting<'a> {
    limit: &'a LimitLayer,
    used: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.used {
            self.limit.lock().give_back();
        }
    }
}

impl<S> Layer<S> for LimitLayer {
    type Service = Limit<S>;

    fn layer(&self, inner: S) -> Limit<S> {
        Limit {
            inner,
            limit: self.clone(),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Limit<S> {
    inner: S,
    limit: LimitLayer,
}

impl<S, B> Service<Request<B>> for Limit<S>
where
    S: Service<Request<B>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    /// Ready at once: the wait is the request's own, so that one that is given up makes room.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The clone that was polled ready is the one to call; the fresh one is left for the next request.
        let fresh = self.inner.clone();
        let mut ready = std::mem::replace(&mut self.inner, fresh);
        let wait = (!is_lease(&request)).then(|| self.limit.clone().wait());
        Box::pin(async move {
            if let Some(wait) = wait {
                wait.await;
            }
            ready.call(request).await
        })
    }
}

fn is_lease<B>(request: &Request<B>) -> bool {
    request.uri().path().starts_with("/apis/coordination.k8s.io/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tower_test::mock;

    fn limit(per_second: f64, burst: f64) -> RateLimit {
        RateLimit::from_flags(per_second, burst).unwrap().unwrap()
    }

    #[test]
    fn what_the_flags_say() {
        assert_eq!(RateLimit::from_flags(-1.0, 0.0), Ok(None));
        assert_eq!(RateLimit::from_flags(5.0, 10.9), Ok(Some(limit(5.0, 10.0))));
        for (per_second, burst, expected) in [
            (0.0, 1.0, "0 requests a second would stop all work"),
            (f64::NAN, 1.0, "NaN requests a second would stop all work"),
            (f64::INFINITY, 1.0, "inf requests a second would stop all work"),
            (5.0, 0.5, "a burst of 0 would let no request through"),
            (5.0, f64::NAN, "a burst of NaN would let no request through"),
        ] {
            let error = RateLimit::from_flags(per_second, burst).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_in_order_at_the_rate() {
        let mut bucket = Bucket::new(limit(10.0, 2.0));
        let at = Duration::from_millis;
        for (now, wait) in [
            (0, 0),
            (0, 0),
            (0, 100),
            (0, 200),
            // A tenth of a second later one of those has gone, and the queue is as long as before.
            (100, 200),
            // After a long rest there is a burst again, and not more.
            (10_000, 0),
            (10_000, 0),
            (10_000, 100),
        ] {
            assert_eq!(bucket.take(at(now)).as_millis(), wait, "at {now}");
        }
        bucket.give_back();
        assert_eq!(bucket.take(at(10_000)).as_millis(), 100);
    }

    proptest! {
        #[test]
        fn no_window_holds_more_than_the_burst_and_what_the_rate_allows(
            per_second in 0.5_f64..200.0,
            burst in 1_u32..20,
            gaps in prop::collection::vec(0_u64..300, 1..200),
        ) {
            let mut bucket = Bucket::new(limit(per_second, f64::from(burst)));
            let mut now = 0;
            let mut sent = Vec::new();
            for gap in gaps {
                now += gap;
                let now = Duration::from_millis(now);
                sent.push((now + bucket.take(now)).as_secs_f64());
            }
            prop_assert!(sent.is_sorted(), "nobody overtakes: {sent:?}");
            for (i, from) in sent.iter().enumerate() {
                for (count, to) in (1_u32..).zip(&sent[i..]) {
                    let allowed = f64::from(burst) + (to - from) * per_second;
                    prop_assert!(f64::from(count) <= allowed + 1e-6, "{count} in {}", to - from);
                }
            }
        }
    }

    fn get(path: &str) -> Request<()> {
        Request::get(path).body(()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_tokens_and_leases_do_not() {
        let (mut service, mut server) =
            mock::spawn_layer::<Request<()>, (), _>(LimitLayer::new(limit(1.0, 1.0)));
        let start = Instant::now();
        let server = tokio::spawn(async move {
            let mut seen = Vec::new();
            for _ in 0..4 {
                let (request, answer) = server.next_request().await.unwrap();
                seen.push((request.uri().path().to_owned(), start.elapsed().as_secs()));
                answer.send_response(());
            }
            seen
        });
        let mut answers = Vec::new();
        for path in [
            "/api/v1/pods",
            "/version?watch=true",
            "/api/v1/nodes",
            "/apis/coordination.k8s.io/v1/leases",
        ] {
            assert!(service.poll_ready().is_ready());
            answers.push(tokio::spawn(service.call(get(path))));
        }
        for answer in answers {
            answer.await.unwrap().unwrap();
        }
        let seen = server.await.unwrap();
        let expected = [
            ("/api/v1/pods", 0),
            ("/apis/coordination.k8s.io/v1/leases", 0),
            ("/version", 1),
            ("/api/v1/nodes", 2),
        ];
        assert_eq!(seen, expected.map(|(path, at)| (path.to_owned(), at)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_given_up_makes_room() {
        let (mut service, mut server) =
            mock::spawn_layer::<Request<()>, (), _>(LimitLayer::new(limit(1.0, 1.0)));
        let start = Instant::now();
        assert!(service.poll_ready().is_ready());
        let first = tokio::spawn(service.call(get("/1")));
        tokio::task::yield_now().await;
        for _ in 0..10 {
            assert!(service.poll_ready().is_ready());
            let mut abandoned = Box::pin(service.call(get("/abandoned")));
            assert!(futures::poll!(&mut abandoned).is_pending());
        }
        assert!(service.poll_ready().is_ready());
        let last = tokio::spawn(service.call(get("/2")));
        let (_, answer) = server.next_request().await.unwrap();
        answer.send_response(());
        first.await.unwrap().unwrap();
        let (request, answer) = server.next_request().await.unwrap();
        answer.send_response(());
        last.await.unwrap().unwrap();
        assert_eq!((request.uri().path(), start.elapsed().as_secs()), ("/2", 1));
    }
}
