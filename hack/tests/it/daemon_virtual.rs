//! The daemons inside this process, in virtual time: the way in which scenarios run them.

use std::time::Duration;

use common::{
    clock::VirtualClock,
    daemon::{Context, DaemonError, Settings, Shutdown},
    kube::lease::LeaseSettings,
};
use hack::sandbox::{Sandbox, install_crds};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::{net::TcpListener, task::JoinHandle};

struct Bench {
    time: VirtualClock,
    sandbox: Sandbox,
}

struct Daemon {
    shutdown: Shutdown,
    running: JoinHandle<Result<(), DaemonError>>,
    url: String,
}

impl Bench {
    async fn start() -> Self {
        let (sandbox, time) = crate::sandbox::at_noon().await;
        install_crds(sandbox.api()).await.unwrap();
        Self { time, sandbox }
    }

    async fn recommender(&self) -> Daemon {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shutdown = Shutdown::new();
        let mut context = Context::new(
            self.sandbox.client().unwrap(),
            self.time.clock(),
            shutdown.clone(),
        );
        context.admin = Some(listener);
        let config = recommender::Config {
            leader_election: Some(LeaseSettings {
                namespace: "kube-system".to_owned(),
                name: "vpa-recommender-lease".to_owned(),
                duration: Duration::from_secs(15),
                renew_deadline: Duration::from_secs(10),
                retry_period: Duration::from_secs(2),
            }),
            ..recommender::Config::from_flags([]).unwrap()
        };
        let running = tokio::spawn(recommender::run(config, context));
        let daemon = Daemon {
            shutdown,
            running,
            url,
        };
        daemon.says("/readyz", "ok").await;
        daemon
    }

    async fn lease(&self) -> Lease {
        let api: Api<Lease> = Api::namespaced(self.sandbox.client().unwrap(), "kube-system");
        api.get("vpa-recommender-lease").await.unwrap()
    }

    async fn pass(&self, seconds: u64) {
        for _ in 0..seconds {
            self.time.advance(Duration::from_secs(1)).await;
        }
        self.time.idle().await;
    }
}

impl Daemon {
    async fn get(&self, path: &str) -> String {
        let answer = hack::http::get(&format!("{}{path}", self.url)).await.unwrap();
        answer.text().await.unwrap()
    }

    async fn says(&self, path: &str, expected: &str) {
        let asking = async {
            while !self.get(path).await.contains(expected) {
                tokio::task::yield_now().await;
            }
        };
        let said = tokio::time::timeout(Duration::from_secs(120), asking).await;
        said.unwrap_or_else(|_| panic!("{path} never said {expected:?}"));
    }

    async fn leads(&self) {
        self.says("/metrics", "vpa-recommender-lease\"} 1").await;
    }
}

#[tokio::test]
async fn minutes_pass_and_the_lease_is_kept_and_handed_over() {
    let bench = Bench::start().await;
    let first = bench.recommender().await;
    first.leads().await;
    let second = bench.recommender().await;
    bench.pass(300).await;
    first.says("/health-check", "OK").await;
    first.leads().await;
    second.says("/metrics", "vpa-recommender-lease\"} 0").await;
    let renewed = bench.lease().await.spec.unwrap().renew_time.unwrap();
    let age = bench.time.now() - common::time::from_k8s_micro(&renewed);
    assert!(age.num_seconds() <= 2, "renewed in virtual time, {age} ago");

    // Killed: the other leads when the lease has run out in virtual time.
    first.running.abort();
    assert!(first.running.await.unwrap_err().is_cancelled());
    bench.pass(15 + 5).await;
    second.leads().await;

    second.shutdown.request();
    second.running.await.unwrap().unwrap();
    let spec = bench.lease().await.spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some(""));
    assert_eq!(spec.lease_transitions, Some(1));
}

#[tokio::test]
async fn all_three_run_in_one_process() {
    let bench = Bench::start().await;
    let shutdown = Shutdown::new();
    let context = || {
        Context::new(
            bench.sandbox.client().unwrap(),
            bench.time.clock(),
            shutdown.clone(),
        )
    };
    let updater = updater::Config::from_flags([]).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let admission = admission::Config::local(Settings::default().gates, listener).unwrap();
    let updater = tokio::spawn(updater::run(updater, context()));
    let admission = tokio::spawn(admission::run(admission, context()));
    let recommender = bench.recommender().await;
    bench.pass(300).await;
    recommender.says("/health-check", "OK").await;
    shutdown.request();
    updater.await.unwrap().unwrap();
    admission.await.unwrap().unwrap();
    recommender.shutdown.request();
    recommender.running.await.unwrap().unwrap();
}
