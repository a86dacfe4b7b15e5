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
