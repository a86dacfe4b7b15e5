//! An app under a VPA, a mesh's native sidecar and a sidecar that follows the app by formula: their load rises and falls, and
//! all three go with it, in place.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use common::{
    api::k8s::{Deployment, Pod},
    gates::Gate,
    sidecarset::{record::HASH, sizing},
};
use futures::FutureExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::super::{
    super::{Look, Need, Scenario, World},
    recommender::{GATE_ON, Recommender},
    sidecarset_size::{in_scope, make_set, record},
    updater::{
        Updater, admission::Admission, admitted, change_vpa, events, fresh_lease, pods, restarts, uids, vpa,
    },
};
use super::{Daemons, requests};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "sidecars-together",
            about: "app, native sidecar and formula sidecar grow with their load and shrink with it, in place and without a \
                    restart, with histories of seconds",
            needs: &[Need::Node, Need::LocalWebhooks],
            run: |world| in_scope(world, in_minutes).boxed_local(),
        },
        Scenario {
            name: "sidecars-together-for-days",
            about: "the same with default flags, within days of virtual time",
            needs: &[Need::Node, Need::LocalWebhooks, Need::VirtualTime],
            run: |world| in_scope(world, in_days).boxed_local(),
        },
    ]
}

const MI: i64 = 1 << 20;

/// How much a container asks for at first, may have, and uses when there is little to do and when there is much.
struct Size {
    name: &'static str,
    requests: [&'static str; 2],
    limits: [&'static str; 2],
    quiet: [&'static str; 2],
    busy: [&'static str; 2],
    /// What it asks for at most when it is quiet, and at least when it is busy: thousandths of a core, and bytes.
    little: (i64, i64),
    much: (i64, i64),
}

/// Small enough for a laptop that has other things to do: it may give them a fraction of the CPU that they want, of which up to 10m
/// is recommended as 11m, and more as 23m at least.
const SMALL: [Size; 2] = [
    Size {
        name: "app",
        requests: ["20m", "32Mi"],
        limits: ["400m", "256Mi"],
        quiet: ["2m", "12Mi"],
        busy: ["150m", "80Mi"],
        little: (13, 44 * MI),
        much: (22, 80 * MI),
    },
    Size {
        name: "mesh",
        requests: ["5m", "16Mi"],
        limits: ["400m", "128Mi"],
        quiet: ["1m", "6Mi"],
        busy: ["100m", "40Mi"],
        little: (13, 24 * MI),
        much: (22, 40 * MI),
    },
];

/// Large enough for what is recommended at least by default.
const LARGE: [Size; 2] = [
    Size {
        name: "app",
        requests: ["100m", "256Mi"],
        limits: ["1", "2Gi"],
        quiet: ["30m", "150Mi"],
        busy: ["500m", "900Mi"],
        little: (60, 260 * MI),
        much: (500, 900 * MI),
    },
    Size {
        name: "mesh",
        requests: ["50m", "128Mi"],
        limits: ["1", "1Gi"],
        quiet: ["10m", "60Mi"],
        busy: ["200m", "400Mi"],
        little: (30, 140 * MI),
        much: (200, 400 * MI),
    },
];

async fn in_minutes(world: &World) -> Result<()> {
    let before = prepare(world, &SMALL).await?;
    let daemons = Daemons::start(world, &[Gate::NativeSidecar]).await?;
    let outcome = async {
        let before = deploy(world, before).await?;
        load(world, &SMALL, |size| size.busy).await?;
        until_sized(world, &SMALL, is_much).await?;
        load(world, &SMALL, |size| size.quiet).await?;
        until_sized(world, &SMALL, is_little).await?;
        undisturbed(world, &before).await
    };
    let outcome = outcome.await;
    outcome.and(daemons.stop(world).await)
}

async fn in_days(world: &World) -> Result<()> {
    let before = prepare(world, &LARGE).await?;
    fresh_lease(world).await?;
    let admission = Admission::start(world, true).await?;
    let recommender = Recommender::start_with(world, &[GATE_ON]).await?;
    let updater = Updater::start(world, &[GATE_ON, "--updater-interval=1m"]).await?;
    let before = deploy(world, before).await?;
    load(world, &LARGE, |size| size.quiet).await?;
    world.pass(Duration::from_secs(3600)).await?;
    load(world, &LARGE, |size| size.busy).await?;
    within(world, 6, &LARGE, is_much).await?;
    load(world, &LARGE, |size| size.quiet).await?;
    // Memory counts by the peaks of days, of which each weighs half of the next.
    within(world, 5 * 24, &LARGE, is_little).await?;
    undisturbed(world, &before).await?;
    updater.stop().await?;
    recommender.stop().await?;
    admission.stop(world).await
}

/// The set and the VPA; gives the Deployment that is to come.
async fn prepare(world: &World, sizes: &[Size; 2]) -> Result<Value> {
    let half = json!({"cpu": "cpu*50%", "memory": "memory*50%"});
    let policy = json!({
        "targetContainersMode": "sum", "targetContainersNameRegex": "^app$",
        "resourcesExpr": {"limits": half, "requests": half},
    });
    make_set(world, "follow", false, &policy).await?;
    vpa(
        world,
        "Deployment",
        "web",
        json!({"updateMode": "InPlaceOrRecreate"}),
    )
    .await?;
    let formula_alone = json!([{"containerName": "side", "mode": "Off"}]);
    let policy = json!({"spec": {"resourcePolicy": {"containerPolicies": formula_alone}}});
    change_vpa(world, "web", policy).await?;

    let amounts = |[cpu, memory]: [&str; 2]| json!({"cpu": cpu, "memory": memory});
    let container = |size: &Size, port: u16| {
        let [cpu, memory] = size.quiet;
        json!({
            "name": size.name, "image": world.image,
            "args": ["load", "--cpu", cpu, "--memory", memory, "--listen", format!(":{port}")],
            "resources": {"requests": amounts(size.requests), "limits": amounts(size.limits)},
        })
    };
    let [app, mesh] = sizes;
    let (app, mut mesh) = (container(app, 8080), container(mesh, 8081));
    mesh["restartPolicy"] = json!("Always");
    let side = json!({
        "name": "side", "image": world.image, "args": ["sleep", "24h"], "resources": app["resources"],
    });
    Ok(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {HASH: record(world, "follow")}},
                "spec": {
                    "terminationGracePeriodSeconds": 1, "initContainers": [mesh], "containers": [app, side],
                },
            },
        },
    }))
}

