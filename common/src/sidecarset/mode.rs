//! What part SidecarSets play.

/// `--sidecarset-mode`, of the admission component and the updater alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// SidecarSets are none of our business
    Off,
    /// Kruise injects; containers with a formula are sized by it, after recommendations
    #[default]
    Size,
    /// We inject, and keep the sets; there must be no Kruise that does
    Inject,
}

impl Mode {
    /// Where revisions are kept if nothing is said: where Kruise keeps them, or beside us.
    #[must_use]
    pub fn revision_namespace(self, own_namespace: &str) -> String {
        match self {
            Self::Off | Self::Size => "kruise-system".to_owned(),
            Self::Inject => own_namespace.to_owned(),
        }
    }
}
