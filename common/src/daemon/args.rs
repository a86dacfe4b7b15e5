//! The flags that all daemons share, and those of leader election (`spec/vpa.md` 2.1): parsed here, and turned into
//! values that cannot be wrong before anything starts.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use super::{GoDuration, KlogArgs, ListenAddress, LogConfig, pflag::GoBool};
use crate::{
    gates::Gates,
    kube::{
        lease::{LeaseSettings, LeaseSettingsError},
        limit::{RateLimit, RateLimitError},
    },
};

/// The block of flags that every daemon has. Its default address is the daemon's, see
/// [`Flags`](super::pflag::Flags).
#[derive(Clone, Debug, clap::Args)]
pub struct CommonArgs {
    /// Path to a kubeconfig; empty means the service account of the pod this runs in
    #[arg(long, default_value = "", value_name = "FILE")]
    kubeconfig: String,
    /// How many requests a second to make to the API server; negative means as many as there are
    #[arg(long, default_value_t = 50.0)]
    kube_api_qps: f64,
    /// How many requests to make at once before --kube-api-qps applies
    #[arg(long, default_value_t = 100.0)]
    kube_api_burst: f64,
    /// Where to serve metrics and health, HOST:PORT or :PORT
    #[arg(long)]
    address: ListenAddress,
    /// Taken for compatibility; Go's profiles do not exist here
    #[arg(long, default_value_t)]
    profiling: GoBool,
    /// The one namespace to serve; empty means all
    #[arg(long, default_value = "", value_name = "NAMESPACE")]
    vpa_object_namespace: String,
    /// Namespaces not to serve, separated by commas; not together with --vpa-object-namespace
    #[arg(long, default_value = "", value_name = "NAMESPACES")]
    ignored_vpa_object_namespaces: String,
    /// Features on trial to switch on or off, NAME=true|false separated by commas
    #[arg(long, default_value = "", long_help = gates_help(), hide_default_value = true)]
    feature_gates: Gates,
    #[command(flatten)]
    klog: KlogArgs,
}

fn gates_help() -> String {
    format!(
        "Features on trial to switch on or off, NAME=true|false separated by commas. Known are:\n{}",
        Gates::help()
    )
}

/// What the common flags say, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Common {
    /// Where to find the API server; none means in the cluster.
    pub kubeconfig: Option<PathBuf>,
    /// How fast to ask it; none means without limit.
    pub rate_limit: Option<RateLimit>,
    /// Where to serve metrics and health.
    pub address: ListenAddress,
    /// What the pure code is told.
    pub settings: Settings,
    /// What to log.
    pub logs: LogConfig,
    /// What to say about the flags once there is a log.
    pub warnings: Vec<String>,
}

/// What all daemons' work depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whom to serve.
    pub namespaces: Namespaces,
    /// Which features are on.
    pub gates: Gates,
}

/// Which namespaces are served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Namespaces {
    /// Every one.
    #[default]
    All,
    /// This one.
    Only(String),
    /// Every one but these.
    Except(BTreeSet<String>),
}

impl Namespaces {
    /// Whether a namespace is served.
    #[must_use]
    pub fn include(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(only) => only == namespace,
            Self::Except(ignored) => !ignored.contains(namespace),
        }
    }
}

