//! Certificates of our own making: a CA that lives long, and under it a certificate that is changed often. Decides what
//! is to be written next; where that is kept is none of its business.
//!
//! A CA is changed in two steps. First the new one joins the old one in the bundle, and the API server is told to trust both;
//! only when that has settled a certificate is made under the new one. So there is no moment in which what is shown is not
//! trusted, and replicas may take each step at different times.

use chrono::{DateTime, TimeDelta, Utc};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use rustls::{
    RootCertStore,
    client::{verify_server_cert_signed_by_trust_anchor, verify_server_name},
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
    server::ParsedCertificate,
};

use super::{
    TlsError,
    der::{Validity, validity},
};

const CA_LIFE: TimeDelta = TimeDelta::days(3650);
const CA_CHANGED_BEFORE: TimeDelta = TimeDelta::days(365);
const LIFE: TimeDelta = TimeDelta::days(365);
const CHANGED_BEFORE: TimeDelta = TimeDelta::days(120);
/// Clocks differ; a certificate is valid from a little before it was made.
const BACKDATED: TimeDelta = TimeDelta::hours(1);
/// By then the API server trusts a new CA, however slow everybody is.
const SETTLED: TimeDelta = TimeDelta::hours(1);

/// What is kept, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// The CAs that are trusted, the newest first.
    pub(super) cas: String,
    /// The key of the newest.
    pub(super) ca_key: String,
    /// The certificate that is shown.
    pub(super) certificate: String,
    /// Its key.
    pub(super) key: String,
}

/// What is to be done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Keep,
    /// This takes its place, for this reason.
    Write(Kept, &'static str),
}

/// What is to be done about what is kept, so that a certificate for `name` is shown that is trusted and stays so.
pub(super) fn step(kept: Option<&Kept>, name: &str, now: DateTime<Utc>) -> Result<Step, TlsError> {
    let Some((kept, read)) = kept.and_then(|kept| Some((kept, Read::from(kept)?))) else {
        let (ca, key) = new_ca(now)?;
        let made = issue(&ca, &key, name, now)?;
        return Ok(Step::Write(made.under(ca, key), "there is none that can be read"));
    };
    let trusted: Vec<&Authority> = read.cas.iter().filter(|ca| now < ca.validity.not_after).collect();
    let others = || trusted.iter().map(|ca| ca.pem.as_str()).collect::<String>();
    let newest = read.cas.first().filter(|ca| now < ca.validity.not_after);
    let is_under = |ca: &Authority| is_trusted(&read.leaf, ca, name, now);
    if !trusted.iter().any(|ca| is_under(ca)) {
        // Nobody trusts what is shown now, so nothing is lost by doing all at once.
        let remade = newest.and_then(|ca| issue_under(ca, kept, name, now));
        return Ok(match remade {
            Some(made) => Step::Write(made.under(others(), kept.ca_key.clone()), "it is not valid"),
            None => {
                let (ca, key) = new_ca(now)?;
                let made = issue(&ca, &key, name, now)?;
                Step::Write(made.under(ca + &others(), key), "neither it nor its CA is valid")
            }
        });
    }
    let another_ca = |why| -> Result<Step, TlsError> {
        let (ca, ca_key) = new_ca(now)?;
        let cas = ca + &others();
        Ok(Step::Write(
            Kept {
                cas,
                ca_key,
                ..kept.clone()
            },
            why,
        ))
    };
    let Some(newest) = newest.filter(|ca| ca.validity.not_after - now > CA_CHANGED_BEFORE) else {
        return another_ca("the CA expires before long");
    };
    let is_due = read.validity.not_after - now < CHANGED_BEFORE;
    let has_settled = now >= newest.validity.not_before + BACKDATED + SETTLED;
    if (is_due && is_under(newest)) || (!is_under(newest) && has_settled) {
        return match issue_under(newest, kept, name, now) {
            Some(made) if is_due => Ok(Step::Write(
                made.under(others(), kept.ca_key.clone()),
                "it expires before long",
            )),
            Some(made) => Ok(Step::Write(
                made.under(others(), kept.ca_key.clone()),
                "there is a new CA",
            )),
            None => another_ca("the CA's key is of no use"),
        };
    }
    Ok(Step::Keep)
}

/// What is kept, as far as it is looked at.
struct Read {
    cas: Vec<Authority>,
    leaf: CertificateDer<'static>,
    validity: Validity,
}

struct Authority {
    der: CertificateDer<'static>,
    validity: Validity,
    pem: String,
}

impl Read {
    fn from(kept: &Kept) -> Option<Self> {
        super::Material::parse(
            kept.cas.as_bytes(),
            kept.certificate.as_bytes(),
            kept.key.as_bytes(),
        )
        .ok()?;
        let leaf = CertificateDer::from_pem_slice(kept.certificate.as_bytes()).ok()?;
        let cas = pems(&kept.cas).filter_map(|pem| {
            let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
            let validity = validity(&der).ok()?;
            Some(Authority { der, validity, pem })
        });
        Some(Self {
            cas: cas.collect(),
            validity: validity(&leaf).ok()?,
            leaf,
        })
    }
}

