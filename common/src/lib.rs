//! What the recommender, the updater and the admission component share: the API types, exact quantities, the view
//! of a pod's managed containers, and the shell that every daemon lives in. It knows none of the three.

pub mod api;
pub mod clock;
pub mod daemon;
pub mod formula;
pub mod gates;
pub mod kube;
pub mod patch;
pub mod plan;
pub mod pod;
pub mod quantity;
pub mod quirks;
pub mod selector;
pub mod sidecarset;
pub mod target;
pub mod time;
