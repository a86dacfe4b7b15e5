//! Pods as the updater keeps them. Those of one controller are alike in all but a few fields, so what they have in common is
//! kept once; a whole pod is made again when its VPA has its turn.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use chrono::{DateTime, Utc};
use common::{
    api::k8s::ObjectMeta,
    pod::{Condition, Phase, Pod},
    sidecarset::sizing,
    time,
};

use crate::{inplace, observed, reason::Skip, unboost};

/// Of the forms that a controller's pods have, so many are compared with: those of a rollout, and some odd ones.
const FORMS: usize = 8;

pub(super) type Labels = BTreeMap<String, String>;

/// A pod.
#[derive(Debug)]
pub(super) struct PodRow {
    pub(super) uid: Box<str>,
    pub(super) created: Option<DateTime<Utc>>,
    started: Option<DateTime<Utc>>,
    phase: Phase,
    /// Whether it has a node: only then it counts.
    pub(super) is_bound: bool,
    pub(super) labels: Option<Arc<Labels>>,
    /// Of the conditions, those that decisions read.
    conditions: Box<[Condition]>,
    /// Which state of it this is; a number since Kubernetes says so, and none if it is not one.
    pub(super) version: Option<u64>,
    /// What it has in common with others of its controller.
    form: Arc<Pod>,
    /// Which controller.
    pub(super) group: Arc<GroupName>,
    /// The VPA that controls it.
    pub(super) vpa: Option<Arc<str>>,
    /// The reason that was last told for leaving it as it is.
    pub(super) told: Option<Skip>,
}

/// Which state of a pod something is about: of two, the later one has the larger number.
pub(super) fn version(metadata: &ObjectMeta) -> Option<u64> {
    metadata.resource_version.as_ref()?.parse().ok()
}

/// Names a controller in its namespace.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct GroupName {
    pub(super) kind: Box<str>,
    pub(super) name: Box<str>,
}

/// What the pods of one controller have in common.
#[derive(Debug, Default)]
pub(super) struct Forms {
    forms: Vec<Weak<Pod>>,
    labels: Vec<Weak<Labels>>,
}

impl Forms {
    fn form(&mut self, pod: Pod) -> Arc<Pod> {
        shared(&mut self.forms, pod)
    }

    fn labels(&mut self, labels: Labels) -> Arc<Labels> {
        shared(&mut self.labels, labels)
    }
}

fn shared<T: PartialEq>(known: &mut Vec<Weak<T>>, value: T) -> Arc<T> {
    known.retain(|known| known.strong_count() > 0);
    let same = known
        .iter()
        .rev()
        .filter_map(Weak::upgrade)
        .find(|known| **known == value);
    same.unwrap_or_else(|| {
        let value = Arc::new(value);
        if known.len() >= FORMS {
            known.remove(0);
        }
        known.push(Arc::downgrade(&value));
        value
    })
}

impl PodRow {
    /// Takes a pod apart.
    pub(super) fn read(mut pod: Pod, group: Arc<GroupName>, forms: &mut Forms) -> (Arc<str>, Self) {
        let metadata = &mut pod.metadata;
        let name: Arc<str> = metadata.name.take().unwrap_or_default().into();
        let uid = metadata.uid.take().unwrap_or_default().into();
        let created = metadata.creation_timestamp.take();
        let labels = metadata.labels.take().map(|labels| forms.labels(labels));
        metadata.namespace = None;
        metadata.generate_name = None;
        let version = version(metadata);
        metadata.resource_version = None;
        metadata.generation = None;
        if let Some(annotations) = &mut metadata.annotations {
            annotations.retain(|key, _| {
                [observed::ANNOTATION, sizing::ANNOTATION].contains(&key.as_str())
                    || key.starts_with(unboost::PREFIX)
            });
        }
        let is_boosted = unboost::is_boosted(&pod);
        let conditions = std::mem::take(&mut pod.status.conditions).into_iter();
        // That a pod is not ready matters to disruption budgets; that it is, only to one that is boosted.
        let matters = |condition: &Condition| {
            inplace::is_about_resize(condition)
                || (condition.type_ == "Ready" && (is_boosted || condition.status != "True"))
        };
        let conditions = conditions.filter(matters);
        let conditions: Box<[Condition]> = conditions.collect();
        let is_bound = Arc::make_mut(&mut pod.spec)
            .node_name
            .take()
            .is_some_and(|node| !node.is_empty());
        let phase = std::mem::take(&mut pod.status.phase);
        let started = pod.status.start_time.take();
        pod.forget_runs();
        let row = Self {
            uid,
            created: created.as_ref().map(time::from_k8s),
            started,
            phase,
            is_bound,
            labels,
            conditions,
            version,
            form: forms.form(pod),
            group,
            vpa: None,
            told: None,
        };
        (name, row)
    }

    /// The pod again, as far as decisions read it.
    pub(super) fn pod(&self, namespace: &str, name: &str) -> Pod {
        let mut pod = Pod::clone(&self.form);
        let metadata = &mut pod.metadata;
        metadata.name = Some(name.to_owned());
        metadata.namespace = Some(namespace.to_owned());
        metadata.uid = Some(self.uid.to_string());
        // One whose resize goes on may be evicted for it only as it was seen.
        let is_resizing = self.conditions.iter().any(inplace::is_about_resize);
        let version = self.version.filter(|_| is_resizing);
        metadata.resource_version = version.map(|version| version.to_string());
        metadata.creation_timestamp = self.created.map(time::to_k8s);
        metadata.labels = self.labels.as_deref().cloned();
        pod.status.phase = self.phase;
        pod.status.start_time = self.started;
        pod.status.conditions = self.conditions.to_vec();
        pod
    }

