//! Answers the reviews that are of SidecarSets, from what is known. Injection is refused rather than left out: its webhook
//! is one without which pods are not to be.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
};

use common::{api::k8s::StatusDetails, clock::Clock, gates::Gates};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::{Value, value::RawValue};
use tokio::sync::watch;

use super::{
    inject::{self, InjectError, Injected},
    known::Known,
    quota::{Drawn, Quotas},
    review,
    settings::{Mode, Settings},
    validate,
};
use crate::review::{NoMetadata, Request, Response, Status};

/// Answers the reviews that are of SidecarSets. Cloning gives another handle to the same.
#[derive(Clone)]
pub(crate) struct Injector {
    pub(crate) settings: Arc<Settings>,
    pub(crate) gates: Gates,
    pub(crate) clock: Clock,
    /// Where pods are counted, if they are.
    pub(crate) quotas: Option<Arc<Mutex<Quotas>>>,
    /// Whether it is known what there is.
    pub(crate) settled: watch::Receiver<bool>,
}

impl Injector {
    /// Whether it is known what there is; before that nothing can be injected.
    pub(crate) fn is_settled(&self) -> bool {
        *self.settled.borrow()
    }

    /// The pod with its sidecars.
    pub(crate) fn inject(&self, request: &Request<'_>, known: &Known) -> Response {
        let mut response = Response::allowed(request.uid.clone());
        let is_new_pod = request.resource.group.is_empty()
            && request.resource.resource == "pods"
            && request.sub_resource.is_empty()
            && request.operation == "CREATE";
        if self.settings.mode != Mode::Inject || !is_new_pod {
            return response;
        }
        match catch_unwind(AssertUnwindSafe(|| self.injected(request, known))) {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(Injected { patch, warnings, .. }))) => {
                response.patch = patch;
                response.warnings = warnings;
            }
            Ok(Err(error)) => deny(&mut response, 403, "Forbidden", error.to_string()),
            Err(_) => {
                let message = "a bug kept the sidecars from being injected; the log has the details";
                deny(&mut response, 500, "InternalError", message.to_owned());
            }
        }
        response
    }

    fn injected(&self, request: &Request<'_>, known: &Known) -> Result<Option<Injected>, InjectError> {
        let text = request.object.map(RawValue::get).unwrap_or("null");
        let pod: Value = serde_json::from_str(text)?;
        let of_pod = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let names = [request.namespace.as_str(), of_pod, "default"];
        let namespace = names
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or_default();
        if self
            .settings
            .excluded
            .iter()
            .any(|excluded| excluded == namespace)
        {
            return Ok(None);
        }
        let world = inject::World {
            sets: &known.sets,
            revisions: &known.revisions,
            namespace: &known.namespace(namespace),
            gates: &self.gates,
            now: self.clock.now(),
        };
        match &self.quotas {
            Some(quotas) => {
                let mut quotas = quotas.lock().unwrap_or_else(PoisonError::into_inner);
                inject::inject(&pod, &world, &mut quotas.admission(world.now, request.dry_run))
            }
            None => inject::inject(&pod, &world, &mut Drawn(draw)),
        }
    }

    /// Whether a set may be written, and what is added to it.
    pub(crate) fn review(&self, request: &Request<'_>, known: &Known) -> Response {
        if self.settings.mode != Mode::Inject {
            return Response::allowed(request.uid.clone());
        }
        let world = validate::World {
            sets: &known.sets,
            revisions: &known.revisions,
            gates: &self.gates,
            annotations: &self.settings.annotation_keys,
        };
        review::review(request, &world)
    }
}

fn deny(response: &mut Response, code: u16, reason: &'static str, message: String) {
    response.allowed = false;
    response.status = Some(Status {
        metadata: NoMetadata {},
        status: "Failure",
        message,
        reason,
        details: StatusDetails::default(),
        code,
    });
}

/// A number from 0 to below 1.
fn draw() -> f64 {
    let mut bytes = [0; 4];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_ne_bytes(bytes)) / (f64::from(u32::MAX) + 1.0),
        // Without chance there is no share: the newest it is.
        Err(_) => 1.0 - f64::EPSILON,
    }
}
