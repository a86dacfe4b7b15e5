//! Watches over HTTP: initial events, bookmarks, selectors that objects enter and leave, time-outs, and the faults that
//! watches suffer. Connections live in the machine's time, like those of the clients; objects in the sandbox's.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    api::Api,
    error::{ApiError, Cause, Result},
    faults::Effect,
    registry::Kind,
    selector::Selector,
    store::{Change, Event, Expired, Object, Range},
    view::View,
};

/// What a watch asks for.
#[derive(Clone, Debug)]
pub(super) struct WatchRequest {
    /// What is watched.
    pub kind: Arc<Kind>,
    /// One namespace, or all.
    pub namespace: Option<String>,
    /// Which objects.
    pub selector: Selector,
    /// In which shape.
    pub view: View,
    /// Events after this one; from the start (with everything there is) when not given.
    pub after: Option<u64>,
    /// Whether bookmarks are wanted.
    pub bookmarks: bool,
    /// Whether everything there is comes first, closed by a bookmark.
    pub initial_events: bool,
    /// When it ends.
    pub timeout: Duration,
    /// What it suffers.
    pub effects: Vec<Effect>,
    /// How often bookmarks come.
    pub bookmark_every: Duration,
}

/// 422 of a server whose WatchList feature is off.
#[must_use]
pub(super) fn watch_list_forbidden() -> ApiError {
    let why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
    ApiError::invalid(
        "ListOptions.meta.k8s.io",
        "",
        &[Cause::forbidden("sendInitialEvents", why)],
    )
}

/// The body of a watch; it ends when `stop` does.
///
/// # Errors
/// 504 for a revision from the future.
pub(super) fn stream(
    api: &Arc<Api>,
    request: WatchRequest,
    stop: tokio_util::sync::CancellationToken,
) -> Result<Body> {
    let now = api.store().revision();
    if let Some(after) = request.after.filter(|after| *after > now) {
        return Err(too_large(after, now));
    }
    let (lines, mut body) = mpsc::channel::<Bytes>(64);
    let api = api.clone();
    tokio::spawn(async move {
        let timeout = tokio::time::sleep(request.timeout);
        let watch = async {
            let stalled = tokio::select! {
                stalled = run(&api, &request, &lines) => stalled,
                () = timeout => false,
            };
            if stalled {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = watch => {}
            () = stop.cancelled() => {}
            () = lines.closed() => {}
        }
    });
    let lines = futures::stream::poll_fn(move |context| body.poll_recv(context));
    Ok(Body::from_stream(futures::StreamExt::map(
        lines,
        Ok::<_, std::convert::Infallible>,
    )))
}

/// The error for a revision that has not been yet.
#[must_use]
pub(super) fn too_large(wanted: u64, now: u64) -> ApiError {
    let message = format!("Timeout: Too large resource version: {wanted}, current: {now}");
    let mut error = ApiError::new(504, "Timeout", message);
    error.details = json!({});
    error
        .because("ResourceVersionTooLarge", "Too large resource version")
        .retry_after(1)
}

/// Ends quietly when the client has gone, a fault says so, or the resource is no longer served; true if the connection
/// is to stay open all the same.
async fn run(api: &Arc<Api>, request: &WatchRequest, lines: &mpsc::Sender<Bytes>) -> bool {
    let mut sink = Sink {
        request,
        lines,
        sent: 0,
        stalled: false,
    };
    if let Some(after) = sink.initial(api).await {
        follow(api, after, &mut sink).await;
    }
    sink.stalled
}

async fn follow(api: &Arc<Api>, after: u64, sink: &mut Sink<'_>) {
    let request = sink.request;
    let mut watch = api.store().watch(&request.kind.storage, after);
    let mut bookmarks = tokio::time::interval(request.bookmark_every);
    bookmarks.reset();
    let cut = api.faults.cut();
    tokio::pin!(cut);
    loop {
        if sink.suffer().await.is_none() {
            return;
        }
        tokio::select! {
            () = &mut cut => return,
            events = watch.next() => match events {
                Ok(events) if events.is_empty() => return,
                Ok(events) => {
                    for event in &events {
                        if sink.event(event).await.is_none() {
                            return;
                        }
                    }
                }
                Err(Expired { oldest }) => {
                    let message = format!("too old resource version: {} ({oldest})", watch.revision());
                    sink.error(&ApiError::expired(message)).await;
                    return;
                }
            },
            _ = bookmarks.tick(), if request.bookmarks => {
                let Ok((events, revision)) = watch.catch_up() else { continue };
                for event in &events {
                    if sink.event(event).await.is_none() {
                        return;
                    }
                }
                if sink.bookmark(revision, false).await.is_none() {
                    return;
                }
            }
        }
    }
}

/// What a watcher that looks only at selected objects sees of an event, if anything.
fn seen(
    event: &Event,
    fields: &[String],
    selected: &dyn Fn(&Object) -> bool,
) -> Option<(Change, Arc<Object>)> {
    let before = event.before.as_deref().filter(|object| selected(object));
    let after = event.change != Change::Deleted && selected(&event.object);
    match (before, after) {
        (None, false) => None,
        (None, true) => Some((Change::Added, event.object.clone())),
        (Some(_), true) => Some((Change::Modified, event.object.clone())),
        (Some(_), false) if event.change == Change::Deleted => Some((Change::Deleted, event.object.clone())),
        (Some(before), false) => {
            let gone = Object::new(before.key.clone(), before.value(), event.object.revision, fields);
            Some((Change::Deleted, Arc::new(gone)))
        }
    }
}

struct Sink<'a> {
    request: &'a WatchRequest,
    lines: &'a mpsc::Sender<Bytes>,
    sent: u64,
    stalled: bool,
}

