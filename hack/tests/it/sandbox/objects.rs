//! Objects, lists and watches through kube's `Api` and `watcher`, and the collection of what nobody owns any more.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, pin_mut};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    coordination::v1::Lease,
    core::v1::{ConfigMap, Event, Namespace, Pod},
    events::v1::Event as NewEvent,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    core::PartialObjectMeta,
    runtime::watcher,
};
use serde_json::{Value, json};

use super::{object, pod, refusal, sandbox};

fn config_map(name: &str, labels: &[(&str, &str)]) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.into());
    map.metadata.labels = Some(labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect());
    map
}

#[tokio::test]
async fn an_object_is_created_read_changed_and_deleted() {
    let (_sandbox, client) = sandbox().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let made = api
        .create(&PostParams::default(), &config_map("a", &[("x", "1")]))
        .await
        .unwrap();
    assert_eq!(
        serde_json::to_value(made.creation_timestamp()).unwrap(),
        "2026-03-01T12:00:00Z"
    );
    assert_eq!(made.namespace().as_deref(), Some("default"));
    assert_eq!(api.get("a").await.unwrap(), made);
    let taken = api.create(&PostParams::default(), &config_map("a", &[])).await;
    assert_eq!(refusal(taken), (409, "configmaps \"a\" already exists".into()));

    let mut changed = made.clone();
    changed.data = Some(BTreeMap::from([("k".into(), "v".into())]));
    let changed = api.replace("a", &PostParams::default(), &changed).await.unwrap();
    assert_ne!(changed.resource_version(), made.resource_version());
    let stale = api.replace("a", &PostParams::default(), &made).await;
    let message = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply \
                   your changes to the latest version and try again";
    assert_eq!(refusal(stale), (409, message.into()));
    let same = api.replace("a", &PostParams::default(), &changed).await.unwrap();
    assert_eq!(same, changed, "a write that changes nothing makes no version");

    api.delete("a", &DeleteParams::default())
        .await
        .unwrap()
        .right()
        .expect("it is gone at once");
    assert_eq!(
        refusal(api.get("a").await),
        (404, "configmaps \"a\" not found".into())
    );
}

#[tokio::test]
async fn patches_of_all_kinds() {
    let (_sandbox, client) = sandbox().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    api.create(&PostParams::default(), &config_map("a", &[]))
        .await
        .unwrap();
    let params = PatchParams::apply("test");
    let merge = Patch::Merge(json!({"data": {"a": "1", "b": "2"}}));
    api.patch("a", &params, &merge).await.unwrap();
    let json: json_patch::Patch = serde_json::from_value(json!([
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "remove", "path": "/data/a"},
    ]))
    .unwrap();
    let patched = api
        .patch("a", &params, &Patch::Json::<()>(json.clone()))
        .await
        .unwrap();
    assert_eq!(patched.data, Some(BTreeMap::from([("b".into(), "2".into())])));
    assert_eq!(
        refusal(api.patch("a", &params, &Patch::Json::<()>(json)).await).0,
        422
    );
    let strategic = Patch::Strategic(json!({"metadata": {"finalizers": ["x/y"]}, "data": {"b": null}}));
    let patched = api.patch("a", &params, &strategic).await.unwrap();
    assert_eq!(
        (patched.finalizers(), patched.data.clone()),
        (&["x/y".to_owned()][..], Some(BTreeMap::new()))
    );

    let apply = |data: Value| Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data}));
    api.patch("new", &params, &apply(json!({"mine": "1", "also": "2"})))
        .await
        .unwrap();
    api.patch(
        "new",
        &PatchParams::apply("other"),
        &apply(json!({"theirs": "3"})),
    )
    .await
    .unwrap();
    let applied = api
        .patch("new", &params, &apply(json!({"mine": "4"})))
        .await
        .unwrap();
    let expected = [("mine", "4"), ("theirs", "3")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(
        applied.data,
        Some(expected.into()),
        "what an applier drops goes, what others applied stays"
    );
}

