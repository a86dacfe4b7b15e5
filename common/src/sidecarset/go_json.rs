//! Sidecars as Go writes them: fields in the order of its structs, zero values left out where their tags say so, HTML
//! escaped. Hashes are taken of this text (`spec/sidecarset.md` 2.9), so it is the same to the byte.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::{api::sidecarset::SidecarContainer, quantity::Quantity};

/// A list of sidecars, or null where Go has no list. Fields that Go's types do not have come last, by name: they reach
/// the pod, so a change to them has to show.
pub(super) fn sidecars(containers: &[SidecarContainer], with_image: bool) -> String {
    if containers.is_empty() {
        return "null".to_owned();
    }
    let mut text = String::new();
    list(&mut text, containers, |text, container| {
        let mut object = match serde_json::to_value(container) {
            Ok(Value::Object(object)) => object,
            Ok(_) | Err(_) => Map::new(),
        };
        if !with_image {
            object.remove("image");
        }
        write_struct(text, SIDECAR, Some(&object));
    });
    text
}

/// A value with its keys sorted, as Go writes a map.
pub(super) fn write_value(text: &mut String, value: &Value) {
    match value {
        Value::Object(object) => {
            text.push('{');
            for (index, (key, value)) in object.iter().enumerate() {
                comma(text, index);
                write_text(text, key);
                text.push(':');
                write_value(text, value);
            }
            text.push('}');
        }
        Value::Array(items) => list(text, items, write_value),
        Value::String(value) => write_text(text, value),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            // Writing to a String cannot fail.
            let _ = write!(text, "{value}");
        }
    }
}

