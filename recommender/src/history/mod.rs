//! Where usage from before the start comes from: checkpoints, or Prometheus.

pub mod prometheus;

use prometheus::PrometheusConfig;

/// Where usage from before the start comes from.
#[derive(Clone, Debug)]
pub enum HistoryConfig {
    /// Checkpoints, which are also written.
    Checkpoints,
    /// Prometheus; there are no checkpoints then.
    Prometheus(Box<PrometheusConfig>),
}

/// Usage from `external.metrics.k8s.io`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalConfig {
    /// The metric of CPU usage.
    pub cpu: Option<String>,
    /// The metric of memory usage.
    pub memory: Option<String>,
    /// The label of it that names the container.
    pub container_label: String,
}
