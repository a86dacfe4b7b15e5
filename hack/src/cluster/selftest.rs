//! `hack cluster selftest`: starts a cluster, sees that each level does what it is for, stops it, and sees that
//! nothing is left. It is how a change to this module, or a new version of anything in it, is tried.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Node, Pod},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

use super::{
    Cluster, Level, Options, Progress, process, progress::span, template::fill, versions, workload_image,
};

const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);

/// Runs it.
///
/// # Errors
/// With the first thing that is not as it should be.
pub(super) async fn run(options: Options, crds: Option<&Path>) -> Result<()> {
    let (level, progress) = (options.level, options.progress);
    let begun = Instant::now();
    let cluster = Cluster::start(options).await?;
    let step =
        |what: &str, begun: Instant| progress.say(format_args!("{:>7}  {what}", span(begun.elapsed())));
    step("in all to start", begun);
    let client = cluster.client().await?;
    let begun = Instant::now();
    api(&client).await?;
    step("objects are kept, by the pinned version", begun);
    if let Some(crds) = crds {
        let begun = Instant::now();
        let count = accept_crds(&client, crds).await?;
        step(&format!("{count} CustomResourceDefinitions are served"), begun);
    }
    match level {
        Level::Api => {}
        Level::ControlPlane => {
            let begun = Instant::now();
            control_plane(&client).await?;
            step(
                "a deployment's pod is bound to a node that is only an object",
                begun,
            );
        }
        Level::Node => node(&client, progress).await?,
    }
    let begun = Instant::now();
    let (folder, state) = (cluster.folder.clone(), cluster.state.clone());
    cluster.stop().await?;
    step("to stop", begun);
    ensure!(!folder.path().exists(), "{} is left", folder.path().display());
    let left = state.alive(&folder) + process::find(&["containerd-shim-runc-v2"], folder.path()).len();
    ensure!(left == 0, "{left} processes are left");
    if let Some(subnet) = state.subnet {
        ensure!(
            !Path::new("/sys/class/net").join(subnet.bridge()).exists(),
            "{} is left",
            subnet.bridge()
        );
    }
    progress.say(format_args!("nothing is left"));
    Ok(())
}

async fn api(client: &Client) -> Result<()> {
    let version = client.apiserver_version().await?.git_version;
    if std::env::var_os("KUBEBUILDER_ASSETS").is_none() {
        ensure!(version == versions::KUBERNETES, "the server says it is {version}");
    }
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "selftest"}, "data": {"a": "b"}}))?;
    maps.create(&PostParams::default(), &map).await?;
    ensure!(
        maps.get("selftest").await?.data == map.data,
        "an object did not come back as it was"
    );
    Ok(())
}

async fn accept_crds(client: &Client, folder: &Path) -> Result<usize> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        let crds: Vec<Value> =
            serde_saphyr::from_multiple(&text).with_context(|| format!("reading {}", path.display()))?;
        for crd in crds
            .into_iter()
            .filter(|object| object["kind"] == "CustomResourceDefinition")
        {
            let name = crd["metadata"]["name"]
                .as_str()
                .context("an object has a name")?
                .to_owned();
            api.patch(
                &name,
                &PatchParams::apply("outrigger-selftest"),
                &Patch::Apply(&crd),
            )
            .await
            .with_context(|| format!("applying {name}"))?;
            names.push(name);
        }
    }
    for name in &names {
        eventually(&format!("{name} to be established"), async || {
            let conditions = api
                .get(name)
                .await?
                .status
                .and_then(|status| status.conditions)
                .unwrap_or_default();
            let is = |kind: &str| {
                conditions
                    .iter()
                    .any(|condition| condition.type_ == kind && condition.status == "True")
            };
            ensure!(!is("NonStructuralSchema"), "{name} has no structural schema");
            Ok(is("Established").then_some(()))
        })
        .await?;
    }
    Ok(names.len())
}

