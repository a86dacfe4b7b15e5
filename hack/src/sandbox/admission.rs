//! Calls to admission webhooks, over real TLS: which ones match, in which order, what becomes of their patches, denials
//! and failures. `matchConditions` are not evaluated: every condition counts as met.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::{
    api::{Api, Part, Write},
    error::{ApiError, Result},
    faults::{Effect, Request},
    registry::Kind,
    selector::{of_object, selects},
    store::{Key, Object},
    tree::{items, object, text},
};

const MUTATING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
const VALIDATING: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";

/// What is about to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// A new object.
    Create,
    /// A changed object.
    Update,
    /// An object going away.
    Delete,
}

impl Operation {
    fn word(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// How webhooks are reached. Clones share everything.
#[derive(Clone, Debug, Default)]
pub struct Webhooks {
    services: Arc<RwLock<HashMap<(String, String), SocketAddr>>>,
    clients: Arc<Mutex<HashMap<Peer, reqwest::Client>>>,
    /// By the uid of the configuration: every write asks for them.
    read: Arc<Mutex<HashMap<Box<str>, Read>>>,
}

/// The hooks of one configuration.
type Hooks = Arc<[Value]>;

/// The revision of a configuration, and what it says.
type Read = (u64, Hooks);

/// Certificate authority, host name, and where that really is.
type Peer = (String, String, Option<SocketAddr>);

impl Webhooks {
    /// Answers for a Service that webhook configurations refer to. TLS is checked against the name of the Service,
    /// as a real server does.
    pub fn serve(&self, namespace: &str, service: &str, at: SocketAddr) {
        let key = (namespace.to_owned(), service.to_owned());
        self.services
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, at);
    }

    fn hooks_of(&self, configuration: &Object) -> Hooks {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        match read.get(&configuration.uid) {
            Some((revision, hooks)) if *revision == configuration.revision => hooks.clone(),
            _ => {
                let hooks: Hooks = items(&configuration.value(), "/webhooks").cloned().collect();
                read.insert(configuration.uid.clone(), (configuration.revision, hooks.clone()));
                hooks
            }
        }
    }

    fn endpoint(&self, config: &Value) -> std::result::Result<(String, Option<SocketAddr>), String> {
        if let Some(url) = config["url"].as_str() {
            return Ok((url.to_owned(), None));
        }
        let (namespace, name) = (text(config, "/service/namespace"), text(config, "/service/name"));
        let services = self.services.read().unwrap_or_else(PoisonError::into_inner);
        let at = services.get(&(namespace.to_owned(), name.to_owned())).copied();
        let at = at.ok_or_else(|| format!("no endpoints available for service \"{name}\""))?;
        let path = text(config, "/service/path").trim_start_matches('/');
        Ok((
            format!("https://{name}.{namespace}.svc:{}/{path}", at.port()),
            Some(at),
        ))
    }

    fn client(
        &self,
        authority: &str,
        url: &reqwest::Url,
        at: Option<SocketAddr>,
    ) -> std::result::Result<reqwest::Client, String> {
        let host = url.host_str().unwrap_or_default().to_owned();
        let key = (authority.to_owned(), host.clone(), at);
        if let Some(client) = self
            .clients
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
        {
            return Ok(client.clone());
        }
        let mut builder = reqwest::Client::builder().no_proxy();
        if !authority.is_empty() {
            let pem: ByteString = serde_json::from_value(authority.into())
                .map_err(|error| format!("unable to load root certificates: {error}"))?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem.0)
                .map_err(|error| format!("unable to load root certificates: {error}"))?;
            builder = builder.tls_certs_only(certificates);
        }
        if let Some(at) = at {
            builder = builder.resolve(&host, at);
        }
        let client = builder.build().map_err(|error| error.to_string())?;
        self.clients
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, client.clone());
        Ok(client)
    }
}

/// One request as all webhooks see it.
struct Review<'a> {
    api: &'a Api,
    operation: Operation,
    kind: &'a Kind,
    part: Part,
    old: Option<&'a Value>,
    write: &'a Write,
}

impl Api {
    /// How webhooks are reached.
    #[must_use]
    pub fn webhooks(&self) -> &Webhooks {
        &self.webhooks
    }

    /// Lets the mutating webhooks change an object that is about to be written.
    pub(super) async fn mutate(
        &self,
        operation: Operation,
        kind: &Kind,
        part: Part,
        old: Option<&Value>,
        mut value: Value,
        write: &Write,
    ) -> Result<Value> {
        if self.store.count(MUTATING) == 0 || exempt(kind) {
            return Ok(value);
        }
        let review = Review {
            api: self,
            operation,
            kind,
            part,
            old,
            write,
        };
        let configurations = review.hooks(MUTATING);
        let hooks: Vec<&Value> = configurations.iter().flat_map(|one| one.iter()).collect();
        // For reinvocation: which hooks ran, and when the object last changed, both as positions in the first round.
        let (mut ran, mut last_change) = (Vec::new(), None);
        for (i, hook) in hooks.iter().enumerate() {
            if review.matches(hook, &value) {
                ran.push(i);
                if let Some(changed) = review.change(hook, &value).await? {
                    value = changed;
                    last_change = Some(i);
                }
            }
        }
        for i in ran {
            if let Some(hook) = hooks.get(i)
                && hook["reinvocationPolicy"] == "IfNeeded"
                && last_change.is_some_and(|last| last > i)
                && let Some(changed) = review.change(hook, &value).await?
            {
                value = changed;
            }
        }
        Ok(value)
    }

