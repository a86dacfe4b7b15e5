//! From the Rust types to CustomResourceDefinitions: everything that kube's derive and schemars cannot know about
//! the published API is said here and nowhere else.

use anyhow::{Context, ensure};
use common::api::{
    checkpoint::VerticalPodAutoscalerCheckpoint,
    k8s::{
        CustomResourceDefinition, CustomResourceDefinitionVersion, CustomResourceValidation, JSONSchemaProps,
    },
    sidecarset::{v1alpha1, v1beta1},
    vpa::VerticalPodAutoscaler,
};
use kube::{CustomResourceExt, core::crd::merge_crds};
use schemars::{
    JsonSchema, Schema,
    generate::SchemaSettings,
    transform::{Transform, transform_subschemas},
};
use serde::Serialize;
use serde_json::{Value, json};

/// Groups under `k8s.io` are protected: the server wants to know where the API was agreed on.
const APPROVED: (&str, &str) = (
    "api-approved.kubernetes.io",
    "https://github.com/kubernetes/kubernetes/pull/63797",
);

/// What `v1` has and `v1beta2` had not, by its place in the schema of the VPA.
const NEWER_THAN_V1BETA2: [&str; 14] = [
    "spec/recommenders",
    "spec/startupBoost",
    "spec/updatePolicy/minReplicas",
    "spec/updatePolicy/evictionRequirements",
    "spec/updatePolicy/evictAfterOOMSeconds",
    "spec/resourcePolicy/containerPolicies[]/controlledResources",
    "spec/resourcePolicy/containerPolicies[]/controlledValues",
    "spec/resourcePolicy/containerPolicies[]/oomBumpUpRatio",
    "spec/resourcePolicy/containerPolicies[]/oomMinBumpUp",
    "spec/resourcePolicy/containerPolicies[]/memoryAggregationIntervalSeconds",
    "spec/resourcePolicy/containerPolicies[]/memoryAggregationIntervalCount",
    "spec/resourcePolicy/containerPolicies[]/startupBoost",
    "status/conditions[]/observedGeneration",
    "status/observedGeneration",
];

/// Every definition, in the order of their names.
///
/// # Errors
/// When the API types do not yield a valid definition.
pub fn all() -> anyhow::Result<Vec<CustomResourceDefinition>> {
    Ok(vec![sidecar_set()?, checkpoint()?, vpa()?])
}

fn vpa() -> anyhow::Result<CustomResourceDefinition> {
    let mut schema = schema_of::<VerticalPodAutoscaler>();
    schema["required"] = json!(["spec"]);
    let mut crd = crd_with::<VerticalPodAutoscaler>(&schema)?;

    for path in NEWER_THAN_V1BETA2 {
        remove_property(&mut schema, path)?;
    }
    let update_mode = property(&mut schema, "spec/updatePolicy/updateMode")?;
    update_mode["enum"] = json!(["Off", "Initial", "Recreate", "Auto"]);
    crd.spec.versions.push(CustomResourceDefinitionVersion {
        deprecated: Some(true),
        deprecation_warning: Some("autoscaling.k8s.io/v1beta2 API is deprecated".to_owned()),
        additional_printer_columns: None,
        ..retired(&crd, &schema)?
    });
    Ok(approved(crd))
}

fn checkpoint() -> anyhow::Result<CustomResourceDefinition> {
    let schema = schema_of::<VerticalPodAutoscalerCheckpoint>();
    let mut crd = crd_with::<VerticalPodAutoscalerCheckpoint>(&schema)?;
    // Checkpoints are written whole, status and all.
    for version in &mut crd.spec.versions {
        version.subresources = None;
    }
    let retired = retired(&crd, &schema)?;
    crd.spec.versions.push(retired);
    Ok(approved(crd))
}

fn sidecar_set() -> anyhow::Result<CustomResourceDefinition> {
    let mut alpha = schema_of::<v1alpha1::SidecarSet>();
    remove_property(&mut alpha, "spec/customVersion")?;
    let versions = vec![
        crd_with::<v1alpha1::SidecarSet>(&alpha)?,
        crd_with::<v1beta1::SidecarSet>(&schema_of::<v1beta1::SidecarSet>())?,
    ];
    let mut crd = merge_crds(versions, "v1beta1")?;
    crd.spec.versions.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(crd)
}

/// The derived definition with this schema in place of the derived one.
fn crd_with<K: CustomResourceExt>(schema: &Value) -> anyhow::Result<CustomResourceDefinition> {
    let mut crd = K::crd();
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    let [version] = crd.spec.versions.as_mut_slice() else {
        anyhow::bail!("{} must have one version", K::crd_name());
    };
    version.schema = Some(validation(schema)?);
    Ok(crd)
}

