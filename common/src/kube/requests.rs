//! Counts and times the requests to the API server.

use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Method, Request, Response};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};
use tokio::time::Instant;
use tower::{Layer, Service};

use super::deadline::is_watch;
use crate::daemon::metrics::sample;

/// What is known of the requests to the API server.
#[derive(Clone, Debug)]
pub(super) struct RequestMetrics {
    requests: Family<Outcome, Counter>,
    duration: Family<Verb, Histogram>,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    verb: &'static str,
    /// The HTTP status, or `error` when there was none.
    code: String,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Verb {
    verb: &'static str,
}

impl RequestMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            duration: Family::new_with_constructor(|| {
                Histogram::new([0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0])
            }),
        };
        let registry = registry.sub_registry_with_prefix("outrigger_client");
        registry.register(
            "requests",
            "Requests to the API server by verb and answer",
            metrics.requests.clone(),
        );
        registry.register(
            "request_duration_seconds",
            "Time until the headers of the answer",
            metrics.duration.clone(),
        );
        metrics
    }

    /// One of each, for the documentation.
    pub(super) fn sample(&self) {
        sample(&self.requests);
        sample(&self.duration);
    }

    fn observe(&self, verb: &'static str, code: String, start: Instant) {
        self.requests.get_or_create(&Outcome { verb, code }).inc();
        self.duration
            .get_or_create(&Verb { verb })
            .observe(start.elapsed().as_secs_f64());
    }
}

fn verb<B>(request: &Request<B>) -> &'static str {
    match *request.method() {
        Method::GET if is_watch(request) => "WATCH",
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "OTHER",
    }
}

impl<S> Layer<S> for RequestMetrics {
    type Service = Measured<S>;

    fn layer(&self, inner: S) -> Measured<S> {
        let metrics = self.clone();
        Measured { inner, metrics }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Measured<S> {
    inner: S,
    metrics: RequestMetrics,
}

impl<S, A, B> Service<Request<A>> for Measured<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let verb = verb(&request);
        let metrics = self.metrics.clone();
        let start = Instant::now();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = match &answer {
                Ok(response) => response.status().as_str().to_owned(),
                Err(_) => "error".to_owned(),
            };
            metrics.observe(verb, code, start);
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::metrics::encode;
    use tower_test::mock;

    #[tokio::test(start_paused = true)]
    async fn requests_are_counted_by_verb_and_answer() {
        let mut registry = Registry::default();
        let metrics = RequestMetrics::register(&mut registry);
        let (mut service, mut server) = mock::spawn_layer::<Request<()>, Response<()>, _>(metrics);
        server.allow(3);
        for (method, uri, status) in [
            (Method::GET, "/api/v1/pods?watch=true", Some(200)),
            (Method::PUT, "/api/v1/pods/a", Some(409)),
            (Method::PUT, "/api/v1/pods/a", None),
        ] {
            assert!(service.poll_ready().is_ready());
            let request = Request::builder().method(method).uri(uri).body(()).unwrap();
            let answer = service.call(request);
            let (_, reply) = server.next_request().await.unwrap();
            match status {
                Some(status) => reply.send_response(Response::builder().status(status).body(()).unwrap()),
                None => reply.send_error("connection reset"),
            }
            assert_eq!(answer.await.is_ok(), status.is_some());
        }
        let text = encode(&registry).unwrap();
        let mut counts: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("outrigger_client_requests_total"))
            .collect();
        counts.sort_unstable();
        assert_eq!(
            counts,
            [
                "outrigger_client_requests_total{verb=\"PUT\",code=\"409\"} 1",
                "outrigger_client_requests_total{verb=\"PUT\",code=\"error\"} 1",
                "outrigger_client_requests_total{verb=\"WATCH\",code=\"200\"} 1",
            ]
        );
        assert!(
            text.contains("outrigger_client_request_duration_seconds_count{verb=\"PUT\"} 2\n"),
            "{text}"
        );
    }
}
