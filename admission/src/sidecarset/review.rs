//! Reviews of SidecarSets: defaults are filled in, and what comes of that is validated. Both versions are taken, each
//! answered in itself.

use common::{
    api::{
        k8s::{StatusCause, StatusDetails},
        sidecarset::SidecarSet,
    },
    patch::{ANNOTATIONS, annotation_path},
};
use serde_json::{Value, value::RawValue};

use super::{
    convert::convert,
    default::defaulted,
    validate::{Fault, Findings, World, validate},
};
use crate::review::{NoMetadata, Operation, Request, Response, Status};

const GROUP: &str = "apps.kruise.io";

/// Whether a set may be written, and what is added to it.
#[must_use]
pub fn review(request: &Request<'_>, world: &World<'_>) -> Response {
    let mut response = Response::allowed(request.uid.clone());
    if !["CREATE", "UPDATE"].contains(&request.operation.as_str()) {
        return response;
    }
    let faults = match checked(request, world) {
        Ok((patch, Findings { faults, warnings })) => {
            response.patch = patch;
            response.warnings = warnings;
            faults
        }
        Err(message) => vec![Fault {
            field: ".".to_owned(),
            message,
        }],
    };
    if !faults.is_empty() {
        response.allowed = false;
        response.patch.clear();
        response.status = Some(refusal(request, &faults));
    }
    response
}

fn checked(request: &Request<'_>, world: &World<'_>) -> Result<(Vec<Operation>, Findings), String> {
    let version = request.resource.version.as_str();
    if !["v1alpha1", "v1beta1"].contains(&version) {
        return Err(format!("Invalid value: {version:?}: unsupported version"));
    }
    let parse = |raw: Option<&RawValue>| -> Result<Value, String> {
        let raw = raw.ok_or("Required value: the admission review has no object")?;
        serde_json::from_str(raw.get()).map_err(|error| format!("Invalid value: {error}"))
    };
    let typed = |object: Value| -> Result<SidecarSet, String> {
        let object =
            convert(object, "apps.kruise.io/v1beta1").map_err(|error| format!("Invalid value: {error}"))?;
        serde_json::from_value(object).map_err(|error| format!("Invalid value: {error}"))
    };
    let given = parse(request.object)?;
    let filled = defaulted(&given).map_err(|error| format!("Invalid value: {error}"))?;
    let patch = patch(&given, &filled);
    let set = typed(filled)?;
    if set.metadata.deletion_timestamp.is_some() {
        // Its finalizers must be able to go, whatever is wrong with it.
        return Ok((Vec::new(), Findings::default()));
    }
    let old = match request.operation.as_str() {
        "UPDATE" => Some(typed(parse(request.old_object)?)?),
        _ => None,
    };
    Ok((patch, validate(&set, old.as_ref(), world)))
}

fn patch(given: &Value, filled: &Value) -> Vec<Operation> {
    let mut patch = Vec::new();
    let annotations = |set: &Value| set["metadata"]["annotations"].as_object().cloned();
    if let Some(new) = annotations(filled) {
        match annotations(given) {
            None => patch.push(Operation::put(ANNOTATIONS.to_owned(), Value::Object(new))),
            Some(old) => patch.extend(
                new.iter()
                    .filter(|(key, value)| old.get(*key) != Some(value))
                    .map(|(key, value)| Operation::put(annotation_path(key), value.clone())),
            ),
        }
    }
    if given["spec"] != filled["spec"] {
        patch.push(Operation::put("/spec".to_owned(), filled["spec"].clone()));
    }
    patch
}

