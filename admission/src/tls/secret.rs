//! Our own certificates, kept in a secret under the names that VPA's script gives them. Replicas agree by the secret's
//! resource version: who comes second takes what the first has written.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use chrono::{DateTime, Utc};
use common::api::k8s::{ByteString, ObjectMeta, Secret};
use kube::{Api, Client, api::PostParams};

use super::{
    Material,
    own::{Kept, Step, step},
};

/// The secret's name.
pub(super) const NAME: &str = "vpa-tls-certs";
const CA: &str = "caCert.pem";
const CA_KEY: &str = "caKey.pem";
const CERTIFICATE: &str = "serverCert.pem";
const KEY: &str = "serverKey.pem";
/// How often somebody else may come first.
const TRIES: usize = 5;

/// Keeps the secret.
pub(super) struct Keeper {
    api: Api<Secret>,
    server_name: String,
}

impl Keeper {
    pub(super) fn new(client: &Client, namespace: &str, server_name: String) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            server_name,
        }
    }

    /// What to show now; the secret is written first if that is due.
    pub(super) async fn look(&self, now: DateTime<Utc>) -> anyhow::Result<Material> {
        for _ in 0..TRIES {
            let secret = self
                .api
                .get_opt(NAME)
                .await
                .with_context(|| format!("cannot read the secret {NAME}"))?;
            let kept = secret.as_ref().and_then(read);
            let next = match step(kept.as_ref(), &self.server_name, now)? {
                Step::Keep => kept.context("nothing is kept")?,
                Step::Write(next, why) => {
                    tracing::info!(why, "changing the certificate");
                    if !self.write(secret, &next).await? {
                        continue;
                    }
                    next
                }
            };
            let Kept {
                cas,
                certificate,
                key,
                ..
            } = next;
            return Ok(Material::parse(
                cas.as_bytes(),
                certificate.as_bytes(),
                key.as_bytes(),
            )?);
        }
        bail!("the secret {NAME} changes all the time")
    }

    /// Whether it is written; if not, somebody else has done so.
    async fn write(&self, old: Option<Secret>, next: &Kept) -> anyhow::Result<bool> {
        let params = PostParams::default();
        let written = match old {
            Some(mut secret) => {
                secret.data.get_or_insert_default().extend(data(next));
                self.api.replace(NAME, &params, &secret).await
            }
            None => {
                let secret = Secret {
                    metadata: ObjectMeta {
                        name: Some(NAME.to_owned()),
                        ..ObjectMeta::default()
                    },
                    data: Some(data(next)),
                    ..Secret::default()
                };
                self.api.create(&params, &secret).await
            }
        };
        match written {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => Ok(false),
            Err(error) => Err(error).with_context(|| format!("cannot write the secret {NAME}")),
        }
    }
}

fn read(secret: &Secret) -> Option<Kept> {
    let text = |name| {
        let bytes = secret.data.as_ref()?.get(name)?;
        String::from_utf8(bytes.0.clone()).ok()
    };
    Some(Kept {
        cas: text(CA)?,
        // Who made these may have kept it to himself.
        ca_key: text(CA_KEY).unwrap_or_default(),
        certificate: text(CERTIFICATE)?,
        key: text(KEY)?,
    })
}

fn data(kept: &Kept) -> BTreeMap<String, ByteString> {
    [
        (CA, &kept.cas),
        (CA_KEY, &kept.ca_key),
        (CERTIFICATE, &kept.certificate),
        (KEY, &kept.key),
    ]
    .map(|(name, text)| (name.to_owned(), ByteString(text.clone().into_bytes())))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::OneObject;

    #[tokio::test]
    async fn replicas_that_start_at_once_agree_on_what_the_first_has_written() {
        let api = OneObject::new(2);
        let now = DateTime::from_timestamp(1_772_323_200, 0).unwrap();
        let keeper = || Keeper::new(&api.client(), "kube-system", "127.0.0.1".to_owned());
        let (one, other) = (keeper(), keeper());
        let (one, other) = tokio::join!(one.look(now), other.look(now));
        let (one, other) = (one.unwrap(), other.unwrap());
        assert!(one.serves_the_same(&other));
        assert_eq!(one.ca_bundle, other.ca_bundle);
        // Both have read that there is none, both have written, and the second has read again.
        assert_eq!(api.asked(), ["GET", "GET", "POST", "POST", "GET"]);
        let later = keeper().look(now).await.unwrap();
        assert!(later.serves_the_same(&one));
        assert_eq!(api.asked().len(), 6, "nothing is written that is good");
    }

    #[tokio::test]
    async fn a_change_is_written_once_and_found_by_the_other() {
        let api = OneObject::new(1);
        let now = DateTime::from_timestamp(1_772_323_200, 0).unwrap();
        let keeper = Keeper::new(&api.client(), "kube-system", "127.0.0.1".to_owned());
        let first = keeper.look(now).await.unwrap();
        let due = now + chrono::TimeDelta::days(300);
        let second = keeper.look(due).await.unwrap();
        assert!(!second.serves_the_same(&first));
        assert_eq!(second.ca_bundle, first.ca_bundle);
        assert!(keeper.look(due).await.unwrap().serves_the_same(&second));
        assert_eq!(api.asked(), ["GET", "POST", "GET", "PUT", "GET"]);
        let names: Vec<_> = api.object().unwrap()["data"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        assert_eq!(
            names,
            ["caCert.pem", "caKey.pem", "serverCert.pem", "serverKey.pem"]
        );
    }
}
