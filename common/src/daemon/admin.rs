//! The plain HTTP server that every daemon has on `--address`: metrics, health, readiness and the log's level.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::{ConnectInfo, DefaultBodyLimit, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use super::{Activity, GoDuration, LogLevel, Readiness, Verbosity, metrics};

/// What the admin server tells of.
#[derive(Clone, Debug)]
pub struct Admin {
    /// The metrics.
    pub registry: Arc<Registry>,
    /// Whether the loop turns.
    pub activity: Activity,
    /// Whether all parts are ready.
    pub readiness: Readiness,
    /// The log's level, where the log is the daemon's own.
    pub log_level: Option<LogLevel>,
}

/// Answers until it is dropped.
pub async fn serve(listener: TcpListener, admin: Admin) -> anyhow::Result<()> {
    let service = router(admin).into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, service).await?)
}

/// The paths that are served.
pub fn router(admin: Admin) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/health-check", get(health_check))
        .route("/livez", get(health_check))
        .route("/readyz", get(readyz))
        .route("/log-level", get(log_level).put(set_log_level))
        .layer(DefaultBodyLimit::max(1024))
        .with_state(admin)
}

async fn metrics(State(admin): State<Admin>) -> Response {
    match metrics::encode(&admin.registry) {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn health_check(State(admin): State<Admin>) -> (StatusCode, String) {
    match admin.activity.overdue() {
        None => (StatusCode::OK, "OK".to_owned()),
        Some(ago) => {
            let text = format!("Error: last activity more than {} ago", GoDuration(ago));
            (StatusCode::INTERNAL_SERVER_ERROR, text)
        }
    }
}

async fn readyz(State(admin): State<Admin>) -> (StatusCode, String) {
    match &*admin.readiness.missing() {
        [] => (StatusCode::OK, "ok".to_owned()),
        missing => {
            let text = format!("not ready: {}", missing.join(", "));
            (StatusCode::SERVICE_UNAVAILABLE, text)
        }
    }
}

async fn log_level(State(admin): State<Admin>) -> (StatusCode, String) {
    match admin.log_level {
        Some(level) => (StatusCode::OK, level.get().to_string()),
        None => (StatusCode::NOT_FOUND, NO_LOG.to_owned()),
    }
}

const NO_LOG: &str = "the log is not this daemon's own";
const FROM_AFAR: &str = "the log level is set from the pod itself only: use kubectl port-forward";

/// Metrics are for everybody who reaches the port; what changes the daemon is for those who may enter its pod.
async fn set_log_level(
    State(admin): State<Admin>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    text: String,
) -> (StatusCode, String) {
    if !peer.ip().to_canonical().is_loopback() {
        return (StatusCode::FORBIDDEN, FROM_AFAR.to_owned());
    }
    let Some(level) = admin.log_level else {
        return (StatusCode::NOT_FOUND, NO_LOG.to_owned());
    };
    let verbosity: Verbosity = match text.parse() {
        Ok(verbosity) => verbosity,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()),
    };
    tracing::info!(%verbosity, "log level changed");
    match level.set(verbosity) {
        Ok(()) => (StatusCode::OK, level.get().to_string()),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::VirtualClock,
        daemon::{Shutdown, logs::tests::detached},
    };
    use axum::{body::Body, body::to_bytes, http::Request};
    use chrono::DateTime;
    use std::time::Duration;
    use tower::ServiceExt;

    struct Bench {
        peer: SocketAddr,
        time: VirtualClock,
        shutdown: Shutdown,
        admin: Admin,
    }

    impl Bench {
        fn new() -> Self {
            let time = VirtualClock::starting_at(DateTime::UNIX_EPOCH);
            let shutdown = Shutdown::new();
            let admin = Admin {
                registry: Arc::default(),
                activity: Activity::every(Duration::from_secs(60), time.clock()),
                readiness: Readiness::new(shutdown.clone()),
                log_level: None,
            };
            Self {
                peer: SocketAddr::from(([127, 0, 0, 1], 40000)),
                time,
                shutdown,
                admin,
            }
        }

        async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
            let request = Request::builder()
                .method(method)
                .uri(path)
                .extension(ConnectInfo(self.peer))
                .body(Body::from(body.to_owned()))
                .unwrap();
            let response = router(self.admin.clone()).oneshot(request).await.unwrap();
            let status = response.status().as_u16();
            let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
            (status, String::from_utf8(body.to_vec()).unwrap())
        }

        async fn get(&self, path: &str) -> (u16, String) {
            self.ask("GET", path, "").await
        }
    }

    fn said(status: u16, text: &str) -> (u16, String) {
        (status, text.to_owned())
    }

    #[tokio::test]
    async fn health_is_as_vpa_tells_it() {
        let bench = Bench::new();
        assert_eq!(bench.get("/health-check").await, said(200, "OK"));
        bench.admin.activity.mark();
        bench.time.advance(Duration::from_millis(300_500)).await;
        let overdue = said(500, "Error: last activity more than 5m0.5s ago");
        assert_eq!(bench.get("/health-check").await, overdue);
        assert_eq!(bench.get("/livez").await, overdue);
        bench.admin.activity.mark();
        assert_eq!(bench.get("/health-check").await, said(200, "OK"));
    }

    #[tokio::test]
    async fn readiness_names_what_is_missing() {
        let bench = Bench::new();
        let lists = [
            bench.admin.readiness.part("pods"),
            bench.admin.readiness.part("vpas"),
        ];
        assert_eq!(bench.get("/readyz").await, said(503, "not ready: pods, vpas"));
        for list in &lists {
            list.ready();
        }
        assert_eq!(bench.get("/readyz").await, said(200, "ok"));
        bench.shutdown.request();
        assert_eq!(bench.get("/readyz").await, said(503, "not ready: shutting down"));
        assert_eq!(bench.get("/livez").await, said(200, "OK"));
    }

    #[tokio::test]
    async fn metrics_are_in_the_classic_format_whatever_is_accepted() {
        let mut bench = Bench::new();
        let mut registry = Registry::default();
        crate::daemon::build::register(&mut registry);
        bench.admin.registry = Arc::new(registry);
        let request = Request::get("/metrics")
            .header(
                "accept",
                "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            )
            .body(Body::empty())
            .unwrap();
        let response = router(bench.admin.clone()).oneshot(request).await.unwrap();
        assert_eq!(
            response.headers()["content-type"],
            "text/plain; version=0.0.4; charset=utf-8"
        );
        let (status, text) = bench.get("/metrics").await;
        assert_eq!(status, 200);
        assert!(
            text.contains("# TYPE outrigger_build_info gauge\noutrigger_build_info{version="),
            "{text}"
        );
        assert!(!text.contains("# EOF"), "{text}");
    }

    #[tokio::test]
    async fn the_log_level_is_read_and_set() {
        let mut bench = Bench::new();
        assert_eq!(bench.get("/log-level").await.0, 404);
        assert_eq!(bench.ask("PUT", "/log-level", "debug").await.0, 404);
        let (_log, level) = detached();
        bench.admin.log_level = Some(level);
        assert_eq!(bench.get("/log-level").await, said(200, "info"));
        assert_eq!(
            bench.ask("PUT", "/log-level", "warn,updater=trace\n").await,
            said(200, "warn,updater=trace")
        );
        assert_eq!(bench.get("/log-level").await, said(200, "warn,updater=trace"));
        let (status, text) = bench.ask("PUT", "/log-level", "updater=loud").await;
        assert_eq!(status, 400);
        assert!(text.starts_with("invalid log level \"updater=loud\""), "{text}");
        assert_eq!(bench.ask("PUT", "/log-level", &"x".repeat(2000)).await.0, 413);
        assert_eq!(bench.get("/log-level").await, said(200, "warn,updater=trace"));
    }

    #[tokio::test]
    async fn the_log_level_is_set_from_the_pod_itself_only() {
        let mut bench = Bench::new();
        let (_log, level) = detached();
        bench.admin.log_level = Some(level);
        for (peer, code) in [
            ("127.0.0.1:1", 200),
            ("[::1]:1", 200),
            ("[::ffff:127.0.0.1]:1", 200),
            ("10.0.0.7:1", 403),
            ("[fd00::7]:1", 403),
        ] {
            bench.peer = peer.parse().unwrap();
            assert_eq!(bench.ask("PUT", "/log-level", "warn").await.0, code, "{peer}");
            assert_eq!(bench.get("/log-level").await, said(200, "warn"), "{peer}");
        }
    }

    #[tokio::test]
    async fn nothing_else_is_served() {
        let bench = Bench::new();
        assert_eq!(bench.get("/").await.0, 404);
        assert_eq!(bench.get("/debug/pprof/").await.0, 404);
        assert_eq!(bench.ask("POST", "/log-level", "debug").await.0, 405);
    }
}
