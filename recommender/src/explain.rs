//! Where the numbers of a VPA come from: `recommender explain`. Everything is computed by the functions that the daemon
//! itself publishes with; here they are only asked for their steps.

mod read;
mod text;

pub use read::{ExplainError, explain};

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use common::{
    api::{OpenEnum as _, k8s::ResourceList},
    quantity::{Bytes, MilliCpu, Quantity},
};
use serde::{Serialize, Serializer};

use crate::{
    aggregate::History,
    cluster::{Name, VpaView},
    estimate::{Bounds, Derivation, confidence},
    feed::vpas::{Key, Row},
    histogram::Histogram,
    interval::{Interval, interval, worth_of_cpu, worth_of_memory},
    num,
    policy::PerResource,
    postprocess::{Cap, Caps},
    recommend::{Amounts, Recommended, Source, sources},
    status::StatusConfig,
    window::amount,
};

/// How sure intervals are.
const LEVEL: f64 = 0.95;

/// What is known of a VPA and what follows from it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Kind and name of what it sizes.
    pub target: Option<String>,
    /// Its update mode.
    pub update_mode: String,
    /// Why its target cannot be sized.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsupported: Option<String>,
    /// How many pods it selects.
    pub pods: usize,
    /// What is added to usage for safety, as a share.
    pub margin: f64,
    /// How sure the intervals of percentiles are, if samples were independent.
    pub interval_level: f64,
    /// Its containers.
    pub containers: Vec<ContainerExplanation>,
}

/// What is known of a container and what follows from it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerExplanation {
    /// Its name.
    pub name: String,
    /// The policy wants nothing for it.
    pub off: bool,
    /// When its checkpoint was written; without one nothing is known of its usage.
    pub checkpoint: Option<DateTime<Utc>>,
    /// Its CPU.
    pub cpu: ResourceExplanation,
    /// Its memory.
    pub memory: ResourceExplanation,
}

/// What is known of one resource of a container and what follows from it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceExplanation {
    /// Where the numbers come from.
    pub source: Source,
    /// The usage.
    pub samples: Samples,
    /// How much history there is, in confidence intervals.
    pub confidence: f64,
    /// The target.
    pub target: Number,
    /// The lower bound.
    pub lower_bound: Number,
    /// The upper bound.
    pub upper_bound: Number,
    /// The target before the policy had its say.
    pub uncapped_target: Option<Exact>,
}

/// The samples of CPU, or the peaks of memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Samples {
    /// How many there were.
    pub count: i64,
    /// The first of them.
    pub first: Option<DateTime<Utc>>,
    /// The last of them.
    pub last: Option<DateTime<Utc>>,
    /// What they are worth in samples that do not fade.
    pub worth: f64,
}

/// How one number was made.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Number {
    /// Which part of the usage lies below, by weight.
    pub percentile: f64,
    /// The usage there.
    pub usage: Amount,
    /// Where that percentile lies in truth.
    pub interval: Option<Range>,
    /// The usage with the margin on top.
    pub with_margin: Amount,
    /// What the confidence makes of it, where it counts.
    pub confidence_factor: Option<f64>,
    /// The same, times that.
    pub scaled: Amount,
    /// The container's part of the least that a pod gets.
    pub minimum: Amount,
    /// What follows from usage.
    pub estimated: Amount,
    /// What the policy and the recommender's maximum changed of it.
    pub caps: Vec<Cap>,
    /// What is recommended, if anything.
    pub recommended: Option<Exact>,
    /// What the status says now.
    pub published: Option<Exact>,
}

/// From where to where.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    /// Not below this.
    pub low: Amount,
    /// Not above this; nothing if there are too few samples to say.
    pub high: Option<Amount>,
}

/// An amount on the way to a recommendation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Of CPU.
    Cpu(MilliCpu),
    /// Of memory.
    Memory(Bytes),
}

impl Amount {
    fn quantity(self) -> Quantity {
        match self {
            Self::Cpu(cpu) => cpu.to_quantity(),
            Self::Memory(memory) => memory.to_quantity(),
        }
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        output.collect_str(&self.quantity().canonical())
    }
}

/// A quantity as the status carries it.
#[derive(Clone, Debug, PartialEq)]
pub struct Exact(pub Quantity);

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        output.collect_str(&self.0.clone().canonical())
    }
}

/// Explains a VPA, given when the checkpoints of its containers were written.
pub(crate) fn explanation(
    (namespace, name): &Key,
    row: &Row,
    view: &VpaView<'_>,
    config: &StatusConfig,
    written: &BTreeMap<String, DateTime<Utc>>,
) -> Explanation {
    let histories = view.histories();
    let mut caps = BTreeMap::new();
    let recommendation = config.recommendation(row, &histories, |name, of| {
        caps.insert(Name::clone(name), of);
    });
    let containers = view.containers().into_iter().map(|container| {
        let history = match histories.get(container) {
            Some(history) => history.clone(),
            None => view.history(container),
        };
        let known = Known {
            history: &history,
            view,
            row,
            config,
            container,
            share: histories.len(),
            recommended: recommendation.get(container),
            caps: caps.get(container).cloned().unwrap_or_default(),
        };
        let PerResource { cpu, memory } = known.resources();
        ContainerExplanation {
            name: container.to_string(),
            off: row.policies.is_off(container),
            checkpoint: written.get(&**container).copied(),
            cpu,
            memory,
        }
    });
    let target = row.target.as_ref();
    Explanation {
        namespace: namespace.clone(),
        name: name.clone(),
        target: target.map(|target| format!("{} {}", target.kind, target.name)),
        update_mode: row.update_mode.as_str().to_owned(),
        unsupported: row.unsupported.clone(),
        pods: view.pod_count(),
        margin: config.estimator.margin,
        interval_level: LEVEL,
        containers: containers.collect(),
    }
}

