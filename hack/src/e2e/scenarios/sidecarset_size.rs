//! Formulas where somebody else injects: pods as Kruise leaves them, sized at creation and kept true by a resize.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context as _, Result, ensure};
use common::{
    api::{
        k8s::{Deployment, MutatingWebhookConfiguration, Pod},
        sidecarset::SidecarSet,
    },
    clock::Clock,
    daemon::{Context, DaemonError, Namespaces, Shutdown},
    gates::{Gate, Gates},
    sidecarset::{record::HASH, sizing},
};
use futures::FutureExt as _;
use http::Method;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::super::{Look, Need, Scenario, World};
use super::{SETS_ARE_SHARED, install_crds};

const SETS: &str = "/apis/apps.kruise.io/v1beta1/sidecarsets";

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "sidecarset-size-stories",
            about: "the six stories of the resourcesPolicy proposal give the published numbers in pods as Kruise leaves them",
            needs: &[Need::LocalWebhooks],
            run: |world| in_scope(world, stories).boxed_local(),
        },
        Scenario {
            name: "sidecarset-size-stays-true",
            about: "an app sized by its VPA, a sidecar that follows it by formula and a mesh's native sidecar are admitted in \
                    one call and resized in one patch; a formula that has changed reaches them in place, as far as its set \
                    rolls out",
            needs: &[Need::Node, Need::LocalWebhooks],
            run: |world| in_scope(world, stays_true).boxed_local(),
        },
    ]
}

/// The component, running in mode `size` for the scenario's namespace.
struct Admission {
    shutdown: Shutdown,
    running: JoinHandle<Result<(), DaemonError>>,
}

impl Admission {
    fn start(world: &World) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let gates = Gates::default().with(Gate::NativeSidecar, true);
        let mut config = admission::Config::local(gates, listener)?;
        config.namespaces = Namespaces::Only(world.namespace.clone());
        // Other scenarios register the same component beside this one.
        config.webhook.configuration = configuration(world);
        config.lease.namespace = world.namespace.clone();
        let shutdown = Shutdown::new();
        let context = Context::new(world.client.clone(), Clock::system(), shutdown.clone());
        Ok(Self {
            shutdown,
            running: tokio::spawn(admission::run(config, context)),
        })
    }

    async fn stop(self) -> Result<()> {
        self.shutdown.request();
        Ok(self.running.await??)
    }
}

fn configuration(world: &World) -> String {
    format!("size-{}", world.namespace)
}

/// Runs a scenario, and removes what is left of it outside its namespace.
pub(super) async fn in_scope(world: &World, scenario: impl AsyncFn(&World) -> Result<()>) -> Result<()> {
    let _others = SETS_ARE_SHARED.read().await;
    install_crds(world).await?;
    let result = scenario(world).await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(world.client.clone());
    if configurations.get_opt(&configuration(world)).await?.is_some() {
        configurations
            .delete(&configuration(world), &DeleteParams::default())
            .await?;
    }
    let sets: Api<SidecarSet> = Api::all(world.client.clone());
    for set in sets
        .list(&ListParams::default().labels(&format!("of={}", world.namespace)))
        .await?
    {
        let name = set.metadata.name.unwrap_or_default();
        sets.delete(&name, &DeleteParams::default()).await?;
    }
    result
}

