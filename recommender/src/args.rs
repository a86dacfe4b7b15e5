//! The recommender's flags (`spec/vpa.md` 2.1).

use std::time::Duration;

use common::daemon::{CommonArgs, Context, DaemonError, Flags, GoDuration, LeaderElectionArgs, interval};

use crate::run::{Config, run};

/// Reads the usage of containers and native sidecars and writes VPA recommendations.
#[derive(Clone, Debug, clap::Parser)]
pub struct Args {
    /// How often to fetch metrics and compute recommendations
    #[arg(long, default_value_t = GoDuration(Duration::from_secs(60)), value_name = "DURATION")]
    recommender_interval: GoDuration,
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    leader_election: LeaderElectionArgs,
}

impl Flags for Args {
    const NAME: &'static str = "recommender";
    const ADDRESS: &'static str = ":8942";
    const LEASE: Option<&'static str> = Some("vpa-recommender-lease");
}

impl Args {
    /// Runs the recommender as a process of its own.
    pub async fn run(self) -> Result<(), DaemonError> {
        let Self {
            recommender_interval,
            common,
            leader_election,
        } = self;
        let interval = interval("recommender-interval", recommender_interval)?;
        let leader_election = leader_election.resolve()?;
        let (settings, context) = Context::from_args(Self::NAME, common).await?;
        let config = Config {
            settings,
            interval,
            leader_election,
        };
        run(config, context).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::daemon::pflag::try_parse;
    use std::ffi::OsString;

    fn read(line: &str) -> Result<Args, String> {
        let argv = std::iter::once("recommender").chain(line.split_whitespace());
        try_parse(argv.map(OsString::from)).map_err(|error| error.to_string())
    }

    #[test]
    fn takes_the_command_lines_that_vpa_runs_with() {
        for line in [
            "",
            "--v=4 --stderrthreshold=info",
            "--kubeconfig=K --recommender-interval=10s --address=127.0.0.1:1",
            "--leader-elect=true --leader-elect-resource-name=vpa-recommender-lease --leader-elect-resource-namespace=vpa",
        ] {
            read(line).unwrap();
        }
    }

    #[test]
    fn its_own_defaults_are_those_of_vpa() {
        let help = read("--help").unwrap_err();
        for default in [
            "[default: :8942]",
            "[default: vpa-recommender-lease]",
            "[default: 1m0s]",
        ] {
            assert!(help.contains(default), "{help}");
        }
    }

    #[tokio::test]
    async fn an_interval_of_zero_is_refused() {
        let error = read("--recommender-interval=0s")
            .unwrap()
            .run()
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "--recommender-interval must be longer than zero"
        );
    }
}
