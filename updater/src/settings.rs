//! What the updater's decisions depend on besides the cluster: its flags, the gates and the quirks.

use chrono::TimeDelta;
use common::{gates::Gates, quirks::Quirks};

use crate::hopeless::ResizeSupport;

/// The flags that decisions read (`spec/vpa.md` 3.1).
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// A group with fewer live pods is not disrupted, unless its VPA says otherwise.
    pub min_replicas: i64,
    /// The share of a group's pods that may be disrupted in one loop.
    pub eviction_tolerance: f64,
    /// Whether a resize that restarts nothing is outside the disruption budget.
    pub in_place_skip_disruption_budget: bool,
    /// A change within bounds that is smaller than this is not worth acting on.
    pub pod_update_threshold: f64,
    /// A younger pod is not acted on for a change within bounds.
    pub pod_lifetime: TimeDelta,
    /// A container that runs out of memory sooner after its start is acted on at once.
    pub evict_after_oom: TimeDelta,
    /// What the cluster can do in place.
    pub resize_support: ResizeSupport,
    /// The gates.
    pub gates: Gates,
    /// VPA's ways that are in force.
    pub quirks: Quirks,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            min_replicas: 2,
            eviction_tolerance: 0.5,
            in_place_skip_disruption_budget: false,
            pod_update_threshold: 0.1,
            pod_lifetime: TimeDelta::hours(12),
            evict_after_oom: TimeDelta::minutes(10),
            resize_support: ResizeSupport::default(),
            gates: Gates::default(),
            quirks: Quirks::none(),
        }
    }
}
