//! How many of many pods stay on an older revision of a SidecarSet, where Outrigger counts them.

use std::{collections::BTreeMap, fmt};

use admission::sidecarset::quota::RESERVATION;
use anyhow::{Context as _, Result, ensure};
use common::api::k8s::{Lease, MutatingWebhookConfiguration, Pod};
use futures::{FutureExt as _, future::join_all};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};

use super::super::{Look, Need, Scenario, World};
use super::sidecarset_inject::{Injector, in_scope, lone_pod, made, older_revision, record, set};

const CREATIONS: usize = 50;

pub(super) fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "sidecarset-partial-is-exact",
        about: "of 50 pods that are created at once, exactly the wanted share stays on an older revision, with one \
                replica, and with two all but one at most",
        needs: &[Need::LocalWebhooks],
        run: |world| in_scope(world, is_exact).boxed_local(),
    }]
}

async fn is_exact(world: &World) -> Result<()> {
    let alone = Injector::start(world)?;
    alone
        .register(world, "one", &json!({"of": world.namespace}))
        .await?;
    let set = made(world, &set(world)).await?;
    let strategy = json!({
        "injectionStrategy": {"revision": {"policy": "Partial"}},
        "updateStrategy": {"partition": "30%"},
    });
    let revision = older_revision(world, &set, strategy).await?;
    let pods = Pods {
        world,
        revision: &revision,
    };
    // The set, too, has to be heard of with its new strategy: a first pod of a third is always an old one.
    pods.until_first_stay(&["one"]).await?;
    for _ in 0..5 {
        ensure!(pods.would_stay("one").await?, "what was only tried was counted");
    }
    let tally = pods.create("alone", &["one"; CREATIONS]).await;
    ensure!(
        tally.stayed() == 15 && tally.lost.is_empty(),
        "with one replica: {tally}"
    );
    pods.clear().await?;
    alone.stop().await?;

    let configurations: Api<MutatingWebhookConfiguration> = Api::all(world.client.clone());
    configurations
        .delete(&format!("one-{}", world.namespace), &DeleteParams::default())
        .await?;
    let (one, two) = (Injector::start(world)?, Injector::start(world)?);
    for (injector, name) in [(&one, "one"), (&two, "two")] {
        let labels = json!({"of": world.namespace, "through": name});
        injector.register(world, name, &labels).await?;
    }
    let leases = world.api::<Lease>();
    world
        .until("there are two replicas", async || {
            let params = ListParams::default().labels("outrigger.dev/sidecarset-replica");
            Ok(match leases.list(&params).await?.items.len() {
                2 => Look::Done(()),
                found => Look::NotYet(format!("{found} leases")),
            })
        })
        .await?;
    pods.until_first_stay(&["one", "two"]).await?;
    pods.until_known("one", "two").await?;
    pods.until_known("two", "one").await?;
    let through: Vec<&str> = ["one", "two"].into_iter().cycle().take(CREATIONS).collect();
    let tally = pods.create("two", &through).await;
    ensure!(
        (14..=16).contains(&tally.stayed()) && tally.lost.is_empty(),
        "with two replicas: {tally}"
    );
    pods.clear().await?;
    one.stop().await?;
    two.stop().await
}

/// The pods of the scenario.
struct Pods<'w> {
    world: &'w World,
    /// The older one.
    revision: &'w str,
}

