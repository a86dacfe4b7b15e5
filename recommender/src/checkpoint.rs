//! Histories as VPA's checkpoint objects carry them, version v3 (`spec/vpa.md` 2.6), so that VPA's recommender and
//! ours can take over from each other. What VPA has no field for is kept in one annotation that it leaves alone.

mod annotation;

pub use annotation::{ANNOTATION, annotate};

use crate::{
    aggregate::{HalfLives, History, Settings},
    histogram::{HalfLife, Histogram, Resource, Saved, SavedError},
    peaks::Peaks,
    window::Window,
};
use annotation::Annotation;
use chrono::{DateTime, Utc};
use common::{
    api::checkpoint::{BucketWeightsError, HistogramCheckpoint, VerticalPodAutoscalerCheckpointStatus},
    quirks::{Quirk, Quirks},
};
use std::collections::BTreeMap;

/// The version of the format.
const VERSION: &str = "v3";

/// Why a checkpoint cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CheckpointError {
    /// Written by something else.
    #[error("unsupported checkpoint version {0}")]
    Version(String),
    /// The weights are not even numbers.
    #[error(transparent)]
    Weights(#[from] BucketWeightsError),
    /// A histogram is not one of ours.
    #[error(transparent)]
    Histogram(#[from] SavedError),
}

/// What a checkpoint object holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The history without windows that were open.
    pub history: History,
    /// When the parts of the memory histogram were seen; empty where nothing is ever forgotten.
    pub peaks: Peaks,
    /// The windows that were open when it was written, by pod.
    pub windows: BTreeMap<String, Window>,
}

/// The status of a checkpoint with this history, written now.
#[must_use]
pub fn save(history: &History, now: DateTime<Utc>) -> VerticalPodAutoscalerCheckpointStatus {
    VerticalPodAutoscalerCheckpointStatus {
        last_update_time: Some(now),
        version: VERSION.to_owned(),
        cpu_histogram: wire(history.cpu.save()),
        memory_histogram: wire(history.memory.save()),
        first_sample_start: history.first_sample,
        last_sample_start: history.last_sample,
        total_samples_count: history.samples,
    }
}

/// What a checkpoint object holds, given its annotation. An annotation that makes no sense is as good as none.
///
/// # Errors
/// When the status was written by something else or is damaged.
pub fn load(
    status: &VerticalPodAutoscalerCheckpointStatus,
    annotation: Option<&str>,
    half_lives: HalfLives,
    quirks: Quirks,
    settings: &Settings,
    now: DateTime<Utc>,
) -> Result<Loaded, CheckpointError> {
    if status.version != VERSION {
        return Err(CheckpointError::Version(status.version.clone()));
    }
    let memory = histogram(Resource::Memory, half_lives.memory, &status.memory_histogram)?;
    let cpu = histogram(Resource::Cpu, half_lives.cpu, &status.cpu_histogram)?;
    let annotation = annotation
        .map(|text| Annotation::read(text, settings, now))
        .unwrap_or_default();
    let peaks = if quirks.has(Quirk::UnboundedMemoryWindow) {
        Peaks::default()
    } else {
        annotation
            .peaks_of(status)
            .unwrap_or_else(|| lump(&memory, status))
    };
    let windows = if quirks.has(Quirk::RestartLosesPeaks) {
        BTreeMap::new()
    } else {
        annotation.windows()
    };
    Ok(Loaded {
        history: History {
            cpu,
            memory,
            first_sample: status.first_sample_start,
            last_sample: status.last_sample_start,
            samples: status.total_samples_count.max(0),
        },
        peaks,
        windows,
    })
}

/// Nobody noted when the peaks of this histogram were seen: all of them when it was written, at the latest.
fn lump(memory: &Histogram, status: &VerticalPodAutoscalerCheckpointStatus) -> Peaks {
    let time = status
        .last_update_time
        .or(status.last_sample_start)
        .or(memory.reference());
    time.into_iter().flat_map(|time| memory.parts(time)).collect()
}

fn histogram(
    resource: Resource,
    half_life: HalfLife,
    wire: &HistogramCheckpoint,
) -> Result<Histogram, CheckpointError> {
    let saved = Saved {
        reference: wire.reference_timestamp,
        weights: wire.bucket_weights.get().map_err(Clone::clone)?.clone(),
        total: wire.total_weight,
    };
    Ok(Histogram::load(resource, half_life, &saved)?)
}

fn wire(saved: Saved) -> HistogramCheckpoint {
    HistogramCheckpoint {
        reference_timestamp: saved.reference,
        bucket_weights: saved.weights.into(),
        total_weight: saved.total,
    }
}