/// What is known of one container.
struct Known<'a> {
    history: &'a History,
    view: &'a VpaView<'a>,
    row: &'a Row,
    config: &'a StatusConfig,
    container: &'a str,
    /// Among how many the pod's minimum is divided.
    share: usize,
    recommended: Option<&'a Recommended>,
    caps: Caps,
}

impl Known<'_> {
    fn resources(&self) -> PerResource<ResourceExplanation> {
        let Self { history, config, .. } = self;
        let estimator = &config.estimator;
        let derived = estimator.derive(history, self.share);
        let published = self.row.published();
        let sources = sources(
            self.container,
            history,
            &self.row.policies,
            published,
            config.quirks,
        );
        PerResource {
            cpu: ResourceExplanation {
                source: sources.cpu,
                samples: Samples {
                    count: history.samples,
                    first: history.first_sample,
                    last: history.last_sample,
                    worth: worth_of_cpu(history),
                },
                confidence: confidence(history, estimator.cpu.confidence_interval),
                ..self.numbers(&CPU, &derived.cpu, worth_of_cpu(history), &self.caps.cpu)
            },
            memory: self.memory(sources.memory, &derived.memory),
        }
    }

    fn memory(&self, source: Source, derived: &Bounds<Derivation>) -> ResourceExplanation {
        let parts = self.view.peak_parts(self.container);
        let worth = worth_of_memory(self.history, &parts);
        let weight: f64 = parts.iter().map(|part| part.weight).sum();
        let times = || parts.iter().map(|part| part.time);
        let interval = self.config.estimator.memory.confidence_interval;
        ResourceExplanation {
            source,
            samples: Samples {
                count: num::trunc(weight.round()).max(i64::from(!parts.is_empty())),
                first: times().min(),
                last: times().max(),
                worth,
            },
            confidence: confidence(self.history, interval),
            ..self.numbers(&MEMORY, derived, worth, &self.caps.memory)
        }
    }

    fn numbers(
        &self,
        of: &Resource,
        derived: &Bounds<Derivation>,
        worth: f64,
        caps: &Bounds<Vec<Cap>>,
    ) -> ResourceExplanation {
        let observed = self.row.observed.recommendation.as_ref();
        let observed = observed.and_then(|pod| {
            let mut containers = pod.container_recommendations.iter();
            containers.find(|container| container.container_name == self.container)
        });
        let published = |list: Option<&ResourceList>| {
            let amount = list.and_then(|list| list.get(of.name));
            amount
                .and_then(|amount| Quantity::try_from(amount).ok())
                .map(Exact)
        };
        let recommended = |pick: fn(&Recommended) -> &Amounts| {
            let amount = self.recommended.and_then(|all| (of.amount)(pick(all)));
            amount.cloned().map(Exact)
        };
        let number = |derivation: &Derivation, caps: &[Cap]| Number {
            percentile: derivation.fraction,
            usage: (of.unit)(derivation.percentile),
            interval: interval((of.histogram)(self.history), derivation.fraction, worth, LEVEL)
                .map(|Interval { low, high }| of.range(low, high)),
            with_margin: (of.unit)(derivation.with_margin),
            confidence_factor: derivation.factor,
            scaled: (of.unit)(derivation.scaled()),
            minimum: (of.unit)(derivation.minimum),
            estimated: (of.unit)(derivation.amount()),
            caps: caps.to_vec(),
            recommended: None,
            published: None,
        };
        ResourceExplanation {
            source: Source::NoSamples,
            samples: Samples {
                count: 0,
                first: None,
                last: None,
                worth,
            },
            confidence: 0.0,
            target: Number {
                recommended: recommended(|all| &all.target),
                published: published(observed.map(|container| &container.target)),
                ..number(&derived.target, &caps.target)
            },
            lower_bound: Number {
                recommended: recommended(|all| &all.lower),
                published: published(observed.map(|container| &container.lower_bound)),
                ..number(&derived.lower, &caps.lower)
            },
            upper_bound: Number {
                recommended: recommended(|all| &all.upper),
                published: published(observed.map(|container| &container.upper_bound)),
                ..number(&derived.upper, &caps.upper)
            },
            uncapped_target: recommended(|all| &all.uncapped),
        }
    }
}

/// In what the two resources differ.
struct Resource {
    name: &'static str,
    unit: fn(i64) -> Amount,
    /// What one of a histogram's units is in the resource's.
    scale: f64,
    histogram: fn(&History) -> &Histogram,
    amount: fn(&Amounts) -> Option<&Quantity>,
}

const CPU: Resource = Resource {
    name: "cpu",
    unit: |milli| Amount::Cpu(MilliCpu(milli)),
    scale: 1000.0,
    histogram: |history| &history.cpu,
    amount: |amounts| amounts.cpu.as_ref(),
};

const MEMORY: Resource = Resource {
    name: "memory",
    unit: |bytes| Amount::Memory(Bytes(bytes)),
    scale: 1.0,
    histogram: |history| &history.memory,
    amount: |amounts| amounts.memory.as_ref(),
};

impl Resource {
    fn range(&self, low: f64, high: Option<f64>) -> Range {
        let amount = |value: f64| (self.unit)(amount(value * self.scale));
        Range {
            low: amount(low),
            high: high.map(amount),
        }
    }
}

#[cfg(test)]
mod tests;
