//! metrics-server beside a cluster with nodes, behind the API server's aggregation layer.

use anyhow::{Context as _, Result};
use k8s_openapi::{ByteString, kube_aggregator::pkg::apis::apiregistration::v1::APIService};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};

use super::{
    control_plane::{flag, path},
    launch::Launch,
    pki::CA,
    site::Site,
    state::Stage,
    template::fill,
};

const NAME: &str = "metrics-server";

/// Registers it and starts it.
///
/// # Errors
/// When the API server refuses its objects.
pub(super) async fn start(launch: &mut Launch, client: &Client) -> Result<()> {
    let site = &launch.site;
    let authority = site.pki.certificate(CA);
    let bundle = std::fs::read(&authority).with_context(|| format!("reading {}", authority.display()))?;
    for object in objects(site, bundle)? {
        apply(client, &object).await?;
    }
    let mut command = launch.programs.command(NAME)?;
    command.args(arguments(site));
    launch.start(NAME, Stage::Controllers, command)?;
    Ok(())
}

/// Waits until the API server passes requests to it.
///
/// # Errors
/// When it ends or takes too long.
pub(super) async fn wait(launch: &Launch, client: &Client) -> Result<()> {
    let services = Api::<APIService>::all(client.clone());
    let available = || async {
        let service = services.get("v1beta1.metrics.k8s.io").await.ok();
        let conditions = service
            .and_then(|service| service.status?.conditions)
            .unwrap_or_default();
        conditions
            .iter()
            .any(|condition| condition.type_ == "Available" && condition.status == "True")
    };
    launch.wait(NAME, available).await
}

fn arguments(site: &Site) -> Vec<String> {
    let kubeconfig = &site.kubeconfig(NAME);
    let (certificate, key) = (&site.pki.certificate(NAME), &site.pki.key(NAME));
    vec![
        path("kubeconfig", kubeconfig),
        path("authentication-kubeconfig", kubeconfig),
        path("authorization-kubeconfig", kubeconfig),
        flag("bind-address", site.addresses.gateway()),
        flag("secure-port", site.addresses.metrics_server),
        path("tls-cert-file", certificate),
        path("tls-private-key-file", key),
        path("kubelet-certificate-authority", &site.pki.certificate(CA)),
        path("kubelet-client-certificate", certificate),
        path("kubelet-client-key", key),
        flag("kubelet-preferred-address-types", "InternalIP"),
        flag("kubelet-use-node-status-port", true),
        // Short, so that tests wait little; but the time-out may be nine tenths of it at most, and a kubelet on a busy machine
        // takes more than 5 s to tell what pods use.
        flag("metric-resolution", "15s"),
        flag("kubelet-request-timeout", "13s"),
    ]
}

fn objects(site: &Site, authority: Vec<u8>) -> Result<Vec<DynamicObject>> {
    let manifest = fill(
        include_str!("../../cluster/manifests/metrics-server.yaml"),
        &[
            ("PORT", &site.addresses.metrics_server),
            ("GATEWAY", &site.addresses.gateway()),
            ("CA_BUNDLE", &serde_json::to_string(&ByteString(authority))?),
        ],
    )?;
    serde_saphyr::from_multiple(&manifest).context("reading the manifest of metrics-server")
}

/// Applies an object whose kind has a regular plural.
async fn apply(client: &Client, object: &DynamicObject) -> Result<()> {
    let types = object.types.as_ref().context("an object has a kind")?;
    let name = object.metadata.name.as_deref().context("an object has a name")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types)?);
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.patch(
        name,
        &PatchParams::apply("outrigger-cluster").force(),
        &Patch::Apply(object),
    )
    .await
    .with_context(|| format!("applying {} {name}", types.kind))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Level, site::site_for_test};

    #[test]
    fn the_service_leads_to_where_it_listens() {
        let folder = tempfile::tempdir().unwrap();
        let site = site_for_test(folder.path(), Level::Node);
        let objects = objects(&site, b"pem".to_vec()).unwrap();
        let of = |kind: &str| {
            let is = |object: &&DynamicObject| object.types.as_ref().is_some_and(|types| types.kind == kind);
            &objects.iter().find(is).unwrap().data
        };
        assert_eq!(of("EndpointSlice")["endpoints"][0]["addresses"][0], "10.88.7.1");
        assert_eq!(of("EndpointSlice")["ports"][0]["port"], 6);
        assert_eq!(
            of("Service")["spec"]["ports"][0]["name"],
            of("EndpointSlice")["ports"][0]["name"]
        );
        assert_eq!(of("APIService")["spec"]["caBundle"], "cGVt");
        let arguments = arguments(&site);
        assert!(arguments.contains(&"--bind-address=10.88.7.1".to_owned()));
        assert!(arguments.contains(&"--secure-port=6".to_owned()));
    }
}
