//! The control plane of a real cluster ends and comes back while all three daemons are at work, each a process of its own.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use common::api::k8s::{Deployment, Lease};
use futures::FutureExt as _;
use http::Method;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::super::{Look, Need, Scenario, World};
use super::super::{
    install_crds,
    recommender::checkpoint,
    updater::{deployment, events, pods, ready, recommend, restarts, template, uids},
};
use super::{processes::Daemons, two_vpas};
use crate::cluster::{How, Part};

const PODS: usize = 4;
/// How many recommendations may be carried out too fast for an outage to come in between.
const TRIES: usize = 10;
const NEEDS: &[Need] = &[Need::Node, Need::LocalWebhooks, Need::Outages];

/// What ends, how, and how long it is gone at least.
struct Outage(Part, How, Duration);

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "api-server-is-restarted",
            about: "asked to end and started again, and killed and missing for a while: no daemon ends, no pod is evicted, each is \
                    resized once for each recommendation, new ones are sized, leaders lead, and memory is as before",
            needs: NEEDS,
            run: |world| {
                let outages = [
                    Outage(Part::KubeApiserver, How::Asked, Duration::ZERO),
                    Outage(Part::KubeApiserver, How::Killed, Duration::from_secs(20)),
                ];
                async move { survive(world, &outages).await }.boxed_local()
            },
        },
        Scenario {
            name: "etcd-is-gone-for-a-minute",
            about: "the same when the API server has lost its store",
            needs: NEEDS,
            run: |world| {
                let outages = [Outage(Part::Etcd, How::Killed, Duration::from_secs(60))];
                async move { survive(world, &outages).await }.boxed_local()
            },
        },
    ]
}

async fn survive(world: &World, outages: &[Outage]) -> Result<()> {
    install_crds(world).await?;
    deployment(world, "web", PODS).await?;
    two_vpas(world).await?;
    let before = ready(world, "web", PODS).await?;

    let mut daemons = Daemons::start(world).await?;
    let mut rounds = Rounds { world, count: 0 };
    let cpu = rounds.recommend().await?;
    rounds.carried_out(&mut daemons, &cpu).await?;
    rounds.work_goes_on(&mut daemons, &cpu).await?;
    let memory = daemons.resident()?;
    for outage in outages {
        rounds.struck(&mut daemons, outage).await?;
    }

    let after = pods(world, "web").await?;
    ensure!(uids(&before) == uids(&after), "some pod is another one");
    ensure!(restarts(&after) == 0, "some container was restarted");
    for (name, pod) in &after {
        let generation = &pod["metadata"]["generation"];
        ensure!(
            *generation == 1 + rounds.count,
            "{name} was resized for {} recommendations up to generation {generation}",
            rounds.count
        );
    }
    rounds.one_more(&uids(&before)).await?;
    let evicted = events(world, "EvictedByVPA").await?;
    ensure!(evicted.is_empty(), "evicted: {evicted:?}");
    daemons.as_before(world, &memory).await?;
    daemons.stop().await
}

/// One recommendation after the other, each carried out once.
struct Rounds<'w> {
    world: &'w World,
    count: usize,
}

