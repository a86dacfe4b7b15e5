//! `metrics.k8s.io`: what was measured, which part of it an answer has, and what a fault makes of it. An answer has
//! thousands of these, so they are no trees of JSON, and their numbers become text only when they are written.

use std::{fmt, sync::Arc};

use common::selector::Selector as Labels;
use serde::{Serialize, Serializer, ser::SerializeStruct as _};

use super::{
    faults::{Effect, lucky},
    store::Object,
};

/// What a metrics provider answers: everything that is measured now.
pub type MetricsProvider = Arc<dyn Fn() -> Vec<Measured> + Send + Sync>;

/// The usage of a pod or a node, as metrics-server tells it; without `apiVersion` and `kind`, as in a list.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Of what.
    pub object: Arc<Object>,
    /// When it was asked for.
    pub asked: Arc<str>,
    /// The end of the window.
    pub timestamp: Arc<str>,
    /// How long was measured, as Go prints it.
    pub window: Arc<str>,
    /// How much.
    pub used: Used,
}

/// What is used by whom.
#[derive(Clone, Debug)]
pub enum Used {
    /// Of a pod.
    Containers(Vec<Container>),
    /// Of a node.
    Usage(Usage),
}

/// The usage of one container.
#[derive(Clone, Debug, Serialize)]
pub struct Container {
    /// Its name.
    #[serde(serialize_with = "text")]
    pub name: Arc<str>,
    /// How much.
    pub usage: Usage,
}

fn text<S: Serializer>(text: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(text)
}

/// Both resources that are measured.
#[derive(Clone, Debug, Serialize)]
pub struct Usage {
    /// Cores.
    pub cpu: Amount,
    /// Bytes.
    pub memory: Amount,
}

/// How much of a resource.
#[derive(Clone, Debug)]
pub enum Amount {
    /// Of units that have a suffix.
    Of(u64, &'static str),
    /// What somebody said, who may have lied.
    Told(Arc<str>),
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(0, _) => f.write_str("0"),
            Self::Of(count, unit) => write!(f, "{count}{unit}"),
            Self::Told(text) => f.write_str(text),
        }
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl Serialize for Measured {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut to = to.serialize_struct("Measured", 4)?;
        to.serialize_field("metadata", &Metadata(self))?;
        to.serialize_field("timestamp", &*self.timestamp)?;
        to.serialize_field("window", &*self.window)?;
        match &self.used {
            Used::Containers(containers) => to.serialize_field("containers", containers)?,
            Used::Usage(usage) => to.serialize_field("usage", usage)?,
        }
        to.end()
    }
}

/// The part of an object's metadata that metrics repeat.
struct Metadata<'m>(&'m Measured);

impl Serialize for Metadata<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Measured { object, asked, .. } = self.0;
        let mut to = to.serialize_struct("Metadata", 4)?;
        to.serialize_field("name", &*object.key.name)?;
        if !object.key.namespace.is_empty() {
            to.serialize_field("namespace", &*object.key.namespace)?;
        }
        to.serialize_field("creationTimestamp", &**asked)?;
        if !object.labels.is_empty() {
            to.serialize_field("labels", &AsMap(&object.labels))?;
        }
        to.end()
    }
}

struct AsMap<'m>(&'m [(Box<str>, Box<str>)]);

impl Serialize for AsMap<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// What of all that is measured an answer has.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) namespace: Option<String>,
    pub(super) labels: Labels,
    /// What faults do to it.
    pub(super) effects: Vec<Effect>,
}

impl Asked {
    /// What is answered about one, if it is asked for and does not fall into a gap.
    pub(super) fn answer(&self, mut measured: Measured) -> Option<Measured> {
        let object = &measured.object;
        let draw = object.key.name.bytes().fold(0_u64, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        let is_lost = self
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::MetricsGap { part } if lucky(draw, *part)));
        let is_asked_for = self
            .namespace
            .as_ref()
            .is_none_or(|asked| **asked == *object.key.namespace)
            && self.labels.matches(|name| object.label(name));
        if is_lost || !is_asked_for {
            return None;
        }
        for effect in &self.effects {
            measured.lie(effect);
        }
        Some(measured)
    }
}

impl Measured {
    fn lie(&mut self, effect: &Effect) {
        let Effect::MetricsLie {
            cpu,
            memory,
            timestamp,
        } = effect
        else {
            return;
        };
        if let Some(timestamp) = timestamp {
            self.timestamp = timestamp.as_str().into();
        }
        let Used::Containers(containers) = &mut self.used else {
            return;
        };
        for Container { usage, .. } in containers {
            if let Some(cpu) = cpu {
                usage.cpu = Amount::Told(cpu.as_str().into());
            }
            if let Some(memory) = memory {
                usage.memory = Amount::Told(memory.as_str().into());
            }
        }
    }
}
