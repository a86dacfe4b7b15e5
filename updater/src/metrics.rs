//! The updater's metrics under VPA's names (`spec/vpa.md` 5.2), and a few of our own.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use common::{
    api::{OpenEnum as _, vpa::UpdateMode},
    daemon::metrics::sample,
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::{
    feed::{Tally, VpaKey},
    reason::Skip,
    vpa::Vpa,
};

/// Latencies of loops.
const LOOP_SECONDS: [f64; 23] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0,
    100.0, 120.0, 150.0, 240.0, 300.0,
];

/// All of them. Cloning gives other handles to the same.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    controlled: Family<ModeLabels, Gauge>,
    evictable: Family<ModeLabels, Gauge>,
    evicted: Family<EvictedLabels, Counter>,
    with_evictable: Family<ModeLabels, Gauge>,
    with_evicted: Family<ModeLabels, Gauge>,
    failed_evictions: Family<FailedEvictionLabels, Counter>,
    updatable: Family<SizeLabels, Gauge>,
    updated: Family<UpdatedLabels, Counter>,
    with_updatable: Family<SizeLabels, Gauge>,
    with_updated: Family<SizeLabels, Gauge>,
    failed_updates: Family<FailedUpdateLabels, Counter>,
    infeasible: Family<UpdatedLabels, Counter>,
    steps: Family<StepLabel, Histogram, fn() -> Histogram>,
    skipped: Family<ReasonLabel, Gauge>,
    breakers: Gauge,
    breaker_for_all: Gauge,
    breakers_opened: Counter,
    admission_fresh: Gauge,
    panics: Counter,
    /// With which sizes and modes a VPA was counted, to forget it when it is gone.
    counted: Arc<Mutex<Counted>>,
}

