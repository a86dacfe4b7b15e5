//! `metrics.k8s.io/v1beta1` PodMetrics: what the pods use now. There are as many containers in one list as in the
//! cluster and the list cannot be paged, so everything nobody reads is dropped while it is parsed.

use super::{
    k8s::{ObjectMeta, Quantity},
    wire::{nullable, optional_time},
};
use chrono::{DateTime, Utc};
use kube::{Resource, core::NamespaceResourceScope};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeStruct};
use std::borrow::Cow;

/// What the containers of one pod use.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodMetrics {
    /// Name and namespace of the pod; nothing else is read.
    #[serde(deserialize_with = "name_and_namespace")]
    pub metadata: ObjectMeta,
    /// The end of the window the usage was measured over.
    #[serde(with = "optional_time")]
    pub timestamp: Option<DateTime<Utc>>,
    /// Length of that window, as Go prints durations (`15.2s`).
    #[serde(deserialize_with = "nullable")]
    pub window: String,
    /// One entry for each container, init containers included.
    #[serde(deserialize_with = "nullable")]
    pub containers: Vec<ContainerMetrics>,
}

/// What one container uses.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct ContainerMetrics {
    /// Name of the container.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// How much of what.
    #[serde(deserialize_with = "nullable")]
    pub usage: Usage,
}

/// The resources that are measured.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Usage {
    /// Cores, on average over the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Quantity>,
    /// Bytes of the working set at the end of the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,
}

impl Resource for PodMetrics {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "PodMetrics".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "metrics.k8s.io".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1beta1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Serialize for PodMetrics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Timestamp(#[serde(with = "optional_time")] Option<DateTime<Utc>>);

        let mut object = serializer.serialize_struct("PodMetrics", 6)?;
        object.serialize_field("apiVersion", &Self::api_version(&()))?;
        object.serialize_field("kind", &Self::kind(&()))?;
        object.serialize_field("metadata", &self.metadata)?;
        object.serialize_field("timestamp", &Timestamp(self.timestamp))?;
        object.serialize_field("window", &self.window)?;
        object.serialize_field("containers", &self.containers)?;
        object.end()
    }
}

fn name_and_namespace<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Slim {
        name: Option<String>,
        namespace: Option<String>,
    }

    let Slim { name, namespace } = nullable(deserializer)?;
    Ok(ObjectMeta {
        name,
        namespace,
        ..ObjectMeta::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::ObjectList;
    use serde_json::json;

    #[test]
    fn a_list_as_metrics_server_sends_it() {
        let list: ObjectList<PodMetrics> = serde_json::from_value(json!({
            "kind": "PodMetricsList",
            "apiVersion": "metrics.k8s.io/v1beta1",
            "metadata": {},
            "items": [{
                "metadata": {
                    "name": "web-0", "namespace": "shop", "creationTimestamp": "2026-03-01T10:10:05Z",
                    "labels": { "app": "web" },
                },
                "timestamp": "2026-03-01T10:10:00Z",
                "window": "15.179s",
                "containers": [
                    { "name": "web", "usage": { "cpu": "1234567n", "memory": "20480Ki" } },
                    { "name": "proxy", "usage": { "cpu": 0, "memory": 4096 } },
                ],
            }],
        }))
        .unwrap();
        let pod = PodMetrics {
            metadata: ObjectMeta {
                name: Some("web-0".to_owned()),
                namespace: Some("shop".to_owned()),
                ..ObjectMeta::default()
            },
            timestamp: DateTime::from_timestamp(1_772_359_800, 0),
            window: "15.179s".to_owned(),
            containers: vec![
                container("web", "1234567n", "20480Ki"),
                container("proxy", "0", "4096"),
            ],
        };
        assert_eq!(list.items, [pod]);
    }

    #[test]
    fn an_object_says_what_it_is() {
        let pod = PodMetrics {
            containers: vec![container("web", "1m", "2Mi")],
            ..PodMetrics::default()
        };
        assert_eq!(
            serde_json::to_value(pod).unwrap(),
            json!({
                "apiVersion": "metrics.k8s.io/v1beta1",
                "kind": "PodMetrics",
                "metadata": {},
                "timestamp": null,
                "window": "",
                "containers": [{ "name": "web", "usage": { "cpu": "1m", "memory": "2Mi" } }],
            })
        );
    }

    #[test]
    fn missing_parts_cost_no_list() {
        for json in [
            json!({}),
            json!({ "metadata": null, "timestamp": null, "window": null, "containers": null }),
        ] {
            assert_eq!(
                serde_json::from_value::<PodMetrics>(json).unwrap(),
                PodMetrics::default()
            );
        }
    }

    fn container(name: &str, cpu: &str, memory: &str) -> ContainerMetrics {
        ContainerMetrics {
            name: name.to_owned(),
            usage: Usage {
                cpu: Some(Quantity(cpu.to_owned())),
                memory: Some(Quantity(memory.to_owned())),
            },
        }
    }
}
