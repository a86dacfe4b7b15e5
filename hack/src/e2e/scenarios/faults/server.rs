//! The API server goes away and comes back, refuses, forgets watches and answers late, and clocks jump, while all three
//! daemons are at work.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use chrono::TimeDelta;
use common::api::{k8s::Deployment, vpa::VerticalPodAutoscaler};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};

use super::super::super::{Look, Need, Running, Scenario, World};
use super::super::{
    install_crds,
    recommender::{GATE_ON, Recommender, checkpoint, recommended, watch_over},
    updater::{
        Updater, admission::Admission, deployment, fresh_lease, pods, ready, recommend, restarts, template,
        uids, until_requests, vpa,
    },
    workload,
};
use super::{error, two_vpas};
use crate::sandbox::{Effect, Fault, Faults};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "daemons-survive-the-api-server",
            about: "while it is gone, refuses by 429 or 500, conflicts, breaks connections and drops watches, and while clocks \
                    jump, no pod is evicted, each is resized once for each recommendation, and samples go on",
            needs: &[Need::Node, Need::LocalWebhooks, Need::Faults, Need::VirtualTime],
            run: |world| survive(world).boxed_local(),
        },
        Scenario {
            name: "updater-watches-nothing",
            about: "an updater that last saw a pod in the midst of a resize and hears no more of it does not evict it, hours \
                    later, for a resize that was done long ago",
            needs: &[Need::Node, Need::Faults, Need::VirtualTime],
            run: |world| watches_nothing(world).boxed_local(),
        },
        Scenario {
            name: "two-updaters-at-once",
            about: "two updaters that both believe to lead resize each pod once",
            needs: &[Need::Node],
            run: |world| two(world).boxed_local(),
        },
        Scenario {
            name: "many-vpas-at-once",
            about: "500 VPAs that are created at once all get their status, and when their namespace is deleted nobody else \
                    goes with it",
            needs: &[Need::Node, Need::Faults],
            run: |world| many(world).boxed_local(),
        },
    ]
}

async fn survive(world: &World) -> Result<()> {
    install_crds(world).await?;
    fresh_lease(world).await?;
    workload::deploy(world, 3).await?;
    two_vpas(world).await?;
    let before = ready(world, "web", 3).await?;
    let admission = Admission::start(world, true).await?;
    let recommender = Recommender::start(world, &[GATE_ON]).await?;
    let updater = Updater::start(world, &[GATE_ON]).await?;
    let outcome = storms(world).await;
    let panics = updater.metric("outrigger_updater_panics_total").await?;
    updater.stop().await?;
    recommender.stop().await?;
    admission.stop(world).await?;
    let rounds = outcome?;
    ensure!(panics < 0.5, "the updater panicked {panics} times");
    let after = pods(world, "web").await?;
    ensure!(uids(&before) == uids(&after), "some pod is another one");
    ensure!(restarts(&after) == 0, "some container was restarted");
    for (name, pod) in &after {
        let generation = &pod["metadata"]["generation"];
        ensure!(
            *generation == 1 + rounds,
            "{name} was resized for {rounds} recommendations up to generation {generation}"
        );
    }
    Ok(())
}

/// What happens to whoever asks, and whether all watches end first.
fn disasters() -> Vec<(&'static str, bool, Vec<Fault>)> {
    let some = |effect: Effect, probability: f64| Fault::new(effect).with_probability(probability);
    let watches = |effect: Effect| Fault::new(effect).verbs(&["watch"]).times(20);
    vec![
        ("it is gone", true, vec![Fault::new(Effect::Reset)]),
        ("429", false, vec![some(error(429, Some(1)), 0.8)]),
        ("500", false, vec![some(error(500, None), 0.5)]),
        (
            "409",
            false,
            vec![some(error(409, None), 0.7).verbs(&["patch", "update", "create"])],
        ),
        ("broken connections", false, vec![some(Effect::Reset, 0.3)]),
        (
            "watches that end",
            true,
            vec![watches(Effect::DropWatch { after_events: 0 })],
        ),
        (
            "watches that expire",
            true,
            vec![watches(Effect::ExpireWatch { after_events: 0 })],
        ),
        (
            "late",
            false,
            vec![Fault::new(Effect::Latency { milliseconds: 20 })],
        ),
    ]
}

