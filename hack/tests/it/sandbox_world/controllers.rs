//! What the sandbox's controllers make of workloads.

use std::collections::BTreeSet;

use hack::sandbox::{
    Key, Part, Write,
    world::{NodeSpec, WorldOptions},
};
use serde_json::{Value, json};

use super::stage::{Stage, condition, fields, name, sized, template, workload};

fn app() -> Value {
    json!({"containers": [sized("app", "100m", "100Mi")]})
}

fn image(tag: &str) -> Value {
    json!({"containers": [{"name": "app", "image": format!("app:{tag}")}]})
}

#[tokio::test]
async fn a_deployment_gets_a_replica_set_and_pods() {
    let stage = Stage::new().await;
    stage
        .create("deployments.apps", workload("web", 3, &Value::Null, &app()))
        .await;
    stage.pass(5).await;
    let deployment = stage.get("deployments.apps", "web");
    assert_eq!(
        fields(
            &deployment["status"],
            &[
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "observedGeneration"
            ]
        ),
        [3, 3, 3, 3, 1]
    );
    assert_eq!(
        deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "1"
    );
    assert_eq!(
        condition(&deployment, "Available")["reason"],
        "MinimumReplicasAvailable"
    );
    assert_eq!(
        condition(&deployment, "Progressing")["reason"],
        "NewReplicaSetAvailable"
    );
    let set = stage.all("replicasets.apps").remove(0);
    let hash = set["metadata"]["labels"]["pod-template-hash"].as_str().unwrap();
    assert_eq!(name(&set), format!("web-{hash}"));
    let owner = |value: &Value| value["metadata"]["ownerReferences"].clone();
    let expected = |kind: &str, owner: &Value| {
        json!([{
            "apiVersion": "apps/v1", "kind": kind, "name": name(owner), "uid": owner["metadata"]["uid"],
            "controller": true, "blockOwnerDeletion": true,
        }])
    };
    assert_eq!(owner(&set), expected("Deployment", &deployment));
    for pod in stage.all("pods") {
        assert_eq!(owner(&pod), expected("ReplicaSet", &set));
        assert_eq!(
            pod["metadata"]["labels"],
            json!({"app": "web", "pod-template-hash": hash})
        );
    }
    stage
        .merge(
            "deployments.apps",
            "web",
            Part::Main,
            json!({"spec": {"replicas": 1}}),
        )
        .await;
    stage.pass(5).await;
    assert_eq!((stage.all("pods").len(), stage.ready_pods()), (1, 1));
    stage.delete("deployments.apps", "web").await;
    stage.pass(5).await;
    assert_eq!(
        (stage.names("replicasets.apps").len(), stage.names("pods").len()),
        (0, 0)
    );
}

#[tokio::test]
async fn a_rolling_update_keeps_within_its_bounds() {
    let stage = Stage::new().await;
    let mut web = workload("web", 4, &Value::Null, &image("1"));
    web["spec"]["strategy"] = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}});
    stage.create("deployments.apps", web).await;
    stage.pass(5).await;
    let change = json!({"spec": {"template": {"spec": image("2")}}});
    stage.merge("deployments.apps", "web", Part::Main, change).await;
    let active = |stage: &Stage| {
        let pods = stage.all("pods").into_iter();
        pods.filter(|pod| pod["metadata"].get("deletionTimestamp").is_none())
            .collect::<Vec<_>>()
    };
    let mut seen = BTreeSet::new();
    for _ in 0..20 {
        stage.pass(1).await;
        let pods = active(&stage);
        let ready = pods
            .iter()
            .filter(|pod| condition(pod, "Ready")["status"] == "True")
            .count();
        assert!(pods.len() <= 5, "{} pods", pods.len());
        assert!(ready >= 3, "{ready} ready");
        seen.insert(pods.len());
    }
    assert!(seen.contains(&5), "it has surged: {seen:?}");
    let images: BTreeSet<_> = active(&stage)
        .iter()
        .map(|pod| pod["spec"]["containers"][0]["image"].to_string())
        .collect();
    assert_eq!(images, BTreeSet::from(["\"app:2\"".to_owned()]));
    let deployment = stage.get("deployments.apps", "web");
    assert_eq!(
        fields(
            &deployment["status"],
            &["replicas", "updatedReplicas", "availableReplicas"]
        ),
        [4, 4, 4]
    );
    assert_eq!(
        deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "2"
    );
    // Back to the first template: its ReplicaSet is used again, as a new revision.
    let back = json!({"spec": {"template": {"spec": image("1")}}});
    stage.merge("deployments.apps", "web", Part::Main, back).await;
    stage.pass(20).await;
    let deployment = stage.get("deployments.apps", "web");
    assert_eq!(
        deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "3"
    );
    assert_eq!(stage.names("replicasets.apps").len(), 2);
    assert_eq!(stage.ready_pods(), 4);
}

