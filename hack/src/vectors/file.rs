//! The vector files: which there are, and what is in one.

use std::{fs, path::Path, path::PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

/// One file of cases.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VectorFile {
    pub(super) family: String,
    /// Which program gave the answers.
    #[serde(rename = "source")]
    pub(super) _source: String,
    pub(super) cases: Vec<Case>,
}

/// One input and what the original answered.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) input: Value,
    pub(super) expect: Value,
}

impl Case {
    /// Whether the original crashed on the whole of it. Then any answer is right.
    pub(super) fn expects_panic(&self) -> bool {
        self.expect.get("panic").is_some()
    }
}

/// Every `*.json` file of a directory, by name.
pub(super) fn list(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let cannot_list = || format!("cannot list {}", dir.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).with_context(cannot_list)? {
        let path = entry.with_context(cannot_list)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    if files.is_empty() {
        bail!(
            "no *.json files in {}: give a directory of vector files",
            dir.display()
        );
    }
    files.sort();
    Ok(files)
}

/// The file, if it is of one of these families or none is named. The cases of others are passed over unread: they are most
/// of the work.
pub(super) fn read(path: &Path, families: &[String]) -> anyhow::Result<Option<VectorFile>> {
    #[derive(Deserialize)]
    struct Head {
        family: String,
    }
    let text = fs::read(path).context("cannot be read")?;
    if !families.is_empty() {
        let head: Head = serde_json::from_slice(&text).context("is not a vector file")?;
        if !families.contains(&head.family) {
            return Ok(None);
        }
    }
    let file: VectorFile = serde_json::from_slice(&text).context("is not a vector file")?;
    ensure!(!file.cases.is_empty(), "has no cases");
    Ok(Some(file))
}

/// An input without the keys whose value is null, which mean the same as absent ones.
pub(super) fn without_nulls(input: &Value) -> Value {
    match input {
        Value::Object(map) => {
            let given = map.iter().filter(|(_, value)| !value.is_null());
            given
                .map(|(key, value)| (key.clone(), without_nulls(value)))
                .collect()
        }
        Value::Array(list) => list.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_is_absent_except_in_lists() {
        assert_eq!(
            without_nulls(&json!({"pods": null, "events": [{"v": null, "t": 0}, null]})),
            json!({"events": [{"t": 0}, null]})
        );
    }
}
