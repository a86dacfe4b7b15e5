//! Admission webhooks over real TLS: order, patches, reinvocation, denials, failures, and who is asked at all.

use std::sync::{Arc, Mutex};

use axum::{Json, Router, extract::State, routing::post};
use axum_server::tls_rustls::RustlsConfig;
use hack::sandbox::{Effect, Fault, Sandbox, Write};
use k8s_openapi::{ByteString, api::core::v1::Pod};
use kube::{Api, ResourceExt, api::PostParams};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};

use super::{object, pod, refusal, sandbox};

type Answer = Arc<dyn Fn(&Value) -> Value + Send + Sync>;

/// A webhook server with its own authority, behind a Service in `kube-system`.
struct Hook {
    service: &'static str,
    authority: String,
    seen: Arc<Mutex<Vec<Value>>>,
}

impl Hook {
    /// Answers every review by `answer`, which gives the response without its uid.
    async fn start(
        sandbox: &Sandbox,
        service: &'static str,
        answer: impl Fn(&Value) -> Value + Send + Sync + 'static,
    ) -> Self {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority_key = KeyPair::generate().unwrap();
        let root = authority.self_signed(&authority_key).unwrap().pem();
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec![format!("{service}.kube-system.svc")]).unwrap();
        let leaf = leaf.signed_by(&key, &issuer).unwrap();
        let tls = RustlsConfig::from_pem(leaf.pem().into_bytes(), key.serialize_pem().into_bytes())
            .await
            .unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<Value>>>::default();
        let state: (Answer, _) = (Arc::new(answer), seen.clone());
        let router = Router::new().route("/hook", post(review)).with_state(state);
        let server = axum_server::from_tcp_rustls(listener, tls).unwrap();
        tokio::spawn(async move { server.serve(router.into_make_service()).await });
        sandbox.api().webhooks().serve("kube-system", service, address);
        Self {
            service,
            authority: root,
            seen,
        }
    }

    fn entry(&self, name: &str, extra: &Value) -> Value {
        let mut hook = json!({
            "name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {
                "caBundle": ByteString(self.authority.clone().into_bytes()),
                "service": {"namespace": "kube-system", "name": self.service, "path": "/hook"},
            },
            "rules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
            }],
        });
        json_patch::merge(&mut hook, extra);
        hook
    }
}