type Counted = HashMap<VpaKey, Vec<(u32, String)>>;

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ModeLabels {
    vpa_size_log2: u32,
    update_mode: String,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SizeLabels {
    vpa_size_log2: u32,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EvictedLabels {
    vpa_size_log2: u32,
    update_mode: String,
    vpa_name: String,
    vpa_namespace: String,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FailedEvictionLabels {
    vpa_size_log2: u32,
    update_mode: String,
    reason: &'static str,
    vpa_name: String,
    vpa_namespace: String,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct UpdatedLabels {
    vpa_size_log2: u32,
    vpa_name: String,
    vpa_namespace: String,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FailedUpdateLabels {
    vpa_size_log2: u32,
    reason: &'static str,
    vpa_name: String,
    vpa_namespace: String,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StepLabel {
    step: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// Why an act on a pod failed, in VPA's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The API server refused an eviction.
    Eviction,
    /// The rate limit let no more evictions through.
    EvictionRateLimit,
    /// The API server refused a resize.
    Update,
    /// The node can never have room for a resize.
    UpdateInfeasible,
    /// The rate limit let no more resizes through.
    UpdateRateLimit,
    /// The API server refused to end a startup boost.
    Unboost,
}

impl Failure {
    /// Every one.
    pub const ALL: [Self; 6] = [
        Self::Eviction,
        Self::EvictionRateLimit,
        Self::Update,
        Self::UpdateInfeasible,
        Self::UpdateRateLimit,
        Self::Unboost,
    ];

    fn is_eviction(self) -> bool {
        matches!(self, Self::Eviction | Self::EvictionRateLimit)
    }

    /// The value of the metric's label.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Eviction => "EvictionError",
            Self::EvictionRateLimit => "EvictionRateLimiterWaitFailed",
            Self::Update => "InPlaceUpdateError",
            Self::UpdateInfeasible => "InPlaceUpdateInfeasible",
            Self::UpdateRateLimit => "InPlaceUpdateRateLimiterWaitFailed",
            Self::Unboost => "UnboostError",
        }
    }
}

/// One VPA, as its counters name it.
#[derive(Clone, Debug)]
pub(crate) struct VpaMetrics<'m> {
    metrics: &'m Metrics,
    size: u32,
    mode: &'m UpdateMode,
    key: &'m VpaKey,
}

impl Metrics {
    /// Registers them.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            controlled: Family::default(),
            evictable: Family::default(),
            evicted: Family::default(),
            with_evictable: Family::default(),
            with_evicted: Family::default(),
            failed_evictions: Family::default(),
            updatable: Family::default(),
            updated: Family::default(),
            with_updatable: Family::default(),
            with_updated: Family::default(),
            failed_updates: Family::default(),
            infeasible: Family::default(),
            steps: Family::new_with_constructor(|| Histogram::new(LOOP_SECONDS)),
            skipped: Family::default(),
            breakers: Gauge::default(),
            breaker_for_all: Gauge::default(),
            breakers_opened: Counter::default(),
            admission_fresh: Gauge::default(),
            panics: Counter::default(),
            counted: Arc::default(),
        };
        let all = metrics.clone();
        let vpa = registry.sub_registry_with_prefix("vpa_updater");
        vpa.register(
            "controlled_pods_total",
            "Pods controlled by a VPA that acts",
            all.controlled,
        );
        vpa.register(
            "evictable_pods_total",
            "Pods that are due and may be evicted",
            all.evictable,
        );
        vpa.register(
            "evicted_pods",
            "Pods evicted to apply a recommendation",
            all.evicted,
        );
        vpa.register(
            "vpas_with_evictable_pods_total",
            "VPAs with a pod that may be evicted",
            all.with_evictable,
        );
        vpa.register(
            "vpas_with_evicted_pods_total",
            "VPAs with a pod that was evicted",
            all.with_evicted,
        );
        vpa.register(
            "failed_eviction_attempts",
            "Evictions that did not work",
            all.failed_evictions,
        );
        vpa.register(
            "in_place_updatable_pods_total",
            "Pods that are due and may be resized",
            all.updatable,
        );
        vpa.register(
            "in_place_updated_pods",
            "Pods resized to apply a recommendation",
            all.updated,
        );
        vpa.register(
            "vpas_with_in_place_updatable_pods_total",
            "VPAs with a pod that may be resized",
            all.with_updatable,
        );
        vpa.register(
            "vpas_with_in_place_updated_pods_total",
            "VPAs with a pod that was resized",
            all.with_updated,
        );
        vpa.register(
            "failed_in_place_update_attempts",
            "Resizes that did not work",
            all.failed_updates,
        );
        vpa.register(
            "in_place_infeasible_skip_pods",
            "Pods not resized to what did not fit before",
            all.infeasible,
        );
        vpa.register(
            "execution_latency_seconds",
            "Time spent in the steps of the loop",
            all.steps,
        );
        let own = registry.sub_registry_with_prefix("outrigger_updater");
        own.register(
            "skipped_pods",
            "Pods that are left as they are, by reason",
            all.skipped,
        );
        own.register(
            "open_breakers",
            "Workloads whose evictions were not followed by sized pods",
            all.breakers,
        );
        own.register(
            "breaker_open_for_all",
            "1 while nothing is evicted because several workloads' breakers are open",
            all.breaker_for_all,
        );
        own.register(
            "breakers_opened",
            "Breakers that have opened",
            all.breakers_opened,
        );
        own.register(
            "admission_fresh",
            "1 while the admission component shows that it works",
            all.admission_fresh,
        );
        own.register("panics", "Turns of VPAs that ended in a bug of ours", all.panics);
        metrics
    }

    /// One of each, for the documentation.
    pub(crate) fn sample(&self) {
        let Self {
            controlled,
            evictable,
            evicted,
            with_evictable,
            with_evicted,
            failed_evictions,
            updatable,
            updated,
            with_updatable,
            with_updated,
            failed_updates,
            infeasible,
            steps,
            skipped,
            breakers: _,
            breaker_for_all: _,
            breakers_opened: _,
            admission_fresh: _,
            panics: _,
            counted: _,
        } = self;
        for by_mode in [controlled, evictable, with_evictable, with_evicted] {
            sample(by_mode);
        }
        for by_size in [updatable, with_updatable, with_updated] {
            sample(by_size);
        }
        sample(evicted);
        sample(failed_evictions);
        sample(updated);
        sample(failed_updates);
        sample(infeasible);
        sample(steps);
        sample(skipped);
    }

    /// A step of the loop is done.
    pub(crate) fn step(&self, step: &'static str, took: Duration) {
        self.steps
            .get_or_create(&StepLabel { step })
            .observe(took.as_secs_f64());
    }

    /// A VPA's own. Its counters are there from its first turn on.
    pub(crate) fn of<'m>(&'m self, key: &'m VpaKey, vpa: &'m Vpa, pods: usize) -> VpaMetrics<'m> {
        let of = VpaMetrics {
            metrics: self,
            size: size(pods),
            mode: &vpa.sizing.mode,
            key,
        };
        drop(self.evicted.get_or_create(&of.evicted_labels()));
        drop(self.updated.get_or_create(&of.updated_labels()));
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = counted.entry(key.clone()).or_default();
        if !counted
            .iter()
            .any(|(size, mode)| *size == of.size && mode == of.mode.as_str())
        {
            counted.push((of.size, of.mode.as_str().to_owned()));
        }
        of
    }

    /// Forgets the counters of VPAs that are gone.
    pub(crate) fn keep(&self, exists: impl Fn(&VpaKey) -> bool) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.retain(|key, counted| {
            let keeps = exists(key);
            if !keeps {
                counted
                    .iter()
                    .for_each(|(size, mode)| self.forget(key, *size, mode));
            }
            keeps
        });
    }

    fn forget(&self, key: &VpaKey, size: u32, mode: &str) {
        let (vpa_name, vpa_namespace) = (key.name.to_string(), key.namespace.to_string());
        self.evicted.remove(&EvictedLabels {
            vpa_size_log2: size,
            update_mode: mode.to_owned(),
            vpa_name: vpa_name.clone(),
            vpa_namespace: vpa_namespace.clone(),
        });
        let updated = UpdatedLabels {
            vpa_size_log2: size,
            vpa_name: vpa_name.clone(),
            vpa_namespace: vpa_namespace.clone(),
        };
        self.updated.remove(&updated);
        self.infeasible.remove(&updated);
        for failure in Failure::ALL {
            if failure.is_eviction() {
                self.failed_evictions.remove(&FailedEvictionLabels {
                    vpa_size_log2: size,
                    update_mode: mode.to_owned(),
                    reason: failure.reason(),
                    vpa_name: vpa_name.clone(),
                    vpa_namespace: vpa_namespace.clone(),
                });
            } else {
                self.failed_updates.remove(&FailedUpdateLabels {
                    vpa_size_log2: size,
                    reason: failure.reason(),
                    vpa_name: vpa_name.clone(),
                    vpa_namespace: vpa_namespace.clone(),
                });
            }
        }
    }

    /// Counts the outcome of a loop anew.
    pub(crate) fn tallies<'t>(&self, tallies: impl Iterator<Item = (&'t Vpa, &'t Tally)>) {
        for gauges in [
            &self.controlled,
            &self.evictable,
            &self.with_evictable,
            &self.with_evicted,
        ] {
            gauges.clear();
        }
        for gauges in [&self.updatable, &self.with_updatable, &self.with_updated] {
            gauges.clear();
        }
        for skip in Skip::ALL {
            self.skipped
                .get_or_create(&ReasonLabel { reason: skip.name() })
                .set(0);
        }
        for (vpa, tally) in tallies {
            let mode = ModeLabels {
                vpa_size_log2: size(tally.pods),
                update_mode: vpa.sizing.mode.as_str().to_owned(),
            };
            let of_size = SizeLabels {
                vpa_size_log2: size(tally.pods),
            };
            self.controlled.get_or_create(&mode).inc_by(count(tally.pods));
            self.evictable.get_or_create(&mode).inc_by(count(tally.evictable));
            self.with_evictable
                .get_or_create(&mode)
                .inc_by(i64::from(tally.evictable > 0));
            self.with_evicted
                .get_or_create(&mode)
                .inc_by(i64::from(tally.evicted > 0));
            self.updatable
                .get_or_create(&of_size)
                .inc_by(count(tally.updatable));
            self.with_updatable
                .get_or_create(&of_size)
                .inc_by(i64::from(tally.updatable > 0));
            self.with_updated
                .get_or_create(&of_size)
                .inc_by(i64::from(tally.resized > 0));
            for (skip, pods) in &tally.skipped {
                let reason = ReasonLabel { reason: skip.name() };
                self.skipped.get_or_create(&reason).inc_by(count(*pods));
            }
        }
    }

    /// Where evidence stands.
    pub(crate) fn breakers(&self, open: usize, for_all: bool) {
        self.breakers.set(count(open));
        self.breaker_for_all.set(i64::from(for_all));
    }

    /// A breaker has opened.
    pub(crate) fn breaker_opened(&self) {
        self.breakers_opened.inc();
    }

    /// Whether the admission component shows that it works.
    pub(crate) fn admission(&self, is_fresh: bool) {
        self.admission_fresh.set(i64::from(is_fresh));
    }

    /// A turn ended in a bug.
    pub(crate) fn panicked(&self) {
        self.panics.inc();
    }
}

