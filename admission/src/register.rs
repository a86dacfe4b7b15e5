//! Tells the API server of the webhook (`spec/vpa.md` 4.2): the configuration is created or changed, never deleted, so
//! that there is no moment without it. Only what mode `inject` has registered goes when that is no longer the mode.

use std::{sync::Arc, time::Duration};

use common::{
    api::k8s::{
        ByteString, CustomResourceDefinition, LabelSelector, LabelSelectorRequirement, MatchCondition,
        MutatingWebhook, MutatingWebhookConfiguration, ObjectMeta, RuleWithOperations, WebhookClientConfig,
    },
    daemon::{Handles, Namespaces, Part},
    quirks::{Quirk, Quirks},
    sidecarset::record::HASH,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::watch;

use crate::{
    config::{Client, Webhook},
    pod::Reinvocation,
    sidecarset::register as sidecarset,
    tls::{self, Material},
};

const WEBHOOK: &str = "vpa.k8s.io";
/// How often it is looked at whether the configuration is still there.
const POLL: Duration = Duration::from_secs(60);
/// How soon it is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// How long after its start a replica looks for what others of mode `inject` have registered: so long these may still run,
/// and register again. Not for ever, so that replicas with different flags do not fight.
const ROLLOUT: Duration = Duration::from_secs(600);

/// A pod that no controller has, or that the node has, never is a VPA's; a SidecarSet may have injected any. The answer for
/// other objects comes first, so that a pod's field is never looked for in them.
fn may_be_sized() -> String {
    format!(
        "request.resource.resource != 'pods' || (has(object.metadata.ownerReferences) && \
         object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller && o.kind != 'Node')) || \
         (has(object.metadata.annotations) && '{HASH}' in object.metadata.annotations)"
    )
}

/// What the configuration is made from.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub(crate) webhook: Webhook,
    pub(crate) namespaces: Namespaces,
    pub(crate) reinvocation: Reinvocation,
    pub(crate) quirks: Quirks,
    /// The namespaces whose pods are not injected, where others are.
    pub(crate) excluded: Option<Vec<String>>,
}

impl Registration {
    /// The configurations as they should be.
    fn configurations(&self, ca_bundle: &[u8]) -> Vec<MutatingWebhookConfiguration> {
        let injects = self.excluded.as_ref();
        let injects = injects
            .map(|excluded| sidecarset::configuration(&self.webhook, &self.namespaces, excluded, ca_bundle));
        injects
            .into_iter()
            .chain([self.configuration(ca_bundle)])
            .collect()
    }

    /// The configuration for VPAs and the pods they control, as it should be.
    fn configuration(&self, ca_bundle: &[u8]) -> MutatingWebhookConfiguration {
        let Webhook {
            client,
            timeout_seconds,
            fail,
            labels,
            configuration,
            sidecarset_configuration: _,
            register: _,
        } = &self.webhook;
        let mut client_config = WebhookClientConfig {
            ca_bundle: Some(ByteString(ca_bundle.to_vec())),
            ..WebhookClientConfig::default()
        };
        match client {
            Client::Service(service) => client_config.service = Some(service.clone()),
            Client::Url(url) => client_config.url = Some(url.clone()),
        }
        let webhook = MutatingWebhook {
            name: WEBHOOK.to_owned(),
            admission_review_versions: vec!["v1".to_owned()],
            client_config,
            failure_policy: Some(if *fail { "Fail" } else { "Ignore" }.to_owned()),
            match_conditions: Some(vec![MatchCondition {
                name: "may-be-sized".to_owned(),
                expression: may_be_sized(),
            }]),
            namespace_selector: self.namespace_selector(),
            reinvocation_policy: Some(self.reinvocation.name().to_owned()),
            rules: Some(vec![
                rule(&["CREATE"], "", "v1", "pods"),
                rule(
                    &["CREATE", "UPDATE"],
                    "autoscaling.k8s.io",
                    "*",
                    "verticalpodautoscalers",
                ),
            ]),
            side_effects: "None".to_owned(),
            timeout_seconds: Some(*timeout_seconds),
            ..MutatingWebhook::default()
        };
        MutatingWebhookConfiguration {
            metadata: ObjectMeta {
                name: Some(configuration.clone()),
                labels: (!labels.is_empty()).then(|| labels.clone()),
                ..ObjectMeta::default()
            },
            webhooks: Some(vec![webhook]),
        }
    }

    fn namespace_selector(&self) -> Option<LabelSelector> {
        let by_name = |operator: &str, names: Vec<String>| LabelSelector {
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: "kubernetes.io/metadata.name".to_owned(),
                operator: operator.to_owned(),
                values: Some(names),
            }]),
            ..LabelSelector::default()
        };
        match &self.namespaces {
            Namespaces::Except(ignored) => Some(by_name("NotIn", ignored.iter().cloned().collect())),
            _ if self.quirks.has(Quirk::WebhookIgnoresNamespace) => {
                Some(by_name("NotIn", vec![String::new()]))
            }
            Namespaces::Only(namespace) => Some(by_name("In", vec![namespace.clone()])),
            Namespaces::All => None,
        }
    }
}

