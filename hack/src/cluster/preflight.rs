//! Says before anything is started whether this machine can run a level, and if not, why and which one it can.

use std::{path::Path, process::Command};

use anyhow::{Result, anyhow};

use super::{
    Level,
    cache::{Cache, make_dir},
    cgroups::Hierarchies,
    programs::which,
};

/// The folders that a node gets overlays of.
const OVERLAID: [&str; 4] = ["/var", "/run", "/etc", "/opt"];

/// Checks the machine.
///
/// # Errors
/// With every reason why it cannot.
pub(super) fn check(cache: &Cache, level: Level) -> Result<()> {
    if !cfg!(target_os = "linux") {
        return Err(anyhow!(
            "a local cluster runs on Linux only: use any cluster by its kubeconfig, or the sandbox, which runs everywhere"
        ));
    }
    if level < Level::Node {
        return Ok(());
    }
    let reasons = reasons(cache);
    if reasons.is_empty() {
        return Ok(());
    }
    Err(anyhow!(
        "this machine cannot run a real node:\n{}\nlevel control-plane runs here: pods are scheduled to node objects that a test makes",
        reasons
            .iter()
            .map(|reason| format!("- {reason}"))
            .collect::<Vec<_>>()
            .join("\n")
    ))
}

fn reasons(cache: &Cache) -> Vec<String> {
    let mut reasons = Vec::new();
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        reasons.push("it needs root, for mount namespaces, cgroups and a bridge".to_owned());
    }
    reasons.extend(
        ["unshare", "nsenter", "mount", "ip"]
            .into_iter()
            .filter(|tool| which(tool).is_none())
            .map(|tool| format!("there is no `{tool}`: install util-linux and iproute2")),
    );
    if let Err(error) = Hierarchies::of_machine() {
        reasons.push(format!("{error:#}"));
    }
    let clusters = cache.clusters();
    if let Some(folder) = overlaid(&clusters) {
        reasons.push(format!(
            "clusters are kept in {}, and a node gets an overlay of {folder}: set OUTRIGGER_CACHE to another place",
            clusters.display()
        ));
    } else if is_root && let Err(error) = try_overlay(&clusters) {
        reasons.push(format!("{error:#}"));
    }
    reasons
}

fn overlaid(path: &Path) -> Option<&'static str> {
    OVERLAID.into_iter().find(|folder| path.starts_with(folder))
}

/// Whether a mount namespace with an overlay can be made at all is best found out by making one.
fn try_overlay(clusters: &Path) -> Result<()> {
    make_dir(clusters)?;
    let folder = tempfile::Builder::new().prefix(".try-").tempdir_in(clusters)?;
    for name in ["upper", "work"] {
        make_dir(&folder.path().join(name))?;
    }
    let script = "mount --make-rprivate / && mount -t overlay try -o lowerdir=/etc,upperdir=$0/upper,workdir=$0/work /etc";
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .arg(folder.path())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(anyhow!(
        "no overlay can be mounted in a namespace of its own: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_below_what_is_overlaid_does_not_do() {
        assert_eq!(overlaid(Path::new("/var/cache/outrigger/clusters")), Some("/var"));
        assert_eq!(overlaid(Path::new("/variety/outrigger")), None);
        assert_eq!(overlaid(Path::new("/home/me/.cache/outrigger")), None);
    }
}
