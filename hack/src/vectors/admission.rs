//! Families `admission` and `vpa-validation`: a review as it is posted, and the answer.

use std::collections::{BTreeMap, HashMap};

use ::admission::{
    answer::answer as answer_review,
    pod::{Reinvocation, Settings, World},
};
use anyhow::Context as _;
use common::{
    api::{
        k8s::{LabelSelector, LimitRange, ObjectMeta},
        vpa::VerticalPodAutoscaler,
    },
    gates::{Gate, Gates},
    plan::LimitRanges,
    sidecarset::FormulaIndex,
    target::{
        Controller, ControllerIndex, ControllerKey, Controllers, Scale, ScaleLookup, VpaIndex, WellKnown,
    },
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{compare, family::Context};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    review: Value,
    #[serde(default)]
    gates: BTreeMap<String, bool>,
    #[serde(default)]
    vpas: Vec<VerticalPodAutoscaler>,
    #[serde(default)]
    limit_ranges: Vec<LimitRange>,
    #[serde(default)]
    controllers: Vec<Value>,
    #[serde(default)]
    scales: Vec<ScaleInput>,
    #[serde(default, rename = "maxAllowedCPUBoost")]
    max_allowed_cpu_boost: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScaleInput {
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
    #[serde(default)]
    selector: String,
    #[serde(flatten)]
    metadata: ObjectMeta,
}

pub(super) fn answer(input: &Value, context: &Context) -> anyhow::Result<Value> {
    let input = Input::deserialize(input).context("cannot read the input")?;
    let mut vpas = VpaIndex::default();
    for vpa in &input.vpas {
        vpas.apply(vpa);
    }
    let controllers = Known::read(&input.controllers, &input.scales)?;
    let limit_ranges = by_namespace(&input.limit_ranges);
    let boost = &input.max_allowed_cpu_boost;
    let settings = Settings {
        gates: gates(&input.gates, &context.gates)?,
        quirks: context.quirks,
        reinvocation: Reinvocation::Never,
        max_cpu_boost: if boost.is_empty() {
            None
        } else {
            Some(boost.parse()?)
        },
    };
    let world = World {
        vpas: &vpas,
        controllers: &controllers,
        limit_ranges: &limit_ranges,
        formulas: &FormulaIndex::default(),
    };
    let body = serde_json::to_vec(&input.review)?;
    let response = answer_review(&body, &world, &settings)?.response;
    let patch_type = (!response.patch.is_empty()).then_some("JSONPatch");
    Ok(json!({
        "uid": response.uid,
        "allowed": response.allowed,
        "patch": response.patch,
        "patchType": patch_type,
        "warnings": response.warnings,
        "status": response.status,
    }))
}

/// The text of an InternalError is Go's JSON decoder speaking: that it is one is compared, and the text is not.
pub(super) fn compare_validation(input: &Value, expected: &Value, got: &Value) -> compare::Comparison {
    let (mut expected, mut got) = (expected.clone(), got.clone());
    if expected.pointer("/status/details/causes/0/reason") == Some(&json!("InternalError")) {
        for value in [&mut expected, &mut got] {
            for text in ["/status/message", "/status/details/causes/0/message"] {
                if let Some(text) = value.pointer_mut(text) {
                    *text = Value::Null;
                }
            }
        }
    }
    compare::as_json(input, &expected, &got)
}

pub(super) fn gates(given: &BTreeMap<String, bool>, of_run: &Gates) -> anyhow::Result<Gates> {
    given.iter().try_fold(of_run.clone(), |gates, (name, on)| {
        let gate = Gate::ALL.into_iter().find(|gate| gate.name() == name);
        Ok(gates.with(gate.with_context(|| format!("unknown gate {name:?}"))?, *on))
    })
}

pub(super) fn by_namespace(objects: &[LimitRange]) -> HashMap<String, LimitRanges> {
    let mut namespaces: BTreeMap<String, Vec<&LimitRange>> = BTreeMap::new();
    for object in objects {
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        namespaces.entry(namespace).or_default().push(object);
    }
    let merged = |(namespace, objects): (String, Vec<&LimitRange>)| (namespace, LimitRanges::merge(objects));
    namespaces.into_iter().map(merged).collect()
}

/// The controllers and scales of an input.
pub(super) struct Known {
    controllers: ControllerIndex,
    scales: HashMap<(String, String, String), Scale>,
}

impl Known {
    pub(super) fn read(objects: &[Value], scales: &[ScaleInput]) -> anyhow::Result<Self> {
        let mut controllers = ControllerIndex::default();
        for object in objects {
            let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
            let kind = WellKnown::from_name(kind).with_context(|| format!("unknown controller {kind:?}"))?;
            let metadata = ObjectMeta::deserialize(object.get("metadata").unwrap_or(&Value::Null))?;
            let namespace = metadata.namespace.as_deref().unwrap_or_default();
            let name = metadata.name.as_deref().unwrap_or_default();
            controllers.apply(kind, namespace, name, controller(kind, &metadata, object)?);
        }
        let scales = scales.iter().map(|scale| {
            let owners = scale.metadata.owner_references.as_deref().unwrap_or_default();
            let group = group(&scale.api_version).to_owned();
            let key = (
                format!("{group}/{}", scale.kind),
                scale.namespace.clone(),
                scale.name.clone(),
            );
            let owner = ControllerKey::controller_of(&scale.namespace, owners);
            let selector = scale.selector.clone();
            (
                key,
                Scale {
                    owner,
                    selector,
                    replicas: None,
                },
            )
        });
        Ok(Self {
            controllers,
            scales: scales.collect(),
        })
    }
}

fn controller(kind: WellKnown, metadata: &ObjectMeta, object: &Value) -> anyhow::Result<Controller> {
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let owner = ControllerKey::controller_of(namespace, owners);
    let at = |path: &str| object.pointer(path).filter(|value| !value.is_null());
    Ok(match kind {
        WellKnown::CronJob | WellKnown::ReplicationController => {
            let path = if kind == WellKnown::CronJob {
                "/spec/jobTemplate/spec/template/metadata/labels"
            } else {
                "/spec/selector"
            };
            let labels = at(path).map(BTreeMap::deserialize).transpose()?;
            Controller::labelling(owner, labels.as_ref())
        }
        WellKnown::DaemonSet
        | WellKnown::Deployment
        | WellKnown::Job
        | WellKnown::ReplicaSet
        | WellKnown::StatefulSet => {
            let selector = at("/spec/selector").map(LabelSelector::deserialize).transpose()?;
            Controller::selecting(owner, selector.as_ref())
        }
    })
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

impl Controllers for Known {
    fn well_known(&self, kind: WellKnown, namespace: &str, name: &str) -> Option<&Controller> {
        self.controllers.get(kind, namespace, name)
    }

    fn scale(&self, key: &ControllerKey) -> ScaleLookup<'_> {
        let kind = format!("{}/{}", group(&key.api_version), key.kind);
        if let Some(scale) = self
            .scales
            .get(&(kind.clone(), key.namespace.clone(), key.name.clone()))
        {
            return ScaleLookup::Found(scale);
        }
        if self.scales.keys().any(|(known, ..)| *known == kind) {
            ScaleLookup::NotFound("not found")
        } else {
            ScaleLookup::Failed("no matches for kind")
        }
    }
}
