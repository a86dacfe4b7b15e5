//! What alerts and dashboard ask for is what the daemons serve.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use hack::docs::{Daemon, Metric, metrics_of};
use regex::Regex;
use serde_json::Value;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/monitoring");

/// What the daemons serve: names of samples, and the labels of each.
fn served() -> BTreeMap<String, BTreeSet<String>> {
    let mut served = BTreeMap::new();
    for daemon in Daemon::ALL {
        for Metric {
            name, kind, labels, ..
        } in metrics_of(daemon).unwrap()
        {
            let labels: BTreeSet<String> = labels.into_iter().collect();
            if kind == "histogram" {
                for part in ["_sum", "_count"] {
                    served.insert(format!("{name}{part}"), labels.clone());
                }
                let bucket = labels.iter().cloned().chain(["le".to_owned()]).collect();
                served.insert(format!("{name}_bucket"), bucket);
            } else {
                served.insert(name, labels);
            }
        }
    }
    served
}

/// The texts under a key, at any depth.
fn texts<'v>(value: &'v Value, key: &str, found: &mut Vec<&'v str>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                match value {
                    Value::String(text) if name == key => found.push(text),
                    value => texts(value, key, found),
                }
            }
        }
        Value::Array(array) => array.iter().for_each(|value| texts(value, key, found)),
        _ => {}
    }
}

/// The metrics in an expression, each with the labels that it is selected by.
fn asked(expression: &str) -> Vec<(String, Vec<String>)> {
    let metric = Regex::new(r"\b((?:vpa|outrigger|process)_[a-z0-9_]+)(?:\{([^}]*)\})?").unwrap();
    let label = Regex::new("([a-z_0-9]+)(?:=~|!=|!~|=)\"").unwrap();
    metric
        .captures_iter(expression)
        .map(|found| {
            let selectors = found.get(2).map_or("", |selectors| selectors.as_str());
            let labels = label.captures_iter(selectors).map(|found| found[1].to_owned());
            (found[1].to_owned(), labels.collect())
        })
        .collect()
}

fn check(file: &str, expressions: &[&str], served: &BTreeMap<String, BTreeSet<String>>) {
    let aggregation = Regex::new(r"\bby \(([^)]*)\)").unwrap();
    assert!(expressions.len() > 20, "{file} asks for little: {expressions:?}");
    for expression in expressions {
        let asked = asked(expression);
        assert!(!asked.is_empty(), "{file} asks for nothing of ours: {expression}");
        let mut known = BTreeSet::new();
        for (name, labels) in asked {
            assert!(
                served.contains_key(&name),
                "{file}: nobody serves {name}: {expression}"
            );
            let has = &served[&name];
            for label in labels {
                assert!(
                    has.contains(&label),
                    "{file}: {name} has no label {label}: {expression}"
                );
            }
            known.extend(has);
        }
        for list in aggregation.captures_iter(expression) {
            for label in list[1].split(',').map(str::trim) {
                assert!(
                    known.contains(&label.to_owned()),
                    "{file}: nothing has a label {label}: {expression}"
                );
            }
        }
    }
}

#[test]
fn alerts_and_dashboard_ask_for_what_is_served() {
    let served = served();
    let alerts = fs::read_to_string(format!("{DIRECTORY}/alerts.yaml")).unwrap();
    let alerts: Value = serde_saphyr::from_str(&alerts).unwrap();
    let mut expressions = Vec::new();
    texts(&alerts, "expr", &mut expressions);
    check("alerts.yaml", &expressions, &served);

    let dashboard = fs::read_to_string(format!("{DIRECTORY}/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let mut expressions = Vec::new();
    texts(&dashboard, "expr", &mut expressions);
    check("dashboard.json", &expressions, &served);
}

#[test]
fn every_alert_is_tested_and_says_what_it_means() {
    let rules = fs::read_to_string(format!("{DIRECTORY}/alerts.yaml")).unwrap();
    let rules: Value = serde_saphyr::from_str(&rules).unwrap();
    let tests = fs::read_to_string(format!("{DIRECTORY}/alerts_test.yaml")).unwrap();
    let page = fs::read_to_string(format!("{}/troubleshooting.md", hack::docs::DIRECTORY)).unwrap();
    let mut names = Vec::new();
    texts(&rules, "alert", &mut names);
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        // Once where nothing fires, and once where it does.
        let times = tests.matches(&format!("alertname: {name}\n")).count();
        assert_eq!(times, 2, "{name} in alerts_test.yaml");
        assert!(
            page.contains(&format!("`{name}`")),
            "{name} in docs/troubleshooting.md"
        );
    }
}
