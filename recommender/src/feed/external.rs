//! Usage from `external.metrics.k8s.io`, pod by pod of every VPA (`spec/vpa.md` 2.11).

use std::collections::BTreeMap;

use anyhow::Result;
use chrono::{DateTime, Utc};
use common::{
    api::k8s,
    quantity::{Bytes, MilliCpu, Quantity},
};
use futures::{StreamExt as _, stream};
use kube::Client;
use serde::Deserialize;

use super::{SampleCounts, Shared};
use crate::{cluster::Usage, form::form, history::ExternalConfig};

/// Which resource a metric is about.
#[derive(Clone, Copy, Debug)]
enum Resource {
    Cpu,
    Memory,
}

/// One question.
struct Query {
    namespace: String,
    pod: String,
    selector: String,
    metric: String,
    resource: Resource,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct List {
    items: Option<Vec<Item>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Item {
    metric_labels: BTreeMap<String, String>,
    timestamp: Option<k8s::Time>,
    value: Option<k8s::Quantity>,
}

/// Reads the usage of all pods of all VPAs.
///
/// # Errors
/// When a question was not answered; what the other answers said is in the model all the same.
pub(crate) async fn read(
    client: &Client,
    feed: &Shared,
    config: &ExternalConfig,
    workers: usize,
    now: DateTime<Utc>,
) -> Result<SampleCounts> {
    let queries = queries(feed, config);
    let mut answers = stream::iter(queries)
        .map(|query| async {
            let answer = ask(client, &query).await;
            (query, answer)
        })
        .buffer_unordered(workers);
    let mut counts = SampleCounts::default();
    let mut failed = Ok(());
    while let Some((query, answer)) = answers.next().await {
        match answer {
            Ok(list) => add(feed, config, &query, list, now, &mut counts),
            Err(error) => {
                let Query {
                    namespace,
                    pod,
                    metric,
                    ..
                } = &query;
                failed = Err(error.context(format!("asking for {metric} of {namespace}/{pod}")));
            }
        }
    }
    failed.map(|()| counts)
}

fn queries(feed: &Shared, config: &ExternalConfig) -> Vec<Query> {
    let metrics = [(&config.cpu, Resource::Cpu), (&config.memory, Resource::Memory)];
    let feed = feed.lock();
    let mut queries = Vec::new();
    for ((namespace, name), row) in &feed.vpas.ours {
        let Some(view) = feed.cluster.vpa(namespace, name) else {
            continue;
        };
        for pod in view.pod_names() {
            for (metric, resource) in metrics {
                let Some(metric) = metric else { continue };
                queries.push(Query {
                    namespace: namespace.clone(),
                    pod: pod.to_string(),
                    selector: format!("{},pod={pod}", row.selector),
                    metric: metric.clone(),
                    resource,
                });
            }
        }
    }
    queries
}

async fn ask(client: &Client, query: &Query) -> Result<List> {
    let Query {
        namespace,
        metric,
        selector,
        ..
    } = query;
    let selector = form(&[("labelSelector", selector.trim_start_matches(',').to_owned())]);
    let path = format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{metric}?{selector}");
    let request = http::Request::get(path).body(Vec::new())?;
    Ok(client.request(request).await?)
}

/// The time of the first item counts for all of them.
fn add(
    feed: &Shared,
    config: &ExternalConfig,
    query: &Query,
    list: List,
    now: DateTime<Utc>,
    counts: &mut SampleCounts,
) {
    let items = list.items.unwrap_or_default();
    let Some(time) = items.first().and_then(|item| item.timestamp.as_ref()) else {
        return;
    };
    let time = common::time::from_k8s(time);
    let mut feed = feed.lock();
    for item in &items {
        let container = item.metric_labels.get(&config.container_label);
        let value = item
            .value
            .as_ref()
            .and_then(|value| Quantity::try_from(value).ok());
        if let (Some(container), Some(value)) = (container, value) {
            let usage = match query.resource {
                Resource::Cpu => Usage::Cpu(MilliCpu::from_quantity(&value)),
                Resource::Memory => Usage::Memory(Bytes::from_quantity(&value)),
            };
            let id = (query.namespace.as_str(), query.pod.as_str(), container.as_str());
            counts.count(feed.cluster.add_sample(id, usage, time, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        feed::{Feed, resolve_targets},
        metrics::QualityMetrics,
        run::Config,
    };
    use common::{clock::Clock, kube::scale::Scales, kube::watch::Change};
    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::json;
    use std::sync::{Arc, Mutex};

    /// A client whose server has external metrics for container `app`, and none of one name; notes what was asked.
    fn client(asked: &Arc<Mutex<Vec<String>>>) -> Client {
        let asked = Arc::clone(asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().to_string();
            let code = if path.contains("broken") {
                StatusCode::INTERNAL_SERVER_ERROR
            } else {
                StatusCode::OK
            };
            let value = if path.contains("cpu") { "250m" } else { "300Mi" };
            let item = |container: &str| json!({"metricLabels": {"name": container}, "timestamp": "2026-03-01T12:00:00Z", "value": value});
            let body = json!({"kind": "ExternalMetricValueList", "items": [item("app"), item("unknown")]});
            asked.lock().unwrap().push(path);
            async move {
                let mut answer = Response::new(Body::from(body.to_string().into_bytes()));
                *answer.status_mut() = code;
                Ok::<_, std::convert::Infallible>(answer)
            }
        });
        Client::new(service, "default")
    }

    async fn feed(client: &Client) -> Shared {
        let config = Config::from_flags([]).unwrap();
        let settings = config.settings.clone();
        let recommender = config.recommender_name.clone();
        let feed = Shared::new(Feed::new(
            config.model,
            settings,
            recommender,
            false,
            QualityMetrics::default(),
        ));
        let vpa = json!({
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
        });
        feed.lock()
            .vpa(Change::Applied(serde_json::from_value(vpa).unwrap()));
        let deployment = json!({
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
        });
        let deployment: common::kube::watch::SlimSelecting<k8s::Deployment> =
            serde_json::from_value(deployment).unwrap();
        feed.lock().controller(Change::Applied(deployment));
        let pod = json!({
            "metadata": {"namespace": "shop", "name": "web-0", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "app"}]},
            "status": {"phase": "Running"},
        });
        let pod = serde_json::from_value(pod).unwrap();
        feed.lock().pod(Change::Applied(pod), now());
        resolve_targets(&feed, &mut Scales::new(client.clone(), Clock::system()), 1).await;
        feed
    }

    fn now() -> DateTime<Utc> {
        "2026-03-01T12:00:30Z".parse().unwrap()
    }

    fn config(cpu: &str, memory: &str) -> ExternalConfig {
        ExternalConfig {
            cpu: Some(cpu.to_owned()),
            memory: Some(memory.to_owned()),
            container_label: "name".to_owned(),
        }
    }

    #[tokio::test]
    async fn every_pod_is_asked_for_by_the_selector_of_its_vpa() {
        let asked = Arc::default();
        let client = client(&asked);
        let feed = feed(&client).await;
        let counts = read(&client, &feed, &config("cpu", "memory"), 1, now())
            .await
            .unwrap();
        assert_eq!((counts.accepted, counts.unknown), (2, 2));
        let path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop";
        assert_eq!(
            *asked.lock().unwrap(),
            ["cpu", "memory"].map(|metric| format!("{path}/{metric}?labelSelector=app%3Dweb%2Cpod%3Dweb-0"))
        );
        let history = feed.lock().cluster.vpa("shop", "web").unwrap().history("app");
        assert_eq!((history.samples, history.memory.is_empty()), (1, false));
    }

    #[tokio::test]
    async fn a_metric_that_cannot_be_had_is_an_error_and_the_others_count() {
        let asked = Arc::default();
        let client = client(&asked);
        let feed = feed(&client).await;
        let error = read(&client, &feed, &config("cpu", "broken"), 1, now())
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("asking for broken of shop/web-0"),
            "{error}"
        );
        let history = feed.lock().cluster.vpa("shop", "web").unwrap().history("app");
        assert_eq!((history.samples, history.memory.is_empty()), (1, true));
    }
}
