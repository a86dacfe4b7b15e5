//! `resourcesPolicy`: the formula by which a sidecar's resources follow those of the application. Here it is text;
//! what it means is said in `spec/sidecarset.md` 3.

use crate::api::{
    open_enum::open_enum,
    wire::{is_zero, non_empty, nullable},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The regular expression that holds where none is given: every container counts.
pub const ANY_NAME_REGEX: &str = ".*";

/// Resources computed from those of the pod's own containers. Two fields were renamed in 2025; the older names are
/// read, the shipped ones are written and win where both are given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(from = "AnySpelling", rename_all = "camelCase")]
pub struct ResourcesPolicy {
    /// How the resources of several containers become one number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_containers_mode: Option<TargetContainersMode>,
    /// Which containers count, by name. An empty expression is not the same as none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_containers_name_regex: Option<String>,
    /// The expressions.
    pub resources_expr: ResourcesExpr,
}

impl ResourcesPolicy {
    /// The regular expression in force.
    #[must_use]
    pub fn name_regex(&self) -> &str {
        self.target_containers_name_regex
            .as_deref()
            .unwrap_or(ANY_NAME_REGEX)
    }
}

/// Resources computed from those of the pod's own containers.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["resourcesExpr", "targetContainersMode"]))]
struct AnySpelling {
    /// How the resources of several containers become one number.
    #[serde(deserialize_with = "non_empty")]
    target_containers_mode: Option<TargetContainersMode>,
    /// Older name of targetContainersMode, into which it is rewritten on admission.
    #[serde(deserialize_with = "non_empty")]
    target_container_mode: Option<TargetContainersMode>,
    /// Which containers count, by name.
    #[schemars(extend("x-published-default" = ANY_NAME_REGEX))]
    target_containers_name_regex: Option<String>,
    /// The expressions.
    resources_expr: Option<ResourcesExpr>,
    /// Older name of resourcesExpr, into which it is rewritten on admission.
    resource_expr: Option<ResourcesExpr>,
}

impl From<AnySpelling> for ResourcesPolicy {
    fn from(wire: AnySpelling) -> Self {
        Self {
            target_containers_mode: wire.target_containers_mode.or(wire.target_container_mode),
            target_containers_name_regex: wire.target_containers_name_regex,
            resources_expr: wire.resources_expr.or(wire.resource_expr).unwrap_or_default(),
        }
    }
}

open_enum! {
    /// How the resources of several containers become one number.
    pub enum TargetContainersMode {
        /// Their sum.
        Sum = "sum",
        /// The largest.
        Max = "max",
    }
}

/// The expressions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourcesExpr {
    /// Expressions for the limits.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "is_zero")]
    pub limits: ResourceExpressions,
    /// Expressions for the requests.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "is_zero")]
    pub requests: ResourceExpressions,
}

/// One expression for each resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceExpressions {
    /// Expression over `cpu`.
    #[serde(deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Expression over `memory`.
    #[serde(deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
}
