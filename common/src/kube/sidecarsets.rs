//! SidecarSets as something that need not be there: waits until their kind is installed and may be read, and takes what is
//! watched of them into an index of formulas.

use std::time::Duration;

use kube::{Api, Client, ResourceExt as _, api::ListParams, core::DeserializeGuard};

use super::watch::{Change, WatchMetrics};
use crate::{
    api::{k8s::ControllerRevision, sidecarset::SidecarSet},
    daemon::Handles,
    sidecarset::FormulaIndex,
};

/// How often it is looked again for what was not there.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// How soon it is tried again when there was no answer.
const RETRY: Duration = Duration::from_secs(5);

/// What their watch is called in metrics.
const WATCH: &str = "SidecarSets";

/// A set as it is watched: one that cannot be read does not hide the others.
pub type GuardedSet = DeserializeGuard<SidecarSet>;

/// Why there is nothing to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Their kind is not installed.
    Kind,
    /// There is no right to read them.
    Right,
    /// There is no right to read their revisions.
    RightToRevisions,
}

impl Missing {
    fn words(self) -> &'static str {
        match self {
            Self::Kind => "their kind is not installed",
            Self::Right => "they may not be read",
            Self::RightToRevisions => "their revisions may not be read",
        }
    }
}

/// Waits until there can be SidecarSets, and revisions of them if it is said where these are kept. That there are none is
/// said once, and `without` is called then; that there is no right to them is shown as long as it lasts.
pub async fn wait(
    handles: &Handles,
    metrics: &WatchMetrics,
    revisions: Option<&str>,
    mut without: impl FnMut(),
) {
    let mut said = false;
    loop {
        let pause = match missing(&handles.client, revisions).await {
            Ok(None) => break,
            Ok(Some(why)) => {
                metrics.note_forbidden(WATCH, why != Missing::Kind);
                if !said {
                    tracing::info!(why = why.words(), "SidecarSets play no part");
                    said = true;
                    without();
                }
                LOOK_AGAIN
            }
            Err(error) => {
                tracing::warn!(%error, "cannot tell whether there are SidecarSets; trying again");
                RETRY
            }
        };
        handles.clock.sleep(pause).await;
    }
    if said {
        metrics.note_forbidden(WATCH, false);
        tracing::info!("SidecarSets are there now");
    }
}

/// Why SidecarSets, and their revisions if it is said where these are kept, play no part; none if they do.
///
/// # Errors
/// When there is no answer to that.
pub async fn missing(client: &Client, revisions: Option<&str>) -> kube::Result<Option<Missing>> {
    let first = ListParams::default().limit(1);
    let sets: Api<GuardedSet> = Api::all(client.clone());
    if let Err(error) = sets.list(&first).await {
        return why(error, Missing::Right).map(Some);
    }
    let Some(namespace) = revisions else {
        return Ok(None);
    };
    let revisions: Api<ControllerRevision> = Api::namespaced(client.clone(), namespace);
    match revisions.list(&first).await {
        Ok(_) => Ok(None),
        Err(error) => why(error, Missing::RightToRevisions).map(Some),
    }
}

/// By the code: for a kind that it does not have the API server answers in plain text, without a reason.
fn why(error: kube::Error, forbidden: Missing) -> kube::Result<Missing> {
    match error {
        kube::Error::Api(status) if status.code == 404 => Ok(Missing::Kind),
        kube::Error::Api(status) if status.code == 403 => Ok(forbidden),
        error => Err(error),
    }
}

/// Takes what happened to a set into an index.
pub fn set_changed(index: &mut FormulaIndex, change: &Change<'_, GuardedSet>) {
    match change {
        Change::Applied(DeserializeGuard(Ok(set))) => index.apply_set(set),
        Change::Applied(DeserializeGuard(Err(invalid))) => {
            tracing::warn!(
                name = invalid.metadata.name,
                error = %invalid.error,
                "a SidecarSet cannot be read; what was known of it stays"
            );
        }
        Change::Deleted(set) => index.remove_set(&set.name_any()),
        Change::Relisted(seen) => index.retain_sets(|name| seen.contains("", name)),
    }
}

/// Takes what happened to a revision into an index.
pub fn revision_changed(index: &mut FormulaIndex, change: &Change<'_, ControllerRevision>) {
    match change {
        Change::Applied(revision) => index.apply_revision(revision),
        Change::Deleted(revision) => index.remove_revision(&revision.name_any()),
        // All are of one namespace, so their names tell them apart.
        Change::Relisted(seen) => index.retain_revisions(|name| seen.contains_name(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::json;

    /// What is said where sets and revisions are answered like this.
    async fn said(sets: StatusCode, revisions: StatusCode) -> Result<Option<Missing>, u16> {
        let answers = move |request: Request<Body>| {
            let is_set = request.uri().path().contains("/sidecarsets");
            let code = if is_set { sets } else { revisions };
            let text = match code {
                StatusCode::OK => json!({"metadata": {}, "items": []}).to_string(),
                StatusCode::NOT_FOUND => "404 page not found\n".to_owned(),
                code => json!({
                    "kind": "Status", "status": "Failure", "message": "m", "reason": "r", "code": code.as_u16(),
                })
                .to_string(),
            };
            let body = Body::from(text.into_bytes());
            async move { Response::builder().status(code).body(body) }
        };
        let client = Client::new(tower::service_fn(answers), "default");
        match missing(&client, Some("kruise-system")).await {
            Ok(why) => Ok(why),
            Err(kube::Error::Api(status)) => Err(status.code),
            Err(error) => panic!("{error}"),
        }
    }

    #[tokio::test]
    async fn what_may_not_be_read_is_missing_and_what_is_not_answered_is_not_known() {
        let (ok, gone, forbidden) = (StatusCode::OK, StatusCode::NOT_FOUND, StatusCode::FORBIDDEN);
        for (sets, revisions, expected) in [
            (ok, ok, Ok(None)),
            (gone, ok, Ok(Some(Missing::Kind))),
            (forbidden, ok, Ok(Some(Missing::Right))),
            (ok, forbidden, Ok(Some(Missing::RightToRevisions))),
            (StatusCode::BAD_GATEWAY, ok, Err(502)),
            (ok, StatusCode::SERVICE_UNAVAILABLE, Err(503)),
        ] {
            assert_eq!(said(sets, revisions).await, expected, "{sets} {revisions}");
        }
    }
}
