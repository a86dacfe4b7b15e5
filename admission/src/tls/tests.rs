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
