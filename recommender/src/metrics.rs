//! The recommender's metrics under VPA's names (`spec/vpa.md` 5.2), and a few of our own.

use std::time::Duration;

use common::{
    api::{OpenEnum as _, vpa::UpdateMode},
    daemon::metrics::{BareCounter, sample},
};
mod quality;

pub(crate) use quality::QualityMetrics;

use common::pod::{Kind, Source};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

/// Latencies of loops.
const LOOP_SECONDS: [f64; 23] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0,
    100.0, 120.0, 150.0, 240.0, 300.0,
];
/// Latencies of requests.
const REQUEST_SECONDS: [f64; 21] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0,
    120.0, 300.0,
];
/// From the creation of a VPA to its first recommendation.
const FIRST_SECONDS: [f64; 19] = [
    1.0, 2.0, 5.0, 7.5, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 90.0, 120.0, 150.0, 180.0, 240.0, 300.0, 600.0,
    900.0, 1800.0,
];
/// Relative differences.
const RELATIVE: [f64; 29] = [
    -1.0, -0.75, -0.5, -0.25, -0.1, -0.05, -0.025, -0.01, -0.005, -0.0025, -0.001, 0.0, 0.001, 0.0025, 0.005,
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0,
];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// All of them. Cloning gives other handles to the same.
#[derive(Clone, Debug)]
pub struct Metrics {
    objects: Family<ObjectLabels, Gauge>,
    first_recommendation: Histogram,
    steps: Histograms<StepLabel>,
    aggregates: Gauge,
    responses: Family<ResponseLabels, BareCounter>,
    prometheus_requests: Family<PrometheusLabels, BareCounter>,
    prometheus_seconds: Histograms<PrometheusLabels>,
    changes: Histograms<ChangeLabels>,
    writes: Family<WriteLabels, Counter>,
    samples: Family<SampleLabels, Counter>,
    resource_reads: Family<SourceLabel, BareCounter>,
    /// How recommendations compare with usage.
    pub(crate) quality: QualityMetrics,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SourceLabel {
    source: &'static str,
}

/// How often the resources of containers were read from where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceReads([u64; 4]);

impl ResourceReads {
    const SOURCES: [&'static str; 4] = [
        "Pod.Status.ContainerStatuses",
        "Pod.Status.InitContainerStatuses",
        "Pod.Spec.Containers",
        "Pod.Spec.InitContainers",
    ];

