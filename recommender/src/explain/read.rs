//! Reads what the daemon would know of one VPA, in the order in which the daemon does: the VPA, the controllers, the
//! checkpoints, the pods. What is not in a checkpoint yet is not known here either.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use common::{
    api::{
        k8s::{DaemonSet, Deployment, Job, ReplicaSet, StatefulSet},
        vpa::VerticalPodAutoscaler,
    },
    clock::Clock,
    daemon::{Namespaces, Settings},
    kube::{
        scale::Scales,
        watch::{Change, SlimCronJob, SlimReplicationController, SlimSelecting, WatchedController},
    },
    pod::Pod,
};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::{Explanation, explanation};
use crate::{
    checkpoints,
    feed::{Feed, Shared, page, resolve_targets},
    history::HistoryConfig,
    metrics::QualityMetrics,
    run::Config,
};

/// Why there is no explanation.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The API server refuses, or does not answer.
    #[error("cannot list {what} in namespace {namespace}: {source}")]
    List {
        /// What was asked for.
        what: &'static str,
        /// Where.
        namespace: String,
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
    /// Somebody else's.
    #[error("VPA {name} is not served by recommender {recommender:?}: give --recommender-name")]
    OtherRecommender {
        /// The VPA's name.
        name: String,
        /// Ours.
        recommender: String,
    },
    /// The flags leave it out.
    #[error(
        "the flags leave namespace {0} out: see --vpa-object-namespace and --ignored-vpa-object-namespaces"
    )]
    OtherNamespace(String),
    /// Nothing is written down anywhere.
    #[error("with --storage=prometheus there are no checkpoints to explain from")]
    NoCheckpoints,
    /// Its scale could not be asked for.
    #[error("the target of VPA {0} could not be asked for its scale: try again")]
    NoTarget(String),
}

/// Explains a VPA from what the API server knows now.
///
/// # Errors
/// When something cannot be read, or is not this recommender's.
pub async fn explain(
    client: &Client,
    clock: &Clock,
    config: &Config,
    namespace: &str,
    name: &str,
) -> Result<Explanation, ExplainError> {
    if !config.settings.namespaces.include(namespace) {
        return Err(ExplainError::OtherNamespace(namespace.to_owned()));
    }
    if !matches!(config.history, HistoryConfig::Checkpoints) {
        return Err(ExplainError::NoCheckpoints);
    }
    let reader = Reader {
        client,
        namespace,
        now: clock.now(),
        feed: Shared::new(Feed::new(
            config.model,
            Settings {
                namespaces: Namespaces::Only(namespace.to_owned()),
                gates: config.settings.gates.clone(),
            },
            config.recommender_name.clone(),
            true,
            QualityMetrics::default(),
        )),
    };
    let key = (namespace.to_owned(), name.to_owned());
    reader.vpa(name, &config.recommender_name).await?;
    reader.controllers().await?;
    let mut scales = Scales::new(client.clone(), clock.clone());
    resolve_targets(&reader.feed, &mut scales, config.workers.get()).await;
    let written = reader.checkpoints(name).await?;
    reader.pods().await?;
    let feed = reader.feed.lock();
    let row = feed.vpas.ours.get(&key);
    let view = feed.cluster.vpa(namespace, name);
    row.zip(view)
        .map(|(row, view)| explanation(&key, row, &view, &config.status(), &written))
        .ok_or_else(|| ExplainError::NoTarget(name.to_owned()))
}

struct Reader<'r> {
    client: &'r Client,
    namespace: &'r str,
    now: DateTime<Utc>,
    feed: Shared,
}

impl Reader<'_> {
    async fn vpa(&self, name: &str, recommender: &str) -> Result<(), ExplainError> {
        let api: Api<VerticalPodAutoscaler> = Api::namespaced(self.client.clone(), self.namespace);
        let found = api
            .get_opt(name)
            .await
            .map_err(|source| self.failed("VPAs", source))?;
        let vpa = found.ok_or_else(|| ExplainError::NoVpa {
            namespace: self.namespace.to_owned(),
            name: name.to_owned(),
        })?;
        let mut feed = self.feed.lock();
        feed.vpa(Change::Applied(vpa));
        if feed.vpas.ours.is_empty() {
            return Err(ExplainError::OtherRecommender {
                name: name.to_owned(),
                recommender: recommender.to_owned(),
            });
        }
        Ok(())
    }

    async fn controllers(&self) -> Result<(), ExplainError> {
        self.controllers_of::<SlimSelecting<DaemonSet>>("DaemonSets")
            .await?;
        self.controllers_of::<SlimSelecting<Deployment>>("Deployments")
            .await?;
        self.controllers_of::<SlimSelecting<ReplicaSet>>("ReplicaSets")
            .await?;
        self.controllers_of::<SlimSelecting<StatefulSet>>("StatefulSets")
            .await?;
        self.controllers_of::<SlimSelecting<Job>>("Jobs").await?;
        self.controllers_of::<SlimCronJob>("CronJobs").await?;
        self.controllers_of::<SlimReplicationController>("ReplicationControllers")
            .await
    }

    async fn controllers_of<C: WatchedController>(&self, what: &'static str) -> Result<(), ExplainError> {
        self.list::<C>(what, None, |object| {
            self.feed.lock().controller(Change::Applied(object));
        })
        .await
    }

    /// Begins with the checkpoints, and gives when each was written, by container.
    async fn checkpoints(&self, vpa: &str) -> Result<BTreeMap<String, DateTime<Utc>>, ExplainError> {
        let mut written = BTreeMap::new();
        let namespaces = Namespaces::Only(self.namespace.to_owned());
        checkpoints::list(self.client, &namespaces, |checkpoint| {
            if checkpoint.spec.vpa_object_name != vpa {
                return;
            }
            checkpoints::load_one(&self.feed, &checkpoint, self.now);
            let time = checkpoint.status.and_then(|status| status.last_update_time);
            if let Some(time) = time {
                written.insert(checkpoint.spec.container_name, time);
            }
        })
        .await
        .map_err(|source| self.failed("checkpoints", source))?;
        Ok(written)
    }

    async fn pods(&self) -> Result<(), ExplainError> {
        self.list::<Pod>("pods", Some("status.phase!=Pending"), |pod| {
            self.feed.lock().pod(Change::Applied(pod), self.now);
        })
        .await
    }

    async fn list<K>(
        &self,
        what: &'static str,
        fields: Option<&str>,
        mut tell: impl FnMut(K),
    ) -> Result<(), ExplainError>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), self.namespace);
        let mut next: Option<String> = None;
        loop {
            let mut parameters = page(next.as_deref());
            parameters.field_selector = fields.map(str::to_owned);
            let list = api.list(&parameters).await;
            let list = list.map_err(|source| self.failed(what, source))?;
            list.items.into_iter().for_each(&mut tell);
            next = list.metadata.continue_.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(());
            }
        }
    }

    fn failed(&self, what: &'static str, source: kube::Error) -> ExplainError {
        ExplainError::List {
            what,
            namespace: self.namespace.to_owned(),
            source,
        }
    }
}
