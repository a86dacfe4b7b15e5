//! Tells the API server of the webhook (`spec/vpa.md` 4.2): the configuration is created or changed, never deleted, so
//! that there is no moment without it.

use std::{sync::Arc, time::Duration};

use common::{
    api::k8s::{
        ByteString, LabelSelector, LabelSelectorRequirement, MatchCondition, MutatingWebhook,
        MutatingWebhookConfiguration, ObjectMeta, RuleWithOperations, WebhookClientConfig,
    },
    daemon::{Handles, Namespaces, Part},
    quirks::{Quirk, Quirks},
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::watch;

use crate::{
    config::{Client, Webhook},
    pod::Reinvocation,
    tls::{self, Material},
};

const WEBHOOK: &str = "vpa.k8s.io";
/// How often it is looked at whether the configuration is still there.
const POLL: Duration = Duration::from_secs(60);
/// How soon it is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// A pod that no controller has, or that the node has, never is a VPA's. The answer for other objects comes first, so
/// that a pod's field is never looked for in them.
const CONTROLLED: &str = "request.resource.resource != 'pods' || (has(object.metadata.ownerReferences) && \
    object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller && o.kind != 'Node'))";

/// What the configuration is made from.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub(crate) webhook: Webhook,
    pub(crate) namespaces: Namespaces,
    pub(crate) reinvocation: Reinvocation,
    pub(crate) quirks: Quirks,
}

impl Registration {
    /// The configuration as it should be.
    fn configuration(&self, ca_bundle: &[u8]) -> MutatingWebhookConfiguration {
        let Webhook {
            client,
            timeout_seconds,
            fail,
            labels,
            configuration,
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
                name: "has-a-controller".to_owned(),
                expression: CONTROLLED.to_owned(),
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
        let api: Api<MutatingWebhookConfiguration> = Api::all(handles.client.clone());
        let mut care = Care::Everything;
        loop {
            let pause = match put_right(&api, &registration, &material, care).await {
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

async fn put_right(
    api: &Api<MutatingWebhookConfiguration>,
    registration: &Registration,
    material: &Arc<Material>,
    care: Care,
) -> kube::Result<()> {
    let wanted = registration.configuration(&material.ca_bundle);
    let name = registration.webhook.configuration.as_str();
    let Some(found) = api.get_opt(name).await? else {
        api.create(&PostParams::default(), &wanted).await?;
        tracing::info!(configuration = name, "registered the webhook");
        return Ok(());
    };
    let trusts = trusts(&found, &wanted);
    if care == Care::Trust && trusts {
        return Ok(());
    }
    // Patched, not updated: VPA's role allows the one and not the other. The version keeps two replicas apart.
    let patch = json!({
        "metadata": {
            "resourceVersion": found.metadata.resource_version,
            "labels": wanted.metadata.labels,
        },
        "webhooks": wanted.webhooks,
    });
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
    let bundle = |configuration: &MutatingWebhookConfiguration| {
        let mut webhooks = configuration.webhooks.iter().flatten();
        let ours = webhooks.find(|webhook| webhook.name == WEBHOOK);
        ours.and_then(|webhook| webhook.client_config.ca_bundle.clone())
    };
    bundle(found) == bundle(wanted)
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
                "matchConditions": [{"name": "has-a-controller", "expression": CONTROLLED}],
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
    async fn it_is_created_or_patched_and_never_deleted() {
        let api = crate::testing::OneObject::new(1);
        let configurations: Api<MutatingWebhookConfiguration> = Api::all(api.client());
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

        put_right(&configurations, &registration, &old, Care::Everything)
            .await
            .unwrap();
        assert_eq!(bundle(), "b2xk");
        put_right(&configurations, &registration, &old, Care::Trust)
            .await
            .unwrap();
        assert_eq!(api.asked(), ["GET", "POST", "GET"], "what is right is left alone");

        put_right(&configurations, &registration, &new, Care::Trust)
            .await
            .unwrap();
        assert_eq!(bundle(), "b2xkIGFuZCBuZXc=");

        // Another replica's flags count when it starts, and not each time it looks.
        registration.webhook.timeout_seconds = 7;
        put_right(&configurations, &registration, &new, Care::Trust)
            .await
            .unwrap();
        assert_eq!(api.object().unwrap()["webhooks"][0]["timeoutSeconds"], 30);
        put_right(&configurations, &registration, &new, Care::Everything)
            .await
            .unwrap();
        assert_eq!(api.object().unwrap()["webhooks"][0]["timeoutSeconds"], 7);
        assert_eq!(
            api.asked(),
            ["GET", "POST", "GET", "GET", "PATCH", "GET", "GET", "PATCH"]
        );
    }
}