#[tokio::test]
async fn a_stateful_set_counts_its_pods_and_takes_them_one_by_one() {
    let stage = Stage::new().await;
    stage
        .create("statefulsets.apps", workload("db", 3, &Value::Null, &image("1")))
        .await;
    let mut seen = Vec::new();
    for _ in 0..8 {
        stage.pass(1).await;
        let count = stage.names("pods").len();
        assert!(
            stage.ready_pods() + 1 >= count,
            "the next comes when the last is ready"
        );
        seen.push(count);
    }
    assert_eq!((seen.first(), seen.last()), (Some(&1), Some(&3)));
    assert_eq!(stage.names("pods"), ["db-0", "db-1", "db-2"]);
    assert_eq!(
        fields(
            &stage.get("statefulsets.apps", "db")["status"],
            &["replicas", "readyReplicas"]
        ),
        [3, 3]
    );
    let change = json!({"spec": {"template": {"spec": image("2")}}});
    stage.merge("statefulsets.apps", "db", Part::Main, change).await;
    for _ in 0..30 {
        stage.pass(1).await;
        assert!(stage.ready_pods() >= 2, "one at a time");
    }
    for pod in stage.all("pods") {
        assert_eq!(pod["spec"]["containers"][0]["image"], "app:2");
    }
    let status = stage.get("statefulsets.apps", "db")["status"].clone();
    assert_eq!(status["currentRevision"], status["updateRevision"]);
    stage
        .merge(
            "statefulsets.apps",
            "db",
            Part::Main,
            json!({"spec": {"replicas": 1}}),
        )
        .await;
    stage.pass(10).await;
    assert_eq!(stage.names("pods"), ["db-0"]);
    let mut parallel = workload("cache", 3, &Value::Null, &image("1"));
    parallel["spec"]["podManagementPolicy"] = "Parallel".into();
    stage.create("statefulsets.apps", parallel).await;
    stage.pass(1).await;
    assert_eq!(stage.names("pods"), ["cache-0", "cache-1", "cache-2", "db-0"]);
}

#[tokio::test]
async fn a_daemon_set_has_a_pod_on_each_node() {
    let nodes = ["a", "b"].map(|name| NodeSpec::new(name, "4", "8Gi")).to_vec();
    let stage = Stage::with(WorldOptions {
        nodes,
        ..WorldOptions::default()
    })
    .await;
    let mut agent = workload("agent", 0, &Value::Null, &image("1"));
    agent["spec"].as_object_mut().unwrap().remove("replicas");
    stage.create("daemonsets.apps", agent).await;
    stage.pass(5).await;
    stage
        .world
        .add_node(&NodeSpec::new("c", "4", "8Gi"))
        .await
        .unwrap();
    stage.pass(5).await;
    let on: BTreeSet<_> = stage
        .all("pods")
        .iter()
        .map(|pod| pod["spec"]["nodeName"].to_string())
        .collect();
    assert_eq!(on, ["\"a\"", "\"b\"", "\"c\""].map(str::to_owned).into());
    let names = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "numberAvailable",
    ];
    assert_eq!(
        fields(&stage.get("daemonsets.apps", "agent")["status"], &names),
        [3, 3, 3, 3]
    );
    let change = json!({"spec": {"template": {"spec": image("2")}}});
    stage.merge("daemonsets.apps", "agent", Part::Main, change).await;
    for _ in 0..15 {
        stage.pass(1).await;
        assert!(stage.ready_pods() >= 2, "one at a time");
    }
    assert!(
        stage
            .all("pods")
            .iter()
            .all(|pod| pod["spec"]["containers"][0]["image"] == "app:2")
    );
}

