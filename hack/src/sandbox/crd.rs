//! Custom resource definitions: which kinds one brings, and what the server writes into its status.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    error::Cause,
    registry::{Form, Kind},
    schema::Schema,
    tree,
};

/// One served version of a definition.
#[derive(Debug)]
pub struct Version {
    /// How its objects look.
    pub schema: Schema,
    /// Where scale reads and writes, if it has that subresource.
    pub scale: Option<ScalePaths>,
    /// What `kubectl get` shows, beyond the name.
    pub columns: Vec<Column>,
}

/// The JSON pointers of a scale subresource.
#[derive(Debug)]
pub struct ScalePaths {
    /// The wanted number of replicas.
    pub spec: String,
    /// The number there is.
    pub status: String,
    /// The selector as text.
    pub selector: Option<String>,
}

/// One of `additionalPrinterColumns`.
#[derive(Debug)]
pub struct Column {
    /// The header.
    pub name: String,
    /// `string`, `integer`, `date` and so on.
    pub r#type: String,
    /// Shown only with `-o wide` when above 0.
    pub priority: i64,
    /// What to show, as a JSON path.
    pub path: String,
}

/// The kinds of a definition, one for each version that is served.
#[must_use]
pub(super) fn kinds(definition: &Value) -> Vec<Kind> {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| {
        value
            .as_array()
            .into_iter()
            .flatten()
            .map(text)
            .collect::<Vec<_>>()
    };
    let kind = text(&names["kind"]);
    let or = |value: &Value, default: String| value.as_str().map_or(default, str::to_owned);
    let served = spec["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["served"] == true);
    served
        .map(|version| {
            let mut subresources = Vec::new();
            if version["subresources"].get("status").is_some() {
                subresources.push("status");
            }
            if version["subresources"].get("scale").is_some() {
                subresources.push("scale");
            }
            let fields = version["selectableFields"].as_array().into_iter().flatten();
            Kind {
                group: text(&spec["group"]),
                version: text(&version["name"]),
                list_kind: or(&names["listKind"], format!("{kind}List")),
                plural: text(&names["plural"]),
                singular: or(&names["singular"], kind.to_lowercase()),
                kind: kind.clone(),
                short_names: list(&names["shortNames"]),
                categories: list(&names["categories"]),
                namespaced: spec["scope"] == "Namespaced",
                storage: text(&definition["metadata"]["name"]),
                subresources,
                generation: true,
                unconditional: false,
                fields: fields
                    .map(|field| text(&field["jsonPath"]).trim_start_matches('.').to_owned())
                    .collect(),
                form: Form::Custom(Arc::new(version_of(version))),
            }
        })
        .collect()
}

/// What is wrong with a definition, beyond its types.
#[must_use]
pub(super) fn validate(definition: &Value) -> Vec<Cause> {
    let spec = &definition["spec"];
    let mut causes = Vec::new();
    let plural = spec["names"]["plural"].as_str().unwrap_or_default();
    let name = format!("{plural}.{}", spec["group"].as_str().unwrap_or_default());
    if definition["metadata"]["name"] != name.as_str() {
        let why = format!("must be spec.names.plural+\".\"+spec.group: {name:?}");
        causes.push(Cause::invalid(
            "metadata.name",
            &definition["metadata"]["name"],
            &why,
        ));
    }
    let versions: Vec<_> = spec["versions"].as_array().into_iter().flatten().collect();
    if versions
        .iter()
        .filter(|version| version["storage"] == true)
        .count()
        != 1
    {
        let why = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", &Value::from(versions.len()), why));
    }
    for (i, version) in versions.iter().enumerate() {
        if version["schema"]["openAPIV3Schema"].get("type").is_none() {
            let field = format!("spec.versions[{i}].schema.openAPIV3Schema");
            causes.push(Cause::required(field, "schemas are required"));
        }
    }
    causes
}

/// Writes what the server says about a definition it serves. Conversion is always `None`, whatever is asked for.
pub(super) fn establish(definition: &mut Value, now: &str) {
    let names = definition["spec"]["names"].clone();
    let versions = tree::items(definition, "/spec/versions").filter(|version| version["storage"] == true);
    let stored: Value = versions.map(|version| version["name"].clone()).collect();
    let condition = |r#type: &str, reason: &str, message: &str| json!({"type": r#type, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now});
    tree::default(
        tree::object(definition, &["spec"]),
        "conversion",
        json!({"strategy": "None"}),
    );
    let status = tree::object(definition, &["status"]);
    status.insert("acceptedNames".into(), names);
    status.insert("storedVersions".into(), stored);
    let conditions = json!([
        condition("NamesAccepted", "NoConflicts", "no conflicts found"),
        condition(
            "Established",
            "InitialNamesAccepted",
            "the initial names have been accepted"
        ),
    ]);
    tree::default(status, "conditions", conditions);
}

fn version_of(version: &Value) -> Version {
    let pointer = |value: &Value| Some(value.as_str()?.replace('.', "/"));
    let scale = version["subresources"].get("scale");
    let columns = version["additionalPrinterColumns"]
        .as_array()
        .into_iter()
        .flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Version {
        schema: Schema::new(version["schema"]["openAPIV3Schema"].clone()),
        scale: scale.and_then(|scale| {
            Some(ScalePaths {
                spec: pointer(&scale["specReplicasPath"])?,
                status: pointer(&scale["statusReplicasPath"])?,
                selector: pointer(&scale["labelSelectorPath"]),
            })
        }),
        columns: columns
            .map(|column| Column {
                name: text(&column["name"]),
                r#type: text(&column["type"]),
                priority: column["priority"].as_i64().unwrap_or_default(),
                path: text(&column["jsonPath"]),
            })
            .collect(),
    }
}
