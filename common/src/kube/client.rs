//! The client with which every daemon talks to the API server: limited, with a deadline for every request, measured,
//! and without retries of its own, since kube's would hide what a PodDisruptionBudget answers for minutes.

use std::{
    path::{Path, PathBuf},
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, header::USER_AGENT};
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use prometheus_client::registry::Registry;
use tower::{BoxError, Layer, Service};

use super::{
    deadline::DeadlineLayer,
    limit::{LimitLayer, RateLimit},
    requests::RequestMetrics,
};
use crate::{
    clock::Clock,
    daemon::{GoDuration, Shutdown, build},
};

/// Long enough for the metrics of all pods of a large cluster in one body.
const REQUEST_DEADLINE: Duration = Duration::from_secs(60);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be read or used.
    #[error("cannot use --kubeconfig {path}: {source}")]
    Kubeconfig {
        /// Its path.
        path: PathBuf,
        /// Why not.
        source: KubeconfigError,
    },
    /// Not in a pod.
    #[error("this is no pod with a service account ({0}); outside of a cluster give --kubeconfig")]
    InCluster(#[from] InClusterError),
    /// The TLS set-up or the credentials do not work.
    #[error("cannot make a client for the API server: {0}")]
    Client(#[from] kube::Error),
}

/// Makes the client of a daemon, from a kubeconfig or from inside the cluster. Nothing is sent yet.
pub async fn connect(
    daemon: &str,
    kubeconfig: Option<&Path>,
    rate_limit: Option<RateLimit>,
    registry: &mut Registry,
) -> Result<Client, ClientError> {
    let mut config = match kubeconfig {
        Some(path) => read(path).await.map_err(|source| ClientError::Kubeconfig {
            path: path.to_owned(),
            source,
        })?,
        None => Config::incluster()?,
    };
    config.default_retry = false;
    if let Ok(agent) = HeaderValue::try_from(user_agent(daemon)) {
        config.headers.push((USER_AGENT, agent));
    }
    let client = ClientBuilder::try_from(config)?
        .with_layer(&RequestMetrics::register(registry))
        .with_layer(&DeadlineLayer(REQUEST_DEADLINE))
        .build();
    Ok(match rate_limit {
        // Outermost, so that the deadline does not run while a request waits for its turn.
        Some(limit) => layered(&client, &LimitLayer::new(limit)),
        None => client,
    })
}

/// The client with one more layer around it.
pub(super) fn layered<L, S>(client: &Client, layer: &L) -> Client
where
    L: Layer<ClientService, Service = S>,
    S: Service<Request<Body>, Response = Response<Body>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    let namespace = client.default_namespace().to_owned();
    ClientBuilder::new(ClientService(client.clone()), namespace)
        .with_layer(layer)
        .build()
}

/// A client as the service it is made of.
#[derive(Clone)]
pub(super) struct ClientService(Client);

impl Service<Request<Body>> for ClientService {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, kube::Error>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let client = self.0.clone();
        Box::pin(async move { client.send(request).await })
    }
}

async fn read(path: &Path) -> Result<Config, KubeconfigError> {
    let kubeconfig = Kubeconfig::read_from(path)?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await
}

fn user_agent(daemon: &str) -> String {
    format!("outrigger-{daemon}/{}", build::VERSION)
}

/// Asks the API server for its version until it answers; none if shutdown is requested first. A daemon that starts
/// before its API server is no fault, so it waits, not ready, and says why.
pub async fn wait_for_server(client: &Client, clock: &Clock, shutdown: &Shutdown) -> Option<Info> {
    let mut pause = Duration::from_secs(1);
    loop {
        let asked = tokio::select! {
            asked = client.apiserver_version() => asked,
            () = shutdown.requested() => return None,
        };
        match asked {
            Ok(info) => {
                tracing::info!(version = info.git_version, "connected to the API server");
                return Some(info);
            }
            Err(error) => {
                tracing::warn!(%error, retry_in = %GoDuration(pause), "cannot reach the API server");
            }
        }
        tokio::select! {
            () = clock.sleep(pause) => {}
            () = shutdown.requested() => return None,
        }
        pause = (pause * 2).min(Duration::from_secs(30));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{Router, http::HeaderMap, routing::get};

    #[tokio::test]
    async fn says_who_it_is_and_does_not_retry() {
        let app = Router::new().route(
            "/version",
            get(async |headers: HeaderMap| {
                let agent = headers["user-agent"].to_str().unwrap().to_owned();
                (axum::http::StatusCode::TOO_MANY_REQUESTS, agent)
            }),
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let kubeconfig = serde_json::json!({
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
            "current-context": "c",
        });
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        let mut registry = Registry::default();
        let limit = RateLimit::from_flags(50.0, 100.0).unwrap();
        let _ring = rustls::crypto::ring::default_provider().install_default();
        let client = connect("updater", Some(&path), limit, &mut registry)
            .await
            .unwrap();
        let error = client.apiserver_version().await.unwrap_err();
        let expected = format!("outrigger-updater/{}", build::VERSION);
        assert!(error.to_string().contains(&expected), "{error}");
        let metrics = crate::daemon::metrics::encode(&registry).unwrap();
        assert!(
            metrics.contains("outrigger_client_requests_total{verb=\"GET\",code=\"429\"} 1\n"),
            "{metrics}"
        );
    }

    #[tokio::test]
    async fn says_what_to_do_without_a_cluster() {
        let mut registry = Registry::default();
        let missing = Path::new("/nonexistent/kubeconfig");
        let Err(error) = connect("updater", Some(missing), None, &mut registry).await else {
            panic!("connected to nothing");
        };
        let expected = "cannot use --kubeconfig /nonexistent/kubeconfig: ";
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