/// One story: targets with limits and requests, mode, regular expression, the four formulas, and what comes of them.
struct Story {
    name: &'static str,
    native: bool,
    targets: &'static [(&'static str, [&'static str; 2], [&'static str; 2])],
    policy: (&'static str, &'static str),
    limits: [&'static str; 2],
    requests: [&'static str; 2],
    expected: [[&'static str; 2]; 2],
}

const HALF: [&str; 2] = ["max(cpu*50%, 50m)", "200Mi"];
const HALF_REQUESTED: [&str; 2] = ["max(cpu*50%, 50m)", "100Mi"];
const LINEAR: &str = "0.5*cpu - 0.3*max(0, cpu-4) + 0.3*max(0, cpu-8)";

const STORIES: &[Story] = &[
    Story {
        name: "1",
        native: false,
        targets: &[
            ("large-engine-v4", ["200m", "200Mi"], ["50m", "100Mi"]),
            ("large-engine-v8", ["200m", "200Mi"], ["50m", "100Mi"]),
        ],
        policy: ("sum", "^large-engine-v4$"),
        limits: HALF,
        requests: HALF_REQUESTED,
        expected: [["100m", "200Mi"], ["50m", "100Mi"]],
    },
    Story {
        name: "2",
        native: false,
        targets: &[
            ("large-engine-v4", ["200m", "200Mi"], ["50m", "100Mi"]),
            ("large-engine-v8", ["400m", "400Mi"], ["100m", "200Mi"]),
        ],
        policy: ("sum", "^large-engine-v.*$"),
        limits: HALF,
        requests: HALF_REQUESTED,
        expected: [["300m", "200Mi"], ["75m", "100Mi"]],
    },
    Story {
        name: "3",
        native: false,
        targets: &[
            ("large-engine-v4", ["200m", "200Mi"], ["50m", "100Mi"]),
            ("large-engine-v8", ["400m", "400Mi"], ["100m", "200Mi"]),
        ],
        policy: ("max", "^large-engine-v.*$"),
        limits: HALF,
        requests: HALF_REQUESTED,
        expected: [["200m", "200Mi"], ["50m", "100Mi"]],
    },
    Story {
        name: "4",
        native: false,
        targets: &[
            ("large-engine-v4", ["200m", "200Mi"], ["50m", "100Mi"]),
            ("large-engine-v8", ["", "400Mi"], ["100m", "200Mi"]),
        ],
        policy: ("max", "^large-engine-v.*$"),
        limits: HALF,
        requests: HALF_REQUESTED,
        expected: [["", "200Mi"], ["50m", "100Mi"]],
    },
    Story {
        name: "5",
        native: false,
        targets: &[("app", ["6", "1Gi"], ["100m", "16Mi"])],
        policy: ("sum", ".*"),
        limits: [LINEAR, "0.5*memory + max(0, memory-2Gi)"],
        requests: [LINEAR, "memory*50%"],
        expected: [["2400m", "512Mi"], ["50m", "8Mi"]],
    },
    Story {
        name: "6",
        native: true,
        targets: &[
            ("app1", ["400m", "800Mi"], ["20m", "40Mi"]),
            ("app2", ["600m", "1200Mi"], ["30m", "60Mi"]),
        ],
        policy: ("sum", "^app.*$"),
        limits: ["max(cpu*30%, 50m)", "max(memory*25%, 100Mi)"],
        requests: ["cpu*20%", "memory*15%"],
        expected: [["300m", "500Mi"], ["10m", "15Mi"]],
    },
];

async fn stories(world: &World) -> Result<()> {
    for story in STORIES {
        make_set(world, story.name, story.native, &story.policy()).await?;
    }
    let admission = Admission::start(world)?;
    for story in STORIES {
        let sidecar = world
            .until("the sidecar has what the story says", async || {
                let sidecar = story.admitted(world).await?;
                let resources = &sidecar["resources"];
                // Until the webhook is heard of, the sidecar keeps what it came with.
                Ok(if resources["requests"]["cpu"] == "1m" {
                    Look::NotYet(resources.to_string())
                } else {
                    Look::Done(sidecar)
                })
            })
            .await?;
        let [limits, requests] = story.expected.map(amounts);
        ensure!(
            sidecar["resources"] == json!({"limits": limits, "requests": requests}),
            "story {}: {}",
            story.name,
            sidecar["resources"]
        );
    }
    admission.stop().await
}

impl Story {
    fn policy(&self) -> Value {
        let (mode, regex) = self.policy;
        json!({
            "targetContainersMode": mode, "targetContainersNameRegex": regex,
            "resourcesExpr": {"limits": amounts(self.limits), "requests": amounts(self.requests)},
        })
    }

    /// The sidecar of a new pod, which comes as Kruise would leave it, only with other numbers.
    async fn admitted(&self, world: &World) -> Result<Value> {
        let name = format!("story-{}", self.name);
        let limits = if self.expected[0][0].is_empty() {
            ["", "5Mi"]
        } else {
            ["5m", "5Mi"]
        };
        let mut sidecar = container(world, "side", limits, ["1m", "1Mi"]);
        let targets = self.targets.iter();
        let targets = targets.map(|(name, limits, requests)| container(world, name, *limits, *requests));
        let mut containers: Vec<Value> = targets.collect();
        let mut init = Vec::new();
        if self.native {
            sidecar["restartPolicy"] = json!("Always");
            init.push(sidecar);
        } else {
            containers.push(sidecar);
        }
        let pods = world.api::<Pod>();
        let pod: Pod = world
            .create_object(json!({
                "metadata": {"name": name, "annotations": {HASH: record(world, self.name)}},
                "spec": {"terminationGracePeriodSeconds": 0, "initContainers": init, "containers": containers},
            }))
            .await?;
        pods.delete(&name, &DeleteParams::default().grace_period(0))
            .await?;
        world
            .until("the pod is gone", async || {
                Ok(match pods.get_opt(&name).await? {
                    Some(_) => Look::NotYet("there".to_owned()),
                    None => Look::Done(()),
                })
            })
            .await?;
        let pod = serde_json::to_value(pod)?;
        let lists = [&pod["spec"]["initContainers"], &pod["spec"]["containers"]];
        let mut all = lists.into_iter().filter_map(Value::as_array).flatten();
        let sidecar = all.find(|container| container["name"] == "side");
        sidecar.cloned().context("the sidecar is not there")
    }
}

/// A VPA-sized app, a formula sidecar and a mesh, admitted and resized together.
async fn stays_true(world: &World) -> Result<()> {
    let half = json!({"cpu": "cpu*50%", "memory": "memory*50%"});
    let policy = json!({
        "targetContainersMode": "sum", "targetContainersNameRegex": "^app$",
        "resourcesExpr": {"limits": half, "requests": half},
    });
    make_set(world, "follow", false, &policy).await?;
    vpa(world).await?;
    recommend(world, "40m", "40Mi").await?;
    let admission = Admission::start(world)?;
    let labels = json!({"app": "web"});
    world
        .create_object::<Deployment>(json!({
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels, "annotations": {HASH: record(world, "follow")}},
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "initContainers": [{
                            "name": "mesh", "image": world.image, "restartPolicy": "Always",
                            "args": ["load", "--cpu", "1m", "--memory", "4Mi", "--listen", ""],
                            "resources": {"requests": amounts(["5m", "16Mi"]), "limits": amounts(["50m", "64Mi"])},
                        }],
                        "containers": [
                            container(world, "app", ["40m", "64Mi"], ["20m", "32Mi"]),
                            container(world, "side", ["20m", "32Mi"], ["10m", "16Mi"]),
                        ],
                    },
                },
            },
        }))
        .await?;
    let admitted = json!({
        "app": {"requests": {"cpu": "40m", "memory": "40Mi"}, "limits": {"cpu": "80m", "memory": "80Mi"}},
        "side": {"requests": {"cpu": "20m", "memory": "20Mi"}, "limits": {"cpu": "40m", "memory": "40Mi"}},
        "mesh": {"requests": {"cpu": "10m", "memory": "20Mi"}, "limits": {"cpu": "100m", "memory": "80Mi"}},
    });
    until_all(world, &admitted, true).await?;
    let pod = world
        .api::<Pod>()
        .list(&ListParams::default().labels("app=web"))
        .await?;
    let pod = pod.items.into_iter().next().context("no pod of web")?;
    let annotations = pod.metadata.annotations.unwrap_or_default();
    ensure!(
        annotations.contains_key(sizing::ANNOTATION),
        "it remembers nothing: {annotations:?}"
    );

    // A formula that has changed waits until a pod is old enough.
    let flags = [
        "--feature-gates=NativeSidecar=true,InPlace=true",
        "--in-recommendation-bounds-eviction-lifetime-threshold=1s",
    ];
    let updater = super::updater::Updater::start(world, &flags).await?;
    recommend(world, "80m", "60Mi").await?;
    let resized = json!({
        "app": {"requests": {"cpu": "80m", "memory": "60Mi"}, "limits": {"cpu": "160m", "memory": "120Mi"}},
        "side": {"requests": {"cpu": "40m", "memory": "30Mi"}, "limits": {"cpu": "80m", "memory": "60Mi"}},
        "mesh": {"requests": {"cpu": "10m", "memory": "20Mi"}, "limits": {"cpu": "100m", "memory": "80Mi"}},
    });
    until_all(world, &resized, false).await?;
    formula_changes(world, &updater, resized).await?;
    updater.stop().await?;
    admission.stop().await
}

