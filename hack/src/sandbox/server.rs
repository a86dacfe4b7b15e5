//! The HTTP skin: paths, queries and media types in, verbs called, answers out. No rule about objects lives here.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Query, State},
    response::Response,
};
use http::{HeaderMap, Method, StatusCode, Uri, header};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    api::{Api, Part},
    call::{
        Call, Location, broken, created, failure, found, ok, parse_token, respond, success, token, warned,
    },
    delete::Deleted,
    discovery,
    error::{ApiError, Result},
    faults::{Effect, Fault, Request},
    measured::Asked,
    patch::Patch,
    registry::{Form, Kind},
    selector::Selector,
    store::Range,
    view::{self, View},
    watch::{self, WatchRequest},
};

/// As the real server's.
const LARGEST_BODY: usize = 3 * 1024 * 1024;

/// What the handlers share.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) api: Arc<Api>,
    pub(super) stop: CancellationToken,
    pub(super) watch_list: bool,
    pub(super) bookmark_every: Duration,
}

/// The router; every path goes through one handler, since the resources are known only at run time.
pub(super) fn router(server: Server) -> Router {
    Router::new().fallback(handle).with_state(server)
}

async fn handle(
    State(server): State<Server>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let answer = async {
        let query = Query::<HashMap<String, String>>::try_from_uri(&uri)
            .map(|Query(query)| query)
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        let too_large = |_| ApiError::new(413, "RequestEntityTooLarge", "limit is 3145728");
        let body = axum::body::to_bytes(body, LARGEST_BODY)
            .await
            .map_err(too_large)?;
        let call = Call {
            method,
            query,
            headers,
            body,
        };
        server.route(uri.path(), call).await
    };
    answer.await.unwrap_or_else(|error: ApiError| failure(&error))
}

