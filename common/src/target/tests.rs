use std::{cell::RefCell, collections::HashMap};

use serde_json::{Value, json};

use super::*;
use crate::{api::vpa::VerticalPodAutoscaler, pod::Pod};

const NS: &str = "shop";

fn key(kind: &str, name: &str) -> ControllerKey {
    ControllerKey {
        namespace: NS.to_owned(),
        api_version: "v".to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
    }
}

/// What is known: `KIND/NAME` to the owner's `KIND/NAME`; every watched controller selects `app=web`.
#[derive(Default)]
struct Known {
    controllers: ControllerIndex,
    scales: HashMap<ControllerKey, Result<Scale, &'static str>>,
    asked: RefCell<Vec<ControllerKey>>,
}

impl Known {
    fn with(mut self, kind: &str, name: &str, owner: Option<(&str, &str)>) -> Self {
        let owner = owner.map(|(kind, name)| key(kind, name));
        if let Some(known) = WellKnown::from_name(kind) {
            let labels = [("app".to_owned(), "web".to_owned())].into();
            self.controllers
                .apply(known, NS, name, Controller::labelling(owner, Some(&labels)));
        } else {
            let selector = "app=web".to_owned();
            self.scales.insert(
                key(kind, name),
                Ok(Scale {
                    owner,
                    selector,
                    replicas: None,
                }),
            );
        }
        self
    }

    fn without_scale(mut self, kind: &str, name: &str) -> Self {
        self.scales.insert(key(kind, name), Err("the server said no"));
        self
    }
}

impl Controllers for Known {
    fn well_known(&self, kind: WellKnown, namespace: &str, name: &str) -> Option<&Controller> {
        self.controllers.get(kind, namespace, name)
    }

    fn scale(&self, key: &ControllerKey) -> ScaleLookup<'_> {
        self.asked.borrow_mut().push(key.clone());
        match self.scales.get(key) {
            None if key.kind == "Unasked" => ScaleLookup::Unasked,
            None => ScaleLookup::NotFound("not found"),
            Some(Ok(scale)) => ScaleLookup::Found(scale),
            Some(Err(error)) => ScaleLookup::Failed(error),
        }
    }
}

#[test]
fn the_topmost_controller() {
    let known = Known::default()
        .with("ReplicaSet", "web-1", Some(("Deployment", "web")))
        .with("Deployment", "web", None)
        .with("Job", "nightly-1", Some(("CronJob", "nightly")))
        .with("CronJob", "nightly", None)
        .with("StatefulSet", "db", Some(("Database", "db")))
        .with("Database", "db", Some(("Bundle", "b")))
        .with("DaemonSet", "agent", Some(("Bundle", "b")))
        .with("ReplicaSet", "orphan", Some(("Deployment", "gone")))
        .with("ReplicaSet", "x", Some(("Deployment", "y")))
        .with("Deployment", "y", Some(("ReplicaSet", "x")))
        .with("Job", "self", Some(("Job", "self")))
        .with("Deployment", "of-node", Some(("Node", "n")))
        .with("Job", "unread", Some(("Broken", "b")))
        .without_scale("Broken", "b")
        .with("Job", "unasked", Some(("Unasked", "u")));
    let found = |kind, name| match topmost(key(kind, name), &known) {
        Ok(Some(found)) => format!("{} {}", found.kind, found.name),
        Ok(None) => "none".to_owned(),
        Err(error) => error.to_string(),
    };
    for (kind, name, expected) in [
        ("ReplicaSet", "web-1", "Deployment web"),
        ("Deployment", "web", "Deployment web"),
        ("Job", "nightly-1", "CronJob nightly"),
        // A custom kind with a scale counts; what owns it and has none does not, and ends the chain.
        ("StatefulSet", "db", "Database db"),
        ("DaemonSet", "agent", "DaemonSet agent"),
        ("Bundle", "b", "none"),
        ("ReplicaSet", "orphan", "Deployment shop/gone does not exist"),
        ("ReplicaSet", "x", "cycle detected in ownership chain"),
        ("Job", "self", "cycle detected in ownership chain"),
        ("Node", "n", "node is not a valid owner"),
        ("Deployment", "of-node", "node is not a valid owner"),
        (
            "Job",
            "unread",
            "unhandled targetRef v / Broken / b, last error the server said no",
        ),
        (
            "Job",
            "unasked",
            "the scale of Unasked shop/u has not been asked for yet",
        ),
    ] {
        assert_eq!(found(kind, name), expected, "{kind} {name}");
    }
}

#[test]
fn what_a_target_selects() {
    let mut known = Known::default()
        .with("Deployment", "web", None)
        .with("CloneSet", "clone", None)
        .without_scale("Broken", "b");
    for (name, selector) in [("empty", ""), ("odd", "a in (")] {
        let selector = selector.to_owned();
        known.scales.insert(
            key("CloneSet", name),
            Ok(Scale {
                owner: None,
                selector,
                replicas: None,
            }),
        );
    }
    known
        .controllers
        .apply(WellKnown::Job, NS, "none", Controller::selecting(None, None));
    let selected = |kind, name| match selector_of(&key(kind, name), &known) {
        Ok(selector) => selector
            .matches(|label| (label == "app").then_some("web"))
            .to_string(),
        Err(error) => error.to_string(),
    };
    for (kind, name, expected) in [
        ("Deployment", "web", "true"),
        ("CloneSet", "clone", "true"),
        ("Job", "none", "false"),
        ("Deployment", "gone", "Deployment shop/gone does not exist"),
        (
            "CloneSet",
            "empty",
            "resource shop/empty has an empty selector for scale sub-resource",
        ),
        (
            "CloneSet",
            "gone",
            "unhandled targetRef v / CloneSet / gone, last error not found",
        ),
        (
            "Broken",
            "b",
            "unhandled targetRef v / Broken / b, last error the server said no",
        ),
        (
            "Unasked",
            "u",
            "the scale of Unasked shop/u has not been asked for yet",
        ),
    ] {
        assert_eq!(selected(kind, name), expected, "{kind} {name}");
    }
    assert!(matches!(
        selector_of(&key("CloneSet", "odd"), &known),
        Err(TargetError::Selector(_))
    ));
}