/// The formula of the set changes, step by step to more pods; none of them is made anew.
async fn formula_changes(world: &World, updater: &super::updater::Updater, before: Value) -> Result<()> {
    let uids = async || {
        let params = ListParams::default().labels("app=web");
        let pods = world.api::<Pod>().list(&params).await?;
        let mut uids: Vec<_> = pods.into_iter().filter_map(|pod| pod.metadata.uid).collect();
        uids.sort();
        anyhow::Ok(uids)
    };
    let had = uids().await?;
    let mut after = before.clone();
    after["side"] =
        json!({"requests": {"cpu": "64m", "memory": "48Mi"}, "limits": {"cpu": "128m", "memory": "96Mi"}});
    let more = json!({"cpu": "cpu*80%", "memory": "memory*80%"});
    let sidecar = json!({"name": "side", "image": world.image, "resourcesPolicy": {
        "targetContainersMode": "sum", "targetContainersNameRegex": "^app$",
        "resourcesExpr": {"limits": more, "requests": more},
    }});
    // How the set rolls out, and how many pods it reaches.
    for (strategy, expected) in [
        (json!({"type": "NotUpdate"}), 0),
        (json!({"type": "RollingUpdate", "paused": true}), 0),
        (
            json!({"type": "RollingUpdate", "paused": false, "partition": 1}),
            1,
        ),
        (
            json!({"type": "RollingUpdate", "paused": false, "partition": 0}),
            2,
        ),
    ] {
        let path = format!("{SETS}/{}", set_name(world, "follow"));
        let change = json!({"spec": {"containers": [sidecar], "updateStrategy": strategy}});
        let changed = world
            .send(Method::PATCH, &path, "application/merge-patch+json", &change)
            .await?;
        ensure!(changed.code == 200, "the change was answered by {changed:?}");
        let count = async || {
            let params = ListParams::default().labels("app=web");
            let mut reached = 0;
            for pod in world.api::<Pod>().list(&params).await? {
                let found = resources(&serde_json::to_value(pod)?);
                ensure!(found == before || found == after, "neither old nor new: {found}");
                reached += usize::from(found == after);
            }
            anyhow::Ok(reached)
        };
        world
            .until("the formula reaches pods", async || {
                Ok(match count().await? {
                    reached if reached == expected => Look::Done(()),
                    reached => Look::NotYet(format!("{reached} of {expected} pods with {strategy}")),
                })
            })
            .await?;
        updater.loops(world, 2).await?;
        let reached = count().await?;
        ensure!(reached == expected, "{strategy} came to reach {reached} pods");
    }
    ensure!(uids().await? == had, "some pods are not the same");
    Ok(())
}

