//! What a set gets that its author left open (`spec/sidecarset.md` 1.6): the defaults of Kruise and of the core API, and the
//! two hashes. On JSON, so that a field newer than our types stays.

use common::{
    api::sidecarset::{ResourcesPolicy, SidecarSet},
    quantity::Quantity,
    sidecarset::{
        Hashes,
        record::{HASH, HASH_WITHOUT_IMAGE},
    },
};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

/// The object with everything filled in, whichever version it is in.
///
/// # Errors
/// If it is no set.
pub fn defaulted(set: &Value) -> serde_json::Result<Value> {
    // What is not of its type is refused here, before anything is put in its place.
    SidecarSet::deserialize(set)?;
    let mut set = set.clone();
    default_spec(object(&mut set, "spec"));
    // Both versions agree on what is hashed.
    let typed = SidecarSet::deserialize(&set)?;
    let Hashes { hash, without_image } = Hashes::of(&typed.spec);
    let metadata = object(&mut set, "metadata");
    let annotations = object(metadata, "annotations");
    annotations[HASH] = hash.into();
    annotations[HASH_WITHOUT_IMAGE] = without_image.into();
    Ok(set)
}

fn default_spec(spec: &mut Value) {
    let strategy = object(spec, "updateStrategy");
    set_empty(strategy, "type", "RollingUpdate");
    set_absent(strategy, "partition", 0);
    set_absent(strategy, "maxUnavailable", 1);
    if let Some(revision) = spec.pointer_mut("/injectionStrategy/revision") {
        set_empty(revision, "policy", "Always");
    }
    set_absent(spec, "revisionHistoryLimit", 10);
    each(spec, "patchPodMetadata", |entry| {
        set_empty(entry, "patchPolicy", "Retain");
    });
    for (list, place) in [
        ("initContainers", "AfterAppContainer"),
        ("containers", "BeforeAppContainer"),
    ] {
        each(spec, list, |sidecar| {
            set_empty(sidecar, "podInjectPolicy", place);
            default_sidecar(sidecar);
        });
    }
    each(spec, "volumes", default_volume);
}

fn default_sidecar(sidecar: &mut Value) {
    set_empty(object(sidecar, "upgradeStrategy"), "upgradeType", "ColdUpgrade");
    set_empty(object(sidecar, "shareVolumePolicy"), "type", "disabled");
    each(sidecar, "transferEnv", |transfer| {
        if let Some(field) = transfer.pointer_mut("/sourceContainerNameFrom/fieldRef") {
            set_empty(field, "apiVersion", "v1");
        }
    });
    // The older spelling of its fields becomes the shipped one.
    if let Some(policy) = sidecar
        .get_mut("resourcesPolicy")
        .filter(|policy| policy.is_object())
        && let Ok(read) = ResourcesPolicy::deserialize(&*policy)
        && let Ok(written) = serde_json::to_value(read)
    {
        *policy = written;
    }
    let image = sidecar["image"].as_str().unwrap_or_default();
    let pull = if follows_a_tag_that_moves(image) {
        "Always"
    } else {
        "IfNotPresent"
    };
    set_empty(sidecar, "imagePullPolicy", pull);
    set_empty(sidecar, "terminationMessagePath", "/dev/termination-log");
    set_empty(sidecar, "terminationMessagePolicy", "File");
    each(sidecar, "ports", |port| set_empty(port, "protocol", "TCP"));
    each(sidecar, "env", |env| {
        if let Some(field) = env.pointer_mut("/valueFrom/fieldRef") {
            set_empty(field, "apiVersion", "v1");
        }
    });
    for side in ["limits", "requests"] {
        if let Some(Value::Object(amounts)) = sidecar.pointer_mut(&format!("/resources/{side}")) {
            round_up(amounts);
        }
    }
    // Kruise leaves the startup probe as it is, and its hash is of that.
    for probe in ["livenessProbe", "readinessProbe"] {
        if let Some(probe) = sidecar.get_mut(probe).filter(|probe| probe.is_object()) {
            for (field, value) in [
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ] {
                if probe[field].is_null() || probe[field] == 0 {
                    probe[field] = value.into();
                }
            }
            default_http(probe);
        }
    }
    for handler in ["/lifecycle/postStart", "/lifecycle/preStop"] {
        if let Some(handler) = sidecar.pointer_mut(handler) {
            default_http(handler);
        }
    }
}

fn default_http(handler: &mut Value) {
    if let Some(get) = handler.get_mut("httpGet").filter(|get| get.is_object()) {
        set_empty(get, "path", "/");
        set_empty(get, "scheme", "HTTP");
    }
}

