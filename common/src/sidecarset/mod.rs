//! SidecarSets as values: which pods they are for, which revision a new pod gets, the hashes and annotations by which a pod
//! tells what it has (`spec/sidecarset.md` 2). Who watches, injects and updates is the daemons' business.

pub mod choice;
mod go_json;
mod hash;
pub mod hot;
pub mod matching;
mod metadata;
mod mode;
pub mod record;
pub mod revision;
pub mod sizing;

pub use choice::{ChoiceError, Share, effective};
pub use hash::Hashes;
pub use matching::{Labels, MatchError, Set, Sets};
pub use metadata::{MetadataError, patch_annotations};
pub use mode::Mode;
pub use record::{Annotations, Record, RecordError, Records};
pub use revision::{RevisionError, Revisions};
pub use sizing::FormulaIndex;
