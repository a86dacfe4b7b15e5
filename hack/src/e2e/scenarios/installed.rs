//! What an operator installs, on a cluster of its own: the daemons come up as pods, with the rights that go with them and no
//! others, and do their work.

mod upstream;

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use common::{
    api::{k8s::Pod, vpa::VerticalPodAutoscaler},
    quantity::{Bytes, Quantity},
};
use futures::FutureExt as _;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Namespace};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, LogParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, process::Command};

use super::super::{Look, Need, Scenario, World, in_short};
use super::{recommender::recommended, workload};
use crate::cluster::{Cache, Level, Programs, Progress};

/// Where everything is installed, as VPA's manifests have it.
const NAMESPACE: &str = "kube-system";
/// What is installed, by its Deployment, and its port of metrics.
const DAEMONS: [(&str, u16); 3] = [
    ("vpa-recommender", 8942),
    ("vpa-updater", 8943),
    ("vpa-admission-controller", 8944),
];
const NATIVE_SIDECARS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/kustomize/native-sidecars");

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "installed-by-kustomize",
            about: "our manifests with the gate on, under restricted pod security: the daemons run as pods, recommend, resize in \
                    place and size new pods, sidecars included, and no right is missing",
            needs: &[Need::Node, Need::Images],
            run: |world| by_kustomize(world).boxed_local(),
        },
        Scenario {
            name: "installed-by-upstream-manifests",
            about: "VPA's manifests with our images: flags, ports, secret, lease and rights serve; what needs more rights is inert \
                    and says so once",
            needs: &[Need::Node, Need::Images],
            run: |world| upstream::by_upstream_manifests(world).boxed_local(),
        },
    ]
}

async fn by_kustomize(world: &World) -> Result<()> {
    restricted(world).await?;
    let kubectl = Kubectl::find(world).await?;
    let mut objects = documents(&kubectl.run(&["kustomize", NATIVE_SIDECARS], "").await?)?;
    hurry(&mut objects);
    kubectl.apply(&objects).await?;
    running(world).await?;
    works(world, &["app", "proxy"]).await?;
    for (name, port) in DAEMONS {
        for pod in pods_of(world, name).await? {
            let refused = refused(&metrics(world, &pod, port).await?);
            ensure!(
                refused == 0,
                "{} was refused {refused} times for want of a right",
                pod.name_any()
            );
        }
    }
    Ok(())
}

/// From here on, pods there have to satisfy the restricted standard.
async fn restricted(world: &World) -> Result<()> {
    let labels = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    Api::<Namespace>::all(world.client.clone())
        .patch(NAMESPACE, &PatchParams::default(), &Patch::Merge(labels))
        .await?;
    Ok(())
}

/// Shortens what takes a minute by default; the rest stays as it is shipped.
fn hurry(objects: &mut [Value]) {
    for object in objects {
        let flag = match (object["kind"].as_str(), object["metadata"]["name"].as_str()) {
            (Some("Deployment"), Some("vpa-recommender")) => "--recommender-interval=5s",
            (Some("Deployment"), Some("vpa-updater")) => "--updater-interval=5s",
            _ => continue,
        };
        let args = &mut object["spec"]["template"]["spec"]["containers"][0]["args"];
        match args.as_array_mut() {
            Some(args) => args.push(flag.into()),
            None => *args = json!([flag]),
        }
    }
}

/// Waits until all that is installed is available.
async fn running(world: &World) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(world.client.clone(), NAMESPACE);
    for (name, _) in DAEMONS {
        let what = format!("all replicas of {name} are ready");
        world
            .until(&what, async || {
                let deployment = deployments.get(name).await?;
                let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
                let ready = deployment.status.and_then(|status| status.ready_replicas);
                if ready == wanted {
                    return Ok(Look::Done(()));
                }
                let mut seen = Vec::new();
                for pod in pods_of(world, name).await? {
                    let log = log(world, &pod).await.unwrap_or_default();
                    let last = log.lines().next_back().unwrap_or_default();
                    seen.push(format!("{}: {last}", in_short(&pod)));
                }
                Ok(Look::NotYet(seen.join(" | ")))
            })
            .await?;
    }
    Ok(())
}

/// A workload whose `sized` containers are far too small: they are recommended more, and get it in place and at admission.
async fn works(world: &World, sized: &[&str]) -> Result<()> {
    let before = workload::deploy(world, 2).await?;
    world
        .create_object::<VerticalPodAutoscaler>(json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": {"name": "web"},
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "updatePolicy": {"updateMode": "InPlaceOrRecreate"},
            },
        }))
        .await?;
    recommended(world, "web", sized).await?;

    let names = |pods: &[Pod]| {
        let mut names: Vec<_> = pods.iter().map(kube::ResourceExt::name_any).collect();
        names.sort();
        names
    };
    let what = format!("{sized:?} of the running pods are resized in place");
    let resized = world
        .until(&what, async || {
            let pods = workload::replicas_ready(world, 2).await?;
            match first_wrong(world, &pods, sized).await? {
                None => Ok(Look::Done(pods)),
                Some(wrong) => Ok(Look::NotYet(wrong)),
            }
        })
        .await?;
    ensure!(
        names(&resized) == names(&before),
        "{:?} were replaced by {:?}, not resized",
        names(&before),
        names(&resized)
    );
    for pod in &resized {
        let status = serde_json::to_value(&pod.status)?;
        for list in ["containerStatuses", "initContainerStatuses"] {
            for container in status[list].as_array().into_iter().flatten() {
                ensure!(container["restartCount"] == 0, "restarted: {container}");
            }
        }
    }

    let three = json!({"spec": {"replicas": 3}});
    world
        .api::<Deployment>()
        .patch("web", &PatchParams::default(), &Patch::Merge(three))
        .await?;
    let new = &admitted(world, &names(&resized)).await?;
    let observed = new.annotations().get("vpaObservedContainers");
    let mut observed: Vec<_> = observed.iter().flat_map(|names| names.split(", ")).collect();
    observed.sort_unstable();
    ensure!(
        observed == sized,
        "the admission component has observed {observed:?} of the new pod"
    );
    // A resize would have given it a second generation.
    ensure!(
        new.metadata.generation == Some(1),
        "the new pod was resized: {:?}",
        new.metadata
    );
    let wrong = first_wrong(world, std::slice::from_ref(new), sized).await?;
    ensure!(wrong.is_none(), "the new pod was not sized: {wrong:?}");
    Ok(())
}

