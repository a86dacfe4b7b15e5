//! The model of the cluster: pods with their containers, the usage of these by label set, and the VPAs that select
//! them (`spec/vpa.md` 2.4). A plain value that is told what happened and when; it reads no clock and asks nobody.

mod garbage;
mod labels;
mod pods;
mod pool;
#[cfg(test)]
mod tests;
mod view;
mod vpas;

pub use pods::{ContainerUpdate, Place, PodUpdate, Usage};
pub use pool::Name;
pub use view::{Checkpoint, VpaView};
pub use vpas::{Dirty, Quality};

use crate::{
    aggregate::{HalfLives, Settings},
    checkpoint::{self, CheckpointError, Loaded},
    policy::{PerResource, Policies},
    recommend::Recommendation,
};
use chrono::{DateTime, TimeDelta, Utc};
use common::{
    api::{checkpoint::VerticalPodAutoscalerCheckpointStatus, vpa::UpdateMode},
    quantity::{Bytes, MilliCpu},
    quirks::{Quirk, Quirks},
    selector::Selector,
};
use labels::LabelSets;
use pods::Pod;
use pool::Pool;
use std::collections::{BTreeMap, HashMap};
use vpas::{ContainerRecord, Initial, Vpa};

/// What holds for the whole model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelConfig {
    /// How fast usage fades.
    pub half_lives: HalfLives,
    /// Where a policy does not say otherwise.
    pub settings: Settings,
    /// Policies may set them: the gate `PerVPAConfig`.
    pub per_vpa_settings: bool,
    /// Native sidecars are managed: the gate `NativeSidecar`.
    pub native_sidecars: bool,
    /// VPA's ways that are wanted.
    pub quirks: Quirks,
}

/// The model.
#[derive(Debug)]
pub struct Cluster {
    config: ModelConfig,
    pool: Pool,
    namespaces: BTreeMap<Name, Namespace>,
    last_garbage: Option<DateTime<Utc>>,
}

/// Everything in one namespace; nothing crosses its border.
#[derive(Debug, Default)]
pub(crate) struct Namespace {
    pods: HashMap<Name, Pod>,
    sets: LabelSets,
    vpas: BTreeMap<Name, Vpa>,
}

impl Cluster {
    /// An empty model.
    #[must_use]
    pub fn new(config: ModelConfig) -> Self {
        Self {
            config,
            pool: Pool::default(),
            namespaces: BTreeMap::new(),
            last_garbage: None,
        }
    }

    /// What holds for the whole model.
    #[must_use]
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// A VPA is there, or has changed. What it knows from its checkpoints stays, except that VPA itself forgets it
    /// with every change of the selector (kubernetes/autoscaler#9891).
    pub fn upsert_vpa(&mut self, namespace: &str, name: &str, selector: Selector, policies: Policies) {
        let config = self.config;
        let (pool, Namespace { sets, vpas, .. }) = self.namespace_mut(namespace);
        let name = pool.name(name);
        let vpa = vpas
            .entry(Name::clone(&name))
            .or_insert_with(|| Vpa::new(Selector::Nothing, Policies::default()));
        if vpa.selector == selector && vpa.policies == policies {
            return;
        }
        vpa.policies = policies;
        if vpa.selector != selector {
            let left = std::mem::take(&mut vpa.sets);
            sets.unselect(&name, &left);
            vpa.sets = sets.select(&name, selector.clone(), pool);
            vpa.selector = selector;
            if config.quirks.has(Quirk::SelectorChangeDropsHistory) {
                vpa.containers.clear();
            }
            for id in left {
                configure(&config, sets, vpas, id);
            }
        }
        let Some(vpa) = vpas.get_mut(&name) else { return };
        vpa.stale = true;
        for id in vpa.sets.clone() {
            configure_for(&config, sets, vpas, id, &name);
        }
    }

    /// A VPA is gone.
    pub fn remove_vpa(&mut self, namespace: &str, name: &str) {
        let config = self.config;
        let Some(Namespace { sets, vpas, .. }) = self.namespaces.get_mut(namespace) else {
            return;
        };
        if let Some(vpa) = vpas.remove(name) {
            sets.unselect(name, &vpa.sets);
            for id in vpa.sets {
                configure(&config, sets, vpas, id);
            }
        }
        self.drop_if_empty(namespace);
    }

