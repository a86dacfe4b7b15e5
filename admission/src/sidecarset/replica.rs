//! The lease by which the replicas that count know of one another: each keeps its own, and watches those of all.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use common::{
    api::k8s::{Lease, LeaseSpec, ObjectMeta},
    daemon::{Handles, Part},
    kube::watch::{Change, Watch, WatchMetrics},
    time::to_k8s_micro,
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
    runtime::watcher,
};

use ring::rand::{SecureRandom as _, SystemRandom};

use super::quota::{Quotas, REPLICA_LAPSE};

/// The label of these leases.
const LABEL: &str = "outrigger.dev/sidecarset-replica";
/// How often a replica shows that it lives.
const RENEWAL: Duration = Duration::from_secs(5);

/// Who this is, for good: another after a restart, so that nobody takes the pods of the one for those of the other, and
/// another than one that started on this host at the same moment.
pub(crate) fn identity(clock: &common::clock::Clock) -> String {
    let mut bytes = [0; 4];
    let drawn = match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => u32::from_ne_bytes(bytes),
        Err(_) => 0,
    };
    format!("{}-{}-{drawn:08x}", hostname(), clock.now().timestamp_millis())
}

fn hostname() -> String {
    hostname::get().map_or_else(
        |_| "unknown".to_owned(),
        |name| name.to_string_lossy().to_lowercase(),
    )
}

/// Keeps the lease of this replica, and tells the quotas of the others, until shutdown is requested.
pub(crate) async fn keep(
    identity: String,
    namespace: String,
    quotas: Arc<Mutex<Quotas>>,
    handles: Handles,
    part: Part,
    metrics: WatchMetrics,
) {
    let api: Api<Lease> = Api::namespaced(handles.client.clone(), &namespace);
    // The identity has the hostname in it, so two replicas on one host, as in a test, have two leases.
    let name = format!("outrigger-sidecarset-{identity}");
    let (watch, _synced, _) = Watch::new("leases of replicas", part, &metrics);
    let clock = handles.clock.clone();
    let told = watch.run(
        api.clone(),
        watcher::Config::default().labels(LABEL),
        handles.shutdown.clone(),
        move |change: Change<'_, Lease>| {
            let mut quotas = quotas.lock().unwrap_or_else(PoisonError::into_inner);
            match change {
                Change::Applied(lease) => {
                    if let Some(holder) = holder(&lease) {
                        quotas.replica_seen(holder, clock.now());
                    }
                }
                Change::Deleted(lease) => {
                    if let Some(holder) = holder(&lease) {
                        quotas.replica_gone(holder);
                    }
                }
                // Whoever is not renewed lapses by itself.
                Change::Relisted(_) => {}
            }
        },
    );
    let renewing = async {
        if !handles.connect().await {
            return;
        }
        loop {
            if let Err(error) = renew(&api, &name, &identity, &handles).await {
                tracing::warn!(%error, lease = name, "cannot show the other replicas that this one counts");
            }
            tokio::select! {
                () = handles.clock.sleep(RENEWAL) => {}
                () = handles.shutdown.requested() => break,
            }
        }
        // The others need not wait for it to lapse.
        if let Err(error) = api.delete(&name, &DeleteParams::default()).await {
            tracing::debug!(%error, lease = name, "the lease lapses by itself");
        }
    };
    tokio::join!(told, renewing);
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref()
}

async fn renew(api: &Api<Lease>, name: &str, identity: &str, handles: &Handles) -> kube::Result<()> {
    let spec = LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: i32::try_from(REPLICA_LAPSE.as_secs()).ok(),
        renew_time: Some(to_k8s_micro(handles.clock.now())),
        ..LeaseSpec::default()
    };
    match api.get_opt(name).await? {
        Some(mut lease) => {
            lease.spec = Some(spec);
            api.replace(name, &PostParams::default(), &lease).await?;
        }
        None => {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(name.to_owned()),
                    labels: Some([(LABEL.to_owned(), "true".to_owned())].into()),
                    ..ObjectMeta::default()
                },
                spec: Some(spec),
            };
            api.create(&PostParams::default(), &lease).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_that_start_at_the_same_moment_are_two() {
        let clock = common::clock::VirtualClock::starting_at(chrono::DateTime::UNIX_EPOCH).clock();
        assert_ne!(identity(&clock), identity(&clock));
    }
}
