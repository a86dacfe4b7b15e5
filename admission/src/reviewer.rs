//! Answers reviews from what is known: waits a while for what is only just on its way, never for long, and survives its
//! own bugs.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use common::{clock::Clock, target::TopmostError};

use crate::{
    answer::{Answer, NeedsScale, Subject, Trouble, answer_request},
    feed::Known,
    metrics::{Metrics, PodOutcome, Status},
    pod::{PodError, Settings},
    review::{Request, Response},
    sidecarset::injector::Injector,
};

/// How long a pod waits for a scale to be asked for, all in all.
const SCALE_PATIENCE: Duration = Duration::from_secs(3);
/// How long a pod waits for its controller to be heard of: the watch may be behind whoever made the pod.
const OWNER_PATIENCE: Duration = Duration::from_millis(500);

/// The uid of our own probe, which is no review of anything.
pub(crate) const PROBE: &str = "outrigger-probe";

/// Answers reviews. Cloning gives another handle to the same.
#[derive(Clone)]
pub(crate) struct Reviewer {
    pub(crate) known: Known,
    pub(crate) settings: std::sync::Arc<Settings>,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Clock,
    /// Who answers for SidecarSets.
    pub(crate) injector: Injector,
    /// How long whoever asks waits for the answer.
    pub(crate) asker: Duration,
}

impl Reviewer {
    /// The answer to the body of a review of a new pod that is to get its sidecars.
    pub(crate) fn inject(&self, body: &[u8]) -> Response {
        let started = self.clock.moment();
        let response = match Request::parse(body) {
            Ok(request) => {
                let index = self.known.read();
                self.injector.inject(&request, &index.sidecarsets)
            }
            Err(error) => {
                tracing::warn!(%error, "a review cannot be read");
                Response::allowed(String::new())
            }
        };
        let status = match &response.status {
            Some(status) => {
                tracing::info!(uid = response.uid, reason = status.message, "denied a pod");
                Status::Error
            }
            None if response.patch.is_empty() => Status::Skipped,
            None => Status::Applied,
        };
        self.metrics
            .reviewed(Subject::SidecarSet, status, self.clock.moment().since(started));
        response
    }

    /// The answer to the body of a review.
    pub(crate) async fn review(&self, body: &[u8]) -> Response {
        let started = self.clock.moment();
        let (subject, response, trouble) = match Request::parse(body) {
            Ok(request) => {
                let subject = Subject::of(&request);
                let answer = self.answered(&request).await;
                if subject == Subject::Pod && answer.response.uid != PROBE {
                    self.metrics.pod(PodOutcome::of(&answer));
                }
                let Answer { response, trouble } = answer;
                (subject, response, trouble)
            }
            Err(error) => {
                let response = Response::allowed(String::new());
                (Subject::Unknown, response, Some(Trouble::from(error)))
            }
        };
        if response.uid == PROBE {
            return response;
        }
        let status = match &trouble {
            Some(trouble) => {
                tracing::warn!(uid = response.uid, error = %trouble, "allowed as it is");
                Status::Error
            }
            None if !response.allowed || subject == Subject::Unknown => Status::Error,
            None if response.patch.is_empty() => Status::Skipped,
            None => Status::Applied,
        };
        self.metrics
            .reviewed(subject, status, self.clock.moment().since(started));
        response
    }

    /// Answers as soon as everything is known that the answer needs, or patience is at its end.
    async fn answered(&self, request: &Request<'_>) -> Answer {
        let mut changes = self.known.changes();
        let mut wished = Vec::new();
        let mut deadline: Option<tokio::time::Instant> = None;
        loop {
            changes.borrow_and_update();
            let (patience, answer) = match self.attempt(request) {
                Err(NeedsScale(key)) => {
                    let given_up = PodError::Controller(TopmostError::NeedsScale(key.clone()));
                    if !wished.contains(&key) {
                        self.metrics.waits_for_scale(&key);
                        if !self.known.wish(key.clone()) {
                            return allowed(request, given_up);
                        }
                        wished.push(key);
                    }
                    (SCALE_PATIENCE, allowed(request, given_up))
                }
                Ok(answer) if awaits_owner(&answer) => (OWNER_PATIENCE, answer),
                Ok(answer) => return answer,
            };
            // An answer that comes when nobody waits any more is none.
            let patience = patience.min(self.asker / 2);
            let end = *deadline.get_or_insert_with(|| tokio::time::Instant::now() + patience);
            match tokio::time::timeout_at(end, changes.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return answer,
            }
        }
    }

    fn attempt(&self, request: &Request<'_>) -> Result<Answer, NeedsScale> {
        guarded(
            || {
                let index = self.known.read();
                if Subject::of(request) == Subject::SidecarSet {
                    let response = self.injector.review(request, &index.sidecarsets);
                    return Ok(Answer {
                        response,
                        trouble: None,
                    });
                }
                answer_request(request, &index.world(), &self.settings)
            },
            || {
                self.metrics.panicked();
                Ok(Answer {
                    response: Response::allowed(request.uid.clone()),
                    trouble: None,
                })
            },
        )
    }
}

fn allowed(request: &Request<'_>, trouble: PodError) -> Answer {
    Answer {
        response: Response::allowed(request.uid.clone()),
        trouble: Some(trouble.into()),
    }
}

