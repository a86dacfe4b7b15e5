//! Two updaters as processes, of which one leads and is killed in the middle of its work.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use common::api::k8s::Lease;
use futures::FutureExt as _;
use serde_json::{Value, json};

use super::{
    super::super::{Look, Need, Scenario, World},
    super::install_crds,
    deployment, events, own_flags, pods, ready, recommend, uids, vpa,
};
use crate::daemon::{Daemon, Process};

const PODS: usize = 6;

pub(super) fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "updater-leader-killed",
        about: "of two updaters one works; when it is killed in the middle of a loop the other goes on, and no pod is acted on twice",
        needs: &[Need::Node],
        run: |world| killed(world).boxed_local(),
    }]
}

async fn killed(world: &World) -> Result<()> {
    install_crds(world).await?;
    deployment(world, "web", PODS).await?;
    vpa(
        world,
        "Deployment",
        "web",
        json!({"updateMode": "InPlaceOrRecreate"}),
    )
    .await?;
    recommend(world, "web", &[("app", "30m", "24Mi")]).await?;
    let before = ready(world, "web", PODS).await?;
    let own = own_flags(world);
    let lease = format!("--leader-elect-resource-namespace={}", world.namespace);
    let mut flags: Vec<&str> = own.iter().map(String::as_str).collect();
    // So many pods a second that there is a middle, and a deadline that a leader keeps, on a busy machine too.
    flags.extend(if world.time().is_ok() {
        [
            "--leader-elect-lease-duration=10s",
            "--leader-elect-renew-deadline=8s",
            "--eviction-rate-limit=1",
        ]
    } else {
        [
            "--leader-elect-lease-duration=40s",
            "--leader-elect-renew-deadline=30s",
            "--eviction-rate-limit=0.2",
        ]
    });
    flags.extend([
        "--leader-elect",
        "--leader-elect-retry-period=500ms",
        "--eviction-tolerance=1",
        lease.as_str(),
    ]);
    let mut updaters = BTreeMap::new();
    for _ in 0..2 {
        let process = Process::start(Daemon::Updater, &world.kubeconfig, &flags).await?;
        updaters.insert(process.pid().context("it runs")?, process);
    }
    let resized = async || {
        let pods = pods(world, "web").await?;
        anyhow::Ok(pods.values().filter(|pod| is_resized(pod)).count())
    };
    world
        .until("some pods are resized and others are not", async || {
            let done = resized().await?;
            Ok(if done >= 2 {
                Look::Done(())
            } else {
                Look::NotYet(format!("{done} are resized"))
            })
        })
        .await?;
    let leader = leader(&mut updaters).await?;
    leader.kill().await?;
    let done = resized().await?;
    ensure!(done < PODS, "all were resized before the leader was killed");
    world
        .until("the other has resized the rest", async || {
            let done = resized().await?;
            Ok(if done == PODS {
                Look::Done(())
            } else {
                Look::NotYet(format!("{done} are resized"))
            })
        })
        .await?;
    let after = pods(world, "web").await?;
    ensure!(uids(&before) == uids(&after), "some pod is another one");
    for (name, pod) in &after {
        ensure!(
            pod["metadata"]["generation"] == 2,
            "{name} was changed more than once: generation {}",
            pod["metadata"]["generation"]
        );
    }
    let mut told = events(world, "InPlaceResizedByVPA").await?;
    told.sort();
    let count = told.len();
    told.dedup();
    ensure!(told.len() == count, "told twice of some of {told:?}");
    let transitions = world
        .api::<Lease>()
        .get("vpa-updater")
        .await?
        .spec
        .and_then(|spec| spec.lease_transitions);
    ensure!(
        transitions >= Some(1),
        "the lease was not taken over: {transitions:?}"
    );
    for (_, process) in updaters {
        process.stop().await?;
    }
    Ok(())
}

/// Takes out the one that leads.
async fn leader(updaters: &mut BTreeMap<u32, Process>) -> Result<Process> {
    for (pid, process) in updaters.iter() {
        let (_, metrics) = process.get("/metrics").await?;
        let leads = metrics
            .lines()
            .any(|line| line.starts_with("outrigger_leader{") && line.ends_with(" 1"));
        if leads {
            let pid = *pid;
            return updaters.remove(&pid).context("it was there");
        }
    }
    anyhow::bail!("nobody leads")
}

fn is_resized(pod: &Value) -> bool {
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "30m"
}
