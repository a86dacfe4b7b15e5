//! Keeps one who does not lead any more from writing: what counts is the time at which a request goes out, not that
//! at which the work was planned.

use std::task::{Context, Poll};

use futures::future::{BoxFuture, FutureExt};
use http::Request;
use tower::{BoxError, Layer, Service};

use super::lease::Leadership;

/// The leadership was over when the request would have been made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process does not lead any more, so the request was not made")]
pub struct LeadershipOver;

#[derive(Clone, Debug)]
pub(super) struct FenceLayer(pub(super) Leadership);

impl<S> Layer<S> for FenceLayer {
    type Service = Fence<S>;

    fn layer(&self, inner: S) -> Fence<S> {
        let leadership = self.0.clone();
        Fence { inner, leadership }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Fence<S> {
    inner: S,
    leadership: Leadership,
}

impl<S, B> Service<Request<B>> for Fence<S>
where
    S: Service<Request<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if !self.leadership.lasts() {
            return async { Err(LeadershipOver.into()) }.boxed();
        }
        let leadership = self.leadership.clone();
        let answer = self.inner.call(request);
        async move {
            // Looked at first whenever this is polled: the request may still wait for its turn at the rate limit.
            tokio::select! {
                biased;
                () = leadership.over() => Err(LeadershipOver.into()),
                answer = answer => answer.map_err(Into::into),
            }
        }
        .boxed()
    }
}