impl Pods<'_> {
    fn api(&self) -> Api<Pod> {
        self.world.api()
    }

    async fn send(&self, name: &str, through: &str, params: &PostParams) -> Result<Value> {
        let mut pod = lone_pod(self.world, name);
        pod["metadata"]["labels"]["through"] = json!(through);
        let created = self.api().create(params, &serde_json::from_value(pod)?).await?;
        Ok(serde_json::to_value(created)?)
    }

    /// Creates pods side by side, each through one of the replicas.
    async fn create(&self, round: &str, through: &[&str]) -> Tally {
        let params = PostParams::default();
        let created = join_all(through.iter().enumerate().map(async |(index, through)| {
            let pod = self.send(&format!("{round}-{index}"), through, &params).await?;
            let (_, revision) = record(&pod, self.world)?;
            let reservation = pod["metadata"]["annotations"][RESERVATION].as_str();
            let (replica, number) = reservation
                .and_then(|text| text.rsplit_once('/'))
                .context("it was not counted")?;
            anyhow::Ok((replica.to_owned(), number.parse()?, revision == self.revision))
        }))
        .await;
        let mut tally = Tally::default();
        for pod in created {
            match pod {
                Ok((replica, number, stayed)) => {
                    tally.counted.entry(replica).or_default().insert(number, stayed);
                }
                Err(error) => tally.lost.push(format!("{error:#}")),
            }
        }
        tally
    }

    /// Deletes them all.
    async fn clear(&self) -> Result<()> {
        self.world
            .until("the pods are gone", async || {
                let now = DeleteParams::default().grace_period(0);
                self.api().delete_collection(&now, &ListParams::default()).await?;
                let left = self.api().list(&ListParams::default()).await?.items.len();
                Ok(if left == 0 {
                    Look::Done(())
                } else {
                    Look::NotYet(format!("{left} pods"))
                })
            })
            .await
    }

    /// Whether a pod through this replica would have the older revision.
    async fn would_stay(&self, through: &str) -> Result<bool> {
        let tried = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let pod = self.send("tried", through, &tried).await?;
        Ok(record(&pod, self.world)?.1 == self.revision)
    }

    /// Waits until the first pod through each of these stays, and is forgotten again.
    async fn until_first_stay(&self, through: &[&str]) -> Result<()> {
        self.world
            .until("each first pod stays", async || {
                let tally = self.create("first", through).await;
                self.clear().await?;
                Ok(if tally.stayed() == through.len() {
                    Look::Done(())
                } else {
                    Look::NotYet(tally.to_string())
                })
            })
            .await?;
        for replica in through {
            self.until_forgotten(replica).await?;
        }
        Ok(())
    }

    /// Waits until a replica has heard that there are no pods.
    async fn until_forgotten(&self, through: &str) -> Result<()> {
        self.world
            .until("pods that are gone are forgotten", async || {
                Ok(if self.would_stay(through).await? {
                    Look::Done(())
                } else {
                    Look::NotYet("one more would be new".to_owned())
                })
            })
            .await
    }

    /// Waits until a replica knows that the other lives. Then it leaves the other's pods to it. Before, it counts them as
    /// those of one that is gone, and after one that stayed the next would be new. A pod of its own that is forgotten
    /// shows that it has heard of the other's, which was there before.
    async fn until_known(&self, replica: &str, other: &str) -> Result<()> {
        let tally = self.create("theirs", &[other]).await;
        ensure!(tally.stayed() == 1, "the other's pod: {tally}");
        let tally = self.create("own", &[replica]).await;
        ensure!(tally.lost.is_empty(), "its own pod: {tally}");
        let now = DeleteParams::default().grace_period(0);
        self.api().delete("own-0", &now).await?;
        self.until_forgotten(replica).await?;
        self.clear().await?;
        self.until_forgotten(other).await
    }
}

/// What became of pods.
#[derive(Default)]
struct Tally {
    /// By replica, and in its order: whether the pod has the older revision.
    counted: BTreeMap<String, BTreeMap<u64, bool>>,
    /// Why there is no such pod, or nobody counted it.
    lost: Vec<String>,
}

impl Tally {
    fn stayed(&self) -> usize {
        let all = self.counted.values().flat_map(BTreeMap::values);
        all.filter(|stayed| **stayed).count()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} stayed", self.stayed())?;
        for (replica, pods) in &self.counted {
            let order: String = pods
                .values()
                .map(|stayed| if *stayed { 'o' } else { 'n' })
                .collect();
            write!(f, "; through {replica}, old or new: {order}")?;
        }
        for reason in &self.lost {
            write!(f, "; lost: {reason}")?;
        }
        Ok(())
    }
}
