//! Usage from Prometheus, read once at the start (`spec/vpa.md` 2.11): range queries for CPU and memory, and one query
//! for the labels of pods, whose answer may be an instant vector or a matrix.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    str::FromStr,
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use http::header::CONTENT_TYPE;
use serde::Deserialize;

use crate::form::form;

/// How Prometheus is asked.
#[derive(Clone, PartialEq)]
pub struct PrometheusConfig {
    /// Where it is.
    pub address: String,
    /// Its certificate is not checked.
    pub insecure: bool,
    /// Who we are.
    pub credentials: Credentials,
    /// How long one query may take.
    pub timeout: Duration,
    /// The job that scrapes container usage; empty means any.
    pub job: String,
    /// How far back to look.
    pub length: PrometheusDuration,
    /// How far samples are apart.
    pub resolution: PrometheusDuration,
    /// The metric of CPU usage.
    pub cpu_metric: String,
    /// The metric of memory usage.
    pub memory_metric: String,
    /// The query whose result carries the labels of pods.
    pub labels_query: String,
    /// What is found under which label.
    pub labels: Labels,
    /// Labels of pods must come as a matrix, as VPA wants them (Q11).
    pub matrix_only: bool,
}

impl fmt::Debug for PrometheusConfig {
    /// Without the credentials, which have no place in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrometheusConfig")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// Who we are to Prometheus.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// Nobody in particular.
    None,
    /// The holder of a token.
    Bearer(String),
    /// A user.
    Basic {
        /// Name.
        username: String,
        /// Password.
        password: String,
    },
}

/// What is found under which label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// What comes before a pod's label.
    pub pod_prefix: String,
    /// A pod's namespace, in the query for labels.
    pub pod_namespace: String,
    /// A pod's name, there.
    pub pod_name: String,
    /// A container's namespace, in metrics of usage.
    pub container_namespace: String,
    /// A container's pod, there.
    pub container_pod: String,
    /// A container's name, there.
    pub container_name: String,
}

/// A duration as Prometheus writes it: `8d`, `1h30m`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrometheusDuration {
    text: String,
    length: TimeDelta,
}

impl FromStr for PrometheusDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text:?} is no duration: write for example 8d, 1h or 1h30m");
        let mut rest = text;
        let mut length = TimeDelta::zero();
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(invalid)?;
            let (number, tail) = rest.split_at(digits);
            let end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(end);
            let unit = match unit {
                "ms" => TimeDelta::milliseconds(1),
                "s" => TimeDelta::seconds(1),
                "m" => TimeDelta::minutes(1),
                "h" => TimeDelta::hours(1),
                "d" => TimeDelta::days(1),
                "w" => TimeDelta::weeks(1),
                "y" => TimeDelta::days(365),
                _ => return Err(invalid()),
            };
            let number: i32 = number.parse().map_err(|_| invalid())?;
            let part = unit.checked_mul(number).ok_or_else(invalid)?;
            length = length.checked_add(&part).ok_or_else(invalid)?;
            rest = tail;
        }
        if length <= TimeDelta::zero() {
            return Err(invalid());
        }
        Ok(Self {
            text: text.to_owned(),
            length,
        })
    }
}

impl fmt::Display for PrometheusDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why there is no history.
#[derive(Debug, thiserror::Error)]
pub enum PrometheusError {
    /// The client cannot be made, or nobody answers.
    #[error("cannot ask prometheus at {address}: {source}")]
    Request {
        /// Where.
        address: String,
        /// Why not.
        source: reqwest::Error,
    },
    /// It answers something else than results.
    #[error("prometheus answered {status} to {query:?}: {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What was asked.
        query: String,
        /// What it says.
        message: String,
    },
    /// The labels of pods came as a vector, and only a matrix is wanted.
    #[error("expected the labels of pods as a matrix: add a range to --metric-for-pod-labels")]
    NoMatrix,
}

/// What Prometheus knows of one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodHistory {
    /// Its labels, when last seen.
    pub labels: BTreeMap<String, String>,
    /// The usage of its containers.
    pub containers: BTreeMap<String, ContainerHistory>,
}

/// The usage of one container, by time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerHistory {
    /// Cores.
    pub cpu: Samples,
    /// Bytes.
    pub memory: Samples,
}

/// When, and how much.
pub type Samples = Vec<(DateTime<Utc>, f64)>;

/// Namespace and name.
pub type PodKey = (String, String);

/// Reads the history of all pods, or of those of one namespace.
///
/// # Errors
/// When one of the queries fails: half a history would be taken for a whole one.
pub async fn read(
    config: &PrometheusConfig,
    namespace: Option<&str>,
    now: DateTime<Utc>,
    metrics: &crate::metrics::Metrics,
) -> Result<HashMap<PodKey, PodHistory>, PrometheusError> {
    let client = Client::new(config, metrics)?;
    let selector = selector(config, namespace);
    let resolution = &config.resolution;
    let cpu = format!("rate({}{{{selector}}}[{resolution}])", config.cpu_metric);
    let memory = format!("{}{{{selector}}}", config.memory_metric);
    let mut pods = HashMap::new();
    add_usage(
        &mut pods,
        client.range(&cpu, now).await?,
        &config.labels,
        |container| &mut container.cpu,
    );
    add_usage(
        &mut pods,
        client.range(&memory, now).await?,
        &config.labels,
        |container| &mut container.memory,
    );
    let labels = client.instant(&config.labels_query, now).await?;
    if config.matrix_only && labels.result_type != "matrix" {
        return Err(PrometheusError::NoMatrix);
    }
    add_labels(&mut pods, labels, &config.labels);
    Ok(pods)
}