/// Waits until all pods of `web` have this. On the way a pod has what it had, or all of this, and nothing between: that would
/// be two patches. Pods that came before the webhook was heard of are made again.
async fn until_all(world: &World, expected: &Value, again: bool) -> Result<()> {
    let pods = world.api::<Pod>();
    world
        .until("app, sidecar and mesh have what they should", async || {
            let found = pods.list(&ListParams::default().labels("app=web")).await?.items;
            let mut done = 0;
            let mut last = Value::Null;
            for pod in found
                .into_iter()
                .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            {
                let name = pod.metadata.name.clone().unwrap_or_default();
                last = resources(&serde_json::to_value(pod)?);
                if last == *expected {
                    done += 1;
                } else if again {
                    pods.delete(&name, &DeleteParams::default().grace_period(0))
                        .await?;
                } else {
                    ensure!(
                        last["app"] != expected["app"] && last["side"] != expected["side"],
                        "one was resized without the other: {last}"
                    );
                }
            }
            Ok(if done == 2 {
                Look::Done(())
            } else {
                Look::NotYet(format!("{done} pods, and one with {last}"))
            })
        })
        .await
}

/// The live pods with a label.
pub(super) async fn pods_of(world: &World, label: &str) -> Result<Vec<Value>> {
    let found = world
        .api::<Pod>()
        .list(&ListParams::default().labels(label))
        .await?;
    let live = found
        .into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none());
    live.map(|pod| Ok(serde_json::to_value(pod)?)).collect()
}

