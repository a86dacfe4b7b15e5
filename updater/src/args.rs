//! The updater's flags (`spec/vpa.md` 3.1): every one of VPA's with its name and default, and the few of ours.

use std::time::Duration;

use chrono::TimeDelta;
use common::{
    clock::Clock,
    daemon::{
        ArgsError, CommonArgs, Context, DaemonError, Flags, GoBool, GoDuration, LeaderElectionArgs, Settings,
        explain, interval,
    },
    kube::limit::{RateLimit, RateLimitError},
    quirks::Quirks,
    sidecarset::Mode,
};

use crate::{
    config::{AdmissionStatus, Config},
    run::run,
    settings,
};

/// Brings running pods to the resources they should have, by resize in place or by eviction.
#[derive(Clone, Debug, clap::Parser)]
pub struct Args {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    leader_election: LeaderElectionArgs,
}

/// What the program is asked to do.
pub type Asked = explain::Asked<Args, Question>;

/// What is to be explained.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct Question {
    /// The VPA whose pods to explain
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
        let config = flags.work.resolve()?;
        let common = flags.common.resolve()?;
        let client = explain::connect(Args::NAME, &common).await?;
        let config = config(common.settings);
        let clock = Clock::system();
        anyhow::Ok(crate::explain::explain(&client, &clock, &config, &about.namespace, &question.vpa).await?)
    };
    about.output.exit(answered.await)
}

/// What decisions depend on.
#[derive(Clone, Debug, clap::Args)]
struct WorkArgs {
    /// How often to look for pods to update; a loop that takes longer is cut off
    #[arg(long, default_value_t = GoDuration(Duration::from_secs(60)), value_name = "DURATION")]
    updater_interval: GoDuration,
    /// How many live pods a replica group needs before it may be disrupted; a VPA may say otherwise
    #[arg(long, default_value_t = 2, value_name = "COUNT")]
    min_replicas: i64,
    /// The share of a replica group that may be disrupted in one loop
    #[arg(long, default_value_t = 0.5, value_name = "FRACTION")]
    eviction_tolerance: f64,
    /// How many pods to evict a second, and how many to resize; zero or less means as many as there are
    #[arg(long, default_value_t = -1.0, value_name = "RATE")]
    eviction_rate_limit: f64,
    /// How many of them may go at once before the rate applies
    #[arg(long, default_value_t = 1, value_name = "COUNT")]
    eviction_rate_burst: u32,
    /// Evict nothing unless the admission component's lease is fresh
    #[arg(long, default_value_t = GoBool(true))]
    use_admission_controller_status: GoBool,
    /// Let resizes that restart no container pass by the disruption budget and --min-replicas
    #[arg(long, default_value_t)]
    in_place_skip_disruption_budget: GoBool,
    /// The lease by which the admission component shows that it works
    #[arg(long, default_value = "vpa-admission-controller", value_name = "NAME")]
    admission_controller_status_lease_name: String,
    /// The namespace of that lease; empty means that of this pod (NAMESPACE), or kube-system
    #[arg(long, default_value = "", value_name = "NAMESPACE")]
    admission_controller_status_lease_namespace: String,
    /// How long that lease is fresh
    #[arg(long, default_value_t = GoDuration(Duration::from_secs(60)), value_name = "DURATION")]
    admission_controller_status_lease_timeout: GoDuration,
    /// Leave pods whose requests are within bounds and would change by a smaller share than this
    #[arg(long, default_value_t = 0.1, value_name = "FRACTION")]
    pod_update_threshold: f64,
    /// Leave pods whose requests are within bounds and that have run for less than this
    #[arg(long, default_value_t = GoDuration(Duration::from_secs(12 * 3600)), value_name = "DURATION")]
    in_recommendation_bounds_eviction_lifetime_threshold: GoDuration,
    /// Act at once on a pod with a container that ran out of memory within this time of its start
    #[arg(long, default_value_t = GoDuration(Duration::from_secs(600)), value_name = "DURATION")]
    evict_after_oom_threshold: GoDuration,
    /// What VPA gets wrong and is wanted all the same: all, none or a list such as Q12,Q26
    #[arg(long, default_value_t = Quirks::none(), long_help = quirks_help(), value_name = "LIST")]
    quirks: Quirks,
    /// What part SidecarSets play; as for the admission component
    #[arg(long, value_enum, default_value = "size", value_name = "MODE")]
    sidecarset_mode: Mode,
    /// Where the revisions of SidecarSets are kept; as for the admission component
    #[arg(long, default_value = "", value_name = "NAMESPACE")]
    sidecarset_revision_namespace: String,
    /// The namespace this runs in
    #[arg(long, env = "NAMESPACE", default_value = "", hide = true)]
    own_namespace: String,
}

fn quirks_help() -> String {
    format!(
        "What VPA gets wrong and is wanted all the same: all, none, or a list of these:\n{}",
        Quirks::help()
    )
}

impl Flags for Args {
    const NAME: &'static str = "updater";
    const ADDRESS: &'static str = ":8943";
    const LEASE: Option<&'static str> = Some("vpa-updater");
}

