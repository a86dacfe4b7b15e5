//! What the API server tells the recommender: VPAs, pods and controllers go into the model as they come, usage once in
//! every loop. One lock around all of it; nobody holds it while waiting.

pub(crate) mod external;
mod items;
pub(crate) mod targets;
pub(crate) mod usage;
pub(crate) mod vpas;
mod watches;

pub(crate) use watches::page;

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use chrono::{DateTime, Utc};
use common::{
    api::{k8s::Event, vpa::VerticalPodAutoscaler},
    daemon::{Namespaces, Settings},
    gates::{Gate, Gates},
    kube::{
        scale::Scales,
        watch::{Change, WatchedController},
    },
    pod::{Kind, Pod},
    selector::Selector,
    target::{ControllerIndex, ControllerKey, WellKnown},
};

use self::{
    targets::{Known, Target},
    usage::Sample,
    vpas::{Key, Vpas, key},
};
use crate::{
    cluster::{Cluster, ContainerUpdate, ModelConfig, Place, PodUpdate, Usage},
    metrics::{Metrics, QualityMetrics, ResourceReads},
    oom::{self, Oom, Remembered},
    window::Rejected,
};

/// The model and what else is known of the cluster.
pub(crate) struct Feed {
    pub(crate) cluster: Cluster,
    pub(crate) vpas: Vpas,
    controllers: ControllerIndex,
    /// Pods that are gone, and stay in the model until the loop has read the last of their usage.
    gone: Vec<Key>,
    /// What is kept of the statuses of pods, to see kills.
    remembered: HashMap<Key, Remembered>,
    /// Kills that the loop has not counted yet.
    ooms: VecDeque<Oom>,
    /// The eviction events that were counted: a list brings them again.
    evictions: HashSet<Key>,
    namespaces: Namespaces,
    gates: Gates,
    recommender: String,
    memory_saver: bool,
    quality: QualityMetrics,
    resource_reads: ResourceReads,
}

/// How many kills wait for the loop at most.
const MAX_OOMS: usize = 5000;

/// A feed that watches and the loop share.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<Feed>>);

