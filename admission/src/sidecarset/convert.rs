//! Conversion between the two versions of SidecarSets (`spec/sidecarset.md` 1.7), and the reviews that ask for it
//! (`apiextensions.k8s.io/v1`). Objects stay JSON: what we do not know comes through.

use common::sidecarset::{matching::NAMESPACE_NAME, revision::CUSTOM_VERSION};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

const ALPHA: &str = "apps.kruise.io/v1alpha1";
const BETA: &str = "apps.kruise.io/v1beta1";

/// Why an object cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// The object is none.
    #[error("not an object")]
    NoObject,
    /// Not a version that we know.
    #[error("cannot convert from {from:?} to {to:?}: the versions are {ALPHA} and {BETA}")]
    Version {
        /// The object's.
        from: String,
        /// The one that is wanted.
        to: String,
    },
}

/// The object in another version.
///
/// # Errors
/// If one of the versions is not known.
pub fn convert(mut object: Value, to: &str) -> Result<Value, ConvertError> {
    let from = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    let fields = object.as_object_mut().ok_or(ConvertError::NoObject)?;
    match (from.as_str(), to) {
        (ALPHA, BETA) => to_beta(fields),
        (BETA, ALPHA) => to_alpha(fields),
        (ALPHA, ALPHA) | (BETA, BETA) => {}
        _ => {
            let to = to.to_owned();
            return Err(ConvertError::Version { from, to });
        }
    }
    fields.insert("apiVersion".to_owned(), to.into());
    Ok(object)
}

/// The namespace becomes a selector, and wins over the one that is there; the label with the version becomes a field,
/// even an empty one.
fn to_beta(object: &mut Map<String, Value>) {
    let labels = object
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("labels"))
        .and_then(Value::as_object_mut);
    let version = labels.and_then(|labels| labels.remove(CUSTOM_VERSION));
    let Some(spec) = member(object, "spec") else {
        return;
    };
    let namespace = spec.remove("namespace");
    if let Some(namespace) = namespace
        .as_ref()
        .and_then(Value::as_str)
        .filter(|name| !name.is_empty())
    {
        let selector = json!({"matchLabels": {NAMESPACE_NAME: namespace}});
        spec.insert("namespaceSelector".to_owned(), selector);
    }
    if let Some(version) = version {
        spec.insert("customVersion".to_owned(), version);
    }
}

/// The namespace is not made from the selector again: who wrote the one may mean the other.
fn to_alpha(object: &mut Map<String, Value>) {
    let spec = object.get_mut("spec").and_then(Value::as_object_mut);
    let Some(Value::String(version)) = spec.and_then(|spec| spec.remove("customVersion")) else {
        return;
    };
    if version.is_empty() {
        return;
    }
    if let Some(metadata) = member(object, "metadata")
        && let Some(labels) = member(metadata, "labels")
    {
        labels.insert(CUSTOM_VERSION.to_owned(), version.into());
    }
}

/// A member that is an object, made where it is missing.
fn member<'v>(object: &'v mut Map<String, Value>, key: &str) -> Option<&'v mut Map<String, Value>> {
    let member = object.entry(key).or_insert(Value::Null);
    if member.is_null() {
        *member = json!({});
    }
    member.as_object_mut()
}

/// What is asked.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired_api_version: String,
    objects: Vec<Value>,
}

/// What is answered.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: String,
    converted_objects: Vec<Value>,
    result: Value,
}