/// `v1beta2` after a definition's only version: known to the server, so that old objects can be read, and not served.
fn retired(
    crd: &CustomResourceDefinition,
    schema: &Value,
) -> anyhow::Result<CustomResourceDefinitionVersion> {
    let version = crd
        .spec
        .versions
        .first()
        .context("a definition needs a version")?;
    Ok(CustomResourceDefinitionVersion {
        name: "v1beta2".to_owned(),
        served: false,
        storage: false,
        schema: Some(validation(schema)?),
        ..version.clone()
    })
}

fn approved(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let (key, value) = APPROVED;
    let annotations = crd.metadata.annotations.get_or_insert_default();
    annotations.insert(key.to_owned(), value.to_owned());
    crd
}

fn validation(schema: &Value) -> anyhow::Result<CustomResourceValidation> {
    let props: JSONSchemaProps = serde_json::from_value(schema.clone()).context("not a schema")?;
    // The type drops what it does not know: what we meant to publish must still be there.
    let published = to_json(&props)?;
    ensure!(
        published == *schema,
        "the API server would not know all of {schema:#}\nbut only {published:#}"
    );
    Ok(CustomResourceValidation {
        open_api_v3_schema: Some(props),
    })
}

/// The JSON of an API object with keys in the order of their names, and `1` where its type says `1.0`.
pub(super) fn to_json<T: Serialize>(object: &T) -> serde_json::Result<Value> {
    fn print_whole_numbers_as_such(value: &mut Value) {
        match value {
            Value::Number(number) => {
                if let Ok(whole) = number.to_string().trim_end_matches(".0").parse::<i64>() {
                    *number = whole.into();
                }
            }
            Value::Array(items) => items.iter_mut().for_each(print_whole_numbers_as_such),
            Value::Object(fields) => fields.values_mut().for_each(print_whole_numbers_as_such),
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }

    let mut value = serde_json::to_value(object)?;
    print_whole_numbers_as_such(&mut value);
    Ok(value)
}

/// The schema of a kind as the API server wants it: structural, without references.
fn schema_of<K: JsonSchema>() -> Value {
    let generator = SchemaSettings::draft2020_12()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(Published)
        .into_generator();
    let mut schema = generator.into_root_schema_for::<K>().to_value();
    // That Rust's object always has a spec does not mean that the API asks for one.
    if let Value::Object(keys) = &mut schema {
        keys.remove("required");
    }
    let properties = &mut schema["properties"];
    properties["apiVersion"] = json!({ "type": "string", "description": "Version of the API." });
    properties["kind"] = json!({ "type": "string", "description": "Kind of the object." });
    properties["metadata"] = json!({ "type": "object" });
    schema
}

/// Makes schemas structural, and takes back what schemars infers from Rust types and the API does not say: that an
/// `Option` may be null, what an absent field defaults to, and the names of the types. What of this the API does say
/// is marked by the types.
#[derive(Clone, Debug)]
struct Published;

impl Transform for Published {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        drop_null(schema);
        schema.remove("title");
        for (key, mark) in [
            ("nullable", "x-published-nullable"),
            ("default", "x-published-default"),
        ] {
            schema.remove(key);
            if let Some(value) = schema.remove(mark) {
                schema.insert(key.to_owned(), value);
            }
        }
        // The server allows properties and additional properties only one at a time.
        if schema.get("properties").is_some() && schema.remove("additionalProperties") == Some(json!(true)) {
            schema.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
        }
        // A doc comment is wrapped for the source; a description is one paragraph.
        if let Some(Value::String(description)) = schema.get_mut("description") {
            *description = description.split_whitespace().collect::<Vec<_>>().join(" ");
        }
    }
}

/// Turns the three ways in which an `Option` says "or null" into the schema of what is in it.
fn drop_null(schema: &mut Schema) {
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(variants)) = schema.get_mut("anyOf") {
        let null = json!({ "type": "null" });
        if let [Value::Object(some), none] = variants.as_slice()
            && *none == null
        {
            let some = some.clone();
            schema.remove("anyOf");
            for (key, value) in some {
                // The field's own description stays.
                schema.ensure_object().entry(key).or_insert(value);
            }
        }
    }
}

fn remove_property(schema: &mut Value, path: &str) -> anyhow::Result<()> {
    let (parent, name) = path.rsplit_once('/').context("a property has a parent")?;
    let properties = property(schema, parent)?
        .get_mut("properties")
        .and_then(Value::as_object_mut);
    properties
        .and_then(|properties| properties.remove(name))
        .with_context(|| format!("there is no property {path}"))?;
    Ok(())
}

/// Finds a property by its path, in which `[]` stands for the items of a list.
fn property<'a>(schema: &'a mut Value, path: &str) -> anyhow::Result<&'a mut Value> {
    let pointer: String = path
        .split('/')
        .map(|name| format!("/properties/{}", name.replace("[]", "/items")))
        .collect();
    schema
        .pointer_mut(&pointer)
        .with_context(|| format!("there is no property {path}"))
}