/// The volumes that the core API has something to add to.
fn default_volume(volume: &mut Value) {
    let has_source = volume.as_object().is_some_and(|volume| {
        volume
            .iter()
            .any(|(key, value)| key != "name" && !value.is_null())
    });
    if !has_source {
        volume["emptyDir"] = json!({});
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(source).filter(|source| source.is_object()) {
            set_absent(source, "defaultMode", 420);
        }
    }
    if let Some(path) = volume.get_mut("hostPath").filter(|path| path.is_object()) {
        set_absent(path, "type", "");
    }
    let field = |item: &mut Value| {
        if let Some(field) = item.get_mut("fieldRef").filter(|field| field.is_object()) {
            set_empty(field, "apiVersion", "v1");
        }
    };
    if let Some(downward) = volume.get_mut("downwardAPI") {
        each(downward, "items", field);
    }
    if let Some(projected) = volume.get_mut("projected") {
        each(projected, "sources", |source| {
            if let Some(token) = source
                .get_mut("serviceAccountToken")
                .filter(|token| token.is_object())
            {
                set_absent(token, "expirationSeconds", 3600);
            }
            if let Some(downward) = source.get_mut("downwardAPI") {
                each(downward, "items", field);
            }
        });
    }
}

/// Whether a tag is `latest`, or missing and no digest in its place.
fn follows_a_tag_that_moves(image: &str) -> bool {
    let (name, digest) = image
        .split_once('@')
        .map_or((image, false), |(name, _)| (name, true));
    let last = name.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => !digest,
    }
}

fn round_up(amounts: &mut Map<String, Value>) {
    for amount in amounts.values_mut() {
        let parsed = amount.as_str().and_then(|text| text.parse::<Quantity>().ok());
        if let Some(parsed) = parsed.filter(|amount| !amount.is_whole_milli())
            && let Some(milli) = parsed.milli()
        {
            *amount = Quantity::from_milli(milli, parsed.format()).to_string().into();
        }
    }
}

/// A member that is an object, made one where it is not.
fn object<'v>(parent: &'v mut Value, key: &str) -> &'v mut Value {
    make_object(parent);
    // Of an object this makes the member where it is missing.
    let child = &mut parent[key];
    make_object(child);
    child
}

fn make_object(value: &mut Value) {
    if !value.is_object() {
        *value = json!({});
    }
}

fn each(parent: &mut Value, key: &str, change: impl Fn(&mut Value)) {
    if let Some(Value::Array(items)) = parent.get_mut(key) {
        items.iter_mut().filter(|item| item.is_object()).for_each(change);
    }
}

fn set_empty(parent: &mut Value, key: &str, value: &str) {
    let is_empty = parent.get(key).is_none_or(|found| found.is_null() || found == "");
    if let Some(fields) = parent.as_object_mut().filter(|_| is_empty) {
        fields.insert(key.to_owned(), value.into());
    }
}

