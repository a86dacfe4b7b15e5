//! The list of PodMetrics, read pod by pod from the text of the answer: neither the list nor a copy of its names is ever
//! held (`spec/stack.md` 3.4).

use std::{borrow::Cow, fmt, marker::PhantomData};

use chrono::{DateTime, Utc};
use common::quantity::{Bytes, MilliCpu, Quantity};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// The usage of one container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) pod: &'a str,
    pub(crate) container: &'a str,
    pub(crate) time: DateTime<Utc>,
    pub(crate) cpu: Option<MilliCpu>,
    pub(crate) memory: Option<Bytes>,
}

/// Reads a list and tells of every container in it. What a pod's metrics lack or say in a way that nobody understands
/// costs that sample and no more.
///
/// # Errors
/// When the text is not a list of PodMetrics.
pub(crate) fn read(text: &str, tell: impl FnMut(Sample<'_>)) -> Result<(), serde_json::Error> {
    let mut input = serde_json::Deserializer::from_str(text);
    List(tell).deserialize(&mut input)?;
    input.end()
}

/// The object around the items.
struct List<F>(F);

impl<'de, F: FnMut(Sample<'_>)> DeserializeSeed<'de> for List<F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_map(self)
    }
}

impl<'de, F: FnMut(Sample<'_>)> Visitor<'de> for List<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of PodMetrics")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let mut listed = false;
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if key == "items" {
                map.next_value_seed(Items(&mut self.0, PhantomData))?;
                listed = true;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if listed {
            Ok(())
        } else {
            Err(serde::de::Error::missing_field("items"))
        }
    }
}

struct Items<'f, F>(&'f mut F, PhantomData<F>);

impl<'de, F: FnMut(Sample<'_>)> DeserializeSeed<'de> for Items<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de, F: FnMut(Sample<'_>)> Visitor<'de> for Items<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the metrics of pods")
    }

    /// What Go writes for an empty list.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(pod) = items.next_element::<Pod<'de>>()? {
            pod.tell(self.0);
        }
        Ok(())
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pod<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow)]
    timestamp: Option<Cow<'a, str>>,
    #[serde(borrow)]
    containers: Option<Vec<Container<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    namespace: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Container<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    usage: Usage<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Usage<'a> {
    #[serde(borrow)]
    cpu: Option<Amount<'a>>,
    #[serde(borrow)]
    memory: Option<Amount<'a>>,
}

/// A quantity, which JSON may carry as text or as a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Amount<'a> {
    #[serde(borrow)]
    Text(Cow<'a, str>),
    Number(serde_json::Number),
}

impl Amount<'_> {
    fn quantity(&self) -> Option<Quantity> {
        match self {
            Self::Text(text) => text.parse().ok(),
            Self::Number(number) => number.to_string().parse().ok(),
        }
    }
}

impl Pod<'_> {
    fn tell(&self, tell: &mut impl FnMut(Sample<'_>)) {
        let time = self.timestamp.as_deref().unwrap_or_default();
        let Ok(time) = DateTime::parse_from_rfc3339(time) else {
            return;
        };
        for container in self.containers.iter().flatten() {
            let amount = |amount: &Option<Amount<'_>>| amount.as_ref().and_then(Amount::quantity);
            tell(Sample {
                namespace: &self.metadata.namespace,
                pod: &self.metadata.name,
                container: &container.name,
                time: time.to_utc(),
                cpu: amount(&container.usage.cpu).map(|cpu| MilliCpu::from_quantity(&cpu)),
                memory: amount(&container.usage.memory).map(|memory| Bytes::from_quantity(&memory)),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Result<Vec<String>, String> {
        let mut told = Vec::new();
        read(text, |sample| {
            told.push(format!(
                "{}/{}/{} {} {:?} {:?}",
                sample.namespace,
                sample.pod,
                sample.container,
                sample.time.timestamp(),
                sample.cpu.map(|cpu| cpu.0),
                sample.memory.map(|memory| memory.0)
            ));
        })
        .map(|()| told)
        .map_err(|error| error.to_string())
    }

    #[test]
    fn a_list_is_told_container_by_container() {
        let list = r#"{"kind": "PodMetricsList", "metadata": {}, "items": [
            {"metadata": {"name": "web-0", "namespace": "shop", "labels": {"a\"b": "c"}},
             "timestamp": "2026-03-01T10:10:00Z", "window": "15s", "containers": [
                {"name": "web", "usage": {"cpu": "1234567n", "memory": "20480Ki"}},
                {"name": "pr\u006fxy", "usage": {"cpu": 0, "memory": "nonsense"}}]},
            {"metadata": {"name": "web-1", "namespace": "shop"}, "timestamp": null, "containers": null}]}"#;
        assert_eq!(
            told(list).unwrap(),
            [
                "shop/web-0/web 1772359800 Some(2) Some(20971520)",
                "shop/web-0/proxy 1772359800 Some(0) None",
            ]
        );
        assert_eq!(told(r#"{"items": null}"#).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_is_no_list_is_an_error_and_not_an_empty_list() {
        for text in [
            "",
            "{}",
            "[]",
            r#"{"items": 1}"#,
            r#"{"kind": "Status", "code": 503}"#,
        ] {
            assert!(told(text).is_err(), "{text}");
        }
    }
}
