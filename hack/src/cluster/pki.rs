//! Keys and certificates of one cluster. Which certificates there are is a list of values; making them is one loop.

use std::{
    io::Write as _,
    net::Ipv4Addr,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// The authority that everything in the cluster trusts.
pub(super) const CA: &str = "ca";
/// The authority for the API server as a proxy to aggregated servers. A second one, or every client certificate could
/// claim to be anybody.
pub(super) const FRONT_PROXY_CA: &str = "front-proxy-ca";
/// The key that signs service account tokens.
pub(super) const SERVICE_ACCOUNT: &str = "service-account";

/// What one certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    /// The name of its files.
    pub file: String,
    /// Who signs it.
    pub authority: &'static str,
    /// Kubernetes' user name.
    pub user: String,
    /// Kubernetes' group.
    pub group: Option<&'static str>,
    /// The names and addresses it serves under; a certificate with none is for clients only.
    pub serves: Vec<String>,
    /// Whether it also speaks for a client.
    pub client: bool,
}

/// The certificates of the parts that are always there, and of the given nodes.
#[must_use]
pub(super) fn leaves(
    api_server: Ipv4Addr,
    service: Ipv4Addr,
    gateway: Ipv4Addr,
    nodes: &[String],
) -> Vec<Leaf> {
    let loopback = || vec!["localhost".to_owned(), Ipv4Addr::LOCALHOST.to_string()];
    let client = |file: &str, user: &str, group| Leaf {
        file: file.into(),
        authority: CA,
        user: user.into(),
        group,
        serves: Vec::new(),
        client: true,
    };
    let both = |file: &str, user: &str, serves| Leaf {
        serves,
        ..client(file, user, None)
    };
    let mut api_server_names = loopback();
    api_server_names.extend(
        ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
            .map(str::to_owned)
            .into_iter()
            .chain([api_server.to_string(), service.to_string()]),
    );
    let mut metrics_names = loopback();
    metrics_names.extend(["metrics-server.kube-system.svc".to_owned(), gateway.to_string()]);
    let mut leaves = vec![
        Leaf {
            client: false,
            ..both("api-server", "kube-apiserver", api_server_names)
        },
        both("etcd", "etcd", loopback()),
        client("api-server-etcd", "kube-apiserver", None),
        client(
            "api-server-kubelet",
            "kube-apiserver-kubelet-client",
            Some("system:masters"),
        ),
        Leaf {
            authority: FRONT_PROXY_CA,
            ..client("front-proxy", "front-proxy-client", None)
        },
        client("admin", "admin", Some("system:masters")),
        both("controller-manager", "system:kube-controller-manager", loopback()),
        both("scheduler", "system:kube-scheduler", loopback()),
        both("metrics-server", "metrics-server", metrics_names),
    ];
    leaves.extend(nodes.iter().map(|node| Leaf {
        file: node.clone(),
        authority: CA,
        user: format!("system:node:{node}"),
        group: Some("system:nodes"),
        serves: vec![node.clone(), gateway.to_string()],
        client: true,
    }));
    leaves
}

/// Where the files of one cluster are.
#[derive(Clone, Debug)]
pub(super) struct Pki {
    folder: PathBuf,
}

impl Pki {
    /// Makes all keys and certificates in a new folder that only its owner can read.
    ///
    /// # Errors
    /// When a file cannot be written or a name is not fit for a certificate.
    pub(super) fn make(folder: PathBuf, leaves: &[Leaf], token: &str) -> Result<Self> {
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .with_context(|| format!("making {}", folder.display()))?;
        let pki = Self { folder };
        for name in [CA, FRONT_PROXY_CA] {
            let authority = authority(name)?;
            pki.write(&pki.certificate(name), &authority.certificate)?;
            pki.write(&pki.key(name), &authority.issuer.key().serialize_pem())?;
            for leaf in leaves.iter().filter(|leaf| leaf.authority == name) {
                let (certificate, key) = sign(leaf, &authority.issuer)
                    .with_context(|| format!("making the certificate of {}", leaf.user))?;
                pki.write(&pki.certificate(&leaf.file), &certificate)?;
                pki.write(&pki.key(&leaf.file), &key)?;
            }
        }
        let service_account = KeyPair::generate()?;
        pki.write(&pki.key(SERVICE_ACCOUNT), &service_account.serialize_pem())?;
        pki.write(
            &pki.public_key(SERVICE_ACCOUNT),
            &service_account.public_key_pem(),
        )?;
        pki.write(
            &pki.tokens(),
            &format!("{token},token-admin,token-admin,\"system:masters\"\n"),
        )?;
        Ok(pki)
    }

    #[cfg(test)]
    pub(super) fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// A certificate's file.
    #[must_use]
    pub(super) fn certificate(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.crt"))
    }

