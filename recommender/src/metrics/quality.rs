//! How recommendations compare with usage, sample by sample (`spec/vpa.md` 5.2): the uncapped target against what was
//! used when there was one, and how much was used while there was none.

use std::sync::{Arc, OnceLock};

use common::{
    api::{OpenEnum as _, vpa::UpdateMode},
    daemon::metrics::{BareCounter, sample},
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, histogram::Histogram},
    registry::Registry,
};

use super::{Histograms, RELATIVE};
use crate::{cluster::Quality, histogram::Resource, num};

/// All of them. Cloning gives other handles to the same.
#[derive(Clone, Debug)]
pub(crate) struct QualityMetrics {
    relative: Histograms<UsageLabels>,
    missing: Family<UsageLabels, BareCounter>,
    cpu_over: Histograms<CpuLabels>,
    cpu_under: Histograms<CpuLabels>,
    memory_over: Histograms<MemoryLabels>,
    memory_under: Histograms<MemoryLabels>,
    cpu: Histograms<ModeLabel>,
    memory: Histograms<MemoryModeLabels>,
    found: Arc<[Series]>,
}

/// The series of one combination of labels, each found when it is needed first. All samples of a cluster have the same few
/// combinations, and to look them up by their labels takes longer than to count.
#[derive(Debug, Default)]
struct Series {
    relative: OnceLock<Histogram>,
    missing: OnceLock<BareCounter>,
    over: OnceLock<Histogram>,
    under: OnceLock<Histogram>,
    recommended: OnceLock<Histogram>,
}

impl Series {
    /// One for each mode, and for those that nobody knows; resource; OOM kill or not; recommendation missing or not.
    const COUNT: usize = (UpdateMode::KNOWN.len() + 1) * 8;