#[tokio::test]
async fn lists_come_in_consistent_pages() {
    let (sandbox, client) = sandbox().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    for i in 0..5 {
        let map = config_map(
            &format!("m{i}"),
            &[("even", if i % 2 == 0 { "yes" } else { "no" })],
        );
        api.create(&PostParams::default(), &map).await.unwrap();
    }
    let names =
        |list: &kube::core::ObjectList<ConfigMap>| list.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
    let even = api.list(&ListParams::default().labels("even=yes")).await.unwrap();
    assert_eq!(names(&even), ["m0", "m2", "m4"]);
    let first = api.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(
        (names(&first), first.metadata.remaining_item_count),
        (vec!["m0".into(), "m1".into()], Some(3))
    );

    api.delete("m3", &DeleteParams::default()).await.unwrap();
    api.create(&PostParams::default(), &config_map("m2a", &[]))
        .await
        .unwrap();
    let token = first.metadata.continue_.clone().unwrap();
    let second = api
        .list(&ListParams::default().limit(2).continue_token(&token))
        .await
        .unwrap();
    assert_eq!(
        names(&second),
        ["m2", "m3"],
        "the second page shows the time of the first"
    );
    assert_eq!(second.metadata.resource_version, first.metadata.resource_version);

    sandbox.store().compact(None);
    let gone = api
        .list(&ListParams::default().limit(2).continue_token(&token))
        .await;
    assert_eq!(refusal(gone).0, 410);
    let unknown = api.list(&ListParams::default().fields("data.x=1")).await;
    assert_eq!(
        refusal(unknown),
        (400, "field label not supported: data.x".into())
    );
}

#[tokio::test]
async fn a_watch_shows_what_enters_and_leaves_its_selector() {
    let (_sandbox, client) = sandbox().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    api.create(&PostParams::default(), &config_map("a", &[("in", "no")]))
        .await
        .unwrap();
    let version = api
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    let params = PatchParams::default();
    for label in ["yes", "yes", "no", "yes"] {
        let patch =
            json!({"metadata": {"labels": {"in": label, "n": format!("{label}1")}}, "data": {"l": label}});
        api.patch("a", &params, &Patch::Merge(patch)).await.unwrap();
    }
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let watch = api
        .watch(&WatchParams::default().labels("in=yes"), &version)
        .await
        .unwrap();
    let events: Vec<_> = watch.take(4).try_collect().await.unwrap();
    let words: Vec<_> = events
        .iter()
        .map(|event| match event {
            WatchEvent::Added(_) => "added",
            WatchEvent::Modified(_) => "modified",
            WatchEvent::Deleted(_) => "deleted",
            WatchEvent::Bookmark(_) | WatchEvent::Error(_) => "other",
        })
        .collect();
    assert_eq!(
        words,
        ["added", "deleted", "added", "deleted"],
        "the second change changed nothing"
    );
}

#[tokio::test]
async fn kube_s_watcher_works_in_all_its_ways() {
    let (_sandbox, client) = sandbox().await;
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    api.create(&PostParams::default(), &pod("a")).await.unwrap();
    api.create(&PostParams::default(), &pod("b")).await.unwrap();
    let configurations = [
        watcher::Config::default(),
        watcher::Config::default().page_size(1),
        watcher::Config::default().any_semantic(),
        watcher::Config::default().streaming_lists(),
    ];
    for (i, config) in configurations.into_iter().enumerate() {
        let events = watcher(api.clone(), config.clone());
        pin_mut!(events);
        let extra = format!("c{i}");
        let mut names = Vec::new();
        while let Some(event) = events.next().await {
            match event.unwrap() {
                watcher::Event::InitApply(pod) => names.push(pod.name_any()),
                watcher::Event::InitDone => {
                    api.create(&PostParams::default(), &pod(&extra)).await.unwrap();
                }
                watcher::Event::Apply(pod) => {
                    assert_eq!(pod.name_any(), extra);
                    api.delete(&extra, &DeleteParams::default()).await.unwrap();
                }
                watcher::Event::Delete(pod) => {
                    assert_eq!(pod.name_any(), extra);
                    break;
                }
                watcher::Event::Init => {}
            }
        }
        assert_eq!(names, ["a", "b"], "{config:?}");
    }
    let metadata: Api<PartialObjectMeta<Pod>> = Api::default_namespaced(client);
    let events = watcher(metadata, watcher::Config::default().streaming_lists());
    let objects: Vec<_> = events.take(4).try_collect().await.unwrap();
    let names: Vec<_> = objects
        .iter()
        .filter_map(|event| match event {
            watcher::Event::InitApply(object) => {
                Some((object.name_any(), object.types.clone().unwrap().kind))
            }
            _ => None,
        })
        .collect();
    let kind = "PartialObjectMetadata".to_owned();
    assert_eq!(names, [("a".to_owned(), kind.clone()), ("b".to_owned(), kind)]);
}