async fn storms(world: &World) -> Result<usize> {
    let faults: &Faults = world.faults()?;
    let mut round = 0;
    for (what, cut, rules) in disasters() {
        round += 1;
        let next = recommend_next(world, round).await?;
        for rule in rules {
            faults.add(rule);
        }
        if cut {
            faults.cut_watches();
        }
        world.pass(Duration::from_secs(60)).await?;
        faults.clear();
        recovered(world, next).await.with_context(|| what.to_owned())?;
    }
    let clock = world.time()?;
    for hours in [1, -1] {
        round += 1;
        let next = recommend_next(world, round).await?;
        clock.jump(clock.now() + TimeDelta::hours(hours));
        recovered(world, next)
            .await
            .with_context(|| format!("clocks jump by {hours} h"))?;
    }
    Ok(round)
}

async fn recommend_next(world: &World, round: usize) -> Result<Value> {
    let cpu = format!("{}m", 20 + round);
    recommend(world, "web", &[("app", &cpu, "24Mi")]).await?;
    Ok(json!({"cpu": cpu, "memory": "24Mi"}))
}

/// Waits until the recommendation is carried out and more samples are written.
async fn recovered(world: &World, recommended: Value) -> Result<()> {
    until_requests(world, "web", ("containers", 0), recommended).await?;
    more_samples(world, "counted-app", Duration::from_secs(60)).await
}

/// Waits until a checkpoint has more samples, a while after each look.
async fn more_samples(world: &World, name: &str, pause: Duration) -> Result<()> {
    let samples = async || {
        let written = checkpoint(world, name).await;
        written.map_or(0, |written| written.total_samples_count)
    };
    let before = samples().await;
    world
        .until("more samples are written", async || {
            world.pass(pause).await?;
            let now = samples().await;
            Ok(if now > before {
                Look::Done(())
            } else {
                Look::NotYet(format!("{now}, as before"))
            })
        })
        .await
}

async fn watches_nothing(world: &World) -> Result<()> {
    install_crds(world).await?;
    fresh_lease(world).await?;
    deployment(world, "web", 3).await?;
    let policy = json!({"updateMode": "InPlaceOrRecreate"});
    vpa(world, "Deployment", "web", policy).await?;
    let before = ready(world, "web", 3).await?;
    let updater = Updater::start(world, &["--eviction-tolerance=1"]).await?;
    let mut was_seen = false;
    for round in 1..=10 {
        let next = recommend_next(world, round).await?;
        was_seen = deaf_amid_a_resize(world, &updater).await?;
        until_requests(world, "web", ("containers", 0), next).await?;
        if was_seen {
            break;
        }
    }
    updater.stop().await?;
    ensure!(was_seen, "the updater never saw a pod in the midst of a resize");
    ensure!(
        uids(&before) == uids(&pods(world, "web").await?),
        "some pod is another one"
    );
    Ok(())
}

/// Ends the updater's watch of pods for three hours while the kubelet resizes them. Whether the updater had seen that, and
/// so believed it for all this time.
async fn deaf_amid_a_resize(world: &World, updater: &Updater) -> Result<bool> {
    let is_at_it = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions
            .into_iter()
            .any(|condition| condition["type"] == "PodResizeInProgress")
    };
    while !pods(world, "web").await?.values().any(is_at_it) {
        world.pass(Duration::from_millis(100)).await?;
    }
    let faults = world.faults()?;
    faults.add(
        Fault::new(error(500, None))
            .verbs(&["watch", "list"])
            .on(&["pods"]),
    );
    faults.cut_watches();
    updater.loops(world, 2).await?;
    let was_seen = updater.skipped("ResizeInProgress").await? > 0.5;
    world.pass(Duration::from_secs(3 * 3600)).await?;
    faults.clear();
    Ok(was_seen)
}

