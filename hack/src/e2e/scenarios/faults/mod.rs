//! What breaks on every cluster one day: watches that end, expire or fall silent, servers that refuse, metrics that are
//! missing, clocks that jump. What we run gets over it.

mod hostile;
mod kill;
mod metrics;
mod outage;
mod processes;
mod server;
mod webhook;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use chrono::TimeDelta;
use common::{
    api::vpa::VerticalPodAutoscaler,
    daemon::{Context, Readiness, Shutdown},
    kube::watch::{Change, Relist, Watch, WatchMetrics},
};
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    runtime::watcher,
};
use serde_json::json;

use super::super::{Look, Need, Running, Scenario, World};
use super::{
    crds, time,
    updater::{change_vpa, vpa},
    workload,
};
use crate::sandbox::{Effect, Fault};

pub(super) fn all() -> Vec<Scenario> {
    [
        own(),
        server::all(),
        outage::all(),
        metrics::all(),
        webhook::all(),
        kill::all(),
        hostile::all(),
    ]
    .concat()
}

fn own() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "watch-survives-faults",
            about: "an index that a watch drives ends up with what the server has, whatever happened to the watch",
            needs: &[Need::NoControllers, Need::Faults],
            run: |world| {
                let effects = vec![
                    Effect::DropWatch { after_events: 1 },
                    Effect::ExpireWatch { after_events: 1 },
                    Effect::Reset,
                    error(410, None),
                    error(429, Some(1)),
                    error(500, None),
                ];
                watch(world, effects).boxed_local()
            },
        },
        Scenario {
            name: "watch-notices-silence",
            about: "a watch that says nothing more is given up for a new one",
            needs: &[Need::NoControllers, Need::Faults],
            run: |world| watch(world, vec![Effect::StallWatch { after_events: 1 }]).boxed_local(),
        },
        Scenario {
            name: "recommender-survives-faults",
            about: "recommendations and checkpoints come though lists, writes and metrics fail, and though the clock jumps",
            needs: &[Need::Node, Need::Faults, Need::VirtualTime],
            run: |world| recommender(world).boxed_local(),
        },
    ]
}

/// A VPA whose recommendations are the scenario's own, for the updater to carry out, and one that the recommender writes.
async fn two_vpas(world: &World) -> Result<()> {
    vpa(
        world,
        "Deployment",
        "web",
        json!({"updateMode": "InPlaceOrRecreate"}),
    )
    .await?;
    change_vpa(world, "web", json!({"spec": {"recommenders": [{"name": "e2e"}]}})).await?;
    world
        .create_object::<VerticalPodAutoscaler>(json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": {"name": "counted"},
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "updatePolicy": {"updateMode": "Off"},
            },
        }))
        .await?;
    Ok(())
}

const fn error(code: u16, retry_after_seconds: Option<u32>) -> Effect {
    Effect::Error {
        code,
        retry_after_seconds,
    }
}

async fn watch(world: &World, effects: Vec<Effect>) -> Result<()> {
    let shutdown = Shutdown::new();
    let part = Readiness::new(shutdown.clone()).part("watch");
    let mut context = Context::new(world.client.clone(), world.clock(), shutdown.clone());
    let metrics = WatchMetrics::register(&mut context.registry);
    let (watch, mut synced, relist) = Watch::new("configmaps", part, &metrics);
    let index: Index = Arc::default();
    // A watch that fell silent is given up some seconds after the server should have ended it.
    let config = watcher::Config::default().timeout(1);
    let task = tokio::spawn({
        let (index, shutdown, namespace) = (index.clone(), shutdown.clone(), world.namespace.clone());
        let api = world.api::<ConfigMap>();
        async move {
            watch
                .run(api, config, shutdown, |change| tell(&index, &namespace, change))
                .await;
        }
    });
    synced.wait().await;
    for (round, effect) in effects.into_iter().enumerate() {
        let what = format!("{effect:?}");
        disturbed(world, &index, &relist, effect, round)
            .await
            .context(what)?;
    }
    shutdown.request();
    Ok(task.await?)
}

/// What a watch has told of: the round in which each object was last written.
type Index = Arc<Mutex<BTreeMap<String, String>>>;