/// The answer to the body of a conversion review; all objects are converted, or none.
///
/// # Errors
/// If it is no review.
pub fn review(body: &[u8]) -> serde_json::Result<Vec<u8>> {
    #[derive(Deserialize)]
    struct Review {
        request: Request,
    }
    let Request {
        uid,
        desired_api_version: version,
        objects,
    } = serde_json::from_slice::<Review>(body)?.request;
    let converted: Result<Vec<Value>, _> = objects
        .into_iter()
        .map(|object| convert(object, &version))
        .collect();
    let (converted_objects, result) = match converted {
        Ok(objects) => (objects, json!({"status": "Success"})),
        Err(error) => (
            Vec::new(),
            json!({"status": "Failed", "message": error.to_string()}),
        ),
    };
    let response = Response {
        uid,
        converted_objects,
        result,
    };
    serde_json::to_vec(&json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "response": response,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(version: &str, labels: Value, spec: Value) -> Value {
        let mut object = json!({"apiVersion": version, "kind": "SidecarSet", "metadata": {"name": "s"}});
        object["metadata"]["labels"] = labels;
        object["spec"] = spec;
        object
    }

    #[test]
    fn namespace_and_version_move_and_everything_else_stays() {
        let policy = json!({"targetContainersMode": "max", "resourcesExpr": {"limits": {"cpu": "cpu"}}});
        let containers = json!([{"name": "c", "newer": 1, "resourcesPolicy": policy}]);
        for (what, labels, spec, new_labels, new_spec) in [
            (
                "the namespace wins over the selector",
                json!({"a": "b", CUSTOM_VERSION: "1"}),
                json!({"namespace": "shop", "namespaceSelector": {"matchLabels": {"x": "y"}}, "containers": containers}),
                json!({"a": "b"}),
                json!({"namespaceSelector": {"matchLabels": {NAMESPACE_NAME: "shop"}}, "customVersion": "1", "containers": containers}),
            ),
            (
                "no namespace leaves the selector",
                json!({}),
                json!({"namespace": "", "namespaceSelector": {"matchLabels": {"x": "y"}}, "initContainers": containers}),
                json!({}),
                json!({"namespaceSelector": {"matchLabels": {"x": "y"}}, "initContainers": containers}),
            ),
            (
                "an empty version moves too",
                json!({CUSTOM_VERSION: ""}),
                json!({}),
                json!({}),
                json!({"customVersion": ""}),
            ),
        ] {
            let converted = convert(object(ALPHA, labels, spec), BETA).unwrap();
            assert_eq!(converted, object(BETA, new_labels, new_spec), "{what}");
        }
    }

    #[test]
    fn back_there_is_no_namespace_and_no_empty_label() {
        let selector = json!({"matchLabels": {NAMESPACE_NAME: "shop"}});
        let beta = object(
            BETA,
            Value::Null,
            json!({"namespaceSelector": selector, "customVersion": "1"}),
        );
        let alpha = object(
            ALPHA,
            json!({CUSTOM_VERSION: "1"}),
            json!({"namespaceSelector": selector}),
        );
        assert_eq!(convert(beta, ALPHA).unwrap(), alpha);
        let beta = object(BETA, json!({}), json!({"customVersion": ""}));
        assert_eq!(convert(beta, ALPHA).unwrap(), object(ALPHA, json!({}), json!({})));
    }

    #[test]
    fn an_object_without_anything_is_converted_too() {
        let bare = json!({"apiVersion": ALPHA, "metadata": {"name": "s"}, "spec": null});
        let expected = json!({"apiVersion": BETA, "metadata": {"name": "s"}, "spec": {}});
        assert_eq!(convert(bare, BETA).unwrap(), expected);
    }

    #[test]
    fn a_review_is_answered_for_all_or_for_none() {
        let ask = |objects: Value, version: &str| {
            let request = json!({"uid": "u", "desiredAPIVersion": version, "objects": objects});
            let body = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request});
            let answer: Value =
                serde_json::from_slice(&review(body.to_string().as_bytes()).unwrap()).unwrap();
            answer["response"].clone()
        };
        let alpha = object(ALPHA, json!({}), json!({"namespace": "shop"}));
        let beta = convert(alpha.clone(), BETA).unwrap();
        assert_eq!(
            ask(json!([alpha, beta]), BETA),
            json!({"uid": "u", "convertedObjects": [beta, beta], "result": {"status": "Success"}})
        );
        let failed = ask(json!([alpha]), "apps.kruise.io/v1");
        assert_eq!(failed["convertedObjects"], json!([]));
        assert_eq!(failed["result"]["status"], "Failed");
        assert!(review(b"{}").is_err());
    }
}
