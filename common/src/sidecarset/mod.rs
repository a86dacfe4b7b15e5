//! SidecarSets as values: which pods they are for, which revision a new pod gets, the hashes and annotations by which a pod
//! tells what it has (`spec/sidecarset.md` 2). Who watches, injects and updates is the daemons' business.

mod go_json;
mod hash;

pub use hash::Hashes;
