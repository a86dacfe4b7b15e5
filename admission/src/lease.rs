//! The lease by which the updater knows that new pods are served (`spec/vpa.md` 4.2). It is renewed only while the webhook
//! answers: a probe goes the way of the API server's requests, over TLS and through the queue.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use common::{
    api::k8s::{Lease, LeaseSpec, ObjectMeta},
    clock::Clock,
    daemon::Handles,
    time::to_k8s_micro,
};
use kube::{Api, api::PostParams};
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    config::StatusLease,
    metrics::Metrics,
    reviewer::PROBE,
    tls::{self, Material},
};

/// How long the probe may take: what the API server would hardly wait for is no answer.
const PROBE_PATIENCE: Duration = Duration::from_secs(5);
/// Our answers are shorter.
const MAX_ANSWER: u64 = 16 * 1024;

/// Renews the lease until shutdown is requested, beginning one interval after the webhook is registered.
pub(crate) async fn keep(
    settings: StatusLease,
    address: SocketAddr,
    mut registered: watch::Receiver<bool>,
    mut current: tls::Current,
    handles: Handles,
    metrics: Metrics,
) {
    let shutdown = handles.shutdown.clone();
    let keeping = async {
        if registered.wait_for(|registered| *registered).await.is_err() {
            return;
        }
        let holder = Holder {
            api: Api::namespaced(handles.client.clone(), &settings.namespace),
            identity: hostname::get().map_or_else(
                |_| "unknown".to_owned(),
                |name| name.to_string_lossy().into_owned(),
            ),
            clock: handles.clock.clone(),
            settings,
        };
        let mut ticker = handles.clock.ticker(holder.settings.interval);
        loop {
            ticker.tick().await;
            let Some(material) = tls::first(&mut current).await else {
                return;
            };
            let probed =
                tokio::time::timeout(PROBE_PATIENCE, probe(address, &material, &handles.clock)).await;
            let probed = probed.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer in time")));
            if let Err(error) = probed {
                metrics.lease("not_serving");
                tracing::error!(
                    error = format!("{error:#}"),
                    "the webhook does not answer its own probe; the status lease is not renewed"
                );
                continue;
            }
            let renewed = tokio::time::timeout(holder.settings.interval, holder.renew()).await;
            match renewed {
                Ok(Ok(())) => metrics.lease("renewed"),
                Ok(Err(error)) => {
                    metrics.lease("failed");
                    tracing::warn!(%error, "cannot renew the status lease");
                }
                Err(_) => {
                    metrics.lease("failed");
                    tracing::warn!("the status lease was not renewed in time");
                }
            }
        }
    };
    tokio::select! {
        () = keeping => {}
        () = shutdown.requested() => {}
    }
}

struct Holder {
    api: Api<Lease>,
    identity: String,
    clock: Clock,
    settings: StatusLease,
}

impl Holder {
    /// That somebody else was faster is no fault: all replicas share one lease.
    async fn renew(&self) -> kube::Result<()> {
        let name = &self.settings.name;
        let now = to_k8s_micro(self.clock.now());
        let params = PostParams::default();
        let written = match self.api.get_opt(name).await? {
            Some(mut lease) => {
                let spec = lease.spec.get_or_insert_default();
                spec.holder_identity = Some(self.identity.clone());
                spec.renew_time = Some(now);
                self.api.replace(name, &params, &lease).await
            }
            None => {
                let seconds = self.settings.interval.as_secs().max(1);
                let lease = Lease {
                    metadata: ObjectMeta {
                        name: Some(name.clone()),
                        namespace: Some(self.settings.namespace.clone()),
                        ..ObjectMeta::default()
                    },
                    spec: Some(LeaseSpec {
                        holder_identity: Some(self.identity.clone()),
                        lease_duration_seconds: i32::try_from(seconds).ok(),
                        renew_time: Some(now),
                        ..LeaseSpec::default()
                    }),
                };
                self.api.create(&params, &lease).await
            }
        };
        match written {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Asks the webhook something, as the API server would, and looks at the answer.
async fn probe(address: SocketAddr, material: &Material, clock: &Clock) -> anyhow::Result<()> {
    ensure!(clock.now() < material.expires(), "the certificate has expired");
    let mut stream = connect(address, material).await?;
    let body = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"{PROBE}"}}}}"#
    );
    let request = format!(
        "POST / HTTP/1.1\r\nHost: probe\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    match stream.take(MAX_ANSWER).read_to_end(&mut answer).await {
        Ok(_) => {}
        // The end of the connection may be cut short; what counts is what came before.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {}
        Err(error) => return Err(error.into()),
    }
    let answer = String::from_utf8_lossy(&answer);
    let expected = format!(r#""uid":"{PROBE}","allowed":true"#);
    if !answer.starts_with("HTTP/1.1 200 ") || !answer.contains(&expected) {
        bail!("it answers {:?}", answer.lines().next().unwrap_or_default());
    }
    Ok(())
}

