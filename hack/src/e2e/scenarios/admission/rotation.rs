//! The CA and the certificate are changed while pods come in, and no pod is missed.

use std::{cell::Cell, time::Duration};

use anyhow::{Context as _, Result, ensure};
use chrono::TimeDelta;
use common::{
    api::k8s::MutatingWebhookConfiguration,
    clock::{Clock, VirtualClock},
};
use futures::FutureExt as _;
use kube::Api;
use serde_json::json;

use super::super::super::{Look, Need, Scenario, World};
use super::{
    Admission, Owner, configuration, first_requests, install_crds, native_sidecars, unregister, vpa,
};

/// More than the component waits between two looks at its secret.
const A_LOOK: Duration = Duration::from_secs(61);
/// After so many days the component's CA is due.
const CA_DUE: TimeDelta = TimeDelta::days(3650 - 365);
/// So many pods must have come in before the next step.
const SOME: usize = 20;
const PAUSE: Duration = Duration::from_millis(20);

pub(super) fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "admission-rotates-certificates",
        about: "the CA of the webhook and the certificate under it are changed while pods are being created, and every one \
                of them is sized",
        needs: &[Need::NoControllers, Need::LocalWebhooks],
        run: |world| rotates(world).boxed_local(),
    }]
}

async fn rotates(world: &World) -> Result<()> {
    install_crds(world).await?;
    let result = rotated(world).await;
    result.and(unregister(world, &configuration(world)).await)
}

async fn rotated(world: &World) -> Result<()> {
    let owner = Owner::create(world, "web").await?;
    let sized = json!({"cpu": "30m", "memory": "40Mi"});
    let targets = json!([{"containerName": "app", "target": sized}]);
    vpa(world, "web", "ReplicaSet", json!({}), &targets).await?;
    let spec = json!({"containers": [{"name": "app", "resources": {"requests": {"cpu": "10m"}}}]});

    // The component's own time: the CA is made nine years ago, so that it is due an hour ago. Certificates are checked by
    // the machine's.
    let now = Clock::system().now();
    let time = VirtualClock::starting_at(now - CA_DUE - TimeDelta::hours(1));
    let mut config = Admission::config(world, native_sidecars(false))?;
    // Its time stands still while a lease is renewed.
    config.lease.interval = Duration::from_secs(20);
    let admission::config::Client::Url(url) = config.webhook.client.clone() else {
        anyhow::bail!("the webhook is not registered by URL");
    };
    let admission = Admission::start_in(world, config, time.clock());
    world
        .until("the webhook is registered", async || {
            Ok(match bundle(world).await? {
                Some(_) => Look::Done(()),
                None => Look::NotYet("no configuration".to_owned()),
            })
        })
        .await?;
    time.jump(now - TimeDelta::hours(3));
    world
        .until("pods are sized", async || {
            time.advance(A_LOOK).await;
            let pod = owner.pod(world, &spec).await?;
            Ok(match pod.and_then(|pod| first_requests(&pod, &sized)) {
                Ok(()) => Look::Done(()),
                Err(seen) => Look::NotYet(seen),
            })
        })
        .await?;
    let old = bundle(world).await?.context("no configuration")?;
    ensure!(authorities(&old).len() == 1, "more than one CA at first: {old}");

    let (made, done) = (Cell::new(0_usize), Cell::new(false));
    let creating = async {
        let mut missed = Vec::new();
        while !done.get() {
            let pod = owner.pod(world, &spec).await?;
            // One that a busy API server refused was not missed: the webhook's failures are ignored.
            if let Ok(pod) = pod
                && let Err(seen) = first_requests(&pod, &sized)
            {
                missed.push((made.get(), seen));
            }
            made.set(made.get() + 1);
            tokio::time::sleep(PAUSE).await;
        }
        Ok(missed)
    };
    let rotating = async {
        let rotated = async {
            more_pods(world, &made).await?;
            time.jump(now - TimeDelta::minutes(30));
            let both = world
                .until("both CAs are trusted", async || {
                    time.advance(A_LOOK).await;
                    let bundle = bundle(world).await?.unwrap_or_default();
                    Ok(match authorities(&bundle)[..] {
                        [_, _] => Look::Done(bundle),
                        _ => Look::NotYet(bundle),
                    })
                })
                .await?;
            ensure!(both.contains(old.trim()), "the old CA is not trusted any more");
            // The API server learns of it by its watch.
            more_pods(world, &made).await?;
            time.jump(now + TimeDelta::minutes(50));
            let newest = authorities(&both).first().cloned().unwrap_or_default();
            world
                .until("the certificate is under the new CA", async || {
                    time.advance(A_LOOK).await;
                    Ok(match shows_a_certificate_under(&newest, &url).await {
                        Ok(()) => Look::Done(()),
                        Err(error) => Look::NotYet(format!("{error:#}")),
                    })
                })
                .await?;
            more_pods(world, &made).await
        };
        let result = rotated.await;
        done.set(true);
        result
    };
    let (missed, rotated): (Result<Vec<_>>, Result<()>) = futures::join!(creating, rotating);
    rotated?;
    let missed = missed?;
    ensure!(
        missed.is_empty(),
        "{} of {} pods were missed: {missed:?}",
        missed.len(),
        made.get()
    );
    admission.stop().await
}

async fn more_pods(world: &World, made: &Cell<usize>) -> Result<()> {
    let before = made.get();
    world
        .until("more pods come in", async || {
            Ok(if made.get() >= before + SOME {
                Look::Done(())
            } else {
                Look::NotYet(format!("{} since", made.get() - before))
            })
        })
        .await
}

/// What the API server checks the webhook's certificate with.
async fn bundle(world: &World) -> Result<Option<String>> {
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(world.client.clone());
    let found = configurations.get_opt(&configuration(world)).await?;
    let webhook = found.and_then(|found| found.webhooks?.into_iter().next());
    let bundle = webhook.and_then(|webhook| webhook.client_config.ca_bundle);
    Ok(bundle.map(|bundle| String::from_utf8_lossy(&bundle.0).into_owned()))
}

fn authorities(bundle: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let parts = bundle.split_inclusive(END).filter(|part| part.contains(END));
    parts.map(str::to_owned).collect()
}

async fn shows_a_certificate_under(authority: &str, url: &str) -> Result<()> {
    let client = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(authority.as_bytes())?])
        .no_proxy()
        .build()?;
    client.get(url).send().await?;
    Ok(())
}