/// The parts of a text of several in PEM.
fn pems(text: &str) -> impl Iterator<Item = String> {
    const END: &str = "-----END CERTIFICATE-----";
    text.split_inclusive(END)
        .filter(|part| part.contains(END))
        .map(|part| format!("{}\n", part.trim()))
}

/// A certificate and its key.
struct Made {
    certificate: String,
    key: String,
}

impl Made {
    fn under(self, cas: String, ca_key: String) -> Kept {
        Kept {
            cas,
            ca_key,
            certificate: self.certificate,
            key: self.key,
        }
    }
}

fn new_ca(now: DateTime<Utc>) -> Result<(String, String), TlsError> {
    let key = KeyPair::generate()?;
    let mut params = ca_params();
    set_validity(&mut params, now - BACKDATED, now + CA_LIFE);
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

/// All CAs have one name, so that a certificate can be made under one of which nothing is at hand but its key.
fn ca_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, "outrigger admission CA");
    params.distinguished_name = name;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn issue(ca: &str, ca_key: &str, name: &str, now: DateTime<Utc>) -> Result<Made, TlsError> {
    let ca = CertificateDer::from_pem_slice(ca.as_bytes()).map_err(|source| TlsError::Pem {
        what: "CA certificate",
        source,
    })?;
    let issuer = Issuer::new(ca_params(), KeyPair::from_pem(ca_key)?);
    let mut params = CertificateParams::new([name.to_owned()])?;
    let mut common_name = DistinguishedName::new();
    // A common name has at most 64 characters; the name that counts is the other one.
    common_name.push(DnType::CommonName, name.chars().take(64).collect::<String>());
    params.distinguished_name = common_name;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    set_validity(
        &mut params,
        now - BACKDATED,
        (now + LIFE).min(validity(&ca)?.not_after),
    );
    let key = KeyPair::generate()?;
    Ok(Made {
        certificate: params.signed_by(&key, &issuer)?.pem(),
        key: key.serialize_pem(),
    })
}

/// A certificate under a CA that is kept; none if that is not one of ours or the key is not its own.
fn issue_under(ca: &Authority, kept: &Kept, name: &str, now: DateTime<Utc>) -> Option<Made> {
    let made = issue(&ca.pem, &kept.ca_key, name, now).ok()?;
    let leaf = CertificateDer::from_pem_slice(made.certificate.as_bytes()).ok()?;
    is_trusted(&leaf, ca, name, now).then_some(made)
}

/// Whether somebody who trusts the CA takes the certificate for `name`.
fn is_trusted(leaf: &CertificateDer<'_>, ca: &Authority, name: &str, now: DateTime<Utc>) -> bool {
    let mut roots = RootCertStore::empty();
    let (Ok(()), Ok(leaf), Ok(name)) = (
        roots.add(ca.der.clone()),
        ParsedCertificate::try_from(leaf),
        ServerName::try_from(name),
    ) else {
        return false;
    };
    let seconds = u64::try_from(now.timestamp()).unwrap_or_default();
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(&leaf, &roots, &[], now, algorithms).is_ok()
        && verify_server_name(&leaf, &name).is_ok()
}

