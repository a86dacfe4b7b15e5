//! Discovery, plain and aggregated, and as much OpenAPI as kubectl needs to apply: which kinds can be patched, and that
//! the server checks fields itself. There are no schemas in it.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::registry::{Form, Kind, Registry};

/// The media type of aggregated discovery.
pub(super) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// `/version`.
#[must_use]
pub(super) fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.4-outrigger-sandbox", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64",
    })
}

/// `/api` or `/apis` in the aggregated form.
#[must_use]
pub(super) fn aggregated(kinds: &Registry, core: bool) -> Value {
    let groups = groups(kinds)
        .into_iter()
        .filter(|(group, _)| group.is_empty() == core);
    let items = groups.map(|(group, versions)| {
        let versions = versions.into_iter().map(|(version, kinds)| {
            let resources: Vec<_> = kinds.iter().map(|kind| discovered(kind)).collect();
            json!({"version": version, "freshness": "Current", "resources": resources})
        });
        let metadata = if core {
            json!({"creationTimestamp": null})
        } else {
            json!({"name": group})
        };
        json!({"metadata": metadata, "versions": versions.collect::<Vec<_>>()})
    });
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": items.collect::<Vec<_>>(),
    })
}

/// `/api`.
#[must_use]
pub(super) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// `/apis`.
#[must_use]
pub(super) fn group_list(kinds: &Registry) -> Value {
    let groups = groups(kinds).into_iter().filter(|(group, _)| !group.is_empty());
    let groups: Vec<_> = groups
        .map(|(group, versions)| group_entry(&group, &versions))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`.
#[must_use]
pub(super) fn group(kinds: &Registry, name: &str) -> Option<Value> {
    let versions = groups(kinds).remove(name).filter(|_| !name.is_empty())?;
    let mut entry = group_entry(name, &versions);
    entry["kind"] = "APIGroup".into();
    entry["apiVersion"] = "v1".into();
    Some(entry)
}

/// `/api/v1` or `/apis/GROUP/VERSION`.
#[must_use]
pub(super) fn resource_list(kinds: &Registry, group: &str, version: &str) -> Option<Value> {
    let all = groups(kinds)
        .remove(group)?
        .into_iter()
        .find(|(name, _)| name == version)?
        .1;
    let mut resources = Vec::new();
    for kind in &all {
        resources.push(json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
            "verbs": verbs(kind), "shortNames": kind.short_names, "categories": kind.categories,
        }));
        for sub in &kind.subresources {
            let (group, version, name) = response_kind(kind, sub);
            resources.push(json!({
                "name": format!("{}/{sub}", kind.plural), "singularName": "", "namespaced": kind.namespaced,
                "group": group, "version": version, "kind": name, "verbs": subresource_verbs(sub),
            }));
        }
    }
    let name = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": resources}))
}

/// `/openapi/v3`.
#[must_use]
pub(super) fn openapi_index(kinds: &Registry) -> Value {
    let mut paths = serde_json::Map::new();
    for kind in kinds.all() {
        let path = root(&kind);
        let url = format!("/openapi/v3{path}?hash=0");
        paths.insert(
            path.trim_start_matches('/').to_owned(),
            json!({"serverRelativeURL": url}),
        );
    }
    json!({"paths": paths})
}

/// `/openapi/v3/api/v1` and so on; `path` is what follows `/openapi/v3`.
#[must_use]
pub(super) fn openapi_of(kinds: &Registry, path: &str) -> Option<Value> {
    let mut paths = serde_json::Map::new();
    for kind in kinds.all().iter().filter(|kind| root(kind) == path) {
        let scope = if kind.namespaced {
            "/namespaces/{namespace}"
        } else {
            ""
        };
        let parameters: Vec<_> = ["dryRun", "fieldManager", "fieldValidation"]
            .iter()
            .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string"}}))
            .collect();
        let operation = json!({
            "parameters": parameters,
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-group-version-kind":
                {"group": kind.group, "version": kind.version, "kind": kind.kind},
        });
        let path = format!("{path}{scope}/{}/{{name}}", kind.plural);
        paths.insert(path, json!({"patch": operation, "put": operation}));
    }
    let found = !paths.is_empty();
    found.then(|| {
        json!({
            "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.4"},
            "paths": paths, "components": {"schemas": {}},
        })
    })
}

/// `/openapi/v2`.
#[must_use]
pub(super) fn openapi_v2() -> Value {
    json!({
        "swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.36.4"}, "paths": {}, "definitions": {},
    })
}

type Versions = Vec<(String, Vec<Arc<Kind>>)>;

/// All kinds by group, and in it by version, the preferred one first.
fn groups(kinds: &Registry) -> BTreeMap<String, Versions> {
    let mut groups: BTreeMap<String, Versions> = BTreeMap::new();
    for kind in kinds.all() {
        let versions = groups.entry(kind.group.clone()).or_default();
        match versions.iter_mut().find(|(version, _)| *version == kind.version) {
            Some((_, kinds)) => kinds.push(kind),
            None => versions.push((kind.version.clone(), vec![kind])),
        }
    }
    groups
        .values_mut()
        .for_each(|versions| versions.sort_by_key(|(version, _)| Reverse(rank(version))));
    groups
}

/// Stable before beta before alpha, and higher before lower.
fn rank(version: &str) -> (u8, u32, u32) {
    let number = |text: &str| text.parse().unwrap_or_default();
    let rest = version.trim_start_matches('v');
    for (stage, word) in [(2, "beta"), (1, "alpha")] {
        if let Some((major, minor)) = rest.split_once(word) {
            return (stage, number(major), number(minor));
        }
    }
    (3, number(rest), 0)
}

fn group_entry(group: &str, versions: &Versions) -> Value {
    let all: Vec<_> = versions
        .iter()
        .map(|(version, _)| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    json!({"name": group, "preferredVersion": all.first(), "versions": all})
}

fn discovered(kind: &Kind) -> Value {
    let sub = |sub: &&'static str| {
        let (group, version, name) = response_kind(kind, sub);
        json!({
            "subresource": sub, "verbs": subresource_verbs(sub),
            "responseKind": {"group": group, "version": version, "kind": name},
        })
    };
    json!({
        "resource": kind.plural, "singularResource": kind.singular, "verbs": verbs(kind),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "shortNames": kind.short_names, "categories": kind.categories,
        "subresources": kind.subresources.iter().map(sub).collect::<Vec<_>>(),
    })
}

fn verbs(kind: &Kind) -> Vec<&'static str> {
    match kind.form {
        Form::Metrics => vec!["get", "list"],
        Form::Builtin(_) | Form::Custom(_) => VERBS.to_vec(),
    }
}

fn subresource_verbs(sub: &str) -> &'static [&'static str] {
    match sub {
        "eviction" | "binding" => &["create"],
        _ => &["get", "patch", "update"],
    }
}

fn response_kind<'a>(kind: &'a Kind, sub: &str) -> (&'a str, &'a str, &'a str) {
    match sub {
        "scale" => ("autoscaling", "v1", "Scale"),
        "eviction" => ("policy", "v1", "Eviction"),
        "binding" => ("", "v1", "Binding"),
        _ => (&kind.group, &kind.version, &kind.kind),
    }
}

fn root(kind: &Kind) -> String {
    if kind.group.is_empty() {
        "/api/v1".into()
    } else {
        format!("/apis/{}/{}", kind.group, kind.version)
    }
}
