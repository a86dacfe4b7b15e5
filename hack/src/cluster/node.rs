//! One real node: containerd and a kubelet in a mount namespace of their own, with cgroups of their own.

use std::{
    ffi::OsString,
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1 as core;
use kube::{Api, Client};

use super::{
    cache::{make_dir, write},
    cgroups::Hierarchies,
    control_plane::{flag, path},
    image::Image,
    launch::Launch,
    pki::CA,
    programs::Programs,
    site::{Node, Site},
    state::{Folder, Stage, State},
    template::fill,
    versions,
};

/// The longest path of a socket that the kernel takes.
const SOCKET_LIMIT: usize = 107;

/// The image with the test workload; see `hack/cluster/workload`.
#[must_use]
pub fn workload_image() -> String {
    format!("localhost/outrigger/workload:{}", versions::WORKLOAD)
}

fn pause_image() -> String {
    format!("localhost/outrigger/pause:{}", versions::WORKLOAD)
}

/// Starts a node; it is ready some seconds later.
///
/// # Errors
/// When one of its parts does not start.
pub(super) async fn start(launch: &mut Launch, node: &Node) -> Result<()> {
    let cgroup = format!("outrigger-{}-{}", launch.site.name, node.name);
    launch.state.cgroups.push(cgroup.clone());
    launch.site.folder.save(&launch.state)?;
    Hierarchies::of_machine()?.make(&cgroup)?;
    let files = Files::write(&launch.site, &launch.programs, node, &cgroup)?;

    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private"])
        .arg(&files.namespace);
    command
        .arg(launch.programs.path("containerd")?)
        .arg("--config")
        .arg(&files.containerd);
    command.env("PATH", search_path(&launch.programs)?);
    let name = format!("containerd-{}", node.name);
    let runtime = launch.start(&name, Stage::Runtime, command)?;
    let socket = socket(&launch.site.folder, &node.name);
    launch
        .wait(&name, || std::future::ready(UnixStream::connect(&socket).is_ok()))
        .await?;
    let images = images(&launch.site.folder, &launch.programs)?;
    load_images(&launch.programs, &socket, runtime.pid, &images)?;

    let mut command = Command::new("nsenter");
    command.args(["--mount", "--target"]).arg(runtime.pid.to_string());
    command.arg(launch.programs.path("kubelet")?).args([
        path("config", &files.kubelet),
        path("kubeconfig", &launch.site.kubeconfig(&node.name)),
        path("root-dir", &home(&launch.site.folder, &node.name).join("kubelet")),
        path(
            "cert-dir",
            &home(&launch.site.folder, &node.name).join("kubelet-certificates"),
        ),
        flag("hostname-override", &node.name),
        flag("node-ip", launch.site.addresses.gateway()),
        flag("v", 2),
    ]);
    command.env("PATH", search_path(&launch.programs)?);
    launch.start(&format!("kubelet-{}", node.name), Stage::Controllers, command)?;
    Ok(())
}

/// Waits until a node is ready.
///
/// # Errors
/// When its kubelet ends or takes too long.
pub(super) async fn wait(launch: &Launch, client: &Client, node: &Node) -> Result<()> {
    let nodes = Api::<core::Node>::all(client.clone());
    let ready = || async {
        nodes
            .get_opt(&node.name)
            .await
            .ok()
            .flatten()
            .is_some_and(|node| is_ready(&node))
    };
    launch.wait(&format!("kubelet-{}", node.name), ready).await
}

fn is_ready(node: &core::Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Loads an archive into all nodes of a running cluster.
///
/// # Errors
/// When the cluster has no nodes or one of them refuses.
pub(super) fn load_archive(
    folder: &Folder,
    state: &State,
    programs: &Programs,
    archive: &Path,
) -> Result<()> {
    if state.nodes.is_empty() {
        bail!(
            "cluster {} has no nodes: images go into one of level node",
            state.name
        );
    }
    for node in &state.nodes {
        let name = format!("containerd-{node}");
        let runtime = state
            .processes
            .iter()
            .find(|process| process.name == name && process.id.belongs_to(folder.path()))
            .with_context(|| format!("{name} does not run"))?;
        load_images(
            programs,
            &socket(folder, node),
            runtime.id.pid,
            &[archive.to_owned()],
        )?;
    }
    Ok(())
}

struct Files {
    namespace: PathBuf,
    containerd: PathBuf,
    kubelet: PathBuf,
}

impl Files {
    fn write(site: &Site, programs: &Programs, node: &Node, cgroup: &str) -> Result<Self> {
        let home = home(&site.folder, &node.name);
        let socket = socket(&site.folder, &node.name);
        if socket.as_os_str().len() + ".ttrpc".len() > SOCKET_LIMIT {
            bail!(
                "{} is too long a path for a socket: set OUTRIGGER_CACHE to a shorter one",
                socket.display()
            );
        }
        for folder in ["containerd", "kubelet", "pod-logs", "volume-plugins"] {
            make_dir(&home.join(folder))?;
        }
        let subnet = site
            .addresses
            .subnet
            .context("a cluster with nodes has a subnet")?;
        let cni = site.folder.join("cni");
        make_dir(&cni)?;
        let network = fill(
            include_str!("../../cluster/node/cni.conflist"),
            &[
                ("BRIDGE", &subnet.bridge()),
                ("CNI_STATE", &site.folder.join("cni-state").display()),
                ("PODS", &subnet.pods()),
                ("FIRST_POD", &subnet.first_pod()),
                ("GATEWAY", &subnet.gateway()),
            ],
        )?;
        write(&cni.join("10-outrigger.conflist"), network)?;
        let cni_programs = programs
            .path("bridge")?
            .parent()
            .context("a plugin has a folder")?;
        let containerd = fill(
            include_str!("../../cluster/node/containerd.toml"),
            &[
                ("NODE", &home.display()),
                ("SOCKET", &socket.display()),
                ("PAUSE_IMAGE", &pause_image()),
                ("RUNC", &programs.path("runc")?.display()),
                ("CNI_PROGRAMS", &cni_programs.display()),
                ("CNI_CONFIG", &cni.display()),
                ("STREAM_PORT", &node.stream),
            ],
        )?;
        let kubelet = fill(
            include_str!("../../cluster/node/kubelet.yaml"),
            &[
                ("GATEWAY", &subnet.gateway()),
                ("PORT", &node.kubelet),
                ("HEALTH_PORT", &node.health),
                ("CERTIFICATE", &site.pki.certificate(&node.name).display()),
                ("KEY", &site.pki.key(&node.name).display()),
                ("CA", &site.pki.certificate(CA).display()),
                ("CGROUP", &cgroup),
                ("SOCKET", &socket.display()),
                ("NODE", &home.display()),
            ],
        )?;
        let namespace = fill(
            include_str!("../../cluster/node/namespace.sh"),
            &[("NODE", &home.display()), ("SOCKET", &socket.display())],
        )?;
        let files = Self {
            namespace: home.join("namespace.sh"),
            containerd: home.join("containerd.toml"),
            kubelet: home.join("kubelet.yaml"),
        };
        write(&files.containerd, containerd)?;
        write(&files.kubelet, kubelet)?;
        write(&files.namespace, namespace)?;
        std::fs::set_permissions(&files.namespace, std::fs::Permissions::from_mode(0o755))?;
        Ok(files)
    }
}

fn home(folder: &Folder, node: &str) -> PathBuf {
    folder.join(node)
}

fn socket(folder: &Folder, node: &str) -> PathBuf {
    home(folder, node).join("containerd.sock")
}

/// containerd looks for its shim, and the kubelet for mount tools, on the `PATH`.
fn search_path(programs: &Programs) -> Result<OsString> {
    let own = programs
        .path("containerd-shim-runc-v2")?
        .parent()
        .context("a program has a folder")?;
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(own.to_owned()).chain(std::env::split_paths(&inherited));
    Ok(std::env::join_paths(folders)?)
}

/// The images that every node has.
fn images(folder: &Folder, programs: &Programs) -> Result<Vec<PathBuf>> {
    let images = folder.join("images");
    make_dir(&images)?;
    let program = programs.path("workload")?;
    let entrypoint = |arguments: &[&str]| {
        std::iter::once("/bin/workload")
            .chain(arguments.iter().copied())
            .map(str::to_owned)
            .collect()
    };
    [
        (pause_image(), entrypoint(&["pause"]), "pause"),
        (workload_image(), entrypoint(&[]), "workload"),
    ]
    .into_iter()
    .map(|(reference, entrypoint, name)| {
        let image = Image {
            reference,
            entrypoint,
            files: vec![("bin/workload".into(), program.to_owned())],
        };
        let archive = images.join(format!("{name}.tar"));
        let file =
            std::fs::File::create(&archive).with_context(|| format!("making {}", archive.display()))?;
        image.write(file)?;
        Ok(archive)
    })
    .collect()
}

/// In the node's mount namespace, where the snapshots are.
fn load_images(programs: &Programs, socket: &Path, runtime: u32, archives: &[PathBuf]) -> Result<()> {
    for archive in archives {
        let output = Command::new("nsenter")
            .args(["--mount", "--target"])
            .arg(runtime.to_string())
            .arg(programs.path("ctr")?)
            .arg("--address")
            .arg(socket)
            .args(["--namespace", "k8s.io", "images", "import", "--local"])
            .arg(archive)
            .output()
            .context("running nsenter ctr")?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            bail!("importing {}: {}", archive.display(), message.trim());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::{Level, site::site_for_test};

    #[test]
    fn a_nodes_files_are_filled_in_and_fit_together() {
        let root = tempfile::tempdir().unwrap();
        let site = site_for_test(root.path(), Level::Node);
        let programs = Programs::of(&["bridge", "runc"]);
        let files = Files::write(&site, &programs, &site.nodes[0], "outrigger-dev-node-0").unwrap();
        let home = site.folder.path().join("node-0");
        let socket = home.join("containerd.sock");

        let kubelet: Value =
            serde_saphyr::from_str(&std::fs::read_to_string(&files.kubelet).unwrap()).unwrap();
        assert_eq!(kubelet["address"], "10.88.7.1");
        assert_eq!(kubelet["port"], 7);
        assert_eq!(kubelet["cgroupRoot"], "/outrigger-dev-node-0");
        assert_eq!(
            kubelet["containerRuntimeEndpoint"],
            format!("unix://{}", socket.display())
        );
        assert_eq!(
            kubelet["tlsCertFile"],
            site.pki.certificate("node-0").display().to_string()
        );

        let network = std::fs::read(site.folder.join("cni").join("10-outrigger.conflist")).unwrap();
        let network: Value = serde_json::from_slice(&network).unwrap();
        let range = json!([[{"subnet": "10.88.7.0/24", "rangeStart": "10.88.7.10", "gateway": "10.88.7.1"}]]);
        assert_eq!(network["plugins"][0]["ipam"]["ranges"], range);
        assert_eq!(network["plugins"][0]["bridge"], "outrigger7");

        let containerd = std::fs::read_to_string(&files.containerd).unwrap();
        assert!(containerd.contains(&format!("address = '{}'", socket.display())));
        assert!(containerd.contains("BinaryName = '/programs/runc'"));
        let mode = std::fs::metadata(&files.namespace).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "the script can be run");
    }

    #[test]
    fn a_socket_with_too_long_a_path_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let site = site_for_test(&root.path().join("x".repeat(90)), Level::Node);
        let programs = Programs::of(&["bridge", "runc"]);
        let error = Files::write(&site, &programs, &site.nodes[0], "c")
            .err()
            .unwrap()
            .to_string();
        assert!(error.ends_with("set OUTRIGGER_CACHE to a shorter one"), "{error}");
    }
}
