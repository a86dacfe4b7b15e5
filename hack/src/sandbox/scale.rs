//! The scale subresource of workloads and of custom resources that declare one.

use std::sync::Arc;

use common::selector::Selector as Labels;
use serde_json::{Value, json};

use super::{
    api::{Api, Part, Write},
    error::{ApiError, Cause, Result},
    registry::{Form, Kind},
    selector,
    store::{Key, Object},
    tree::{object, text},
};

impl Api {
    /// The scale of an object.
    ///
    /// # Errors
    /// 404.
    pub fn scale(&self, kind: &Kind, key: &Key) -> Result<Value> {
        let object = self.get(kind, key)?;
        Ok(scale_of(kind, &object))
    }

    /// Sets the number of replicas by a changed scale.
    ///
    /// # Errors
    /// As an update.
    pub async fn rescale(&self, kind: &Kind, key: &Key, scale: &Value, write: &Write) -> Result<Value> {
        let replicas = scale
            .pointer("/spec/replicas")
            .and_then(Value::as_i64)
            .unwrap_or_default();
        if replicas < 0 {
            let why = "must be greater than or equal to 0";
            let cause = Cause::invalid("spec.replicas", &replicas.into(), why);
            return Err(ApiError::invalid("Scale.autoscaling", &key.name, &[cause]));
        }
        let version = text(scale, "/metadata/resourceVersion").to_owned();
        let pointer = spec_pointer(kind).to_owned();
        let path: Vec<&str> = pointer.split('/').filter(|part| !part.is_empty()).collect();
        let object = self
            .modify(kind, key, Part::Main, write, &|old| {
                let mut value = old.clone();
                if let Some((field, parents)) = path.split_last() {
                    object(&mut value, parents).insert((*field).to_owned(), replicas.into());
                }
                if !version.is_empty() {
                    object(&mut value, &["metadata"])
                        .insert("resourceVersion".into(), version.clone().into());
                }
                Ok(value)
            })
            .await?;
        Ok(scale_of(kind, &object))
    }
}

fn spec_pointer(kind: &Kind) -> &str {
    match &kind.form {
        Form::Custom(version) => version.scale.as_ref().map_or("", |scale| &scale.spec),
        Form::Builtin(_) | Form::Metrics => "/spec/replicas",
    }
}

fn scale_of(kind: &Kind, object: &Arc<Object>) -> Value {
    let value = object.value();
    let custom = match &kind.form {
        Form::Custom(version) => version.scale.as_ref(),
        Form::Builtin(_) | Form::Metrics => None,
    };
    let count = |pointer: &str| value.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    let selector = match custom {
        Some(scale) => scale
            .selector
            .as_deref()
            .map_or("", |pointer| text(&value, pointer))
            .to_owned(),
        None => selector_text(&value["spec"]["selector"]),
    };
    let metadata = &value["metadata"];
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {"replicas": count(spec_pointer(kind))},
        "status": {
            "replicas": count(custom.map_or("/status/replicas", |scale| &scale.status)), "selector": selector,
        },
    })
}

/// A selector object in the form of a query; replication controllers have a plain map.
fn selector_text(selector: &Value) -> String {
    let is_object = ["matchLabels", "matchExpressions"]
        .iter()
        .any(|field| selector.get(field).is_some());
    if is_object {
        return selector::of_object(selector).to_string();
    }
    let labels = selector.as_object().into_iter().flatten();
    Labels::labels(labels.map(|(key, value)| (key, value.as_str().unwrap_or_default()))).to_string()
}
