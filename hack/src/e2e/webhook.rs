//! A webhook server for scenarios: real TLS on loopback with a certificate of its own.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result};
use axum::{Json, Router, routing::post};
use axum_server::tls_rustls::RustlsConfig;
use k8s_openapi::{ByteString, api::admissionregistration::v1::MutatingWebhookConfiguration};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use super::World;

/// A running webhook; dropping it stops it.
pub(super) struct Webhook {
    /// Where the API server calls it.
    pub(super) url: String,
    /// What its certificate is checked with, in base64.
    pub(super) ca_bundle: Value,
    stop: axum_server::Handle<SocketAddr>,
}

impl Webhook {
    /// Serves `answer`, which takes an AdmissionReview and gives a response with the patch as a JSON array.
    ///
    /// # Errors
    /// When no port is free.
    pub(super) async fn serve(answer: fn(&Value) -> Value) -> Result<Self> {
        let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let pem = certificate.cert.pem();
        let tls = RustlsConfig::from_pem(
            pem.clone().into_bytes(),
            certificate.signing_key.serialize_pem().into_bytes(),
        )
        .await?;
        let router = Router::new().fallback(post(async move |Json(review): Json<Value>| {
            Json(respond(&review, answer(&review)))
        }));
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let stop = axum_server::Handle::new();
        let server = axum_server::bind_rustls(address, tls)
            .handle(stop.clone())
            .serve(router.into_make_service());
        tokio::spawn(server);
        let bound = stop.listening().await.context("no port for a webhook")?;
        Ok(Self {
            url: format!("https://{bound}/"),
            ca_bundle: serde_json::to_value(ByteString(pem.into_bytes()))?,
            stop,
        })
    }

    /// Has it asked for the new pods of the scenario's namespace, after the configurations whose names come before this one.
    ///
    /// # Errors
    /// When the configuration is refused.
    pub(super) async fn register_for_pods(&self, world: &World, configuration: &str) -> Result<()> {
        let registered = serde_json::from_value(json!({
            "metadata": {"name": configuration},
            "webhooks": [{
                "name": "injector.e2e.outrigger.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": {"url": self.url, "caBundle": self.ca_bundle},
                "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
            }],
        }))?;
        Api::<MutatingWebhookConfiguration>::all(world.client.clone())
            .create(&PostParams::default(), &registered)
            .await
            .context("registering the injector")?;
        Ok(())
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.stop.shutdown();
    }
}

fn respond(review: &Value, mut response: Value) -> Value {
    if let Some(patch) = response.get_mut("patch") {
        *patch = json!(ByteString(patch.to_string().into_bytes()));
        response["patchType"] = json!("JSONPatch");
    }
    response["uid"] = review["request"]["uid"].clone();
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}