impl Args {
    /// Runs the updater as a process of its own.
    pub async fn run(self) -> Result<(), DaemonError> {
        let Self {
            work,
            common,
            leader_election,
        } = self;
        let config = work.resolve()?;
        let leader_election = leader_election.resolve()?;
        let (settings, context) = Context::from_args(Self::NAME, common).await?;
        let config = Config {
            leader_election,
            ..config(settings)
        };
        run(config, context).await
    }

    /// What these flags mean for an updater inside another process, whose shell is not its own.
    ///
    /// # Errors
    /// When they contradict each other.
    pub fn config(self) -> Result<Config, ArgsError> {
        let Self {
            work,
            common,
            leader_election,
        } = self;
        let config = work.resolve()?;
        Ok(Config {
            leader_election: leader_election.resolve()?,
            ..config(common.resolve()?.settings)
        })
    }
}

impl WorkArgs {
    /// Checks the flags; what is left to know is what all daemons' work depends on.
    fn resolve(self) -> Result<impl FnOnce(Settings) -> Config, ArgsError> {
        let Self {
            updater_interval,
            min_replicas,
            eviction_tolerance,
            eviction_rate_limit,
            eviction_rate_burst,
            use_admission_controller_status,
            in_place_skip_disruption_budget,
            admission_controller_status_lease_name,
            admission_controller_status_lease_namespace,
            admission_controller_status_lease_timeout,
            pod_update_threshold,
            in_recommendation_bounds_eviction_lifetime_threshold,
            evict_after_oom_threshold,
            quirks,
            sidecarset_mode,
            sidecarset_revision_namespace,
            own_namespace,
        } = self;
        let interval = interval("updater-interval", updater_interval)?;
        let lease_timeout = common::daemon::interval(
            "admission-controller-status-lease-timeout",
            admission_controller_status_lease_timeout,
        )?;
        let pod_lifetime = span(
            "in-recommendation-bounds-eviction-lifetime-threshold",
            in_recommendation_bounds_eviction_lifetime_threshold,
        )?;
        let evict_after_oom = span("evict-after-oom-threshold", evict_after_oom_threshold)?;
        let rate_limit = rate_limit(eviction_rate_limit, eviction_rate_burst)?;
        let admission_status = use_admission_controller_status.0.then_some(AdmissionStatus {
            namespace: first_of([
                &admission_controller_status_lease_namespace,
                &own_namespace,
                "kube-system",
            ]),
            name: admission_controller_status_lease_name,
            timeout: span(
                "admission-controller-status-lease-timeout",
                GoDuration(lease_timeout),
            )?,
        });
        let own_namespace = first_of([&own_namespace, "kube-system"]);
        let sidecarset_revisions = first_of([
            &sidecarset_revision_namespace,
            &sidecarset_mode.revision_namespace(&own_namespace),
        ]);
        Ok(move |settings: Settings| Config {
            namespaces: settings.namespaces,
            interval,
            leader_election: None,
            admission_status,
            rate_limit,
            decisions: settings::Settings {
                min_replicas,
                eviction_tolerance,
                in_place_skip_disruption_budget: in_place_skip_disruption_budget.0,
                pod_update_threshold,
                pod_lifetime,
                evict_after_oom,
                gates: settings.gates,
                quirks,
                ..settings::Settings::default()
            },
            sidecarsets: sidecarset_mode,
            sidecarset_revisions,
        })
    }
}

/// VPA's limiter has no word on zero: nothing or less is no limit.
fn rate_limit(per_second: f64, burst: u32) -> Result<Option<RateLimit>, ArgsError> {
    if per_second <= 0.0 {
        return Ok(None);
    }
    RateLimit::from_flags(per_second, f64::from(burst)).map_err(|error| match error {
        RateLimitError::Rate(_) => invalid("eviction-rate-limit", error.to_string()),
        RateLimitError::Burst(_) => invalid("eviction-rate-burst", error.to_string()),
    })
}

fn span(flag: &'static str, duration: GoDuration) -> Result<TimeDelta, ArgsError> {
    TimeDelta::from_std(duration.0).map_err(|_| invalid(flag, "it is too long"))
}

fn invalid(flag: &'static str, reason: impl Into<String>) -> ArgsError {
    ArgsError::Invalid {
        flag,
        reason: reason.into(),
    }
}

