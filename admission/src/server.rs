//! The webhook's HTTP: any path, one content type, bounded in size, time and number (`spec/vpa.md` 4.3). What the answer is
//! is [`reviewer`](crate::reviewer)'s business.

use std::{net::TcpListener, sync::Arc, time::Duration};

use anyhow::Context as _;
use axum::{
    Router,
    body::Body,
    extract::State,
    http::{Request, StatusCode, header},
    response::{IntoResponse, Response},
};
use axum_server::{Handle, tls_rustls::RustlsConfig};
use common::daemon::Shutdown;
use futures::StreamExt as _;
use hyper_util::rt::TokioTimer;
use tokio::sync::Semaphore;

use crate::{
    metrics::{Refused, Step},
    reviewer::Reviewer,
    sidecarset::convert,
};

const MAX_BODY: usize = 5 * 1024 * 1024;
/// So many bodies of that size may be in memory at once.
const MAX_REVIEWS: usize = 64;
/// How long a request waits for its turn: longer than that, and whoever asks has given up or soon will.
const TURN_PATIENCE: Duration = Duration::from_secs(5);
/// How long the body of a request may take.
const BODY_PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection may stay silent between requests. The API server's own end gives up after 90 seconds, so it is
/// never this one that closes while a request is on its way.
const IDLE_PATIENCE: Duration = Duration::from_secs(120);
/// How long requests under way may take once the server stops.
const DRAIN: Duration = Duration::from_secs(15);

/// Where new pods get their sidecars.
pub(crate) const INJECT: &str = "/mutate-pod";
/// Where SidecarSets are converted from one version to another.
pub(crate) const CONVERT: &str = "/convert";

/// Everything that is served.
pub(crate) fn router(reviewer: Reviewer) -> Router {
    let webhook = Webhook {
        reviewer,
        turns: Arc::new(Semaphore::new(MAX_REVIEWS)),
    };
    Router::new().fallback(review).with_state(webhook)
}

/// Serves until shutdown is requested and for `linger` longer, then lets requests under way come to their end.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: RustlsConfig,
    router: Router,
    shutdown: Shutdown,
    linger: Duration,
) -> anyhow::Result<()> {
    listener
        .set_nonblocking(true)
        .context("cannot use the webhook's socket")?;
    let handle = Handle::new();
    let mut server = axum_server::from_tcp_rustls(listener, tls)
        .context("cannot use the webhook's socket")?
        .handle(handle.clone());
    server
        .http_builder()
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_PATIENCE);
    server
        .http_builder()
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(250)
        .keep_alive_interval(Duration::from_secs(60))
        .keep_alive_timeout(Duration::from_secs(20));
    let serving = server.serve(router.into_make_service());
    let stopping = async {
        shutdown.requested().await;
        tokio::time::sleep(linger).await;
        handle.graceful_shutdown(Some(DRAIN));
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = serving => ended.context("the webhook's server failed"),
        () = stopping => Ok(()),
    }
}

/// What a request is for, by its path. Those of VPA come on any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Inject,
    Convert,
    Review,
}

impl Route {
    fn of(path: &str) -> Self {
        match path {
            INJECT => Self::Inject,
            CONVERT => Self::Convert,
            _ => Self::Review,
        }
    }
}

#[derive(Clone)]
struct Webhook {
    reviewer: Reviewer,
    turns: Arc<Semaphore>,
}

async fn review(State(webhook): State<Webhook>, request: Request<Body>) -> Response {
    match webhook.answer(request).await {
        Ok(response) => response,
        Err(refused) => {
            webhook.reviewer.metrics.refused(refused);
            refused.into_response()
        }
    }
}

impl Webhook {
    async fn answer(&self, request: Request<Body>) -> Result<Response, Refused> {
        let Reviewer {
            known,
            metrics,
            clock,
            injector,
            ..
        } = &self.reviewer;
        let started = clock.moment();
        let content_type = request.headers().get(header::CONTENT_TYPE);
        if content_type.is_none_or(|text| text != "application/json") {
            return Err(Refused::ContentType);
        }
        let route = Route::of(request.uri().path());
        if !known.is_synced() || (route == Route::Inject && !injector.is_settled()) {
            return Err(Refused::NotSynced);
        }
        let turn = tokio::time::timeout(TURN_PATIENCE, self.turns.acquire()).await;
        let _turn = turn
            .map_err(|_| Refused::Overload)?
            .map_err(|_| Refused::Overload)?;
        let body = tokio::time::timeout(BODY_PATIENCE, read(request))
            .await
            .map_err(|_| Refused::Unread)??;
        let read = clock.moment();
        metrics.step(Step::ReadRequest, read.since(started));
        let response = match route {
            Route::Convert => {
                let body = convert::review(&body).map_err(|_| Refused::Unread)?;
                return Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response());
            }
            Route::Inject => self.reviewer.inject(&body),
            Route::Review => self.reviewer.review(&body).await,
        };
        let admitted = clock.moment();
        metrics.step(Step::Admit, admitted.since(read));
        let body = response.to_body().map_err(|error| {
            tracing::error!(%error, "cannot write an answer");
            Refused::Unread
        })?;
        let built = clock.moment();
        metrics.step(Step::BuildResponse, built.since(admitted));
        let response = ([(header::CONTENT_TYPE, "application/json")], body).into_response();
        let written = clock.moment();
        metrics.step(Step::WriteResponse, written.since(built));
        metrics.step(Step::Total, written.since(started));
        Ok(response)
    }
}

async fn read(request: Request<Body>) -> Result<Vec<u8>, Refused> {
    let said = request.headers().get(header::CONTENT_LENGTH);
    let said = said.and_then(|text| text.to_str().ok()?.parse::<usize>().ok());
    let said = said.unwrap_or_default();
    if said > MAX_BODY {
        return Err(Refused::TooLarge);
    }
    let mut body = Vec::with_capacity(said);
    let mut chunks = request.into_body().into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| Refused::Unread)?;
        if body.len() + chunk.len() > MAX_BODY {
            return Err(Refused::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        match self {
            // As VPA: no error, and nothing that could be taken for a review.
            Self::ContentType => StatusCode::OK.into_response(),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "request payload too large\n").into_response(),
            Self::Unread => (StatusCode::BAD_REQUEST, "cannot read the request\n").into_response(),
            Self::Overload => {
                (StatusCode::SERVICE_UNAVAILABLE, "too many requests at once\n").into_response()
            }
            Self::NotSynced => (
                StatusCode::SERVICE_UNAVAILABLE,
                "not everything is listed yet; try again\n",
            )
                .into_response(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