impl Server {
    async fn route(&self, path: &str, call: Call) -> Result<Response> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let kinds = self.api.kinds();
        let wants_aggregated = call.header(header::ACCEPT).contains("as=APIGroupDiscoveryList");
        let aggregated = |core| {
            let body = discovery::aggregated(kinds, core).to_string();
            Ok(respond(StatusCode::OK, discovery::AGGREGATED, body))
        };
        match parts.as_slice() {
            ["healthz" | "livez" | "readyz", ..] => Ok(respond(StatusCode::OK, "text/plain", "ok")),
            ["version"] => Ok(ok(&discovery::version())),
            ["api"] if wants_aggregated => aggregated(true),
            ["apis"] if wants_aggregated => aggregated(false),
            ["api"] => Ok(ok(&discovery::core_versions())),
            ["apis"] => Ok(ok(&discovery::group_list(kinds))),
            ["api", version] => found(discovery::resource_list(kinds, "", version)),
            ["apis", group] => found(discovery::group(kinds, group)),
            ["apis", group, version] => found(discovery::resource_list(kinds, group, version)),
            ["openapi", "v2"] if call.header(header::ACCEPT).contains("protobuf") => {
                // An empty message is an empty document.
                let media = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
                Ok(respond(StatusCode::OK, media, Body::empty()))
            }
            ["openapi", "v2"] => Ok(ok(&discovery::openapi_v2())),
            ["openapi", "v3"] => Ok(ok(&discovery::openapi_index(kinds))),
            ["openapi", "v3", ..] => found(discovery::openapi_of(
                kinds,
                path.trim_start_matches("/openapi/v3"),
            )),
            ["sandbox", "faults", rest @ ..] => self.faults(rest, &call),
            ["api", version, rest @ ..] => self.resource("", version, rest, call).await,
            ["apis", group, version, rest @ ..] => self.resource(group, version, rest, call).await,
            _ => found(None),
        }
    }

    async fn resource(&self, group: &str, version: &str, rest: &[&str], call: Call) -> Result<Response> {
        let Some(place) = self.place(group, version, rest) else {
            return found(None);
        };
        let watching = matches!(call.query.get("watch").map(String::as_str), Some("true" | "1"));
        let verb = match (&call.method, place.name.is_some()) {
            (&Method::GET | &Method::HEAD, _) if watching => "watch",
            (&Method::GET | &Method::HEAD, true) => "get",
            (&Method::GET | &Method::HEAD, false) => "list",
            (&Method::POST, _) => "create",
            (&Method::PUT, true) => "update",
            (&Method::PATCH, true) => "patch",
            (&Method::DELETE, true) => "delete",
            (&Method::DELETE, false) => "deletecollection",
            _ => return Err(ApiError::method_not_allowed()),
        };
        let resource = match &place.subresource {
            Some(sub) => format!("{}/{sub}", place.kind.resource()),
            None => place.kind.resource(),
        };
        let name = place.name.as_deref().unwrap_or_default();
        let effects = self.api.faults.strike(&Request {
            verb,
            resource: &resource,
            name,
        });
        for effect in &effects {
            if *effect == Effect::Reset {
                return Ok(broken());
            }
            if let Some(error) = effect.suffer().await {
                return Err(error);
            }
        }
        if matches!(place.kind.form, Form::Metrics) {
            return self.metrics(&place, &call, effects);
        }
        let view = View::accepted(
            call.header(header::ACCEPT),
            call.query.get("includeObject").map_or("", String::as_str),
            &self.api.clock,
        );
        let is_lost = effects.contains(&Effect::LoseAnswer);
        let answer = match (verb, place.subresource.clone()) {
            ("watch", None) => self.watch(place, &call, view, effects),
            ("list", None) => self.list(&place, &call, &view),
            ("deletecollection", None) => self.delete_all(&place, &call, &view).await,
            (_, None) => self.object(verb, &place, &call, &view, Part::Main).await,
            (_, Some(sub)) if !place.kind.has(&sub) => found(None),
            (_, Some(sub)) => self.subresource(verb, &sub, &place, &call, &view).await,
        };
        if is_lost { Ok(broken()) } else { answer }
    }

    fn place(&self, group: &str, version: &str, rest: &[&str]) -> Option<Location> {
        let (namespace, rest) = match rest {
            // Namespaces are objects too, and have subresources.
            ["namespaces", _] | ["namespaces", _, "status"] => (None, rest),
            ["namespaces", namespace, rest @ ..] => (Some(*namespace), rest),
            _ => (None, rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (plural, None, None),
            [plural, name] => (plural, Some(*name), None),
            [plural, name, subresource] => (plural, Some(*name), Some(*subresource)),
            _ => return None,
        };
        let kind = self.api.kinds().get(group, version, plural)?;
        let fits = kind.namespaced == namespace.is_some() || (kind.namespaced && name.is_none());
        let owned = |text: Option<&str>| text.map(str::to_owned);
        fits.then(|| Location {
            kind,
            namespace: owned(namespace),
            name: owned(name),
            subresource: owned(subresource),
        })
    }

    async fn object(
        &self,
        verb: &str,
        place: &Location,
        call: &Call,
        view: &View,
        part: Part,
    ) -> Result<Response> {
        let kind = &*place.kind;
        let write = call.write();
        let api = &self.api;
        let key = place.key();
        let (code, object) = match verb {
            "get" => (StatusCode::OK, api.get(kind, &key)?),
            "create" if place.name.is_none() && (!kind.namespaced || place.namespace.is_some()) => (
                StatusCode::CREATED,
                api.create(kind, &key.namespace, call.document()?, &write).await?,
            ),
            "update" => (
                StatusCode::OK,
                api.update(kind, &key, part, call.document()?, &write).await?,
            ),
            "patch" => {
                let there = api.get(kind, &key).is_ok();
                let patch = Patch::parse(kind, call.header(header::CONTENT_TYPE), &call.body)?;
                let object = api.patch(kind, &key, part, &patch, &write).await?;
                (
                    if there {
                        StatusCode::OK
                    } else {
                        StatusCode::CREATED
                    },
                    object,
                )
            }
            "delete" if part == Part::Main => {
                let deleted = api.delete(kind, &key, &call.delete_options()?, &write).await?;
                return Ok(warned(self.deleted(kind, &deleted, view), &write));
            }
            _ => return Err(ApiError::method_not_allowed()),
        };
        Ok(warned(
            respond(code, "application/json", view.one(kind, &object)),
            &write,
        ))
    }

    fn deleted(&self, kind: &Kind, deleted: &Deleted, view: &View) -> Response {
        match deleted {
            // Pods are given back whole, also when they are gone.
            Deleted::Gone(object) if kind.storage != "pods" => {
                let details = json!({
                    "name": &*object.key.name, "group": kind.group, "kind": kind.plural, "uid": object.uid,
                });
                ok(&success(StatusCode::OK, Some(details)))
            }
            Deleted::Gone(object) | Deleted::Terminating(object) => {
                respond(StatusCode::OK, "application/json", view.one(kind, object))
            }
        }
    }

    async fn subresource(
        &self,
        verb: &str,
        sub: &str,
        place: &Location,
        call: &Call,
        view: &View,
    ) -> Result<Response> {
        let (kind, key, write) = (&*place.kind, place.key(), call.write());
        match (sub, verb) {
            ("status", _) => self.object(verb, place, call, view, Part::Status).await,
            ("resize", _) => self.object(verb, place, call, view, Part::Resize).await,
            ("ephemeralcontainers", _) => self.object(verb, place, call, view, Part::Ephemeral).await,
            ("scale", "get") => Ok(ok(&self.api.scale(kind, &key)?)),
            ("scale", "update") => Ok(ok(&self
                .api
                .rescale(kind, &key, &call.document()?, &write)
                .await?)),
            ("scale", "patch") => {
                let mut scale = self.api.scale(kind, &key)?;
                scale["metadata"]["resourceVersion"] = Value::Null;
                Patch::parse(kind, call.header(header::CONTENT_TYPE), &call.body)?.apply(kind, &mut scale)?;
                Ok(ok(&self.api.rescale(kind, &key, &scale, &write).await?))
            }
            ("eviction", "create") => {
                self.api.evict(&key, &call.document()?, &write).await?;
                Ok(created())
            }
            ("binding", "create") => {
                self.api.bind_by(&key, &call.document()?)?;
                Ok(created())
            }
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    fn list(&self, place: &Location, call: &Call, view: &View) -> Result<Response> {
        let kind = &place.kind;
        let selector = call.selector(kind)?;
        let now = self.api.store().revision();
        let limit = match call.query.get("limit").map(|limit| limit.parse::<usize>()) {
            None | Some(Ok(0)) => None,
            Some(Ok(limit)) => Some(limit),
            Some(Err(_)) => return Err(ApiError::bad_request("limit must be a number")),
        };
        let version = call.revision("resourceVersion")?;
        let mut range = Range {
            namespace: place.namespace.clone(),
            limit,
            ..Range::default()
        };
        let matching = call.query.get("resourceVersionMatch").map_or("", String::as_str);
        if let Some(token) = call.query.get("continue").filter(|token| !token.is_empty()) {
            if version.is_some_and(|version| version > 0) {
                let why = "specifying resource version is not allowed when using continue";
                return Err(ApiError::bad_request(why));
            }
            let (at, after) = parse_token(token)?;
            (range.at, range.after) = (Some(at), Some(after));
        } else if let Some(version) = version.filter(|version| *version > 0) {
            if version > now {
                return Err(watch::too_large(version, now));
            }
            if matching == "Exact" || (matching.is_empty() && limit.is_some()) {
                range.at = Some(version);
            }
        }
        let listed = self
            .api
            .store()
            .list(&kind.storage, &range, &|object| selector.matches(object));
        let page = listed.map_err(|_| {
            let why = if range.after.is_some() {
                "The provided continue parameter is too old to display a consistent list result. You must start a \
                 new list without the continue parameter."
            } else {
                "The resourceVersion for the provided list is too old."
            };
            ApiError::expired(why)
        })?;
        let last = page.objects.last().filter(|_| page.remaining > 0);
        let next = last.map(|last| token(page.revision, &last.key));
        let remaining = (next.is_some() && selector.is_empty()).then_some(page.remaining);
        let body = view.list(kind, page, next.as_deref(), remaining);
        Ok(respond(StatusCode::OK, "application/json", body))
    }

    fn watch(&self, place: Location, call: &Call, view: View, effects: Vec<Effect>) -> Result<Response> {
        let flag = |name: &str| matches!(call.query.get(name).map(String::as_str), Some("true" | "1"));
        let mut selector = call.selector(&place.kind)?;
        if let Some(name) = &place.name {
            selector = Selector::parse("", &format!("metadata.name={name}"), &[])?;
        }
        let initial_events = flag("sendInitialEvents");
        if initial_events && !self.watch_list {
            return Err(watch::watch_list_forbidden());
        }
        let timeout = call
            .query
            .get("timeoutSeconds")
            .and_then(|seconds| seconds.parse().ok())
            .unwrap_or(3600);
        let request = WatchRequest {
            kind: place.kind,
            namespace: place.namespace,
            selector,
            view,
            after: call.revision("resourceVersion")?.filter(|version| *version > 0),
            bookmarks: flag("allowWatchBookmarks"),
            initial_events,
            timeout: Duration::from_secs(timeout),
            effects,
            bookmark_every: self.bookmark_every,
        };
        let body = watch::stream(&self.api, request, self.stop.clone())?;
        Ok(respond(StatusCode::OK, "application/json", body))
    }

    async fn delete_all(&self, place: &Location, call: &Call, view: &View) -> Result<Response> {
        let (kind, write) = (&place.kind, call.write());
        let selector = call.selector(kind)?;
        let options = call.delete_options()?;
        let objects = self
            .api
            .delete_all(kind, place.namespace.as_deref(), &selector, &options, &write)
            .await?;
        let page = super::store::Page {
            revision: self.api.store().revision(),
            objects,
            remaining: 0,
        };
        let body = view.list(kind, page, None, None);
        Ok(warned(respond(StatusCode::OK, "application/json", body), &write))
    }

    fn metrics(&self, place: &Location, call: &Call, effects: Vec<Effect>) -> Result<Response> {
        let kind = &*place.kind;
        if call.method != Method::GET || place.subresource.is_some() {
            return Err(ApiError::method_not_allowed());
        }
        let unavailable = || {
            ApiError::new(
                503,
                "ServiceUnavailable",
                "the server is currently unable to handle the request",
            )
        };
        let asked = Asked {
            namespace: place.namespace.clone(),
            labels: call.selector(kind)?.labels,
            effects,
        };
        let measured = self.api.metrics(kind).ok_or_else(unavailable)?;
        let mut measured = measured
            .into_iter()
            .filter_map(move |measured| asked.answer(measured));
        let Some(name) = &place.name else {
            return Ok(respond(
                StatusCode::OK,
                "application/json",
                view::computed_list(kind, measured),
            ));
        };
        let one = measured.find(|one| *one.object.key.name == **name);
        let none = || {
            let resource = if kind.namespaced {
                "podmetrics"
            } else {
                "nodemetrics"
            };
            let namespace = place.namespace.iter().map(|namespace| format!("{namespace}/"));
            let full = namespace.chain([name.clone()]).collect::<String>();
            ApiError::not_found(&format!("{resource}.metrics.k8s.io"), &full)
        };
        Ok(ok(&view::computed(kind, &one.ok_or_else(none)?)))
    }

    /// The rules of faults, for those who are not in this process.
    fn faults(&self, rest: &[&str], call: &Call) -> Result<Response> {
        let faults = &self.api.faults;
        match (&call.method, rest) {
            (&Method::GET, []) => {
                let all = faults.list();
                let rules: Vec<_> = all
                    .iter()
                    .map(|(id, fault, struck)| json!({"id": id, "fault": fault, "struck": struck}))
                    .collect();
                Ok(ok(&json!({"faults": rules})))
            }
            (&Method::POST, []) => {
                let fault: Fault = serde_json::from_slice(&call.body)
                    .map_err(|error| ApiError::bad_request(format!("this is no fault: {error}")))?;
                Ok(ok(&json!({"id": faults.add(fault)})))
            }
            (&Method::DELETE, []) => {
                faults.clear();
                Ok(ok(&success(StatusCode::OK, None)))
            }
            (&Method::DELETE, [id]) if id.parse().is_ok_and(|id| faults.remove(id)) => {
                Ok(ok(&success(StatusCode::OK, None)))
            }
            (&Method::GET | &Method::POST | &Method::DELETE, _) => found(None),
            _ => Err(ApiError::method_not_allowed()),
        }
    }
}