    /// The VPAs of the model: namespace and name.
    pub fn vpas(&self) -> impl Iterator<Item = (&Name, &Name)> {
        self.namespaces
            .iter()
            .flat_map(|(namespace, content)| content.vpas.keys().map(move |name| (namespace, name)))
    }

    /// The VPAs about which something changed since they were last asked for here.
    pub fn take_stale(&mut self) -> Vec<(Name, Name)> {
        let mut stale = Vec::new();
        for (namespace, content) in &mut self.namespaces {
            for (name, vpa) in &mut content.vpas {
                if std::mem::take(&mut vpa.stale) {
                    stale.push((Name::clone(namespace), Name::clone(name)));
                }
            }
        }
        stale
    }

    /// A VPA to look at.
    #[must_use]
    pub fn vpa(&self, namespace: &str, name: &str) -> Option<VpaView<'_>> {
        let (namespace_name, content) = self.namespaces.get_key_value(namespace)?;
        let (name, vpa) = content.vpas.get_key_value(name)?;
        Some(VpaView::new(&self.config, namespace_name, name, content, vpa))
    }

    /// How many aggregates there are.
    #[must_use]
    pub fn aggregates(&self) -> usize {
        self.namespaces
            .values()
            .map(|content| content.sets.aggregates())
            .sum()
    }

    /// Begins a container's history with its checkpoint, and the windows that were open when it was written. Pods
    /// may come before or after it. Says whether the VPA is there to take it.
    ///
    /// Once for each container, before its first sample: what we have seen ourselves is in our own checkpoints too.
    ///
    /// # Errors
    /// When the checkpoint cannot be read; nothing has changed then.
    pub fn load_checkpoint(
        &mut self,
        id: (&str, &str),
        container: &str,
        status: &VerticalPodAutoscalerCheckpointStatus,
        annotation: Option<&str>,
        now: DateTime<Utc>,
    ) -> Result<bool, CheckpointError> {
        let config = self.config;
        let (namespace, name) = id;
        let Some((pool, content)) = self.known_namespace(namespace) else {
            return Ok(false);
        };
        let Some(vpa) = content.vpas.get_mut(name) else {
            return Ok(false);
        };
        let settings = vpa.policies.settings(container, config.settings, &config);
        let Loaded {
            history,
            peaks,
            windows,
        } = checkpoint::load(
            status,
            annotation,
            config.half_lives,
            config.quirks,
            &settings,
            now,
        )?;
        vpa.stale = true;
        let record = vpa.containers.entry(pool.name(container)).or_default();
        record.initial = Some(Box::new(Initial { history, peaks }));
        record.pending = windows
            .into_iter()
            .map(|(pod, window)| (pool.name(&pod), window))
            .collect();
        for pod in record.pending.keys().cloned().collect::<Vec<_>>() {
            content.resume_windows(&config, &pod);
        }
        Ok(true)
    }

    /// Whether a checkpoint tells of usage that the model does not have anyway: it ends before the first sample here.
    #[must_use]
    pub fn is_news(
        &self,
        id: (&str, &str),
        container: &str,
        status: &VerticalPodAutoscalerCheckpointStatus,
    ) -> bool {
        let known = self.vpa(id.0, id.1).map(|view| view.history(container));
        let first = known.and_then(|history| history.first_sample);
        first
            .zip(status.last_sample_start)
            .is_none_or(|(first, last)| first > last)
    }

    /// A recommendation was computed: what samples are compared with from now on.
    pub fn note_recommendation(
        &mut self,
        id: (&str, &str),
        mode: &UpdateMode,
        recommendation: &Recommendation,
    ) {
        let Some((pool, content)) = self.known_namespace(id.0) else {
            return;
        };
        let Some(vpa) = content.vpas.get_mut(id.1) else {
            return;
        };
        if vpa.mode != *mode {
            vpa.mode = mode.clone();
        }
        for (name, record) in &mut vpa.containers {
            if !recommendation.contains_key(name) {
                record.target = PerResource::default();
            }
        }
        for (name, recommended) in recommendation {
            let uncapped = &recommended.uncapped;
            let target = PerResource {
                cpu: uncapped.cpu.as_ref().map(|cpu| MilliCpu::from_quantity(cpu).0),
                memory: uncapped
                    .memory
                    .as_ref()
                    .map(|memory| Bytes::from_quantity(memory).0),
            };
            if let Some(record) = vpa.containers.get_mut(name) {
                record.target = target;
            } else {
                let record = ContainerRecord {
                    target,
                    ..ContainerRecord::default()
                };
                vpa.containers.insert(pool.name(name), record);
            }
        }
    }

    /// The checkpoints that should be written by now: namespace, VPA, container. None waits longer than `max_age`,
    /// and an OOM does not wait.
    #[must_use]
    pub fn due_checkpoints(&self, now: DateTime<Utc>, max_age: TimeDelta) -> Vec<(Name, Name, Name)> {
        let mut due = Vec::new();
        for (namespace, content) in &self.namespaces {
            for (name, vpa) in &content.vpas {
                for container in vpa.due((namespace, name), now, max_age) {
                    due.push((Name::clone(namespace), Name::clone(name), Name::clone(container)));
                }
            }
        }
        due
    }

    /// A checkpoint is about to be written as it is now: what it should contain, and the mark to put back if that
    /// fails. Nothing if there is nothing known of the container any more, or nothing that is ours to write.
    pub fn take_checkpoint(
        &mut self,
        id: (&str, &str),
        container: &str,
        now: DateTime<Utc>,
    ) -> Option<(Checkpoint, Option<Dirty>)> {
        let checkpoint = self.vpa(id.0, id.1)?.checkpoint(container, now);
        let vpa = self.namespaces.get_mut(id.0)?.vpas.get_mut(id.1)?;
        let mark = vpa
            .containers
            .get_mut(container)
            .and_then(|record| record.dirty.take());
        Some((checkpoint?, mark))
    }

    /// A checkpoint could not be written: it still is not up to date.
    pub fn mark_dirty(&mut self, id: (&str, &str), container: &str, mark: Dirty) {
        if let Some((pool, content)) = self.known_namespace(id.0)
            && let Some(vpa) = content.vpas.get_mut(id.1)
        {
            vpa.mark(&pool.name(container), mark);
        }
    }

    fn namespace_mut(&mut self, namespace: &str) -> (&mut Pool, &mut Namespace) {
        let key = self.pool.name(namespace);
        (&mut self.pool, self.namespaces.entry(key).or_default())
    }

    fn known_namespace(&mut self, namespace: &str) -> Option<(&mut Pool, &mut Namespace)> {
        Some((&mut self.pool, self.namespaces.get_mut(namespace)?))
    }

    fn drop_if_empty(&mut self, namespace: &str) {
        let is_empty = |content: &Namespace| {
            content.pods.is_empty() && content.vpas.is_empty() && content.sets.is_empty()
        };
        if self.namespaces.get(namespace).is_some_and(is_empty) {
            self.namespaces.remove(namespace);
        }
    }
}

/// Puts the settings of every VPA that selects a set in force, one after the other, from the defaults on.
fn configure(config: &ModelConfig, sets: &mut LabelSets, vpas: &BTreeMap<Name, Vpa>, id: labels::SetId) {
    let Some(set) = sets.get_mut(id) else { return };
    for (container, aggregate) in &mut set.aggregates {
        if !config.quirks.has(Quirk::StickyOverrides) {
            aggregate.configure(config.settings, &config.settings);
        }
        for vpa in set.vpas.iter().filter_map(|name| vpas.get(name)) {
            vpa.configure(config, container, aggregate);
        }
    }
}

/// Puts the settings of one VPA in force on a set it selects.
fn configure_for(
    config: &ModelConfig,
    sets: &mut LabelSets,
    vpas: &BTreeMap<Name, Vpa>,
    id: labels::SetId,
    vpa: &str,
) {
    if let Some(set) = sets.get_mut(id)
        && let Some(vpa) = vpas.get(vpa)
    {
        for (container, aggregate) in &mut set.aggregates {
            vpa.configure(config, container, aggregate);
        }
    }
}
