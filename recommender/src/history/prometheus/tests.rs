use super::*;
use serde_json::json;

fn data(json: serde_json::Value) -> Data {
    serde_json::from_value(json).unwrap()
}

fn labels() -> Labels {
    Labels {
        pod_prefix: "pod_label_".to_owned(),
        pod_namespace: "kubernetes_namespace".to_owned(),
        pod_name: "kubernetes_pod_name".to_owned(),
        container_namespace: "namespace".to_owned(),
        container_pod: "pod_name".to_owned(),
        container_name: "name".to_owned(),
    }
}

#[test]
fn durations_are_read_as_prometheus_writes_them() {
    for (text, seconds) in [
        ("8d", 691_200),
        ("1h", 3_600),
        ("1h30m", 5_400),
        ("2w", 1_209_600),
    ] {
        let duration: PrometheusDuration = text.parse().unwrap();
        assert_eq!(duration.length, TimeDelta::seconds(seconds), "{text}");
        assert_eq!(duration.to_string(), text);
    }
    for text in ["", "8", "d", "8 d", "0s", "99999999999y", "-1h"] {
        assert!(text.parse::<PrometheusDuration>().is_err(), "{text}");
    }
}

#[test]
fn usage_is_put_together_by_pod_and_container_in_order_of_time() {
    let series = json!({"resultType": "matrix", "result": [
        {"metric": {"namespace": "shop", "pod_name": "web-0", "name": "web"},
         "values": [[20, "0.5"], [10, "0.25"], [30, "NaN"]]},
    ]});
    let mut pods = HashMap::new();
    add_usage(&mut pods, data(series), &labels(), |container| &mut container.cpu);
    let at = |seconds| DateTime::from_timestamp(seconds, 0).unwrap();
    let pod = &pods[&("shop".to_owned(), "web-0".to_owned())];
    assert_eq!(pod.containers["web"].cpu, [(at(10), 0.25), (at(20), 0.5)]);
}

#[test]
fn labels_come_from_a_vector_or_from_the_latest_series_of_a_matrix() {
    let metric = |version: &str| {
        json!({"kubernetes_namespace": "shop", "kubernetes_pod_name": "web-0", "job": "kubernetes-pods",
               "pod_label_app": "web", "pod_label_version": version})
    };
    let vector = json!({"resultType": "vector", "result": [{"metric": metric("2"), "value": [30, "1"]}]});
    let matrix = json!({"resultType": "matrix", "result": [
        {"metric": metric("2"), "values": [[20, "1"], [30, "1"]]},
        {"metric": metric("1"), "values": [[10, "1"]]},
    ]});
    for answer in [vector, matrix] {
        let mut pods = HashMap::from([(("shop".to_owned(), "web-0".to_owned()), PodHistory::default())]);
        add_labels(&mut pods, data(answer), &labels());
        let pod = &pods[&("shop".to_owned(), "web-0".to_owned())];
        let expected = [("app", "web"), ("version", "2")];
        assert_eq!(
            pod.labels,
            expected
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into()
        );
    }
}

/// A Prometheus of two routes that notes who asked for what.
mod server {
    use super::*;
    use axum::{Router, body::Bytes, extract::State, http::HeaderMap, routing::post};
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    pub(super) struct Server {
        /// `Authorization` and the decoded form, in order.
        pub(super) asked: Arc<Mutex<Vec<(String, String)>>>,
        pub(super) labels: String,
        /// It takes this long, and this long only if nobody gives up.
        pub(super) slow: Duration,
    }

    impl Server {
        pub(super) async fn start(self) -> String {
            let router = Router::new()
                .route("/api/v1/query_range", post(Self::range))
                .route("/api/v1/query", post(Self::instant))
                .with_state(self);
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(async move { axum::serve(listener, router).await });
            format!("http://{address}/")
        }

        async fn note(&self, headers: &HeaderMap, body: &Bytes) -> String {
            let form = std::str::from_utf8(body).unwrap().to_owned();
            let who = headers
                .get("authorization")
                .map_or("", |value| value.to_str().unwrap());
            self.asked.lock().unwrap().push((who.to_owned(), form.clone()));
            tokio::time::sleep(self.slow).await;
            form
        }

        async fn range(State(server): State<Self>, headers: HeaderMap, body: Bytes) -> String {
            let form = server.note(&headers, &body).await;
            let value = if form.starts_with("query=rate") {
                "0.5"
            } else {
                "1000000"
            };
            json!({"status": "success", "data": {"resultType": "matrix", "result": [{
                "metric": {"namespace": "shop", "pod_name": "web-0", "name": "web"}, "values": [[1_772_366_400, value]],
            }]}})
            .to_string()
        }

        async fn instant(State(server): State<Self>, headers: HeaderMap, body: Bytes) -> String {
            server.note(&headers, &body).await;
            server.labels
        }
    }
}

use server::Server;

fn vector() -> String {
    json!({"status": "success", "data": {"resultType": "vector", "result": [{
        "metric": {"kubernetes_namespace": "shop", "kubernetes_pod_name": "web-0", "pod_label_app": "web"},
        "value": [1_772_366_400, "1"],
    }]}})
    .to_string()
}