impl VpaMetrics<'_> {
    /// A pod was evicted.
    pub(crate) fn evicted(&self) {
        self.metrics.evicted.get_or_create(&self.evicted_labels()).inc();
    }

    /// A pod was resized.
    pub(crate) fn updated(&self) {
        self.metrics.updated.get_or_create(&self.updated_labels()).inc();
    }

    /// A pod was left as it is because what is recommended did not fit before.
    pub(crate) fn infeasible(&self) {
        self.metrics
            .infeasible
            .get_or_create(&self.updated_labels())
            .inc();
    }

    /// An act failed.
    pub(crate) fn failed(&self, failure: Failure) {
        let reason = failure.reason();
        let (vpa_name, vpa_namespace) = (self.key.name.to_string(), self.key.namespace.to_string());
        if failure.is_eviction() {
            let labels = FailedEvictionLabels {
                vpa_size_log2: self.size,
                update_mode: self.mode.as_str().to_owned(),
                reason,
                vpa_name,
                vpa_namespace,
            };
            self.metrics.failed_evictions.get_or_create(&labels).inc();
        } else {
            let labels = FailedUpdateLabels {
                vpa_size_log2: self.size,
                reason,
                vpa_name,
                vpa_namespace,
            };
            self.metrics.failed_updates.get_or_create(&labels).inc();
        }
    }

    fn evicted_labels(&self) -> EvictedLabels {
        EvictedLabels {
            vpa_size_log2: self.size,
            update_mode: self.mode.as_str().to_owned(),
            vpa_name: self.key.name.to_string(),
            vpa_namespace: self.key.namespace.to_string(),
        }
    }

    fn updated_labels(&self) -> UpdatedLabels {
        UpdatedLabels {
            vpa_size_log2: self.size,
            vpa_name: self.key.name.to_string(),
            vpa_namespace: self.key.namespace.to_string(),
        }
    }
}