async fn review(
    State((answer, seen)): State<(Answer, Arc<Mutex<Vec<Value>>>)>,
    Json(review): Json<Value>,
) -> Json<Value> {
    let request = &review["request"];
    let mut response = answer(request);
    response["uid"] = request["uid"].clone();
    seen.lock().unwrap().push(request.clone());
    Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

fn patched(operations: &Value) -> Value {
    let bytes = ByteString(operations.to_string().into_bytes());
    json!({"allowed": true, "patchType": "JSONPatch", "patch": bytes})
}

/// Counts up a label, so that one can see how often it was called.
fn count(request: &Value) -> Value {
    let calls = request["object"]["metadata"]["labels"]["calls"]
        .as_str()
        .unwrap_or_default();
    let labels = json!({"calls": format!("{calls}x")});
    patched(&json!([{"op": "add", "path": "/metadata/labels", "value": labels}]))
}

async fn configure(sandbox: &Sandbox, kind: &str, name: &str, hooks: &[Value]) {
    let storage = format!(
        "{}webhookconfigurations.admissionregistration.k8s.io",
        kind.to_lowercase()
    );
    let kind = sandbox.api().kind(&storage).unwrap();
    let configuration = json!({"metadata": {"name": name}, "webhooks": hooks});
    sandbox
        .api()
        .create(&kind, "", configuration, &Write::default())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_mutating_webhook_changes_a_pod_before_it_has_a_name() {
    let (sandbox, client) = sandbox().await;
    let hook = Hook::start(&sandbox, "hook", |_| {
        let mut response = patched(&json!([
            {"op": "add", "path": "/spec/containers/0/resources", "value": {"limits": {"cpu": "0.5", "memory": "1Gi"}}},
        ]));
        response["warnings"] = json!(["be \"careful\""]);
        response
    })
    .await;
    configure(&sandbox, "Mutating", "m", &[hook.entry("m.x.io", &json!({}))]).await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    let mut pod = pod("");
    pod.metadata.name = None;
    pod.metadata.generate_name = Some("web-".into());
    let made = pods.create(&PostParams::default(), &pod).await.unwrap();
    let value = serde_json::to_value(&made).unwrap();
    assert_eq!(
        value["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}}),
        "defaults follow the patch"
    );
    assert_eq!(value["status"]["qosClass"], "Guaranteed");
    let seen = hook.seen.lock().unwrap();
    let [request] = seen.as_slice() else {
        panic!("one call, not {}", seen.len())
    };
    assert_eq!(
        (&request["operation"], &request["namespace"]),
        (&json!("CREATE"), &json!("default"))
    );
    assert_eq!(
        request["object"]["metadata"],
        json!({"generateName": "web-", "namespace": "default"})
    );
    assert_eq!(
        (&request["object"]["kind"], request.get("name")),
        (&json!("Pod"), None)
    );
}

#[tokio::test]
async fn a_webhook_is_asked_again_when_a_later_one_changed_the_object() {
    for (policy, calls) in [("IfNeeded", "xx"), ("Never", "x")] {
        let (sandbox, client) = sandbox().await;
        let first = Hook::start(&sandbox, "first", count).await;
        let second = Hook::start(&sandbox, "second", |_| {
            patched(&json!([{"op": "add", "path": "/metadata/annotations", "value": {"second": "was here"}}]))
        })
        .await;
        // Configurations are asked in the order of their names, whatever the order of their creation.
        configure(
            &sandbox,
            "Mutating",
            "b",
            &[second.entry("second.x.io", &json!({}))],
        )
        .await;
        let again = json!({"reinvocationPolicy": policy});
        configure(&sandbox, "Mutating", "a", &[first.entry("first.x.io", &again)]).await;
        let pods: Api<Pod> = Api::default_namespaced(client);
        let made = pods.create(&PostParams::default(), &pod("p")).await.unwrap();
        assert_eq!(
            (
                made.labels()["calls"].as_str(),
                made.annotations()["second"].as_str()
            ),
            (calls, "was here")
        );
        assert_eq!(
            (
                first.seen.lock().unwrap().len(),
                second.seen.lock().unwrap().len()
            ),
            (calls.len(), 1)
        );
    }
}

#[tokio::test]
async fn denials_are_worded_as_by_the_real_server() {
    let denials = [
        (
            json!({"message": "no such luck"}),
            (
                400,
                "admission webhook \"v.x.io\" denied the request: no such luck",
            ),
        ),
        (
            json!({"message": "bad", "code": 422, "reason": "Invalid"}),
            (422, "admission webhook \"v.x.io\" denied the request: bad"),
        ),
        (
            json!({}),
            (
                400,
                "admission webhook \"v.x.io\" denied the request without explanation",
            ),
        ),
    ];
    for kind in ["Validating", "Mutating"] {
        for (status, (code, message)) in denials.clone() {
            let (sandbox, client) = sandbox().await;
            let hook = Hook::start(
                &sandbox,
                "hook",
                move |_| json!({"allowed": false, "status": status}),
            )
            .await;
            configure(&sandbox, kind, "v", &[hook.entry("v.x.io", &json!({}))]).await;
            let pods: Api<Pod> = Api::default_namespaced(client);
            let refused = pods.create(&PostParams::default(), &pod("p")).await;
            assert_eq!(refusal(refused), (code, message.into()), "{kind}");
            assert_eq!(sandbox.store().count("pods"), 0);
        }
    }
}

#[tokio::test]
async fn a_failing_webhook_fails_the_request_unless_it_may_be_ignored() {
    let (sandbox, client) = sandbox().await;
    let hook = Hook::start(&sandbox, "hook", |_| json!({"allowed": true})).await;
    let stranger = Hook::start(&sandbox, "stranger", |_| json!({"allowed": true})).await;
    let untrusted =
        json!({"clientConfig": {"caBundle": hook.entry("", &json!({}))["clientConfig"]["caBundle"]}});
    let absent = json!({"clientConfig": {"service": {"name": "nowhere"}}});
    let table = [
        (hook.entry("ok.x.io", &json!({})), ""),
        (
            stranger.entry("untrusted.x.io", &untrusted),
            "failed calling webhook \"untrusted.x.io\": failed to call webhook: Post",
        ),
        (
            hook.entry("absent.x.io", &absent),
            "no endpoints available for service \"nowhere\"",
        ),
        (hook.entry("late.x.io", &json!({})), "context deadline exceeded"),
    ];
    sandbox.faults().add(
        Fault::new(Effect::WebhookTimeout)
            .verbs(&["webhook"])
            .on(&["late.x.io"]),
    );
    let pods: Api<Pod> = Api::default_namespaced(client);
    let kind = sandbox
        .api()
        .kind("mutatingwebhookconfigurations.admissionregistration.k8s.io")
        .unwrap();
    for (n, (entry, message)) in table.into_iter().enumerate() {
        for policy in ["Ignore", "Fail"] {
            let mut entry = entry.clone();
            entry["failurePolicy"] = policy.into();
            configure(&sandbox, "Mutating", "c", &[entry]).await;
            let answer = pods
                .create(
                    &PostParams::default(),
                    &pod(&format!("{}-{n}", policy.to_lowercase())),
                )
                .await;
            if policy == "Fail" && !message.is_empty() {
                let (code, text) = refusal(answer);
                assert!(code == 500 && text.contains(message), "{text}");
            } else {
                answer.unwrap();
            }
            let key = hack::sandbox::Key::new("", "c");
            sandbox
                .api()
                .delete(&kind, &key, &Default::default(), &Write::default())
                .await
                .unwrap();
        }
    }
}

#[tokio::test]
async fn only_what_the_rules_and_selectors_say_is_asked() {
    let (sandbox, client) = sandbox().await;
    let hook = Hook::start(&sandbox, "hook", |_| json!({"allowed": true})).await;
    let namespaces = sandbox.api().kind("namespaces").unwrap();
    let labelled = json!({"metadata": {"name": "on", "labels": {"hooked": "yes"}}});
    sandbox
        .api()
        .create(&namespaces, "", labelled, &Write::default())
        .await
        .unwrap();
    let every = |extra: Value| {
        let mut rules = json!({"rules": [{
            "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["pods", "pods/resize"],
        }]});
        json_patch::merge(&mut rules, &extra);
        rules
    };
    let entries = [
        hook.entry("all.x.io", &every(json!({}))),
        hook.entry(
            "namespace.x.io",
            &every(json!({"namespaceSelector": {"matchLabels": {"hooked": "yes"}}})),
        ),
        hook.entry(
            "object.x.io",
            &every(json!({"objectSelector": {"matchLabels": {"in": "yes"}}})),
        ),
        hook.entry(
            "updates.x.io",
            &json!({"rules": [{
                "operations": ["UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
            }]}),
        ),
    ];
    configure(&sandbox, "Validating", "v", &entries).await;
    let asked = || hook.seen.lock().unwrap().drain(..).count();
    let labelled = |pod: Pod| -> Pod {
        let mut value = serde_json::to_value(pod).unwrap();
        value["metadata"]["labels"] = json!({"in": "yes"});
        object(value)
    };
    let off: Api<Pod> = Api::default_namespaced(client.clone());
    let on: Api<Pod> = Api::namespaced(client, "on");
    let params = PostParams::default();
    off.create(&params, &pod("a")).await.unwrap();
    assert_eq!(asked(), 1);
    on.create(&params, &pod("a")).await.unwrap();
    assert_eq!(asked(), 2);
    on.create(&params, &labelled(pod("b"))).await.unwrap();
    assert_eq!(asked(), 3);
    let patch = kube::api::Patch::Merge(json!({"metadata": {"annotations": {"a": "b"}}}));
    off.patch("a", &Default::default(), &patch).await.unwrap();
    assert_eq!(asked(), 2, "all and updates");
    let resize =
        kube::api::Patch::Strategic(json!({"spec": {"containers": [{"name": "app", "resources": {}}]}}));
    off.patch_resize("a", &Default::default(), &resize).await.unwrap();
    assert_eq!(asked(), 1, "a subresource is asked about only by name");
    off.delete("a", &Default::default()).await.unwrap();
    assert_eq!(asked(), 1);
}
