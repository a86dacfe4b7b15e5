//! All three daemons at work on real usage, as an operator runs them.

mod gate;
mod together;
mod usage;

use anyhow::Result;
use common::gates::{Gate, Gates};
use serde_json::Value;

use super::super::{Scenario, World};
use super::{
    recommender::Recommender,
    updater::{self, Updater, admission::Admission},
};

pub(super) fn all() -> Vec<Scenario> {
    [usage::all(), gate::all(), together::all()].concat()
}

/// Flags by which a history of seconds does what one of days does: what is new counts, and the least that is recommended
/// does not hide it.
const SHORT: [&str; 5] = [
    "--cpu-histogram-decay-half-life=10s",
    "--memory-histogram-decay-half-life=10s",
    "--memory-aggregation-interval=15s",
    "--pod-recommendation-min-cpu-millicores=4",
    "--pod-recommendation-min-memory-mb=8",
];
/// The same for the updater: pods are old after seconds.
const YOUNG: [&str; 1] = ["--in-recommendation-bounds-eviction-lifetime-threshold=10s"];

/// The three, in the scenario's namespace, with the same gates.
struct Daemons {
    recommender: Recommender,
    updater: Updater,
    admission: Admission,
}

impl Daemons {
    /// Starts them, with short histories.
    async fn start(world: &World, gates: &[Gate]) -> Result<Self> {
        updater::fresh_lease(world).await?;
        let admission = Admission::start_as(world, |config| config.pods.gates = set(gates)).await?;
        let flag = flag(gates);
        let recommender = Recommender::start(world, &[&SHORT[..], &[&flag]].concat()).await?;
        let updater = Updater::start(world, &[&YOUNG[..], &[&flag]].concat()).await?;
        Ok(Self {
            recommender,
            updater,
            admission,
        })
    }

    async fn stop(self, world: &World) -> Result<()> {
        let Self {
            recommender,
            updater,
            admission,
        } = self;
        let stopped = updater.stop().await.and(recommender.stop().await);
        stopped.and(admission.stop(world).await)
    }
}

fn set(gates: &[Gate]) -> Gates {
    let on = |all: Gates, gate: &Gate| all.with(*gate, true);
    gates.iter().fold(Gates::default(), on)
}

fn flag(gates: &[Gate]) -> String {
    let on: Vec<_> = gates.iter().map(|gate| format!("{}=true", gate.name())).collect();
    format!("--feature-gates={}", on.join(","))
}

/// What a container of a pod really has by now, by the kubelet's word: thousandths of a core, and bytes.
fn requests(pod: &Value, name: &str) -> Option<(i64, i64)> {
    let lists = ["containerStatuses", "initContainerStatuses"];
    let mut all = lists
        .iter()
        .filter_map(|list| pod["status"][list].as_array())
        .flatten();
    let requests = &all.find(|status| status["name"] == name)?["resources"]["requests"];
    let amount = |resource: &str| {
        requests[resource]
            .as_str()?
            .parse::<common::quantity::Quantity>()
            .ok()
    };
    Some((
        common::quantity::MilliCpu::from_quantity(&amount("cpu")?).0,
        common::quantity::Bytes::from_quantity(&amount("memory")?).0,
    ))
}
