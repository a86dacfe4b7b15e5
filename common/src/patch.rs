//! JSON patches of pods: the operations, and those that give a container amounts (`spec/vpa.md` 3.6, 4.5). Admission
//! answers with them, the updater sends them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    pod::{Managed, Resources, Side},
    quantity::Quantity,
};

/// One step of a patch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Operation {
    /// Sets a value, whether there was one or not.
    Add {
        /// Where.
        path: String,
        /// What.
        value: Value,
    },
    /// Takes a value away that is there.
    Remove {
        /// Where.
        path: String,
    },
}

/// What patches of ours set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A text.
    Text(String),
    /// An object with these members, or none.
    Object(BTreeMap<&'static str, &'static str>),
    /// Anything else.
    Json(serde_json::Value),
}

impl Operation {
    /// Sets a text.
    #[must_use]
    pub fn set(path: String, text: impl Into<String>) -> Self {
        Self::Add {
            path,
            value: Value::Text(text.into()),
        }
    }

    /// Sets anything.
    #[must_use]
    pub fn put(path: String, value: serde_json::Value) -> Self {
        Self::Add {
            path,
            value: Value::Json(value),
        }
    }

    /// Makes room for what is set in it.
    #[must_use]
    pub fn make(path: String) -> Self {
        Self::Add {
            path,
            value: Value::Object(BTreeMap::new()),
        }
    }

    /// Where.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Add { path, .. } | Self::Remove { path } => path,
        }
    }
}

/// Where annotations stand.
pub const ANNOTATIONS: &str = "/metadata/annotations";

/// The JSON pointer of an annotation (RFC 6901).
#[must_use]
pub fn annotation_path(key: &str) -> String {
    format!("{ANNOTATIONS}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// Sets amounts of a container that has `present`, after making the maps they stand in. VPA makes the map of a container
/// without resources whether something comes into it or not: `even_empty`.
pub fn set_amounts<'q>(
    container: &Managed<'_>,
    present: &Resources,
    requests: impl IntoIterator<Item = (&'q String, &'q Quantity)>,
    limits: impl IntoIterator<Item = (&'q String, &'q Quantity)>,
    even_empty: bool,
) -> Vec<Operation> {
    let mut inner = Vec::new();
    set_side(
        container,
        Side::Requests,
        present.requests.is_some(),
        requests,
        &mut inner,
    );
    set_side(
        container,
        Side::Limits,
        present.limits.is_some(),
        limits,
        &mut inner,
    );
    let has_neither = present.requests.is_none() && present.limits.is_none();
    if has_neither && (even_empty || !inner.is_empty()) {
        inner.insert(0, Operation::make(container.resources_path()));
    }
    inner
}

fn set_side<'q>(
    container: &Managed<'_>,
    side: Side,
    is_there: bool,
    amounts: impl IntoIterator<Item = (&'q String, &'q Quantity)>,
    operations: &mut Vec<Operation>,
) {
    let mut amounts = amounts.into_iter().peekable();
    if amounts.peek().is_some() && !is_there {
        operations.push(Operation::make(container.side_path(side)));
    }
    operations.extend(amounts.map(|(resource, amount)| {
        Operation::set(container.resource_path(side, resource), amount.to_string())
    }));
}
