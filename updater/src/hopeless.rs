//! Resizes that the API server is known to refuse, so that they are not sent.

use common::{plan::PodPlan, quirks::Quirk};

use crate::{reason::Skip, settings::Settings};

/// Why a resize by this plan would be refused, if it would.
#[must_use]
pub fn reason(plan: &PodPlan<'_>, settings: &Settings) -> Option<Skip> {
    if settings.quirks.has(Quirk::SendsHopelessResizes) {
        return None;
    }
    let _ = plan;
    None
}
