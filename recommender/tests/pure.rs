//! What decides knows no clock, no client and no runtime: time and objects come in as arguments.

#![allow(clippy::unwrap_used, reason = "this is a test")]

use std::{fs, path::Path};

/// The shell: what watches, asks and writes.
const SHELL: [&str; 15] = [
    "args",
    "checkpoints.rs",
    "explain/read.rs",
    "feed/external.rs",
    "feed/mod.rs",
    "feed/targets.rs",
    "feed/watches.rs",
    "history",
    "lib.rs",
    "main.rs",
    "metrics",
    "metrics.rs",
    "publish.rs",
    "run.rs",
    "write.rs",
];
const FORBIDDEN: [&str; 9] = [
    "Utc::now",
    "SystemTime",
    "Instant::now",
    "tokio",
    "kube::",
    "reqwest",
    "Clock",
    "async ",
    "std::fs",
];

fn visit(folder: &Path, root: &Path, tell: &mut impl FnMut(&str, &str)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            visit(&path, root, tell);
        } else {
            tell(&name, &fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn what_decides_knows_no_clock_and_no_client() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut pure = 0;
    visit(&root, &root, &mut |name, text| {
        let first = name.split('/').next().unwrap_or_default();
        if SHELL.iter().any(|shell| *shell == name || *shell == first) {
            return;
        }
        pure += 1;
        for word in FORBIDDEN {
            assert!(!text.contains(word), "{name} is pure and names {word:?}");
        }
    });
    assert!(pure > 30, "only {pure} files were looked at");
}