impl Shared {
    pub(crate) fn new(feed: Feed) -> Self {
        Self(Arc::new(Mutex::new(feed)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Feed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Feed {
    pub(crate) fn new(
        model: ModelConfig,
        settings: Settings,
        recommender: String,
        memory_saver: bool,
        quality: QualityMetrics,
    ) -> Self {
        Self {
            cluster: Cluster::new(model),
            vpas: Vpas::default(),
            controllers: ControllerIndex::default(),
            gone: Vec::new(),
            remembered: HashMap::new(),
            ooms: VecDeque::new(),
            evictions: HashSet::new(),
            namespaces: settings.namespaces,
            gates: settings.gates,
            recommender,
            memory_saver,
            quality,
            resource_reads: ResourceReads::default(),
        }
    }

    /// Something happened to a VPA. The model learns of it when the target is resolved.
    pub(crate) fn vpa(&mut self, change: Change<'_, VerticalPodAutoscaler>) {
        match change {
            Change::Applied(vpa) => {
                if !self.namespaces.include(&key(&vpa.metadata).0) {
                    return;
                }
                if let Some((namespace, name)) = self.vpas.apply(&self.recommender, vpa) {
                    self.cluster.remove_vpa(&namespace, &name);
                }
            }
            Change::Deleted(vpa) => self.remove_vpa(&key(&vpa.metadata)),
            Change::Relisted(seen) => {
                let known = self.vpas.ours.keys().chain(&self.vpas.others);
                let gone: Vec<Key> = known
                    .filter(|(namespace, name)| !seen.contains(namespace, name))
                    .cloned()
                    .collect();
                for key in gone {
                    self.remove_vpa(&key);
                }
            }
        }
    }

    fn remove_vpa(&mut self, key: &Key) {
        self.vpas.remove(key);
        self.cluster.remove_vpa(&key.0, &key.1);
    }

    /// Something happened to a controller.
    pub(crate) fn controller<C: WatchedController>(&mut self, change: Change<'_, C>) {
        match change {
            Change::Applied(object) => {
                let (namespace, name) = object.key();
                self.controllers
                    .apply(C::KIND, namespace, name, object.controller());
            }
            Change::Deleted(object) => {
                let (namespace, name) = object.key();
                self.controllers.remove(C::KIND, namespace, name);
            }
            Change::Relisted(seen) => {
                self.controllers
                    .retain(C::KIND, |namespace, name| seen.contains(namespace, name));
            }
        }
    }

    /// Something happened to a pod.
    pub(crate) fn pod(&mut self, change: Change<'_, Pod>, now: DateTime<Utc>) {
        match change {
            Change::Applied(pod) => self.apply_pod(&pod, now),
            Change::Deleted(pod) => self.gone.push(key(&pod.metadata)),
            Change::Relisted(seen) => {
                let pods = self.cluster.pods();
                let gone = pods.filter(|(namespace, name)| !seen.contains(namespace, name));
                self.gone
                    .extend(gone.map(|(namespace, name)| (namespace.to_string(), name.to_string())));
            }
        }
    }

    fn apply_pod(&mut self, pod: &Pod, now: DateTime<Utc>) {
        let none = BTreeMap::new();
        let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let unwanted = !self.namespaces.include(namespace)
            || (self.memory_saver
                && !self.cluster.has_pod(namespace, name)
                && !self.is_selected(namespace, labels));
        if unwanted {
            return;
        }
        self.observe_kills(pod, now);
        // One of the same name may have gone since the last loop.
        if !self.gone.is_empty() {
            self.gone.retain(|gone| gone.0 != namespace || gone.1 != name);
        }
        let containers = places(pod);
        let update = PodUpdate {
            namespace,
            name,
            labels,
            terminal: pod.status.phase.is_terminal(),
            containers: &containers,
        };
        self.cluster.upsert_pod(&update, now);
    }

    fn observe_kills(&mut self, pod: &Pod, now: DateTime<Utc>) {
        let key = key(&pod.metadata);
        for container in pod.managed(&self.gates) {
            self.resource_reads.count(container.current_resources().1);
        }
        let after = Remembered::of(pod, &self.gates);
        let before = self.remembered.get(&key);
        let ooms = before.map_or_else(Vec::new, |before| before.kills_in(pod, &self.gates));
        if before != Some(&after) {
            self.remembered.insert(key, after);
        }
        for oom in ooms {
            self.oom(oom, now);
        }
    }

    /// A container was killed for want of memory. Counted after the usage of this loop, as in VPA; at once only if so
    /// many wait that the loop must have stopped.
    fn oom(&mut self, oom: Oom, now: DateTime<Utc>) {
        tracing::info!(
            namespace = oom.namespace,
            pod = oom.pod,
            container = oom.container,
            "OOM observed"
        );
        if self.ooms.len() < MAX_OOMS {
            self.ooms.push_back(oom);
        } else {
            self.count_oom(&oom, now);
        }
    }

    fn count_oom(&mut self, oom: &Oom, now: DateTime<Utc>) {
        let Oom {
            namespace,
            pod,
            container,
            time,
            memory,
        } = oom;
        let id = (namespace.as_str(), pod.as_str(), container.as_str());
        let (cluster, quality) = (&mut self.cluster, &self.quality);
        let told =
            cluster.add_sample_and_tell(id, Usage::Oom(*memory), *time, now, |seen| quality.observe(seen));
        if let Err(error) = told {
            tracing::debug!(namespace, pod, container, %error, "an OOM does not count");
        }
    }

    /// Counts the kills that were seen since the last loop.
    pub(crate) fn count_ooms(&mut self, now: DateTime<Utc>) {
        for oom in std::mem::take(&mut self.ooms) {
            self.count_oom(&oom, now);
        }
    }

    /// Something happened to an event about an eviction.
    pub(crate) fn eviction(&mut self, change: Change<'_, Event>, now: DateTime<Utc>) {
        match change {
            Change::Applied(event) => {
                if self.evictions.insert(key(&event.metadata)) {
                    for oom in oom::in_event(&event) {
                        self.oom(oom, now);
                    }
                }
            }
            Change::Deleted(event) => {
                self.evictions.remove(&key(&event.metadata));
            }
            Change::Relisted(seen) => {
                self.evictions
                    .retain(|(namespace, name)| seen.contains(namespace, name));
            }
        }
    }

    fn is_selected(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        let first = (namespace.to_owned(), String::new());
        let rows = self.vpas.ours.range(first..);
        rows.take_while(|((other, _), _)| other == namespace)
            .any(|(_, row)| {
                row.selector
                    .matches(|label| labels.get(label).map(String::as_str))
            })
    }

    /// Takes the pods that are gone out of the model.
    pub(crate) fn delete_gone_pods(&mut self, now: DateTime<Utc>) {
        for key in std::mem::take(&mut self.gone) {
            self.remembered.remove(&key);
            self.cluster.remove_pod(&key.0, &key.1, now);
        }
    }

    /// The scales that targets depend on.
    pub(crate) fn scaled_targets(&self) -> Vec<ControllerKey> {
        let rows = self.vpas.ours.iter();
        rows.filter_map(|((namespace, _), row)| {
            let target = row.target.as_ref()?;
            WellKnown::from_name(&target.kind)
                .is_none()
                .then(|| ControllerKey {
                    namespace: namespace.clone(),
                    api_version: target.api_version.clone(),
                    kind: target.kind.clone(),
                    name: target.name.clone(),
                })
        })
        .collect()
    }

    /// Resolves the targets of all VPAs and brings the model up to date with them. Gives the scales that have to be
    /// asked for first, and says whether there are selectors that were not there before.
    pub(crate) fn load_vpas(&mut self, scales: &Scales) -> (Vec<ControllerKey>, bool) {
        let known = Known {
            watched: &self.controllers,
            scales,
        };
        let mut needs = Vec::new();
        let mut new_selectors = false;
        for ((namespace, name), row) in &mut self.vpas.ours {
            let (selector, unsupported) = match targets::resolve(namespace, row.target.as_ref(), &known) {
                Target::Selector(selector) => (selector, None),
                Target::Unsupported(reason) => (Selector::Nothing, Some(reason)),
                Target::Needs(key) => {
                    needs.push(key);
                    continue;
                }
            };
            if row.unsupported != unsupported {
                row.changed = true;
                row.unsupported = unsupported;
            }
            if row.selector != selector {
                new_selectors = true;
                row.selector.clone_from(&selector);
            }
            self.cluster
                .upsert_vpa(namespace, name, selector, row.policies.clone());
        }
        (needs, new_selectors)
    }

    /// Adds the usage of a container to the model.
    pub(crate) fn add_usage(&mut self, sample: &Sample<'_>, now: DateTime<Utc>, counts: &mut SampleCounts) {
        let quality = &self.quality;
        let id = (sample.namespace, sample.pod, sample.container);
        let usages = [sample.cpu.map(Usage::Cpu), sample.memory.map(Usage::Memory)];
        for usage in usages.into_iter().flatten() {
            let cluster = &mut self.cluster;
            let told = cluster.add_sample_and_tell(id, usage, sample.time, now, |seen| quality.observe(seen));
            counts.count(told);
        }
    }

    /// How often resources were read from where since this was last asked.
    pub(crate) fn take_resource_reads(&mut self) -> ResourceReads {
        std::mem::take(&mut self.resource_reads)
    }
}

/// How many links a chain of scales may have.
const SCALE_ROUNDS: usize = 8;

/// Resolves the targets of all VPAs, and asks for the scales that takes; says whether there are selectors that were not
/// there before.
pub(crate) async fn resolve_targets(feed: &Shared, scales: &mut Scales, workers: usize) -> bool {
    let targets = feed.lock().scaled_targets();
    scales.refresh(targets, workers).await;
    let mut new_selectors = false;
    for _ in 0..SCALE_ROUNDS {
        let (needs, new) = feed.lock().load_vpas(scales);
        new_selectors |= new;
        if needs.is_empty() {
            break;
        }
        scales.refresh(needs, workers).await;
    }
    new_selectors
}

/// How many samples had which fate.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SampleCounts {
    pub(crate) accepted: u64,
    pub(crate) unknown: u64,
    pub(crate) unmanaged: u64,
    pub(crate) repeated: u64,
    pub(crate) refused: u64,
}

impl SampleCounts {
    pub(crate) fn count(&mut self, outcome: Result<(), Rejected>) {
        let count = match outcome {
            Ok(()) => &mut self.accepted,
            Err(Rejected::UnknownPod | Rejected::UnknownContainer) => &mut self.unknown,
            Err(Rejected::InitContainer) => &mut self.unmanaged,
            Err(Rejected::OutOfOrder) => &mut self.repeated,
            Err(Rejected::Negative | Rejected::TooOld | Rejected::FromTheFuture) => &mut self.refused,
        };
        *count += 1;
    }

    pub(crate) fn report(&self, metrics: &Metrics) {
        metrics.samples("accepted", self.accepted);
        metrics.samples("unknown", self.unknown);
        metrics.samples("unmanaged", self.unmanaged);
        metrics.samples("repeated", self.repeated);
        metrics.samples("refused", self.refused);
    }
}

/// All containers of a pod and where they stand, whatever the gate says: the model knows what to do with each.
fn places(pod: &Pod) -> Vec<ContainerUpdate<'_>> {
    let with_sidecars = Gates::default().with(Gate::NativeSidecar, true);
    let managed = pod.managed(&with_sidecars).map(|container| ContainerUpdate {
        name: container.name(),
        place: match container.kind() {
            Kind::Regular => Place::Regular,
            Kind::NativeSidecar => Place::NativeSidecar,
        },
    });
    let mut containers: Vec<_> = managed.collect();
    let ordinary = pod.unmanaged_init_containers(&with_sidecars);
    containers.extend(ordinary.map(|name| ContainerUpdate {
        name,
        place: Place::Init,
    }));
    containers
}
