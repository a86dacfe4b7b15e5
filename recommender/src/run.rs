//! The recommender in its shell: connects, waits for its lease, reads what was known before, and goes round its loop
//! until it is asked to stop.

use std::{ffi::OsString, num::NonZeroUsize, pin::pin, time::Duration};

use anyhow::Result;
use chrono::TimeDelta;
use common::{
    clock::{Clock, Moment},
    daemon::{Context, DaemonError, Flags as _, Handles, Settings, Shell, pflag},
    kube::{
        lease::{self, Leadership, LeaseMetrics, LeaseSettings},
        scale::Scales,
        watch::{Relist, WatchMetrics, WatchSet},
    },
    quantity::{Bytes, MilliCpu},
};
use futures::AsyncBufReadExt as _;

use crate::{
    Args,
    checkpoints::Checkpoints,
    cluster::{ContainerUpdate, ModelConfig, Place, PodUpdate, Usage},
    estimate::EstimatorConfig,
    feed::{Feed, SampleCounts, Shared, external, resolve_targets, usage},
    history::{ExternalConfig, HistoryConfig, prometheus},
    metrics::Metrics,
    postprocess::PostProcessing,
    publish::publish,
    recommend::Rounding,
    status::StatusConfig,
    window::amount,
};

/// What the recommender is to do.
#[derive(Clone, Debug)]
pub struct Config {
    /// What all daemons' work depends on.
    pub settings: Settings,
    /// The period of the loop.
    pub interval: Duration,
    /// The lease to hold while working, if there may be several.
    pub leader_election: Option<LeaseSettings>,
    /// The name by which VPAs choose this recommender.
    pub recommender_name: String,
    /// Only pods that some VPA selects are known.
    pub memory_saver: bool,
    /// How much is written at the same time.
    pub workers: NonZeroUsize,
    /// How checkpoints are kept.
    pub checkpoints: CheckpointConfig,
    /// Where usage from before the start comes from.
    pub history: HistoryConfig,
    /// Where usage comes from, if not from `metrics.k8s.io`.
    pub external: Option<ExternalConfig>,
    /// How usage is counted.
    pub model: ModelConfig,
    /// How numbers are made from it.
    pub estimator: EstimatorConfig,
    /// How they are written.
    pub rounding: Rounding,
    /// What is done to them in the end.
    pub post_processing: PostProcessing,
}

impl Config {
    /// What a command line means, without the program's name: for a recommender inside another process.
    ///
    /// # Errors
    /// When the flags cannot be read, or contradict each other.
    pub fn from_flags<'f>(flags: impl IntoIterator<Item = &'f str>) -> Result<Self> {
        let program = std::iter::once(Args::NAME).chain(flags);
        let args: Args = pflag::try_parse(program.map(OsString::from))?;
        Ok(args.config()?)
    }

    /// How statuses are made.
    pub(crate) fn status(&self) -> StatusConfig {
        StatusConfig {
            estimator: self.estimator,
            rounding: self.rounding,
            post_processing: self.post_processing.clone(),
            quirks: self.model.quirks,
        }
    }
}

/// How checkpoints are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointConfig {
    /// How often to look for those whose VPA is gone.
    pub gc_interval: Duration,
    /// How long writing may take in one loop, and how long collecting may.
    pub timeout: Duration,
    /// How old a change may get before it is written.
    pub max_age: TimeDelta,
}

/// How long the list of metrics may take to come.
const METRICS_DEADLINE: Duration = Duration::from_secs(60);
/// How long the last checkpoints may take to be written; less than a daemon's grace.
const FLUSH_BUDGET: Duration = Duration::from_secs(20);

/// Runs the recommender until shutdown is requested.
pub async fn run(config: Config, mut context: Context) -> Result<(), DaemonError> {
    let lease_metrics = LeaseMetrics::register(&mut context.registry);
    let watch_metrics = WatchMetrics::register(&mut context.registry);
    let metrics = Metrics::register(&mut context.registry);
    let mut shell = Shell::start(context, Some(config.interval));
    let handles = shell.handles();
    shell.spawn("recommender", async move {
        if !handles.connect().await {
            return Ok(());
        }
        let leader_election = config.leader_election.clone();
        let work = handles.clone();
        Ok(
            lease::lead(leader_election, lease_metrics, &handles, move |leadership| {
                Recommender::new(config, work, &leadership, metrics, watch_metrics).work()
            })
            .await?,
        )
    });
    shell.run().await
}

/// A recommender at work.
struct Recommender {
    config: Config,
    handles: Handles,
    feed: Shared,
    watches: WatchSet,
    scales: Scales,
    checkpoints: Option<Checkpoints>,
    status: StatusConfig,
    metrics: Metrics,
    /// For everything that a leader writes.
    client: kube::Client,
}

