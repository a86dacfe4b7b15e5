//! Who controls a pod: from its owner up to the topmost controller, and from there to the VPA that targets it
//! (`spec/vpa.md` 2.3, 4.4). Pure over what is known already; who watches and asks the API is the caller's business.

mod controller;
mod topmost;
mod vpas;

#[cfg(test)]
mod tests;

pub use controller::{
    Controller, ControllerIndex, ControllerKey, Controllers, Scale, ScaleLookup, TargetError, WellKnown,
    selector_of,
};
pub use topmost::{TopmostError, controlling_owner, topmost};
pub use vpas::{TargetingVpa, VpaIndex, controlling_vpa, strongest};