fn rule(operations: &[&str], group: &str, version: &str, resource: &str) -> RuleWithOperations {
    RuleWithOperations {
        operations: Some(operations.iter().map(|&operation| operation.to_owned()).collect()),
        api_groups: Some(vec![group.to_owned()]),
        api_versions: Some(vec![version.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        scope: None,
    }
}

/// How much of what is there is put right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Care {
    /// All of it: on starting, and when the certificate changes.
    Everything,
    /// That it is there and trusts us. Two replicas with different flags, as in a rollout, do not fight over the rest.
    Trust,
}

/// Registers the webhook and keeps it registered until shutdown is requested.
pub(crate) async fn keep(
    registration: Registration,
    mut current: tls::Current,
    handles: Handles,
    part: Part,
    registered: watch::Sender<bool>,
) {
    let shutdown = handles.shutdown.clone();
    let keeping = async {
        let Some(mut material) = tls::first(&mut current).await else {
            return;
        };
        let mut failed = false;
        let mut care = Care::Everything;
        let begun = handles.clock.moment();
        loop {
            if registration.excluded.is_some() {
                convert(&handles.client, &registration, &material, &mut failed).await;
            } else if handles.clock.moment().since(begun) <= ROLLOUT {
                withdrawn(&handles.client, &registration.webhook, &mut failed).await;
            }
            let pause = match put_all_right(&handles.client, &registration, &material, care).await {
                Ok(()) => {
                    part.ready();
                    registered.send_replace(true);
                    care = Care::Trust;
                    POLL
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot register the webhook; trying again");
                    RETRY
                }
            };
            tokio::select! {
                () = handles.clock.sleep(pause) => {}
                changed = current.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    if let Some(next) = current.borrow_and_update().clone() {
                        material = next;
                        care = Care::Everything;
                    }
                }
            }
        }
    };
    tokio::select! {
        () = keeping => {}
        () = shutdown.requested() => {}
    }
}

async fn put_all_right(
    client: &kube::Client,
    registration: &Registration,
    material: &Arc<Material>,
    care: Care,
) -> kube::Result<()> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    for wanted in registration.configurations(&material.ca_bundle) {
        put_right(&api, &wanted, care).await?;
    }
    Ok(())
}

/// Names us for the conversion of SidecarSets, whose older version loses its namespace without one. That we cannot is said
/// once.
async fn convert(
    client: &kube::Client,
    registration: &Registration,
    material: &Arc<Material>,
    failed: &mut bool,
) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let patch = sidecarset::conversion(&registration.webhook, &material.ca_bundle);
    match api
        .patch(
            sidecarset::DEFINITION,
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
    {
        Ok(_) => *failed = false,
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => {
            if !*failed {
                tracing::warn!(%error, "cannot register the conversion of SidecarSets; use apps.kruise.io/v1beta1 only");
            }
            *failed = true;
        }
    }
}

/// Takes back what mode `inject` has registered, where that is no longer the mode: pods would go on to need an answer. That we
/// cannot is said once.
async fn withdrawn(client: &kube::Client, webhook: &Webhook, failed: &mut bool) {
    let name = &webhook.sidecarset_configuration;
    match withdraw(client, webhook).await {
        Ok(()) => *failed = false,
        Err(error) => {
            if !*failed {
                tracing::warn!(
                    %error,
                    "cannot take back what --sidecarset-mode=inject has registered; see kubectl delete \
                     mutatingwebhookconfiguration {name}, and spec.conversion of {}",
                    sidecarset::DEFINITION
                );
            }
            *failed = true;
        }
    }
}