impl Rounds<'_> {
    fn cpu(&self) -> String {
        format!("{}m", 20 + self.count)
    }

    async fn recommend(&mut self) -> Result<String> {
        self.count += 1;
        let cpu = self.cpu();
        patiently(self.world, "a recommendation is taken", async || {
            recommend(self.world, "web", &[("app", &cpu, "24Mi")]).await?;
            Ok(Look::Done(()))
        })
        .await?;
        Ok(cpu)
    }

    /// The outage comes in the middle of a recommendation, and after it there is another.
    async fn struck(&mut self, daemons: &mut Daemons, outage: &Outage) -> Result<()> {
        let Outage(part, how, gone) = *outage;
        let cpu = self.half_way(daemons).await?;
        let ended = self.world.parts()?.end(part, how).await?;
        let begun = Instant::now();
        self.world
            .until(&format!("{part:?} was missed"), async || {
                daemons.all_run()?;
                Ok(if begun.elapsed() >= gone {
                    Look::Done(())
                } else {
                    Look::NotYet(format!("{:?}", begun.elapsed()))
                })
            })
            .await?;
        ended.start_again().await?;
        let context = || format!("{part:?} {how:?}, gone for {gone:?}");
        self.carried_out(daemons, &cpu).await.with_context(context)?;
        let cpu = self.recommend().await?;
        self.carried_out(daemons, &cpu).await.with_context(context)?;
        self.work_goes_on(daemons, &cpu).await.with_context(context)
    }

    /// A recommendation that some pods have been resized for, and not all. On a busy machine all may have been before the
    /// first look: then there is another.
    async fn half_way(&mut self, daemons: &mut Daemons) -> Result<String> {
        for _ in 0..TRIES {
            let cpu = self.recommend().await?;
            if self.until_resized(daemons, &cpu, 1).await? < PODS {
                return Ok(cpu);
            }
        }
        bail!("for each of {TRIES} recommendations all pods were resized at once")
    }

    async fn carried_out(&self, daemons: &mut Daemons, cpu: &str) -> Result<()> {
        self.until_resized(daemons, cpu, PODS).await.map(drop)
    }

    /// Gives how many there are then.
    async fn until_resized(&self, daemons: &mut Daemons, cpu: &str, least: usize) -> Result<usize> {
        patiently(
            self.world,
            &format!("{least} pods or more have {cpu}"),
            async || {
                daemons.all_run()?;
                let resized = self.resized(cpu).await?;
                Ok(if resized >= least {
                    Look::Done(resized)
                } else {
                    Look::NotYet(format!("{resized} have"))
                })
            },
        )
        .await
    }

    /// How many pods were asked to have this, and have it.
    async fn resized(&self, cpu: &str) -> Result<usize> {
        let has = |pod: &Value| {
            let asked = &pod["spec"]["containers"][0]["resources"]["requests"]["cpu"];
            let given = &pod["status"]["containerStatuses"][0]["resources"]["requests"]["cpu"];
            asked == cpu && given == cpu
        };
        let pods = pods(self.world, "web").await?;
        Ok(pods.values().filter(|pod| has(pod)).count())
    }

    /// Samples are written, leases renewed by one leader each, and new pods sized.
    async fn work_goes_on(&self, daemons: &mut Daemons, cpu: &str) -> Result<()> {
        let world = self.world;
        changes(world, "the number of samples", async || {
            let written = checkpoint(world, "counted-app").await?;
            Ok(written.total_samples_count.to_string())
        })
        .await?;
        for lease in ["vpa-recommender-lease", "vpa-updater"] {
            changes(world, &format!("the time in {lease}"), async || {
                let lease = serde_json::to_value(world.api::<Lease>().get(lease).await?)?;
                Ok(lease["spec"]["renewTime"].to_string())
            })
            .await?;
        }
        patiently(world, "there is one leader of each", async || {
            let leaders = daemons.leaders().await?;
            Ok(if leaders == ["recommender", "updater"] {
                Look::Done(())
            } else {
                Look::NotYet(format!("{leaders:?}"))
            })
        })
        .await?;
        self.sizes_new_pods(cpu).await
    }

    /// Whether admission would give a new pod what is recommended.
    async fn sizes_new_pods(&self, cpu: &str) -> Result<()> {
        let world = self.world;
        let path = format!("/api/v1/namespaces/{}/pods?dryRun=All", world.namespace);
        patiently(world, &format!("a new pod would have {cpu}"), async || {
            let pods = pods(world, "web").await?;
            let metadata = &pods.values().next().context("there are no pods")?["metadata"];
            let new = json!({
                "apiVersion": "v1", "kind": "Pod", "spec": template(world, "web", true)["spec"],
                "metadata": {
                    "generateName": "web-", "labels": metadata["labels"], "ownerReferences": metadata["ownerReferences"],
                },
            });
            let made = world.send(Method::POST, &path, "application/json", &new).await?;
            let sized = &made.body["spec"]["containers"][0]["resources"]["requests"]["cpu"];
            Ok(if sized == cpu {
                Look::Done(())
            } else {
                Look::NotYet(format!("{} {} {sized}", made.code, made.message()))
            })
        })
        .await
    }

    /// A pod that is really made has what is recommended from the start.
    async fn one_more(&self, before: &[&str]) -> Result<()> {
        let more = json!({"spec": {"replicas": PODS + 1}});
        self.world
            .api::<Deployment>()
            .patch("web", &PatchParams::default(), &Patch::Merge(&more))
            .await?;
        let pods = ready(self.world, "web", PODS + 1).await?;
        let is_new = |pod: &&Value| !before.iter().any(|uid| pod["metadata"]["uid"] == *uid);
        let new = pods.values().find(is_new).context("no pod is new")?;
        let cpu = &new["spec"]["containers"][0]["resources"]["requests"]["cpu"];
        ensure!(
            *cpu == self.cpu() && new["metadata"]["generation"] == 1,
            "a new pod has {cpu} in generation {}",
            new["metadata"]["generation"]
        );
        Ok(())
    }
}

/// Waits until something is another than it is now.
async fn changes(world: &World, what: &str, mut read: impl AsyncFnMut() -> Result<String>) -> Result<()> {
    let mut first = None;
    patiently(world, &format!("{what} changes"), async || {
        let now = read().await?;
        let first = first.get_or_insert_with(|| now.clone());
        Ok(if now == *first {
            Look::NotYet(now)
        } else {
            Look::Done(())
        })
    })
    .await
}

/// Waits as [`World::until`] does; a server that has just come back may still refuse.
async fn patiently<T>(
    world: &World,
    what: &str,
    mut look: impl AsyncFnMut() -> Result<Look<T>>,
) -> Result<T> {
    world
        .until(what, async || {
            let seen = look().await;
            Ok(seen.unwrap_or_else(|error| Look::NotYet(format!("{error:#}"))))
        })
        .await
}