    fn place(mode: usize, resource: Resource, oom: bool, missing: bool) -> usize {
        let is_memory = resource == Resource::Memory;
        [is_memory, oom, missing]
            .into_iter()
            .fold(mode, |place, answer| 2 * place + usize::from(answer))
    }
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct UsageLabels {
    update_mode: &'static str,
    resource: &'static str,
    is_oom: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CpuLabels {
    update_mode: &'static str,
    recommendation_missing: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct MemoryLabels {
    update_mode: &'static str,
    recommendation_missing: &'static str,
    is_oom: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ModeLabel {
    update_mode: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct MemoryModeLabels {
    update_mode: &'static str,
    is_oom: &'static str,
}

impl QualityMetrics {
    /// Registers them.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let all = metrics.clone();
        registry.register(
            "vpa_quality_usage_recommendation_relative_diffs",
            "Differences between usage and recommendation, as a share of the recommendation",
            all.relative,
        );
        registry.register(
            "vpa_quality_usage_sample_missing_recommendation_count",
            "Samples of usage for which there was no recommendation",
            all.missing,
        );
        registry.register(
            "vpa_quality_cpu_recommendation_over_usage_diffs_cores",
            "By how much CPU recommendations exceed usage",
            all.cpu_over,
        );
        registry.register(
            "vpa_quality_cpu_recommendation_lower_equal_usage_diffs_cores",
            "By how much CPU usage exceeds recommendations",
            all.cpu_under,
        );
        registry.register(
            "vpa_quality_mem_recommendation_over_usage_diffs_bytes",
            "By how much memory recommendations exceed usage",
            all.memory_over,
        );
        registry.register(
            "vpa_quality_mem_recommendation_lower_equal_usage_diffs_bytes",
            "By how much memory usage exceeds recommendations",
            all.memory_under,
        );
        registry.register(
            "vpa_quality_cpu_recommendations_cores",
            "CPU recommendations when usage was compared with them",
            all.cpu,
        );
        registry.register(
            "vpa_quality_mem_recommendations_bytes",
            "Memory recommendations when usage was compared with them",
            all.memory,
        );
        metrics
    }

    /// One of each, for the documentation.
    pub(super) fn sample(&self) {
        let Self {
            relative,
            missing,
            cpu_over,
            cpu_under,
            memory_over,
            memory_under,
            cpu,
            memory,
            found: _,
        } = self;
        sample(relative);
        sample(missing);
        sample(cpu_over);
        sample(cpu_under);
        sample(memory_over);
        sample(memory_under);
        sample(cpu);
        sample(memory);
    }

    /// A sample was compared with what is recommended.
    pub(crate) fn observe(&self, seen: Quality<'_>) {
        let Quality {
            mode,
            resource,
            oom,
            usage,
            recommended,
        } = seen;
        let (mode, update_mode) = number_and_name_of(mode);
        let missing = recommended.is_none();
        // There is a place for each.
        let Some(series) = self.found.get(Series::place(mode, resource, oom, missing)) else {
            return;
        };
        let (resource_name, unit) = match resource {
            Resource::Cpu => ("cpu", 1000.0),
            Resource::Memory => ("memory", 1.0),
        };
        let usage = num::float(usage) / unit;
        let recommended = recommended.map(|amount| num::float(amount) / unit);
        let (is_oom, recommendation_missing) = (yes(oom), yes(missing));
        let usage_labels = || UsageLabels {
            update_mode,
            resource: resource_name,
            is_oom,
        };
        let difference = |cpu: &Histograms<CpuLabels>, memory: &Histograms<MemoryLabels>| match resource {
            Resource::Cpu => cpu.get_or_create_owned(&CpuLabels {
                update_mode,
                recommendation_missing,
            }),
            Resource::Memory => memory.get_or_create_owned(&MemoryLabels {
                update_mode,
                recommendation_missing,
                is_oom,
            }),
        };
        match recommended {
            Some(recommended) => {
                let relative = || self.relative.get_or_create_owned(&usage_labels());
                let share = (usage - recommended) / recommended;
                series.relative.get_or_init(relative).observe(share);
                let amount = || match resource {
                    Resource::Cpu => self.cpu.get_or_create_owned(&ModeLabel { update_mode }),
                    Resource::Memory => {
                        let labels = MemoryModeLabels { update_mode, is_oom };
                        self.memory.get_or_create_owned(&labels)
                    }
                };
                series.recommended.get_or_init(amount).observe(recommended);
            }
            None => {
                let missing = || self.missing.get_or_create_owned(&usage_labels());
                series.missing.get_or_init(missing).inc();
            }
        }
        let over = recommended.map_or(-usage, |recommended| recommended - usage);
        if over > 0.0 {
            let found = || difference(&self.cpu_over, &self.memory_over);
            series.over.get_or_init(found).observe(over);
        } else {
            let found = || difference(&self.cpu_under, &self.memory_under);
            series.under.get_or_init(found).observe(-over);
        }
    }
}

impl Default for QualityMetrics {
    /// Registered nowhere, for those who ask once and serve no metrics.
    fn default() -> Self {
        let cores = || Histogram::new((0..=16).map(|power| 0.01 * f64::from(1 << power)));
        let bytes = || Histogram::new((0..=16).map(|power| 1e6 * f64::from(1 << power)));
        Self {
            relative: Family::new_with_constructor(|| Histogram::new(RELATIVE)),
            missing: Family::default(),
            cpu_over: Family::new_with_constructor(cores),
            cpu_under: Family::new_with_constructor(cores),
            memory_over: Family::new_with_constructor(bytes),
            memory_under: Family::new_with_constructor(bytes),
            cpu: Family::new_with_constructor(cores),
            memory: Family::new_with_constructor(bytes),
            found: std::iter::repeat_with(Series::default)
                .take(Series::COUNT)
                .collect(),
        }
    }
}

fn yes(answer: bool) -> &'static str {
    if answer { "true" } else { "false" }
}

/// The place of a mode among those known, and its name; of one that nobody knows only that, so that labels stay few.
fn number_and_name_of(mode: &UpdateMode) -> (usize, &'static str) {
    UpdateMode::KNOWN
        .iter()
        .enumerate()
        .find(|(_, known)| *known == mode)
        .map_or((UpdateMode::KNOWN.len(), "Unknown"), |(number, known)| {
            (number, known.as_str())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(resource: Resource, usage: i64, recommended: Option<i64>, oom: bool) -> Quality<'static> {
        Quality {
            mode: &UpdateMode::Off,
            resource,
            oom,
            usage,
            recommended,
        }
    }

    #[test]
    fn usage_is_compared_with_what_was_recommended() {
        let mut registry = Registry::default();
        let metrics = QualityMetrics::register(&mut registry);
        metrics.observe(seen(Resource::Cpu, 400, Some(200), false));
        metrics.observe(seen(Resource::Cpu, 100, Some(200), false));
        metrics.observe(seen(Resource::Cpu, 100, None, false));
        metrics.observe(seen(Resource::Memory, 3_000_000, Some(2_000_000), true));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"vpa_quality_usage_recommendation_relative_diffs_sum{update_mode="Off",resource="cpu",is_oom="false"} 0.5"#,
            r#"vpa_quality_usage_recommendation_relative_diffs_sum{update_mode="Off",resource="memory",is_oom="true"} 0.5"#,
            r#"vpa_quality_usage_sample_missing_recommendation_count{update_mode="Off",resource="cpu",is_oom="false"} 1"#,
            r#"vpa_quality_cpu_recommendation_over_usage_diffs_cores_sum{update_mode="Off",recommendation_missing="false"} 0.1"#,
            r#"vpa_quality_cpu_recommendation_lower_equal_usage_diffs_cores_bucket{le="0.32",update_mode="Off",recommendation_missing="false"} 1"#,
            r#"vpa_quality_cpu_recommendation_lower_equal_usage_diffs_cores_sum{update_mode="Off",recommendation_missing="true"} 0.1"#,
            r#"vpa_quality_mem_recommendation_lower_equal_usage_diffs_bytes_sum{update_mode="Off",recommendation_missing="false",is_oom="true"} 1000000.0"#,
            r#"vpa_quality_cpu_recommendations_cores_count{update_mode="Off"} 2"#,
            r#"vpa_quality_mem_recommendations_bytes_sum{update_mode="Off",is_oom="true"} 2000000.0"#,
        ] {
            assert!(text.contains(line), "{line} is not in:\n{text}");
        }
    }
}
