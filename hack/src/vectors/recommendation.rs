//! Family `recommendation`: a whole model with one VPA, fed with samples, asked for its recommendation, its checkpoints
//! and what it accepted.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use chrono::{DateTime, TimeDelta, Utc};
use common::{
    api::{
        checkpoint::VerticalPodAutoscalerCheckpointStatus,
        vpa::{PodResourcePolicy, VerticalPodAutoscaler},
    },
    gates::{Gate, Gates},
    pod::Phase,
    quantity::{Bytes, MilliCpu, Quantity},
};
use recommender::{
    aggregate::{HalfLives, Settings},
    cluster::{Cluster, ContainerUpdate, ModelConfig, Place, PodUpdate, Usage},
    conditions::Conditions,
    estimate::{EstimatorConfig, Percentiles},
    histogram::HalfLife,
    policy::Policies,
    postprocess::PostProcessing,
    recommend::{Amounts, Rounding, recommend, to_wire},
    window::Rejected,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{family::Context, file::without_nulls, generator::Generator};

const NAMESPACE: &str = "ns";
const VPA: &str = "v";

/// When the original ran: later than all that happens in a case. An aggregate without samples is that old.
const GENERATED: DateTime<Utc> = DateTime::<Utc>::MAX_UTC;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    #[serde(default)]
    gates: BTreeMap<String, bool>,
    flags: Flags,
    vpa: VerticalPodAutoscaler,
    selector: String,
    #[serde(default)]
    checkpoints: Vec<Checkpoint>,
    #[serde(default)]
    pods: Vec<Pod>,
    #[serde(default)]
    events: Vec<Event>,
    now: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Flags {
    recommendation_margin_fraction: f64,
    #[serde(rename = "podMinCPUMillicores")]
    pod_min_cpu_millicores: f64,
    pod_min_memory_mb: f64,
    #[serde(rename = "targetCPUPercentile")]
    target_cpu: f64,
    #[serde(rename = "lowerBoundCPUPercentile")]
    lower_cpu: f64,
    #[serde(rename = "upperBoundCPUPercentile")]
    upper_cpu: f64,
    #[serde(rename = "confidenceIntervalCPUSeconds")]
    confidence_cpu: i64,
    #[serde(rename = "targetMemoryPercentile")]
    target_memory: f64,
    #[serde(rename = "lowerBoundMemoryPercentile")]
    lower_memory: f64,
    #[serde(rename = "upperBoundMemoryPercentile")]
    upper_memory: f64,
    #[serde(rename = "confidenceIntervalMemorySeconds")]
    confidence_memory: i64,
    humanize_memory: bool,
    #[serde(rename = "roundCPUMillicores")]
    round_cpu_millicores: i64,
    round_memory_bytes: i64,
    cpu_integer_post_processor_enabled: bool,
    #[serde(rename = "maxAllowedCPU")]
    max_allowed_cpu: String,
    max_allowed_memory: String,
    memory_aggregation_interval_seconds: i64,
    memory_aggregation_interval_count: i64,
    memory_histogram_decay_half_life_seconds: i64,
    cpu_histogram_decay_half_life_seconds: i64,
    oom_bump_up_ratio: f64,
    oom_min_bump_up_bytes: f64,
}

#[derive(Deserialize)]
struct Checkpoint {
    container: String,
    status: VerticalPodAutoscalerCheckpointStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Pod {
    name: String,
    labels: BTreeMap<String, String>,
    phase: Phase,
    containers: Vec<Container>,
    init_containers: Vec<Container>,
    late: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    name: String,
    #[serde(default)]
    restart_policy: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    k: String,
    #[serde(default)]
    p: usize,
    #[serde(default)]
    c: String,
    #[serde(default)]
    t: i64,
    #[serde(default)]
    v: i64,
    #[serde(default)]
    to: i64,
    #[serde(default)]
    step: i64,
    #[serde(default)]
    jitter: i64,
    cpu: Option<Generator>,
    mem: Option<Generator>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    phase: Phase,
    resource_policy: Option<PodResourcePolicy>,
    #[serde(default)]
    controller_exists: bool,
}

pub(super) fn answer(input: &Value, context: &Context) -> anyhow::Result<Value> {
    let input = Input::deserialize(without_nulls(input)).context("cannot read the input")?;
    let gates = input
        .gates
        .iter()
        .filter_map(|(name, on)| Some((Gate::ALL.into_iter().find(|gate| gate.name() == name)?, *on)))
        .fold(context.gates.clone(), |gates, (gate, on)| gates.with(gate, on));
    Run::new(&input, &gates, context)?.answer()
}

struct Run<'a> {
    input: &'a Input,
    context: &'a Context,
    cluster: Cluster,
    policy: Option<PodResourcePolicy>,
    /// The pods in the model, by their place in the input.
    live: BTreeSet<usize>,
    accepted: usize,
    rejected: usize,
    rejected_events: Vec<usize>,
    rejected_in_generators: BTreeMap<usize, usize>,
    checkpoint_errors: BTreeMap<String, String>,
}

impl<'a> Run<'a> {
    fn new(input: &'a Input, gates: &Gates, context: &'a Context) -> anyhow::Result<Self> {
        let flags = &input.flags;
        let half_life = |seconds| HalfLife::new(TimeDelta::seconds(seconds)).context("no half-life");
        let cluster = Cluster::new(ModelConfig {
            half_lives: HalfLives {
                cpu: half_life(flags.cpu_histogram_decay_half_life_seconds)?,
                memory: half_life(flags.memory_histogram_decay_half_life_seconds)?,
            },
            settings: Settings {
                interval: TimeDelta::seconds(flags.memory_aggregation_interval_seconds),
                interval_count: flags.memory_aggregation_interval_count,
                oom_ratio: flags.oom_bump_up_ratio,
                oom_min_bump: flags.oom_min_bump_up_bytes,
                memory_cap: flags
                    .max_allowed()?
                    .memory
                    .map(|cap| Bytes::from_quantity(&cap))
                    .filter(|cap| !cap.is_zero()),
            },
            per_vpa_settings: gates.enabled(Gate::PerVPAConfig),
            native_sidecars: gates.enabled(Gate::NativeSidecar),
            quirks: context.quirks,
        });
        Ok(Self {
            input,
            context,
            cluster,
            policy: input.vpa.spec.resource_policy.clone(),
            live: BTreeSet::new(),
            accepted: 0,
            rejected: 0,
            rejected_events: Vec::new(),
            rejected_in_generators: BTreeMap::new(),
            checkpoint_errors: BTreeMap::new(),
        })
    }

    fn answer(mut self) -> anyhow::Result<Value> {
        let input = self.input;
        self.upsert_vpa()?;
        for Checkpoint { container, status } in &input.checkpoints {
            let loaded =
                self.cluster
                    .load_checkpoint((NAMESPACE, VPA), container, status, None, time(input.now));
            if let Err(error) = loaded {
                self.checkpoint_errors
                    .insert(container.clone(), error.to_string());
            }
        }
        for (index, pod) in input.pods.iter().enumerate() {
            if !pod.late {
                self.upsert_pod(index, &pod.labels, pod.phase, false)?;
            }
        }
        for (index, event) in input.events.iter().enumerate() {
            self.event(index, event)
                .with_context(|| format!("event {index}"))?;
        }
        self.results()
    }

    fn upsert_vpa(&mut self) -> anyhow::Result<()> {
        let selector = self.input.selector.parse()?;
        self.cluster.upsert_vpa(NAMESPACE, VPA, selector, self.policies());
        Ok(())
    }

    fn policies(&self) -> Policies {
        self.policy.as_ref().map(Policies::from).unwrap_or_default()
    }

    fn upsert_pod(
        &mut self,
        index: usize,
        labels: &BTreeMap<String, String>,
        phase: Phase,
        relabelled: bool,
    ) -> anyhow::Result<()> {
        let pod = self.input.pods.get(index).context("no such pod")?;
        let containers = pod.containers.iter().map(|container| (container, Place::Regular));
        let init = pod.init_containers.iter().map(|container| {
            let native = container.restart_policy.as_deref() == Some("Always");
            (container, if native { Place::NativeSidecar } else { Place::Init })
        });
        // Labels of a pod that is not there make it known without any container.
        let known = self.live.contains(&index) || !relabelled;
        let containers: Vec<_> = containers
            .chain(init)
            .filter(|_| known)
            .map(|(container, place)| ContainerUpdate {
                name: &container.name,
                place,
            })
            .collect();
        let update = PodUpdate {
            namespace: NAMESPACE,
            name: &pod.name,
            labels,
            terminal: phase.is_terminal(),
            containers: &containers,
        };
        self.cluster.upsert_pod(&update, GENERATED);
        if known {
            self.live.insert(index);
        }
        Ok(())
    }

    fn event(&mut self, index: usize, event: &Event) -> anyhow::Result<()> {
        let pod = || self.input.pods.get(event.p).context("no such pod");
        match event.k.as_str() {
            "cpu" => self.sample(index, event, Usage::Cpu(MilliCpu(event.v)))?,
            "mem" => self.sample(index, event, Usage::Memory(Bytes(event.v)))?,
            "oom" => self.sample(index, event, Usage::Oom(Bytes(event.v)))?,
            "gen" => self.generate(index, event)?,
            "addpod" => {
                let pod = pod()?;
                self.upsert_pod(event.p, &pod.labels, pod.phase, false)?;
            }
            "delpod" => {
                self.cluster.remove_pod(NAMESPACE, &pod()?.name, time(event.t));
                self.live.remove(&event.p);
            }
            "labels" => self.upsert_pod(event.p, &event.labels, event.phase, true)?,
            "policy" => {
                self.policy.clone_from(&event.resource_policy);
                self.upsert_vpa()?;
            }
            "gc" => self
                .cluster
                .collect_garbage(time(event.t), |_, _| event.controller_exists),
            other => anyhow::bail!("unknown event {other:?}"),
        }
        Ok(())
    }

    fn sample(&mut self, index: usize, event: &Event, usage: Usage) -> anyhow::Result<()> {
        if !self.add(event, usage, event.t)? {
            self.rejected_events.push(index);
        }
        Ok(())
    }

    fn generate(&mut self, index: usize, event: &Event) -> anyhow::Result<()> {
        ensure!(event.step > 0, "a generator needs a step");
        let (mut cpu, mut mem) = (event.cpu.clone(), event.mem.clone());
        let mut rejected = 0;
        let starts = (0..).map(|i| (i, event.t + i * event.step));
        for (i, start) in starts.take_while(|(_, start)| *start <= event.to) {
            let jitter = if event.jitter > 0 {
                (i * 7919) % event.jitter
            } else {
                0
            };
            if let Some(cpu) = &mut cpu {
                rejected +=
                    usize::from(!self.add(event, Usage::Cpu(MilliCpu(cpu.value(i)?)), start + jitter)?);
            }
            if let Some(mem) = &mut mem {
                rejected +=
                    usize::from(!self.add(event, Usage::Memory(Bytes(mem.value(i)?)), start + jitter)?);
            }
        }
        if rejected > 0 {
            self.rejected_in_generators.insert(index, rejected);
        }
        Ok(())
    }

    /// Counts a sample; says whether it was not refused. The samples of containers that are not managed are dropped
    /// without being counted, as the original's feeder does before it asks the model.
    fn add(&mut self, event: &Event, usage: Usage, at: i64) -> anyhow::Result<bool> {
        let pod = self.input.pods.get(event.p).context("no such pod")?;
        let id = (NAMESPACE, pod.name.as_str(), event.c.as_str());
        match self.cluster.add_sample(id, usage, time(at), GENERATED) {
            Ok(()) => self.accepted += 1,
            Err(Rejected::InitContainer) => {}
            Err(_) => {
                self.rejected += 1;
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn results(self) -> anyhow::Result<Value> {
        let Input { flags, vpa, now, .. } = self.input;
        let view = self.cluster.vpa(NAMESPACE, VPA).context("the VPA is gone")?;
        let published = vpa
            .status
            .as_ref()
            .and_then(|status| status.recommendation.as_ref());
        let policies = self.policies();
        let uncapped = recommend(
            &view.histories(),
            &policies,
            published,
            &flags.estimator(),
            flags.rounding(),
            self.context.quirks,
        );
        let annotations = vpa.metadata.annotations.clone().unwrap_or_default();
        let post_processing = PostProcessing {
            integer_cpu: flags.cpu_integer_post_processor_enabled,
            max_allowed: flags.max_allowed()?,
        };
        let last = post_processing.apply(uncapped.clone(), &annotations, &policies);

        let conditions = vpa.status.iter().flat_map(|status| status.conditions.clone());
        let mut conditions: Conditions = conditions.collect();
        conditions.observe(view.pod_count(), !last.is_empty(), time(*now));
        let conditions = conditions.to_vec().into_iter().map(|condition| {
            json!({
                "type": condition.type_.to_string(),
                "status": condition.status.to_string(),
                "reason": condition.reason,
                "message": condition.message,
            })
        });

        let mut checkpoints = Map::new();
        for name in view.containers() {
            let checkpoint = view.checkpoint(name, time(*now)).context("no checkpoint")?;
            let mut status = serde_json::to_value(checkpoint.status)?;
            if let Some(status) = status.as_object_mut() {
                status.remove("lastUpdateTime");
            }
            checkpoints.insert(name.to_string(), status);
        }
        Ok(json!({
            "uncapped": to_wire(&uncapped),
            "final": to_wire(&last),
            "conditions": conditions.collect::<Vec<_>>(),
            "podCount": view.pod_count(),
            "aggregateStates": self.cluster.aggregates(),
            "checkpoints": checkpoints,
            "accepted": self.accepted,
            "rejectedCount": self.rejected,
            "rejectedEvents": self.rejected_events,
            "rejectedInGenerators": self.rejected_in_generators,
            "windows": self.windows(),
            "checkpointErrors": self.checkpoint_errors,
        }))
    }

    fn windows(&self) -> Vec<Value> {
        let mut windows = Vec::new();
        for pod in self.live.iter().filter_map(|index| self.input.pods.get(*index)) {
            for container in &pod.containers {
                let samples = self.cluster.samples(NAMESPACE, &pod.name, &container.name);
                let window = samples.and_then(|samples| samples.window());
                windows.push(json!({
                    "pod": pod.name,
                    "container": container.name,
                    "windowEnd": window.map(|window| window.end.timestamp()),
                    "memoryPeak": window.map_or(0, |window| window.peak().0),
                }));
            }
        }
        windows
    }
}

impl Flags {
    fn estimator(&self) -> EstimatorConfig {
        EstimatorConfig {
            margin: self.recommendation_margin_fraction,
            pod_min_cpu_millicores: self.pod_min_cpu_millicores,
            pod_min_memory_mb: self.pod_min_memory_mb,
            cpu: Percentiles {
                target: self.target_cpu,
                lower: self.lower_cpu,
                upper: self.upper_cpu,
                confidence_interval: TimeDelta::seconds(self.confidence_cpu),
            },
            memory: Percentiles {
                target: self.target_memory,
                lower: self.lower_memory,
                upper: self.upper_memory,
                confidence_interval: TimeDelta::seconds(self.confidence_memory),
            },
        }
    }

    fn rounding(&self) -> Rounding {
        Rounding {
            cpu_millicores: self.round_cpu_millicores,
            memory_bytes: self.round_memory_bytes,
            humanize_memory: self.humanize_memory,
        }
    }

    fn max_allowed(&self) -> anyhow::Result<Amounts> {
        let amount = |text: &str| -> anyhow::Result<Option<Quantity>> {
            if text.is_empty() {
                Ok(None)
            } else {
                Ok(Some(text.parse()?))
            }
        };
        Ok(Amounts {
            cpu: amount(&self.max_allowed_cpu)?,
            memory: amount(&self.max_allowed_memory)?,
        })
    }
}

fn time(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(seconds, 0).unwrap_or(DateTime::UNIX_EPOCH)
}