#[tokio::test]
async fn a_replication_controller_keeps_its_pods() {
    let stage = Stage::new().await;
    let controller = json!({
        "metadata": {"name": "old"},
        "spec": {"replicas": 2, "selector": {"app": "old"}, "template": template("old", &Value::Null, &app())},
    });
    stage.create("replicationcontrollers", controller).await;
    stage.pass(5).await;
    let first = stage.names("pods");
    stage.delete("pods", &first[0]).await;
    stage.pass(5).await;
    assert_eq!(stage.ready_pods(), 2);
    assert_ne!(stage.names("pods"), first);
    assert_eq!(
        fields(
            &stage.get("replicationcontrollers", "old")["status"],
            &["replicas", "readyReplicas"]
        ),
        [2, 2]
    );
}

fn job(completions: i64, parallelism: i64, load: &Value) -> Value {
    let mut proxy = sized("proxy", "50m", "64Mi");
    proxy["restartPolicy"] = "Always".into();
    let spec = json!({
        "restartPolicy": "Never", "initContainers": [proxy], "containers": [sized("work", "100m", "100Mi")],
    });
    json!({"completions": completions, "parallelism": parallelism, "template": template("work", load, &spec)})
}

#[tokio::test]
async fn a_job_runs_until_enough_pods_have_succeeded() {
    let stage = Stage::new().await;
    let spec = job(3, 2, &json!({"runs": "1min"}));
    stage
        .create("jobs.batch", json!({"metadata": {"name": "work"}, "spec": spec}))
        .await;
    stage.pass(30).await;
    let status = stage.get("jobs.batch", "work")["status"].clone();
    assert_eq!(
        fields(&status, &["active", "ready", "succeeded", "failed"]),
        [2, 2, 0, 0]
    );
    stage.pass(60).await;
    let status = stage.get("jobs.batch", "work")["status"].clone();
    assert_eq!(fields(&status, &["active", "succeeded"]), [1, 2]);
    stage.pass(70).await;
    let done = stage.get("jobs.batch", "work");
    assert_eq!(
        fields(&done["status"], &["active", "ready", "succeeded", "failed"]),
        [0, 0, 3, 0]
    );
    assert_eq!(condition(&done, "Complete")["status"], "True");
    assert_eq!(stage.names("pods").len(), 3);
    for pod in stage.all("pods") {
        assert_eq!(pod["status"]["phase"], "Succeeded");
        let sidecar = &pod["status"]["initContainerStatuses"][0]["state"]["terminated"];
        assert_eq!(
            sidecar["reason"], "Completed",
            "native sidecars end with the work"
        );
    }
}

#[tokio::test]
async fn a_job_whose_pods_fail_gives_up() {
    let stage = Stage::new().await;
    let load = json!({"containers": {"work": {"memory": "200Mi"}}});
    let mut spec = job(1, 1, &load);
    spec["backoffLimit"] = 2.into();
    stage
        .create("jobs.batch", json!({"metadata": {"name": "work"}, "spec": spec}))
        .await;
    stage.pass(60).await;
    let failed = stage.get("jobs.batch", "work");
    assert_eq!(
        fields(&failed["status"], &["active", "succeeded", "failed"]),
        [0, 0, 3]
    );
    assert_eq!(condition(&failed, "Failed")["reason"], "BackoffLimitExceeded");
    let reasons: Vec<_> = stage
        .all("pods")
        .iter()
        .map(|pod| pod["status"]["containerStatuses"][0]["state"]["terminated"]["reason"].to_string())
        .collect();
    assert_eq!(reasons, ["\"OOMKilled\""; 3]);
}

