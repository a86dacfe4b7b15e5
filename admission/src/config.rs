//! What the admission component is to do, as values that were checked before anything starts.

use std::{collections::BTreeMap, net::TcpListener, path::PathBuf, time::Duration};

use common::{api::k8s::ServiceReference, daemon::Namespaces, gates::Gates};
use rustls::SupportedProtocolVersion;

use crate::{pod, sidecarset};

/// What the admission component is to do.
#[derive(Debug)]
pub struct Config {
    /// Whom to serve.
    pub namespaces: Namespaces,
    /// How pods are treated.
    pub pods: pod::Settings,
    /// Where the API server finds us.
    pub listen: Listen,
    /// What TLS may be spoken.
    pub tls: TlsSettings,
    /// Where the certificate comes from.
    pub certificates: Certificates,
    /// How the API server is told of us.
    pub webhook: Webhook,
    /// How the updater is told that we work.
    pub lease: StatusLease,
    /// What part SidecarSets play.
    pub sidecarsets: sidecarset::settings::Settings,
    /// How long new requests are still taken after a stop is asked for, so that the API server hears of it first.
    pub linger: Duration,
}

impl Config {
    /// What a test or a demonstration wants: registered by URL on loopback, with a certificate that is good at any time.
    ///
    /// # Errors
    /// If the listener has no address, or no certificate can be made.
    pub fn local(gates: Gates, listener: TcpListener) -> anyhow::Result<Self> {
        let url = format!("https://127.0.0.1:{}", listener.local_addr()?.port());
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        Ok(Self {
            namespaces: Namespaces::All,
            pods: pod::Settings {
                gates,
                ..pod::Settings::default()
            },
            listen: Listen::On(listener),
            tls: TlsSettings::default(),
            certificates: Certificates::Given {
                certificate: made.cert.pem(),
                key: made.signing_key.serialize_pem(),
            },
            webhook: Webhook {
                client: Client::Url(url),
                ..Webhook::default()
            },
            lease: StatusLease::default(),
            sidecarsets: sidecarset::settings::Settings::new(sidecarset::settings::Mode::Size, "kube-system"),
            linger: Duration::ZERO,
        })
    }
}

/// Where to listen.
#[derive(Debug)]
pub enum Listen {
    /// On this port of every interface.
    Port(u16),
    /// Here.
    On(TcpListener),
}

/// What TLS may be spoken.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// The versions.
    pub versions: &'static [&'static SupportedProtocolVersion],
    /// The suites of TLS 1.2, by their names in Go; none means all. Those of TLS 1.3 are not up for choice.
    pub ciphers: Vec<String>,
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self {
            versions: MinTlsVersion::Tls12.versions(),
            ciphers: Vec::new(),
        }
    }
}

/// `--min-tls-version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum MinTlsVersion {
    /// TLS 1.2 and 1.3
    #[value(name = "tls1_2")]
    Tls12,
    /// TLS 1.3 only
    #[value(name = "tls1_3")]
    Tls13,
}

impl MinTlsVersion {
    /// The versions from this one on.
    #[must_use]
    pub fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        static BOTH: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];
        static NEWER: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];
        match self {
            Self::Tls12 => &BOTH,
            Self::Tls13 => &NEWER,
        }
    }
}

/// Where the certificate comes from.
#[derive(Clone, Debug)]
pub enum Certificates {
    /// From these files, read again when they change if so wished.
    Files {
        /// Which.
        files: CertificateFiles,
        /// Whether they are read again.
        reload: bool,
    },
    /// This one, signed by itself, in PEM.
    Given {
        /// The certificate.
        certificate: String,
        /// Its key.
        key: String,
    },
    /// Made here and kept in the secret `vpa-tls-certs` of this namespace.
    Own {
        /// The namespace.
        namespace: String,
    },
}

/// The files of a certificate, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// What the API server is to check the certificate with.
    pub ca: PathBuf,
    /// The certificate, and those between it and the CA.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// How the API server is told of us.
#[derive(Clone, Debug)]
pub struct Webhook {
    /// Whether it is told by ourselves.
    pub register: bool,
    /// The name of the configuration object.
    pub configuration: String,
    /// The name of that for SidecarSets. Webhooks are called in the order of these, and what is sized has to be there.
    pub sidecarset_configuration: String,
    /// How it reaches us.
    pub client: Client,
    /// How long it waits for an answer.
    pub timeout_seconds: i32,
    /// Whether a pod is refused when there is no answer.
    pub fail: bool,
    /// Labels of the configuration object.
    pub labels: BTreeMap<String, String>,
}

impl Default for Webhook {
    fn default() -> Self {
        Self {
            register: true,
            configuration: "vpa-webhook-config".to_owned(),
            sidecarset_configuration: "outrigger-sidecarset-webhook-config".to_owned(),
            client: Client::Service(ServiceReference {
                namespace: "kube-system".to_owned(),
                name: "vpa-webhook".to_owned(),
                ..ServiceReference::default()
            }),
            timeout_seconds: 30,
            fail: false,
            labels: BTreeMap::new(),
        }
    }
}

/// How the API server reaches us.
#[derive(Clone, Debug, PartialEq)]
pub enum Client {
    /// Through a service.
    Service(ServiceReference),
    /// By a URL.
    Url(String),
}

impl Client {
    /// The name that the certificate has to be for.
    #[must_use]
    pub fn server_name(&self) -> String {
        match self {
            Self::Service(service) => format!("{}.{}.svc", service.name, service.namespace),
            Self::Url(url) => {
                let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
                let authority = rest.split('/').next().unwrap_or_default();
                let bracketed = authority
                    .strip_prefix('[')
                    .and_then(|rest| rest.split(']').next());
                let host = bracketed.or_else(|| authority.split(':').next());
                host.unwrap_or_default().to_owned()
            }
        }
    }
}

/// The lease by which the updater knows that we work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusLease {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// How often it is renewed.
    pub interval: Duration,
}

impl Default for StatusLease {
    fn default() -> Self {
        Self {
            namespace: "kube-system".to_owned(),
            name: "vpa-admission-controller".to_owned(),
            interval: Duration::from_secs(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificate_is_for_whom_the_api_server_calls() {
        let urls = [
            ("https://127.0.0.1:8443", "127.0.0.1"),
            ("https://[::1]:8443/path", "::1"),
            ("https://hook.example.org:443", "hook.example.org"),
            ("hook.example.org", "hook.example.org"),
        ];
        for (url, name) in urls {
            assert_eq!(Client::Url(url.to_owned()).server_name(), name);
        }
        assert_eq!(
            Webhook::default().client.server_name(),
            "vpa-webhook.kube-system.svc"
        );
    }
}