fn tell(index: &Index, namespace: &str, change: Change<'_, ConfigMap>) {
    let mut index = index.lock().unwrap_or_else(PoisonError::into_inner);
    match change {
        Change::Applied(map) => drop(index.insert(map.name_any(), round_of(&map))),
        Change::Deleted(map) => drop(index.remove(&map.name_any())),
        Change::Relisted(seen) => index.retain(|name, _| seen.contains(namespace, name)),
    }
}

fn round_of(map: &ConfigMap) -> String {
    let data = map.data.as_ref().and_then(|data| data.get("round"));
    data.cloned().unwrap_or_default()
}

/// Lets the watch start anew and suffer, while objects come, change and go.
async fn disturbed(
    world: &World,
    index: &Index,
    relist: &Relist,
    effect: Effect,
    round: usize,
) -> Result<()> {
    let maps = world.api::<ConfigMap>();
    let write = async |name: &str| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"round": round.to_string()}});
        let apply = PatchParams::apply("outrigger-e2e").force();
        maps.patch(name, &apply, &Patch::Apply(&map)).await
    };
    let fault = world
        .faults()?
        .add(Fault::new(effect).verbs(&["watch"]).on(&["configmaps"]).times(1));
    relist.request();
    write("goes").await?;
    write("changes").await?;
    write(&format!("comes-{round}")).await?;
    maps.delete("goes", &DeleteParams::default()).await?;
    let there: BTreeMap<_, _> = maps
        .list(&ListParams::default())
        .await?
        .iter()
        .map(|map| (map.name_any(), round_of(map)))
        .collect();
    world
        .until("the fault has struck and the index is right", async || {
            let struck = world.faults()?.struck(fault);
            let index = index.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(if struck == 1 && *index == there {
                Look::Done(())
            } else {
                Look::NotYet(format!("struck {struck} times; {index:?}, not {there:?}"))
            })
        })
        .await
}

async fn recommender(world: &World) -> Result<()> {
    crds::install(world).await?;
    workload::deploy(world, 2).await?;
    time::autoscale(world).await?;
    let (vpas, checkpoints) = (
        "verticalpodautoscalers.autoscaling.k8s.io",
        "verticalpodautoscalercheckpoints.autoscaling.k8s.io",
    );
    let faults = world.faults()?;
    let all = [
        Fault::new(Effect::Latency { milliseconds: 2 }).times(100),
        Fault::new(error(500, None))
            .verbs(&["list"])
            .on(&[checkpoints])
            .times(1),
        Fault::new(Effect::DropWatch { after_events: 1 })
            .verbs(&["watch"])
            .on(&["pods"])
            .times(1),
        Fault::new(Effect::ExpireWatch { after_events: 0 })
            .verbs(&["watch"])
            .on(&[vpas])
            .times(1),
        Fault::new(error(500, None))
            .verbs(&["list"])
            .on(&["pods.metrics.k8s.io"])
            .times(1),
        Fault::new(error(429, Some(1)))
            .verbs(&["list"])
            .on(&["pods.metrics.k8s.io"])
            .times(1),
        Fault::new(Effect::MetricsGap { part: 1.0 })
            .on(&["pods.metrics.k8s.io"])
            .times(3),
        Fault::new(error(409, None)).verbs(&["patch", "update"]).times(8),
        Fault::new(Effect::Reset)
            .verbs(&["patch"])
            .on(&[&format!("{checkpoints}/status"), checkpoints])
            .times(1),
    ];
    let all = all.map(|fault| faults.add(fault));
    let config = recommender::Config::from_flags(["--recommender-interval=10s", "--checkpoint-max-age=1m"])?;
    let daemon = Running::start(world, |context| recommender::run(config, context));
    let counted = |least: i64| {
        let what = format!("the app's checkpoint has more than {least} samples");
        async move {
            world
                .until(&what, async || {
                    let seen = time::samples(world).await?;
                    Ok(match seen {
                        Some(count) if count > least => Look::Done(count),
                        other => Look::NotYet(format!("{other:?}")),
                    })
                })
                .await
        }
    };
    let before = counted(20).await?;
    for fault in all {
        ensure!(faults.struck(fault) > 0, "fault {fault} has struck nobody");
    }
    // What was measured in the future is not measured once more: the past has to catch up first.
    let clock = world.time()?;
    clock.jump(clock.now() + TimeDelta::hours(1));
    let ahead = counted(before).await?;
    clock.jump(clock.now() - TimeDelta::hours(1));
    world.pass(Duration::from_secs(2 * 3600)).await?;
    counted(ahead).await?;
    daemon.stop().await
}
