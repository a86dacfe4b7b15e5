//! Which formulas size the sidecars of a pod. A new pod tells by the annotations that its injector left, together with the
//! sets and revisions that are known; a running one by [`ANNOTATION`], in which it remembers what it was sized by.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    choice::Share,
    hot,
    record::{self, Record},
    revision::SET_NAME,
};
use crate::{
    api::{
        k8s::ControllerRevision,
        sidecarset::{ResourcesPolicy, SidecarContainer, SidecarSet, UpdateStrategy, UpdateStrategyType},
    },
    formula::Policy,
    plan::{FormulaOf, Formulas, PodPlan, UnknownFormula},
    pod::Pod,
    selector::Selector,
};

/// On a pod: by which formulas its sidecars were sized. JSON: `containers`, the container's name to its set, revision and
/// formula, or why that was not followed; and `sidecars`, all that the pod has of SidecarSets.
pub const ANNOTATION: &str = "outrigger.dev/sidecarset-sizing";

/// Longer than any that we write: nobody's formulas are read from such a text.
const MAX_BYTES: usize = 64 * 1024;

/// What is known of sets and their revisions, as far as formulas need it: their formulas, and the names of their sidecars.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FormulaIndex {
    sets: BTreeMap<String, Set>,
    revisions: BTreeMap<String, Revision>,
}

#[derive(Clone, Debug, PartialEq)]
struct Set {
    now: Sidecars,
    newest_revision: String,
    rollout: Rollout,
}

#[derive(Clone, Debug, PartialEq)]
struct Revision {
    set: String,
    then: Sidecars,
}

/// The sidecars of one revision of a set.
#[derive(Clone, Debug, Default, PartialEq)]
struct Sidecars {
    hash: String,
    names: Vec<String>,
    formulas: BTreeMap<String, Arc<Policy>>,
}

/// How far a changed set reaches running pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Rollout {
    /// Whether it reaches them at all: the strategy is RollingUpdate and not paused, and it can be read.
    pub moves: bool,
    /// The pods that it reaches; all, if there is none.
    pub selector: Option<Selector>,
    /// How many stay as they are.
    pub partition: Share,
}

/// A formula that holds for new pods now.
#[derive(Clone, Debug, PartialEq)]
pub struct Current<'i> {
    /// The formula.
    pub policy: &'i Arc<Policy>,
    /// The revision it is from; empty as long as nobody has made one.
    pub revision: &'i str,
}

impl FormulaIndex {
    /// Takes in a set that is new or has changed.
    pub fn apply_set(&mut self, set: &SidecarSet) {
        let Some(name) = &set.metadata.name else { return };
        let spec = &set.spec;
        let annotations = set.metadata.annotations.as_ref();
        let row = Set {
            now: Sidecars {
                hash: hash(annotations),
                ..Sidecars::of(&spec.init_containers, &spec.containers)
            },
            newest_revision: set
                .status
                .as_ref()
                .map(|status| status.latest_revision.clone())
                .unwrap_or_default(),
            rollout: Rollout::of(&spec.update_strategy),
        };
        self.sets.insert(name.clone(), row);
    }

    /// Forgets a set.
    pub fn remove_set(&mut self, name: &str) {
        self.sets.remove(name);
    }

    /// Forgets the sets of which `keep` says no.
    pub fn retain_sets(&mut self, keep: impl Fn(&str) -> bool) {
        self.sets.retain(|name, _| keep(name));
    }

    /// Takes in a revision that is new or has changed. One that is not of a set, or holds none, is not kept.
    pub fn apply_revision(&mut self, revision: &ControllerRevision) {
        let metadata = &revision.metadata;
        let set = metadata.labels.as_ref().and_then(|labels| labels.get(SET_NAME));
        let (Some(name), Some(set)) = (&metadata.name, set) else {
            return;
        };
        let spec = revision.data.as_ref().and_then(|data| data.0.get("spec"));
        let list = |key: &str| -> Option<Vec<SidecarContainer>> {
            match spec?.get(key) {
                None | Some(Value::Null) => Some(Vec::new()),
                Some(list) => Vec::deserialize(list).ok(),
            }
        };
        match (list("initContainers"), list("containers")) {
            (Some(init), Some(regular)) => {
                let then = Sidecars {
                    hash: hash(metadata.annotations.as_ref()),
                    ..Sidecars::of(&init, &regular)
                };
                let set = set.clone();
                self.revisions.insert(name.clone(), Revision { set, then });
            }
            _ => self.remove_revision(name),
        }
    }

