//! `pods/binding`: how a scheduler gives a pod its node.

use serde_json::{Value, json};

use crate::sandbox::{
    api::Api,
    error::{ApiError, Result},
    store::{Expect, Key},
    tree::{object, text},
};

impl Api {
    /// Binds a pod to a node.
    ///
    /// # Errors
    /// 404, or 409 when it has a node already or is going away.
    pub fn bind(&self, key: &Key, node: &str) -> Result<()> {
        let kind = self.kind("pods")?;
        loop {
            let before = self.get(&kind, key)?;
            let mut pod = before.value();
            let conflict = |why: String| ApiError::conflict_because("pods/binding", &key.name, why);
            if pod.pointer("/metadata/deletionTimestamp").is_some() {
                return Err(conflict(format!(
                    "pod {} is being deleted, cannot be assigned to a host",
                    key.name
                )));
            }
            let bound = text(&pod, "/spec/nodeName");
            if !bound.is_empty() {
                return Err(conflict(format!(
                    "pod {} is already assigned to node \"{bound}\"",
                    key.name
                )));
            }
            object(&mut pod, &["spec"]).insert("nodeName".into(), node.into());
            let conditions = object(&mut pod, &["status"])
                .entry("conditions")
                .or_insert_with(|| json!([]));
            if let Some(list) = conditions.as_array_mut() {
                list.retain(|one| one["type"] != "PodScheduled");
                list.push(
                    json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": self.now()}),
                );
            }
            if self
                .commit(&kind, key, Expect::Revision(before.revision), Some(pod))
                .is_some()
            {
                return Ok(());
            }
        }
    }

    /// Binds as the body of a POST says.
    ///
    /// # Errors
    /// As [`bind`](Self::bind); 400 without a target.
    pub fn bind_by(&self, key: &Key, body: &Value) -> Result<()> {
        match text(body, "/target/name") {
            "" => Err(ApiError::bad_request("binding.target.name is required")),
            node => self.bind(key, node),
        }
    }
}
