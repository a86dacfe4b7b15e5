//! What an operator installs agrees with itself: versions, rights and what is said of them.
use std::{collections::BTreeSet, path::Path};

use serde_json::Value;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(path).unwrap()
}

fn base() -> Vec<Value> {
    let text = read("deploy/kustomize/base/outrigger.yaml");
    text.split("\n---\n")
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .filter(|document: &Value| !document.is_null())
        .collect()
}

fn of_kind<'o>(objects: &'o [Value], kind: &str) -> Vec<&'o Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

fn texts(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// One right: component, cluster or here, resource, name or none, verb.
type Right = (String, String, String, String, String);

fn rights_of(objects: &[Value]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for (kind, place) in [("ClusterRole", "cluster"), ("Role", "here")] {
        for role in of_kind(objects, kind) {
            let name = role["metadata"]["name"].as_str().unwrap();
            let component = name.strip_prefix("outrigger-").unwrap();
            for rule in role["rules"].as_array().unwrap() {
                let mut names = texts(&rule["resourceNames"]);
                if names.is_empty() {
                    names.push("");
                }
                for group in texts(&rule["apiGroups"]) {
                    for resource in texts(&rule["resources"]) {
                        let resource = match group {
                            "" | "*" => resource.to_owned(),
                            group => format!("{group}/{resource}"),
                        };
                        for name in &names {
                            for verb in texts(&rule["verbs"]) {
                                let right = [component, place, &resource, name, verb];
                                let [a, b, c, d, e] = right.map(str::to_owned);
                                rights.insert((a, b, c, d, e));
                            }
                        }
                    }
                }
            }
        }
    }
    rights
}

/// The rows of the table of rights in `docs/security.md`.
fn rights_told() -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for line in read("docs/security.md").lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [component, place @ ("cluster" | "here"), resources, name, verbs, _] = cells[..] else {
            continue;
        };
        let components = match component {
            "each" => vec!["recommender", "updater", "admission"],
            one => vec![one],
        };
        for component in components {
            for resource in resources.split(", ") {
                for verb in verbs.split(", ") {
                    let resource = resource.replace('\\', "");
                    let right = [component, place, &resource, name, verb];
                    let [a, b, c, d, e] = right.map(str::to_owned);
                    rights.insert((a, b, c, d, e));
                }
            }
        }
    }
    rights
}

#[test]
fn every_right_is_told_of_and_none_is_told_of_that_is_not_there() {
    let (given, told) = (rights_of(&base()), rights_told());
    let untold: Vec<_> = given.difference(&told).collect();
    let ungiven: Vec<_> = told.difference(&given).collect();
    assert!(untold.is_empty(), "not in docs/security.md: {untold:#?}");
    assert!(ungiven.is_empty(), "not in the base: {ungiven:#?}");
    assert!(given.len() > 30, "{} rights", given.len());
}

#[test]
fn no_right_is_wider_than_it_needs_to_be() {
    for (component, place, resource, name, verb) in rights_of(&base()) {
        assert_ne!(verb, "*", "{component} {resource}");
        assert!(
            resource == "*/scale" && verb == "get" || !resource.contains('*'),
            "{component} {resource} {verb}"
        );
        if resource == "secrets" {
            assert_eq!(place, "here", "{component}");
            assert!(name == "vpa-tls-certs" || verb == "create", "{component} {verb}");
        }
    }
}

#[test]
fn every_daemon_runs_as_the_restricted_standard_asks() {
    let objects = base();
    let deployments = of_kind(&objects, "Deployment");
    assert_eq!(deployments.len(), 3);
    for deployment in deployments {
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        let container = &pod["containers"][0]["securityContext"];
        assert_eq!(container["allowPrivilegeEscalation"], false);
        assert_eq!(container["readOnlyRootFilesystem"], true);
        assert_eq!(container["capabilities"]["drop"][0], "ALL");
        assert!(pod["volumes"].is_null(), "{}", pod["volumes"]);
    }
}

#[test]
fn the_chart_and_its_images_have_the_version_of_the_program() {
    let version = env!("CARGO_PKG_VERSION");
    let chart: Value = serde_saphyr::from_str(&read("deploy/helm/outrigger/Chart.yaml")).unwrap();
    assert_eq!(chart["appVersion"], version);
    let objects = base();
    let mut images: Vec<&str> = of_kind(&objects, "Deployment")
        .into_iter()
        .filter_map(|deployment| deployment["spec"]["template"]["spec"]["containers"][0]["image"].as_str())
        .collect();
    images.sort_unstable();
    let expected = ["admission", "recommender", "updater"].map(|name| format!("outrigger/{name}:{version}"));
    assert_eq!(images, expected);
}
