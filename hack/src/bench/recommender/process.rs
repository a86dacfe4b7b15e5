//! The recommender as it is installed: a program of its own, over loopback, in real time with a short interval.

use std::{path::Path, time::Duration};

use anyhow::{Result, bail, ensure};
use axum::{Router, body::to_bytes, extract::Request};
use common::clock::Clock;
use tokio::{net::TcpListener, runtime::Handle};

use super::{Figures, LOOPS, cluster::Cluster, cluster::Size, server::Server};
use crate::daemon::Process;

/// A loop of this many pods is over within a second.
const PODS_PER_SECOND: usize = 5_000;
const SHORTEST_INTERVAL: Duration = Duration::from_secs(6);
const POLL: Duration = Duration::from_millis(50);

/// Measures this program.
pub(super) async fn measure(size: Size, program: &Path, flags: &[String]) -> Result<Figures> {
    let server = Server::new(Cluster::new(size), Clock::system(), Handle::current());
    let url = serve(server.clone()).await?;
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, self::kubeconfig(&url))?;
    let seconds = u64::try_from(size.pods.div_ceil(PODS_PER_SECOND))?;
    let interval = Duration::from_secs(seconds).max(SHORTEST_INTERVAL);
    let timing = [
        "--feature-gates=NativeSidecar=true".to_owned(),
        "--kube-api-qps=-1".to_owned(),
        format!("--recommender-interval={}s", interval.as_secs()),
        // Each is written once in the loops that are measured.
        format!("--checkpoint-max-age={}s", (interval * LOOPS).as_secs()),
    ];
    let flags: Vec<&str> = timing.iter().chain(flags).map(String::as_str).collect();
    let mut daemon = Process::start_program(program, &kubeconfig, &flags).await?;
    // To list a large cluster takes longer than a daemon has to start.
    while let Err(error) = daemon.ready().await {
        ensure!(daemon.is_running()?, error);
    }
    let process = daemon.taken()?;
    let loaded = process.cpu_seconds()?;
    until_turn(&server, 2).await?;
    let (first, before) = (process.cpu_seconds()?, server.writes());
    for turn in 0..u64::from(LOOPS) {
        server.roll(size.pods / 125).await?;
        until_turn(&server, turn + 3).await?;
    }
    let (all, after) = (process.cpu_seconds()?, server.writes());
    let peak_mib = process.peak_mib()?;
    if let Some(request) = server.unknown() {
        bail!("the made-up server has no answer to {request}");
    }
    ensure!(daemon.stop().await?.success(), "the recommender did not end well");
    Figures::new(size, peak_mib, [loaded, first, all], None, [before, after])
}

/// Waits until the usage of pods was read this often: the loop before that is over.
async fn until_turn(server: &Server, turns: u64) -> Result<()> {
    while server.turns() < turns {
        if let Some(request) = server.unknown() {
            bail!("the made-up server has no answer to {request}");
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

async fn serve(server: Server) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let answer = async move |request: Request| {
        let (parts, body) = request.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
        server.answer(
            &parts.method,
            parts.uri.path(),
            parts.uri.query().unwrap_or_default(),
            &body,
        )
    };
    tokio::spawn(axum::serve(listener, Router::new().fallback(answer)).into_future());
    Ok(url)
}

fn kubeconfig(url: &str) -> String {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": url}}],
        "users": [{"name": "bench", "user": {}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    })
    .to_string()
}
