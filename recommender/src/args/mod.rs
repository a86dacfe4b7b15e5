//! The recommender's flags (`spec/vpa.md` 2.1): every one of VPA's with its name and default, and the few of ours.

mod history;
mod model;

use std::{num::NonZeroUsize, time::Duration};

use chrono::TimeDelta;
use common::{
    clock::Clock,
    daemon::{
        ArgsError, CommonArgs, Context, DaemonError, Flags, GoBool, GoDuration, LeaderElectionArgs, Settings,
        explain, interval,
    },
    kube::lease::LeaseSettings,
    quirks::Quirks,
};

use self::{history::HistoryArgs, model::ModelArgs};
use crate::run::{CheckpointConfig, Config, run};

/// Reads the usage of containers and native sidecars and writes VPA recommendations.
#[derive(Clone, Debug, clap::Parser)]
pub struct Args {
    /// The name by which VPA objects choose a recommender
    #[arg(long, default_value = "default", value_name = "NAME")]
    recommender_name: String,
    /// How often to fetch metrics and compute recommendations
    #[arg(long, default_value_t = GoDuration(Duration::from_secs(60)), value_name = "DURATION")]
    recommender_interval: GoDuration,
    /// Know only of pods that some VPA selects
    #[arg(long, default_value_t)]
    memory_saver: GoBool,
    /// How many status updates and checkpoints to write at the same time
    #[arg(long, default_value_t = 10, value_name = "COUNT")]
    update_worker_count: i64,
    /// How often to look for checkpoints whose VPA is gone
    #[arg(long, default_value_t = GoDuration(Duration::from_secs(600)), value_name = "DURATION")]
    checkpoints_gc_interval: GoDuration,
    /// How long writing checkpoints may take in one loop, and how long collecting them may
    #[arg(long, default_value_t = GoDuration(Duration::from_secs(60)), value_name = "DURATION")]
    checkpoints_timeout: GoDuration,
    /// How old a change may get before its checkpoint is written; an OOM does not wait
    #[arg(long, default_value_t = GoDuration(Duration::from_secs(600)), value_name = "DURATION")]
    checkpoint_max_age: GoDuration,
    /// Taken for compatibility; has had no effect in VPA for long
    #[arg(long, default_value_t = 10, value_name = "COUNT")]
    min_checkpoints: i64,
    /// What VPA gets wrong and is wanted all the same: all, none or a list such as Q8,Q10
    #[arg(long, default_value_t = Quirks::none(), value_name = "LIST")]
    quirks: Quirks,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    history: HistoryArgs,
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    leader_election: LeaderElectionArgs,
}

/// What the recommender's program is asked to do.
pub type Asked = explain::Asked<Args, Question>;

/// What is to be explained.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct Question {
    /// The VPA whose numbers to explain
    #[arg(value_name = "VPA")]
    vpa: String,
}

/// Answers a question, prints the answer and ends the process.
pub async fn answer(asked: explain::Explain<Args, Question>) -> ! {
    let explain::Explain {
        question,
        about,
        flags,
    } = asked;
    let answered = async {
        let Work { config, common, .. } = flags.split()?;
        let common = common.resolve()?;
        let client = explain::connect(Args::NAME, &common).await?;
        let config = config(common.settings)?;
        let clock = Clock::system();
        anyhow::Ok(crate::explain::explain(&client, &clock, &config, &about.namespace, &question.vpa).await?)
    };
    about.output.exit(answered.await)
}

impl Flags for Args {
    const NAME: &'static str = "recommender";
    const ADDRESS: &'static str = ":8942";
    const LEASE: Option<&'static str> = Some("vpa-recommender-lease");
}

/// What the flags say, without those of the shell.
struct Work {
    config: Box<dyn FnOnce(Settings) -> Result<Config, ArgsError>>,
    common: CommonArgs,
    warnings: Vec<&'static str>,
}

impl Args {
    /// Runs the recommender as a process of its own.
    pub async fn run(self) -> Result<(), DaemonError> {
        let Work {
            config,
            common,
            warnings,
        } = self.split()?;
        let (settings, context) = Context::from_args(Self::NAME, common).await?;
        let config = config(settings)?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        run(config, context).await
    }

    /// What these flags mean for a recommender inside another process, whose shell is not its own.
    ///
    /// # Errors
    /// When they contradict each other.
    pub fn config(self) -> Result<Config, ArgsError> {
        let Work { config, common, .. } = self.split()?;
        config(common.resolve()?.settings)
    }

    fn split(self) -> Result<Work, ArgsError> {
        let Self {
            recommender_name,
            recommender_interval,
            memory_saver,
            update_worker_count,
            checkpoints_gc_interval,
            checkpoints_timeout,
            checkpoint_max_age,
            min_checkpoints,
            quirks,
            model,
            history,
            common,
            leader_election,
        } = self;
        let interval = interval("recommender-interval", recommender_interval)?;
        let leader_election: Option<LeaseSettings> = leader_election.resolve()?;
        let workers = usize::try_from(update_worker_count)
            .ok()
            .and_then(NonZeroUsize::new)
            .ok_or_else(|| invalid("update-worker-count", "there must be at least one"))?;
        let max_age = TimeDelta::from_std(checkpoint_max_age.0)
            .map_err(|_| invalid("checkpoint-max-age", "it is too long"))?;
        let (history, external) = history.resolve(quirks)?;
        let checkpoints = CheckpointConfig {
            gc_interval: common::daemon::interval("checkpoints-gc-interval", checkpoints_gc_interval)?,
            timeout: checkpoints_timeout.0,
            max_age,
        };
        let warnings = (min_checkpoints != 10)
            .then_some("--min-checkpoints has no effect: every checkpoint that changed is written in time");
        let config = move |settings: Settings| {
            let model = model.resolve(&settings.gates, quirks)?;
            Ok(Config {
                settings,
                interval,
                leader_election,
                recommender_name,
                memory_saver: memory_saver.0,
                workers,
                checkpoints,
                history,
                external,
                model: model.model,
                estimator: model.estimator,
                rounding: model.rounding,
                post_processing: model.post_processing,
            })
        };
        Ok(Work {
            config: Box::new(config),
            common,
            warnings: warnings.into_iter().collect(),
        })
    }
}

fn invalid(flag: &'static str, reason: impl Into<String>) -> ArgsError {
    ArgsError::Invalid {
        flag,
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests;
