//! What this binary was built from: for `--version`, the start-up log line, the user agent and a metric.

use prometheus_client::{encoding::EncodeLabelSet, metrics::info::Info, registry::Registry};

/// The version of the workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The git commit, `development` or `unknown`.
pub const COMMIT: &str = env!("OUTRIGGER_COMMIT");
/// The compiler.
pub const RUSTC: &str = env!("OUTRIGGER_RUSTC");
/// The Kubernetes version of the API types compiled in.
pub const KUBERNETES: &str = env!("OUTRIGGER_KUBERNETES");

/// What `--version` prints behind the name.
pub const DESCRIPTION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("OUTRIGGER_COMMIT"),
    ")\n",
    env!("OUTRIGGER_RUSTC"),
    "\nKubernetes API types ",
    env!("OUTRIGGER_KUBERNETES"),
);

/// Registers `outrigger_build_info`.
pub fn register(registry: &mut Registry) {
    #[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
    struct Labels {
        version: &'static str,
        commit: &'static str,
        rustc: &'static str,
        kubernetes: &'static str,
    }
    let labels = Labels {
        version: VERSION,
        commit: COMMIT,
        rustc: RUSTC,
        kubernetes: KUBERNETES,
    };
    registry.register(
        "outrigger_build",
        "What this binary was built from",
        Info::new(labels),
    );
}