fn selector(config: &PrometheusConfig, namespace: Option<&str>) -> String {
    let Labels {
        container_pod,
        container_name,
        container_namespace,
        ..
    } = &config.labels;
    let mut selector = String::new();
    if !config.job.is_empty() {
        selector = format!("job=\"{}\", ", config.job);
    }
    selector += &format!("{container_pod}=~\".+\", {container_name}!=\"POD\", {container_name}!=\"\"");
    if let Some(namespace) = namespace {
        selector += &format!(", {container_namespace}=\"{namespace}\"");
    }
    selector
}

fn add_usage(
    pods: &mut HashMap<PodKey, PodHistory>,
    data: Data,
    labels: &Labels,
    samples: fn(&mut ContainerHistory) -> &mut Samples,
) {
    for series in data.result {
        let label = |name: &str| series.metric.get(name).cloned().unwrap_or_default();
        let key = (label(&labels.container_namespace), label(&labels.container_pod));
        let pod = pods.entry(key).or_default();
        let container = pod.containers.entry(label(&labels.container_name)).or_default();
        let list = samples(container);
        list.extend(series.samples());
        list.sort_by_key(|(time, _)| *time);
    }
}

/// The labels of a pod are those it had when last seen.
fn add_labels(pods: &mut HashMap<PodKey, PodHistory>, data: Data, labels: &Labels) {
    let mut latest: HashMap<PodKey, DateTime<Utc>> = HashMap::new();
    for series in data.result {
        let Some(time) = series.samples().map(|(time, _)| time).max() else {
            continue;
        };
        let label = |name: &str| series.metric.get(name).cloned().unwrap_or_default();
        let key = (label(&labels.pod_namespace), label(&labels.pod_name));
        let Some(pod) = pods.get_mut(&key) else { continue };
        if latest.get(&key).is_some_and(|seen| *seen > time) {
            continue;
        }
        latest.insert(key, time);
        let prefixed = series.metric.iter().filter_map(|(name, value)| {
            let name = name.strip_prefix(labels.pod_prefix.as_str())?;
            Some((name.to_owned(), value.clone()))
        });
        pod.labels = prefixed.collect();
    }
}

/// Asks Prometheus.
struct Client<'c> {
    config: &'c PrometheusConfig,
    http: reqwest::Client,
    metrics: &'c crate::metrics::Metrics,
}

impl<'c> Client<'c> {
    fn new(
        config: &'c PrometheusConfig,
        metrics: &'c crate::metrics::Metrics,
    ) -> Result<Self, PrometheusError> {
        let http = reqwest::Client::builder()
            .timeout(config.timeout)
            .tls_danger_accept_invalid_certs(config.insecure)
            .build()
            .map_err(|source| failed(config, source))?;
        Ok(Self {
            config,
            http,
            metrics,
        })
    }

    async fn range(&self, query: &str, now: DateTime<Utc>) -> Result<Data, PrometheusError> {
        let step = self.config.resolution.length;
        let parameters = [
            ("query", query.to_owned()),
            ("start", seconds(now - self.config.length.length)),
            ("end", seconds(now)),
            ("step", seconds(DateTime::UNIX_EPOCH + step)),
        ];
        self.ask("query_range", query, &parameters).await
    }

    async fn instant(&self, query: &str, now: DateTime<Utc>) -> Result<Data, PrometheusError> {
        let parameters = [("query", query.to_owned()), ("time", seconds(now))];
        self.ask("query", query, &parameters).await
    }

    async fn ask(
        &self,
        path: &str,
        query: &str,
        parameters: &[(&str, String)],
    ) -> Result<Data, PrometheusError> {
        let url = format!("{}/api/v1/{path}", self.config.address.trim_end_matches('/'));
        let mut request = self
            .http
            .post(url)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form(parameters));
        request = match &self.config.credentials {
            Credentials::None => request,
            Credentials::Bearer(token) => request.bearer_auth(token),
            Credentials::Basic { username, password } => request.basic_auth(username, Some(password)),
        };
        let started = tokio::time::Instant::now();
        let response = request
            .send()
            .await
            .map_err(|source| failed(self.config, source))?;
        let status = response.status().as_u16();
        self.metrics.prometheus_request(status, started.elapsed());
        let body = response
            .text()
            .await
            .map_err(|source| failed(self.config, source))?;
        let refused = |message: String| PrometheusError::Refused {
            status,
            query: query.to_owned(),
            message,
        };
        let answer: Answer = serde_json::from_str(&body).map_err(|error| refused(error.to_string()))?;
        match answer.data {
            Some(data) if answer.status == "success" => Ok(data),
            _ => Err(refused(answer.error)),
        }
    }
}

fn failed(config: &PrometheusConfig, source: reqwest::Error) -> PrometheusError {
    PrometheusError::Request {
        address: config.address.clone(),
        source: source.without_url(),
    }
}

/// Seconds since 1970 with three decimals.
fn seconds(time: DateTime<Utc>) -> String {
    format!("{}.{:03}", time.timestamp(), time.timestamp_subsec_millis())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    status: String,
    error: String,
    data: Option<Data>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Data {
    result_type: String,
    result: Vec<Series>,
}

/// A series of a matrix, or an entry of an instant vector.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Series {
    metric: BTreeMap<String, String>,
    values: Vec<(f64, String)>,
    value: Option<(f64, String)>,
}

impl Series {
    /// The samples that are numbers.
    fn samples(&self) -> impl Iterator<Item = (DateTime<Utc>, f64)> + '_ {
        self.values.iter().chain(&self.value).filter_map(|(time, value)| {
            let millis = crate::num::trunc(time * 1000.0);
            let value: f64 = value.parse().ok().filter(|value: &f64| value.is_finite())?;
            Some((DateTime::from_timestamp_millis(millis)?, value))
        })
    }
}

#[cfg(test)]
mod tests;