fn set_validity(params: &mut CertificateParams, from: DateTime<Utc>, to: DateTime<Utc>) {
    let since_1970 = |time: DateTime<Utc>| {
        let seconds = u64::try_from(time.timestamp()).unwrap_or_default();
        rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds)
    };
    params.not_before = since_1970(from);
    params.not_after = since_1970(to);
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "vpa-webhook.kube-system.svc";

    fn start() -> DateTime<Utc> {
        DateTime::from_timestamp(1_772_323_200, 0).unwrap()
    }

    fn written(kept: Option<&Kept>, now: DateTime<Utc>) -> (Kept, &'static str) {
        match step(kept, NAME, now).unwrap() {
            Step::Write(kept, why) => (kept, why),
            Step::Keep => panic!("nothing is written"),
        }
    }

    fn is_accepted(kept: &Kept, bundle: &str, now: DateTime<Utc>) -> bool {
        let leaf = CertificateDer::from_pem_slice(kept.certificate.as_bytes()).unwrap();
        let read = Read::from(&Kept {
            cas: bundle.to_owned(),
            ..kept.clone()
        });
        read.unwrap()
            .cas
            .iter()
            .any(|ca| is_trusted(&leaf, ca, NAME, now))
    }

    #[test]
    fn what_is_made_first_is_good_for_a_while() {
        let (kept, why) = written(None, start());
        assert_eq!(why, "there is none that can be read");
        for later in [TimeDelta::zero(), TimeDelta::days(200), LIFE - CHANGED_BEFORE] {
            assert_eq!(step(Some(&kept), NAME, start() + later).unwrap(), Step::Keep);
            assert!(is_accepted(&kept, &kept.cas, start() + later));
        }
        let (again, _) = written(None, start());
        assert_ne!(kept, again, "keys are not to be foretold");
    }

    #[test]
    fn a_certificate_is_changed_before_it_expires_under_the_same_ca() {
        let (kept, _) = written(None, start());
        let now = start() + LIFE - CHANGED_BEFORE + TimeDelta::seconds(1);
        let (next, why) = written(Some(&kept), now);
        assert_eq!(why, "it expires before long");
        assert_eq!((&next.cas, &next.ca_key), (&kept.cas, &kept.ca_key));
        assert!(is_accepted(&next, &kept.cas, now));
        assert!(
            is_accepted(&kept, &next.cas, now),
            "other replicas still show the old one"
        );
    }

    #[test]
    fn a_certificate_for_another_name_is_made_anew() {
        let (kept, _) = written(None, start());
        let Step::Write(next, why) = step(Some(&kept), "127.0.0.1", start()).unwrap() else {
            panic!("kept");
        };
        assert_eq!(why, "it is not valid");
        assert_eq!(next.cas, kept.cas);
        assert_eq!(step(Some(&next), "127.0.0.1", start()).unwrap(), Step::Keep);
    }

    #[test]
    fn through_forty_years_everything_shown_is_trusted_by_old_and_new_bundles() {
        let mut now = start();
        let (mut kept, _) = written(None, now);
        let mut reasons = Vec::new();
        // Looked at every month; whoever looks last is a step behind.
        for _ in 0..40 * 12 {
            now += TimeDelta::days(30);
            if let Step::Write(next, why) = step(Some(&kept), NAME, now).unwrap() {
                assert!(is_accepted(&next, &kept.cas, now), "{why}: not trusted yet");
                assert!(is_accepted(&kept, &next.cas, now), "{why}: not trusted any more");
                assert!(pems(&next.cas).count() <= 2);
                reasons.push(why);
                kept = next;
            }
            assert!(is_accepted(&kept, &kept.cas, now));
        }
        for why in [
            "it expires before long",
            "the CA expires before long",
            "there is a new CA",
        ] {
            assert!(reasons.contains(&why), "{why}");
        }
        assert_eq!(reasons.iter().filter(|why| why.contains("CA expires")).count(), 4);
    }

    #[test]
    fn after_a_long_sleep_all_is_made_anew() {
        let (kept, _) = written(None, start());
        let (next, why) = written(Some(&kept), start() + LIFE + TimeDelta::days(1));
        assert_eq!(why, "it is not valid");
        assert_eq!(next.cas, kept.cas);
        let now = start() + CA_LIFE + TimeDelta::days(1);
        let (next, why) = written(Some(&kept), now);
        assert_eq!(why, "neither it nor its CA is valid");
        assert_eq!(pems(&next.cas).count(), 1, "the expired CA is dropped");
        assert!(is_accepted(&next, &next.cas, now));
    }

    #[test]
    fn somebody_else_s_certificates_are_used_as_long_as_they_are_good_and_then_replaced_in_two_steps() {
        let key = KeyPair::generate().unwrap();
        let mut params = ca_params();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "vpa_webhook_ca");
        set_validity(&mut params, start(), start() + TimeDelta::days(100_000));
        let ca = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, &key);
        let mut leaf = CertificateParams::new([NAME.to_owned()]).unwrap();
        set_validity(&mut leaf, start(), start() + TimeDelta::days(400));
        let leaf_key = KeyPair::generate().unwrap();
        let kept = Kept {
            cas: ca.clone(),
            ca_key: key.serialize_pem(),
            certificate: leaf.signed_by(&leaf_key, &issuer).unwrap().pem(),
            key: leaf_key.serialize_pem(),
        };
        assert_eq!(
            step(Some(&kept), NAME, start() + TimeDelta::days(1)).unwrap(),
            Step::Keep
        );
        let now = start() + TimeDelta::days(300);
        let (first, why) = written(Some(&kept), now);
        assert_eq!(why, "the CA's key is of no use");
        assert_eq!(first.certificate, kept.certificate);
        assert_eq!(pems(&first.cas).count(), 2);
        assert_eq!(step(Some(&first), NAME, now).unwrap(), Step::Keep, "not settled");
        let (second, _) = written(Some(&first), now + SETTLED);
        assert_eq!(second.cas, first.cas);
        assert!(is_accepted(&second, &first.cas, now + SETTLED));
    }

    #[test]
    fn nonsense_is_replaced() {
        let (kept, _) = written(None, start());
        let (other, _) = written(None, start());
        let nonsense = [
            Kept {
                certificate: "x".into(),
                ..kept.clone()
            },
            Kept {
                key: other.key.clone(),
                ..kept.clone()
            },
            Kept {
                cas: String::new(),
                ..kept.clone()
            },
        ];
        for kept in nonsense {
            let (next, _) = written(Some(&kept), start());
            assert_eq!(step(Some(&next), NAME, start()).unwrap(), Step::Keep);
        }
    }
}
