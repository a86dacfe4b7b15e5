//! The admission component's flags (`spec/vpa.md` 4.1).

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use common::{
    api::k8s::ServiceReference,
    daemon::{ArgsError, CommonArgs, Context, DaemonError, Flags, GoBool, GoDuration, Settings, interval},
    quantity::Quantity,
    quirks::Quirks,
};

use crate::{
    config::{
        CertificateFiles, Certificates, Client, Config, Listen, MinTlsVersion, StatusLease, TlsSettings,
        Webhook,
    },
    pod::{self, Reinvocation},
    run::run,
    sidecarset::{self, settings::Mode, validate::AnnotationKeys},
};

const CA_FILE: &str = "/etc/tls-certs/caCert.pem";
const CERTIFICATE_FILE: &str = "/etc/tls-certs/serverCert.pem";
const KEY_FILE: &str = "/etc/tls-certs/serverKey.pem";
/// Time for the API server and the services to hear that this replica is not ready any more.
const LINGER: Duration = Duration::from_secs(3);

/// Gives new pods the resources they should have, and validates the objects that say so.
#[derive(Clone, Debug, clap::Parser)]
pub struct Args {
    #[command(flatten)]
    common: CommonArgs,
    /// The CA of the webhook's certificate, in PEM; goes into the webhook configuration
    #[arg(long, default_value = CA_FILE, value_name = "FILE")]
    client_ca_file: PathBuf,
    /// The webhook's certificate, in PEM. If none of the three files is there, certificates are made here and kept in
    /// the secret vpa-tls-certs
    #[arg(long, default_value = CERTIFICATE_FILE, value_name = "FILE")]
    tls_cert_file: PathBuf,
    /// The key of the webhook's certificate, in PEM
    #[arg(long, default_value = KEY_FILE, value_name = "FILE")]
    tls_private_key: PathBuf,
    /// Read the certificate files again when they change
    #[arg(long, default_value_t)]
    reload_cert: GoBool,
    /// Cipher suites of TLS 1.2 by their names in Go, separated by commas or colons; empty means all that are safe
    #[arg(long, default_value = "", value_name = "NAMES")]
    tls_ciphers: String,
    /// The lowest version of TLS to speak
    #[arg(long, value_enum, default_value = "tls1_2", value_name = "VERSION")]
    min_tls_version: MinTlsVersion,
    /// The port on which the webhook is served
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// The service through which the API server reaches the webhook
    #[arg(long, default_value = "vpa-webhook", value_name = "NAME")]
    webhook_service: String,
    /// Where the API server reaches the webhook with --register-by-url, as https://HOST
    #[arg(long, default_value = "", value_name = "URL")]
    webhook_address: String,
    /// The port at which the API server reaches the webhook with --register-by-url
    #[arg(long, default_value = "", value_name = "PORT")]
    webhook_port: String,
    /// Register the webhook by --webhook-address and --webhook-port, and not by its service
    #[arg(long, default_value_t)]
    register_by_url: GoBool,
    /// How long the API server waits for an answer, 1 to 30
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(i32).range(1..=30))]
    webhook_timeout_seconds: i32,
    /// Refuse pods while the webhook cannot be reached
    #[arg(long, default_value_t)]
    webhook_failure_policy_fail: GoBool,
    /// Register the webhook with the API server; otherwise somebody else has to
    #[arg(long, default_value_t = GoBool(true))]
    register_webhook: GoBool,
    /// The name of the webhook configuration; each of several instances in one cluster needs its own
    #[arg(long, default_value = "vpa-webhook-config", value_name = "NAME")]
    webhook_config_name: String,
    /// Labels of the webhook configuration, KEY:VALUE separated by commas
    #[arg(long, default_value = "", value_name = "LABELS")]
    webhook_labels: String,
    /// Whether pods that another webhook changed come in again: IfNeeded or Never
    #[arg(long, default_value = "IfNeeded", value_name = "POLICY")]
    webhook_reinvocation_policy: Reinvocation,
    /// The lease by which the updater knows that new pods are served
    #[arg(long, default_value = "vpa-admission-controller", value_name = "NAME")]
    status_lease_name: String,
    /// The namespace of that lease; empty means that of this pod (NAMESPACE), or kube-system
    #[arg(long, default_value = "", value_name = "NAMESPACE")]
    status_lease_namespace: String,
    /// How often that lease is renewed
    #[arg(long, default_value_t = GoDuration(Duration::from_secs(10)), value_name = "DURATION")]
    status_lease_update_interval: GoDuration,
    /// No CPU startup boost exceeds this
    #[arg(long, value_name = "QUANTITY")]
    max_allowed_cpu_boost: Option<Quantity>,
    /// What to do as VPA does it though it is wrong: all, none, or a list
    #[arg(long, default_value = "none", long_help = quirks_help(), value_name = "LIST")]
    quirks: Quirks,
    /// What part SidecarSets play
    #[arg(long, value_enum, default_value = "size", value_name = "MODE")]
    sidecarset_mode: Mode,
    /// Where the revisions of SidecarSets are kept; empty means kruise-system where Kruise injects, and the namespace of
    /// this pod (NAMESPACE), or kube-system, where we do
    #[arg(long, default_value = "", value_name = "NAMESPACE")]
    sidecarset_revision_namespace: String,
    /// Count the pods that stay on an older revision of a SidecarSet, instead of drawing lots
    #[arg(long, default_value_t)]
    sidecarset_exact_partition: GoBool,
    /// Which annotations SidecarSets may write into pods: regular expressions separated by commas
    #[arg(long, default_value = "", value_name = "REGEXES")]
    sidecarset_annotation_keys: AnnotationKeys,
    /// The namespace this runs in
    #[arg(long, env = "NAMESPACE", default_value = "", hide = true)]
    own_namespace: String,
}

