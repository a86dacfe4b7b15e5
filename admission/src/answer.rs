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
pub struct Answer {
    /// What is answered.
    pub response: Response,
    /// What kept it from being more.
    pub trouble: Option<Trouble>,
}

/// A scale has to be asked for first; then the review is to be answered again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the scale of {0} has not been asked for yet")]
pub struct NeedsScale(pub ControllerKey);

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

/// What a review is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A pod.
    Pod,
    /// A VPA.
    Vpa,
    /// A SidecarSet.
    SidecarSet,
    /// Something that is none of our business.
    Unknown,
}

impl Subject {
    /// What a request is about.
    #[must_use]
    pub fn of(request: &Request<'_>) -> Self {
        let resource = &request.resource;
        match (resource.group.as_str(), resource.resource.as_str()) {
            ("", "pods") => Self::Pod,
            ("autoscaling.k8s.io", "verticalpodautoscalers") => Self::Vpa,
            ("apps.kruise.io", "sidecarsets") => Self::SidecarSet,
            _ => Self::Unknown,
        }
    }
}

/// Answers a review.
///
/// # Errors
/// If it cannot be answered before a scale is known.
pub fn answer<C: Controllers>(
    body: &[u8],
    world: &World<'_, C>,
    settings: &Settings,
) -> Result<Answer, NeedsScale> {
    match Request::parse(body) {
        Ok(request) => answer_request(&request, world, settings),
        Err(error) => Ok(Answer {
            response: Response::allowed(String::new()),
            trouble: Some(error.into()),
        }),
    }
}

/// Answers what a review asks.
///
/// # Errors
/// If it cannot be answered before a scale is known.
pub fn answer_request<C: Controllers>(
    request: &Request<'_>,
    world: &World<'_, C>,
    settings: &Settings,
) -> Result<Answer, NeedsScale> {
    let response = match Subject::of(request) {
        Subject::Pod => return answer_pod(request, world, settings),
        Subject::Vpa => vpa::review(request, &settings.gates),
        // Those are answered by whoever knows the sets.
        Subject::SidecarSet | Subject::Unknown => Response::allowed(request.uid.clone()),
    };
    Ok(Answer {
        response,
        trouble: None,
    })
}

fn answer_pod<C: Controllers>(
    request: &Request<'_>,
    world: &World<'_, C>,
    settings: &Settings,
) -> Result<Answer, NeedsScale> {
    let mut response = Response::allowed(request.uid.clone());
    let trouble = match pod::review(request, world, settings) {
        Ok(patch) => {
            response.patch = patch;
            None
        }
        Err(PodError::Controller(TopmostError::NeedsScale(key))) => return Err(NeedsScale(key)),
        Err(error) => Some(error.into()),
    };
    Ok(Answer { response, trouble })
}