pub(super) fn resources(pod: &Value) -> Value {
    let lists = [&pod["spec"]["initContainers"], &pod["spec"]["containers"]];
    let containers = lists.into_iter().filter_map(Value::as_array).flatten();
    containers
        .map(|container| {
            let name = container["name"].as_str().unwrap_or_default();
            (name.to_owned(), container["resources"].clone())
        })
        .collect()
}

pub(super) async fn vpa(world: &World) -> Result<()> {
    let vpa = json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "updatePolicy": {"updateMode": "InPlaceOrRecreate"},
        },
    });
    let made = world
        .send(Method::POST, &vpas(world), "application/json", &vpa)
        .await?;
    ensure!(made.code == 201, "the VPA was answered by {made:?}");
    Ok(())
}

/// Recommends this for the app, and a little for the mesh.
pub(super) async fn recommend(world: &World, cpu: &str, memory: &str) -> Result<()> {
    let app = json!({"cpu": cpu, "memory": memory});
    let mesh = json!({"cpu": "10m", "memory": "20Mi"});
    let status = json!({"status": {"recommendation": {"containerRecommendations": [
        {"containerName": "app", "target": app, "lowerBound": app, "upperBound": app},
        {"containerName": "mesh", "target": mesh, "lowerBound": mesh, "upperBound": mesh},
    ]}}});
    let path = format!("{}/web/status", vpas(world));
    let set = world
        .send(Method::PATCH, &path, "application/merge-patch+json", &status)
        .await?;
    ensure!(set.code == 200, "the status was answered by {set:?}");
    Ok(())
}

fn vpas(world: &World) -> String {
    format!(
        "/apis/autoscaling.k8s.io/v1/namespaces/{}/verticalpodautoscalers",
        world.namespace
    )
}

/// A set with the sidecar `side`, as Kruise's webhook leaves it: with its hash.
pub(super) async fn make_set(world: &World, name: &str, native: bool, policy: &Value) -> Result<()> {
    let mut sidecar = json!({"name": "side", "image": world.image, "resourcesPolicy": policy});
    let list = if native {
        sidecar["restartPolicy"] = json!("Always");
        "initContainers"
    } else {
        "containers"
    };
    let set = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "SidecarSet",
        "metadata": {
            "name": set_name(world, name), "labels": {"of": world.namespace}, "annotations": {HASH: "hash"},
        },
        "spec": {
            "selector": {"matchLabels": {"nobody": "injects"}}, "updateStrategy": {"type": "NotUpdate"},
            (list): [sidecar],
        },
    });
    let made = world.send(Method::POST, SETS, "application/json", &set).await?;
    ensure!(made.code == 201, "the set was answered by {made:?}");
    Ok(())
}

fn set_name(world: &World, name: &str) -> String {
    format!("{}-{name}", world.namespace)
}

/// What Kruise writes into a pod that it has injected.
pub(super) fn record(world: &World, set: &str) -> String {
    let set = set_name(world, set);
    json!({(set.clone()): {
        "updateTimestamp": "2026-03-01T10:10:00Z", "hash": "hash", "sidecarSetName": set, "sidecarList": ["side"],
        "controllerRevision": format!("{set}-1"),
    }})
    .to_string()
}

fn container(world: &World, name: &str, limits: [&str; 2], requests: [&str; 2]) -> Value {
    json!({
        "name": name, "image": world.image, "args": ["load", "--cpu", "1m", "--memory", "4Mi", "--listen", ""],
        "resources": {"limits": amounts(limits), "requests": amounts(requests)},
    })
}

/// cpu and memory; an empty text is none.
fn amounts([cpu, memory]: [&str; 2]) -> Value {
    let entries = [("cpu", cpu), ("memory", memory)];
    let entries = entries.into_iter().filter(|(_, text)| !text.is_empty());
    entries
        .map(|(name, text)| (name.to_owned(), json!(text)))
        .collect()
}