fn quirks_help() -> String {
    format!(
        "What to do as VPA does it though it is wrong: all, none, or a list of these:\n{}",
        Quirks::help()
    )
}

impl Flags for Args {
    const NAME: &'static str = "admission";
    const ADDRESS: &'static str = ":8944";
    const LEASE: Option<&'static str> = None;
}

impl Args {
    /// Runs the admission component as a process of its own.
    pub async fn run(self) -> Result<(), DaemonError> {
        let (common, own) = self.split()?;
        let (settings, context) = Context::from_args(Self::NAME, common).await?;
        run(own(settings), context).await
    }

    /// The flags that all daemons have, and what the others make of them.
    fn split(self) -> Result<(CommonArgs, impl FnOnce(Settings) -> Config), ArgsError> {
        let Self {
            common,
            client_ca_file,
            tls_cert_file,
            tls_private_key,
            reload_cert,
            tls_ciphers,
            min_tls_version,
            port,
            webhook_service,
            webhook_address,
            webhook_port,
            register_by_url,
            webhook_timeout_seconds,
            webhook_failure_policy_fail,
            register_webhook,
            webhook_config_name,
            webhook_labels,
            webhook_reinvocation_policy,
            status_lease_name,
            status_lease_namespace,
            status_lease_update_interval,
            max_allowed_cpu_boost,
            quirks,
            sidecarset_mode,
            sidecarset_revision_namespace,
            sidecarset_exact_partition,
            sidecarset_annotation_keys,
            own_namespace,
        } = self;
        let namespace = first_of([&own_namespace, "kube-system"]);
        let client = if register_by_url.0 {
            if webhook_address.is_empty() {
                return Err(ArgsError::Invalid {
                    flag: "register-by-url",
                    reason: "it needs --webhook-address".to_owned(),
                });
            }
            Client::Url(format!("{webhook_address}:{webhook_port}"))
        } else {
            Client::Service(ServiceReference {
                namespace: namespace.clone(),
                name: webhook_service,
                ..ServiceReference::default()
            })
        };
        let files = CertificateFiles {
            ca: client_ca_file,
            certificate: tls_cert_file,
            key: tls_private_key,
        };
        let lease = StatusLease {
            namespace: first_of([&status_lease_namespace, &own_namespace, "kube-system"]),
            name: status_lease_name,
            interval: interval("status-lease-update-interval", status_lease_update_interval)?,
        };
        let webhook = Webhook {
            register: register_webhook.0,
            configuration: webhook_config_name,
            client,
            timeout_seconds: webhook_timeout_seconds,
            fail: webhook_failure_policy_fail.0,
            labels: labels(&webhook_labels),
            ..Webhook::default()
        };
        let mut sidecarsets = sidecarset::settings::Settings::new(sidecarset_mode, &namespace);
        if !sidecarset_revision_namespace.is_empty() {
            sidecarsets.namespace = sidecarset_revision_namespace;
        }
        sidecarsets.exact_partition = sidecarset_exact_partition.0;
        sidecarsets.annotation_keys = sidecarset_annotation_keys;
        let own = move |settings: Settings| Config {
            namespaces: settings.namespaces,
            pods: pod::Settings {
                gates: settings.gates,
                quirks,
                reinvocation: webhook_reinvocation_policy,
                max_cpu_boost: max_allowed_cpu_boost.filter(|most| !most.is_zero()),
            },
            listen: Listen::Port(port),
            tls: TlsSettings {
                versions: min_tls_version.versions(),
                ciphers: tls_ciphers
                    .split([',', ':'])
                    .map(|name| name.trim().to_owned())
                    .filter(|name| !name.is_empty())
                    .collect(),
            },
            certificates: source(files, reload_cert.0, namespace),
            webhook,
            lease,
            sidecarsets,
            linger: LINGER,
        };
        Ok((common, own))
    }
}