impl Recommender {
    fn new(
        config: Config,
        handles: Handles,
        leadership: &Leadership,
        metrics: Metrics,
        watch_metrics: WatchMetrics,
    ) -> Self {
        let client = leadership.guard(&handles.client);
        let namespaces = config.settings.namespaces.clone();
        let feed = Shared::new(Feed::new(
            config.model,
            config.settings.clone(),
            config.recommender_name.clone(),
            config.memory_saver,
            metrics.quality.clone(),
        ));
        let checkpoints = matches!(config.history, HistoryConfig::Checkpoints).then(|| Checkpoints {
            client: client.clone(),
            clock: handles.clock.clone(),
            feed: feed.clone(),
            namespaces: namespaces.clone(),
            metrics: metrics.clone(),
            workers: config.workers.get(),
            shutdown: handles.shutdown.clone(),
        });
        let status = config.status();
        Self {
            watches: WatchSet::new(handles.clone(), namespaces, watch_metrics),
            scales: Scales::new(handles.client.clone(), handles.clock.clone()),
            config,
            handles,
            feed,
            checkpoints,
            status,
            metrics,
            client,
        }
    }

    /// The loop. Monitoring starts with it, and the first turn comes after one interval, as in VPA.
    async fn work(mut self) -> Result<()> {
        // The watches are started one after the other, and each is ready by itself before the next begins.
        let model = self.handles.readiness.part("model");
        self.feed.watch_targets(&mut self.watches);
        if !self.watches.synced().await? {
            return Ok(());
        }
        self.load_vpas().await;
        if !self.load_history().await {
            return Ok(());
        }
        let clock = self.handles.clock.clone();
        let relist = self.feed.watch_pods(&mut self.watches, clock.clone());
        self.feed.watch_evictions(&mut self.watches, clock);
        if !self.watches.synced().await? {
            return Ok(());
        }
        model.ready();
        let outcome = self.go_round(&relist).await;
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.write(TimeDelta::zero(), FLUSH_BUDGET).await;
        }
        outcome
    }

    /// One turn each interval, until shutdown is requested or a watch ends.
    async fn go_round(&mut self, relist: &Relist) -> Result<()> {
        let clock = self.handles.clock.clone();
        let shutdown = self.handles.shutdown.clone();
        let metrics = self.metrics.clone();
        let mut ticker = clock.ticker(self.config.interval);
        let mut collected = clock.moment();
        loop {
            self.handles.activity.mark();
            tokio::select! {
                () = ticker.tick() => {}
                () = shutdown.requested() => return Ok(()),
                ended = self.watches.ended() => return ended,
            }
            let mut steps = Steps::start(&clock, &metrics);
            let new_selectors = self.load_vpas().await;
            if new_selectors && self.config.memory_saver {
                relist.request();
            }
            if let Some(checkpoints) = &self.checkpoints {
                checkpoints.load_late().await;
            }
            steps.done("LoadVPAs");
            // Pods come by themselves.
            steps.done("LoadPods");
            // A metrics-server that hangs has more time than a daemon that is asked to end.
            tokio::select! {
                () = self.load_metrics() => {}
                () = shutdown.requested() => return Ok(()),
            }
            self.feed.lock().count_ooms(clock.now());
            steps.done("LoadMetrics");
            self.feed.lock().delete_gone_pods(clock.now());
            steps.done("DeleteRemovedPods");
            let workers = self.config.workers.get();
            publish(
                &self.client,
                &self.feed,
                &self.status,
                &self.metrics,
                workers,
                clock.now(),
                &shutdown,
            )
            .await?;
            steps.done("UpdateVPAs");
            self.maintain_checkpoints(&mut collected).await;
            steps.done("MaintainCheckpoints");
            self.collect_garbage();
            steps.done("GarbageCollect");
            steps.total();
        }
    }

    /// Resolves the targets of all VPAs; says whether there are selectors that were not there before.
    async fn load_vpas(&mut self) -> bool {
        resolve_targets(&self.feed, &mut self.scales, self.config.workers.get()).await
    }

    /// Reads what was known before; false if shutdown is requested first.
    async fn load_history(&self) -> bool {
        match (&self.config.history, &self.checkpoints) {
            (HistoryConfig::Checkpoints, Some(checkpoints)) => checkpoints.load().await,
            (HistoryConfig::Prometheus(config), _) => {
                self.load_prometheus(config).await;
                !self.handles.shutdown.is_requested()
            }
            (HistoryConfig::Checkpoints, None) => true,
        }
    }

    /// As in VPA the recommender goes on without a history that cannot be had; nothing is overwritten by that.
    async fn load_prometheus(&self, config: &prometheus::PrometheusConfig) {
        let now = self.handles.clock.now();
        let namespace = match &self.config.settings.namespaces {
            common::daemon::Namespaces::Only(namespace) => Some(namespace.as_str()),
            _ => None,
        };
        let pods = match prometheus::read(config, namespace, now, &self.metrics).await {
            Ok(pods) => pods,
            Err(error) => {
                tracing::error!(%error, "there is no history from Prometheus");
                return;
            }
        };
        tracing::info!(pods = pods.len(), "read the history from Prometheus");
        let mut counts = SampleCounts::default();
        for ((namespace, name), pod) in pods {
            let mut feed = self.feed.lock();
            let names = pod.containers.keys();
            let containers: Vec<_> = names
                .map(|name| ContainerUpdate {
                    name,
                    place: Place::Regular,
                })
                .collect();
            let update = PodUpdate {
                namespace: &namespace,
                name: &name,
                labels: &pod.labels,
                terminal: false,
                containers: &containers,
            };
            feed.cluster.upsert_pod(&update, now);
            for (container, history) in &pod.containers {
                let id = (namespace.as_str(), name.as_str(), container.as_str());
                for (time, cores) in &history.cpu {
                    let usage = Usage::Cpu(MilliCpu(amount(cores * 1000.0)));
                    counts.count(feed.cluster.add_sample(id, usage, *time, now));
                }
                for (time, bytes) in &history.memory {
                    let usage = Usage::Memory(Bytes(amount(*bytes)));
                    counts.count(feed.cluster.add_sample(id, usage, *time, now));
                }
            }
        }
        counts.report(&self.metrics);
    }

    /// Reads the usage of all pods. What cannot be read is an error and not an absence of usage: the model keeps what it
    /// has.
    async fn load_metrics(&self) {
        let outcome = self.read_metrics().await;
        self.metrics.metrics_response(outcome.is_err());
        match outcome {
            Ok(counts) => {
                tracing::debug!(?counts, "read the usage of pods");
                counts.report(&self.metrics);
            }
            Err(error) => tracing::error!("cannot read the usage of pods: {error:#}"),
        }
    }

    async fn read_metrics(&self) -> Result<SampleCounts> {
        if let Some(config) = &self.config.external {
            let (client, now) = (&self.handles.client, self.handles.clock.now());
            let asked = external::read(client, &self.feed, config, self.config.workers.get(), now);
            return tokio::time::timeout(METRICS_DEADLINE, asked).await?;
        }
        let path = match &self.config.settings.namespaces {
            common::daemon::Namespaces::Only(namespace) => {
                format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods")
            }
            _ => "/apis/metrics.k8s.io/v1beta1/pods".to_owned(),
        };
        let request = http::Request::get(path).body(Vec::new())?;
        tokio::time::timeout(METRICS_DEADLINE, self.stream_metrics(request)).await?
    }

    async fn stream_metrics(&self, request: http::Request<Vec<u8>>) -> Result<SampleCounts> {
        let mut answer = pin!(self.handles.client.request_stream(request).await?);
        let mut reader = usage::Reader::default();
        let mut counts = SampleCounts::default();
        loop {
            let chunk = answer.fill_buf().await?;
            if chunk.is_empty() {
                break;
            }
            let read = chunk.len();
            let now = self.handles.clock.now();
            reader.take(chunk, |sample| {
                self.feed.lock().add_usage(&sample, now, &mut counts);
            })?;
            answer.consume_unpin(read);
        }
        reader.end()?;
        Ok(counts)
    }

    async fn maintain_checkpoints(&self, collected: &mut Moment) {
        let Some(checkpoints) = &self.checkpoints else {
            return;
        };
        let CheckpointConfig {
            gc_interval,
            timeout,
            max_age,
        } = self.config.checkpoints;
        checkpoints.write(max_age, timeout).await;
        let now = self.handles.clock.moment();
        if now.since(*collected) >= gc_interval {
            *collected = now;
            match tokio::time::timeout(timeout, checkpoints.collect()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "cannot collect checkpoints"),
                Err(_) => tracing::warn!("collecting checkpoints took too long and goes on next time"),
            }
        }
    }

    fn collect_garbage(&self) {
        let mut feed = self.feed.lock();
        let Feed { cluster, vpas, .. } = &mut *feed;
        cluster.collect_garbage(self.handles.clock.now(), |namespace, name| {
            let row = vpas.ours.get(&(namespace.to_owned(), name.to_owned()));
            row.is_some_and(|row| row.unsupported.is_none())
        });
    }
}

/// Measures the steps of a loop.
struct Steps<'m> {
    clock: &'m Clock,
    metrics: &'m Metrics,
    started: Moment,
    last: Moment,
}

impl<'m> Steps<'m> {
    fn start(clock: &'m Clock, metrics: &'m Metrics) -> Self {
        let now = clock.moment();
        Self {
            clock,
            metrics,
            started: now,
            last: now,
        }
    }

    fn done(&mut self, step: &'static str) {
        let now = self.clock.moment();
        self.metrics.step(step, now.since(self.last));
        self.last = now;
    }

    fn total(self) {
        self.metrics
            .step("total", self.clock.moment().since(self.started));
    }
}