/// What a field holds, and when Go leaves it out.
#[derive(Clone, Copy)]
enum Shape {
    /// A text, number or switch, left out when it is zero.
    Scalar,
    /// A pointer to one of these, left out when it is nil.
    Pointer,
    /// One that is always written; the text is its zero value.
    Always(&'static str),
    /// A pointer to a struct, left out when it is nil.
    Struct(&'static [Field]),
    /// A struct, always written.
    Inner(&'static [Field]),
    /// A list of structs, left out when it is empty.
    Structs(&'static [Field]),
    /// A list of texts, left out when it is empty.
    Texts,
    /// Quantities by name, left out when there are none.
    Amounts,
    /// A quantity, always written.
    Amount,
}

type Field = (&'static str, Shape);

use Shape::{Always, Amount, Amounts, Inner, Pointer, Scalar, Struct, Structs, Texts};

const TEXT: Shape = Always("\"\"");
const NUMBER: Shape = Always("0");

const SIDECAR: &[Field] = &[
    ("name", TEXT),
    ("image", Scalar),
    ("command", Texts),
    ("args", Texts),
    ("workingDir", Scalar),
    ("ports", Structs(PORT)),
    ("envFrom", Structs(ENV_FROM)),
    ("env", Structs(ENV)),
    ("resources", Inner(RESOURCES)),
    ("resizePolicy", Structs(RESIZE_POLICY)),
    ("restartPolicy", Pointer),
    ("volumeMounts", Structs(VOLUME_MOUNT)),
    ("volumeDevices", Structs(VOLUME_DEVICE)),
    ("livenessProbe", Struct(PROBE)),
    ("readinessProbe", Struct(PROBE)),
    ("startupProbe", Struct(PROBE)),
    ("lifecycle", Struct(LIFECYCLE)),
    ("terminationMessagePath", Scalar),
    ("terminationMessagePolicy", Scalar),
    ("imagePullPolicy", Scalar),
    ("securityContext", Struct(SECURITY_CONTEXT)),
    ("stdin", Scalar),
    ("stdinOnce", Scalar),
    ("tty", Scalar),
    ("podInjectPolicy", Scalar),
    ("upgradeStrategy", Inner(UPGRADE_STRATEGY)),
    ("shareVolumePolicy", Inner(SHARE_VOLUME)),
    ("shareVolumeDevicePolicy", Struct(SHARE_VOLUME)),
    ("transferEnv", Structs(TRANSFER_ENV)),
    ("resourcesPolicy", Struct(RESOURCES_POLICY)),
];
const PORT: &[Field] = &[
    ("name", Scalar),
    ("hostPort", Scalar),
    ("containerPort", NUMBER),
    ("protocol", Scalar),
    ("hostIP", Scalar),
];
const ENV_FROM: &[Field] = &[
    ("prefix", Scalar),
    ("configMapRef", Struct(OPTIONAL_NAME)),
    ("secretRef", Struct(OPTIONAL_NAME)),
];
const OPTIONAL_NAME: &[Field] = &[("name", Scalar), ("optional", Pointer)];
const ENV: &[Field] = &[
    ("name", TEXT),
    ("value", Scalar),
    ("valueFrom", Struct(ENV_SOURCE)),
];
const ENV_SOURCE: &[Field] = &[
    ("fieldRef", Struct(FIELD_REF)),
    ("resourceFieldRef", Struct(RESOURCE_FIELD_REF)),
    ("configMapKeyRef", Struct(KEY_REF)),
    ("secretKeyRef", Struct(KEY_REF)),
];
const FIELD_REF: &[Field] = &[("apiVersion", Scalar), ("fieldPath", TEXT)];
const RESOURCE_FIELD_REF: &[Field] = &[("containerName", Scalar), ("resource", TEXT), ("divisor", Amount)];
const KEY_REF: &[Field] = &[("name", Scalar), ("key", TEXT), ("optional", Pointer)];
const RESOURCES: &[Field] = &[
    ("limits", Amounts),
    ("requests", Amounts),
    ("claims", Structs(CLAIM)),
];
const CLAIM: &[Field] = &[("name", TEXT), ("request", Scalar)];
const RESIZE_POLICY: &[Field] = &[("resourceName", TEXT), ("restartPolicy", TEXT)];
const VOLUME_MOUNT: &[Field] = &[
    ("name", TEXT),
    ("readOnly", Scalar),
    ("recursiveReadOnly", Pointer),
    ("mountPath", TEXT),
    ("subPath", Scalar),
    ("mountPropagation", Pointer),
    ("subPathExpr", Scalar),
];
const VOLUME_DEVICE: &[Field] = &[("name", TEXT), ("devicePath", TEXT)];
const PROBE: &[Field] = &[
    ("exec", Struct(EXEC)),
    ("httpGet", Struct(HTTP_GET)),
    ("tcpSocket", Struct(TCP_SOCKET)),
    ("grpc", Struct(GRPC)),
    ("initialDelaySeconds", Scalar),
    ("timeoutSeconds", Scalar),
    ("periodSeconds", Scalar),
    ("successThreshold", Scalar),
    ("failureThreshold", Scalar),
    ("terminationGracePeriodSeconds", Pointer),
];
const EXEC: &[Field] = &[("command", Texts)];
const HTTP_GET: &[Field] = &[
    ("path", Scalar),
    ("port", NUMBER),
    ("host", Scalar),
    ("scheme", Scalar),
    ("httpHeaders", Structs(HTTP_HEADER)),
];
const HTTP_HEADER: &[Field] = &[("name", TEXT), ("value", TEXT)];
const TCP_SOCKET: &[Field] = &[("port", NUMBER), ("host", Scalar)];
const GRPC: &[Field] = &[("port", NUMBER), ("service", Always("null"))];
const LIFECYCLE: &[Field] = &[("postStart", Struct(HANDLER)), ("preStop", Struct(HANDLER))];
const HANDLER: &[Field] = &[
    ("exec", Struct(EXEC)),
    ("httpGet", Struct(HTTP_GET)),
    ("tcpSocket", Struct(TCP_SOCKET)),
    ("sleep", Struct(&[("seconds", NUMBER)])),
];
const SECURITY_CONTEXT: &[Field] = &[
    ("capabilities", Struct(&[("add", Texts), ("drop", Texts)])),
    ("privileged", Pointer),
    ("seLinuxOptions", Struct(SELINUX)),
    ("windowsOptions", Struct(WINDOWS)),
    ("runAsUser", Pointer),
    ("runAsGroup", Pointer),
    ("runAsNonRoot", Pointer),
    ("readOnlyRootFilesystem", Pointer),
    ("allowPrivilegeEscalation", Pointer),
    ("procMount", Pointer),
    ("seccompProfile", Struct(PROFILE)),
    ("appArmorProfile", Struct(PROFILE)),
];
const SELINUX: &[Field] = &[
    ("user", Scalar),
    ("role", Scalar),
    ("type", Scalar),
    ("level", Scalar),
];
const WINDOWS: &[Field] = &[
    ("gmsaCredentialSpecName", Pointer),
    ("gmsaCredentialSpec", Pointer),
    ("runAsUserName", Pointer),
    ("hostProcess", Pointer),
];
const PROFILE: &[Field] = &[("type", TEXT), ("localhostProfile", Pointer)];
const UPGRADE_STRATEGY: &[Field] = &[("upgradeType", Scalar), ("hotUpgradeEmptyImage", Scalar)];
const SHARE_VOLUME: &[Field] = &[("type", Scalar)];
const TRANSFER_ENV: &[Field] = &[
    ("sourceContainerName", Scalar),
    (
        "sourceContainerNameFrom",
        Struct(&[("fieldRef", Struct(FIELD_REF))]),
    ),
    ("envName", Scalar),
    ("envNames", Texts),
];
const RESOURCES_POLICY: &[Field] = &[
    ("targetContainersMode", TEXT),
    ("targetContainersNameRegex", Scalar),
    ("resourcesExpr", Inner(EXPRESSIONS)),
];
const EXPRESSIONS: &[Field] = &[
    ("limits", Struct(CPU_AND_MEMORY)),
    ("requests", Struct(CPU_AND_MEMORY)),
];
const CPU_AND_MEMORY: &[Field] = &[("cpu", Scalar), ("memory", Scalar)];

fn write_struct(text: &mut String, fields: &'static [Field], object: Option<&Map<String, Value>>) {
    text.push('{');
    let mut written = 0;
    for (name, shape) in fields {
        let value = object
            .and_then(|object| object.get(*name))
            .filter(|value| !value.is_null());
        if is_left_out(*shape, value) {
            continue;
        }
        comma(text, written);
        written += 1;
        write_text(text, name);
        text.push(':');
        write_field(text, *shape, value);
    }
    let unknown = object
        .into_iter()
        .flatten()
        .filter(|(name, value)| !value.is_null() && !fields.iter().any(|(known, _)| known == name));
    for (name, value) in unknown {
        comma(text, written);
        written += 1;
        write_text(text, name);
        text.push(':');
        write_value(text, value);
    }
    text.push('}');
}

fn is_left_out(shape: Shape, value: Option<&Value>) -> bool {
    match shape {
        Always(_) | Inner(_) | Amount => false,
        Pointer | Struct(_) => value.is_none(),
        Scalar | Structs(_) | Texts | Amounts => value.is_none_or(is_zero),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_i64() == Some(0),
        Value::String(value) => value.is_empty(),
        Value::Array(value) => value.is_empty(),
        Value::Object(value) => value.is_empty(),
    }
}

fn write_field(text: &mut String, shape: Shape, value: Option<&Value>) {
    match (shape, value) {
        (Always(zero), None) => text.push_str(zero),
        (Inner(fields), None) => write_struct(text, fields, None),
        (Struct(fields) | Inner(fields), Some(Value::Object(object))) => {
            write_struct(text, fields, Some(object));
        }
        (Structs(fields), Some(Value::Array(items))) => {
            list(text, items, |text, item| {
                write_struct(text, fields, item.as_object());
            });
        }
        (Amounts, Some(Value::Object(amounts))) => {
            text.push('{');
            for (index, (name, amount)) in amounts.iter().enumerate() {
                comma(text, index);
                write_text(text, name);
                text.push(':');
                write_amount(text, Some(amount));
            }
            text.push('}');
        }
        (Amount, value) => write_amount(text, value),
        // What is not of its type Go would not have read: as it is, so that a change to it shows.
        (_, Some(value)) => write_value(text, value),
        (_, None) => text.push_str("null"),
    }
}

/// In canonical form, as Go writes every quantity that it has read.
fn write_amount(text: &mut String, value: Option<&Value>) {
    let spelled = match value {
        None | Some(Value::Null) => "0".to_owned(),
        Some(Value::String(spelled)) => spelled.clone(),
        Some(other) => other.to_string(),
    };
    match spelled.parse::<Quantity>() {
        Ok(amount) => write_text(text, &amount.canonical().to_string()),
        Err(_) => write_text(text, &spelled),
    }
}

fn list<T>(text: &mut String, items: &[T], mut write: impl FnMut(&mut String, &T)) {
    text.push('[');
    for (index, item) in items.iter().enumerate() {
        comma(text, index);
        write(text, item);
    }
    text.push(']');
}

fn comma(text: &mut String, index: usize) {
    if index > 0 {
        text.push(',');
    }
}

/// In quotes, with HTML kept out as Go's encoder does by default.
fn write_text(text: &mut String, value: &str) {
    let quoted = Value::from(value).to_string();
    for c in quoted.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // Writing to a String cannot fail.
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text_of(container: Value) -> String {
        sidecars(&[serde_json::from_value(container).unwrap()], true)
    }

    #[test]
    fn fields_come_in_the_order_of_the_structs_and_zero_ones_not_at_all() {
        for (container, expected) in [
            (
                json!({}),
                r#"[{"name":"","resources":{},"upgradeStrategy":{},"shareVolumePolicy":{}}]"#,
            ),
            (
                json!({
                    "name": "c", "tty": false, "stdin": true, "args": [], "command": ["sh", "-c", "a<b && c>d"],
                    "ports": [{"protocol": "TCP", "containerPort": 80, "hostPort": 0}],
                    "env": [{"value": "", "name": "E"}, {"name": "F", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
                    "resources": {"requests": {"memory": "1024Mi", "cpu": 1}, "limits": {}},
                    "volumeMounts": [{"mountPath": "/m", "name": "v", "readOnly": false}],
                    "livenessProbe": {"failureThreshold": 3, "grpc": {"port": 1}, "httpGet": {"path": "/", "port": "web"}},
                    "securityContext": {"runAsUser": 0, "privileged": false, "capabilities": {}},
                    "upgradeStrategy": {"upgradeType": "ColdUpgrade"},
                    "shareVolumeDevicePolicy": {},
                    "resourcesPolicy": {"targetContainersMode": "sum", "resourcesExpr": {"limits": {"cpu": "cpu"}}},
                }),
                concat!(
                    r#"[{"name":"c","command":["sh","-c","a\u003cb \u0026\u0026 c\u003ed"],"#,
                    r#""ports":[{"containerPort":80,"protocol":"TCP"}],"#,
                    r#""env":[{"name":"E"},{"name":"F","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu","divisor":"0"}}}],"#,
                    r#""resources":{"requests":{"cpu":"1","memory":"1Gi"}},"#,
                    r#""volumeMounts":[{"name":"v","mountPath":"/m"}],"#,
                    r#""livenessProbe":{"httpGet":{"path":"/","port":"web"},"grpc":{"port":1,"service":null},"failureThreshold":3},"#,
                    r#""securityContext":{"capabilities":{},"privileged":false,"runAsUser":0},"stdin":true,"#,
                    r#""upgradeStrategy":{"upgradeType":"ColdUpgrade"},"shareVolumePolicy":{},"shareVolumeDevicePolicy":{},"#,
                    r#""resourcesPolicy":{"targetContainersMode":"sum","resourcesExpr":{"limits":{"cpu":"cpu"}}}}]"#,
                ),
            ),
            (
                json!({"name": "c", "newer": {"b": 1, "a": "<"}, "image": "i"}),
                concat!(
                    r#"[{"name":"c","image":"i","resources":{},"upgradeStrategy":{},"shareVolumePolicy":{},"#,
                    r#""newer":{"a":"\u003c","b":1}}]"#,
                ),
            ),
        ] {
            assert_eq!(text_of(container), expected);
        }
    }

    #[test]
    fn no_list_is_null() {
        assert_eq!(sidecars(&[], true), "null");
    }
}