/// Pods as admission leaves them, by uid.
async fn deploy(world: &World, deployment: Value) -> Result<Vec<String>> {
    world.create_object::<Deployment>(deployment).await?;
    world
        .until("the pods remember their formula", async || {
            let pods = admitted(world, "web", 2).await?;
            let forgets = |pod: &Value| pod["metadata"]["annotations"][sizing::ANNOTATION].is_null();
            let strangers: Vec<_> = pods.iter().filter(|(_, pod)| forgets(pod)).collect();
            for (name, _) in &strangers {
                let now = DeleteParams::default().grace_period(0);
                world.api::<Pod>().delete(name, &now).await?;
            }
            Ok(if strangers.is_empty() {
                Look::Done(uids(&pods).into_iter().map(str::to_owned).collect())
            } else {
                Look::NotYet(format!("{} do not", strangers.len()))
            })
        })
        .await
}

async fn load(world: &World, sizes: &[Size; 2], how: impl Fn(&Size) -> [&'static str; 2]) -> Result<()> {
    for size in sizes {
        let [cpu, memory] = how(size);
        world.usage("web", size.name, cpu, memory).await?;
    }
    Ok(())
}

type Amounts = (i64, i64);

fn is_much(size: &Size, has: Amounts) -> bool {
    has.0 >= size.much.0 && has.1 >= size.much.1
}

fn is_little(size: &Size, has: Amounts) -> bool {
    has.0 <= size.little.0 && has.1 <= size.little.1
}

/// Whether every pod is sized so, and its formula sidecar has half of its app; what they have, if not.
async fn sized(
    world: &World,
    sizes: &[Size; 2],
    is_so: fn(&Size, Amounts) -> bool,
) -> Result<Result<(), String>> {
    let pods = pods(world, "web").await?;
    let mut seen = Vec::new();
    let mut done = pods.len() == 2;
    for pod in pods.values() {
        for size in sizes {
            let has = requests(pod, size.name);
            done &= has.is_some_and(|has| is_so(size, has));
            seen.push((size.name, has));
        }
        let halves = requests(pod, "app").zip(requests(pod, "side"));
        done &= halves.is_some_and(|(app, side)| app.0 - 2 * side.0 <= 1 && app.1 - 2 * side.1 <= 1);
        seen.push(("side", requests(pod, "side")));
    }
    Ok(if done { Ok(()) } else { Err(format!("{seen:?}")) })
}

async fn until_sized(world: &World, sizes: &[Size; 2], is_so: fn(&Size, Amounts) -> bool) -> Result<()> {
    world
        .until("all are sized by their load", async || {
            Ok(match sized(world, sizes, is_so).await? {
                Ok(()) => Look::Done(()),
                Err(seen) => Look::NotYet(seen),
            })
        })
        .await
}

/// The same, within so many hours of virtual time.
async fn within(
    world: &World,
    hours: u32,
    sizes: &[Size; 2],
    is_so: fn(&Size, Amounts) -> bool,
) -> Result<()> {
    let mut seen = String::new();
    for _ in 0..hours {
        world.pass(Duration::from_secs(3600)).await?;
        match sized(world, sizes, is_so).await? {
            Ok(()) => return Ok(()),
            Err(instead) => seen = instead,
        }
    }
    anyhow::bail!("not within {hours} hours: all are sized by their load; last seen: {seen}")
}

/// The pods are the same, and nothing in them was started again.
async fn undisturbed(world: &World, before: &[String]) -> Result<()> {
    let after = pods(world, "web").await?;
    ensure!(uids(&after) == before, "some pod is another one");
    ensure!(restarts(&after) == 0, "some container was restarted");
    let evicted = events(world, "EvictedByVPA").await?;
    ensure!(evicted.is_empty(), "evicted: {evicted:?}");
    let resized = events(world, "InPlaceResizedByVPA").await?;
    resized.first().map(drop).context("nobody was told of a resize")
}