fn matrix() -> String {
    vector()
        .replace("\"vector\"", "\"matrix\"")
        .replace("\"value\":[1772366400,\"1\"]", "\"values\":[[1772366400,\"1\"]]")
}

fn config(address: &str, flags: &[&str]) -> PrometheusConfig {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let address = format!("--prometheus-address={address}");
    let all = ["--storage=prometheus", &address]
        .into_iter()
        .chain(flags.iter().copied());
    let config = crate::run::Config::from_flags(all).unwrap();
    match config.history {
        crate::history::HistoryConfig::Prometheus(config) => *config,
        crate::history::HistoryConfig::Checkpoints => panic!("the flags ask for Prometheus"),
    }
}

async fn asked(
    server: &Server,
    flags: &[&str],
    namespace: Option<&str>,
) -> (Result<HashMap<PodKey, PodHistory>, String>, String) {
    let config = config(&server.clone().start().await, flags);
    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = crate::metrics::Metrics::register(&mut registry);
    let now = "2026-03-01T12:00:00Z".parse().unwrap();
    let history = read(&config, namespace, now, &metrics).await;
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    (history.map_err(|error| error.to_string()), text)
}

#[tokio::test]
async fn history_comes_over_http_with_labels_as_vector_or_matrix() {
    let at: DateTime<Utc> = "2026-03-01T12:00:00Z".parse().unwrap();
    let container = ContainerHistory {
        cpu: vec![(at, 0.5)],
        memory: vec![(at, 1_000_000.0)],
    };
    let pod = PodHistory {
        labels: BTreeMap::from([("app".to_owned(), "web".to_owned())]),
        containers: BTreeMap::from([("web".to_owned(), container)]),
    };
    let expected = HashMap::from([(("shop".to_owned(), "web-0".to_owned()), pod)]);
    for labels in [vector(), matrix()] {
        let server = Server {
            labels,
            ..Server::default()
        };
        let (history, metrics) = asked(&server, &[], Some("shop")).await;
        assert_eq!(history, Ok(expected.clone()));
        let counted = r#"vpa_recommender_prometheus_client_api_requests_count{code="200",method="POST"} 3"#;
        assert!(metrics.contains(counted), "{metrics}");
        let asked = server.asked.lock().unwrap().clone();
        let form = crate::form::form(&[
            (
                "query",
                "rate(container_cpu_usage_seconds_total{job=\"kubernetes-cadvisor\", pod_name=~\".+\", name!=\"POD\", \
                 name!=\"\", namespace=\"shop\"}[1h])"
                    .to_owned(),
            ),
            ("start", "1771675200.000".to_owned()),
            ("end", "1772366400.000".to_owned()),
            ("step", "3600.000".to_owned()),
        ]);
        assert_eq!(asked[0], (String::new(), form));
    }
    // VPA wants a matrix (Q11).
    let server = Server {
        labels: vector(),
        ..Server::default()
    };
    let (history, _) = asked(&server, &["--quirks=Q11"], None).await;
    assert!(
        history
            .unwrap_err()
            .contains("add a range to --metric-for-pod-labels")
    );
}

#[tokio::test]
async fn prometheus_is_told_who_asks() {
    let folder = std::env::temp_dir();
    let file = folder.join(format!("outrigger-token-{}", std::process::id()));
    std::fs::write(&file, " from-file\n").unwrap();
    let token_file = format!("--prometheus-bearer-token-file={}", file.display());
    for (flags, expected) in [
        (&["--prometheus-bearer-token=secret"][..], "Bearer secret"),
        (&[token_file.as_str()], "Bearer from-file"),
        (&["--username=me", "--password=pass"], "Basic bWU6cGFzcw=="),
        (&[], ""),
    ] {
        let server = Server {
            labels: vector(),
            ..Server::default()
        };
        let (history, _) = asked(&server, flags, None).await;
        history.unwrap();
        let asked = server.asked.lock().unwrap();
        assert!(asked.iter().all(|(who, _)| who == expected), "{asked:?}");
    }
    std::fs::remove_file(&file).unwrap();
}

#[tokio::test]
async fn what_is_no_history_is_an_error_and_not_an_empty_history() {
    let refused = Server {
        labels: json!({"status": "error", "error": "query processing would load too many samples"})
            .to_string(),
        ..Server::default()
    };
    let (history, _) = asked(&refused, &[], None).await;
    assert!(history.unwrap_err().contains("would load too many samples"));

    let other = Server {
        labels: "<html>".to_owned(),
        ..Server::default()
    };
    let (history, _) = asked(&other, &[], None).await;
    assert!(history.unwrap_err().contains("prometheus answered 200"));

    let slow = Server {
        slow: Duration::from_secs(3600),
        ..Server::default()
    };
    let (history, _) = asked(&slow, &["--prometheus-query-timeout=50ms"], None).await;
    assert!(history.unwrap_err().contains("cannot ask prometheus"));

    let nobody = config("http://127.0.0.1:1", &[]);
    let metrics = crate::metrics::Metrics::register(&mut prometheus_client::registry::Registry::default());
    let now = DateTime::UNIX_EPOCH + TimeDelta::days(100);
    let error = read(&nobody, None, now, &metrics).await.unwrap_err().to_string();
    assert!(
        error.contains("cannot ask prometheus at http://127.0.0.1:1"),
        "{error}"
    );
}