fn vpa(name: &str, created: Option<&str>, kind: &str, target: &str) -> VerticalPodAutoscaler {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": NS, "creationTimestamp": created},
        "spec": {"targetRef": {"apiVersion": "any/v9", "kind": kind, "name": target}},
    }))
    .unwrap()
}

fn pod(owners: &Value, labels: &Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p", "ownerReferences": owners, "labels": labels}}))
        .unwrap()
}

fn web_pod() -> Pod {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u", "controller": true});
    pod(&json!([owner]), &json!({"app": "web"}))
}

fn web() -> Known {
    Known::default()
        .with("ReplicaSet", "web-1", Some(("Deployment", "web")))
        .with("Deployment", "web", None)
}

fn controlling(pod: &Pod, vpas: &[VerticalPodAutoscaler], known: &Known) -> Option<String> {
    let mut index = VpaIndex::default();
    vpas.iter().for_each(|vpa| index.apply(vpa));
    let vpa = controlling_vpa(pod, NS, &index, known, |_| true).unwrap();
    vpa.map(|vpa| vpa.sizing.name.clone())
}

#[test]
fn which_vpa_controls_a_pod() {
    let (may, june) = (Some("2026-05-01T00:00:00Z"), Some("2026-06-01T00:00:00Z"));
    let owned = |kind: &str, controller: Value| {
        let owner =
            json!({"apiVersion": "v", "kind": kind, "name": "web", "uid": "u", "controller": controller});
        pod(&json!([owner]), &json!({"app": "web"}))
    };
    for (what, pod, vpas, expected) in [
        (
            "the only one",
            web_pod(),
            vec![vpa("v", may, "Deployment", "web")],
            Some("v"),
        ),
        (
            "the oldest",
            web_pod(),
            vec![
                vpa("a", june, "Deployment", "web"),
                vpa("z", may, "Deployment", "web"),
            ],
            Some("z"),
        ),
        (
            "of one second the first by name",
            web_pod(),
            vec![
                vpa("z", may, "Deployment", "web"),
                vpa("a", may, "Deployment", "web"),
            ],
            Some("a"),
        ),
        (
            "another kind",
            web_pod(),
            vec![vpa("v", may, "StatefulSet", "web")],
            None,
        ),
        (
            "not the topmost",
            web_pod(),
            vec![vpa("v", may, "ReplicaSet", "web-1")],
            None,
        ),
        (
            "other labels",
            pod(&web_owners(), &json!({"app": "db"})),
            vec![vpa("v", may, "Deployment", "web")],
            None,
        ),
        (
            "no owner",
            pod(&json!([]), &json!({"app": "web"})),
            vec![vpa("v", may, "Deployment", "web")],
            None,
        ),
        (
            "an owner that does not control it",
            owned("Deployment", Value::Null),
            vec![vpa("v", may, "Deployment", "web")],
            None,
        ),
    ] {
        assert_eq!(controlling(&pod, &vpas, &web()).as_deref(), expected, "{what}");
    }
}

fn web_owners() -> Value {
    json!([
        {"apiVersion": "v", "kind": "Node", "name": "n", "uid": "n"},
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u", "controller": true},
    ])
}

#[test]
fn a_vpa_that_changes_its_target_or_goes_is_found_no_more() {
    let mut index = VpaIndex::default();
    let target = |name| key("Deployment", name);
    let names = |index: &VpaIndex, name| -> Vec<String> {
        let vpas = index.targeting(&target(name)).iter();
        vpas.map(|vpa| vpa.sizing.name.clone()).collect()
    };
    index.apply(&vpa("v", None, "Deployment", "web"));
    index.apply(&vpa("w", None, "Deployment", "web"));
    index.apply(&vpa("v", None, "Deployment", "api"));
    assert_eq!(
        (names(&index, "web"), names(&index, "api")),
        (vec!["w".to_owned()], vec!["v".to_owned()])
    );
    index.remove(NS, "v");
    index.remove(NS, "w");
    index.remove(NS, "never-there");
    assert_eq!((names(&index, "web"), names(&index, "api")), (vec![], vec![]));
}

#[test]
fn nobody_is_asked_where_there_is_no_vpa() {
    let known = Known::default();
    let owner = json!({"apiVersion": "v", "kind": "CloneSet", "name": "c", "uid": "u", "controller": true});
    let pod = pod(&json!([owner]), &json!({}));
    assert_eq!(controlling(&pod, &[], &known), None);
    assert_eq!(known.asked.take(), []);
    assert_eq!(
        controlling(&pod, &[vpa("v", None, "Deployment", "web")], &known),
        None
    );
    assert_eq!(known.asked.take(), [key("CloneSet", "c")]);
}

#[test]
fn a_vpa_that_the_caller_does_not_take_makes_room_for_the_next() {
    let mut index = VpaIndex::default();
    for vpa in [
        vpa("a", None, "Deployment", "web"),
        vpa("b", None, "Deployment", "web"),
    ] {
        index.apply(&vpa);
    }
    let known = web();
    let taken = controlling_vpa(&web_pod(), NS, &index, &known, |vpa| vpa.sizing.name != "a").unwrap();
    assert_eq!(taken.map(|vpa| vpa.sizing.name.as_str()), Some("b"));
}
