//! Family `oom`: which kills for want of memory a pod update or an eviction event tells of.

use anyhow::Context as _;
use chrono::SecondsFormat;
use common::pod::Pod;
use k8s_openapi::api::core::v1::Event;
use recommender::oom::{Oom, in_event, in_update};
use serde::Deserialize;
use serde_json::{Value, json};

use super::family::Context;

#[derive(Deserialize)]
struct Input {
    old: Option<Pod>,
    new: Option<Pod>,
    event: Option<Event>,
}

pub(super) fn answer(input: &Value, context: &Context) -> anyhow::Result<Value> {
    let input = Input::deserialize(input).context("cannot read the input")?;
    let ooms = match (&input.old, &input.new, &input.event) {
        (_, _, Some(event)) => in_event(event),
        (Some(old), Some(new), None) => in_update(old, new, &context.gates),
        _ => anyhow::bail!("neither an update nor an event"),
    };
    Ok(json!({ "ooms": ooms.iter().map(describe).collect::<Vec<_>>() }))
}

fn describe(oom: &Oom) -> Value {
    json!({
        "namespace": oom.namespace,
        "pod": oom.pod,
        "container": oom.container,
        "time": oom.time.to_rfc3339_opts(SecondsFormat::AutoSi, true),
        "memoryBytes": oom.memory.0,
    })
}
