//! Puts what built this binary where `--version` can print it. Nothing here may fail: a tarball has no git, and
//! that is no reason not to build.

use std::{env, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=OUTRIGGER_COMMIT");
    let commit = env::var("OUTRIGGER_COMMIT").ok().or_else(git_commit);
    set("OUTRIGGER_COMMIT", commit.as_deref().unwrap_or("unknown"));
    let rustc = env::var("RUSTC")
        .ok()
        .and_then(|rustc| output(&rustc, &["--version"]));
    set("OUTRIGGER_RUSTC", rustc.as_deref().unwrap_or("rustc unknown"));
    set(
        "OUTRIGGER_KUBERNETES",
        kubernetes_api().as_deref().unwrap_or("unknown"),
    );
}

/// Only for releases: a debug build that asked git would be rebuilt, with all that depends on it, at every commit.
fn git_commit() -> Option<String> {
    if env::var("PROFILE").ok()? != "release" {
        return Some("development".to_owned());
    }
    let log = output("git", &["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={log}");
    output("git", &["rev-parse", "--short=12", "HEAD"])
}

/// The Kubernetes version whose API types are compiled in, which k8s-openapi tells its dependants as 0x00_01_minor_00.
fn kubernetes_api() -> Option<String> {
    let version = env::vars()
        .find(|(name, _)| name.starts_with("DEP_K8S_OPENAPI_") && name.ends_with("_VERSION"))?
        .1
        .parse::<u32>()
        .ok()?;
    Some(format!("{}.{}", version >> 16, (version >> 8) & 0xff))
}

fn set(name: &str, value: &str) {
    println!("cargo::rustc-env={name}={value}");
}

fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