fn size(pods: usize) -> u32 {
    pods.checked_ilog2().unwrap_or(0).min(20)
}

fn count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::daemon::metrics::encode;

    #[test]
    fn names_and_labels_are_vpa_s() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let object = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "web", "namespace": "shop"}, "spec": {"updatePolicy": {"updateMode": "Auto"}},
        }));
        let vpa = Vpa::from(&object.unwrap());
        let key = VpaKey {
            namespace: "shop".into(),
            name: "web".into(),
        };
        let of = metrics.of(&key, &vpa, 9);
        of.evicted();
        of.failed(Failure::Eviction);
        of.failed(Failure::UpdateInfeasible);
        of.infeasible();
        metrics.step("total", Duration::from_secs(1));
        let tally = Tally {
            pods: 9,
            evictable: 3,
            evicted: 1,
            skipped: vec![(Skip::Budget, 2)],
            ..Tally::default()
        };
        metrics.tallies([(&vpa, &tally)].into_iter());
        let text = encode(&registry).unwrap();
        let own = r#"vpa_name="web",vpa_namespace="shop""#;
        for line in [
            r#"vpa_updater_controlled_pods_total{vpa_size_log2="3",update_mode="Auto"} 9"#.to_owned(),
            r#"vpa_updater_evictable_pods_total{vpa_size_log2="3",update_mode="Auto"} 3"#.to_owned(),
            r#"vpa_updater_vpas_with_evictable_pods_total{vpa_size_log2="3",update_mode="Auto"} 1"#
                .to_owned(),
            r#"vpa_updater_vpas_with_evicted_pods_total{vpa_size_log2="3",update_mode="Auto"} 1"#.to_owned(),
            format!(r#"vpa_updater_evicted_pods_total{{vpa_size_log2="3",update_mode="Auto",{own}}} 1"#),
            format!(
                r#"vpa_updater_failed_eviction_attempts_total{{vpa_size_log2="3",update_mode="Auto",reason="EvictionError",{own}}} 1"#
            ),
            r#"vpa_updater_in_place_updatable_pods_total{vpa_size_log2="3"} 0"#.to_owned(),
            format!(r#"vpa_updater_in_place_updated_pods_total{{vpa_size_log2="3",{own}}} 0"#),
            r#"vpa_updater_vpas_with_in_place_updatable_pods_total{vpa_size_log2="3"} 0"#.to_owned(),
            r#"vpa_updater_vpas_with_in_place_updated_pods_total{vpa_size_log2="3"} 0"#.to_owned(),
            format!(
                r#"vpa_updater_failed_in_place_update_attempts_total{{vpa_size_log2="3",reason="InPlaceUpdateInfeasible",{own}}} 1"#
            ),
            format!(r#"vpa_updater_in_place_infeasible_skip_pods_total{{vpa_size_log2="3",{own}}} 1"#),
            r#"vpa_updater_execution_latency_seconds_count{step="total"} 1"#.to_owned(),
            r#"outrigger_updater_skipped_pods{reason="Budget"} 2"#.to_owned(),
            r#"outrigger_updater_skipped_pods{reason="BreakerOpen"} 0"#.to_owned(),
        ] {
            assert!(
                text.lines().any(|printed| printed == line),
                "no {line} in\n{text}"
            );
        }
        metrics.keep(|_| false);
        let text = encode(&registry).unwrap();
        assert!(!text.contains("vpa_name"), "what is gone is not counted: {text}");
    }
}
