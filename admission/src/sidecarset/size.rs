//! Mode `size`: beside a running Kruise, which has injected the sidecars and sized them by what the pod said then. Here their
//! formulas are evaluated again, on what the pod's containers really get; nothing of Kruise's is written.

use common::{plan::Formulas, pod::Pod, sidecarset::FormulaIndex};

/// The formulas of a new pod's sidecars, by the sets and revisions that its annotations name. None for a pod without any;
/// a sidecar whose revision is not known stays as it is, and the pod says so.
pub(crate) fn formulas(pod: &Pod, index: &FormulaIndex) -> Option<Formulas> {
    let formulas = index.formulas(pod);
    for unknown in &formulas.unknown {
        tracing::info!(
            set = unknown.set,
            container = unknown.container,
            why = unknown.skipped(),
            "a formula is not followed"
        );
    }
    (!formulas.containers.is_empty() || !formulas.unknown.is_empty()).then_some(formulas)
}

#[cfg(test)]
mod tests;