/// Whether a controller of the pod has not been heard of.
fn awaits_owner(answer: &Answer) -> bool {
    matches!(
        answer.trouble,
        Some(Trouble::Pod(PodError::Controller(TopmostError::DoesNotExist(_))))
    )
}

/// A bug in one review costs that review's answer and no more; the panic's message is in the log already.
fn guarded<T>(answer: impl FnOnce() -> T, otherwise: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(answer)).unwrap_or_else(|_| otherwise())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use common::{
        api::vpa::VerticalPodAutoscaler,
        gates::Gates,
        target::{Controller, ControllerKey, Scale, ScaleLookup, WellKnown},
    };
    use prometheus_client::registry::Registry;
    use serde_json::{Value, json};
    use tokio::sync::{mpsc, watch};

    use crate::sidecarset::{self, settings::Mode};

    /// A reviewer that knows of a VPA for the Deployment `web`, with a recommendation, and is synced.
    pub(crate) fn reviewer(target_kind: &str) -> (Reviewer, mpsc::Receiver<ControllerKey>) {
        let (known, wishes) = Known::new();
        let vpa: VerticalPodAutoscaler = serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": target_kind, "name": "web"}},
            "status": {"recommendation": {"containerRecommendations": [
                {"containerName": "app", "target": {"cpu": "250m", "memory": "200Mi"}},
            ]}},
        }))
        .unwrap();
        known.write().vpas.apply(&vpa);
        known.set_synced();
        let reviewer = Reviewer {
            known,
            settings: Settings::default().into(),
            metrics: Metrics::register(&mut Registry::default()),
            clock: Clock::system(),
            injector: injector(Mode::Size),
            asker: Duration::from_secs(30),
        };
        (reviewer, wishes)
    }

    /// One that knows what there is.
    pub(crate) fn injector(mode: Mode) -> Injector {
        Injector {
            settings: sidecarset::settings::Settings::new(mode, "kube-system").into(),
            gates: Gates::default(),
            clock: Clock::system(),
            quotas: None,
            settled: watch::channel(true).1,
        }
    }

    pub(crate) fn deployment(reviewer: &Reviewer) {
        let selector = json!({"matchLabels": {"app": "web"}});
        let selector = serde_json::from_value(selector).unwrap();
        let deployment = Controller::selecting(None, Some(&selector));
        let mut index = reviewer.known.write();
        index
            .owners
            .well_known
            .apply(WellKnown::Deployment, "shop", "web", deployment);
        drop(index);
        reviewer.known.changed();
    }

    pub(crate) fn pod_review(owner_kind: &str) -> Value {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "operation": "CREATE", "namespace": "shop",
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": {
                "metadata": {"generateName": "web-", "labels": {"app": "web"}, "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": owner_kind, "name": "web", "uid": "o", "controller": true},
                ]},
                "spec": {"containers": [{"name": "app", "image": "i"}]},
            },
        }})
    }

    async fn is_patched(reviewer: &Reviewer, owner_kind: &str) -> bool {
        let response = reviewer
            .review(pod_review(owner_kind).to_string().as_bytes())
            .await;
        assert!(response.allowed);
        assert_eq!(response.uid, "u");
        !response.patch.is_empty()
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_waits_a_moment_for_its_controller_to_be_heard_of() {
        let (reviewer, _wishes) = reviewer("Deployment");
        assert!(!is_patched(&reviewer, "Deployment").await, "it never came");
        let (patched, ()) = tokio::join!(is_patched(&reviewer, "Deployment"), async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            deployment(&reviewer);
        });
        assert!(patched);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_waits_for_a_scale_and_not_for_ever() {
        let (reviewer, mut wishes) = reviewer("Rollout");
        let start = tokio::time::Instant::now();
        assert!(!is_patched(&reviewer, "Rollout").await, "nobody answered");
        assert_eq!(start.elapsed(), SCALE_PATIENCE);
        let wish = wishes.recv().await.unwrap();
        assert_eq!(wish.to_string(), "Rollout shop/web");
        let (patched, ()) = tokio::join!(is_patched(&reviewer, "Rollout"), async {
            let wish = wishes.recv().await.unwrap();
            let scale = Scale {
                owner: None,
                selector: "app=web".to_owned(),
                replicas: None,
            };
            let mut index = reviewer.known.write();
            index.owners.note_scale(&wish, ScaleLookup::Found(&scale));
            drop(index);
            reviewer.known.changed();
        });
        assert!(patched);
        assert!(is_patched(&reviewer, "Rollout").await, "it is known now");
        assert!(wishes.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn no_pod_waits_longer_than_the_api_server() {
        let (mut reviewer, _wishes) = reviewer("Rollout");
        reviewer.asker = Duration::from_secs(1);
        let start = tokio::time::Instant::now();
        assert!(!is_patched(&reviewer, "Rollout").await);
        assert_eq!(start.elapsed(), Duration::from_millis(500));
    }

    #[test]
    fn a_bug_costs_one_answer() {
        let bug = || [1].into_iter().nth(1).unwrap();
        assert_eq!(guarded(bug, || 2), 2);
        assert_eq!(guarded(|| 1, || 2), 1);
    }
}
