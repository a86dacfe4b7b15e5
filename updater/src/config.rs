//! What an updater is to do, as a value.

use std::{ffi::OsString, time::Duration};

use anyhow::Result;
use chrono::{DateTime, TimeDelta, Utc};
use common::{
    api::k8s::Lease,
    daemon::{Flags as _, Namespaces, pflag},
    kube::{lease::LeaseSettings, limit::RateLimit},
    sidecarset::Mode,
    time,
};

use crate::{Args, settings::Settings};

/// What the updater is to do.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whom to serve.
    pub namespaces: Namespaces,
    /// The period of the loop, and how long it may take.
    pub interval: Duration,
    /// The lease to hold while working, if there may be several.
    pub leader_election: Option<LeaseSettings>,
    /// Where the admission component shows that it works, if that is asked for.
    pub admission_status: Option<AdmissionStatus>,
    /// How fast pods are evicted, and how fast resized; none for as fast as can be.
    pub rate_limit: Option<RateLimit>,
    /// What decisions depend on.
    pub decisions: Settings,
    /// What part SidecarSets play.
    pub sidecarsets: Mode,
    /// Where their revisions are kept.
    pub sidecarset_revisions: String,
}

impl Config {
    /// What a command line means, without the program's name: for an updater inside another process.
    ///
    /// # Errors
    /// When the flags cannot be read, or contradict each other.
    pub fn from_flags<'f>(flags: impl IntoIterator<Item = &'f str>) -> Result<Self> {
        let program = std::iter::once(Args::NAME).chain(flags);
        let args: Args = pflag::try_parse(program.map(OsString::from))?;
        Ok(args.config()?)
    }
}

/// The lease by which the admission component shows that it works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionStatus {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// How long it is fresh.
    pub timeout: TimeDelta,
}

impl Default for AdmissionStatus {
    fn default() -> Self {
        Self {
            namespace: "kube-system".to_owned(),
            name: "vpa-admission-controller".to_owned(),
            timeout: TimeDelta::minutes(1),
        }
    }
}

/// When the admission component last showed that it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastShown {
    created: Option<DateTime<Utc>>,
    renewed: Option<DateTime<Utc>>,
}

impl From<&Lease> for LastShown {
    fn from(lease: &Lease) -> Self {
        let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
        Self {
            created: lease.metadata.creation_timestamp.as_ref().map(time::from_k8s),
            renewed: renewed.map(time::from_k8s_micro),
        }
    }
}

impl LastShown {
    /// Whether that is not too long ago: the creation counts like a renewal (`spec/vpa.md` 3.2).
    #[must_use]
    pub fn is_fresh(&self, timeout: TimeDelta, now: DateTime<Utc>) -> bool {
        let counts = |at: DateTime<Utc>| now.signed_duration_since(at) < timeout;
        [self.created, self.renewed].into_iter().flatten().any(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::noon;
    use serde_json::json;

    #[test]
    fn a_lease_is_fresh_from_its_creation_or_renewal_on() {
        let at = |minutes: i64| (noon() + TimeDelta::minutes(minutes)).to_rfc3339();
        for (created, renewed, expected) in [
            (-10, None, false),
            (-10, Some(-2), false),
            (-10, Some(-1), false),
            (-10, Some(0), true),
            (0, None, true),
            (0, Some(-5), true),
            // Clocks differ.
            (-10, Some(3), true),
        ] {
            let lease: Lease = serde_json::from_value(json!({
                "metadata": {"creationTimestamp": at(created)}, "spec": {"renewTime": renewed.map(at)},
            }))
            .unwrap();
            let shown = LastShown::from(&lease);
            assert_eq!(
                shown.is_fresh(TimeDelta::minutes(1), noon()),
                expected,
                "{created} {renewed:?}"
            );
        }
    }
}
