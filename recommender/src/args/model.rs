//! The flags that shape the model and the numbers made from it.

use std::time::Duration;

use chrono::TimeDelta;
use common::{
    daemon::{ArgsError, GoBool, GoDuration},
    gates::{Gate, Gates},
    quantity::{Bytes, Quantity},
    quirks::Quirks,
};

use super::invalid;
use crate::{
    aggregate::{HalfLives, Settings},
    cluster::ModelConfig,
    estimate::{EstimatorConfig, Percentiles},
    histogram::HalfLife,
    policy::PerResource,
    postprocess::PostProcessing,
    recommend::Rounding,
};

const DAY: GoDuration = GoDuration(Duration::from_secs(86_400));

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Recommendations")]
pub(super) struct ModelArgs {
    /// What is added to usage for safety, as a share
    #[arg(long, default_value_t = 0.15, value_name = "SHARE")]
    recommendation_margin_fraction: f64,
    /// The least CPU recommended for a pod
    #[arg(long, default_value_t = 25.0, value_name = "MILLICORES")]
    pod_recommendation_min_cpu_millicores: f64,
    /// The least memory recommended for a pod, in MiB
    #[arg(long, default_value_t = 250.0, value_name = "MIB")]
    pod_recommendation_min_memory_mb: f64,
    /// The percentile of CPU usage that becomes the target
    #[arg(long, default_value_t = 0.9, value_name = "SHARE")]
    target_cpu_percentile: f64,
    /// The percentile of CPU usage that becomes the lower bound
    #[arg(long, default_value_t = 0.5, value_name = "SHARE")]
    recommendation_lower_bound_cpu_percentile: f64,
    /// The percentile of CPU usage that becomes the upper bound
    #[arg(long, default_value_t = 0.95, value_name = "SHARE")]
    recommendation_upper_bound_cpu_percentile: f64,
    /// The history that gives CPU bounds a confidence of one
    #[arg(long, default_value_t = DAY, value_name = "DURATION")]
    confidence_interval_cpu: GoDuration,
    /// The percentile of memory peaks that becomes the target
    #[arg(long, default_value_t = 0.9, value_name = "SHARE")]
    target_memory_percentile: f64,
    /// The percentile of memory peaks that becomes the lower bound
    #[arg(long, default_value_t = 0.5, value_name = "SHARE")]
    recommendation_lower_bound_memory_percentile: f64,
    /// The percentile of memory peaks that becomes the upper bound
    #[arg(long, default_value_t = 0.95, value_name = "SHARE")]
    recommendation_upper_bound_memory_percentile: f64,
    /// The history that gives memory bounds a confidence of one
    #[arg(long, default_value_t = DAY, value_name = "DURATION")]
    confidence_interval_memory: GoDuration,
    /// Write memory with two decimals and a binary suffix; deprecated
    #[arg(long, default_value_t)]
    humanize_memory: GoBool,
    /// Round CPU up to a multiple of this
    #[arg(long, default_value_t = 1, value_name = "MILLICORES")]
    round_cpu_millicores: i64,
    /// Round memory up to a multiple of this
    #[arg(long, default_value_t = 1, value_name = "BYTES")]
    round_memory_bytes: i64,
    /// How long one memory peak stands for
    #[arg(long, default_value_t = DAY, value_name = "DURATION")]
    memory_aggregation_interval: GoDuration,
    /// How many memory peaks count
    #[arg(long, default_value_t = 8, value_name = "COUNT")]
    memory_aggregation_interval_count: i64,
    /// The time in which a memory peak loses half its weight
    #[arg(long, default_value_t = DAY, value_name = "DURATION")]
    memory_histogram_decay_half_life: GoDuration,
    /// The time in which a CPU sample loses half its weight
    #[arg(long, default_value_t = DAY, value_name = "DURATION")]
    cpu_histogram_decay_half_life: GoDuration,
    /// By how much an OOM raises memory
    #[arg(long, default_value_t = 1.2, value_name = "RATIO")]
    oom_bump_up_ratio: f64,
    /// By how many bytes an OOM raises memory at least
    #[arg(long, default_value_t = 104_857_600.0, value_name = "BYTES")]
    oom_min_bump_up_bytes: f64,
    /// Give whole cores to containers that are annotated so; experimental
    #[arg(long, default_value_t)]
    cpu_integer_post_processor_enabled: GoBool,
    /// The most CPU for any container whose policy does not say
    #[arg(long, value_name = "QUANTITY")]
    container_recommendation_max_allowed_cpu: Option<Quantity>,
    /// The most memory for any container whose policy does not say
    #[arg(long, value_name = "QUANTITY")]
    container_recommendation_max_allowed_memory: Option<Quantity>,
}