/// Why flags that can be read are refused all the same.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ArgsError {
    /// Both namespace flags.
    #[error(
        "--vpa-object-namespace and --ignored-vpa-object-namespaces are mutually exclusive and can't be set together"
    )]
    BothNamespaceFlags,
    /// `--kube-api-qps` or `--kube-api-burst`.
    #[error("invalid --kube-api-qps or --kube-api-burst: {0}")]
    RateLimit(#[from] RateLimitError),
    /// One of the leader election flags.
    #[error("invalid --leader-elect flags: {0}")]
    Lease(#[from] LeaseSettingsError),
    /// A kind of lock that is no more.
    #[error("unsupported --leader-elect-resource-lock {0:?}: Kubernetes knows only \"leases\" nowadays")]
    ResourceLock(String),
    /// A loop that would never rest.
    #[error("--{0} must be longer than zero")]
    ZeroInterval(&'static str),
    /// A value that the daemon cannot work with.
    #[error("invalid --{flag}: {reason}")]
    Invalid {
        /// The flag.
        flag: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

impl CommonArgs {
    /// Checks the flags against each other.
    pub fn resolve(self) -> Result<Common, ArgsError> {
        let Self {
            kubeconfig,
            kube_api_qps,
            kube_api_burst,
            address,
            profiling,
            vpa_object_namespace,
            ignored_vpa_object_namespaces,
            feature_gates,
            klog,
        } = self;
        let (logs, ignored) = klog.resolve();
        let mut warnings: Vec<String> = ignored
            .into_iter()
            .map(|flag| format!("{flag} has no effect: everything is logged to stderr at one level"))
            .collect();
        if profiling.0 {
            warnings.push("--profiling has no effect: there are no Go profiles to serve".to_owned());
        }
        let ignored: BTreeSet<String> = ignored_vpa_object_namespaces
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        let namespaces = match (vpa_object_namespace.is_empty(), ignored.is_empty()) {
            (true, true) => Namespaces::All,
            (false, true) => Namespaces::Only(vpa_object_namespace),
            (true, false) => Namespaces::Except(ignored),
            (false, false) => return Err(ArgsError::BothNamespaceFlags),
        };
        Ok(Common {
            kubeconfig: (!kubeconfig.is_empty()).then(|| kubeconfig.into()),
            rate_limit: RateLimit::from_flags(kube_api_qps, kube_api_burst)?,
            address,
            settings: Settings {
                namespaces,
                gates: feature_gates,
            },
            logs,
            warnings,
        })
    }
}

/// The period of a daemon's loop, which must not be zero.
pub fn interval(flag: &'static str, duration: GoDuration) -> Result<Duration, ArgsError> {
    match duration.0 {
        Duration::ZERO => Err(ArgsError::ZeroInterval(flag)),
        interval => Ok(interval),
    }
}

/// The block of flags of daemons of which one of several leads. Its default lease is the daemon's, see
/// [`Flags`](super::pflag::Flags).
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Leader election")]
pub struct LeaderElectionArgs {
    /// Work only while holding the lease, so that several replicas can run
    #[arg(long, default_value_t)]
    leader_elect: GoBool,
    /// How long the others wait after the leader was last heard of
    #[arg(long, default_value_t = GoDuration(Duration::from_secs(15)), value_name = "DURATION")]
    leader_elect_lease_duration: GoDuration,
    /// How long the leader tries to renew before it gives up
    #[arg(long, default_value_t = GoDuration(Duration::from_secs(10)), value_name = "DURATION")]
    leader_elect_renew_deadline: GoDuration,
    /// How long to wait between tries
    #[arg(long, default_value_t = GoDuration(Duration::from_secs(2)), value_name = "DURATION")]
    leader_elect_retry_period: GoDuration,
    /// The kind of lock; only leases
    #[arg(long, default_value = "leases", value_name = "KIND")]
    leader_elect_resource_lock: String,
    /// The namespace of the lease
    #[arg(long, default_value = "kube-system", value_name = "NAMESPACE")]
    leader_elect_resource_namespace: String,
    /// The name of the lease
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_name: String,
}

impl LeaderElectionArgs {
    /// The lease to compete for, if there is an election at all. As in VPA the other flags are looked at only then.
    pub fn resolve(self) -> Result<Option<LeaseSettings>, ArgsError> {
        let Self {
            leader_elect,
            leader_elect_lease_duration,
            leader_elect_renew_deadline,
            leader_elect_retry_period,
            leader_elect_resource_lock,
            leader_elect_resource_namespace,
            leader_elect_resource_name,
        } = self;
        if !leader_elect.0 {
            return Ok(None);
        }
        if leader_elect_resource_lock != "leases" {
            return Err(ArgsError::ResourceLock(leader_elect_resource_lock));
        }
        let settings = LeaseSettings {
            namespace: leader_elect_resource_namespace,
            name: leader_elect_resource_name,
            duration: leader_elect_lease_duration.0,
            renew_deadline: leader_elect_renew_deadline.0,
            retry_period: leader_elect_retry_period.0,
        };
        Ok(Some(settings.checked()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        daemon::{
            Format, Verbosity,
            pflag::{Flags, try_parse},
        },
        gates::Gate,
    };
    use std::ffi::OsString;

    #[derive(clap::Parser, Debug)]
    struct Sample {
        #[command(flatten)]
        common: CommonArgs,
        #[command(flatten)]
        election: LeaderElectionArgs,
    }

    impl Flags for Sample {
        const NAME: &'static str = "sample";
        const ADDRESS: &'static str = ":8942";
        const LEASE: Option<&'static str> = Some("vpa-sample");
    }

    fn read(line: &str) -> Sample {
        let argv = std::iter::once("sample").chain(line.split_whitespace());
        try_parse(argv.map(OsString::from)).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    fn common(line: &str) -> Result<Common, String> {
        read(line).common.resolve().map_err(|error| error.to_string())
    }

    fn defaults() -> Common {
        Common {
            kubeconfig: None,
            rate_limit: RateLimit::from_flags(50.0, 100.0).unwrap(),
            address: ":8942".parse().unwrap(),
            settings: Settings::default(),
            logs: LogConfig {
                verbosity: Verbosity::from_klog(4),
                format: Format::Text,
                headers: true,
                source: false,
            },
            warnings: Vec::new(),
        }
    }

    #[test]
    fn what_the_common_flags_say() {
        let local = Common {
            kubeconfig: Some("K".into()),
            address: "127.0.0.1:18942".parse().unwrap(),
            ..defaults()
        };
        let namespaced = |namespaces| Common {
            settings: Settings {
                namespaces,
                ..Settings::default()
            },
            ..defaults()
        };
        for (line, expected) in [
            ("", defaults()),
            // The manifests of VPA and its chart.
            ("--v=4 --stderrthreshold=info", defaults()),
            ("-v=4 -stderrthreshold=info -logtostderr", defaults()),
            (
                "--alsologtostderr --log-file-max-size=1 --stderrthreshold=2",
                defaults(),
            ),
            (
                "--ignored-vpa-object-namespaces= --vpa-object-namespace=",
                defaults(),
            ),
            // What ran VPA for the baseline.
            ("--kubeconfig=K --address=127.0.0.1:18942", local.clone()),
            ("-kubeconfig K -address 127.0.0.1:18942", local),
            (
                "--kube-api-qps=1000 --kube_api_burst 2000.0",
                Common {
                    rate_limit: RateLimit::from_flags(1000.0, 2000.0).unwrap(),
                    ..defaults()
                },
            ),
            (
                "--kube-api-qps=-1",
                Common {
                    rate_limit: None,
                    ..defaults()
                },
            ),
            (
                "--vpa-object-namespace=shop",
                namespaced(Namespaces::Only("shop".into())),
            ),
            (
                "--ignored-vpa-object-namespaces=kube-system,,test",
                namespaced(Namespaces::Except(["kube-system".into(), "test".into()].into())),
            ),
            (
                "--feature_gates=NativeSidecar=true",
                Common {
                    settings: Settings {
                        gates: Gates::default().with(Gate::NativeSidecar, true),
                        ..Settings::default()
                    },
                    ..defaults()
                },
            ),
            (
                "--v=8 --log-format=json --skip_headers --add_dir_header=true",
                Common {
                    logs: LogConfig {
                        verbosity: Verbosity::from_klog(8),
                        format: Format::Json,
                        headers: false,
                        source: true,
                    },
                    ..defaults()
                },
            ),
        ] {
            assert_eq!(common(line).as_ref(), Ok(&expected), "{line}");
        }
    }

    #[test]
    fn flags_without_effect_are_named() {
        let line = "--logtostderr=false --log_dir=/l --log_file=f --skip_log_headers --one_output \
                    --log_backtrace_at=a.go:1 --vmodule=a=1 --profiling";
        let warnings = common(line).unwrap().warnings;
        let flags: Vec<_> = warnings
            .iter()
            .filter_map(|text| text.split(' ').next())
            .collect();
        assert_eq!(
            flags,
            [
                "--logtostderr=false",
                "--log-dir",
                "--log-file",
                "--skip-log-headers",
                "--one-output",
                "--log-backtrace-at",
                "--vmodule",
                "--profiling"
            ]
        );
    }

    #[test]
    fn what_is_refused_and_how() {
        for (line, expected) in [
            (
                "--vpa-object-namespace=a --ignored-vpa-object-namespaces=b",
                "--vpa-object-namespace and --ignored-vpa-object-namespaces are mutually exclusive",
            ),
            ("--kube-api-qps=0", "invalid --kube-api-qps or --kube-api-burst: "),
            (
                "--kube-api-burst=0",
                "invalid --kube-api-qps or --kube-api-burst: ",
            ),
        ] {
            let error = common(line).unwrap_err();
            assert!(error.starts_with(expected), "{line}: {error}");
        }
    }

    #[test]
    fn what_the_leader_election_flags_say() {
        let defaults = LeaseSettings {
            namespace: "kube-system".to_owned(),
            name: "vpa-sample".to_owned(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        };
        let short = LeaseSettings {
            namespace: "vpa".to_owned(),
            name: "mine".to_owned(),
            duration: Duration::from_secs(3),
            renew_deadline: Duration::from_millis(1500),
            retry_period: Duration::from_millis(500),
        };
        for (line, expected) in [
            ("", Ok(None)),
            (
                "--leader-elect=false --leader-elect-resource-lock=endpoints",
                Ok(None),
            ),
            ("--leader-elect", Ok(Some(defaults))),
            (
                "--leader-elect=true --leader-elect-lease-duration=3s --leader-elect-renew-deadline=1.5s \
                 --leader_elect_retry_period=500ms --leader-elect-resource-namespace=vpa \
                 --leader-elect-resource-name=mine --leader-elect-resource-lock=leases",
                Ok(Some(short)),
            ),
            (
                "--leader-elect --leader-elect-resource-lock=endpoints",
                Err("unsupported --leader-elect-resource-lock \"endpoints\""),
            ),
            (
                "--leader-elect --leader-elect-renew-deadline=15s",
                Err(
                    "invalid --leader-elect flags: the lease duration (15s) must be longer than the renew deadline (15s)",
                ),
            ),
            (
                "--leader-elect --leader-elect-retry-period=9s",
                Err(
                    "invalid --leader-elect flags: the renew deadline (10s) must be longer than 1.2 times the retry period (9s)",
                ),
            ),
            (
                "--leader-elect --leader-elect-retry-period=0s",
                Err("invalid --leader-elect flags: the retry period must be longer than zero"),
            ),
            (
                "--leader-elect --leader-elect-resource-name=",
                Err("invalid --leader-elect flags: the lease needs a name and a namespace"),
            ),
        ] {
            let settings = read(line).election.resolve().map_err(|error| error.to_string());
            match (settings, expected) {
                (Err(error), Err(expected)) => assert!(error.starts_with(expected), "{line}: {error}"),
                (settings, expected) => assert_eq!(settings, expected.map_err(str::to_owned), "{line}"),
            }
        }
    }

    #[test]
    fn which_namespaces_are_served() {
        for (namespaces, shop, kube_system) in [
            (Namespaces::All, true, true),
            (Namespaces::Only("shop".into()), true, false),
            (Namespaces::Except(["shop".into()].into()), false, true),
        ] {
            assert_eq!(
                (namespaces.include("shop"), namespaces.include("kube-system")),
                (shop, kube_system),
                "{namespaces:?}"
            );
        }
    }
}