/// Where certificates come from: from the files, unless those are the usual ones and none is there.
fn source(files: CertificateFiles, reload: bool, namespace: String) -> Certificates {
    let usual = CertificateFiles {
        ca: CA_FILE.into(),
        certificate: CERTIFICATE_FILE.into(),
        key: KEY_FILE.into(),
    };
    let none_is_there = [&files.ca, &files.certificate, &files.key].map(|file| file.exists()) == [false; 3];
    if files == usual && none_is_there {
        Certificates::Own { namespace }
    } else {
        Certificates::Files { files, reload }
    }
}

fn first_of<const N: usize>(texts: [&str; N]) -> String {
    let found = texts.into_iter().find(|text| !text.is_empty());
    found.unwrap_or_default().to_owned()
}

/// `key1:value1,key2:value2`; as in VPA one mistake means no labels at all.
fn labels(text: &str) -> BTreeMap<String, String> {
    let pairs = text
        .split(',')
        .map(|pair| match pair.split(':').collect::<Vec<_>>()[..] {
            [key, value] => Some((key.trim().to_owned(), value.trim().to_owned())),
            _ => None,
        });
    pairs.collect::<Option<_>>().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::{
        daemon::{Namespaces, pflag::try_parse},
        gates::Gate,
        quirks::Quirk,
    };
    use std::ffi::OsString;

    fn read(line: &str) -> Result<Args, String> {
        let argv = std::iter::once("admission").chain(line.split_whitespace());
        try_parse(argv.map(OsString::from)).map_err(|error| error.to_string())
    }

    fn config(line: &str) -> Config {
        let (common, own) = read(line).unwrap().split().unwrap();
        own(common.resolve().unwrap().settings)
    }

    /// Everything of a configuration, for comparing.
    fn shown(line: &str) -> String {
        format!("{:#?}", config(line))
    }

    #[test]
    fn the_defaults_are_vpa_s() {
        let Config {
            namespaces,
            pods,
            listen,
            tls,
            certificates,
            webhook,
            lease,
            sidecarsets,
            linger: _,
        } = config("");
        assert_eq!(namespaces, Namespaces::All);
        assert_eq!(pods.quirks, Quirks::none());
        assert_eq!(pods.reinvocation, Reinvocation::IfNeeded);
        assert_eq!(pods.max_cpu_boost, None);
        assert!(matches!(listen, Listen::Port(8000)));
        assert_eq!(tls.versions, MinTlsVersion::Tls12.versions());
        assert_eq!(tls.ciphers, Vec::<String>::new());
        assert!(matches!(certificates, Certificates::Own { namespace } if namespace == "kube-system"));
        assert!(webhook.register && !webhook.fail);
        assert_eq!(webhook.configuration, "vpa-webhook-config");
        assert_eq!(webhook.client, Webhook::default().client);
        assert_eq!(webhook.timeout_seconds, 30);
        assert_eq!(webhook.labels, BTreeMap::new());
        assert_eq!(lease, StatusLease::default());
        assert_eq!(sidecarsets.mode, Mode::Size);
        assert_eq!(sidecarsets.namespace, "kruise-system");
        let help = read("--help").unwrap_err();
        assert!(help.contains("[default: :8944]"), "{help}");
        assert!(
            help.contains("[default: /etc/tls-certs/serverCert.pem]"),
            "{help}"
        );
    }

    /// The table of `spec/vpa.md` 4.1, and the rows of 2.1 that all daemons share.
    #[test]
    fn every_flag_of_vpa_is_there_by_name_and_default() {
        let command = <Args as clap::CommandFactory>::command();
        for (name, default) in [
            ("client-ca-file", "/etc/tls-certs/caCert.pem"),
            ("tls-cert-file", "/etc/tls-certs/serverCert.pem"),
            ("tls-private-key", "/etc/tls-certs/serverKey.pem"),
            ("reload-cert", "false"),
            ("tls-ciphers", ""),
            ("min-tls-version", "tls1_2"),
            ("port", "8000"),
            ("webhook-service", "vpa-webhook"),
            ("webhook-address", ""),
            ("webhook-port", ""),
            ("register-by-url", "false"),
            ("webhook-timeout-seconds", "30"),
            ("webhook-failure-policy-fail", "false"),
            ("register-webhook", "true"),
            ("webhook-labels", ""),
            ("status-lease-name", "vpa-admission-controller"),
            ("status-lease-namespace", ""),
            ("status-lease-update-interval", "10s"),
            ("max-allowed-cpu-boost", ""),
            ("kubeconfig", ""),
            ("kube-api-qps", "50"),
            ("kube-api-burst", "100"),
            ("profiling", "false"),
            ("vpa-object-namespace", ""),
            ("ignored-vpa-object-namespaces", ""),
            ("feature-gates", ""),
        ] {
            let flag = command.get_arguments().find(|flag| flag.get_long() == Some(name));
            let flag = flag.unwrap_or_else(|| panic!("--{name} is missing"));
            let defaults = flag.get_default_values().iter();
            let found = defaults
                .map(|value| value.to_string_lossy())
                .collect::<Vec<_>>()
                .join(",");
            assert_eq!(found, default, "--{name}");
        }
    }

    #[test]
    fn takes_the_flags_that_vpa_runs_with() {
        let Config {
            listen,
            certificates,
            webhook,
            ..
        } = config(
            "--kubeconfig=K --client-ca-file=ca.crt --tls-cert-file=srv.crt --tls-private-key=srv.key --port=8123 \
             --register-by-url --webhook-address=https://127.0.0.1 --webhook-port=8123 --address=127.0.0.1:1",
        );
        assert!(matches!(listen, Listen::Port(8123)));
        assert_eq!(webhook.client, Client::Url("https://127.0.0.1:8123".to_owned()));
        let Certificates::Files { files, reload } = certificates else {
            panic!("{certificates:?}");
        };
        assert!(!reload);
        assert_eq!(
            files,
            CertificateFiles {
                ca: "ca.crt".into(),
                certificate: "srv.crt".into(),
                key: "srv.key".into(),
            }
        );
        // As in VPA's manifests.
        assert_eq!(shown("--v=4 --stderrthreshold=info --reload-cert"), shown(""));
    }

    #[test]
    fn every_flag_says_something() {
        let plain = shown("");
        for line in [
            "--client-ca-file=x",
            "--tls-cert-file=x",
            "--tls-private-key=x",
            "--tls-ciphers=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "--min-tls-version=tls1_3",
            "--port=1",
            "--webhook-service=x",
            "--register-by-url --webhook-address=https://x",
            "--webhook-timeout-seconds=5",
            "--webhook-failure-policy-fail",
            "--register-webhook=false",
            "--webhook-config-name=x",
            "--webhook-labels=a:b",
            "--webhook-reinvocation-policy=Never",
            "--status-lease-name=x",
            "--status-lease-namespace=x",
            "--status-lease-update-interval=1s",
            "--max-allowed-cpu-boost=2",
            "--quirks=all",
            "--sidecarset-mode=inject",
            "--sidecarset-revision-namespace=x",
            "--sidecarset-exact-partition",
            "--sidecarset-annotation-keys=x",
            "--vpa-object-namespace=x",
            "--feature-gates=NativeSidecar=true",
        ] {
            assert_ne!(shown(line), plain, "{line}");
        }
        let config = config("--quirks=Q15 --feature-gates=NativeSidecar=true");
        assert!(config.pods.quirks.has(Quirk::WebhookIgnoresNamespace));
        assert!(config.pods.gates.enabled(Gate::NativeSidecar));
    }

    #[test]
    fn labels_are_all_right_or_none() {
        let one = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        for (text, expected) in [
            ("", BTreeMap::new()),
            ("a:b", one("a", "b")),
            ("a:b,c", BTreeMap::new()),
            ("a:b:c", BTreeMap::new()),
        ] {
            assert_eq!(labels(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_refused_and_how() {
        for (line, expected) in [
            ("--leader-elect", "unexpected argument '--leader-elect' found"),
            ("--min-tls-version=tls1_1", "invalid value 'tls1_1'"),
            ("--webhook-timeout-seconds=31", "31 is not in 1..=30"),
            ("--webhook-reinvocation-policy=Always", "IfNeeded or Never"),
            ("--port=65536", "65536 is not in 0..=65535"),
            ("--sidecarset-mode=on", "invalid value 'on'"),
            ("--sidecarset-annotation-keys=(", "unclosed group"),
            ("--quirks=Q1", "unknown quirk \"Q1\""),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
        for (line, expected) in [
            (
                "--register-by-url",
                "invalid --register-by-url: it needs --webhook-address",
            ),
            (
                "--status-lease-update-interval=0s",
                "--status-lease-update-interval must be longer than zero",
            ),
        ] {
            let Err(error) = read(line).unwrap().split() else {
                panic!("{line} is taken");
            };
            assert_eq!(error.to_string(), expected);
        }
    }
}