    /// Whether it was sized by formulas.
    pub(super) fn is_sized(&self) -> bool {
        let annotations = self.form.metadata.annotations.as_ref();
        annotations.is_some_and(|annotations| annotations.contains_key(sizing::ANNOTATION))
    }

    /// Of a pod that was sized by formulas, what counting such pods reads.
    pub(super) fn sized(&self) -> Option<Pod> {
        self.is_sized().then(|| {
            let mut pod = Pod::default();
            pod.metadata.uid = Some(self.uid.to_string());
            pod.metadata.creation_timestamp = self.created.map(time::to_k8s);
            pod.metadata.labels = self.labels.as_deref().cloned();
            pod.metadata.annotations = self.form.metadata.annotations.clone();
            pod
        })
    }

    /// Whether decisions would see no difference.
    pub(super) fn looks_like(&self, other: &Self) -> bool {
        self.started == other.started
            && self.phase == other.phase
            && self.is_bound == other.is_bound
            && self.conditions == other.conditions
            && (Arc::ptr_eq(&self.form, &other.form) || self.form == other.form)
    }

    /// Whether matching would see no difference.
    pub(super) fn matches_like(&self, other: &Self) -> bool {
        self.group == other.group && self.labels == other.labels
    }

    /// Whether admission has left its mark on it.
    pub(super) fn is_marked(&self) -> bool {
        let annotations = self.form.metadata.annotations.as_ref();
        annotations.is_some_and(|annotations| annotations.contains_key(observed::ANNOTATION))
    }

    /// Names the template it was made from.
    pub(super) fn template(&self) -> String {
        let hash = |label: &str| self.labels.as_ref()?.get(label).map(String::as_str);
        let hash = hash("controller-revision-hash").or_else(|| hash("pod-template-hash"));
        let GroupName { kind, name } = &*self.group;
        format!("{kind}/{name}/{}", hash.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(name: &str, change: impl FnOnce(&mut Value)) -> Pod {
        let mut pod = json!({
            "metadata": {
                "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "resourceVersion": "7",
                "creationTimestamp": "2026-03-10T12:00:00Z", "labels": {"app": "web"},
                "annotations": {"vpaObservedContainers": "app", "checksum": name},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true}],
            },
            "spec": {"nodeName": name, "containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {
                "phase": "Running", "startTime": "2026-03-10T12:00:01Z",
                "conditions": [
                    {"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-10T12:00:02Z"},
                    {"type": "PodResizePending", "status": "True", "reason": "Deferred"},
                ],
                "containerStatuses": [{
                    "name": "app", "restartCount": 3, "state": {"running": {"startedAt": "2026-03-10T12:00:01Z"}},
                    "lastState": {"terminated": {"reason": "Error"}},
                }],
            },
        });
        change(&mut pod);
        serde_json::from_value(pod).unwrap()
    }

    fn read(forms: &mut Forms, pod: Pod) -> PodRow {
        let group = Arc::new(GroupName {
            kind: "ReplicaSet".into(),
            name: "web".into(),
        });
        PodRow::read(pod, group, forms).1
    }

    #[test]
    fn a_pod_comes_back_as_decisions_read_it() {
        let mut forms = Forms::default();
        let row = read(&mut forms, pod("a", |_| {}));
        let expected = pod("a", |pod| {
            pod["metadata"]["annotations"] = json!({"vpaObservedContainers": "app"});
            pod["spec"]["nodeName"] = Value::Null;
            pod["status"]["conditions"].as_array_mut().unwrap().remove(0);
            pod["status"]["containerStatuses"] = json!([{"name": "app"}]);
        });
        assert_eq!(row.pod("shop", "a"), expected);
        assert!(row.is_bound && row.is_marked());
        let unready = json!({"type": "Ready", "status": "False"});
        let row = read(
            &mut forms,
            pod("b", |pod| pod["status"]["conditions"] = json!([unready])),
        );
        let unready = row.pod("shop", "b");
        assert_eq!(unready.status.conditions.len(), 1);
        assert_eq!(unready.metadata.resource_version, None);
    }

    #[test]
    fn equal_pods_share_what_they_have_in_common() {
        let mut forms = Forms::default();
        let [a, b] = ["a", "b"].map(|name| read(&mut forms, pod(name, |_| {})));
        assert!(Arc::ptr_eq(&a.form, &b.form) && a.looks_like(&b) && a.matches_like(&b));
        let larger = read(
            &mut forms,
            pod("c", |pod| pod["spec"]["containers"][0]["resources"] = json!({})),
        );
        assert!(!Arc::ptr_eq(&a.form, &larger.form) && !a.looks_like(&larger));
        let killed = json!({"terminated": {"reason": "OOMKilled", "finishedAt": "2026-03-10T12:00:09Z"}});
        let killed = read(
            &mut forms,
            pod("d", |pod| {
                pod["status"]["containerStatuses"][0]["lastState"] = killed;
            }),
        );
        assert!(!a.looks_like(&killed));
        assert_eq!(forms.forms.len(), 3);
        drop((a, b, larger));
        let again = read(&mut forms, pod("e", |_| {}));
        assert_eq!(
            (forms.forms.len(), again.template()),
            (2, "ReplicaSet/web/".to_owned())
        );
    }

    #[test]
    fn a_boosted_pod_keeps_the_time_from_which_it_is_ready() {
        let boost =
            |pod: &mut Value| pod["metadata"]["annotations"] = json!({"vpaCpuStartupBoost/app": "{}"});
        let row = read(&mut Forms::default(), pod("a", boost));
        assert_eq!(row.pod("shop", "a").status.conditions.len(), 2);
        assert!(!row.is_marked());
    }
}
