//! How the API server is told of what we do for SidecarSets: a webhook configuration of its own, called before VPA's by its
//! name, and the conversion between their versions in their definition.

use common::api::k8s::{
    ByteString, CustomResourceDefinition, LabelSelector, LabelSelectorRequirement, MutatingWebhook,
    MutatingWebhookConfiguration, ObjectMeta, RuleWithOperations, WebhookClientConfig,
};
use common::{daemon::Namespaces, sidecarset::matching::NAMESPACE_NAME};
use serde_json::{Value, json};

use crate::{
    config::{Client, Webhook},
    server::{CONVERT, INJECT},
};

/// The definition of SidecarSets.
pub(crate) const DEFINITION: &str = "sidecarsets.apps.kruise.io";
const DEFAULT: &str = "/mutate-apps-kruise-io-sidecarset";

/// The configuration. Without an answer there is no pod: one without its sidecars is worse. The namespaces that the cluster
/// and we ourselves need to come up are left out.
#[must_use]
pub fn configuration(
    webhook: &Webhook,
    namespaces: &Namespaces,
    excluded: &[String],
    ca_bundle: &[u8],
) -> MutatingWebhookConfiguration {
    let hook = |name: &str, path: &str, rule: RuleWithOperations| MutatingWebhook {
        name: name.to_owned(),
        admission_review_versions: vec!["v1".to_owned()],
        client_config: client_config(&webhook.client, path, ca_bundle),
        failure_policy: Some("Fail".to_owned()),
        rules: Some(vec![rule]),
        side_effects: "None".to_owned(),
        timeout_seconds: Some(webhook.timeout_seconds),
        ..MutatingWebhook::default()
    };
    let pods = MutatingWebhook {
        namespace_selector: Some(served(namespaces, excluded)),
        reinvocation_policy: Some("IfNeeded".to_owned()),
        ..hook(
            "mpod.sidecarset.outrigger.dev",
            INJECT,
            rule(&["CREATE"], "", "pods"),
        )
    };
    let sets = rule(&["CREATE", "UPDATE"], "apps.kruise.io", "sidecarsets");
    let labels = &webhook.labels;
    MutatingWebhookConfiguration {
        metadata: ObjectMeta {
            name: Some(webhook.sidecarset_configuration.clone()),
            labels: (!labels.is_empty()).then(|| labels.clone()),
            ..ObjectMeta::default()
        },
        webhooks: Some(vec![
            pods,
            hook("msidecarset.sidecarset.outrigger.dev", DEFAULT, sets),
        ]),
    }
}

/// Those that the flags name, without those that are excluded.
fn served(namespaces: &Namespaces, excluded: &[String]) -> LabelSelector {
    let by_name = |operator: &str, names: Vec<String>| LabelSelectorRequirement {
        key: NAMESPACE_NAME.to_owned(),
        operator: operator.to_owned(),
        values: Some(names),
    };
    let mut excluded = excluded.to_vec();
    let only = match namespaces {
        Namespaces::All => None,
        Namespaces::Only(namespace) => Some(by_name("In", vec![namespace.clone()])),
        Namespaces::Except(ignored) => {
            excluded.extend(ignored.iter().cloned());
            None
        }
    };
    let expressions = only.into_iter().chain([by_name("NotIn", excluded)]);
    LabelSelector {
        match_expressions: Some(expressions.collect()),
        ..LabelSelector::default()
    }
}

/// The merge patch by which the definition of SidecarSets names us for conversion.
pub(crate) fn conversion(webhook: &Webhook, ca_bundle: &[u8]) -> Value {
    json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": client_config(&webhook.client, CONVERT, ca_bundle),
    }}}})
}

/// Whether the definition names us for conversion, and nobody who came after us.
pub(crate) fn converts(definition: &CustomResourceDefinition, webhook: &Webhook) -> bool {
    let ours = client_config(&webhook.client, CONVERT, &[]);
    let conversion = definition.spec.conversion.as_ref();
    let named = conversion.and_then(|conversion| conversion.webhook.as_ref()?.client_config.as_ref());
    named.is_some_and(|named| {
        let service = named
            .service
            .as_ref()
            .map(|one| (&one.namespace, &one.name, &one.path));
        let our_service = ours
            .service
            .as_ref()
            .map(|one| (&one.namespace, &one.name, &one.path));
        named.url == ours.url && service == our_service
    })
}

/// The merge patch by which the definition, as it is, names nobody any more.
pub(crate) fn no_conversion(definition: &CustomResourceDefinition) -> Value {
    json!({
        "metadata": {"resourceVersion": definition.metadata.resource_version},
        "spec": {"conversion": {"strategy": "None", "webhook": null}},
    })
}

