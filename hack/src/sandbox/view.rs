//! The shapes in which objects go out: whole, their metadata alone, or as rows of a table for kubectl. Whole objects and
//! metadata are cut from the stored bytes without building them anew.

use axum::body::Body;
use bytes::Bytes;
use common::clock::Clock;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use std::sync::Arc;

use super::{
    events,
    registry::Kind,
    store::{Object, Page},
    table, tree,
};

/// What a client's `Accept` header asks for.
#[derive(Clone, Debug)]
pub(super) enum View {
    /// The objects themselves.
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
    /// `Table`, with ages by this clock; whether rows carry the whole object.
    Table(Clock, bool),
}

#[derive(Deserialize)]
struct OnlyMetadata<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

impl View {
    /// The first shape in the header that the sandbox knows.
    #[must_use]
    pub(super) fn accepted(header: &str, include: &str, clock: &Clock) -> Self {
        for range in header.split(',') {
            let mut shape = range
                .split(';')
                .map(str::trim)
                .filter_map(|part| part.strip_prefix("as="));
            match shape.next() {
                Some("Table") => return Self::Table(clock.clone(), include == "Object"),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") => return Self::Metadata,
                Some(_) => {}
                None => return Self::Whole,
            }
        }
        Self::Whole
    }

    /// `apiVersion` and `kind` of one object in this shape.
    #[must_use]
    pub(super) fn type_of(&self, kind: &Kind) -> (String, String) {
        match self {
            Self::Whole => (kind.api_version(), kind.kind.clone()),
            Self::Metadata => ("meta.k8s.io/v1".into(), "PartialObjectMetadata".into()),
            Self::Table(..) => ("meta.k8s.io/v1".into(), "Table".into()),
        }
    }

    /// One object.
    #[must_use]
    pub(super) fn one(&self, kind: &Kind, object: &Object) -> Bytes {
        let mut bytes = Vec::with_capacity(object.bytes.len() + 100);
        self.write_event(kind, object, &mut bytes);
        bytes.into()
    }

    /// Appends one object, as in the answer to a get or in a watch event.
    pub(super) fn write_event(&self, kind: &Kind, object: &Object, to: &mut Vec<u8>) {
        match self {
            Self::Table(clock, whole) => {
                let columns = table::columns(kind);
                let table = json!({
                    "kind": "Table", "apiVersion": "meta.k8s.io/v1",
                    "metadata": {"resourceVersion": object.revision.to_string()},
                    "columnDefinitions": columns.iter().map(table::Column::definition).collect::<Vec<_>>(),
                    "rows": [table::row(kind, &columns, object, clock.now(), *whole)],
                });
                to.extend_from_slice(table.to_string().as_bytes());
            }
            Self::Whole | Self::Metadata => self.write(kind, object, true, to),
        }
    }

    /// A list, streamed as it is read.
    pub(super) fn list(
        &self,
        kind: &Arc<Kind>,
        page: Page,
        next: Option<&str>,
        remaining: Option<usize>,
    ) -> Body {
        let mut metadata = json!({"resourceVersion": page.revision.to_string()});
        if let Some(next) = next {
            metadata["continue"] = next.into();
        }
        if let Some(remaining) = remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        let (name, api_version) = match self {
            Self::Whole => (kind.list_kind.clone(), kind.api_version()),
            Self::Metadata => ("PartialObjectMetadataList".into(), "meta.k8s.io/v1".into()),
            Self::Table(clock, whole) => {
                let columns = table::columns(kind);
                let rows = page.objects.iter();
                let rows = rows.map(|object| table::row(kind, &columns, object, clock.now(), *whole));
                return Body::from(
                    json!({
                        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                        "columnDefinitions": columns.iter().map(table::Column::definition).collect::<Vec<_>>(),
                        "rows": rows.collect::<Vec<_>>(),
                    })
                    .to_string(),
                );
            }
        };
        let head =
            format!(r#"{{"kind":"{name}","apiVersion":"{api_version}","metadata":{metadata},"items":["#);
        // The items of built-in lists do not repeat their type, those of custom ones do.
        let typed = kind.is_custom() || matches!(self, Self::Metadata);
        let (view, kind) = (self.clone(), kind.clone());
        let objects = page.objects.into_iter();
        streamed(head, objects, move |object, to| {
            view.write(&kind, &object, typed, to);
        })
    }

    fn write(&self, kind: &Kind, object: &Object, typed: bool, to: &mut Vec<u8>) {
        let translated;
        let bytes: &[u8] = match self {
            Self::Metadata => match serde_json::from_slice::<OnlyMetadata<'_>>(&object.bytes) {
                Ok(OnlyMetadata { metadata }) => {
                    to.extend_from_slice(
                        br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#,
                    );
                    to.extend_from_slice(metadata.get().as_bytes());
                    to.push(b'}');
                    return;
                }
                Err(_) => &object.bytes,
            },
            _ if events::translated(kind) => {
                translated = events::from_stored(kind, object.value()).to_string();
                translated.as_bytes()
            }
            _ => &object.bytes,
        };
        if !typed {
            to.extend_from_slice(bytes);
            return;
        }
        to.extend_from_slice(b"{\"kind\":\"");
        to.extend_from_slice(kind.kind.as_bytes());
        to.extend_from_slice(b"\",\"apiVersion\":\"");
        to.extend_from_slice(kind.api_version().as_bytes());
        to.extend_from_slice(b"\",");
        // Every stored object has metadata, so there is something behind the brace.
        to.extend_from_slice(bytes.get(1..).unwrap_or_default());
    }
}

const CHUNK: usize = 128 * 1024;

/// The body of a list whose items are written one after the other, as fast as the client reads.
fn streamed<T>(
    head: String,
    mut items: impl Iterator<Item = T> + Send + 'static,
    write: impl Fn(T, &mut Vec<u8>) + Send + 'static,
) -> Body {
    let (mut head, mut first, mut done) = (Some(head.into_bytes()), true, false);
    let chunks = std::iter::from_fn(move || {
        if done {
            return None;
        }
        let mut chunk = head.take().unwrap_or_default();
        while chunk.len() < CHUNK {
            let Some(item) = items.next() else {
                chunk.extend_from_slice(b"]}\n");
                done = true;
                break;
            };
            if !std::mem::take(&mut first) {
                chunk.push(b',');
            }
            write(item, &mut chunk);
        }
        Some(Ok::<_, std::convert::Infallible>(Bytes::from(chunk)))
    });
    Body::from_stream(futures::stream::iter(chunks))
}

/// A list of what comes from no store, such as metrics.
pub(super) fn computed_list<T: Serialize>(
    kind: &Kind,
    items: impl Iterator<Item = T> + Send + 'static,
) -> Body {
    let (name, api_version) = (&kind.list_kind, kind.api_version());
    let head = format!(r#"{{"kind":"{name}","apiVersion":"{api_version}","metadata":{{}},"items":["#);
    streamed(head, items, |item, to| {
        // Neither text nor a vector refuses.
        drop(serde_json::to_writer(to, &item));
    })
}

/// One thing that comes from no store.
#[must_use]
pub(super) fn computed(kind: &Kind, item: &impl Serialize) -> Value {
    let mut value = json!(item);
    let map = tree::object(&mut value, &[]);
    map.insert("kind".into(), kind.kind.clone().into());
    map.insert("apiVersion".into(), kind.api_version().into());
    value
}