    /// Forgets a revision.
    pub fn remove_revision(&mut self, name: &str) {
        self.revisions.remove(name);
    }

    /// Forgets the revisions of which `keep` says no.
    pub fn retain_revisions(&mut self, keep: impl Fn(&str) -> bool) {
        self.revisions.retain(|name, _| keep(name));
    }

    /// The formulas of a pod's sidecars, by what its injector wrote: of the revision that is named there. Nothing for a pod
    /// whose annotations cannot be read. Of a revision that is not known, or is not yet, nobody can tell whether it has
    /// formulas; it is taken to have one where the set has.
    #[must_use]
    pub fn formulas(&self, pod: &Pod) -> Formulas {
        let injected = Injected::of(pod);
        let mut found = Formulas::default();
        for (set, record) in &injected.records {
            let known = self.revision(set, record);
            let (revision, sidecars) = match known {
                Some((revision, sidecars)) => (revision, Some(sidecars)),
                None => ("", None),
            };
            let listed = match (record.sidecar_list.is_empty(), sidecars) {
                // Kruise's older records do not say.
                (true, Some(sidecars)) => &sidecars.names,
                (true, None) | (false, _) => &record.sidecar_list,
            };
            for sidecar in listed {
                let containers = injected.containers(sidecar);
                found.sidecars.insert(sidecar.clone());
                found.sidecars.extend(containers.iter().cloned());
                let policy = sidecars.and_then(|sidecars| sidecars.formulas.get(sidecar));
                if sidecars.is_none() && self.current(set, sidecar).is_some() {
                    found
                        .unknown
                        .extend(containers.iter().map(|container| UnknownFormula {
                            container: container.clone(),
                            set: set.clone(),
                            revision: record.controller_revision.clone(),
                        }));
                }
                found.containers.extend(policy.into_iter().flat_map(|policy| {
                    containers.iter().map(|container| FormulaOf {
                        container: container.clone(),
                        sidecar: sidecar.clone(),
                        set: set.clone(),
                        revision: revision.to_owned(),
                        policy: Arc::clone(policy),
                    })
                }));
            }
        }
        found
    }

    /// The formula that a sidecar of a set has in new pods.
    #[must_use]
    pub fn current(&self, set: &str, sidecar: &str) -> Option<Current<'_>> {
        let set = self.sets.get(set)?;
        Some(Current {
            policy: set.now.formulas.get(sidecar)?,
            revision: &set.newest_revision,
        })
    }

    /// Whether a formula that has changed could reach any running pod.
    #[must_use]
    pub fn moves(&self) -> bool {
        let mut sets = self.sets.values();
        sets.any(|set| set.rollout.moves && !set.now.formulas.is_empty())
    }

    /// Whether some set reaches a part of its pods only, so that all of them count.
    #[must_use]
    pub fn is_partitioned(&self) -> bool {
        let mut sets = self.sets.values();
        sets.any(|set| set.rollout.moves && set.rollout.partition.pods(u32::MAX) > 0)
    }

    /// How far a set reaches running pods.
    #[must_use]
    pub fn rollout(&self, set: &str) -> Option<&Rollout> {
        Some(&self.sets.get(set)?.rollout)
    }

    /// The revision that a pod has of a set. The hash tells best: the name may be that of the revision before, if the pod
    /// came before the new one was recorded.
    fn revision<'i>(&'i self, set: &str, record: &'i Record) -> Option<(&'i str, &'i Sidecars)> {
        let named = record.controller_revision.as_str();
        let row = self.sets.get(set);
        if let Some(row) = row
            && !record.hash.is_empty()
            && row.now.hash == record.hash
        {
            let name = if named.is_empty() {
                &row.newest_revision
            } else {
                named
            };
            return Some((name, &row.now));
        }
        if let Some(revision) = self.revisions.get(named).filter(|revision| revision.set == set) {
            return Some((named, &revision.then));
        }
        let row = row.filter(|row| {
            !named.is_empty()
                && row.newest_revision == named
                && (record.hash.is_empty() || row.now.hash.is_empty())
        })?;
        Some((named, &row.now))
    }
}

impl Sidecars {
    fn of(init: &[SidecarContainer], regular: &[SidecarContainer]) -> Self {
        let native = init.iter().filter(|container| container.restarts_always());
        let mut sidecars = Self::default();
        for container in native.chain(regular) {
            let name = container.name().to_owned();
            if let Some(policy) = &container.resources_policy {
                let policy = Arc::new(Policy::new(policy));
                sidecars.formulas.insert(name.clone(), policy);
            }
            sidecars.names.push(name);
        }
        sidecars
    }
}