    /// One more.
    pub fn count(&mut self, source: Source) {
        let at = match source {
            Source::Status(Kind::Regular) => 0,
            Source::Status(Kind::NativeSidecar) => 1,
            Source::Spec(Kind::Regular) => 2,
            Source::Spec(Kind::NativeSidecar) => 3,
        };
        self.0[at] += 1;
    }
}

/// What is counted of a VPA.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ObjectLabels {
    /// Its update mode.
    pub update_mode: String,
    /// Whether it has a recommendation.
    pub has_recommendation: String,
    /// The version of its API.
    pub api: &'static str,
    /// Whether there are pods that it selects.
    pub matches_pods: String,
    /// Whether its target cannot be sized.
    pub unsupported_config: String,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StepLabel {
    step: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResponseLabels {
    is_error: &'static str,
    client_name: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PrometheusLabels {
    code: String,
    method: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ChangeLabels {
    update_mode: String,
    resource: &'static str,
    vpa_size_log2: u32,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct WriteLabels {
    object: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SampleLabels {
    outcome: &'static str,
}

impl Metrics {
    /// Registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            objects: Family::default(),
            first_recommendation: Histogram::new(FIRST_SECONDS),
            steps: Family::new_with_constructor(|| Histogram::new(LOOP_SECONDS)),
            aggregates: Gauge::default(),
            responses: Family::default(),
            prometheus_requests: Family::default(),
            prometheus_seconds: Family::new_with_constructor(|| Histogram::new(REQUEST_SECONDS)),
            changes: Family::new_with_constructor(|| Histogram::new(RELATIVE)),
            writes: Family::default(),
            samples: Family::default(),
            resource_reads: Family::default(),
            quality: QualityMetrics::register(registry),
        };
        let all = metrics.clone();
        registry.register(
            "vpa_recommender_vpa_objects_count",
            "Number of VPA objects",
            all.objects,
        );
        registry.register(
            "vpa_recommender_recommendation_latency_seconds",
            "Time from the creation of a VPA to its first recommendation",
            all.first_recommendation,
        );
        registry.register(
            "vpa_recommender_execution_latency_seconds",
            "Time spent in the steps of the loop",
            all.steps,
        );
        registry.register(
            "vpa_recommender_aggregate_container_states_count",
            "Number of aggregates in the model",
            all.aggregates,
        );
        registry.register(
            "vpa_recommender_metric_server_responses",
            "Answers of the metrics API",
            all.responses,
        );
        registry.register(
            "vpa_recommender_prometheus_client_api_requests_count",
            "Requests to Prometheus",
            all.prometheus_requests,
        );
        registry.register(
            "vpa_recommender_prometheus_client_api_requests_duration_seconds",
            "Time that requests to Prometheus took",
            all.prometheus_seconds,
        );
        registry.register(
            "vpa_quality_relative_recommendation_changes",
            "Relative changes of recommendations",
            all.changes,
        );
        registry.register(
            "vpa_resources_get_resources_count",
            "Count of sources of resources of containers",
            all.resource_reads,
        );
        registry.register(
            "outrigger_recommender_writes",
            "Statuses and checkpoints written, and what came of it",
            all.writes,
        );
        registry.register(
            "outrigger_recommender_samples",
            "Samples of usage, and whether they counted",
            all.samples,
        );
        metrics
    }

    /// One of each, for the documentation.
    pub(crate) fn sample(&self) {
        let Self {
            objects,
            first_recommendation: _,
            steps,
            aggregates: _,
            responses,
            prometheus_requests,
            prometheus_seconds,
            changes,
            writes,
            samples,
            resource_reads,
            quality,
        } = self;
        sample(objects);
        sample(steps);
        sample(responses);
        sample(prometheus_requests);
        sample(prometheus_seconds);
        sample(changes);
        sample(writes);
        sample(samples);
        sample(resource_reads);
        quality.sample();
    }

    /// A step of the loop is done.
    pub fn step(&self, step: &'static str, took: Duration) {
        self.steps
            .get_or_create(&StepLabel { step })
            .observe(took.as_secs_f64());
    }

    /// The metrics API has answered, or not.
    pub fn metrics_response(&self, failed: bool) {
        let labels = ResponseLabels {
            is_error: if failed { "true" } else { "false" },
            client_name: "default-metrics-client",
        };
        self.responses.get_or_create(&labels).inc();
    }

    /// Prometheus has answered.
    pub fn prometheus_request(&self, code: u16, took: Duration) {
        let labels = PrometheusLabels {
            code: code.to_string(),
            method: "POST",
        };
        self.prometheus_requests.get_or_create(&labels).inc();
        self.prometheus_seconds
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }

    /// How many aggregates there are.
    pub fn aggregates(&self, count: usize) {
        self.aggregates.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A VPA has its first recommendation, this long after its creation.
    pub fn first_recommendation(&self, after: Duration) {
        self.first_recommendation.observe(after.as_secs_f64());
    }

    /// A target has changed by this share.
    pub fn change(&self, mode: &UpdateMode, resource: &'static str, pods: usize, share: f64) {
        let labels = ChangeLabels {
            update_mode: mode.as_str().to_owned(),
            resource,
            vpa_size_log2: pods.checked_ilog2().unwrap_or(0).min(20),
        };
        self.changes.get_or_create(&labels).observe(share);
    }

    /// So often resources were read.
    pub fn resource_reads(&self, reads: ResourceReads) {
        for (source, count) in ResourceReads::SOURCES.into_iter().zip(reads.0) {
            self.resource_reads
                .get_or_create(&SourceLabel { source })
                .inc_by(count);
        }
    }

    /// Something was written, or could not be.
    pub fn write(&self, object: &'static str, outcome: &'static str) {
        self.writes.get_or_create(&WriteLabels { object, outcome }).inc();
    }

    /// So many samples had this fate.
    pub fn samples(&self, outcome: &'static str, count: u64) {
        if count > 0 {
            self.samples
                .get_or_create(&SampleLabels { outcome })
                .inc_by(count);
        }
    }

    /// Counts all VPAs anew; kinds of which there is none are there with zero, as VPA prints them.
    pub fn objects(&self, vpas: impl IntoIterator<Item = ObjectLabels>) {
        self.objects.clear();
        for mode in UpdateMode::KNOWN {
            for bits in 0_u8..8 {
                for api in ["v1beta1", "v1beta2", "v1"] {
                    let labels = ObjectLabels {
                        update_mode: mode.as_str().to_owned(),
                        has_recommendation: (bits & 1 != 0).to_string(),
                        api,
                        matches_pods: (bits & 2 != 0).to_string(),
                        unsupported_config: (bits & 4 != 0).to_string(),
                    };
                    self.objects.get_or_create(&labels).set(0);
                }
            }
        }
        for labels in vpas {
            self.objects.get_or_create(&labels).inc();
        }
    }
}