#[tokio::test]
async fn a_watch_from_too_long_ago_expires() {
    let (sandbox, client) = sandbox().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    api.create(&PostParams::default(), &config_map("a", &[]))
        .await
        .unwrap();
    let version = api.get("a").await.unwrap().resource_version().unwrap();
    api.create(&PostParams::default(), &config_map("b", &[]))
        .await
        .unwrap();
    sandbox.store().compact(Some("configmaps"));
    let watch = api.watch(&WatchParams::default(), &version).await.unwrap();
    let events: Vec<_> = watch.try_collect().await.unwrap();
    let [WatchEvent::Error(error)] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!((error.code, error.reason.as_str()), (410, "Expired"));
}

#[tokio::test]
async fn leases_are_taken_by_their_version() {
    let (_sandbox, client) = sandbox().await;
    let api: Api<Lease> = Api::namespaced(client, "kube-system");
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": "l"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15},
    }))
    .unwrap();
    let made = api.create(&PostParams::default(), &lease).await.unwrap();
    let unversioned = refusal(api.replace("l", &PostParams::default(), &lease).await);
    assert_eq!(unversioned.0, 422);
    let mut next = made.clone();
    next.spec.as_mut().unwrap().holder_identity = Some("you".into());
    api.replace("l", &PostParams::default(), &next).await.unwrap();
    assert_eq!(
        refusal(api.replace("l", &PostParams::default(), &next).await).0,
        409
    );
}

#[tokio::test]
async fn discovery_knows_every_kind_both_ways() {
    let (_sandbox, client) = sandbox().await;
    assert_eq!(client.apiserver_version().await.unwrap().minor, "36");
    let plain = kube::Discovery::new(client.clone()).run().await.unwrap();
    let aggregated = kube::Discovery::new(client.clone())
        .run_aggregated()
        .await
        .unwrap();
    let kinds = |discovery: &kube::Discovery| {
        let mut all: Vec<_> = discovery
            .groups()
            .flat_map(kube::discovery::ApiGroup::recommended_resources)
            .map(|(resource, capabilities)| format!("{resource:?} {:?}", capabilities.scope))
            .collect();
        all.sort();
        all
    };
    assert_eq!(kinds(&plain), kinds(&aggregated));
    assert!(plain.has_group("apps") && plain.has_group("metrics.k8s.io"));
}

