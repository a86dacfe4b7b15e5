//! The sandbox as clients see it, over HTTP.

mod custom;
mod faults;
mod objects;
mod pods;
mod webhooks;

use common::clock::VirtualClock;
use hack::sandbox::{Options, Sandbox};
use k8s_openapi::api::core::v1::Pod;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A sandbox where it is noon of the first of March, and its time.
pub(crate) async fn at_noon() -> (Sandbox, VirtualClock) {
    let time = VirtualClock::starting_at(chrono::DateTime::from_timestamp(1_772_366_400, 0).unwrap());
    let options = Options {
        clock: time.clock(),
        ..Options::default()
    };
    (Sandbox::start(options).await.unwrap(), time)
}

/// The same, and a client of it.
async fn sandbox() -> (Sandbox, kube::Client) {
    let (sandbox, _) = at_noon().await;
    let client = sandbox.client().unwrap();
    (sandbox, client)
}

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn pod(name: &str) -> Pod {
    object(json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "app", "image": "app:1"}]},
    }))
}

/// The code and the message of an error.
fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    match result.unwrap_err() {
        kube::Error::Api(status) => (status.code, status.message.clone()),
        other => panic!("not an answer of the server: {other}"),
    }
}