impl Sink<'_> {
    /// Sends what is there already, if that is asked for; gives the revision from which to go on.
    async fn initial(&mut self, api: &Arc<Api>) -> Option<u64> {
        let request = self.request;
        if let Some(after) = request.after.filter(|_| !request.initial_events) {
            return Some(after);
        }
        let range = Range {
            namespace: request.namespace.clone(),
            ..Range::default()
        };
        let storage = &request.kind.storage;
        let page = api
            .store()
            .list(storage, &range, &|object| request.selector.matches(object))
            .ok()?;
        for object in &page.objects {
            self.object(Change::Added, object).await?;
        }
        if request.initial_events && request.bookmarks {
            self.bookmark(page.revision, true).await?;
        }
        Some(page.revision)
    }

    async fn event(&mut self, event: &Event) -> Option<()> {
        let request = self.request;
        let selected = |object: &Object| {
            request
                .namespace
                .as_deref()
                .is_none_or(|namespace| namespace == &*object.key.namespace)
                && request.selector.matches(object)
        };
        match seen(event, &request.kind.fields, &selected) {
            Some((change, object)) => self.object(change, &object).await,
            None => Some(()),
        }
    }

    async fn object(&mut self, change: Change, object: &Object) -> Option<()> {
        self.suffer().await?;
        self.sent += 1;
        let mut line = Vec::with_capacity(object.bytes.len() + 100);
        line.extend_from_slice(b"{\"type\":\"");
        line.extend_from_slice(match change {
            Change::Added => b"ADDED",
            Change::Modified => b"MODIFIED",
            Change::Deleted => b"DELETED",
        });
        line.extend_from_slice(b"\",\"object\":");
        self.request
            .view
            .write_event(&self.request.kind, object, &mut line);
        line.extend_from_slice(b"}\n");
        self.lines.send(line.into()).await.ok()
    }

    async fn bookmark(&mut self, revision: u64, end_of_initial_events: bool) -> Option<()> {
        self.suffer().await?;
        let kind = &self.request.kind;
        let (api_version, name) = self.request.view.type_of(kind);
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if end_of_initial_events {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = json!({"apiVersion": api_version, "kind": name, "metadata": metadata});
        self.line(&json!({"type": "BOOKMARK", "object": object})).await
    }

    async fn error(&self, error: &ApiError) {
        // Whether or not the client still listens, this watch is over.
        self.line(&json!({"type": "ERROR", "object": error.status()}))
            .await;
    }

    async fn line(&self, value: &Value) -> Option<()> {
        self.lines.send(format!("{value}\n").into()).await.ok()
    }

    /// Ends, stalls or fails the watch when its fault is due.
    async fn suffer(&mut self) -> Option<()> {
        for effect in &self.request.effects {
            match effect {
                Effect::DropWatch { after_events } if self.sent >= *after_events => return None,
                Effect::StallWatch { after_events } if self.sent >= *after_events => {
                    self.stalled = true;
                    return None;
                }
                Effect::ExpireWatch { after_events } if self.sent >= *after_events => {
                    self.error(&ApiError::expired(
                        "too old resource version: a fault was asked for",
                    ))
                    .await;
                    return None;
                }
                _ => {}
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::store::{Expect, Key, Store};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// One write to one of a few objects: a new value of its label, or none to delete it.
    fn writes() -> impl Strategy<Value = Vec<(u8, Option<u8>)>> {
        proptest::collection::vec((0_u8..4, proptest::option::of(0_u8..3)), 1..40)
    }

    type Contents = BTreeMap<Arc<Key>, u64>;

    fn list(store: &Store, selector: &Selector, at: Option<u64>) -> (Contents, u64) {
        let range = Range {
            at,
            ..Range::default()
        };
        let page = store
            .list("things", &range, &|object| selector.matches(object))
            .unwrap();
        (
            page.objects
                .iter()
                .map(|object| (object.key.clone(), object.revision))
                .collect(),
            page.revision,
        )
    }

    proptest! {
        #[test]
        fn a_list_and_the_events_after_it_give_the_next_list(writes in writes(), from in 0_usize..40) {
            let store = Store::new(1000);
            store.register("things", &[]);
            let selector = Selector::parse("label=1", "", &[]).unwrap();
            let mut then = None;
            for (n, (name, label)) in writes.iter().enumerate() {
                if n == from.min(writes.len() - 1) {
                    then = Some(list(&store, &selector, None));
                }
                let key = Key::new("ns", &name.to_string());
                let expect = store.get("things", &key).map_or(Expect::Absent, |there| Expect::Revision(there.revision));
                let value = label.map(|label| json!({"metadata": {"labels": {"label": label.to_string()}}}));
                // Deleting what is not there changes nothing.
                drop(store.commit("things", &key, expect, value));
            }
            let (mut contents, revision) = then.unwrap();
            prop_assert_eq!(&list(&store, &selector, Some(revision)).0, &contents, "the past can be listed");
            for event in store.events_since("things", revision).unwrap().0 {
                match seen(&event, &[], &|object| selector.matches(object)) {
                    Some((Change::Deleted, object)) => {
                        prop_assert!(contents.remove(&object.key).is_some(), "only what was seen is deleted");
                    }
                    Some((Change::Added, object)) => {
                        let known = contents.insert(object.key.clone(), object.revision);
                        prop_assert!(known.is_none(), "only what was not seen is added");
                    }
                    Some((Change::Modified, object)) => {
                        let known = contents.insert(object.key.clone(), object.revision);
                        prop_assert!(known.is_some(), "only what was seen is modified");
                    }
                    None => {}
                }
            }
            prop_assert_eq!(contents, list(&store, &selector, None).0);
        }
    }
}