fn refusal(request: &Request<'_>, faults: &[Fault]) -> Status {
    let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let all = match texts.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    let causes = faults.iter().map(|fault| StatusCause {
        field: Some(fault.field.clone()),
        message: Some(fault.message.clone()),
        reason: Some("FieldValueInvalid".to_owned()),
    });
    Status {
        metadata: NoMetadata {},
        status: "Failure",
        message: format!("SidecarSet.{GROUP} {:?} is invalid: {all}", request.name),
        reason: "Invalid",
        details: StatusDetails {
            name: Some(request.name.clone()).filter(|name| !name.is_empty()),
            group: Some(GROUP.to_owned()),
            kind: Some("SidecarSet".to_owned()),
            causes: Some(causes.collect()),
            ..StatusDetails::default()
        },
        code: 422,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::{
        gates::Gates,
        sidecarset::{Hashes, Revisions, Sets, record::HASH},
    };
    use serde_json::json;

    use crate::sidecarset::validate::AnnotationKeys;

    fn answer(version: &str, operation: &str, object: &Value, old: &Value) -> (Response, Value) {
        let review = json!({"request": {
            "uid": "u", "operation": operation, "name": "s", "object": object, "oldObject": old,
            "resource": {"group": GROUP, "version": version, "resource": "sidecarsets"},
        }})
        .to_string();
        let request = Request::parse(review.as_bytes()).unwrap();
        let world = World {
            sets: &Sets::default(),
            revisions: &Revisions::default(),
            gates: &Gates::default(),
            annotations: &AnnotationKeys::None,
        };
        let response = super::review(&request, &world);
        let mut patched = object.clone();
        let patch = serde_json::to_value(&response.patch).unwrap();
        json_patch::patch(
            &mut patched,
            &serde_json::from_value::<json_patch::Patch>(patch).unwrap(),
        )
        .unwrap();
        (response, patched)
    }

    fn object(version: &str) -> Value {
        json!({
            "apiVersion": format!("{GROUP}/{version}"), "kind": "SidecarSet", "metadata": {"name": "s"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "containers": [{"name": "c", "image": "i:1"}]},
        })
    }

    #[test]
    fn both_versions_get_their_defaults_and_hashes() {
        for version in ["v1alpha1", "v1beta1"] {
            let (response, patched) = answer(version, "CREATE", &object(version), &Value::Null);
            assert!(response.allowed, "{response:?}");
            assert_eq!(patched["spec"]["updateStrategy"]["type"], "RollingUpdate");
            let set: SidecarSet = serde_json::from_value(patched.clone()).unwrap();
            assert_eq!(
                patched["metadata"]["annotations"][HASH],
                Hashes::of(&set.spec).hash
            );
            let (again, _) = answer(version, "UPDATE", &patched, &patched);
            assert_eq!(again, Response::allowed("u".to_owned()), "nothing is left to add");
        }
    }

    #[test]
    fn what_is_wrong_is_refused_field_by_field() {
        let mut bad = object("v1alpha1");
        bad["spec"] = json!({"containers": []});
        let (response, _) = answer("v1alpha1", "CREATE", &bad, &Value::Null);
        let status = response.status.unwrap();
        assert!(!response.allowed && response.patch.is_empty());
        assert_eq!(
            status.message,
            "SidecarSet.apps.kruise.io \"s\" is invalid: [spec.selector: Required value: no selector defined for SidecarSet, \
             spec: Required value: no initContainer or container defined for SidecarSet]"
        );
        assert_eq!(status.details.causes.unwrap().len(), 2);
        for (version, object) in [
            ("v1", object("v1")),
            ("v1beta1", json!({"spec": 5})),
            ("v1beta1", Value::Null),
        ] {
            assert!(
                !answer(version, "CREATE", &object, &Value::Null).0.allowed,
                "{version} {object}"
            );
        }
    }

    #[test]
    fn a_set_on_its_way_out_and_other_operations_are_let_be() {
        let mut bad = object("v1beta1");
        bad["spec"] = json!({});
        bad["metadata"]["deletionTimestamp"] = json!("2026-03-01T10:10:00Z");
        assert!(answer("v1beta1", "UPDATE", &bad, &bad).0.allowed);
        assert!(answer("v1beta1", "DELETE", &Value::Null, &Value::Null).0.allowed);
    }
}
