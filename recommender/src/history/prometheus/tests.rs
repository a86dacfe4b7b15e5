use super::*;
use serde_json::json;

fn data(json: serde_json::Value) -> Data {
    serde_json::from_value(json).unwrap()
}

fn labels() -> Labels {
    Labels {
        pod_prefix: "pod_label_".to_owned(),
        pod_namespace: "kubernetes_namespace".to_owned(),
        pod_name: "kubernetes_pod_name".to_owned(),
        container_namespace: "namespace".to_owned(),
        container_pod: "pod_name".to_owned(),
        container_name: "name".to_owned(),
    }
}

#[test]
fn durations_are_read_as_prometheus_writes_them() {
    for (text, seconds) in [
        ("8d", 691_200),
        ("1h", 3_600),
        ("1h30m", 5_400),
        ("2w", 1_209_600),
    ] {
        let duration: PrometheusDuration = text.parse().unwrap();
        assert_eq!(duration.length, TimeDelta::seconds(seconds), "{text}");
        assert_eq!(duration.to_string(), text);
    }
    for text in ["", "8", "d", "8 d", "0s", "99999999999y", "-1h"] {
        assert!(text.parse::<PrometheusDuration>().is_err(), "{text}");
    }
}

#[test]
fn usage_is_put_together_by_pod_and_container_in_order_of_time() {
    let series = json!({"resultType": "matrix", "result": [
        {"metric": {"namespace": "shop", "pod_name": "web-0", "name": "web"},
         "values": [[20, "0.5"], [10, "0.25"], [30, "NaN"]]},
    ]});
    let mut pods = HashMap::new();
    add_usage(&mut pods, data(series), &labels(), |container| &mut container.cpu);
    let at = |seconds| DateTime::from_timestamp(seconds, 0).unwrap();
    let pod = &pods[&("shop".to_owned(), "web-0".to_owned())];
    assert_eq!(pod.containers["web"].cpu, [(at(10), 0.25), (at(20), 0.5)]);
}

#[test]
fn labels_come_from_a_vector_or_from_the_latest_series_of_a_matrix() {
    let metric = |version: &str| {
        json!({"kubernetes_namespace": "shop", "kubernetes_pod_name": "web-0", "job": "kubernetes-pods",
               "pod_label_app": "web", "pod_label_version": version})
    };
    let vector = json!({"resultType": "vector", "result": [{"metric": metric("2"), "value": [30, "1"]}]});
    let matrix = json!({"resultType": "matrix", "result": [
        {"metric": metric("2"), "values": [[20, "1"], [30, "1"]]},
        {"metric": metric("1"), "values": [[10, "1"]]},
    ]});
    for answer in [vector, matrix] {
        let mut pods = HashMap::from([(("shop".to_owned(), "web-0".to_owned()), PodHistory::default())]);
        add_labels(&mut pods, data(answer), &labels());
        let pod = &pods[&("shop".to_owned(), "web-0".to_owned())];
        let expected = [("app", "web"), ("version", "2")];
        assert_eq!(
            pod.labels,
            expected
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into()
        );
    }
}