/// A connection to the webhook, if it shows this certificate.
pub(crate) async fn connect(
    address: SocketAddr,
    material: &Material,
) -> anyhow::Result<TlsStream<TcpStream>> {
    let leaf = material.leaf().context("there is no certificate")?.clone();
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Exactly {
            leaf,
            algorithms: provider.signature_verification_algorithms,
        }))
        .with_no_client_auth();
    let address = match address.ip() {
        ip if ip.is_unspecified() => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), address.port()),
        _ => address,
    };
    let stream = TcpStream::connect(address).await.context("cannot connect")?;
    let name = ServerName::IpAddress(address.ip().into());
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.context("no TLS")
}

/// Trusts one certificate: the one that should be shown. Whether the API server trusts it too is for its CA to say, by
/// rules that are not all ours.
#[derive(Debug)]
struct Exactly {
    leaf: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Exactly {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if *end_entity == self.leaf {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::Error::General("another certificate is shown".to_owned()))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::tests::Served;
    use chrono::TimeDelta;
    use common::clock::VirtualClock;

    #[tokio::test]
    async fn the_probe_is_answered_by_a_webhook_that_serves_and_by_no_other() {
        let served = Served::start(true).await;
        let clock = Clock::system();
        probe(served.address, &served.material, &clock).await.unwrap();
        let late = VirtualClock::starting_at(served.material.expires() + TimeDelta::seconds(1));
        let another = Served::start(false).await;
        for (address, material, clock, expected) in [
            (
                served.address,
                &served.material,
                &late.clock(),
                "the certificate has expired",
            ),
            (served.address, &another.material, &clock, "no TLS"),
            (
                another.address,
                &another.material,
                &clock,
                "it answers \"HTTP/1.1 503 Service Unavailable\"",
            ),
        ] {
            let error = probe(address, material, clock).await.unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        let address = served.stop().await;
        let error = probe(address, &another.material, &clock).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot connect");
    }

    #[tokio::test]
    async fn the_lease_is_created_then_renewed_and_who_comes_second_does_not_mind() {
        let api = crate::testing::OneObject::new(2);
        let time = VirtualClock::starting_at(chrono::DateTime::from_timestamp(1_772_323_200, 0).unwrap());
        let holder = |identity: &str| Holder {
            api: Api::namespaced(api.client(), "kube-system"),
            identity: identity.to_owned(),
            clock: time.clock(),
            settings: StatusLease::default(),
        };
        let (one, other) = (holder("one"), holder("other"));
        let (first, second) = tokio::join!(one.renew(), other.renew());
        first.unwrap();
        second.unwrap();
        assert_eq!(api.asked(), ["GET", "GET", "POST", "POST"]);
        time.advance(Duration::from_secs(10)).await;
        other.renew().await.unwrap();
        let spec = api.object().unwrap()["spec"].clone();
        assert_eq!(
            spec,
            serde_json::json!({
                "holderIdentity": "other", "leaseDurationSeconds": 10, "renewTime": "2026-03-01T00:00:10.000000Z",
            })
        );
    }
}