impl Rollout {
    fn of(strategy: &UpdateStrategy) -> Self {
        let rolls = matches!(strategy.type_, None | Some(UpdateStrategyType::RollingUpdate));
        let selector = strategy.selector.as_ref().map(Selector::try_from).transpose();
        let partition = Share::of(strategy.partition.as_ref());
        match (selector, partition) {
            (Ok(selector), Ok(partition)) => Self {
                moves: rolls && !strategy.paused,
                selector,
                partition,
            },
            _ => Self {
                moves: false,
                selector: None,
                partition: Share::Count(0),
            },
        }
    }
}

/// What a pod remembers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
struct Remembered {
    containers: BTreeMap<String, Entry>,
    #[serde(default)]
    sidecars: BTreeSet<String>,
}

/// What a pod remembers of one of its containers.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
struct Entry {
    set: String,
    /// Its name there, if it has another here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sidecar: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    revision: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    formula: Option<ResourcesPolicy>,
    /// Why the formula was not followed: for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    skipped: Option<String>,
}

impl Remembered {
    /// What there is to remember of a plan.
    fn of(plan: &PodPlan<'_>) -> Option<Self> {
        let all = plan.formulas?;
        let is_managed = |name: &str| plan.containers.iter().any(|plan| plan.container.name() == name);
        let unknown = all.unknown.iter().filter(|one| is_managed(&one.container));
        let unknown = unknown.map(|unknown| {
            let entry = Entry {
                set: unknown.set.clone(),
                sidecar: None,
                revision: unknown.revision.clone(),
                formula: None,
                skipped: Some(unknown.skipped()),
            };
            (unknown.container.clone(), entry)
        });
        let formulas = plan.containers.iter().filter_map(|plan| plan.formula.as_ref());
        let known = formulas.map(|formula| {
            let of = formula.of;
            let entry = Entry {
                set: of.set.clone(),
                sidecar: (of.sidecar != of.container).then(|| of.sidecar.clone()),
                revision: of.revision.clone(),
                formula: formula.is_followed().then(|| of.policy.source().clone()),
                skipped: formula.skipped(),
            };
            (of.container.clone(), entry)
        });
        let containers: BTreeMap<String, Entry> = unknown.chain(known).collect();
        let sidecars = all.sidecars.clone();
        (!containers.is_empty()).then_some(Self { containers, sidecars })
    }

    /// What a pod says that it remembers.
    fn by(pod: &Pod) -> Option<Self> {
        let text = pod.metadata.annotations.as_ref()?.get(ANNOTATION)?;
        let text = Some(text).filter(|text| text.len() <= MAX_BYTES)?;
        serde_json::from_str(text).ok()
    }

    fn text(&self) -> Option<String> {
        let text = serde_json::to_string(self);
        text.ok().filter(|text| text.len() <= MAX_BYTES)
    }
}

/// What a new pod is to remember of its plan; none if it has no formula.
#[must_use]
pub fn text(plan: &PodPlan<'_>) -> Option<String> {
    Remembered::of(plan)?.text()
}

/// What a running pod is to remember after its plan was carried out, if that is news. A formula that cannot be followed now
/// is not forgotten for that.
#[must_use]
pub fn news(pod: &Pod, plan: &PodPlan<'_>) -> Option<String> {
    let mut after = Remembered::of(plan)?;
    let before = Remembered::by(pod).unwrap_or_default();
    for (container, entry) in &before.containers {
        let is_followed = after
            .containers
            .get(container)
            .is_some_and(|entry| entry.formula.is_some());
        if !is_followed {
            after.containers.insert(container.clone(), entry.clone());
        }
    }
    if after == before { None } else { after.text() }
}

impl FormulaIndex {
    /// The formulas that a pod remembers; none if it was never sized by one, or does not say so in a way that can be read.
    /// Those that are known here are not read again.
    #[must_use]
    pub fn remembered(&self, pod: &Pod) -> Option<Formulas> {
        let Remembered {
            containers,
            mut sidecars,
        } = Remembered::by(pod)?;
        sidecars.extend(containers.keys().cloned());
        let containers: Vec<_> = containers
            .into_iter()
            .filter_map(|(container, entry)| {
                let sidecar = entry.sidecar.unwrap_or_else(|| container.clone());
                Some(FormulaOf {
                    policy: self.policy(&entry.set, &entry.revision, &sidecar, &entry.formula?),
                    container,
                    sidecar,
                    set: entry.set,
                    revision: entry.revision,
                })
            })
            .collect();
        (!containers.is_empty()).then_some(Formulas {
            containers,
            sidecars,
            unknown: Vec::new(),
        })
    }

