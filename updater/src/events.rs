//! Events about pods and VPAs (`spec/vpa.md` 3.8, and ours). What cannot be written is logged and forgotten: an event
//! never holds up the work it tells of.

use chrono::{DateTime, Utc};
use common::{
    api::k8s::{Event, EventSource, ObjectMeta, ObjectReference},
    clock::{Clock, Moment},
    kube::limit::{Bucket, RateLimit},
    pod::Pod,
    time,
};
use kube::{Api, Client, api::PostParams};

use crate::{evidence::Workload, feed::VpaKey, reason::Skip};

const COMPONENT: &str = "vpa-updater";
/// Reasons may change for all pods of a cluster at once; nobody reads that many events.
const TOLD_PER_SECOND: f64 = 5.0;
const TOLD_AT_ONCE: f64 = 50.0;

/// Something to tell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    about: ObjectReference,
    reason: &'static str,
    message: String,
    is_warning: bool,
}

impl Told {
    /// A pod was evicted: told of the pod and of its VPA.
    pub(crate) fn evicted(pod: &Pod, key: &VpaKey, vpa_uid: &str) -> [Self; 2] {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        [
            Self::normal(
                about_pod(pod),
                "EvictedByVPA",
                "Pod was evicted by VPA Updater to apply resource recommendation.".to_owned(),
            ),
            Self::normal(
                about_vpa(&key.namespace, &key.name, vpa_uid),
                "EvictedPod",
                format!("VPA Updater evicted Pod {name} to apply resource recommendation."),
            ),
        ]
    }

    /// A pod was resized, or its boost ended.
    pub(crate) fn resized(pod: &Pod) -> Self {
        Self::normal(
            about_pod(pod),
            "InPlaceResizedByVPA",
            "Pod was resized in place by VPA Updater.".to_owned(),
        )
    }

    /// A pod is left as it is, for another reason than before.
    pub(crate) fn skipped(pod: &Pod, skip: Skip) -> Self {
        match skip {
            Skip::InfeasibleBefore => Self::normal(
                about_pod(pod),
                "InPlaceResizeSkipped",
                "Previously recorded in-place update was infeasible, current recommendation is not lower than previous, \
                 skipping resize"
                    .to_owned(),
            ),
            _ => Self::normal(
                about_pod(pod),
                skip.name(),
                format!("Not updated by the VPA: {skip}."),
            ),
        }
    }

    /// A SidecarSet has changed more than a running pod can take.
    pub(crate) fn not_upgradable(namespace: &str, pod: &str, uid: &str, set: &str) -> Self {
        Self {
            is_warning: true,
            ..Self::normal(
                about("v1", "Pod", namespace, pod, uid),
                "UpdateImmutableField",
                format!(
                    "SidecarSet {set} has changed more than images, and nothing else can be changed in a running pod; it gets \
                     the rest when it is created anew."
                ),
            )
        }
    }

    /// A breaker has opened.
    pub(crate) fn breaker_opened(workload: &Workload, vpa_uid: &str, until: DateTime<Utc>) -> Self {
        Self {
            is_warning: true,
            ..Self::normal(
                about_vpa(&workload.namespace, &workload.vpa, vpa_uid),
                "EvictionBreakerOpen",
                format!(
                    "A pod that came after an eviction was not sized by the admission controller. No pod is evicted \
                     before {}; see whether the admission controller's webhook works.",
                    until.format("%Y-%m-%d %H:%M:%S UTC")
                ),
            )
        }
    }

    fn normal(about: ObjectReference, reason: &'static str, message: String) -> Self {
        Self {
            about,
            reason,
            message,
            is_warning: false,
        }
    }

    fn event(self, now: DateTime<Utc>) -> Event {
        let Self {
            about,
            reason,
            message,
            is_warning,
        } = self;
        let name = about.name.as_deref().unwrap_or_default();
        // As client-go names them.
        let nanos = now.timestamp_nanos_opt().unwrap_or_default();
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{nanos:x}.{}", reason.to_lowercase())),
                namespace: about.namespace.clone(),
                ..ObjectMeta::default()
            },
            involved_object: about,
            reason: Some(reason.to_owned()),
            message: Some(message),
            type_: Some(if is_warning { "Warning" } else { "Normal" }.to_owned()),
            source: Some(EventSource {
                component: Some(COMPONENT.to_owned()),
                ..EventSource::default()
            }),
            first_timestamp: Some(time::to_k8s(now)),
            last_timestamp: Some(time::to_k8s(now)),
            count: Some(1),
            reporting_component: Some(COMPONENT.to_owned()),
            ..Event::default()
        }
    }
}

