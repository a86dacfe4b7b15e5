//! VPA's own manifests, in which only the names of the images are changed.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use common::api::k8s::{ByteString, ObjectMeta, Pod, Secret};
use kube::{Api, ResourceExt as _, api::PostParams};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::Value;

use super::{
    super::{World, install_crds},
    DAEMONS, Kubectl, Look, NAMESPACE, documents, hurry, log, metrics, pods_of, refused, running, works,
};
use crate::daemon::Daemon;

const MANIFESTS: &str = include_str!("../../../../cluster/manifests/upstream-vpa.yaml");
/// How often a daemon looks at what it may not read.
const A_LOOK: Duration = Duration::from_secs(60);
/// What is logged once where SidecarSets may not be read.
const INERT: &str = "SidecarSets play no part";

pub(super) async fn by_upstream_manifests(world: &World) -> Result<()> {
    install_crds(world).await?;
    certificates(world).await?;
    let mut objects = documents(MANIFESTS)?;
    for object in &mut objects {
        let image = object.pointer_mut("/spec/template/spec/containers/0/image");
        if let Some(Value::String(image)) = image {
            *image = ours(image)?.image_name();
        }
    }
    hurry(&mut objects);
    let begun = Instant::now();
    Kubectl::find(world).await?.apply(&objects).await?;
    running(world).await?;
    works(world, &["app"]).await?;

    for (name, port) in DAEMONS {
        for pod in pods_of(world, name).await? {
            if name == "vpa-recommender" {
                let refused = refused(&metrics(world, &pod, port).await?);
                ensure!(
                    refused == 0,
                    "{name} was refused {refused} times for want of a right"
                );
                continue;
            }
            let (shown, log) = once_refused(world, &pod, port).await?;
            let refused = refused(&shown);
            let looks = 1 + begun.elapsed().as_secs() / A_LOOK.as_secs();
            // Admission may not read either what injection might have left in the CRD of SidecarSets.
            let kinds = if name == "vpa-admission-controller" { 2 } else { 1 };
            ensure!(
                (1..=kinds * looks).contains(&refused),
                "{name} was refused {refused} times, where SidecarSets may not be read"
            );
            let said = log.matches(INERT).count();
            ensure!(
                said == 1,
                "that SidecarSets may not be read is said {said} times: {log}"
            );
        }
    }
    Ok(())
}

/// What a daemon shows and has logged when it has learnt that it may not read SidecarSets. Where the machine is so busy that a
/// probe or a lease ran out, it has been restarted and begins anew.
async fn once_refused(world: &World, pod: &Pod, port: u16) -> Result<(String, String)> {
    let gauge = r#"outrigger_watch_forbidden{watch="SidecarSets"} 1"#;
    let what = format!("{} shows {gauge}", pod.name_any());
    world
        .until(&what, async || {
            let shown = metrics(world, pod, port).await?;
            let log = log(world, pod).await.unwrap_or_default();
            Ok(if shown.contains(gauge) && log.contains(INERT) {
                Look::Done((shown, log))
            } else {
                Look::NotYet(log)
            })
        })
        .await
}

fn ours(image: &str) -> Result<Daemon> {
    let name = image.rsplit('/').next().unwrap_or_default();
    let name = name.split(':').next().unwrap_or_default();
    Ok(match name {
        "vpa-recommender" => Daemon::Recommender,
        "vpa-updater" => Daemon::Updater,
        "vpa-admission-controller" => Daemon::Admission,
        _ => anyhow::bail!("{image} is none of VPA's images"),
    })
}

/// The secret that VPA's script makes: a CA of its own and a certificate for the Service.
async fn certificates(world: &World) -> Result<()> {
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate()?;
    let ca_pem = ca.self_signed(&ca_key)?.pem();
    let ca_key_pem = ca_key.serialize_pem();
    let key = KeyPair::generate()?;
    let server = CertificateParams::new([format!("vpa-webhook.{NAMESPACE}.svc")])?
        .signed_by(&key, &Issuer::new(ca, ca_key))?;
    let data = [
        ("caKey.pem", ca_key_pem),
        ("caCert.pem", ca_pem),
        ("serverKey.pem", key.serialize_pem()),
        ("serverCert.pem", server.pem()),
    ];
    let data = data.map(|(name, pem)| (name.to_owned(), ByteString(pem.into_bytes())));
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some("vpa-tls-certs".to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from(data)),
        ..Secret::default()
    };
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), NAMESPACE);
    secrets
        .create(&PostParams::default(), &secret)
        .await
        .context("creating the secret")?;
    Ok(())
}
