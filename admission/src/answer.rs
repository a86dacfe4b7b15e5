//! From the body of a review to its answer: which resource it is about decides who answers. Everything else is allowed
//! untouched (`spec/vpa.md` 4.3).

use common::target::{ControllerKey, Controllers, TopmostError};

use crate::{
    pod::{self, PodError, Settings, World},
    review::{Request, Response, ReviewError},
    vpa,
};

/// What comes of a review.
#[derive(Debug)]
pub enum Answer {
    /// The answer, and what kept it from being more.
    Response(Response, Option<Trouble>),
    /// This scale has to be asked for first; then the review is to be answered again.
    NeedsScale(ControllerKey),
}

/// Why an object is allowed as it is though it might be ours.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The review cannot be read.
    #[error(transparent)]
    Review(#[from] ReviewError),
    /// The pod cannot be sized.
    #[error(transparent)]
    Pod(#[from] PodError),
}

/// Answers a review.
#[must_use]
pub fn answer<C: Controllers>(body: &[u8], world: &World<'_, C>, settings: &Settings) -> Answer {
    let request = match Request::parse(body) {
        Ok(request) => request,
        Err(error) => return Answer::Response(Response::allowed(String::new()), Some(error.into())),
    };
    match (
        request.resource.group.as_str(),
        request.resource.resource.as_str(),
    ) {
        ("", "pods") => answer_pod(&request, world, settings),
        ("autoscaling.k8s.io", "verticalpodautoscalers") => {
            Answer::Response(vpa::review(&request, &settings.gates), None)
        }
        _ => Answer::Response(Response::allowed(request.uid), None),
    }
}

fn answer_pod<C: Controllers>(request: &Request<'_>, world: &World<'_, C>, settings: &Settings) -> Answer {
    let mut response = Response::allowed(request.uid.clone());
    match pod::review(request, world, settings) {
        Ok(patch) => {
            response.patch = patch;
            Answer::Response(response, None)
        }
        Err(PodError::Controller(TopmostError::NeedsScale(key))) => Answer::NeedsScale(key),
        Err(error) => Answer::Response(response, Some(error.into())),
    }
}