fn about_pod(pod: &Pod) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

fn about_vpa(namespace: &str, name: &str, uid: &str) -> ObjectReference {
    about(
        "autoscaling.k8s.io/v1",
        "VerticalPodAutoscaler",
        namespace,
        name,
        uid,
    )
}

fn about(api_version: &str, kind: &str, namespace: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

/// Writes events.
pub(crate) struct Teller {
    client: Client,
    clock: Clock,
    begun: Moment,
    bucket: Option<Bucket>,
}

impl Teller {
    pub(crate) fn new(client: Client, clock: Clock) -> Self {
        let limit = RateLimit::from_flags(TOLD_PER_SECOND, TOLD_AT_ONCE)
            .ok()
            .flatten();
        Self {
            client,
            begun: clock.moment(),
            clock,
            bucket: limit.map(Bucket::new),
        }
    }

    /// Tells of a deed.
    pub(crate) async fn tell(&self, told: Told) {
        let event = told.event(self.clock.now());
        let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if let Err(error) = api.create(&PostParams::default(), &event).await {
            tracing::debug!(%error, reason = event.reason, "an event was not written");
        }
    }

    /// Whether one more reason may be told of now.
    pub(crate) fn may_tell(&mut self) -> bool {
        let now = self.clock.moment().since(self.begun);
        let Some(bucket) = &mut self.bucket else {
            return true;
        };
        let may_tell = bucket.take(now).is_zero();
        if !may_tell {
            bucket.give_back();
        }
        may_tell
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::noon;
    use serde_json::{Value, json};

    #[test]
    fn events_have_vpa_s_words() {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "web-0", "namespace": "shop", "uid": "7"}}))
                .unwrap();
        let key = VpaKey {
            namespace: "shop".into(),
            name: "web".into(),
        };
        let [evicted, of_vpa] = Told::evicted(&pod, &key, "8");
        let shown = |told: Told| {
            let event = serde_json::to_value(told.event(noon())).unwrap();
            let word = |pointer: &str| {
                event
                    .pointer(pointer)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            [
                "/type",
                "/source/component",
                "/involvedObject/kind",
                "/involvedObject/uid",
                "/reason",
                "/message",
            ]
            .map(word)
            .join(" | ")
        };
        for (told, expected) in [
            (
                evicted,
                "Normal | vpa-updater | Pod | 7 | EvictedByVPA | \
                 Pod was evicted by VPA Updater to apply resource recommendation.",
            ),
            (
                of_vpa,
                "Normal | vpa-updater | VerticalPodAutoscaler | 8 | EvictedPod | \
                 VPA Updater evicted Pod web-0 to apply resource recommendation.",
            ),
            (
                Told::resized(&pod),
                "Normal | vpa-updater | Pod | 7 | InPlaceResizedByVPA | Pod was resized in place by VPA Updater.",
            ),
            (
                Told::skipped(&pod, Skip::InfeasibleBefore),
                "Normal | vpa-updater | Pod | 7 | InPlaceResizeSkipped | Previously recorded in-place update was infeasible, \
                 current recommendation is not lower than previous, skipping resize",
            ),
            (
                Told::skipped(&pod, Skip::Budget),
                "Normal | vpa-updater | Pod | 7 | Budget | \
                 Not updated by the VPA: enough pods of its group are disrupted for now.",
            ),
            (
                Told::not_upgradable("shop", "web-0", "7", "log"),
                "Warning | vpa-updater | Pod | 7 | UpdateImmutableField | SidecarSet log has changed more than images, and \
                 nothing else can be changed in a running pod; it gets the rest when it is created anew.",
            ),
            (
                Told::breaker_opened(&key.workload(), "8", noon()),
                "Warning | vpa-updater | VerticalPodAutoscaler | 8 | EvictionBreakerOpen | A pod that came after an eviction was \
                 not sized by the admission controller. No pod is evicted before 2026-03-10 12:00:00 UTC; see whether the \
                 admission controller's webhook works.",
            ),
        ] {
            assert_eq!(shown(told), expected);
        }
    }
}
