//! The admission component as a process, with VPA's flags: its certificate files change under it, and it is killed.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
};

use anyhow::{Result, ensure};
use futures::FutureExt as _;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;
use tempfile::TempDir;

use super::super::super::{Look, Need, Scenario, World};
use super::{Owner, configuration, first_requests, install_crds, unregister, vpa};
use crate::daemon::{Daemon, Process};

pub(super) fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "admission-reloads-and-is-killed",
        about: "a process with VPA's flags reloads its leaf and CA certificate from files and goes on; killed without a \
                chance to clean up, it keeps nobody from creating pods",
        needs: &[Need::NoControllers, Need::LocalWebhooks],
        run: |world| reloads(world).boxed_local(),
    }]
}

async fn reloads(world: &World) -> Result<()> {
    install_crds(world).await?;
    let result = reloaded(world).await;
    result.and(unregister(world, &configuration(world)).await)
}

async fn reloaded(world: &World) -> Result<()> {
    let owner = Owner::create(world, "web").await?;
    let sized = json!({"cpu": "30m", "memory": "40Mi"});
    let targets = json!([{"containerName": "app", "target": sized}]);
    vpa(world, "web", "ReplicaSet", json!({}), &targets).await?;
    let before = json!({"cpu": "10m", "memory": "16Mi"});
    let spec = json!({"containers": [{"name": "app", "resources": {"requests": before}}]});

    let (process, files) = start(world).await?;
    let is_sized = |pod: &serde_json::Value| first_requests(pod, &sized);
    owner.until(world, "pods are sized", &spec, is_sized).await?;

    files.write()?;
    // The words that VPA's own test looks for.
    for words in [
        "New certificate found, reloading",
        "New client CA found, reloading and patching webhook",
        "Successfully patched webhook with new client CA",
    ] {
        world
            .until(words, async || {
                Ok(match process.logged(words) {
                    Some(_) => Look::Done(()),
                    None => Look::NotYet(format!("{:?}", process.log().last())),
                })
            })
            .await?;
    }
    owner
        .until(world, "pods are sized with the new certificate", &spec, is_sized)
        .await?;

    process.kill().await?;
    let pod = owner.pod(world, &spec).await?;
    let pod = pod.map_err(|refused| anyhow::anyhow!("refused while the webhook is gone: {refused}"))?;
    ensure!(
        first_requests(&pod, &before).is_ok(),
        "sized by nobody: {}",
        pod["spec"]["containers"]
    );
    Ok(())
}

/// Starts it with VPA's flags, registered for the scenario's namespace.
pub(in super::super) async fn start(world: &World) -> Result<(Process, Files)> {
    let files = Files::new()?;
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let flag = |name: &str, value: &dyn std::fmt::Display| format!("--{name}={value}");
    let flags = [
        flag("client-ca-file", &files.ca.display()),
        flag("tls-cert-file", &files.certificate.display()),
        flag("tls-private-key", &files.key.display()),
        flag("port", &port),
        "--register-by-url".to_owned(),
        "--webhook-address=https://127.0.0.1".to_owned(),
        flag("webhook-port", &port),
        "--reload-cert".to_owned(),
        flag("webhook-config-name", &configuration(world)),
        flag("vpa-object-namespace", &world.namespace),
        flag("status-lease-namespace", &world.namespace),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut process = Process::start(Daemon::Admission, &world.kubeconfig, &flags).await?;
    process.ready().await?;
    Ok((process, files))
}

/// The three files of a certificate.
pub(in super::super) struct Files {
    _folder: TempDir,
    ca: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| -> PathBuf { Path::join(folder.path(), name) };
        let files = Self {
            ca: path("ca.crt"),
            certificate: path("srv.crt"),
            key: path("srv.key"),
            _folder: folder,
        };
        files.write()?;
        Ok(files)
    }

    /// Writes a new CA, and a certificate under it.
    fn write(&self) -> Result<()> {
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate()?;
        let ca_pem = ca.self_signed(&ca_key)?.pem();
        let key = KeyPair::generate()?;
        let issuer = Issuer::new(ca, ca_key);
        let certificate = CertificateParams::new(["127.0.0.1".to_owned()])?.signed_by(&key, &issuer)?;
        std::fs::write(&self.ca, ca_pem)?;
        std::fs::write(&self.certificate, certificate.pem())?;
        std::fs::write(&self.key, key.serialize_pem())?;
        Ok(())
    }
}