    /// Asks the validating webhooks; for a deletion, `value` is null and the mutating ones are asked too.
    pub(super) async fn review(
        &self,
        operation: Operation,
        kind: &Kind,
        part: Part,
        old: Option<&Value>,
        value: &Value,
        write: &Write,
    ) -> Result<()> {
        if exempt(kind) {
            return Ok(());
        }
        let review = Review {
            api: self,
            operation,
            kind,
            part,
            old,
            write,
        };
        let lists: &[_] = if operation == Operation::Delete {
            &[MUTATING, VALIDATING]
        } else {
            &[VALIDATING]
        };
        for list in lists.iter().filter(|list| self.store.count(list) > 0) {
            for hook in review.hooks(list).iter().flat_map(|one| one.iter()) {
                if review.matches(hook, value) {
                    review.ask(hook, value).await?;
                }
            }
        }
        Ok(())
    }
}

/// Webhooks are never asked about webhook configurations.
fn exempt(kind: &Kind) -> bool {
    kind.group == "admissionregistration.k8s.io"
}

impl Review<'_> {
    /// All hooks of the configurations, which the store keeps ordered by name.
    fn hooks(&self, list: &str) -> Vec<Hooks> {
        let configurations = self.api.store.all(list, None);
        let read = |one: &Arc<Object>| self.api.webhooks.hooks_of(one);
        configurations.iter().map(read).collect()
    }

    fn matches(&self, hook: &Value, value: &Value) -> bool {
        let resource = match self.part.subresource() {
            "" => self.kind.plural.clone(),
            sub => format!("{}/{sub}", self.kind.plural),
        };
        let covers = |list: &Value, value: &str| items(list, "").any(|one| one == "*" || one == value);
        let names = |pattern: &Value| match pattern.as_str() {
            Some("*/*") => true,
            Some("*") => self.part == Part::Main,
            Some(pattern) => match (pattern.strip_prefix("*/"), pattern.strip_suffix("/*")) {
                (Some(sub), _) => sub == self.part.subresource(),
                (_, Some(plural)) => plural == self.kind.plural,
                _ => pattern == resource,
            },
            None => false,
        };
        let rule = |rule: &Value| {
            let scope = match rule["scope"].as_str() {
                Some("Namespaced") => self.kind.namespaced,
                Some("Cluster") => !self.kind.namespaced,
                _ => true,
            };
            scope
                && covers(&rule["operations"], self.operation.word())
                && covers(&rule["apiGroups"], &self.kind.group)
                && covers(&rule["apiVersions"], &self.kind.version)
                && items(rule, "/resources").any(names)
        };
        items(hook, "/rules").any(rule) && self.selects(hook, value)
    }

    fn selects(&self, hook: &Value, value: &Value) -> bool {
        let selector = of_object(&hook["objectSelector"]);
        let object = selector.is_everything()
            || (value.is_object() && selects(&selector, value))
            || self.old.is_some_and(|old| selects(&selector, old));
        let selector = of_object(&hook["namespaceSelector"]);
        let some = if value.is_object() {
            value
        } else {
            self.old.unwrap_or(value)
        };
        let namespace = if selector.is_everything() {
            true
        } else if self.kind.storage == "namespaces" {
            selects(&selector, some)
        } else if self.kind.namespaced {
            let key = Key::new("", text(some, "/metadata/namespace"));
            let namespace = self.api.store.get("namespaces", &key);
            namespace.is_some_and(|namespace| selector.matches(|label| namespace.label(label)))
        } else {
            true
        };
        object && namespace
    }

    /// The object after a hook's patch, in its proper form; none when the hook changed nothing.
    async fn change(&self, hook: &Value, value: &Value) -> Result<Option<Value>> {
        let Some(response) = self.ask(hook, value).await? else {
            return Ok(None);
        };
        let name = text(hook, "/name");
        let broken = |why: String| ApiError::internal(format!("webhook \"{name}\": {why}"));
        // Go reads the bytes from base64 as well as from a list of numbers, and kube-rs writes the latter.
        let patch: Vec<u8> = match &response["patch"] {
            Value::Null => return Ok(None),
            list @ Value::Array(_) => {
                serde_json::from_value(list.clone()).map_err(|e| broken(e.to_string()))?
            }
            base64 => {
                serde_json::from_value::<ByteString>(base64.clone())
                    .map_err(|e| broken(e.to_string()))?
                    .0
            }
        };
        if patch.is_empty() {
            return Ok(None);
        }
        let patch: json_patch::Patch =
            serde_json::from_slice(&patch).map_err(|error| broken(error.to_string()))?;
        let mut changed = Api::encode(self.kind, value.clone());
        json_patch::patch(&mut changed, &patch).map_err(|error| broken(error.to_string()))?;
        let mut changed = self.api.decode(self.kind, changed, self.write)?;
        super::defaults::apply(self.kind, &mut changed);
        Ok((changed != *value).then_some(changed))
    }

    /// Calls one hook; none when it failed and may be ignored.
    async fn ask(&self, hook: &Value, value: &Value) -> Result<Option<Value>> {
        let name = text(hook, "/name");
        let ignore = hook["failurePolicy"] == "Ignore";
        let response = match self.call(hook, value).await {
            Ok(response) => response,
            Err(why) if ignore => {
                tracing::debug!(webhook = name, why, "a failing webhook is ignored");
                return Ok(None);
            }
            Err(why) => {
                return Err(ApiError::internal(format!(
                    "failed calling webhook \"{name}\": failed to call webhook: {why}"
                )));
            }
        };
        for warning in items(&response, "/warnings").filter_map(Value::as_str) {
            self.write.warn(warning);
        }
        if response["allowed"] == true {
            return Ok(Some(response));
        }
        let status = &response["status"];
        let said = [text(status, "/message"), text(status, "/reason")]
            .into_iter()
            .find(|said| !said.is_empty());
        let message = match said {
            Some(said) => format!("admission webhook \"{name}\" denied the request: {said}"),
            None => format!("admission webhook \"{name}\" denied the request without explanation"),
        };
        let code = status["code"]
            .as_u64()
            .and_then(|code| u16::try_from(code).ok())
            .unwrap_or_default();
        let mut error = ApiError::new(code.max(400), text(status, "/reason").to_owned(), message);
        error.details = status["details"].clone();
        Err(error)
    }

    async fn call(&self, hook: &Value, value: &Value) -> std::result::Result<Value, String> {
        let config = &hook["clientConfig"];
        let (url, at) = self.api.webhooks.endpoint(config)?;
        let seconds = hook["timeoutSeconds"].as_u64().unwrap_or(10);
        let mut url = reqwest::Url::parse(&url).map_err(|error| error.to_string())?;
        url.query_pairs_mut()
            .append_pair("timeout", &format!("{seconds}s"));
        let late = || format!("Post \"{url}\": context deadline exceeded");
        let request = Request {
            verb: "webhook",
            resource: text(hook, "/name"),
            name: "",
        };
        for effect in self.api.faults.strike(&request) {
            if effect == Effect::WebhookTimeout {
                return Err(late());
            }
            if let Some(error) = effect.suffer().await {
                return Err(error.message);
            }
        }
        let body = self.body(value);
        let client = self.api.webhooks.client(text(config, "/caBundle"), &url, at)?;
        let send = client
            .post(url.clone())
            .timeout(Duration::from_secs(seconds))
            .json(&body)
            .send();
        let failed = |error: reqwest::Error| {
            if error.is_timeout() {
                late()
            } else {
                format!("Post \"{url}\": {}", causes(&error))
            }
        };
        let answer = send.await.map_err(failed)?;
        if !answer.status().is_success() {
            return Err(format!("the server answered {}", answer.status()));
        }
        let answer: Value = answer.json().await.map_err(failed)?;
        let response = &answer["response"];
        if response["uid"] != body["request"]["uid"] {
            return Err(format!(
                "expected response.uid={}, got {}",
                body["request"]["uid"], response["uid"]
            ));
        }
        Ok(response.clone())
    }

    fn body(&self, value: &Value) -> Value {
        let Kind {
            group,
            version,
            kind,
            plural,
            ..
        } = self.kind;
        let gvk = json!({"group": group, "version": version, "kind": kind});
        let gvr = json!({"group": group, "version": version, "resource": plural});
        let some = if value.is_object() {
            value
        } else {
            self.old.unwrap_or(value)
        };
        let options = match self.operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
        };
        let mut request = json!({
            "uid": self.api.uid(), "kind": gvk, "resource": gvr, "requestKind": gvk, "requestResource": gvr,
            "operation": self.operation.word(), "dryRun": self.write.dry_run,
            "userInfo": {"username": "sandbox", "groups": ["system:masters", "system:authenticated"]},
            "object": if value.is_object() { Api::encode(self.kind, value.clone()) } else { Value::Null },
            "oldObject": self.old.map_or(Value::Null, |old| Api::encode(self.kind, old.clone())),
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": options},
        });
        let map = object(&mut request, &[]);
        for (field, value) in [
            ("name", text(some, "/metadata/name")),
            ("namespace", text(some, "/metadata/namespace")),
            ("subResource", self.part.subresource()),
            ("requestSubResource", self.part.subresource()),
        ] {
            if !value.is_empty() {
                map.insert(field.into(), value.into());
            }
        }
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    }
}

/// An error with everything that lies under it, since reqwest says the reason only there.
fn causes(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
