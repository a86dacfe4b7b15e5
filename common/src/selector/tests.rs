use super::*;
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;

fn selects(selector: &Selector, labels: &[(&str, &str)]) -> bool {
    let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
    selector.matches(|key| labels.get(key).copied())
}

#[test]
fn text_selects_as_kubernetes_says() {
    for (text, matching, others) in [
        ("", vec![vec![], vec![("a", "b")]], vec![]),
        (
            "app=x",
            vec![vec![("app", "x"), ("b", "c")]],
            vec![vec![], vec![("app", "y")]],
        ),
        ("app == x", vec![vec![("app", "x")]], vec![vec![("app", "")]]),
        ("app=", vec![vec![("app", "")]], vec![vec![], vec![("app", "x")]]),
        (
            "app!=x",
            vec![vec![], vec![("app", "y")]],
            vec![vec![("app", "x")]],
        ),
        (
            "app in (x,y)",
            vec![vec![("app", "x")], vec![("app", "y")]],
            vec![vec![], vec![("app", "z")]],
        ),
        (
            " app  notin ( x , y ) ",
            vec![vec![], vec![("app", "z")]],
            vec![vec![("app", "x")]],
        ),
        (
            "app in (,x)",
            vec![vec![("app", "")], vec![("app", "x")]],
            vec![vec![]],
        ),
        (
            "app,app!=z",
            vec![vec![("app", "x")]],
            vec![vec![], vec![("app", "z")]],
        ),
        ("!app", vec![vec![], vec![("b", "c")]], vec![vec![("app", "x")]]),
        (
            "n>5,n<7",
            vec![vec![("n", "6")]],
            vec![vec![("n", "5")], vec![("n", "x")], vec![]],
        ),
        (
            "app.kubernetes.io/name=x,in=y",
            vec![vec![("app.kubernetes.io/name", "x"), ("in", "y")]],
            vec![vec![("app.kubernetes.io/name", "x")]],
        ),
    ] {
        let selector: Selector = text.parse().unwrap();
        for labels in matching {
            assert!(selects(&selector, &labels), "{text:?} should match {labels:?}");
        }
        for labels in others {
            assert!(
                !selects(&selector, &labels),
                "{text:?} should not match {labels:?}"
            );
        }
    }
}

#[test]
fn bad_text_is_explained() {
    for (text, expected) in [
        (
            "a=b,",
            "cannot read selector \"a=b,\": expected a label name, found the end",
        ),
        (
            "a b",
            "cannot read selector \"a b\": expected an operator, found \"b\"",
        ),
        (
            "a=b c",
            "cannot read selector \"a=b c\": expected a comma, found \"c\"",
        ),
        (
            "a in b",
            "cannot read selector \"a in b\": expected (, found \"b\"",
        ),
        (
            "a in (b",
            "cannot read selector \"a in (b\": expected a comma or ), found the end",
        ),
        (
            "=b",
            "cannot read selector \"=b\": expected a label name, found \"=\"",
        ),
        ("a>b", "\"b\" is compared by size and must be a whole number"),
        ("-a", "\"-a\" is not a label name"),
        ("a=ü", "\"ü\" is not a label value"),
        ("A.b/c", "\"A.b/c\" is not a label name"),
    ] {
        assert_eq!(
            text.parse::<Selector>().unwrap_err().to_string(),
            expected,
            "{text:?}"
        );
    }
}

#[test]
fn objects_and_text_say_the_same() {
    let object: LabelSelector = serde_json::from_value(json!({
        "matchLabels": {"app": "x"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["b", "a"]},
            {"key": "old", "operator": "NotIn", "values": ["yes"]},
            {"key": "team", "operator": "Exists"},
            {"key": "gone", "operator": "DoesNotExist", "values": []},
        ],
    }))
    .unwrap();
    let selector = Selector::try_from(&object).unwrap();
    assert_eq!(
        selector,
        "team,!gone,app=x,old!=yes,tier in (a,b)".parse().unwrap()
    );
    assert_eq!(selector.to_string(), "app=x,!gone,old!=yes,team,tier in (a,b)");
    assert_eq!(selector.exact_labels().collect::<Vec<_>>(), [("app", "x")]);
    assert!(
        Selector::try_from(&LabelSelector::default())
            .unwrap()
            .matches(|_| None)
    );
}

#[test]
fn bad_objects_are_explained() {
    for (expression, expected) in [
        (
            json!({"key": "a", "operator": "In"}),
            "operator In on \"a\" has 0 values",
        ),
        (
            json!({"key": "a", "operator": "Exists", "values": ["b"]}),
            "operator Exists on \"a\" has 1 values",
        ),
        (
            json!({"key": "a", "operator": "Gt", "values": ["1"]}),
            "unknown operator \"Gt\": use In, NotIn, Exists or DoesNotExist",
        ),
    ] {
        let object = serde_json::from_value(json!({ "matchExpressions": [expression] })).unwrap();
        assert_eq!(Selector::try_from(&object).unwrap_err().to_string(), expected);
    }
}

#[test]
fn nothing_selects_nothing() {
    assert!(!selects(&Selector::Nothing, &[]));
    assert_eq!(Selector::Nothing.exact_labels().count(), 0);
    assert_eq!(Selector::labels([("a", "b")]), "a=b".parse().unwrap());
}

proptest! {
    #[test]
    fn any_text_is_answered_and_good_text_reads_back(text in "[a-c0-9=!<>(), ]{0,20}|in |.{0,20}") {
        if let Ok(selector) = text.parse::<Selector>() {
            prop_assert_eq!(selector.to_string().parse::<Selector>().unwrap(), selector);
        }
    }
}
