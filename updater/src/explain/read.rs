//! Reads what a question needs, with the watches of the daemon, for one namespace and once.

use std::time::Duration;

use anyhow::Context as _;
use common::{
    api::{OpenEnum as _, vpa::VerticalPodAutoscaler},
    clock::Clock,
    daemon::{Context, Namespaces, Shell, Shutdown},
    kube::{
        scale::Scales,
        sidecarsets::{self, GuardedSet},
        watch::{Change, WatchMetrics, WatchSet},
    },
    pod::Pod,
    quirks::Quirk,
    sidecarset::{FormulaIndex, Mode},
};
use kube::{Api, Client, api::ListParams};
use prometheus_client::registry::Registry;

use super::{EvictionsView, Explanation, turn};
use crate::{
    config::Config,
    decide::Evictions,
    evidence::{self, Evidence, Permit},
    feed::{Feed, VpaKey, watches::Shared},
    formula::Formulary,
    hopeless::ResizeSupport,
    settings::Settings,
};

/// How long everything may take to be listed.
const PATIENCE: Duration = Duration::from_secs(30);
const SCALE_ROUNDS: usize = 8;

/// Why there is no explanation.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The API server refuses, or does not answer.
    #[error("cannot read VPA {name} in namespace {namespace}: {source}")]
    Read {
        /// Where.
        namespace: String,
        /// Its name.
        name: String,
        /// Why not.
        source: kube::Error,
    },
    /// There is nothing to explain.
    #[error("there is no VPA {name} in namespace {namespace}: see kubectl get vpa -n {namespace}")]
    NoVpa {
        /// Where.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Something cannot be listed.
    #[error(
        "not everything could be listed within 30 s: you need to list and watch pods, VPAs, LimitRanges and controllers \
         in namespace {0}, and the admission controller's lease"
    )]
    Unlisted(String),
    /// SidecarSets are there, and may not be read.
    #[error(
        "cannot list SidecarSets, by which pods of this VPA were sized: {0}; --sidecarset-mode=off leaves them out"
    )]
    Sets(kube::Error),
    /// The pods of other namespaces may not be read.
    #[error("cannot list the pods over which the partition of a SidecarSet is counted: {0}")]
    Pods(kube::Error),
    /// A watch ended.
    #[error("cannot watch: {0:#}")]
    Watch(anyhow::Error),
}

/// Explains what the next loop of an updater with this configuration would do for a VPA.
///
/// # Errors
/// When there is no such VPA, or not everything can be read.
pub async fn explain(
    client: &Client,
    clock: &Clock,
    config: &Config,
    namespace: &str,
    name: &str,
) -> Result<Explanation, ExplainError> {
    let vpas: Api<VerticalPodAutoscaler> = Api::namespaced(client.clone(), namespace);
    let found = vpas.get_opt(name).await.map_err(|source| ExplainError::Read {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        source,
    })?;
    let Some(object) = found else {
        return Err(ExplainError::NoVpa {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        });
    };
    let (feed, scales) = read(client, clock, config, namespace).await?;
    let settings = Settings {
        resize_support: match client.apiserver_version().await {
            Ok(version) => ResizeSupport::of(&version.major, &version.minor),
            Err(_) => config.decisions.resize_support,
        },
        ..config.decisions.clone()
    };
    let sized = feed.lock().sized();
    let formulary = formulary(client, config, sized).await?;
    let now = clock.now();
    let mut feed = feed.lock();
    let fresh = config.admission_status.as_ref().map(|status| {
        let shown = feed.admission();
        shown.is_some_and(|shown| shown.is_fresh(status.timeout, now))
    });
    let mut evidence = Evidence::default();
    let newcomers = feed.take_newcomers(now - evidence::FRESH, &settings, |key| scales.get(key));
    for (workload, newcomer) in newcomers {
        evidence.saw(&workload, &newcomer, now);
    }
    let key = VpaKey {
        namespace: namespace.into(),
        name: name.into(),
    };
    let mut evictions = Evictions::with_lease(fresh.unwrap_or(true), settings.quirks);
    if evictions == Some(Evictions::Allowed) && !settings.quirks.has(Quirk::EvictsWithoutEvidence) {
        evictions = Some(match evidence.permit(&key.workload(), now) {
            Ok(Permit::Budget) => Evictions::Allowed,
            Ok(Permit::Probe) => Evictions::Probe,
            Err(skip) => Evictions::Stopped(skip),
        });
    }
    let Some(work) = feed.take(&key, |key| scales.get(key)) else {
        return Ok(Explanation {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            update_mode: object.spec.update_mode().as_str().to_owned(),
            admission_fresh: fresh,
            evictions: EvictionsView::Stopped("Mode"),
            groups: Vec::new(),
            pods: Vec::new(),
        });
    };
    Ok(turn(&work, &settings, evictions, fresh, &formulary, now))
}

/// What the formulas of SidecarSets are, and how far they reach. A partition is counted over all pods that the daemon sees, so
/// then those of this namespace do not do.
async fn formulary(client: &Client, config: &Config, mut sized: Vec<Pod>) -> Result<Formulary, ExplainError> {
    let mut index = FormulaIndex::default();
    if config.sidecarsets == Mode::Off {
        return Ok(Formulary::off());
    }
    if sized.is_empty() {
        return Ok(Formulary::default());
    }
    let sets: Api<GuardedSet> = Api::all(client.clone());
    match sets.list(&ListParams::default()).await {
        Ok(found) => found.into_iter().for_each(|set| {
            sidecarsets::set_changed(&mut index, &Change::Applied(set));
        }),
        // In plain text, so without a reason, if the kind is not installed.
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => return Err(ExplainError::Sets(error)),
    }
    if index.is_partitioned() {
        let pods: Api<Pod> = match &config.namespaces {
            Namespaces::Only(namespace) => Api::namespaced(client.clone(), namespace),
            Namespaces::All | Namespaces::Except(_) => Api::all(client.clone()),
        };
        let found = pods.list(&ListParams::default()).await;
        sized = found.map_err(ExplainError::Pods)?.items;
        sized.retain(|pod| {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            config.namespaces.include(namespace) && !pod.status.phase.is_terminal()
        });
    }
    Ok(Formulary::new(index, &sized))
}

async fn read(
    client: &Client,
    clock: &Clock,
    config: &Config,
    namespace: &str,
) -> Result<(Shared, Scales), ExplainError> {
    let shutdown = Shutdown::new();
    let shell = Shell::start(Context::new(client.clone(), clock.clone(), shutdown), None);
    let only = Namespaces::Only(namespace.to_owned());
    let mut nobody_looks = Registry::default();
    let metrics = WatchMetrics::register(&mut nobody_looks);
    let mut watches = WatchSet::new(shell.handles(), only.clone(), metrics);
    let feed = Shared::new(Feed::new(only));
    feed.watch(&mut watches, client, config.admission_status.as_ref());
    match tokio::time::timeout(PATIENCE, watches.synced()).await {
        Err(_) => return Err(ExplainError::Unlisted(namespace.to_owned())),
        Ok(synced) => _ = synced.context("listing").map_err(ExplainError::Watch)?,
    }
    let mut scales = Scales::new(client.clone(), clock.clone());
    for _ in 0..SCALE_ROUNDS {
        let needs = feed.lock().settle(|key| scales.get(key));
        if needs.is_empty() {
            break;
        }
        let changed = scales.refresh(needs, 1).await;
        feed.lock().scales_changed(&changed);
    }
    Ok((feed, scales))
}