pub(super) struct Model {
    pub(super) model: ModelConfig,
    pub(super) estimator: EstimatorConfig,
    pub(super) rounding: Rounding,
    pub(super) post_processing: PostProcessing,
}

impl ModelArgs {
    pub(super) fn resolve(self, gates: &Gates, quirks: Quirks) -> Result<Model, ArgsError> {
        let Self {
            recommendation_margin_fraction,
            pod_recommendation_min_cpu_millicores,
            pod_recommendation_min_memory_mb,
            target_cpu_percentile,
            recommendation_lower_bound_cpu_percentile,
            recommendation_upper_bound_cpu_percentile,
            confidence_interval_cpu,
            target_memory_percentile,
            recommendation_lower_bound_memory_percentile,
            recommendation_upper_bound_memory_percentile,
            confidence_interval_memory,
            humanize_memory,
            round_cpu_millicores,
            round_memory_bytes,
            memory_aggregation_interval,
            memory_aggregation_interval_count,
            memory_histogram_decay_half_life,
            cpu_histogram_decay_half_life,
            oom_bump_up_ratio,
            oom_min_bump_up_bytes,
            cpu_integer_post_processor_enabled,
            container_recommendation_max_allowed_cpu,
            container_recommendation_max_allowed_memory,
        } = self;
        let max_allowed = PerResource {
            cpu: container_recommendation_max_allowed_cpu.filter(|cap| !cap.is_zero()),
            memory: container_recommendation_max_allowed_memory.filter(|cap| !cap.is_zero()),
        };
        let half_lives = HalfLives {
            cpu: half_life("cpu-histogram-decay-half-life", cpu_histogram_decay_half_life)?,
            memory: half_life(
                "memory-histogram-decay-half-life",
                memory_histogram_decay_half_life,
            )?,
        };
        let settings = Settings {
            interval: length("memory-aggregation-interval", memory_aggregation_interval)?,
            interval_count: memory_aggregation_interval_count,
            oom_ratio: oom_bump_up_ratio,
            oom_min_bump: oom_min_bump_up_bytes,
            memory_cap: max_allowed.memory.as_ref().map(Bytes::from_quantity),
        };
        Ok(Model {
            model: ModelConfig {
                half_lives,
                settings,
                per_vpa_settings: gates.enabled(Gate::PerVPAConfig),
                native_sidecars: gates.enabled(Gate::NativeSidecar),
                quirks,
            },
            estimator: EstimatorConfig {
                margin: recommendation_margin_fraction,
                pod_min_cpu_millicores: pod_recommendation_min_cpu_millicores,
                pod_min_memory_mb: pod_recommendation_min_memory_mb,
                cpu: Percentiles {
                    target: target_cpu_percentile,
                    lower: recommendation_lower_bound_cpu_percentile,
                    upper: recommendation_upper_bound_cpu_percentile,
                    confidence_interval: length("confidence-interval-cpu", confidence_interval_cpu)?,
                },
                memory: Percentiles {
                    target: target_memory_percentile,
                    lower: recommendation_lower_bound_memory_percentile,
                    upper: recommendation_upper_bound_memory_percentile,
                    confidence_interval: length("confidence-interval-memory", confidence_interval_memory)?,
                },
            },
            rounding: Rounding {
                cpu_millicores: round_cpu_millicores,
                memory_bytes: round_memory_bytes,
                humanize_memory: humanize_memory.0,
            },
            post_processing: PostProcessing {
                integer_cpu: cpu_integer_post_processor_enabled.0,
                max_allowed,
            },
        })
    }
}

fn length(flag: &'static str, duration: GoDuration) -> Result<TimeDelta, ArgsError> {
    TimeDelta::from_std(common::daemon::interval(flag, duration)?)
        .map_err(|_| invalid(flag, "it is too long"))
}

fn half_life(flag: &'static str, duration: GoDuration) -> Result<HalfLife, ArgsError> {
    HalfLife::new(length(flag, duration)?).ok_or_else(|| invalid(flag, "it must be longer than zero"))
}
