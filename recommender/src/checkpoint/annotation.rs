//! The annotation of a checkpoint object with what VPA has no field for: the windows that were open when it was
//! written, and when the parts of its memory histogram were seen.
//!
//! The status is VPA's, without the peaks of open windows. So are the statuses that VPA writes later on top of it: a
//! window in the annotation is never part of the status beside it, whoever wrote that, and can be added to it once.

use crate::{
    aggregate::Settings,
    histogram::{BUCKETS, Part},
    instant,
    peaks::Peaks,
    window::Window,
};
use chrono::{DateTime, TimeDelta, Utc};
use common::{api::checkpoint::VerticalPodAutoscalerCheckpointStatus, quantity::Bytes};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The name of the annotation.
pub const ANNOTATION: &str = "outrigger/open-windows";

/// The most bytes of it: half of what all annotations of an object may have.
const MAX_BYTES: usize = 128 * 1024;

/// What an entry takes besides its pod and its numbers: quotes, colon, comma.
const ENTRY_BYTES: usize = 4;

/// What the rest takes: the names of the two parts, and braces.
const FRAME_BYTES: usize = 64;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Annotation {
    /// Pod → end in Unix seconds, peak in bytes, and after an OOM the peak that it made necessary.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    windows: BTreeMap<String, Vec<i64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peaks: Option<WirePeaks>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct WirePeaks {
    /// The Unix second in which the status was written that this belongs to.
    of: i64,
    /// End of the slot in Unix seconds, bucket, weight.
    parts: Vec<(i64, u8, f64)>,
}

/// The text of the annotation, if there is anything to say.
#[must_use]
pub fn annotate<N: AsRef<str>>(
    status: &VerticalPodAutoscalerCheckpointStatus,
    windows: &BTreeMap<N, Window>,
    peaks: &Peaks,
) -> Option<String> {
    let parts = peaks.parts().iter();
    let parts: Vec<_> = parts
        .map(|part| (seconds_after(part.time), part.bucket, part.weight))
        .collect();
    let written = status.last_update_time.map(|time| time.timestamp());
    let peaks = written
        .filter(|_| !parts.is_empty())
        .map(|of| WirePeaks { of, parts });
    let room = MAX_BYTES.saturating_sub(FRAME_BYTES + serde_json::to_string(&peaks).ok()?.len());

    // Where there are more pods than room the highest peaks are kept: the target is a high percentile.
    let mut highest: Vec<(&str, &Window)> = windows
        .iter()
        .map(|(pod, window)| (pod.as_ref(), window))
        .collect();
    highest.sort_by_key(|(_, window)| std::cmp::Reverse(window.peak()));
    let entries = highest.into_iter().filter_map(|(pod, window)| {
        let numbers = numbers(window);
        let bytes = ENTRY_BYTES + pod.len() + serde_json::to_string(&numbers).ok()?.len();
        Some((bytes, pod.to_owned(), numbers))
    });
    let fitting = entries.scan(0, |used, (bytes, pod, numbers)| {
        *used += bytes;
        (*used <= room).then_some((pod, numbers))
    });
    let windows = fitting.collect();

    let annotation = Annotation { windows, peaks };
    (annotation != Annotation::default())
        .then(|| serde_json::to_string(&annotation).ok())
        .flatten()
}

impl Annotation {
    /// Reads what makes sense: a window ends no later than one interval from now, and so does a slot, which is not
    /// longer than the whole aggregation window.
    pub(super) fn read(text: &str, settings: &Settings, now: DateTime<Utc>) -> Self {
        let mut annotation: Self = serde_json::from_str(text).unwrap_or_default();
        let interval = settings.interval.max(TimeDelta::days(1));
        let last_end = instant::plus(now, interval);
        let last_slot = instant::plus(last_end, interval.max(settings.window()));
        annotation
            .windows
            .retain(|_, numbers| window(numbers).is_some_and(|window| window.end <= last_end));
        if let Some(peaks) = &mut annotation.peaks {
            peaks.parts.retain(|(seconds, bucket, weight)| {
                let time = DateTime::from_timestamp(*seconds, 0);
                time.is_some_and(|time| time <= last_slot)
                    && *bucket < BUCKETS
                    && weight.is_finite()
                    && *weight > 0.0
            });
        }
        annotation
    }

    pub(super) fn windows(&self) -> BTreeMap<String, Window> {
        let windows = self.windows.iter();
        windows
            .filter_map(|(pod, numbers)| Some((pod.clone(), window(numbers)?)))
            .collect()
    }

    /// The parts of the memory histogram, if this is still the status they were noted for.
    pub(super) fn peaks_of(&self, status: &VerticalPodAutoscalerCheckpointStatus) -> Option<Peaks> {
        let peaks = self.peaks.as_ref()?;
        let written = status.last_update_time?.timestamp();
        let part = |(seconds, bucket, weight): &(i64, u8, f64)| {
            Some(Part {
                time: DateTime::from_timestamp(*seconds, 0)?,
                bucket: *bucket,
                weight: *weight,
            })
        };
        (peaks.of == written).then(|| peaks.parts.iter().filter_map(part).collect())
    }
}

fn numbers(window: &Window) -> Vec<i64> {
    let mut numbers = vec![seconds_after(window.end), window.usage_peak.0];
    if !window.oom_peak.is_zero() {
        numbers.push(window.oom_peak.0);
    }
    numbers
}

fn window(numbers: &[i64]) -> Option<Window> {
    let (end, usage_peak, oom_peak) = match numbers {
        [end, usage] => (end, usage, &0),
        [end, usage, oom] => (end, usage, oom),
        _ => return None,
    };
    let sound = *usage_peak >= 0 && *oom_peak >= 0;
    Some(Window {
        end: DateTime::from_timestamp(*end, 0)?,
        usage_peak: Bytes(*usage_peak),
        oom_peak: Bytes(*oom_peak),
    })
    .filter(|_| sound)
}

/// The first whole second that is not before a time: a window must not end earlier than it does.
fn seconds_after(time: DateTime<Utc>) -> i64 {
    time.timestamp()
        .saturating_add(i64::from(time.timestamp_subsec_nanos() > 0))
}
