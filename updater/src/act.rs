//! Carries out what was decided: patches and evictions, and what the API server's answers mean. Each call says which pod it
//! means by its UID, so that one of the same name that came since is left alone.

use std::{error::Error, io};

use common::{
    api::k8s::{DeleteOptions, Eviction, ObjectMeta, Preconditions},
    patch::Operation,
    pod::Pod,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{decide::Outcome, reason::Skip, resize::Resize};

/// What came of an act.
#[derive(Debug)]
pub(crate) enum Done {
    /// It was done; a resize gives the pod as it is now.
    Yes(Option<Box<Pod>>),
    /// It was not, for this reason and with these words.
    No(Outcome, String),
}

/// Acts on pods.
#[derive(Clone)]
pub(crate) struct Actor {
    /// Refuses when this process does not lead any more.
    pub(crate) client: Client,
}

impl Actor {
    /// Resizes a pod. That its annotations could not be changed afterwards is only logged, as in VPA.
    pub(crate) async fn resize(&self, pod: &Pod, resize: &Resize) -> Done {
        let (api, name) = self.place_of(pod);
        let patch = match patch(pod, &resize.resources) {
            Ok(patch) => patch,
            Err(error) => return Done::No(Outcome::Refused, error.to_string()),
        };
        let params = PatchParams::default();
        let resized = match api.patch_subresource("resize", name, &params, &patch).await {
            Ok(resized) => resized,
            Err(error) => return Done::No(resize_refused(&error), error.to_string()),
        };
        let annotated = match self::patch(pod, &resize.annotations) {
            Ok(patch) => api.patch(name, &params, &patch).await,
            Err(error) => Err(kube::Error::SerdeError(error)),
        };
        match annotated {
            Ok(pod) => Done::Yes(Some(Box::new(pod))),
            Err(error) => {
                tracing::warn!(namespace = pod.metadata.namespace, name, %error, "cannot annotate a resized pod");
                Done::Yes(Some(Box::new(resized)))
            }
        }
    }

    /// Evicts a pod through the eviction API, so that disruption budgets rule.
    pub(crate) async fn evict(&self, pod: &Pod) -> Done {
        let (api, name) = self.place_of(pod);
        let eviction = eviction(pod);
        let evicted: Result<Value, _> = api
            .create_subresource("eviction", name, &PostParams::default(), &eviction)
            .await;
        match evicted {
            Ok(_) => Done::Yes(None),
            Err(error) => Done::No(eviction_refused(&error), error.to_string()),
        }
    }

    fn place_of<'p>(&self, pod: &'p Pod) -> (Api<Pod>, &'p str) {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        (Api::namespaced(self.client.clone(), namespace), name)
    }
}

/// Asks for the end of a pod if it is still this one. Whose resize was under way, and which therefore comes with its version,
/// must be as it was seen too: while a watch is late, the resize may have been done long ago.
fn eviction(pod: &Pod) -> Eviction {
    let ObjectMeta {
        name,
        namespace,
        uid,
        resource_version,
        ..
    } = &pod.metadata;
    Eviction {
        metadata: ObjectMeta {
            name: name.clone(),
            namespace: namespace.clone(),
            ..ObjectMeta::default()
        },
        delete_options: Some(DeleteOptions {
            preconditions: Some(Preconditions {
                uid: uid.clone(),
                resource_version: resource_version.clone(),
            }),
            ..DeleteOptions::default()
        }),
    }
}

