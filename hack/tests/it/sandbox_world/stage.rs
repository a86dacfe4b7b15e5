//! A sandbox with a world in it and a virtual clock, for the tests of what lives there.

use std::{fmt::Debug, time::Duration};

use chrono::{DateTime, Utc};
use common::clock::VirtualClock;
use hack::sandbox::{
    Key, Options, Part, Patch, Sandbox, Write,
    world::{NodeSpec, World, WorldOptions},
};
use serde_json::{Value, json};

pub(crate) struct Stage {
    pub(crate) sandbox: Sandbox,
    client: kube::Client,
    pub(crate) world: World,
    pub(crate) time: VirtualClock,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(WorldOptions::default()).await
    }

    /// One node of this size.
    pub(crate) async fn on(cpu: &str, memory: &str) -> Self {
        Self::with(WorldOptions {
            nodes: vec![NodeSpec::new("node-1", cpu, memory)],
            ..WorldOptions::default()
        })
        .await
    }

    pub(crate) async fn with(options: WorldOptions) -> Self {
        // A Sunday, 2026-03-01 12:00:00 UTC.
        let time = VirtualClock::starting_at(DateTime::from_timestamp(1_772_366_400, 0).unwrap());
        let clock = time.clock();
        let sandbox = Sandbox::start(Options {
            clock,
            ..Options::default()
        })
        .await
        .unwrap();
        let world = World::start(&sandbox, options).await.unwrap();
        Self {
            client: sandbox.client().unwrap(),
            sandbox,
            world,
            time,
        }
    }

    pub(crate) async fn pass(&self, seconds: u64) {
        self.time.advance(Duration::from_secs(seconds)).await;
        self.time.idle().await;
    }

    pub(crate) fn now(&self) -> DateTime<Utc> {
        self.time.now()
    }

    pub(crate) async fn create(&self, resource: &str, value: Value) {
        let api = self.sandbox.api();
        let kind = api.kind(resource).unwrap();
        let namespace = if kind.namespaced { "default" } else { "" };
        api.create(&kind, namespace, value, &Write::default())
            .await
            .unwrap();
    }

    pub(crate) async fn delete(&self, resource: &str, name: &str) {
        let api = self.sandbox.api();
        let kind = api.kind(resource).unwrap();
        let key = Key::new("default", name);
        api.delete(&kind, &key, &Default::default(), &Write::default())
            .await
            .unwrap();
    }

    /// Merges `patch` into an object.
    pub(crate) async fn merge(&self, resource: &str, name: &str, part: Part, patch: Value) {
        self.patch(resource, name, part, Patch::Merge(patch)).await;
    }

    pub(crate) async fn patch(&self, resource: &str, name: &str, part: Part, patch: Patch) {
        let api = self.sandbox.api();
        let kind = api.kind(resource).unwrap();
        let key = Key::new(if kind.namespaced { "default" } else { "" }, name);
        api.patch(&kind, &key, part, &patch, &Write::default())
            .await
            .unwrap();
    }

    /// Sets the resources of one container of a pod through `pods/resize`.
    pub(crate) async fn resize(&self, pod: &str, list: &str, container: &str, resources: Value) {
        let patch = json!({"spec": {list: [{"name": container, "resources": resources}]}});
        self.patch("pods", pod, Part::Resize, Patch::Strategic(patch))
            .await;
    }

    pub(crate) fn get(&self, resource: &str, name: &str) -> Value {
        let api = self.sandbox.api();
        let kind = api.kind(resource).unwrap();
        let key = Key::new(if kind.namespaced { "default" } else { "" }, name);
        api.get(&kind, &key).unwrap().value()
    }

    pub(crate) fn all(&self, resource: &str) -> Vec<Value> {
        let objects = self.sandbox.store().all(resource, None);
        objects.iter().map(|object| object.value()).collect()
    }

    pub(crate) fn names(&self, resource: &str) -> Vec<String> {
        self.all(resource)
            .iter()
            .map(|one| name(one).to_owned())
            .collect()
    }

    pub(crate) fn ready_pods(&self) -> usize {
        self.all("pods")
            .iter()
            .filter(|pod| condition(pod, "Ready")["status"] == "True")
            .count()
    }

    /// The reasons of the events about an object, in the order of their names' creation.
    pub(crate) fn events(&self, about: &str) -> Vec<String> {
        let mut events = self.all("events");
        events.retain(|event| event["involvedObject"]["name"] == about);
        events.sort_by_key(|event| {
            event["metadata"]["resourceVersion"]
                .as_str()
                .unwrap()
                .parse::<u64>()
                .unwrap()
        });
        let reason = |event: &Value| event["reason"].as_str().unwrap().to_owned();
        events.iter().map(reason).collect()
    }

    /// What `metrics.k8s.io` says, through HTTP.
    pub(crate) async fn metrics(&self, path: &str) -> Vec<Value> {
        let request = http::Request::get(format!("/apis/metrics.k8s.io/v1beta1/{path}"))
            .body(Vec::new())
            .unwrap();
        let list: Value = self.client.request(request).await.unwrap();
        list["items"].as_array().unwrap().clone()
    }
}

pub(crate) fn name(value: &Value) -> &str {
    value["metadata"]["name"].as_str().unwrap()
}

/// One condition; null when there is none.
pub(crate) fn condition<'a>(value: &'a Value, kind: &str) -> &'a Value {
    let list = value["status"]["conditions"].as_array();
    list.and_then(|list| list.iter().find(|one| one["type"] == kind))
        .unwrap_or(&Value::Null)
}

/// The status of one container.
pub(crate) fn container<'a>(pod: &'a Value, name: &str) -> &'a Value {
    ["initContainerStatuses", "containerStatuses"]
        .iter()
        .filter_map(|list| pod["status"][list].as_array())
        .flatten()
        .find(|one| one["name"] == name)
        .unwrap()
}

/// The fields of an object, in the order asked for.
pub(crate) fn fields(value: &Value, names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| value[name].clone()).collect()
}

/// A container with the same requests and limits, or none for `""`.
pub(crate) fn sized(name: &str, cpu: &str, memory: &str) -> Value {
    let both = json!({"cpu": cpu, "memory": memory});
    json!({"name": name, "image": format!("{name}:1"), "resources": {"requests": both, "limits": both}})
}

pub(crate) fn pod(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": spec})
}

pub(crate) fn template(name: &str, load: &Value, spec: &Value) -> Value {
    let mut metadata = json!({"labels": {"app": name}});
    if !load.is_null() {
        metadata["annotations"] = json!({"sandbox.outrigger.dev/load": load.to_string()});
    }
    json!({"metadata": metadata, "spec": spec})
}

/// A Deployment, StatefulSet and so on.
pub(crate) fn workload(name: &str, replicas: i64, load: &Value, spec: &Value) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template(name, load, spec),
        },
    })
}

pub(crate) fn assert_about(found: f64, expected: f64, what: impl Debug) {
    assert!(
        (found - expected).abs() <= expected.abs() * 0.02 + 1e-9,
        "{what:?}: {found}, not {expected}"
    );
}
