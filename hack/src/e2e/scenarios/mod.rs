//! The scenarios, by subject. Each holds on the sandbox and on a real cluster alike: that is what the sandbox is
//! measured by.

mod admission;
mod crds;
mod eviction;
mod faults;
mod installed;
mod metrics;
mod recommender;
mod resize;
mod sidecarset_inject;
mod sidecarset_keep;
mod sidecarset_partial;
mod sidecarset_register;
mod sidecarset_size;
mod time;
mod updater;
mod usage;
mod webhook;
mod whole;
mod workload;

pub use crds::install as install_crds;
use serde_json::{Value, json};

use tokio::sync::RwLock;

use super::{Scenario, World};

/// SidecarSets have no namespace, so a scenario that registers the component for all of them, as it registers itself, has
/// them for itself.
static SETS_ARE_SHARED: RwLock<()> = RwLock::const_new(());

/// Every scenario there is.
#[must_use]
pub fn all() -> Vec<Scenario> {
    [
        crds::all(),
        workload::all(),
        resize::all(),
        eviction::all(),
        metrics::all(),
        recommender::all(),
        updater::all(),
        webhook::all(),
        usage::all(),
        faults::all(),
        time::all(),
        admission::all(),
        sidecarset_inject::all(),
        sidecarset_partial::all(),
        sidecarset_keep::all(),
        sidecarset_register::all(),
        sidecarset_size::all(),
        installed::all(),
        whole::all(),
    ]
    .concat()
}

/// A pod as a mesh makes it, small enough for twenty of them on a laptop: an ordinary init container that ends, a
/// native sidecar, and the application.
fn pod(world: &World, name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": pod_spec(world),
    })
}

fn pod_spec(world: &World) -> Value {
    json!({
        "terminationGracePeriodSeconds": 1,
        "initContainers": [
            {"name": "setup", "image": world.image, "args": ["exit", "0"],
             "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}},
            {"name": "proxy", "image": world.image, "args": ["load", "--cpu", "2m", "--memory", "4Mi", "--listen", ":8081"],
             "restartPolicy": "Always",
             "resources": {"requests": {"cpu": "5m", "memory": "16Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}}},
        ],
        "containers": [
            {"name": "app", "image": world.image, "args": ["load", "--cpu", "5m", "--memory", "8Mi", "--listen", ":8080"],
             "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}}},
        ],
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::e2e::On;

    const PAGE: &str = include_str!("../../../../docs/scenarios.md");

    /// Where a scenario runs, in the page's words.
    fn place(scenario: &Scenario) -> &'static str {
        match [On::Cluster, On::Sandbox].map(|on| on.lacks(scenario.needs)) {
            [None, None] => "cluster, sandbox",
            [None, Some(_)] => "cluster",
            [Some(_), None] => "sandbox",
            [Some(_), Some(_)] => "nowhere",
        }
    }

    #[test]
    fn the_page_lists_every_scenario_and_where_it_runs() {
        let rows = all().into_iter().map(|scenario| {
            let Scenario { name, about, .. } = scenario;
            format!("| `{name}` | {about} | {} |\n", place(&scenario))
        });
        let table: String = rows.collect();
        assert!(
            PAGE.ends_with(&format!("|---|---|---|\n{table}")),
            "docs/scenarios.md should end with\n{table}"
        );
    }

    #[test]
    fn the_page_names_no_scenario_that_is_not_there() {
        let names: BTreeSet<_> = all().iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), all().len(), "two scenarios have one name");
        let rows = PAGE.lines().filter(|line| line.starts_with("| "));
        let named = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
        let unknown: Vec<_> = named.filter(|name| !names.contains(name)).collect();
        assert_eq!(unknown, [""; 0]);
    }
}
