//! A deadline for every request, headers and body, since kube has none of its own. A watch is meant to stay open, so
//! only its headers have one.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tower::{BoxError, Layer, Service};

use crate::daemon::GoDuration;

/// The API server did not answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no complete answer from the API server within {}", GoDuration(*.0))]
pub struct DeadlineExceeded(pub Duration);

/// Whether a request is a watch, which stays open.
pub(super) fn is_watch<B>(request: &Request<B>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query
        .split('&')
        .any(|pair| matches!(pair, "watch" | "watch=true" | "watch=1"))
}

/// Gives every request a deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeadlineLayer(pub(super) Duration);

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Deadline<S> {
        let span = self.0;
        Deadline { inner, span }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Deadline<S> {
    inner: S,
    span: Duration,
}

impl<S, A, B> Service<Request<A>> for Deadline<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = Response<DeadlineBody<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let span = self.span;
        let watch = is_watch(&request);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let deadline = Instant::now() + span;
            let response = tokio::time::timeout_at(deadline, answer)
                .await
                .map_err(|_| DeadlineExceeded(span))?
                .map_err(Into::into)?;
            let deadline = (!watch).then(|| Box::pin(sleep_until(deadline)));
            Ok(response.map(|body| DeadlineBody { body, deadline, span }))
        })
    }
}

/// A body that has to come to its end in time.
#[derive(Debug)]
pub(super) struct DeadlineBody<B> {
    body: B,
    deadline: Option<Pin<Box<Sleep>>>,
    span: Duration,
}

impl<B> Body for DeadlineBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let span = self.span;
        match &mut self.deadline {
            Some(deadline) => deadline
                .as_mut()
                .poll(context)
                .map(|()| Some(Err(DeadlineExceeded(span).into()))),
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body as AxumBody;
    use futures::{StreamExt, stream};
    use kube::{Client, client::ClientBuilder};
    use tower_test::mock;

    type Server = mock::Handle<Request<kube::client::Body>, Response<AxumBody>>;

    fn client() -> (Client, Server) {
        let (service, server) = mock::pair::<Request<kube::client::Body>, Response<AxumBody>>();
        let client = ClientBuilder::new(service, "default")
            .with_layer(&DeadlineLayer(Duration::from_secs(60)))
            .build();
        (client, server)
    }

    fn get(path: &str) -> Request<Vec<u8>> {
        Request::get(path).body(Vec::new()).unwrap()
    }

    /// Sends a chunk a second, for ever.
    fn endless() -> AxumBody {
        AxumBody::from_stream(stream::repeat("{}\n").then(|chunk| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok::<_, BoxError>(chunk)
        }))
    }

    #[test]
    fn what_a_watch_is() {
        for (uri, expected) in [
            ("/api/v1/pods?&watch=true&timeoutSeconds=290", true),
            ("/api/v1/pods?watch=1", true),
            ("/api/v1/pods?watch", true),
            ("/api/v1/pods?watch=false", false),
            ("/api/v1/pods?labelSelector=watch%3Dtrue", false),
            ("/api/v1/watch=true", false),
        ] {
            assert_eq!(is_watch(&get(uri)), expected, "{uri}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn headers_that_do_not_come_are_not_waited_for() {
        for path in ["/version", "/api/v1/pods?watch=true"] {
            let (client, mut server) = client();
            let start = Instant::now();
            let asked = tokio::spawn(async move { client.request_text(get(path)).await });
            let _unanswered = server.next_request().await.unwrap();
            let error = asked.await.unwrap().unwrap_err();
            let expected = "no complete answer from the API server within 1m0s";
            assert!(error.to_string().contains(expected), "{error}");
            assert_eq!(start.elapsed().as_secs(), 60);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_end_is_cut_off() {
        let (client, mut server) = client();
        let start = Instant::now();
        let asked = tokio::spawn(async move { client.request_text(get("/api/v1/pods")).await });
        let (_, answer) = server.next_request().await.unwrap();
        answer.send_response(Response::new(endless()));
        let error = asked.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("no complete answer"), "{error}");
        assert_eq!(start.elapsed().as_secs(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_is_not_cut_off() {
        use futures::AsyncBufReadExt;
        let (client, mut server) = client();
        let asked = tokio::spawn(async move { client.request_stream(get("/api/v1/pods?watch=true")).await });
        let (_, answer) = server.next_request().await.unwrap();
        answer.send_response(Response::new(endless()));
        let lines = asked.await.unwrap().unwrap().lines();
        assert_eq!(
            lines
                .take(300)
                .filter(|line| std::future::ready(line.is_ok()))
                .count()
                .await,
            300
        );
    }
}
