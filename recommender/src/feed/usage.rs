//! The list of PodMetrics, read pod by pod while the answer comes in: neither the list nor its text nor a copy of its names
//! is ever held (`spec/stack.md` 3.4).

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use common::quantity::{Bytes, MilliCpu, Quantity};
use serde::Deserialize;

use super::items::{Items, NoList};

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

/// Reads a list that comes in chunks, and tells of every container in it. What a pod's metrics lack or say in a way that
/// nobody understands costs that sample and no more.
#[derive(Debug, Default)]
pub(crate) struct Reader(Items);

/// Why the usage of pods cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UsageError {
    #[error(transparent)]
    List(#[from] NoList),
    #[error("cannot read the metrics of a pod: {0}")]
    Pod(#[from] serde_json::Error),
}

impl Reader {
    /// Takes the next chunk.
    ///
    /// # Errors
    /// When this is no list of PodMetrics.
    pub(crate) fn take(&mut self, chunk: &[u8], mut tell: impl FnMut(Sample<'_>)) -> Result<(), UsageError> {
        self.0.take(chunk, |item| {
            serde_json::from_slice::<Pod<'_>>(item)?.tell(&mut tell);
            Ok(())
        })
    }

    /// There are no more chunks.
    ///
    /// # Errors
    /// When this was no list, or not all of one.
    pub(crate) fn end(&self) -> Result<(), UsageError> {
        Ok(self.0.end()?)
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
        let mut reader = Reader::default();
        let taken = reader.take(text.as_bytes(), |sample| {
            told.push(format!(
                "{}/{}/{} {} {:?} {:?}",
                sample.namespace,
                sample.pod,
                sample.container,
                sample.time.timestamp(),
                sample.cpu.map(|cpu| cpu.0),
                sample.memory.map(|memory| memory.0)
            ));
        });
        taken
            .and_then(|()| reader.end())
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
            r#"{"items": [{"containers": 1}]}"#,
            r#"{"items": [{}]"#,
            r#"{"kind": "Status", "code": 503}"#,
        ] {
            assert!(told(text).is_err(), "{text}");
        }
    }
}