async fn withdraw(client: &kube::Client, webhook: &Webhook) -> kube::Result<()> {
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let name = &webhook.sidecarset_configuration;
    if configurations.get_opt(name).await?.is_some() {
        match configurations.delete(name, &DeleteParams::default()).await {
            Ok(_) => tracing::info!(configuration = name, "SidecarSets are not injected any more"),
            // Another replica was faster.
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = match definitions.get_opt(sidecarset::DEFINITION).await {
        // Who may not read it has not written it.
        Err(kube::Error::Api(status)) if status.is_forbidden() => None,
        answer => answer?,
    };
    if let Some(definition) = definition.filter(|definition| sidecarset::converts(definition, webhook)) {
        let patch = Patch::Merge(sidecarset::no_conversion(&definition));
        definitions
            .patch(sidecarset::DEFINITION, &PatchParams::default(), &patch)
            .await?;
        tracing::info!("SidecarSets are not converted any more");
    }
    Ok(())
}

async fn put_right(
    api: &Api<MutatingWebhookConfiguration>,
    wanted: &MutatingWebhookConfiguration,
    care: Care,
) -> kube::Result<()> {
    let name = wanted.metadata.name.as_deref().unwrap_or_default();
    let Some(found) = api.get_opt(name).await? else {
        api.create(&PostParams::default(), wanted).await?;
        tracing::info!(configuration = name, "registered the webhook");
        return Ok(());
    };
    let trusts = trusts(&found, wanted);
    if care == Care::Trust && trusts {
        return Ok(());
    }
    // Patched, not updated: VPA's role allows the one and not the other. The version keeps two replicas apart.
    let mut patch = json!({
        "metadata": {"resourceVersion": found.metadata.resource_version},
        "webhooks": wanted.webhooks,
    });
    // Labels that somebody else has put there stay.
    if let (Some(labels), Some(metadata)) = (&wanted.metadata.labels, patch.get_mut("metadata")) {
        metadata["labels"] = json!(labels);
    }
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    if trusts {
        tracing::info!(configuration = name, "registered the webhook");
    } else {
        tracing::info!("Successfully patched webhook with new client CA");
    }
    Ok(())
}

fn trusts(found: &MutatingWebhookConfiguration, wanted: &MutatingWebhookConfiguration) -> bool {
    let bundle = |configuration: &MutatingWebhookConfiguration, name: &str| {
        let mut webhooks = configuration.webhooks.iter().flatten();
        let ours = webhooks.find(|webhook| webhook.name == name);
        ours.and_then(|webhook| webhook.client_config.ca_bundle.clone())
    };
    let mut webhooks = wanted.webhooks.iter().flatten();
    webhooks.all(|webhook| bundle(found, &webhook.name) == webhook.client_config.ca_bundle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn registration() -> Registration {
        Registration {
            webhook: Webhook::default(),
            namespaces: Namespaces::All,
            reinvocation: Reinvocation::IfNeeded,
            quirks: Quirks::none(),
            excluded: None,
        }
    }

    fn webhook(registration: &Registration) -> Value {
        let configuration = serde_json::to_value(registration.configuration(b"CA")).unwrap();
        configuration["webhooks"][0].clone()
    }

    #[test]
    fn the_configuration_is_vpa_s_and_what_we_add() {
        let configuration = serde_json::to_value(registration().configuration(b"CA")).unwrap();
        let expected = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "vpa-webhook-config"},
            "webhooks": [{
                "name": "vpa.k8s.io",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {
                    "caBundle": "Q0E=",
                    "service": {"namespace": "kube-system", "name": "vpa-webhook"},
                },
                "failurePolicy": "Ignore",
                "matchConditions": [{"name": "may-be-sized", "expression": may_be_sized()}],
                "reinvocationPolicy": "IfNeeded",
                "rules": [
                    {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]},
                    {"operations": ["CREATE", "UPDATE"], "apiGroups": ["autoscaling.k8s.io"], "apiVersions": ["*"],
                     "resources": ["verticalpodautoscalers"]},
                ],
                "sideEffects": "None",
                "timeoutSeconds": 30,
            }],
        });
        assert_eq!(configuration, expected);
    }

    #[test]
    fn the_flags_show() {
        let mut registration = registration();
        registration.webhook = Webhook {
            client: Client::Url("https://127.0.0.1:1".to_owned()),
            timeout_seconds: 5,
            fail: true,
            ..Webhook::default()
        };
        registration.reinvocation = Reinvocation::Never;
        let webhook = webhook(&registration);
        assert_eq!(
            webhook["clientConfig"],
            json!({"caBundle": "Q0E=", "url": "https://127.0.0.1:1"})
        );
        assert_eq!(webhook["failurePolicy"], "Fail");
        assert_eq!(webhook["timeoutSeconds"], 5);
        assert_eq!(webhook["reinvocationPolicy"], "Never");
    }

    #[test]
    fn namespaces_are_selected_as_the_flags_say_and_with_the_quirk_as_vpa_does() {
        let none = Namespaces::All;
        let only = Namespaces::Only("shop".into());
        let except = Namespaces::Except(["a".into(), "b".into()].into());
        let quirk = Quirks::none().with(Quirk::WebhookIgnoresNamespace);
        for (namespaces, quirks, expected) in [
            (&none, Quirks::none(), Value::Null),
            (&only, Quirks::none(), json!(["In", ["shop"]])),
            (&except, Quirks::none(), json!(["NotIn", ["a", "b"]])),
            (&none, quirk, json!(["NotIn", [""]])),
            (&only, quirk, json!(["NotIn", [""]])),
            (&except, quirk, json!(["NotIn", ["a", "b"]])),
        ] {
            let registration = Registration {
                namespaces: namespaces.clone(),
                quirks,
                ..registration()
            };
            let selector = &webhook(&registration)["namespaceSelector"]["matchExpressions"][0];
            let found = match selector {
                Value::Null => Value::Null,
                selector => json!([selector["operator"], selector["values"]]),
            };
            assert_eq!(found, expected, "{namespaces:?} {quirks}");
        }
    }

    #[test]
    fn only_the_same_bundle_is_trust() {
        let wanted = registration().configuration(b"old and new");
        assert!(trusts(&wanted, &wanted));
        assert!(!trusts(&registration().configuration(b"old"), &wanted));
        assert!(!trusts(&MutatingWebhookConfiguration::default(), &wanted));
    }

    #[tokio::test]
    async fn nothing_is_left_of_injection_where_it_is_not_the_mode() {
        let asked: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
        let heard = Arc::clone(&asked);
        let ours = sidecarset::conversion(&Webhook::default(), b"CA");
        let service = tower::service_fn(move |request: axum::http::Request<kube::client::Body>| {
            let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
            let name = path.rsplit('/').next().unwrap_or_default().to_owned();
            heard.lock().unwrap().push(format!("{method} {name}"));
            let body = match (method.as_str(), name.as_str()) {
                ("DELETE", _) => json!({"kind": "Status", "status": "Success"}),
                (_, sidecarset::DEFINITION) => {
                    let names = json!({"kind": "SidecarSet", "plural": "sidecarsets"});
                    let mut definition = json!({"metadata": {"name": name}, "spec": {
                        "group": "apps.kruise.io", "names": names, "scope": "Cluster", "versions": [],
                    }});
                    json_patch::merge(&mut definition, &ours);
                    definition
                }
                _ => json!({"metadata": {"name": name}, "webhooks": []}),
            };
            let body = kube::client::Body::from(body.to_string().into_bytes());
            async move { axum::http::Response::builder().body(body) }
        });
        let client = kube::Client::new(service, "default");
        withdraw(&client, &Webhook::default()).await.unwrap();
        assert_eq!(
            *asked.lock().unwrap(),
            [
                "GET outrigger-sidecarset-webhook-config",
                "DELETE outrigger-sidecarset-webhook-config",
                "GET sidecarsets.apps.kruise.io",
                "PATCH sidecarsets.apps.kruise.io",
            ]
        );
    }

    #[tokio::test]
    async fn it_is_created_or_patched_and_never_deleted() {
        let api = crate::testing::OneObject::new(1);
        let client = api.client();
        let made = |ca: &[u8]| {
            let made = rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap();
            let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
            let mut material =
                Material::parse(certificate.as_bytes(), certificate.as_bytes(), key.as_bytes()).unwrap();
            material.ca_bundle = ca.to_vec();
            Arc::new(material)
        };
        let (old, new) = (made(b"old"), made(b"old and new"));
        let mut registration = registration();
        let bundle = || api.object().unwrap()["webhooks"][0]["clientConfig"]["caBundle"].clone();

        put_all_right(&client, &registration, &old, Care::Everything)
            .await
            .unwrap();
        assert_eq!(bundle(), "b2xk");
        put_all_right(&client, &registration, &old, Care::Trust)
            .await
            .unwrap();
        assert_eq!(api.asked(), ["GET", "POST", "GET"], "what is right is left alone");

        put_all_right(&client, &registration, &new, Care::Trust)
            .await
            .unwrap();
        assert_eq!(bundle(), "b2xkIGFuZCBuZXc=");

        let labels = json!({"metadata": {
            "resourceVersion": api.object().unwrap()["metadata"]["resourceVersion"], "labels": {"team": "x"},
        }});
        let params = PatchParams::default();
        Api::<MutatingWebhookConfiguration>::all(client.clone())
            .patch("x", &params, &Patch::Merge(labels))
            .await
            .unwrap();
        registration.webhook.labels = [("ours".to_owned(), "y".to_owned())].into();

        // Another replica's flags count when it starts, and not each time it looks.
        registration.webhook.timeout_seconds = 7;
        put_all_right(&client, &registration, &new, Care::Trust)
            .await
            .unwrap();
        assert_eq!(api.object().unwrap()["webhooks"][0]["timeoutSeconds"], 30);
        put_all_right(&client, &registration, &new, Care::Everything)
            .await
            .unwrap();
        let object = api.object().unwrap();
        assert_eq!(object["webhooks"][0]["timeoutSeconds"], 7);
        assert_eq!(object["metadata"]["labels"], json!({"team": "x", "ours": "y"}));
        assert_eq!(
            api.asked(),
            [
                "GET", "POST", "GET", "GET", "PATCH", "PATCH", "GET", "GET", "PATCH"
            ]
        );
    }
}