/// The operations, if the pod is still the one they were made for.
fn patch(pod: &Pod, operations: &[Operation]) -> serde_json::Result<Patch<()>> {
    let test = json!({"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid});
    let operations = operations.iter().map(serde_json::to_value);
    let operations: Vec<Value> = std::iter::once(Ok(test))
        .chain(operations)
        .collect::<Result<_, _>>()?;
    Ok(Patch::Json(serde_json::from_value(Value::Array(operations))?))
}

/// What a refusal of a resize means. What may pass by itself is no reason to evict the pod instead.
fn resize_refused(error: &kube::Error) -> Outcome {
    let kube::Error::Api(status) = error else {
        return unanswered(error);
    };
    match status.code {
        403 if has_cause(status, "NodeCapacity") => Outcome::NodeCapacity,
        403 if is_over_quota(status) => Outcome::NotNow(Skip::QuotaExceeded),
        404 if is_about_pod(status) => Outcome::NotNow(Skip::Gone),
        // A server without the subresource has no pod to speak of.
        404 => Outcome::Refused,
        409 | 429 => Outcome::NotNow(Skip::ApiUnavailable),
        500.. => failed(status),
        _ => Outcome::Refused,
    }
}

/// What a refusal of an eviction means.
fn eviction_refused(error: &kube::Error) -> Outcome {
    let kube::Error::Api(status) = error else {
        return unanswered(error);
    };
    match status.code {
        404 => Outcome::NotNow(Skip::Gone),
        // It is not as it was seen, or somebody changes it now.
        409 if !status.message.contains("UID") => Outcome::NotNow(Skip::ApiUnavailable),
        // Another pod has its name by now.
        409 => Outcome::NotNow(Skip::Gone),
        429 if has_cause(status, "DisruptionBudget") => Outcome::NotNow(Skip::DisruptionBudget),
        429 => Outcome::NotNow(Skip::ApiUnavailable),
        // More than one budget for a pod is an internal error to the API server, and an operator's mistake to us.
        500 if status.message.contains("PodDisruptionBudget") => Outcome::NotNow(Skip::DisruptionBudget),
        500.. => failed(status),
        _ => Outcome::Refused,
    }
}

/// What it means that the API server could not say how it went: time was up, or its store has changed leaders.
fn failed(status: &kube::core::Status) -> Outcome {
    match status.code {
        503 => Outcome::NotNow(Skip::ApiUnavailable),
        _ => Outcome::Unanswered,
    }
}

/// What it means that no answer came: only who was not reached has done nothing.
fn unanswered(error: &kube::Error) -> Outcome {
    let mut cause = error.source();
    while let Some(error) = cause {
        let io: Option<&io::Error> = error.downcast_ref();
        if io.is_some_and(|io| io.kind() == io::ErrorKind::ConnectionRefused) {
            return Outcome::NotNow(Skip::ApiUnavailable);
        }
        cause = error.source();
    }
    Outcome::Unanswered
}

fn has_cause(status: &kube::core::Status, reason: &str) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == reason)
}

fn is_over_quota(status: &kube::core::Status) -> bool {
    status.message.contains("exceeded quota")
}

