//! Certificates: what is shown to the API server, where it comes from, and that it is changed in time. Whoever serves or
//! registers follows one channel.

mod der;
mod files;
mod own;
mod secret;

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use axum_server::tls_rustls::RustlsConfig;
use chrono::{DateTime, Utc};
use common::daemon::{Handles, Part};
use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::CertifiedKey,
};
use tokio::sync::watch;

use self::der::{Validity, ValidityError, validity};
use crate::{
    config::{Certificates, TlsSettings},
    metrics::{Metrics, Which},
};

/// How often files are looked at. Not by notifications of the file system: the kubelet swaps a link above them, and
/// nobody is notified of that.
const FILE_POLL: Duration = Duration::from_secs(10);
/// How often the secret is looked at.
const SECRET_POLL: Duration = Duration::from_secs(60);
/// How soon it is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// A certificate, its key, and what it is checked with.
pub(crate) struct Material {
    /// What goes into the webhook configuration, as it was read.
    pub(crate) ca_bundle: Vec<u8>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    validity: Validity,
    ca_expires: Option<DateTime<Utc>>,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    /// Not PEM, or not of this kind.
    #[error("cannot read the {what}: {source}")]
    Pem {
        what: &'static str,
        source: rustls::pki_types::pem::Error,
    },
    /// A file without a certificate in it.
    #[error("there is no certificate in the {0}")]
    Empty(&'static str),
    /// The certificate makes no sense.
    #[error("cannot read the certificate: {0}")]
    Validity(#[from] ValidityError),
    /// The key is not the certificate's, or of no use.
    #[error("cannot use the certificate with its key: {0}")]
    Rustls(#[from] rustls::Error),
    /// It cannot be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

impl Material {
    /// From three texts in PEM, if they can be read and belong together.
    pub(crate) fn parse(ca: &[u8], certificate: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let pem = |what| move |source| TlsError::Pem { what, source };
        let all = |text, what| -> Result<Vec<CertificateDer<'static>>, TlsError> {
            let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
            let read = read.map_err(pem(what))?;
            if read.is_empty() {
                return Err(TlsError::Empty(what));
            }
            Ok(read)
        };
        let chain = all(certificate, "certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(pem("key"))?;
        CertifiedKey::from_der(chain.clone(), key.clone_key(), &ring::default_provider())?;
        let first = chain.first().ok_or(TlsError::Empty("certificate"))?;
        let authorities = all(ca, "CA certificate")?;
        let expiries = authorities
            .iter()
            .filter_map(|authority| validity(authority).ok());
        Ok(Self {
            ca_bundle: ca.to_vec(),
            validity: validity(first)?,
            ca_expires: expiries.map(|validity| validity.not_after).max(),
            chain,
            key,
        })
    }

    /// The certificate that is shown.
    pub(crate) fn leaf(&self) -> Option<&CertificateDer<'static>> {
        self.chain.first()
    }

    /// When it expires.
    pub(crate) fn expires(&self) -> DateTime<Utc> {
        self.validity.not_after
    }

    fn serves_the_same(&self, other: &Self) -> bool {
        self.chain == other.chain && self.key == other.key
    }

    fn server_config(&self, settings: &TlsSettings) -> Result<ServerConfig, TlsError> {
        let mut config = ServerConfig::builder_with_provider(provider(&settings.ciphers).into())
            .with_protocol_versions(settings.versions)?
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// The one provider, with these suites of TLS 1.2. Names that are not known are passed over as in VPA; where none is
/// left all are meant.
fn provider(ciphers: &[String]) -> CryptoProvider {
    let mut provider = ring::default_provider();
    let is_1_3 = |suite: &rustls::SupportedCipherSuite| suite.tls13().is_some();
    let is_chosen = |suite: &rustls::SupportedCipherSuite| {
        let name = format!("{:?}", suite.suite());
        ciphers.iter().any(|chosen| go_name(chosen) == name)
    };
    if provider
        .cipher_suites
        .iter()
        .any(|suite| !is_1_3(suite) && is_chosen(suite))
    {
        provider
            .cipher_suites
            .retain(|suite| is_1_3(suite) || is_chosen(suite));
    }
    provider
}

/// Go has two names for some suites; the older is without the hash.
fn go_name(name: &str) -> String {
    if name.ends_with("_CHACHA20_POLY1305") {
        format!("{name}_SHA256")
    } else {
        name.to_owned()
    }
}

/// The certificate as it is now. Nothing until the first is there.
pub(crate) type Current = watch::Receiver<Option<Arc<Material>>>;

/// The first certificate.
pub(crate) async fn first(current: &mut Current) -> Option<Arc<Material>> {
    current.wait_for(Option::is_some).await.ok()?.clone()
}

/// Keeps the certificate up to date until shutdown is requested.
pub(crate) async fn keep(
    source: Certificates,
    server_name: String,
    handles: Handles,
    metrics: Metrics,
    part: Part,
    publish: watch::Sender<Option<Arc<Material>>>,
) -> anyhow::Result<()> {
    let publisher = Publisher {
        publish,
        metrics,
        part,
    };
    let shutdown = handles.shutdown.clone();
    let keeping = async {
        match source {
            Certificates::Files { files, reload } => {
                let first = files::read(&files)
                    .await
                    .context("cannot use the certificate files; see --tls-cert-file, --tls-private-key and --client-ca-file")?;
                publisher.publish(first);
                if !reload {
                    return std::future::pending().await;
                }
                loop {
                    handles.clock.sleep(FILE_POLL).await;
                    match files::read(&files).await {
                        Ok(next) => publisher.publish(next),
                        Err(error) => {
                            tracing::warn!(%error, "the certificate files cannot be used; the old certificate stays");
                        }
                    }
                }
            }
            Certificates::Given { certificate, key } => {
                let (certificate, key) = (certificate.as_bytes(), key.as_bytes());
                publisher.publish(Material::parse(certificate, certificate, key)?);
                std::future::pending().await
            }
            Certificates::Own { namespace } => {
                let keeper = secret::Keeper::new(&handles.client, &namespace, server_name);
                tracing::info!(
                    namespace,
                    secret = secret::NAME,
                    "there are no certificate files; certificates are made here and kept in a secret"
                );
                loop {
                    let pause = match keeper.look(handles.clock.now()).await {
                        Ok(next) => {
                            publisher.publish(next);
                            SECRET_POLL
                        }
                        Err(error) => {
                            tracing::warn!(
                                error = format!("{error:#}"),
                                "cannot keep the certificates; trying again"
                            );
                            RETRY
                        }
                    };
                    handles.clock.sleep(pause).await;
                }
            }
        }
    };
    tokio::select! {
        ended = keeping => ended,
        () = shutdown.requested() => Ok(()),
    }
}

struct Publisher {
    publish: watch::Sender<Option<Arc<Material>>>,
    metrics: Metrics,
    part: Part,
}

impl Publisher {
    /// Tells of a certificate if there is something new in it. The words are what VPA's tests look for in the log.
    fn publish(&self, next: Material) {
        self.metrics
            .expires(Which::Serving, next.validity.not_after.timestamp());
        if let Some(expires) = next.ca_expires {
            self.metrics.expires(Which::Ca, expires.timestamp());
        }
        let next = Arc::new(next);
        self.publish.send_if_modified(|current| {
            if let Some(known) = current {
                let (same_leaf, same_ca) = (known.serves_the_same(&next), known.ca_bundle == next.ca_bundle);
                if same_leaf && same_ca {
                    return false;
                }
                if !same_leaf {
                    tracing::info!(expires = %next.expires(), "New certificate found, reloading");
                }
                if !same_ca {
                    tracing::info!("New client CA found, reloading and patching webhook");
                }
            }
            *current = Some(next);
            true
        });
        self.part.ready();
    }
}

/// What the server shows: the first certificate, and whatever comes after it.
pub(crate) async fn serving(
    mut current: Current,
    settings: &TlsSettings,
) -> anyhow::Result<Option<(RustlsConfig, impl Future<Output = ()>)>> {
    let Some(first) = first(&mut current).await else {
        return Ok(None);
    };
    let tls = RustlsConfig::from_config(Arc::new(first.server_config(settings)?));
    let (shown, settings) = (tls.clone(), settings.clone());
    let following = async move {
        while current.changed().await.is_ok() {
            let Some(next) = current.borrow_and_update().clone() else {
                continue;
            };
            match next.server_config(&settings) {
                Ok(config) => shown.reload_from_config(Arc::new(config)),
                Err(error) => {
                    tracing::error!(%error, "cannot serve with the new certificate; the old one stays");
                }
            }
        }
    };
    Ok(Some((tls, following)))
}

#[cfg(test)]
mod tests;