fn first_of<const N: usize>(texts: [&str; N]) -> String {
    let found = texts.into_iter().find(|text| !text.is_empty());
    found.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::{
        daemon::{Namespaces, pflag::try_parse},
        gates::Gate,
        quirks::Quirk,
    };
    use std::{collections::BTreeMap, ffi::OsString};

    fn read(line: &str) -> Result<Args, String> {
        let argv = std::iter::once("updater").chain(line.split_whitespace());
        try_parse(argv.map(OsString::from)).map_err(|error| error.to_string())
    }

    fn config(line: &str) -> Result<Config, String> {
        read(line)?.config().map_err(|error| error.to_string())
    }

    #[test]
    fn takes_the_command_lines_that_vpa_runs_with() {
        for line in [
            "",
            "--v=4 --stderrthreshold=info",
            "--leader-elect=true --leader-elect-resource-name=vpa-updater --leader-elect-resource-namespace=vpa",
            "--in-place-skip-disruption-budget=true",
            "--eviction-rate-limit=-1 --eviction-rate-burst 1 --min_replicas 1 --evict-after-oom-threshold=30m",
        ] {
            config(line).unwrap();
        }
        // What ran VPA for the baseline.
        let config =
            config("--kubeconfig=K --updater-interval=10s --min-replicas=1 --address=127.0.0.1:18943")
                .unwrap();
        assert_eq!(config.interval, Duration::from_secs(10));
        assert_eq!(config.decisions.min_replicas, 1);
    }

    /// `spec/vpa.md` 3.1.
    #[test]
    fn has_every_flag_of_vpa_with_its_default() {
        let help = read("--help").unwrap_err();
        let mut flags = BTreeMap::new();
        let mut last = String::new();
        for line in help.lines() {
            if let Some(rest) = line.trim_start().strip_prefix("--") {
                last = rest.split([' ', '=', '[']).next().unwrap_or_default().to_owned();
            }
            if let Some((_, default)) = line.split_once("[default: ") {
                flags
                    .entry(last.clone())
                    .or_insert(default.trim_end_matches(']').to_owned());
            }
        }
        for (flag, default) in [
            ("updater-interval", "1m0s"),
            ("min-replicas", "2"),
            ("eviction-tolerance", "0.5"),
            ("eviction-rate-limit", "-1"),
            ("eviction-rate-burst", "1"),
            ("use-admission-controller-status", "true"),
            ("in-place-skip-disruption-budget", "false"),
            (
                "admission-controller-status-lease-name",
                "vpa-admission-controller",
            ),
            ("admission-controller-status-lease-timeout", "1m0s"),
            ("pod-update-threshold", "0.1"),
            ("in-recommendation-bounds-eviction-lifetime-threshold", "12h0m0s"),
            ("evict-after-oom-threshold", "10m0s"),
            ("address", ":8943"),
            ("leader-elect-resource-name", "vpa-updater"),
        ] {
            assert_eq!(flags.get(flag).map(String::as_str), Some(default), "--{flag}");
        }
        assert!(
            help.contains("--admission-controller-status-lease-namespace"),
            "{help}"
        );
    }

    #[test]
    fn the_defaults_mean_what_they_mean_in_vpa() {
        let Config {
            namespaces,
            interval,
            leader_election,
            admission_status,
            rate_limit,
            decisions,
            sidecarsets,
            sidecarset_revisions,
        } = config("").unwrap();
        assert_eq!(namespaces, Namespaces::All);
        assert_eq!(interval, Duration::from_secs(60));
        assert_eq!(leader_election, None);
        assert_eq!(admission_status, Some(AdmissionStatus::default()));
        assert_eq!(rate_limit, None);
        assert_eq!(decisions, settings::Settings::default());
        assert_eq!(sidecarsets, Mode::Size, "beside Kruise the sets are kept by it");
        assert_eq!(sidecarset_revisions, "kruise-system");
    }

    #[test]
    fn every_flag_says_something() {
        let shown = |line: &str| format!("{:?}", config(line).unwrap());
        let plain = shown("");
        for line in [
            "--updater-interval=1s",
            "--min-replicas=3",
            "--eviction-tolerance=0.1",
            "--eviction-rate-limit=2",
            "--eviction-rate-limit=2 --eviction-rate-burst=5",
            "--use-admission-controller-status=false",
            "--in-place-skip-disruption-budget",
            "--admission-controller-status-lease-name=x",
            "--admission-controller-status-lease-namespace=x",
            "--admission-controller-status-lease-timeout=1s",
            "--pod-update-threshold=0.2",
            "--in-recommendation-bounds-eviction-lifetime-threshold=1h",
            "--evict-after-oom-threshold=1m",
            "--quirks=all",
            "--sidecarset-mode=inject",
            "--sidecarset-mode=inject --sidecarset-revision-namespace=x",
            "--leader-elect",
            "--vpa-object-namespace=x",
            "--feature-gates=NativeSidecar=true",
        ] {
            assert_ne!(shown(line), plain, "{line}");
        }
        let config = config("--quirks=Q26 --feature-gates=NativeSidecar=true").unwrap();
        assert!(config.decisions.quirks.has(Quirk::LeaseBlocksResizes));
        assert!(config.decisions.gates.enabled(Gate::NativeSidecar));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        for (line, expected) in [
            (
                "--updater-interval=0s",
                "--updater-interval must be longer than zero",
            ),
            (
                "--admission-controller-status-lease-timeout=0s",
                "--admission-controller-status-lease-timeout must be longer than zero",
            ),
            (
                "--eviction-rate-limit=5 --eviction-rate-burst=0",
                "invalid --eviction-rate-burst: a burst of 0 would let no request through: use 1 or more",
            ),
        ] {
            assert_eq!(config(line).unwrap_err(), expected);
        }
    }
}
