//! The admission component in its shell: watches, certificates, server, registration and lease, each a task of its own.

use std::{
    net::TcpListener,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::Context as _;
use common::{
    daemon::{Context, DaemonError, ListenAddress, Shell},
    gates::Gates,
    kube::watch::WatchMetrics,
};
use tokio::sync::watch;

use crate::{
    config::{Config, Listen},
    feed::{self, Known},
    lease,
    metrics::Metrics,
    register::{self, Registration},
    reviewer::Reviewer,
    server,
    sidecarset::{
        self,
        injector::Injector,
        quota::Quotas,
        replica,
        settings::{Mode, Settings},
    },
    tls,
};

/// Runs the admission component until shutdown is requested. It has no loop, so its health never fails
/// (`spec/vpa.md` 5.3).
pub async fn run(config: Config, mut context: Context) -> Result<(), DaemonError> {
    let Config {
        namespaces,
        pods,
        listen,
        tls: tls_settings,
        certificates,
        webhook,
        lease: status_lease,
        sidecarsets,
        linger,
    } = config;
    let metrics = Metrics::register(&mut context.registry);
    let watch_metrics = WatchMetrics::register(&mut context.registry);
    let mut shell = Shell::start(context, None);
    let handles = shell.handles();

    let (known, wishes) = Known::new();
    let injector = injector(
        &mut shell,
        &watch_metrics,
        &known,
        sidecarsets,
        pods.gates.clone(),
    );
    let mut settled = injector.settled.clone();
    feed::start(&mut shell, &watch_metrics, &namespaces, &known, wishes);

    let (publish, current) = watch::channel(None);
    let part = handles.readiness.part("certificate");
    let server_name = webhook.client.server_name();
    let keeping = tls::keep(
        certificates,
        server_name,
        handles.clone(),
        metrics.clone(),
        part,
        publish,
    );
    shell.spawn("certificates", keeping);

    let asker = Duration::from_secs(webhook.timeout_seconds.unsigned_abs().into());
    let registration = Registration {
        namespaces,
        reinvocation: pods.reinvocation,
        quirks: pods.quirks,
        webhook,
        excluded: (injector.settings.mode == Mode::Inject).then(|| injector.settings.excluded.clone()),
    };
    let reviewer = Reviewer {
        known: known.clone(),
        settings: pods.into(),
        metrics: metrics.clone(),
        clock: handles.clock.clone(),
        injector,
        asker,
    };
    let listening = handles.readiness.part("webhook server");
    let (bound, address) = watch::channel(None);
    let shutdown = handles.shutdown.clone();
    let shown = current.clone();
    shell.spawn("webhook server", async move {
        let listener = listener(listen).await?;
        let local = listener.local_addr().context("the webhook has no address")?;
        let serving = tokio::select! {
            serving = tls::serving(shown, &tls_settings) => serving?,
            () = shutdown.requested() => None,
        };
        let Some((tls, following)) = serving else {
            shutdown.requested().await;
            return Ok(());
        };
        tracing::info!(address = %local, "serving the webhook");
        let serving = server::serve(listener, tls, server::router(reviewer), shutdown, linger);
        listening.ready();
        bound.send_replace(Some(local));
        // Certificates stop changing when their keeper stops, which is before the server does.
        tokio::join!(serving, following).0
    });

    let (registered, is_registered) = watch::channel(false);
    let part = handles.readiness.part("registration");
    let (registrar, shown, mut serving) = (handles.clone(), current.clone(), address.clone());
    shell.spawn("registration", async move {
        let ready = async {
            known.wait_synced().await;
            let _is_settled = settled.wait_for(|settled| *settled).await.is_ok();
            serving.wait_for(Option::is_some).await.is_ok()
        };
        tokio::select! {
            // Not before pods can be served, or the first ones would be missed.
            _ = ready => {}
            () = registrar.shutdown.requested() => return Ok(()),
        }
        if registration.webhook.register {
            register::keep(registration, shown, registrar, part, registered).await;
        } else {
            part.ready();
            registered.send_replace(true);
            registrar.shutdown.requested().await;
        }
        Ok(())
    });

    let mut address = address;
    shell.spawn("status lease", async move {
        let shutdown = handles.shutdown.clone();
        let bound = tokio::select! {
            bound = address.wait_for(Option::is_some) => bound.ok().and_then(|address| *address),
            () = shutdown.requested() => None,
        };
        match bound {
            Some(address) => {
                lease::keep(status_lease, address, is_registered, current, handles, metrics).await;
            }
            None => shutdown.requested().await,
        }
        Ok(())
    });
    shell.run().await
}

/// Who answers for SidecarSets, and the tasks that it needs.
fn injector(
    shell: &mut Shell,
    metrics: &WatchMetrics,
    known: &Known,
    settings: Settings,
    gates: Gates,
) -> Injector {
    let handles = shell.handles();
    let settings = Arc::new(settings);
    let counts = settings.mode == Mode::Inject && settings.exact_partition;
    let quotas = counts.then(|| {
        let identity = replica::identity(&handles.clock);
        let quotas = Arc::new(Mutex::new(Quotas::new(identity.clone())));
        let part = handles.readiness.part("leases of replicas");
        let keeping = replica::keep(
            identity,
            settings.namespace.clone(),
            Arc::clone(&quotas),
            handles.clone(),
            part,
            metrics.clone(),
        );
        shell.spawn("leases of replicas", async move {
            keeping.await;
            Ok(())
        });
        quotas
    });
    let settled = sidecarset::feed::start(shell, metrics, known, &settings, quotas.as_ref());
    Injector {
        settings,
        gates,
        clock: handles.clock.clone(),
        quotas,
        settled,
    }
}

async fn listener(listen: Listen) -> anyhow::Result<TcpListener> {
    match listen {
        Listen::On(listener) => Ok(listener),
        Listen::Port(port) => {
            let address: ListenAddress = format!(":{port}").parse()?;
            let listener = address.bind().await;
            let listener = listener.with_context(|| format!("cannot listen on --port {port}"))?;
            Ok(listener.into_std()?)
        }
    }
}
