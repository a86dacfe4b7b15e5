//! What part SidecarSets play, as values that were checked before anything starts.

use std::str::FromStr;

pub use common::sidecarset::Mode;
use regex::RegexBuilder;

use super::validate::AnnotationKeys;

/// How many bytes an expression for annotation keys may take up when it is compiled.
const MAX_REGEX: usize = 64 * 1024;

/// What part SidecarSets play.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether at all.
    pub mode: Mode,
    /// Where their revisions are kept.
    pub namespace: String,
    /// The namespaces whose pods are never injected.
    pub excluded: Vec<String>,
    /// Whether pods that stay on an older revision are counted, and not drawn.
    pub exact_partition: bool,
    /// Which annotations sets may write into pods.
    pub annotation_keys: AnnotationKeys,
}

impl Settings {
    /// What holds without flags, for a component in this namespace.
    #[must_use]
    pub fn new(mode: Mode, own_namespace: &str) -> Self {
        Self {
            mode,
            namespace: mode.revision_namespace(own_namespace),
            excluded: vec!["kube-system".to_owned(), own_namespace.to_owned()],
            exact_partition: false,
            annotation_keys: AnnotationKeys::None,
        }
    }
}

/// `--sidecarset-annotation-keys`: regular expressions, separated by commas.
impl FromStr for AnnotationKeys {
    type Err = regex::Error;

    fn from_str(text: &str) -> Result<Self, regex::Error> {
        let expressions = text.split(',').map(str::trim).filter(|text| !text.is_empty());
        let read = expressions
            .map(|text| RegexBuilder::new(text).size_limit(MAX_REGEX).build())
            .collect::<Result<Vec<_>, _>>()?;
        Ok(if read.is_empty() {
            Self::None
        } else {
            Self::Matching(read)
        })
    }
}
