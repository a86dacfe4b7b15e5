//! The end of a startup boost: when it is over, and what the container goes back to (`spec/vpa.md` 3.7).

use chrono::{DateTime, Utc};
use common::pod::{Pod, Resources};

use crate::vpa::Vpa;

pub(crate) const PREFIX: &str = "vpaCpuStartupBoost/";

/// Where the boost of a container stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Boost<'p> {
    /// It has none.
    None,
    /// Its time is not over.
    Running,
    /// It is over; the annotation holds what the container had before.
    Over(&'p str),
}

/// Whether some container of a pod is boosted, or was and is not set back.
#[must_use]
pub fn is_boosted(pod: &Pod) -> bool {
    annotations(pod).next().is_some()
}

/// The containers of a pod whose boost is over, by name.
pub fn over<'p>(pod: &'p Pod, vpa: &Vpa, now: DateTime<Utc>) -> impl Iterator<Item = &'p str> {
    let ready = ready_since(pod);
    annotations(pod)
        .map(|(container, _)| container)
        .filter(move |container| is_over(ready, vpa, container, now))
}

/// Where the boost of one container stands.
#[must_use]
pub fn boost_of<'p>(pod: &'p Pod, container: &str, vpa: &Vpa, now: DateTime<Utc>) -> Boost<'p> {
    match annotations(pod).find(|(name, _)| *name == container) {
        None => Boost::None,
        Some((_, original)) if is_over(ready_since(pod), vpa, container, now) => Boost::Over(original),
        Some(_) => Boost::Running,
    }
}

/// The annotation of a boosted container.
#[must_use]
pub fn annotation(container: &str) -> String {
    format!("{PREFIX}{container}")
}

/// What the annotation says that a container had; nothing if it cannot be read.
#[must_use]
pub fn original(text: &str) -> Resources {
    serde_json::from_str(text).unwrap_or_default()
}

fn annotations(pod: &Pod) -> impl Iterator<Item = (&str, &str)> {
    let annotations = pod.metadata.annotations.iter().flatten();
    annotations.filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value.as_str())))
}

/// When the pod became ready, if it is; a time that is not said is the beginning of all time.
fn ready_since(pod: &Pod) -> Option<DateTime<Utc>> {
    let mut conditions = pod.status.conditions.iter();
    let ready = conditions.find(|condition| condition.type_ == "Ready")?;
    let since = ready.last_transition_time.unwrap_or(DateTime::<Utc>::MIN_UTC);
    (ready.status == "True").then_some(since)
}

fn is_over(ready: Option<DateTime<Utc>>, vpa: &Vpa, container: &str, now: DateTime<Utc>) -> bool {
    let duration = vpa.sizing.boost_duration(container);
    ready.is_some_and(|ready| duration.is_zero() || now.signed_duration_since(ready) > duration)
}
