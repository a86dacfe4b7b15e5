//! `pods/eviction`: a deletion that asks the disruption budgets first.

use serde_json::{Value, json};

use crate::sandbox::{
    api::{Api, Write},
    delete::{DeleteOptions, check_preconditions},
    error::{ApiError, Result},
    registry::Kind,
    selector::{of_budget, selects},
    store::{Expect, Key, Object},
    tree::{items, object, text},
};

impl Api {
    /// Evicts a pod as the body of an `Eviction` says.
    ///
    /// # Errors
    /// 404; 409 for a failed precondition; 429 when a disruption budget forbids it; 500 when two budgets select it.
    pub async fn evict(&self, key: &Key, body: &Value, write: &Write) -> Result<()> {
        let kind = self.kind("pods")?;
        let options = match body.get("deleteOptions") {
            Some(options) => serde_json::from_value(options.clone())
                .map_err(|error| ApiError::bad_request(format!("bad deleteOptions: {error}")))?,
            None => DeleteOptions::default(),
        };
        let object = self.get(&kind, key)?;
        // Before a budget is spent, so that a wrong uid costs no disruption.
        check_preconditions(&kind, &object, &options)?;
        let pod = object.value();
        if !ignores_budgets(&pod) {
            let budgets = self.budgets_of(&pod);
            match budgets.as_slice() {
                [] => {}
                [budget] => self.spend(&budget.value(), &budget.key, &pod, write)?,
                _ => {
                    let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does \
                               not support.";
                    return Err(ApiError::new(500, "InternalError", why));
                }
            }
        }
        self.delete(&kind, key, &options, write).await.map(drop)
    }

    fn budgets_of(&self, pod: &Value) -> Vec<std::sync::Arc<Object>> {
        let namespace = text(pod, "/metadata/namespace");
        let mut all = self.store().all("poddisruptionbudgets.policy", Some(namespace));
        all.retain(|budget| selects(&of_budget(&budget.value()), pod));
        all
    }

    fn spend(&self, budget: &Value, key: &Key, pod: &Value, write: &Write) -> Result<()> {
        let (spec, status) = (&budget["spec"], &budget["status"]);
        let number = |field: &str| status[field].as_i64().unwrap_or_default();
        if number("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or_default() {
            let why = format!(
                "The disruption budget {} is still being processed by the server.",
                key.name
            );
            return Err(refusal(&why).retry_after(10));
        }
        let ready =
            items(pod, "/status/conditions").any(|one| one["type"] == "Ready" && one["status"] == "True");
        let (healthy, desired) = (number("currentHealthy"), number("desiredHealthy"));
        let policy = spec["unhealthyPodEvictionPolicy"]
            .as_str()
            .unwrap_or("IfHealthyBudget");
        if !ready && (policy == "AlwaysAllow" || (healthy >= desired && desired > 0)) {
            return Ok(());
        }
        if number("disruptionsAllowed") <= 0 {
            return Err(refusal(&format!(
                "The disruption budget {} needs {desired} healthy pods and has {healthy} currently",
                key.name
            )));
        }
        if write.dry_run {
            return Ok(());
        }
        let kind = self.kind("poddisruptionbudgets.policy")?;
        self.take_one(&kind, key, text(pod, "/metadata/name"))
    }

    fn take_one(&self, kind: &Kind, key: &Key, pod: &str) -> Result<()> {
        loop {
            let before = self.get(kind, key)?;
            let mut budget = before.value();
            let allowed = budget["status"]["disruptionsAllowed"]
                .as_i64()
                .unwrap_or_default();
            if allowed <= 0 {
                return Err(refusal(&format!(
                    "The disruption budget {} has nothing left",
                    key.name
                )));
            }
            object(&mut budget, &["status"]).insert("disruptionsAllowed".into(), (allowed - 1).into());
            object(&mut budget, &["status", "disruptedPods"]).insert(pod.to_owned(), json!(self.now()));
            if self
                .commit(kind, key, Expect::Revision(before.revision), Some(budget))
                .is_some()
            {
                return Ok(());
            }
        }
    }
}

fn refusal(cause: &str) -> ApiError {
    let why = "Cannot evict pod as it would violate the pod's disruption budget.";
    let mut error = ApiError::new(429, "TooManyRequests", why);
    error.details = json!({});
    error.because("DisruptionBudget", cause)
}

/// Pods that run nothing cost no disruption.
fn ignores_budgets(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed" | "Pending")
        || pod.pointer("/metadata/deletionTimestamp").is_some()
}