fn set_absent(parent: &mut Value, key: &str, value: impl Into<Value>) {
    let is_absent = parent.get(key).is_none_or(Value::is_null);
    if let Some(fields) = parent.as_object_mut().filter(|_| is_absent) {
        fields.insert(key.to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(spec: Value) -> Value {
        let mut set = json!({"metadata": {"name": "s"}});
        set["spec"] = spec;
        defaulted(&set).unwrap()["spec"].clone()
    }

    #[test]
    fn a_set_gets_everything_that_was_left_open() {
        let found = spec(json!({
            "selector": {"matchLabels": {"app": "web"}},
            "initContainers": [{"name": "i", "image": "i:latest"}],
            "containers": [{"name": "c", "image": "c:1"}],
            "volumes": [{"name": "v"}],
            "patchPodMetadata": [{"annotations": {"a": "b"}}],
            "injectionStrategy": {"revision": {"revisionName": "r"}},
        }));
        let container = |name: &str, image: &str, pull: &str, place: &str| {
            json!({
                "name": name, "image": image, "imagePullPolicy": pull, "podInjectPolicy": place,
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "upgradeStrategy": {"upgradeType": "ColdUpgrade"}, "shareVolumePolicy": {"type": "disabled"},
            })
        };
        assert_eq!(
            found,
            json!({
                "selector": {"matchLabels": {"app": "web"}},
                "initContainers": [container("i", "i:latest", "Always", "AfterAppContainer")],
                "containers": [container("c", "c:1", "IfNotPresent", "BeforeAppContainer")],
                "volumes": [{"name": "v", "emptyDir": {}}],
                "patchPodMetadata": [{"annotations": {"a": "b"}, "patchPolicy": "Retain"}],
                "injectionStrategy": {"revision": {"revisionName": "r", "policy": "Always"}},
                "updateStrategy": {"type": "RollingUpdate", "partition": 0, "maxUnavailable": 1},
                "revisionHistoryLimit": 10,
            })
        );
        assert_eq!(spec(found.clone()), found, "twice is once");
    }

    #[test]
    fn a_container_gets_what_the_core_api_would_give_it() {
        let found = spec(json!({"containers": [{
            "name": "c", "image": "host:5000/c", "newer": {"a": null},
            "ports": [{"containerPort": 80}],
            "env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "resources": {"limits": {"cpu": "1500u", "memory": "1Gi"}},
            "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 7},
            "readinessProbe": {"tcpSocket": {"port": 80}},
            "startupProbe": {"httpGet": {"port": 80}},
            "lifecycle": {"preStop": {"httpGet": {"port": 80}}},
            "transferEnv": [{"sourceContainerNameFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}}],
            "resourcesPolicy": {"targetContainerMode": "sum", "resourceExpr": {"limits": {"cpu": "cpu"}}},
        }]}));
        let container = &found["containers"][0];
        for (pointer, expected) in [
            ("/imagePullPolicy", json!("Always")),
            ("/newer", json!({"a": null})),
            ("/ports/0/protocol", json!("TCP")),
            ("/env/0/valueFrom/fieldRef/apiVersion", json!("v1")),
            ("/resources/limits", json!({"cpu": "2m", "memory": "1Gi"})),
            (
                "/livenessProbe",
                json!({"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "periodSeconds": 7,
                    "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3}),
            ),
            (
                "/readinessProbe",
                json!({"tcpSocket": {"port": 80}, "periodSeconds": 10,
                    "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3}),
            ),
            ("/startupProbe", json!({"httpGet": {"port": 80}})),
            (
                "/lifecycle/preStop/httpGet",
                json!({"port": 80, "path": "/", "scheme": "HTTP"}),
            ),
            (
                "/transferEnv/0/sourceContainerNameFrom/fieldRef/apiVersion",
                json!("v1"),
            ),
            (
                "/resourcesPolicy",
                json!({"targetContainersMode": "sum", "resourcesExpr": {"limits": {"cpu": "cpu"}}}),
            ),
        ] {
            assert_eq!(container.pointer(pointer), Some(&expected), "{pointer}");
        }
    }

    #[test]
    fn volumes_get_their_modes() {
        let found = spec(json!({"volumes": [
            {"name": "a", "secret": {"secretName": "s"}},
            {"name": "b", "hostPath": {"path": "/b"}},
            {"name": "c", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            {"name": "d", "newer": {}},
        ]}));
        assert_eq!(
            found["volumes"],
            json!([
                {"name": "a", "secret": {"secretName": "s", "defaultMode": 420}},
                {"name": "b", "hostPath": {"path": "/b", "type": ""}},
                {"name": "c", "projected": {"defaultMode": 420,
                    "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]}},
                {"name": "d", "newer": {}},
            ])
        );
    }

    #[test]
    fn images_that_move_are_always_pulled() {
        for (image, moves) in [
            ("nginx", true),
            ("nginx:latest", true),
            ("host:5000/nginx", true),
            ("nginx:1.2", false),
            ("host:5000/nginx:1.2", false),
            ("nginx@sha256:abc", false),
            ("nginx:latest@sha256:abc", true),
        ] {
            assert_eq!(follows_a_tag_that_moves(image), moves, "{image}");
        }
    }

    /// A vector of `spec/sidecarset.md` 2.9: the hash is of the set with its defaults.
    #[test]
    fn the_hashes_are_of_the_defaulted_set() {
        let set = json!({"metadata": {"name": "s"}, "spec": {"containers": [{"name": "dns-f", "image": "dns:1.0"}]}});
        assert_eq!(
            defaulted(&set).unwrap()["metadata"]["annotations"],
            json!({
                HASH: "6wbd76bd7984x24fb4f44fv9222cw9v9bcf85x766744wddd4zwx927zzz2zb684",
                HASH_WITHOUT_IMAGE: "82684vwf9d4cb4wz4vffx4ddfbb47ww4z4wwxdbwb8w2zbb7zvf4524cdd49bv94",
            })
        );
    }
}