async fn control_plane(client: &Client) -> Result<()> {
    let capacity = json!({"cpu": "4", "memory": "8Gi", "pods": "100"});
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "object"}}))?;
    let nodes = Api::<Node>::all(client.clone());
    nodes.create(&PostParams::default(), &node).await?;
    let status = json!({"status": {
        "capacity": capacity, "allocatable": capacity,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Selftest", "message": ""}],
    }});
    nodes
        .patch_status("object", &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    deploy(client).await?;
    eventually("a pod to be bound", async || {
        Ok(pod(client)
            .await?
            .filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())))
    })
    .await?;
    Ok(())
}

async fn node(client: &Client, progress: Progress) -> Result<()> {
    let step =
        |what: &str, begun: Instant| progress.say(format_args!("{:>7}  {what}", span(begun.elapsed())));
    let begun = Instant::now();
    deploy(client).await?;
    let deployments = Api::<Deployment>::default_namespaced(client.clone());
    eventually("the deployment to be available", async || {
        let status = deployments.get("selftest").await?.status.unwrap_or_default();
        Ok((status.available_replicas == Some(1)).then_some(()))
    })
    .await?;
    step("a deployment with a native sidecar runs", begun);
    let pod = pod(client).await?.context("the pod is gone")?.name_any();

    let begun = Instant::now();
    resize(client, &pod).await?;
    step("application and sidecar are resized in place", begun);

    let begun = Instant::now();
    let kind = GroupVersionKind::gvk("metrics.k8s.io", "v1beta1", "PodMetrics");
    let resource = ApiResource::from_gvk_with_plural(&kind, "pods");
    let metrics = Api::<DynamicObject>::default_namespaced_with(client.clone(), &resource);
    let containers = eventually("metrics of the pod", async || {
        let found = metrics.get_opt(&pod).await.ok().flatten();
        Ok(found.and_then(|found| names(&found.data["containers"])))
    })
    .await?;
    ensure!(
        containers == ["app", "sidecar"],
        "metrics-server lists {containers:?}"
    );
    step("metrics-server measures both", begun);
    Ok(())
}

fn names(containers: &Value) -> Option<Vec<String>> {
    let mut names: Vec<String> = containers
        .as_array()?
        .iter()
        .filter_map(|container| Some(container["name"].as_str()?.to_owned()))
        .collect();
    names.sort_unstable();
    Some(names)
}

async fn resize(client: &Client, name: &str) -> Result<()> {
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let resources = json!({"requests": {"cpu": "70m", "memory": "60Mi"}});
    let patch = json!({"spec": {
        "containers": [{"name": "app", "resources": resources}],
        "initContainers": [{"name": "init"}, {"name": "sidecar", "resources": resources}],
    }});
    pods.patch_resize(name, &PatchParams::default(), &Patch::Strategic(&patch))
        .await?;
    eventually("the kubelet to report the new resources", async || {
        let status = pods.get(name).await?.status.unwrap_or_default();
        let all = status
            .container_statuses
            .into_iter()
            .chain(status.init_container_statuses)
            .flatten();
        let resized = all.filter(|status| {
            let requests = status
                .resources
                .as_ref()
                .and_then(|resources| resources.requests.as_ref());
            requests.and_then(|requests| requests.get("cpu")) == Some(&Quantity("70m".into()))
        });
        let mut names: Vec<_> = resized.map(|status| status.name).collect();
        names.sort_unstable();
        Ok((names == ["app", "sidecar"]).then_some(()))
    })
    .await
}

async fn deploy(client: &Client) -> Result<()> {
    let manifest = fill(
        include_str!("../../cluster/manifests/selftest.yaml"),
        &[("IMAGE", &workload_image())],
    )?;
    let deployment: Deployment = serde_saphyr::from_str(&manifest).context("reading the manifest")?;
    Api::<Deployment>::default_namespaced(client.clone())
        .create(&PostParams::default(), &deployment)
        .await?;
    Ok(())
}

async fn pod(client: &Client) -> Result<Option<Pod>> {
    let pods = Api::<Pod>::default_namespaced(client.clone());
    Ok(pods
        .list(&ListParams::default().labels("app=selftest"))
        .await?
        .items
        .into_iter()
        .next())
}

async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        tokio::time::sleep(POLL).await;
    }
    bail!("waited {} for {what}", span(PATIENCE))
}
