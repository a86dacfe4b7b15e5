//! What a list, a watch or a delete-collection is restricted to: labels, as [`common`] reads and matches them, and fields.

use common::{api::k8s::LabelSelector, selector::Selector as Labels};
use serde::Deserialize as _;
use serde_json::Value;

use super::{
    error::{ApiError, Result},
    store::Object,
};

/// Parsed once per request, then asked for every object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// Requirements on labels; all must hold.
    pub labels: Labels,
    fields: Vec<FieldRequirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldRequirement {
    field: Field,
    value: String,
    equal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    Indexed(usize),
}

impl Selector {
    /// Parses `labelSelector` and `fieldSelector`; `known` are the resource's selectable fields.
    ///
    /// # Errors
    /// 400 when one does not parse or names an unknown field.
    pub fn parse(labels: &str, fields: &str, known: &[String]) -> Result<Self> {
        let fields = fields.split(',').map(str::trim).filter(|part| !part.is_empty());
        Ok(Self {
            labels: labels
                .parse()
                .map_err(|error| ApiError::bad_request(format!("unable to parse requirement: {error}")))?,
            fields: fields
                .map(|part| field_requirement(part, known))
                .collect::<Result<_>>()?,
        })
    }

    /// Whether an object is selected.
    #[must_use]
    pub fn matches(&self, object: &Object) -> bool {
        let field = |requirement: &FieldRequirement| {
            let value = match requirement.field {
                Field::Name => &*object.key.name,
                Field::Namespace => &*object.key.namespace,
                Field::Indexed(at) => object.fields.get(at).map_or("", |value| value),
            };
            (value == requirement.value) == requirement.equal
        };
        self.fields.iter().all(field) && self.labels.matches(|key| object.label(key))
    }

    /// Whether it selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.labels.is_everything()
    }
}

/// Reads the object form with `matchLabels` and `matchExpressions`; one that nobody understands selects nothing, and
/// none at all selects everything.
#[must_use]
pub(super) fn of_object(selector: &Value) -> Labels {
    let selector = Option::<LabelSelector>::deserialize(selector);
    let read = selector.map(|selector| Labels::try_from(&selector.unwrap_or_default()));
    read.map_or(Labels::Nothing, |labels| labels.unwrap_or(Labels::Nothing))
}

/// Which pods a disruption budget is about: without a selector none.
#[must_use]
pub(super) fn of_budget(budget: &Value) -> Labels {
    let selector = budget["spec"].get("selector");
    selector.map_or(Labels::Nothing, of_object)
}

/// Whether the labels of a decoded object are selected.
#[must_use]
pub(super) fn selects(selector: &Labels, object: &Value) -> bool {
    selector.matches(|key| object["metadata"]["labels"][key].as_str())
}

fn field_requirement(text: &str, known: &[String]) -> Result<FieldRequirement> {
    let (path, value, equal) = if let Some((path, value)) = text.split_once("!=") {
        (path, value, false)
    } else if let Some((path, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        (path, value, true)
    } else {
        let message = format!("invalid selector: '{text}'; can't understand '{text}'");
        return Err(ApiError::bad_request(message));
    };
    let field = match path.trim() {
        "metadata.name" => Field::Name,
        "metadata.namespace" => Field::Namespace,
        path => match known.iter().position(|one| one == path) {
            Some(at) => Field::Indexed(at),
            None => {
                return Err(ApiError::bad_request(format!(
                    "field label not supported: {path}"
                )));
            }
        },
    };
    Ok(FieldRequirement {
        field,
        value: value.to_owned(),
        equal,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn object_selectors() {
        let labels = json!({"metadata": {"labels": {"app": "web"}}});
        let table = [
            (Value::Null, true),
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "db"}}), false),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "What"}]}),
                false,
            ),
            (json!({"matchLabels": "app"}), false),
        ];
        for (selector, expected) in table {
            assert_eq!(selects(&of_object(&selector), &labels), expected, "{selector}");
        }
    }

    #[test]
    fn field_selectors_know_their_fields() {
        let known = ["spec.nodeName".to_owned()];
        let key = crate::sandbox::store::Key::new("ns", "a");
        let object = Object::new(key.into(), json!({"spec": {"nodeName": "n1"}}), 1, &known);
        let table = [
            ("spec.nodeName=n1", true),
            ("spec.nodeName!=n1", false),
            ("spec.nodeName!=", true),
            ("metadata.name=a,metadata.namespace=ns", true),
            ("metadata.name=b", false),
        ];
        for (text, expected) in table {
            assert_eq!(
                Selector::parse("", text, &known).unwrap().matches(&object),
                expected,
                "{text}"
            );
        }
        assert_eq!(Selector::parse("a b", "", &known).unwrap_err().code, 400);
        let error = Selector::parse("", "spec.what=1", &known).unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            (400, "field label not supported: spec.what")
        );
    }
}
