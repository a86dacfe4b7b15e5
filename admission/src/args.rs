//! The admission component's flags (`spec/vpa.md` 4.1).

use common::daemon::{CommonArgs, Context, DaemonError, Flags};

use crate::run::{Config, run};

/// Gives new pods the resources they should have, and validates the objects that say so.
#[derive(Clone, Debug, clap::Parser)]
pub struct Args {
    #[command(flatten)]
    common: CommonArgs,
}

impl Flags for Args {
    const NAME: &'static str = "admission";
    const ADDRESS: &'static str = ":8944";
    const LEASE: Option<&'static str> = None;
}

impl Args {
    /// Runs the admission component as a process of its own.
    pub async fn run(self) -> Result<(), DaemonError> {
        let Self { common } = self;
        let (settings, context) = Context::from_args(Self::NAME, common).await?;
        run(Config { settings }, context).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::daemon::pflag::try_parse;
    use std::ffi::OsString;

    fn read(line: &str) -> Result<Args, String> {
        let argv = std::iter::once("admission").chain(line.split_whitespace());
        try_parse(argv.map(OsString::from)).map_err(|error| error.to_string())
    }

    #[test]
    fn takes_the_common_flags_that_vpa_runs_with() {
        for line in [
            "",
            "--v=4 --stderrthreshold=info",
            "--kubeconfig=K --address=127.0.0.1:1",
        ] {
            read(line).unwrap();
        }
        let help = read("--help").unwrap_err();
        assert!(help.contains("[default: :8944]"), "{help}");
    }

    #[test]
    fn there_is_no_election() {
        let error = read("--leader-elect").unwrap_err();
        assert!(
            error.contains("unexpected argument '--leader-elect' found"),
            "{error}"
        );
    }
}
