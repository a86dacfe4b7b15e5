//! The flags that say where usage comes from: the history at the start, and metrics while running.

use std::{path::PathBuf, time::Duration};

use common::{
    daemon::{ArgsError, GoBool, GoDuration},
    quirks::{Quirk, Quirks},
};

use super::invalid;
use crate::history::{
    ExternalConfig, HistoryConfig,
    prometheus::{Credentials, Labels, PrometheusConfig, PrometheusDuration},
};

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "History")]
pub(super) struct HistoryArgs {
    /// Where the history comes from: prometheus, or checkpoints for anything else
    #[arg(long, default_value = "", value_name = "NAME")]
    storage: String,
    /// Where Prometheus is
    #[arg(long, default_value = "http://prometheus.monitoring.svc", value_name = "URL")]
    prometheus_address: String,
    /// Do not check Prometheus' certificate
    #[arg(long, default_value_t)]
    prometheus_insecure: GoBool,
    /// The job that scrapes container usage; empty means any
    #[arg(long, default_value = "kubernetes-cadvisor", value_name = "NAME")]
    prometheus_cadvisor_job_name: String,
    /// How far back to look
    #[arg(long, default_value = "8d", value_name = "DURATION")]
    history_length: PrometheusDuration,
    /// How far samples are apart
    #[arg(long, default_value = "1h", value_name = "DURATION")]
    history_resolution: PrometheusDuration,
    /// The metric of CPU usage
    #[arg(
        long,
        default_value = "container_cpu_usage_seconds_total",
        value_name = "NAME"
    )]
    history_cpu_metric: String,
    /// The metric of memory usage
    #[arg(
        long,
        default_value = "container_memory_working_set_bytes",
        value_name = "NAME"
    )]
    history_memory_metric: String,
    /// How long one query may take
    #[arg(long, default_value_t = GoDuration(Duration::from_secs(300)), value_name = "DURATION")]
    prometheus_query_timeout: GoDuration,
    /// What comes before a pod's label in a metric's
    #[arg(long, default_value = "pod_label_", value_name = "PREFIX")]
    pod_label_prefix: String,
    /// The query whose result carries the labels of pods
    #[arg(long, default_value = "up{job=\"kubernetes-pods\"}", value_name = "QUERY")]
    metric_for_pod_labels: String,
    /// The label with a pod's namespace, there
    #[arg(long, default_value = "kubernetes_namespace", value_name = "LABEL")]
    pod_namespace_label: String,
    /// The label with a pod's name, there
    #[arg(long, default_value = "kubernetes_pod_name", value_name = "LABEL")]
    pod_name_label: String,
    /// The label with a container's namespace in metrics of usage
    #[arg(long, default_value = "namespace", value_name = "LABEL")]
    container_namespace_label: String,
    /// The label with a container's pod in metrics of usage
    #[arg(long, default_value = "pod_name", value_name = "LABEL")]
    container_pod_name_label: String,
    /// The label with a container's name in metrics of usage, external ones too
    #[arg(long, default_value = "name", value_name = "LABEL")]
    container_name_label: String,
    /// The user for Prometheus
    #[arg(long, default_value = "", value_name = "NAME")]
    username: String,
    /// The password for Prometheus
    #[arg(long, default_value = "", value_name = "TEXT")]
    password: String,
    /// The bearer token for Prometheus
    #[arg(long, default_value = "", value_name = "TOKEN")]
    prometheus_bearer_token: String,
    /// The file with the bearer token for Prometheus
    #[arg(long, default_value = "", value_name = "FILE")]
    prometheus_bearer_token_file: String,
    /// Take usage from external metrics instead of metrics.k8s.io; alpha
    #[arg(long, default_value_t)]
    use_external_metrics: GoBool,
    /// The external metric of CPU usage
    #[arg(long, default_value = "", value_name = "NAME")]
    external_metrics_cpu_metric: String,
    /// The external metric of memory usage
    #[arg(long, default_value = "", value_name = "NAME")]
    external_metrics_memory_metric: String,
}

impl HistoryArgs {
    pub(super) fn resolve(
        self,
        quirks: Quirks,
    ) -> Result<(HistoryConfig, Option<ExternalConfig>), ArgsError> {
        let Self {
            storage,
            prometheus_address,
            prometheus_insecure,
            prometheus_cadvisor_job_name,
            history_length,
            history_resolution,
            history_cpu_metric,
            history_memory_metric,
            prometheus_query_timeout,
            pod_label_prefix,
            metric_for_pod_labels,
            pod_namespace_label,
            pod_name_label,
            container_namespace_label,
            container_pod_name_label,
            container_name_label,
            username,
            password,
            prometheus_bearer_token,
            prometheus_bearer_token_file,
            use_external_metrics,
            external_metrics_cpu_metric,
            external_metrics_memory_metric,
        } = self;
        let given = |text: &str| !text.is_empty();
        let env = |name| std::env::var(name).unwrap_or_default();
        let (env_username, env_password) = (env("PROMETHEUS_USERNAME"), env("PROMETHEUS_PASSWORD"));
        let ways = [&prometheus_bearer_token, &prometheus_bearer_token_file, &username];
        let count = ways.into_iter().filter(|text| given(text)).count();
        let most = if quirks.has(Quirk::LaxPrometheusAuth) {
            2
        } else {
            1
        };
        if count > most {
            return Err(invalid(
                "prometheus-bearer-token",
                "give only one of --prometheus-bearer-token, --prometheus-bearer-token-file and --username",
            ));
        }
        let credentials = if given(&prometheus_bearer_token_file) {
            let file = PathBuf::from(&prometheus_bearer_token_file);
            let token = std::fs::read_to_string(&file).map_err(|error| {
                invalid("prometheus-bearer-token-file", format!("cannot read it: {error}"))
            })?;
            Credentials::Bearer(token.trim().to_owned())
        } else if given(&prometheus_bearer_token) {
            Credentials::Bearer(prometheus_bearer_token)
        } else if given(&username) && given(&password) {
            Credentials::Basic { username, password }
        } else if given(&env_username) && given(&env_password) {
            Credentials::Basic {
                username: env_username,
                password: env_password,
            }
        } else {
            Credentials::None
        };
        let external = use_external_metrics.0.then(|| ExternalConfig {
            cpu: Some(external_metrics_cpu_metric).filter(|name| given(name)),
            memory: Some(external_metrics_memory_metric).filter(|name| given(name)),
            container_label: container_name_label.clone(),
        });
        if storage != "prometheus" {
            return Ok((HistoryConfig::Checkpoints, external));
        }
        let config = PrometheusConfig {
            address: prometheus_address,
            insecure: prometheus_insecure.0,
            credentials,
            timeout: prometheus_query_timeout.0,
            job: prometheus_cadvisor_job_name,
            length: history_length,
            resolution: history_resolution,
            cpu_metric: history_cpu_metric,
            memory_metric: history_memory_metric,
            labels_query: metric_for_pod_labels,
            labels: Labels {
                pod_prefix: pod_label_prefix,
                pod_namespace: pod_namespace_label,
                pod_name: pod_name_label,
                container_namespace: container_namespace_label,
                container_pod: container_pod_name_label,
                container_name: container_name_label,
            },
            matrix_only: quirks.has(Quirk::MatrixLabelsOnly),
        };
        Ok((HistoryConfig::Prometheus(Box::new(config)), external))
    }
}