fn is_about_pod(status: &kube::core::Status) -> bool {
    status
        .details
        .as_ref()
        .is_some_and(|details| details.kind == "pods" && !details.name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::kube::DeadlineExceeded;
    use kube::core::Status;
    use std::time::Duration;

    fn answer(code: u16, message: &str, details: &Value) -> kube::Error {
        let status: Status = serde_json::from_value(json!({
            "code": code, "message": message, "reason": "", "details": details,
        }))
        .unwrap();
        kube::Error::Api(Box::new(status))
    }

    #[test]
    fn what_the_api_server_says_to_a_resize() {
        let pod = json!({"kind": "pods", "name": "web-0"});
        let small = json!({"causes": [{"reason": "NodeCapacity"}]});
        for (code, message, details, expected) in [
            (
                422,
                "Pod QOS Class may not change as a result of resizing",
                pod.clone(),
                Outcome::Refused,
            ),
            (
                403,
                "node didn't have enough allocatable resources",
                small,
                Outcome::NodeCapacity,
            ),
            (
                403,
                "forbidden: exceeded quota: small",
                pod.clone(),
                Outcome::NotNow(Skip::QuotaExceeded),
            ),
            (403, "pods is forbidden", pod.clone(), Outcome::Refused),
            (
                404,
                "pods \"web-0\" not found",
                pod.clone(),
                Outcome::NotNow(Skip::Gone),
            ),
            (
                404,
                "the server could not find the requested resource",
                json!({}),
                Outcome::Refused,
            ),
            (
                409,
                "the object has been modified",
                pod.clone(),
                Outcome::NotNow(Skip::ApiUnavailable),
            ),
            (
                429,
                "too many requests",
                json!({}),
                Outcome::NotNow(Skip::ApiUnavailable),
            ),
            (500, "etcdserver: leader changed", json!({}), Outcome::Unanswered),
            (503, "not ready", json!({}), Outcome::NotNow(Skip::ApiUnavailable)),
            (504, "timeout", json!({}), Outcome::Unanswered),
        ] {
            assert_eq!(
                resize_refused(&answer(code, message, &details)),
                expected,
                "{code} {message}"
            );
        }
    }

    #[test]
    fn an_eviction_names_the_pod_that_was_seen() {
        for version in [None, Some("7")] {
            let pod = serde_json::from_value(json!({
                "metadata": {"name": "web-0", "namespace": "shop", "uid": "u", "resourceVersion": version},
            }))
            .unwrap();
            let asked = eviction(&pod);
            let seen = asked.delete_options.unwrap().preconditions.unwrap();
            assert_eq!(asked.metadata.name.as_deref(), Some("web-0"));
            assert_eq!(seen.uid.as_deref(), Some("u"));
            assert_eq!(seen.resource_version.as_deref(), version);
        }
    }

    #[test]
    fn what_the_api_server_says_to_an_eviction() {
        let budget = json!({"causes": [{"reason": "DisruptionBudget"}]});
        for (code, message, details, expected) in [
            (
                429,
                "Cannot evict pod",
                budget,
                Outcome::NotNow(Skip::DisruptionBudget),
            ),
            (
                429,
                "too many requests",
                json!({}),
                Outcome::NotNow(Skip::ApiUnavailable),
            ),
            (
                500,
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                json!({}),
                Outcome::NotNow(Skip::DisruptionBudget),
            ),
            (500, "etcdserver: leader changed", json!({}), Outcome::Unanswered),
            (
                404,
                "pods \"web-0\" not found",
                json!({}),
                Outcome::NotNow(Skip::Gone),
            ),
            (
                409,
                "the UID in the precondition does not match",
                json!({}),
                Outcome::NotNow(Skip::Gone),
            ),
            (
                409,
                "the ResourceVersion in the precondition (7) does not match the ResourceVersion in record (9)",
                json!({}),
                Outcome::NotNow(Skip::ApiUnavailable),
            ),
            (403, "pods/eviction is forbidden", json!({}), Outcome::Refused),
        ] {
            assert_eq!(
                eviction_refused(&answer(code, message, &details)),
                expected,
                "{code} {message}"
            );
        }
    }

    #[test]
    fn who_was_not_reached_has_done_nothing() {
        let no_answer = kube::Error::Service;
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let cut = || io::Error::from(io::ErrorKind::ConnectionReset);
        let late = DeadlineExceeded(Duration::from_secs(10));
        for (error, expected) in [
            (no_answer(refused().into()), Outcome::NotNow(Skip::ApiUnavailable)),
            (
                no_answer(anyhow::Error::new(refused()).context("connect").into()),
                Outcome::NotNow(Skip::ApiUnavailable),
            ),
            (no_answer(cut().into()), Outcome::Unanswered),
            (no_answer(late.into()), Outcome::Unanswered),
        ] {
            assert_eq!(eviction_refused(&error), expected, "{error:?}");
            assert_eq!(resize_refused(&error), expected, "{error:?}");
        }
    }

    #[test]
    fn a_patch_is_for_one_pod_and_no_other() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"uid": "7"}})).unwrap();
        let operations = [Operation::set(
            "/spec/containers/0/resources/requests/cpu".to_owned(),
            "1",
        )];
        let Patch::Json::<()>(patch) = patch(&pod, &operations).unwrap() else {
            panic!("not a JSON patch");
        };
        assert_eq!(
            serde_json::to_value(patch).unwrap(),
            json!([
                {"op": "test", "path": "/metadata/uid", "value": "7"},
                {"op": "add", "path": "/spec/containers/0/resources/requests/cpu", "value": "1"},
            ])
        );
    }
}
