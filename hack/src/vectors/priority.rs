//! Family `priority`: which pods are due for an update, and in which order.

use std::collections::BTreeMap;

use ::updater::{
    eligible::{Candidate, is_lower},
    observed::{Observed, Purpose},
    priority::Priority,
    settings::Settings,
    vpa::{Vpa, Way},
};
use anyhow::Context as _;
use chrono::{DateTime, TimeDelta, Utc};
use common::{
    api::{
        k8s::LimitRange,
        vpa::{RecommendedPodResources, VerticalPodAutoscaler, VerticalPodAutoscalerStatus},
    },
    plan::{LimitRanges, PlanInput, PodPlan, Recommended, Sizing, Stage, plan},
    pod::Pod,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{admission::gates, family::Context};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    #[serde(default)]
    gates: BTreeMap<String, bool>,
    vpa: VerticalPodAutoscaler,
    pods: Vec<Pod>,
    #[serde(default)]
    limit_ranges: Vec<LimitRange>,
    #[serde(flatten)]
    thresholds: Thresholds,
    now: DateTime<Utc>,
    #[serde(default)]
    infeasible: BTreeMap<String, RecommendedPodResources>,
}

/// The flags that say which change is worth acting on.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Thresholds {
    pod_update_threshold: f64,
    pod_lifetime_seconds: i64,
    #[serde(rename = "evictAfterOOMSeconds")]
    evict_after_oom_seconds: i64,
}

pub(super) fn answer(input: &Value, context: &Context) -> anyhow::Result<Value> {
    let input = Input::deserialize(input).context("cannot read the input")?;
    let mut settings = Settings {
        gates: gates(&input.gates, &context.gates)?,
        quirks: context.quirks,
        ..Settings::default()
    };
    input.thresholds.apply(&mut settings);
    let vpa = Vpa::from(&input.vpa);
    let here = |range: &&LimitRange| range.metadata.namespace.as_ref() == Some(&vpa.namespace);
    let limit_ranges = LimitRanges::merge(input.limit_ranges.iter().filter(here));

    let looks: Vec<Look<'_>> = input
        .pods
        .iter()
        .map(|pod| {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            let infeasible = input.infeasible.get(uid).map(amounts);
            look(
                pod,
                &vpa,
                &limit_ranges,
                infeasible.as_deref(),
                &settings,
                input.now,
            )
        })
        .collect();
    let mut order: Vec<&Look<'_>> = looks.iter().filter(|look| look.accepted).collect();
    order.sort_by(|one, other| one.priority.urgency(&other.priority));
    let admitted = order.iter().filter(|look| look.admitted);
    Ok(json!({
        "pods": looks.iter().map(Look::print).collect::<Vec<_>>(),
        "order": order.iter().map(|look| look.pod).collect::<Vec<_>>(),
        "orderAfterEvictionRequirements": admitted.map(|look| look.pod).collect::<Vec<_>>(),
    }))
}

impl Thresholds {
    pub(super) fn apply(&self, settings: &mut Settings) {
        settings.pod_update_threshold = self.pod_update_threshold;
        settings.pod_lifetime = TimeDelta::seconds(self.pod_lifetime_seconds);
        settings.evict_after_oom = TimeDelta::seconds(self.evict_after_oom_seconds);
    }
}

/// What came of looking at one pod.
struct Look<'p> {
    pod: &'p str,
    priority: Priority,
    accepted: bool,
    admitted: bool,
}

impl Look<'_> {
    fn print(&self) -> Value {
        let Priority {
            scale_up,
            outside_recommended_range,
            resource_diff,
        } = self.priority;
        json!({
            "pod": self.pod,
            "accepted": self.accepted,
            "outsideRecommendedRange": outside_recommended_range,
            "scaleUp": scale_up,
            "resourceDiff": resource_diff,
            "resourceDiffBits": format!("{:016x}", resource_diff.to_bits()),
        })
    }
}

fn look<'p>(
    pod: &'p Pod,
    vpa: &Vpa,
    limit_ranges: &LimitRanges,
    infeasible: Option<&[Recommended]>,
    settings: &Settings,
    now: DateTime<Utc>,
) -> Look<'p> {
    let plan: PodPlan<'_> = plan(&PlanInput {
        pod,
        sizing: &vpa.sizing,
        formulas: None,
        limit_ranges,
        stage: Stage::Running,
        remembered: None,
        even_if_off: false,
        max_cpu_boost: None,
        gates: &settings.gates,
        quirks: settings.quirks,
    });
    let observed = Observed::of(pod, settings.quirks);
    let candidate = Candidate {
        pod,
        vpa,
        plan: &plan,
        observed: &observed,
        purpose: vpa.way().map_or(Purpose::Evict, Purpose::from),
    };
    let priority = candidate.priority(settings);
    let capped = plan.recommendations.iter().map(|one| &one.amounts);
    let is_hopeless =
        vpa.way() == Some(Way::Resize) && infeasible.is_some_and(|infeasible| !is_lower(capped, infeasible));
    Look {
        pod: pod.metadata.name.as_deref().unwrap_or_default(),
        accepted: !is_hopeless && candidate.due(&priority, settings, now).is_ok(),
        admitted: candidate.meets_requirements(settings),
        priority,
    }
}

/// A recommendation as it stands in a status.
pub(super) fn amounts(recommendation: &RecommendedPodResources) -> Vec<Recommended> {
    let vpa = VerticalPodAutoscaler {
        status: Some(VerticalPodAutoscalerStatus {
            recommendation: Some(recommendation.clone()),
            ..VerticalPodAutoscalerStatus::default()
        }),
        ..VerticalPodAutoscaler::default()
    };
    Sizing::from(&vpa).recommendation.unwrap_or_default()
}