#[tokio::test]
async fn a_cron_job_starts_jobs_by_its_schedule_and_keeps_a_few() {
    let stage = Stage::new().await;
    let cron = json!({
        "metadata": {"name": "tick"},
        "spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": job(1, 1, &Value::Null)}},
    });
    stage.create("cronjobs.batch", cron).await;
    stage.pass(299).await;
    assert_eq!(stage.names("jobs.batch"), [""; 0]);
    stage.pass(2).await;
    let minute = stage.now().timestamp() / 60;
    assert_eq!(stage.names("jobs.batch"), [format!("tick-{minute}")]);
    assert_eq!(
        stage.get("cronjobs.batch", "tick")["status"]["active"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    stage.pass(3600).await;
    assert_eq!(
        stage.names("jobs.batch").len(),
        4,
        "three that are done, one that runs"
    );
    stage.pass(60).await;
    let status = stage.get("cronjobs.batch", "tick")["status"].clone();
    assert_eq!(
        fields(&status, &["active", "lastScheduleTime"]),
        [Value::Null, json!("2026-03-01T13:05:00Z")]
    );
    assert_eq!(stage.names("jobs.batch").len(), 3);
    assert_eq!(stage.names("pods").len(), 3);
}

#[tokio::test]
async fn a_disruption_budget_counts_and_evictions_obey() {
    let stage = Stage::new().await;
    stage
        .create("deployments.apps", workload("web", 4, &Value::Null, &app()))
        .await;
    let budget = json!({
        "metadata": {"name": "web"},
        "spec": {"maxUnavailable": "25%", "selector": {"matchLabels": {"app": "web"}}},
    });
    stage.create("poddisruptionbudgets.policy", budget).await;
    let counts = |stage: &Stage| {
        let names = [
            "expectedPods",
            "currentHealthy",
            "desiredHealthy",
            "disruptionsAllowed",
            "observedGeneration",
        ];
        fields(&stage.get("poddisruptionbudgets.policy", "web")["status"], &names)
    };
    stage.pass(1).await;
    assert_eq!(counts(&stage), [4, 0, 3, 0, 1]);
    stage.pass(4).await;
    assert_eq!(counts(&stage), [4, 4, 3, 1, 1]);
    let pods = stage.names("pods");
    let evict = async |name: &str| {
        let (key, write) = (Key::new("default", name), Write::default());
        let done = stage.sandbox.api().evict(&key, &json!({}), &write).await;
        done.map_err(|error| error.code)
    };
    assert_eq!(evict(&pods[0]).await, Ok(()));
    assert_eq!(evict(&pods[1]).await, Err(429), "the budget is spent");
    stage.pass(1).await;
    assert_eq!(counts(&stage), [4, 3, 3, 0, 1]);
    assert_eq!(evict(&pods[1]).await, Err(429));
    stage.pass(5).await;
    assert_eq!(counts(&stage), [4, 4, 3, 1, 1], "the replacement is ready");
    assert_eq!(
        stage.get("poddisruptionbudgets.policy", "web")["status"].get("disruptedPods"),
        None
    );
    assert_eq!(evict(&pods[1]).await, Ok(()));
}

#[tokio::test]
async fn a_namespace_gets_a_default_service_account() {
    let stage = Stage::new().await;
    stage
        .create("namespaces", json!({"metadata": {"name": "team"}}))
        .await;
    stage.pass(1).await;
    let accounts = stage.all("serviceaccounts");
    assert!(
        accounts
            .iter()
            .any(|one| one["metadata"]["namespace"] == "team" && name(one) == "default")
    );
}
