use super::*;

fn made() -> (Vec<u8>, Vec<u8>) {
    let made = rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap();
    (
        made.cert.pem().into_bytes(),
        made.signing_key.serialize_pem().into_bytes(),
    )
}

#[test]
fn a_certificate_its_key_and_its_ca_have_to_belong_together() {
    let (certificate, key) = made();
    let (other, other_key) = made();
    let material = Material::parse(&certificate, &certificate, &key).unwrap();
    assert_eq!(material.ca_bundle, certificate);
    for (ca, certificate, key, expected) in [
        (
            &other,
            &certificate,
            &other_key,
            "cannot use the certificate with its key",
        ),
        (&other, &key, &key, "there is no certificate in the certificate"),
        (&other, &certificate, &certificate, "cannot read the key"),
        (
            &Vec::new(),
            &certificate,
            &key,
            "there is no certificate in the CA certificate",
        ),
    ] {
        let Err(error) = Material::parse(ca, certificate, key) else {
            panic!("taken, and not: {expected}");
        };
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

#[test]
fn ciphers_are_chosen_by_go_s_names_and_unknown_ones_passed_over() {
    let names = |ciphers: &[&str]| {
        let ciphers: Vec<_> = ciphers.iter().map(|&name| name.to_owned()).collect();
        let suites = provider(&ciphers).cipher_suites;
        let of_1_2 = suites.into_iter().filter(|suite| suite.tls13().is_none());
        of_1_2
            .map(|suite| format!("{:?}", suite.suite()))
            .collect::<Vec<_>>()
    };
    let all = names(&[]);
    assert!(all.len() > 2);
    assert_eq!(names(&["TLS_RSA_WITH_RC4_128_SHA"]), all);
    assert_eq!(
        names(&[
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
            "nonsense"
        ]),
        [
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
        ]
    );
}

/// Writes a certificate and its key into a folder, and gives the certificate.
fn write(folder: &std::path::Path) -> Vec<u8> {
    let (certificate, key) = made();
    for (name, text) in [("ca", &certificate), ("crt", &certificate), ("key", &key)] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    certificate
}

/// As the kubelet mounts a secret: files behind a link that is swapped, of which no file system notification tells.
#[tokio::test]
async fn files_are_read_again_when_a_link_above_them_is_swapped_and_kept_when_they_are_broken() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("..data");
    let turn_to = |name: &str, broken: bool| {
        let target = folder.path().join(name);
        std::fs::create_dir(&target).unwrap();
        let certificate = write(&target);
        if broken {
            std::fs::write(target.join("key"), "none").unwrap();
        }
        let link = folder.path().join(format!("{name}-link"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        std::fs::rename(&link, &data).unwrap();
        certificate
    };
    let first = turn_to("first", false);
    let source = Certificates::Files {
        files: crate::config::CertificateFiles {
            ca: data.join("ca"),
            certificate: data.join("crt"),
            key: data.join("key"),
        },
        reload: true,
    };
    let time = common::clock::VirtualClock::starting_at(DateTime::from_timestamp(1_772_323_200, 0).unwrap());
    let shutdown = common::daemon::Shutdown::new();
    let client = crate::testing::OneObject::new(1).client();
    let context = common::daemon::Context::new(client, time.clock(), shutdown.clone());
    let handles = common::daemon::Shell::start(context, None).handles();
    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = Metrics::register(&mut registry);
    let part = handles.readiness.part("certificate");
    let (publish, mut current) = watch::channel(None);
    let keeping = tokio::spawn(keep(source, "x".to_owned(), handles, metrics, part, publish));
    let mut bundle = async |expected: &[u8]| {
        while current
            .borrow()
            .as_ref()
            .is_none_or(|material| material.ca_bundle != expected)
        {
            time.advance(FILE_POLL).await;
            tokio::task::yield_now().await;
        }
        current.borrow_and_update().clone().unwrap()
    };
    let shown = bundle(&first).await;
    let text = common::daemon::metrics::encode(&registry).unwrap();
    for which in ["ca", "serving"] {
        let line = format!(
            "outrigger_admission_certificate_expiry_timestamp_seconds{{certificate=\"{which}\"}} {}\n",
            shown.expires().timestamp()
        );
        assert!(text.contains(&line), "{line}{text}");
    }
    turn_to("broken", true);
    for _ in 0..10 {
        time.advance(FILE_POLL).await;
        tokio::task::yield_now().await;
    }
    assert!(!keeping.is_finished(), "the old one stays");
    let third = turn_to("third", false);
    bundle(&third).await;
    shutdown.request();
    keeping.await.unwrap().unwrap();
}