    fn policy(&self, set: &str, revision: &str, sidecar: &str, source: &ResourcesPolicy) -> Arc<Policy> {
        let now = self.sets.get(set).map(|set| &set.now);
        let then = self.revisions.get(revision).map(|revision| &revision.then);
        let known = [now, then].into_iter().flatten();
        let mut known = known.filter_map(|sidecars| sidecars.formulas.get(sidecar));
        let same = known.find(|policy| policy.source() == source);
        same.cloned().unwrap_or_else(|| Arc::new(Policy::new(source)))
    }
}

/// What an injector left in a pod's annotations.
struct Injected {
    records: record::Records,
    working: BTreeMap<String, String>,
}

impl Injected {
    fn of(pod: &Pod) -> Self {
        let annotations = pod.metadata.annotations.as_ref();
        Self {
            records: record::records(annotations, record::HASH).unwrap_or_default(),
            working: hot::working(annotations),
        }
    }

    /// The containers of a sidecar.
    fn containers(&self, sidecar: &str) -> Vec<String> {
        if self.working.contains_key(sidecar) {
            hot::pair(sidecar).into()
        } else {
            vec![sidecar.to_owned()]
        }
    }
}

fn hash(annotations: Option<&record::Annotations>) -> String {
    let hash = annotations.and_then(|annotations| annotations.get(record::HASH));
    hash.cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(name: &str, hash: &str, newest: &str, cpu: &str) -> SidecarSet {
        let mut set = json!({
            "metadata": {"name": name},
            "spec": {
                "initContainers": [
                    {"name": "setup"},
                    {"name": "mesh", "restartPolicy": "Always", "resourcesPolicy": formula(cpu)},
                ],
                "containers": [{"name": "agent", "resourcesPolicy": formula(cpu)}, {"name": "plain"}],
            },
            "status": {"latestRevision": newest},
        });
        if !hash.is_empty() {
            set["metadata"]["annotations"] = json!({record::HASH: hash});
        }
        serde_json::from_value(set).unwrap()
    }

    fn formula(cpu: &str) -> Value {
        json!({"targetContainersMode": "sum", "resourcesExpr": {"requests": {"cpu": cpu}}})
    }

    fn revision(set: &str, name: &str, cpu: &str) -> ControllerRevision {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {SET_NAME: set}},
            "revision": 1,
            "data": {"spec": {
                "containers": [{"name": "agent", "resourcesPolicy": formula(cpu)}], "initContainers": null,
            }},
        }))
        .unwrap()
    }

    fn pod(annotations: &[(&str, Value)]) -> Pod {
        let annotations: BTreeMap<_, _> = annotations
            .iter()
            .map(|(key, value)| (*key, value.as_str().map_or(value.to_string(), str::to_owned)))
            .collect();
        serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap()
    }

    /// `CONTAINER SET REVISION FORMULA` of each container with a formula.
    fn lines(formulas: &Formulas) -> Vec<String> {
        let containers = formulas.containers.iter();
        containers
            .map(|of| {
                let cpu = of.policy.source().resources_expr.requests.cpu.as_deref();
                format!(
                    "{} {} {} {}",
                    of.container,
                    of.set,
                    of.revision,
                    cpu.unwrap_or_default()
                )
            })
            .collect()
    }

    #[test]
    fn a_pod_has_the_formulas_of_the_revision_that_it_names() {
        let mut index = FormulaIndex::default();
        index.apply_set(&set("log", "h2", "log-2", "cpu*2"));
        index.apply_set(&set("bare", "", "bare-1", "cpu*5"));
        index.apply_revision(&revision("log", "log-1", "cpu*1"));
        let record = |hash: &str, revision: &str| json!({"hash": hash, "sidecarSetName": "log", "sidecarList": ["agent", "plain"], "controllerRevision": revision});
        for (what, set, record, expected) in [
            (
                "the newest",
                "log",
                record("h2", "log-2"),
                "agent log log-2 cpu*2",
            ),
            (
                "an older one",
                "log",
                record("h1", "log-1"),
                "agent log log-1 cpu*1",
            ),
            (
                "the hash is newer than the name",
                "log",
                record("h2", "log-1"),
                "agent log log-1 cpu*2",
            ),
            (
                "one that is gone",
                "log",
                record("h0", "log-0"),
                "agent log: revision log-0 is not known",
            ),
            (
                "one of another set",
                "bare",
                record("h1", "log-1"),
                "agent bare: revision log-1 is not known",
            ),
            (
                "an older injector's, and changed since",
                "log",
                record("h0", ""),
                "agent log: the pod names no revision, and its hash is not that of the set",
            ),
            (
                "nobody made hashes",
                "bare",
                record("", "bare-1"),
                "agent bare bare-1 cpu*5",
            ),
            ("a set that is gone", "other", record("h", "other-1"), ""),
        ] {
            let found = index.formulas(&pod(&[(record::HASH, json!({set: record}))]));
            let unknown = found.unknown.iter();
            let unknown = unknown.map(|one| format!("{} {}: {}", one.container, one.set, one.skipped()));
            let all: Vec<_> = lines(&found).into_iter().chain(unknown).collect();
            assert_eq!(all.join("\n"), expected, "{what}");
            let sidecars: Vec<_> = found.sidecars.iter().collect();
            assert_eq!(sidecars, ["agent", "plain"], "{what}");
        }
        assert_eq!(
            index.formulas(&pod(&[(record::HASH, json!("[1]"))])),
            Formulas::default()
        );
        assert_eq!(index.formulas(&Pod::default()), Formulas::default());
    }

    #[test]
    fn older_records_and_pairs_are_known() {
        let mut index = FormulaIndex::default();
        index.apply_set(&set("log", "h", "log-1", "cpu"));
        let hot = (hot::WORKING_CONTAINER, json!({"agent": "agent-2"}));
        let found = index.formulas(&pod(&[(record::HASH, json!({"log": "h"})), hot]));
        assert_eq!(
            lines(&found),
            [
                "mesh log log-1 cpu",
                "agent-1 log log-1 cpu",
                "agent-2 log log-1 cpu"
            ]
        );
        let sidecars: Vec<_> = found.sidecars.iter().collect();
        assert_eq!(sidecars, ["agent", "agent-1", "agent-2", "mesh", "plain"]);
    }

    #[test]
    fn a_pod_remembers_its_formulas() {
        let entry =
            json!({"set": "log", "sidecar": "agent", "revision": "log-1", "formula": formula("cpu*3")});
        let skipped = json!({"set": "log", "skipped": "why"});
        let text =
            json!({"containers": {"agent-1": entry, "mesh": skipped}, "sidecars": ["agent-2", "other"]});
        let mut index = FormulaIndex::default();
        let pod = pod(&[(ANNOTATION, text)]);
        let formulas = index.remembered(&pod).unwrap();
        assert_eq!(lines(&formulas), ["agent-1 log log-1 cpu*3"]);
        assert_eq!(formulas.containers[0].sidecar, "agent");
        let sidecars: Vec<_> = formulas.sidecars.iter().collect();
        assert_eq!(sidecars, ["agent-1", "agent-2", "mesh", "other"]);
        index.apply_set(&set("log", "h", "log-1", "cpu*3"));
        let again = index.remembered(&pod).unwrap();
        assert_eq!(again, formulas);
        let known = index.current("log", "agent").unwrap();
        assert!(Arc::ptr_eq(&again.containers[0].policy, known.policy));
        for text in [
            json!("{"),
            json!({}),
            json!({"containers": {"a": {"set": 1}}}),
            json!({"containers": {}}),
        ] {
            assert_eq!(
                index.remembered(&self::pod(&[(ANNOTATION, text.clone())])),
                None,
                "{text}"
            );
        }
        assert_eq!(index.remembered(&Pod::default()), None);
    }

    #[test]
    fn who_is_reached_by_a_change() {
        for (strategy, moves) in [
            (json!({}), true),
            (json!({"type": "RollingUpdate", "partition": "20%"}), true),
            (json!({"type": "NotUpdate"}), false),
            (json!({"paused": true}), false),
            (json!({"partition": "many"}), false),
            (
                json!({"selector": {"matchExpressions": [{"key": "a", "operator": "?"}]}}),
                false,
            ),
        ] {
            let mut index = FormulaIndex::default();
            let mut set = set("log", "h", "log-1", "cpu");
            set.spec.update_strategy = serde_json::from_value(strategy.clone()).unwrap();
            index.apply_set(&set);
            assert_eq!(
                index.rollout("log").map(|rollout| rollout.moves),
                Some(moves),
                "{strategy}"
            );
        }
    }
}