    /// A private key's file.
    #[must_use]
    pub(super) fn key(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.key"))
    }

    /// A public key's file.
    #[must_use]
    pub(super) fn public_key(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.pub"))
    }

    /// The file with the administrator's bearer token.
    #[must_use]
    pub(super) fn tokens(&self) -> PathBuf {
        self.folder.join("tokens.csv")
    }

    fn write(&self, path: &Path, content: &str) -> Result<()> {
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .and_then(|mut file| file.write_all(content.as_bytes()))
            .with_context(|| format!("writing {}", path.display()))
    }
}

struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

fn authority(name: &str) -> Result<Authority> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?.pem();
    Ok(Authority {
        certificate,
        issuer: Issuer::new(params, key),
    })
}

fn sign(leaf: &Leaf, issuer: &Issuer<'static, KeyPair>) -> Result<(String, String)> {
    let mut params = CertificateParams::new(leaf.serves.clone())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, leaf.user.as_str());
    if let Some(group) = leaf.group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = [
        (!leaf.serves.is_empty()).then_some(ExtendedKeyUsagePurpose::ServerAuth),
        leaf.client.then_some(ExtendedKeyUsagePurpose::ClientAuth),
    ]
    .into_iter()
    .flatten()
    .collect();
    let key = KeyPair::generate()?;
    Ok((params.signed_by(&key, issuer)?.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, os::unix::fs::PermissionsExt as _};

    use super::*;

    const API: Ipv4Addr = Ipv4Addr::new(10, 97, 3, 1);
    const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 88, 3, 1);

    fn all() -> Vec<Leaf> {
        leaves(API, API, GATEWAY, &["node-0".into(), "node-1".into()])
    }

    #[test]
    fn a_node_is_a_member_of_the_nodes_and_serves_under_its_address() {
        let expected = Leaf {
            file: "node-1".into(),
            authority: CA,
            user: "system:node:node-1".into(),
            group: Some("system:nodes"),
            serves: vec!["node-1".into(), "10.88.3.1".into()],
            client: true,
        };
        assert_eq!(all().last(), Some(&expected));
    }

    #[test]
    fn only_those_who_must_are_masters() {
        let masters: Vec<_> = all()
            .into_iter()
            .filter(|leaf| leaf.group == Some("system:masters"))
            .map(|leaf| leaf.file)
            .collect();
        assert_eq!(masters, ["api-server-kubelet", "admin"]);
    }

    #[test]
    fn every_leaf_has_its_own_files_and_keys_are_private() {
        let folder = tempfile::tempdir().unwrap();
        let leaves = all();
        let files: BTreeSet<_> = leaves.iter().map(|leaf| &leaf.file).collect();
        assert_eq!(files.len(), leaves.len());
        let pki = Pki::make(folder.path().join("pki"), &leaves, "secret").unwrap();
        for leaf in &leaves {
            let pem = std::fs::read_to_string(pki.certificate(&leaf.file)).unwrap();
            assert!(pem.starts_with("-----BEGIN CERTIFICATE-----"), "{}", leaf.file);
            let mode = std::fs::metadata(pki.key(&leaf.file))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600, "{}", leaf.file);
        }
        let tokens = std::fs::read_to_string(pki.tokens()).unwrap();
        assert_eq!(tokens, "secret,token-admin,token-admin,\"system:masters\"\n");
    }

    #[test]
    fn the_certificates_are_accepted_where_they_serve() {
        use rustls::{
            RootCertStore,
            client::WebPkiServerVerifier,
            pki_types::{CertificateDer, pem::PemObject as _},
        };
        let folder = tempfile::tempdir().unwrap();
        let pki = Pki::make(folder.path().join("pki"), &all(), "secret").unwrap();
        let read = |name: &str| CertificateDer::from_pem_file(pki.certificate(name)).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(read(CA)).unwrap();
        let provider = rustls::crypto::ring::default_provider().into();
        let verifier = WebPkiServerVerifier::builder_with_provider(std::sync::Arc::new(roots), provider)
            .build()
            .unwrap();
        let now =
            rustls::pki_types::UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_800_000_000));
        let accepted = |file: &str, name: &str| {
            use rustls::client::danger::ServerCertVerifier as _;
            let name = name.to_owned().try_into().unwrap();
            verifier
                .verify_server_cert(&read(file), &[], &name, &[], now)
                .is_ok()
        };
        assert!(accepted("api-server", "10.97.3.1"));
        assert!(accepted("api-server", "localhost"));
        assert!(accepted("metrics-server", "metrics-server.kube-system.svc"));
        assert!(accepted("node-0", "10.88.3.1"));
        assert!(!accepted("api-server", "10.97.4.1"));
        assert!(
            !accepted("admin", "localhost"),
            "a client's certificate serves nowhere"
        );
    }
}