/// What is wrong with the memory of these pods: what is recommended for it is the least there is, so it holds still.
async fn first_wrong(world: &World, pods: &[Pod], sized: &[&str]) -> Result<Option<String>> {
    let vpa = world.api::<VerticalPodAutoscaler>().get("web").await?;
    let recommendation = vpa
        .status
        .and_then(|status| status.recommendation)
        .unwrap_or_default();
    let recommended = recommendation.container_recommendations;
    for pod in pods {
        let pod = serde_json::to_value(pod)?;
        for (list, status) in [
            ("initContainers", "initContainerStatuses"),
            ("containers", "containerStatuses"),
        ] {
            for container in pod["spec"][list].as_array().into_iter().flatten() {
                let name = container["name"].as_str().unwrap_or_default();
                let target = recommended.iter().find(|of| of.container_name == name);
                let target = target.and_then(|target| target.target.get("memory"));
                let wanted = match target {
                    Some(target) if sized.contains(&name) => target.0.as_str(),
                    // As the workload has it.
                    _ => "16Mi",
                };
                let statuses = pod["status"][status].as_array().into_iter().flatten();
                let mut actual = statuses.filter(|status| status["name"] == name && name != "setup");
                let in_status = actual
                    .next()
                    .map(|status| &status["resources"]["requests"]["memory"]);
                let in_spec = &container["resources"]["requests"]["memory"];
                for found in std::iter::once(in_spec).chain(in_status) {
                    let found = found.as_str().unwrap_or("0");
                    if bytes(found)? != bytes(wanted)? {
                        return Ok(Some(format!(
                            "{name} of {} has {found} and not {wanted}",
                            pod["metadata"]["name"]
                        )));
                    }
                }
            }
        }
    }
    Ok(None)
}

/// A new pod that admission was asked about: one that comes while no replica of it is reached is let pass.
async fn admitted(world: &World, known: &[String]) -> Result<Pod> {
    let pods: Api<Pod> = world.api();
    world
        .until("admission was asked about a new pod", async || {
            let ready = workload::replicas_ready(world, known.len() + 1).await?;
            let new = ready.into_iter().find(|pod| !known.contains(&pod.name_any()));
            let new = new.context("there is no new pod")?;
            if new.annotations().contains_key("vpaObservedContainers") {
                return Ok(Look::Done(new));
            }
            let name = new.name_any();
            pods.delete(&name, &DeleteParams::default().grace_period(0))
                .await?;
            Ok(Look::NotYet(format!("{name} was let pass")))
        })
        .await
}

fn bytes(quantity: &str) -> Result<Bytes> {
    Ok(Bytes::from_quantity(&quantity.parse::<Quantity>()?))
}

async fn pods_of(world: &World, deployment: &str) -> Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), NAMESPACE);
    let ours = ListParams::default().labels(&format!("app={deployment}"));
    Ok(pods.list(&ours).await?.items)
}

async fn log(world: &World, pod: &Pod) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), NAMESPACE);
    Ok(pods.logs(&pod.name_any(), &LogParams::default()).await?)
}

/// Through the API server, whose way to a pod may be slow on a busy machine.
async fn metrics(world: &World, pod: &Pod, port: u16) -> Result<String> {
    let name = pod.name_any();
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}:{port}/proxy/metrics");
    world
        .until(&format!("{name} shows its metrics"), async || {
            let request = http::Request::get(&path).body(Vec::new())?;
            let answer = world.client.request_text(request).await;
            Ok(answer.map_or_else(|error| Look::NotYet(error.to_string()), Look::Done))
        })
        .await
}

/// How many requests the API server has refused for want of a right.
fn refused(metrics: &str) -> u64 {
    let refusals = metrics
        .lines()
        .filter(|line| line.starts_with("outrigger_client_requests_total{") && line.contains("code=\"403\""));
    refusals
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// The documents of a YAML stream.
fn documents(text: &str) -> Result<Vec<Value>> {
    text.split("\n---\n")
        .map(|document| serde_saphyr::from_str(document).context("reading a manifest"))
        .collect()
}

/// The cluster's `kubectl`.
struct Kubectl {
    programs: Programs,
    kubeconfig: std::path::PathBuf,
}

impl Kubectl {
    async fn find(world: &World) -> Result<Self> {
        let programs = tokio::task::spawn_blocking(|| {
            Programs::ensure(&Cache::from_env()?, Level::Api, None, Progress::Quiet)
        })
        .await??;
        Ok(Self {
            programs,
            kubeconfig: world.kubeconfig.clone(),
        })
    }

    async fn apply(&self, objects: &[Value]) -> Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.run(&["apply", "--server-side", "-f", "-"], &list.to_string())
            .await?;
        Ok(())
    }

    async fn run(&self, arguments: &[&str], input: &str) -> Result<String> {
        let mut child = Command::new(self.programs.path("kubectl")?)
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("running kubectl")?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes()).await?;
        }
        let output = child.wait_with_output().await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {}: {said}", arguments.join(" "));
        Ok(String::from_utf8(output.stdout)?)
    }
}