async fn two(world: &World) -> Result<()> {
    install_crds(world).await?;
    world
        .create_object::<Deployment>(json!({
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 6, "selector": {"matchLabels": {"app": "web"}}, "template": template(world, "web", true),
            },
        }))
        .await?;
    vpa(
        world,
        "Deployment",
        "web",
        json!({"updateMode": "InPlaceOrRecreate"}),
    )
    .await?;
    let before = ready(world, "web", 6).await?;
    let updaters = [
        Updater::start(world, &["--eviction-tolerance=1"]).await?,
        Updater::start(world, &["--eviction-tolerance=1"]).await?,
    ];
    for (cpu, generation) in [("30m", 2), ("20m", 3)] {
        recommend(world, "web", &[("app", cpu, "24Mi")]).await?;
        let requests = json!({"cpu": cpu, "memory": "24Mi"});
        until_requests(world, "web", ("containers", 0), requests).await?;
        for updater in &updaters {
            updater.loops(world, 2).await?;
        }
        let after = pods(world, "web").await?;
        ensure!(uids(&before) == uids(&after), "some pod is another one");
        for (name, pod) in &after {
            let now = &pod["metadata"]["generation"];
            ensure!(*now == generation, "{name} was resized up to generation {now}");
        }
    }
    for updater in updaters {
        updater.stop().await?;
    }
    Ok(())
}

const MANY: usize = 500;

async fn many(world: &World) -> Result<()> {
    install_crds(world).await?;
    workload::deploy(world, 2).await?;
    watch_over(world, "apps/v1", "Deployment", "web").await?;
    // For all namespaces, so that those that go are theirs too.
    let recommender =
        recommender::Config::from_flags(["--recommender-interval=5s", "--checkpoint-max-age=10s"])?;
    let recommender = Running::start(world, |context| recommender::run(recommender, context));
    let updater = updater::Config::from_flags(["--updater-interval=5s"])?;
    let updater = Running::start(world, |context| updater::run(updater, context));
    recommended(world, "web", &["app"]).await?;

    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let crowd = format!("{}-crowd", world.namespace);
    let namespace = serde_json::from_value(json!({"metadata": {"name": crowd}}))?;
    namespaces.create(&PostParams::default(), &namespace).await?;
    let vpas: Api<VerticalPodAutoscaler> = Api::namespaced(world.client.clone(), &crowd);
    let made = stream::iter(0..MANY).map(|number| {
        let vpas = vpas.clone();
        async move {
            let target =
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": format!("web-{number}")});
            let vpa = serde_json::from_value(json!({
                "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
                "metadata": {"name": format!("vpa-{number}")}, "spec": {"targetRef": target},
            }))?;
            vpas.create(&PostParams::default(), &vpa).await?;
            anyhow::Ok(())
        }
    });
    made.buffer_unordered(50).try_collect::<Vec<_>>().await?;
    world
        .until("all have a status", async || {
            let all = vpas.list(&ListParams::default()).await?;
            let told = all.iter().filter(|vpa| vpa.status.is_some()).count();
            Ok(if told == MANY {
                Look::Done(())
            } else {
                Look::NotYet(format!("{told} of {} have one", all.items.len()))
            })
        })
        .await?;

    namespaces.delete(&crowd, &DeleteParams::background()).await?;
    world
        .until("they are gone", async || {
            let left = vpas.list(&ListParams::default()).await?.items.len();
            Ok(if left == 0 {
                Look::Done(())
            } else {
                Look::NotYet(format!("{left} are left"))
            })
        })
        .await?;
    more_samples(world, "web-app", Duration::from_secs(5)).await?;
    updater.stop().await?;
    recommender.stop().await
}
