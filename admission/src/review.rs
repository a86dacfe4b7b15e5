//! Admission reviews on the wire (`admission.k8s.io/v1`): what is asked, borrowed from the request's bytes, and what is
//! answered. Nothing here decides.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use common::api::k8s::StatusDetails;
pub use common::patch::{Operation, Value};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// What is asked. The objects are not decoded yet: which type they have depends on the resource.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Request<'a> {
    /// Names the question; the answer repeats it.
    #[serde(deserialize_with = "nullable")]
    pub uid: String,
    /// The kind the object is given in.
    #[serde(deserialize_with = "nullable")]
    pub kind: Kind,
    /// The kind the client used.
    pub request_kind: Option<Kind>,
    /// The resource the object is given in.
    #[serde(deserialize_with = "nullable")]
    pub resource: Resource,
    /// The object's name; empty while the API server still has to make one up.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// The object's namespace.
    #[serde(deserialize_with = "nullable")]
    pub namespace: String,
    /// What is done: `CREATE`, `UPDATE`.
    #[serde(deserialize_with = "nullable")]
    pub operation: String,
    /// The part of the object that it is about, if not all of it.
    #[serde(deserialize_with = "nullable")]
    pub sub_resource: String,
    /// Whether nothing will come of it.
    #[serde(deserialize_with = "nullable")]
    pub dry_run: bool,
    /// The object as it shall be.
    #[serde(borrow)]
    pub object: Option<&'a RawValue>,
    /// The object as it was.
    #[serde(borrow)]
    pub old_object: Option<&'a RawValue>,
}

/// Names a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Kind {
    /// The API group; empty for the core.
    #[serde(deserialize_with = "nullable")]
    pub group: String,
    /// The kind.
    #[serde(deserialize_with = "nullable")]
    pub kind: String,
}

/// Names a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Resource {
    /// The API group; empty for the core.
    #[serde(deserialize_with = "nullable")]
    pub group: String,
    /// The version.
    #[serde(deserialize_with = "nullable")]
    pub version: String,
    /// The plural.
    #[serde(deserialize_with = "nullable")]
    pub resource: String,
}

impl<'a> Request<'a> {
    /// Reads the body of a review.
    ///
    /// # Errors
    /// If it is none, or has no request.
    pub fn parse(body: &'a [u8]) -> Result<Self, ReviewError> {
        #[derive(Deserialize)]
        struct Review<'a> {
            #[serde(borrow)]
            request: Option<Request<'a>>,
        }
        let review: Review<'a> = serde_json::from_slice(body)?;
        review.request.ok_or(ReviewError::NoRequest)
    }
}

/// Why a body is no review.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// Not JSON, or not of this form.
    #[error("cannot read the admission review: {0}")]
    Json(#[from] serde_json::Error),
    /// A review without a question.
    #[error("the admission review has no request")]
    NoRequest,
}

/// What is answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Response {
    /// The question's.
    pub uid: String,
    /// Whether it may be done.
    pub allowed: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// What is changed first.
    #[serde(flatten, serialize_with = "encoded")]
    pub patch: Vec<Operation>,
    /// What the client is told besides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Response {
    /// Done as it is: the answer to everything that is not ours, and to a review that cannot be read.
    #[must_use]
    pub fn allowed(uid: String) -> Self {
        Self {
            uid,
            allowed: true,
            ..Self::default()
        }
    }

    /// The body of the answering review.
    ///
    /// # Errors
    /// If a value cannot be written as JSON.
    pub fn to_body(&self) -> serde_json::Result<Vec<u8>> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Review<'a> {
            kind: &'static str,
            api_version: &'static str,
            response: &'a Response,
        }
        serde_json::to_vec(&Review {
            kind: "AdmissionReview",
            api_version: "admission.k8s.io/v1",
            response: self,
        })
    }
}

/// Why something may not be done. The generated type writes its kind and version too, which have no place in here.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// Always empty, and always there.
    pub metadata: NoMetadata,
    /// `Failure`.
    pub status: &'static str,
    /// Why, for people.
    pub message: String,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, field by field.
    pub details: StatusDetails,
    /// The HTTP status code.
    pub code: u16,
}

/// An empty object.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NoMetadata {}

/// The patch and its type go together, or not at all.
fn encoded<S: Serializer>(patch: &Vec<Operation>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Encoded {
        #[serde(skip_serializing_if = "Option::is_none")]
        patch: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        patch_type: Option<&'static str>,
    }
    let patch = if patch.is_empty() {
        None
    } else {
        let json = serde_json::to_vec(patch).map_err(serde::ser::Error::custom)?;
        Some(BASE64_STANDARD.encode(json))
    };
    let patch_type = patch.is_some().then_some("JSONPatch");
    Encoded { patch, patch_type }.serialize(serializer)
}

fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(input: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(input)?.unwrap_or_default())
}