#[tokio::test]
async fn the_specification_has_a_generation_and_the_status_its_own_door() {
    let (_sandbox, client) = sandbox().await;
    let api: Api<Deployment> = Api::default_namespaced(client);
    let deployment: Deployment = object(json!({
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "app", "image": "app"}]},
            },
        },
        "status": {"replicas": 7},
    }));
    let made = api.create(&PostParams::default(), &deployment).await.unwrap();
    assert_eq!(
        (made.metadata.generation, made.status.clone()),
        (Some(1), None),
        "nobody creates a status"
    );
    assert_eq!(made.spec.as_ref().unwrap().replicas, Some(1));
    let patch = Patch::Merge(json!({"spec": {"replicas": 2}, "status": {"replicas": 9}}));
    let main = api.patch("web", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!((main.metadata.generation, main.status), (Some(2), None));
    let status = api
        .patch_status("web", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(status.metadata.generation, Some(2));
    assert_eq!(status.status.unwrap().replicas, Some(9));
    assert_eq!(status.spec.unwrap().replicas, Some(2));
    let scale = api.get_scale("web").await.unwrap();
    assert_eq!(scale.status.unwrap().selector.as_deref(), Some("app=web"));
    let patch = Patch::Merge(json!({"spec": {"replicas": 4}}));
    api.patch_scale("web", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(api.get("web").await.unwrap().spec.unwrap().replicas, Some(4));
}

#[tokio::test]
async fn an_event_can_be_read_in_both_groups() {
    let (_sandbox, client) = sandbox().await;
    let old: Api<Event> = Api::default_namespaced(client.clone());
    let new: Api<NewEvent> = Api::default_namespaced(client);
    let event: NewEvent = object(json!({
        "metadata": {"name": "e"}, "eventTime": "2026-03-01T12:00:00.000000Z", "action": "Evict", "type": "Normal",
        "reason": "EvictedByVPA", "note": "a note", "reportingController": "updater", "reportingInstance": "u-0",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
    }));
    new.create(&PostParams::default(), &event).await.unwrap();
    let selected = ListParams::default().fields("involvedObject.name=p,reason=EvictedByVPA");
    let read = old.list(&selected).await.unwrap().items.remove(0);
    assert_eq!(
        (read.message.as_deref(), read.reporting_component.as_deref()),
        (Some("a note"), Some("updater"))
    );
    let patch =
        Patch::Merge(json!({"series": {"count": 2, "lastObservedTime": "2026-03-01T12:01:00.000000Z"}}));
    let read = new.patch("e", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(
        (read.note.as_deref(), read.series.unwrap().count),
        (Some("a note"), 2)
    );
}

#[tokio::test]
async fn dependents_follow_their_owner_as_the_policy_says() {
    let (sandbox, client) = sandbox().await;
    let owners: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let sets: Api<ReplicaSet> = Api::default_namespaced(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client);
    let table = [
        (DeleteParams::background(), Vec::<&str>::new()),
        (DeleteParams::foreground(), vec![]),
        (DeleteParams::orphan(), vec!["grandchild", "set"]),
    ];
    for (policy, expected) in table {
        let owner = owners
            .create(&PostParams::default(), &config_map("owner", &[]))
            .await
            .unwrap();
        let reference = |kind: &str, version: &str, name: &str, uid: Option<String>| {
            json!([{
                "apiVersion": version, "kind": kind, "name": name, "uid": uid.unwrap(), "blockOwnerDeletion": true,
            }])
        };
        let set: ReplicaSet = object(json!({
            "metadata": {"name": "set", "ownerReferences": reference("ConfigMap", "v1", "owner", owner.uid())},
            "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "a"}]},
                },
            },
        }));
        let set = sets.create(&PostParams::default(), &set).await.unwrap();
        let mut child = pod("grandchild");
        let owner = reference("ReplicaSet", "apps/v1", "set", set.uid());
        child.metadata.owner_references = Some(serde_json::from_value(owner).unwrap());
        pods.create(&PostParams::default(), &child).await.unwrap();
        owners.delete("owner", &policy).await.unwrap();
        let mut left: Vec<_> = ["pods", "replicasets.apps", "configmaps"]
            .iter()
            .flat_map(|resource| sandbox.store().all(resource, Some("default")))
            .map(|object| object.key.name.to_string())
            .collect();
        left.sort();
        assert_eq!(left, expected, "{policy:?}");
    }
}

#[tokio::test]
async fn finalizers_hold_an_object_and_namespaces_take_their_content_along() {
    let (_sandbox, client) = sandbox().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace: Namespace = object(json!({"metadata": {"name": "shop"}}));
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "shop");
    let mut held = config_map("held", &[]);
    held.metadata.finalizers = Some(vec!["x/hold".into()]);
    api.create(&PostParams::default(), &held).await.unwrap();
    api.create(&PostParams::default(), &config_map("free", &[]))
        .await
        .unwrap();
    let missing: Api<ConfigMap> = Api::namespaced(client, "nowhere");
    let refused = missing.create(&PostParams::default(), &held).await;
    assert_eq!(refusal(refused), (404, "namespaces \"nowhere\" not found".into()));

    namespaces
        .delete("shop", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .expect("it waits for its content");
    let left = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(
        left.iter().map(ResourceExt::name_any).collect::<Vec<_>>(),
        ["held"]
    );
    let refused = api.create(&PostParams::default(), &config_map("late", &[])).await;
    let message = "configmaps \"late\" is forbidden: unable to create new content in namespace shop because it is \
                   being terminated";
    assert_eq!(refusal(refused), (403, message.into()));
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch("held", &PatchParams::default(), &free).await.unwrap();
    assert_eq!(refusal(namespaces.get("shop").await).0, 404);
}

#[tokio::test]
async fn unknown_fields_are_dropped_with_a_warning_or_refused() {
    let (sandbox, client) = sandbox().await;
    let body = json!({"metadata": {"name": "a"}, "data": {"k": "v"}, "dta": {}, "binaryData": null});
    let path = "/api/v1/namespaces/default/configmaps";
    let post = |query: &str| {
        http::Request::post(format!("{path}?{query}"))
            .body(body.to_string().into_bytes())
            .unwrap()
    };
    let refused = client.request::<Value>(post("fieldValidation=Strict")).await;
    assert_eq!(
        refusal(refused),
        (400, "strict decoding error: unknown field \"dta\"".into())
    );
    let url = format!("{}{path}", sandbox.url());
    let answer = hack::http::client()
        .unwrap()
        .post(url)
        .body(body.to_string())
        .send()
        .await
        .unwrap();
    assert_eq!(answer.headers()["warning"], r#"299 - "unknown field \"dta\"""#);
    assert_eq!(answer.json::<Value>().await.unwrap().get("dta"), None);
}

#[tokio::test]
async fn kubectl_gets_its_tables() {
    let (sandbox, client) = sandbox().await;
    hack::sandbox::install_crds(sandbox.api()).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod("a")).await.unwrap();
    let vpas = sandbox
        .api()
        .kind("verticalpodautoscalers.autoscaling.k8s.io")
        .unwrap();
    let vpa = json!({
        "metadata": {"name": "v"},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w"},
            "updatePolicy": {"updateMode": "Off"},
        },
    });
    sandbox
        .api()
        .create(&vpas, "default", vpa, &hack::sandbox::Write::default())
        .await
        .unwrap();
    let table = async |path: &str| -> Value {
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        let request = http::Request::get(path)
            .header("accept", accept)
            .body(Vec::new())
            .unwrap();
        client.request(request).await.unwrap()
    };
    let shown = |table: &Value| {
        let names: Vec<Value> = table["columnDefinitions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|column| column["name"].clone())
            .collect();
        (table["kind"].clone(), names, table["rows"][0]["cells"].clone())
    };
    let (kind, columns, cells) = shown(&table("/api/v1/pods").await);
    assert_eq!(kind, "Table");
    assert_eq!(
        columns,
        ["Name", "Ready", "Status", "Restarts", "Age", "IP", "Node"]
    );
    assert_eq!(cells, json!(["a", "0/1", "Pending", "0", "0s", "", ""]));
    let (_, columns, cells) = shown(&table("/apis/autoscaling.k8s.io/v1/verticalpodautoscalers").await);
    assert_eq!(columns[..6], ["Name", "Mode", "CPU", "Mem", "Provided", "Age"]);
    assert_eq!(
        cells.as_array().unwrap()[..6],
        [
            json!("v"),
            json!("Off"),
            json!(""),
            json!(""),
            json!(""),
            json!("0s")
        ]
    );
}

#[tokio::test]
async fn a_server_without_watch_lists_says_so_as_the_real_one() {
    let options = hack::sandbox::Options {
        watch_list: false,
        ..Default::default()
    };
    let sandbox = hack::sandbox::Sandbox::start(options).await.unwrap();
    let api: Api<Pod> = Api::all(sandbox.client().unwrap());
    let events = watcher(api, watcher::Config::default().streaming_lists());
    pin_mut!(events);
    let error = loop {
        match events.next().await.unwrap() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    let watcher::Error::WatchStartFailed(kube::Error::Api(status)) = error else {
        panic!("{error}")
    };
    let cause = &status.details.as_ref().unwrap().causes[0];
    assert_eq!(
        (status.code, cause.field.as_str(), cause.reason.as_str()),
        (422, "sendInitialEvents", "FieldValueForbidden")
    );
}

#[tokio::test]
async fn hooks_hear_of_pods_that_come_and_go() {
    let (sandbox, client) = sandbox().await;
    let heard = std::sync::Arc::<std::sync::Mutex<Vec<String>>>::default();
    let notes = heard.clone();
    sandbox.api().on_pod(std::sync::Arc::new(move |change, pod| {
        notes.lock().unwrap().push(format!("{change:?} {}", pod.key.name));
    }));
    let pods: Api<Pod> = Api::default_namespaced(client);
    pods.create(&PostParams::default(), &pod("a")).await.unwrap();
    let label = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
    pods.patch("a", &PatchParams::default(), &label).await.unwrap();
    pods.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(*heard.lock().unwrap(), ["Added a", "Deleted a"]);
}