fn client_config(client: &Client, path: &str, ca_bundle: &[u8]) -> WebhookClientConfig {
    let mut config = WebhookClientConfig {
        ca_bundle: Some(ByteString(ca_bundle.to_vec())),
        ..WebhookClientConfig::default()
    };
    match client {
        Client::Service(service) => {
            let mut service = service.clone();
            service.path = Some(path.to_owned());
            config.service = Some(service);
        }
        Client::Url(url) => config.url = Some(format!("{}{path}", url.trim_end_matches('/'))),
    }
    config
}

fn rule(operations: &[&str], group: &str, resource: &str) -> RuleWithOperations {
    RuleWithOperations {
        operations: Some(operations.iter().map(|&operation| operation.to_owned()).collect()),
        api_groups: Some(vec![group.to_owned()]),
        api_versions: Some(vec!["*".to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        scope: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_without_an_answer_are_refused_but_not_where_the_cluster_lives() {
        let excluded = ["kube-system".to_owned(), "outrigger".to_owned()];
        let found = configuration(&Webhook::default(), &Namespaces::All, &excluded, b"CA");
        let client = |path: &str| json!({"caBundle": "Q0E=", "service": {"namespace": "kube-system", "name": "vpa-webhook", "path": path}});
        assert_eq!(
            serde_json::to_value(found).unwrap(),
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": "outrigger-sidecarset-webhook-config"},
                "webhooks": [
                    {
                        "name": "mpod.sidecarset.outrigger.dev",
                        "admissionReviewVersions": ["v1"],
                        "clientConfig": client("/mutate-pod"),
                        "failurePolicy": "Fail",
                        "namespaceSelector": {"matchExpressions": [
                            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "outrigger"]},
                        ]},
                        "reinvocationPolicy": "IfNeeded",
                        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["pods"]}],
                        "sideEffects": "None",
                        "timeoutSeconds": 30,
                    },
                    {
                        "name": "msidecarset.sidecarset.outrigger.dev",
                        "admissionReviewVersions": ["v1"],
                        "clientConfig": client("/mutate-apps-kruise-io-sidecarset"),
                        "failurePolicy": "Fail",
                        "rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": ["apps.kruise.io"], "apiVersions": ["*"],
                                   "resources": ["sidecarsets"]}],
                        "sideEffects": "None",
                        "timeoutSeconds": 30,
                    },
                ],
            })
        );
        let one = Namespaces::Only("shop".to_owned());
        let selector = served(&one, &excluded).match_expressions.unwrap();
        let operators: Vec<_> = selector
            .iter()
            .map(|expression| expression.operator.as_str())
            .collect();
        assert_eq!(operators, ["In", "NotIn"]);
        let some = served(&Namespaces::Except(["test".to_owned()].into()), &excluded);
        assert_eq!(
            some.match_expressions.unwrap()[0].values.as_ref().unwrap().len(),
            3
        );
        let by_url = Webhook {
            client: Client::Url("https://127.0.0.1:1".to_owned()),
            ..Webhook::default()
        };
        let config = &conversion(&by_url, b"CA")["spec"]["conversion"]["webhook"]["clientConfig"];
        assert_eq!(
            *config,
            json!({"caBundle": "Q0E=", "url": "https://127.0.0.1:1/convert"})
        );
    }

    #[test]
    fn a_conversion_is_ours_as_long_as_nobody_else_is_named() {
        let definition = |conversion: &Value| -> CustomResourceDefinition {
            let names = json!({"kind": "SidecarSet", "plural": "sidecarsets"});
            let mut definition = json!({"metadata": {"resourceVersion": "7"}, "spec": {
                "group": "apps.kruise.io", "names": names, "scope": "Cluster", "versions": [],
            }});
            json_patch::merge(&mut definition, conversion);
            serde_json::from_value(definition).unwrap()
        };
        let by_url = |url: &str| Webhook {
            client: Client::Url(url.to_owned()),
            ..Webhook::default()
        };
        let service = Webhook::default();
        for (registered, by, expected) in [
            (&service, &service, true),
            (
                &by_url("https://127.0.0.1:1"),
                &by_url("https://127.0.0.1:1/"),
                true,
            ),
            (
                &by_url("https://127.0.0.1:1"),
                &by_url("https://127.0.0.1:2"),
                false,
            ),
            (&by_url("https://127.0.0.1:1"), &service, false),
        ] {
            let mut patch = conversion(registered, b"CA");
            // The API server fills the port in.
            if let Some(service) = patch["spec"]["conversion"]["webhook"]["clientConfig"].get_mut("service") {
                service["port"] = json!(443);
            }
            let found = definition(&patch);
            assert_eq!(converts(&found, by), expected, "{patch}");
            let mut cleared = serde_json::to_value(&found).unwrap();
            json_patch::merge(&mut cleared, &no_conversion(&found));
            assert_eq!(cleared["spec"]["conversion"], json!({"strategy": "None"}));
        }
        assert!(!converts(&definition(&json!({})), &service));
        let kruise = json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "kruise-system", "name": "kruise-webhook-service", "path": "/convert"}},
        }}}});
        assert!(!converts(&definition(&kruise), &service));
    }
}
