//! The updater in its shell: connects, waits for its lease, and goes round its loop until it is asked to stop.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use anyhow::Result;
use chrono::{DateTime, Utc};
use common::{
    clock::{Clock, Moment},
    daemon::{Context, DaemonError, Handles, Shell},
    kube::{
        lease::{self, Leadership, LeaseMetrics},
        scale::Scales,
        watch::{WatchMetrics, WatchSet},
    },
    pod::Pod,
    quirks::Quirk,
    sidecarset::Mode,
};
use futures::{FutureExt as _, future::OptionFuture};

use crate::{
    act::{Actor, Done},
    config::{AdmissionStatus, Config},
    decide::{Act, Command, Evictions, Fate, Outcome, Turn},
    events::{Teller, Told},
    evidence::{self, Evidence, Finding, Permit},
    feed::{Feed, Tally, VpaKey, Work, watches::Shared},
    formula::Formulary,
    hopeless::ResizeSupport,
    memory::Memory,
    metrics::{Failure, Metrics},
    rate::Limiter,
    reason::Skip,
    settings::Settings,
    sidecarset::{keep::Keeper, sets::Known},
};

/// How many links a chain of scales may have.
const SCALE_ROUNDS: usize = 8;
/// How many scales are asked for side by side.
const SCALE_WORKERS: usize = 8;
/// How often a cluster that cannot do everything in place is asked whether it can by now.
const VERSION_AGAIN: Duration = Duration::from_secs(3600);

/// Runs the updater until shutdown is requested.
pub async fn run(config: Config, mut context: Context) -> Result<(), DaemonError> {
    let lease_metrics = LeaseMetrics::register(&mut context.registry);
    let watch_metrics = WatchMetrics::register(&mut context.registry);
    let metrics = Metrics::register(&mut context.registry);
    let mut shell = Shell::start(context, Some(config.interval));
    let handles = shell.handles();
    shell.spawn("updater", async move {
        if !handles.connect().await {
            return Ok(());
        }
        let leader_election = config.leader_election.clone();
        let work = handles.clone();
        Ok(
            lease::lead(leader_election, lease_metrics, &handles, move |leadership| {
                let mode = config.sidecarsets;
                let keeper = (mode == Mode::Inject).then(|| {
                    let (namespace, served) =
                        (config.sidecarset_revisions.clone(), config.namespaces.clone());
                    Keeper::new(
                        namespace,
                        served,
                        work.clone(),
                        &leadership,
                        watch_metrics.clone(),
                    )
                });
                let sets = (mode != Mode::Off).then(Known::default);
                let follow = sets
                    .clone()
                    .map(|sets| sets.follow(work.clone(), watch_metrics.clone()));
                let updater = Updater::new(config, work, &leadership, sets, metrics, watch_metrics);
                async move {
                    let keeping = OptionFuture::from(keeper.map(Keeper::work)).map(Option::transpose);
                    let following = OptionFuture::from(follow).map(Option::transpose);
                    tokio::try_join!(updater.work(), keeping, following)?;
                    Ok(())
                }
            })
            .await?,
        )
    });
    shell.run().await
}

/// An updater at work.
struct Updater {
    handles: Handles,
    interval: Duration,
    admission: Option<AdmissionStatus>,
    settings: Arc<Settings>,
    feed: Shared,
    watches: WatchSet,
    scales: Scales,
    memory: Memory,
    evidence: Evidence,
    /// The sets, unless they are none of our business.
    sets: Option<Known>,
    formulary: Formulary,
    actor: Actor,
    teller: Teller,
    evictions: Limiter,
    resizes: Limiter,
    metrics: Metrics,
    /// When the cluster was last asked what it can do.
    asked_version: Moment,
    /// Where the next loop begins, if the last one did not come to its end.
    resume: Option<VpaKey>,
}

/// Why a loop does not come to its end.
enum CutOff {
    RateLimit,
    Time,
}

impl Updater {
    fn new(
        config: Config,
        handles: Handles,
        leadership: &Leadership,
        sets: Option<Known>,
        metrics: Metrics,
        watch_metrics: WatchMetrics,
    ) -> Self {
        let Config {
            namespaces,
            interval,
            leader_election: _,
            admission_status,
            rate_limit,
            decisions,
            sidecarsets: _,
            sidecarset_revisions: _,
        } = config;
        // For everything that a leader writes.
        let client = leadership.guard(&handles.client);
        Self {
            interval,
            admission: admission_status,
            settings: Arc::new(decisions),
            feed: Shared::new(Feed::new(namespaces.clone())),
            watches: WatchSet::new(handles.clone(), namespaces, watch_metrics),
            scales: Scales::new(handles.client.clone(), handles.clock.clone()),
            memory: Memory::default(),
            evidence: Evidence::default(),
            formulary: match &sets {
                Some(_) => Formulary::default(),
                None => Formulary::off(),
            },
            sets,
            teller: Teller::new(client.clone(), handles.clock.clone()),
            actor: Actor { client },
            evictions: Limiter::new(rate_limit),
            resizes: Limiter::new(rate_limit),
            metrics,
            asked_version: handles.clock.moment(),
            resume: None,
            handles,
        }
    }

    /// The loop. Monitoring starts with it, and the first turn comes after one interval, as in VPA.
    async fn work(mut self) -> Result<()> {
        self.feed
            .watch(&mut self.watches, &self.handles.client, self.admission.as_ref());
        if !self.watches.synced().await? {
            return Ok(());
        }
        self.ask_version().await;
        let (clock, shutdown) = (self.handles.clock.clone(), self.handles.shutdown.clone());
        let mut ticker = clock.ticker(self.interval);
        loop {
            self.handles.activity.mark();
            tokio::select! {
                () = ticker.tick() => {}
                () = shutdown.requested() => return Ok(()),
                ended = self.watches.ended() => return ended,
            }
            self.go_round(&clock).await;
        }
    }

    /// One loop.
    async fn go_round(&mut self, clock: &Clock) {
        let begun = clock.moment();
        let mut steps = Steps::start(clock, self.metrics.clone());
        if self.settings.resize_support != ResizeSupport::Full
            && begun.since(self.asked_version) >= VERSION_AGAIN
        {
            self.ask_version().await;
        }
        self.match_pods().await;
        steps.done("ListVPAs");
        // Pods come by themselves.
        steps.done("ListPods");
        let now = clock.now();
        self.learn(now).await;
        self.look_up_formulas();
        steps.done("FilterPods");
        let evictions = self.evictions(now);
        steps.done("AdmissionInit");
        if let Some(evictions) = evictions {
            self.take_turns(evictions, begun, now).await;
        }
        steps.done("EvictPods");
        let feed = self.feed.lock();
        self.metrics.tallies(feed.tallies());
        self.metrics.keep(|key| feed.acts(key));
        drop(feed);
        let now = clock.now();
        let open = self.evidence.open_breakers(now);
        self.metrics.breakers(open, self.evidence.is_open_for_all(now));
        steps.total();
    }

    /// Resolves which pods are whose; asks for scales until everything is known that can be.
    async fn match_pods(&mut self) {
        let used = self.feed.lock().scales();
        let changed = self.scales.refresh(used, SCALE_WORKERS).await;
        self.feed.lock().scales_changed(&changed);
        for _ in 0..SCALE_ROUNDS {
            let needs = self.feed.lock().settle(|key| self.scales.get(key));
            if needs.is_empty() {
                return;
            }
            let changed = self.scales.refresh(needs, SCALE_WORKERS).await;
            self.feed.lock().scales_changed(&changed);
        }
    }

    /// What the pods that came and went since the last loop tell.
    async fn learn(&mut self, now: DateTime<Utc>) {
        let (gone, newcomers) = {
            let mut feed = self.feed.lock();
            let gone = feed.take_gone();
            let since = now - evidence::FRESH;
            let newcomers = feed.take_newcomers(since, &self.settings, |key| self.scales.get(key));
            self.evidence.keep(|workload| feed.acts(&VpaKey::from(workload)));
            (gone, newcomers)
        };
        for uid in gone {
            self.memory.forget(&uid);
        }
        for (workload, newcomer) in newcomers {
            let finding = self.evidence.saw(&workload, &newcomer, now);
            if let Finding::Fails { until } = finding {
                tracing::warn!(
                    namespace = workload.namespace,
                    vpa = workload.vpa,
                    %until,
                    "a pod that came after an eviction was not sized; nothing more is evicted for a while"
                );
                self.metrics.breaker_opened();
                let uid = self.feed.lock().uid(&VpaKey::from(&workload)).unwrap_or_default();
                self.teller
                    .tell(Told::breaker_opened(&workload, &uid, until))
                    .await;
            }
        }
        self.evidence.survey(now);
    }

    /// What the formulas of SidecarSets are by now, and how far they reach.
    fn look_up_formulas(&mut self) {
        let Some(sets) = &self.sets else {
            return;
        };
        let index = sets.get();
        let mut feed = self.feed.lock();
        let sized = if index.moves() { feed.sized() } else { Vec::new() };
        let formulary = Formulary::new(index, &sized);
        if formulary.is_news_to(&self.formulary) {
            feed.formulas_changed();
        }
        self.formulary = formulary;
    }

    /// What may be evicted in this loop; none if not even resizes are made.
    fn evictions(&self, now: DateTime<Utc>) -> Option<Evictions> {
        let is_fresh = self.admission.as_ref().is_none_or(|status| {
            let shown = self.feed.lock().admission();
            shown.is_some_and(|shown| shown.is_fresh(status.timeout, now))
        });
        self.metrics.admission(is_fresh);
        if !is_fresh {
            tracing::warn!("the admission controller's lease is not fresh; nothing is evicted");
        }
        Evictions::with_lease(is_fresh, self.settings.quirks)
    }

    /// The turns of all VPAs that a turn may give something new for.
    async fn take_turns(&mut self, evictions: Evictions, begun: Moment, now: DateTime<Utc>) {
        let mut due = self.feed.lock().due(now);
        if let Some(resume) = self.resume.take() {
            let at = due.partition_point(|key| *key < resume);
            due.rotate_left(at);
        }
        for key in due {
            let turn = AssertUnwindSafe(self.take_turn(&key, evictions, begun, now));
            match turn.catch_unwind().await {
                Ok(None) => {}
                Ok(Some(cut_off)) => {
                    match cut_off {
                        CutOff::RateLimit => tracing::info!("the rate limit ends this loop"),
                        CutOff::Time => {
                            tracing::info!("time is up for this loop; the rest is for the next one");
                        }
                    }
                    self.resume = Some(key);
                    return;
                }
                Err(_) => {
                    self.metrics.panicked();
                    tracing::error!(vpa = %key, "a bug ended the turn of a VPA");
                }
            }
        }
    }

    /// One VPA's turn.
    async fn take_turn(
        &mut self,
        key: &VpaKey,
        evictions: Evictions,
        begun: Moment,
        now: DateTime<Utc>,
    ) -> Option<CutOff> {
        let work = self.feed.lock().take(key, |key| self.scales.get(key))?;
        let pods: Vec<&Pod> = work.pods.iter().collect();
        let settings = self.settings.clone();
        let evictions = self.permitted(key, evictions, now);
        let formulas: Vec<_> = pods.iter().map(|pod| self.formulary.of(pod)).collect();
        let mut turn = Turn::begin(
            &pods,
            &work.vpa,
            &work,
            &work.limit_ranges,
            &settings,
            evictions,
            now,
        )
        .with_formulas(&formulas);
        let mut cut_off = None;
        while let Some(command) = turn.next(&mut self.memory, now) {
            cut_off = self.wait(&command, &work, begun).await;
            if let Some(cut_off) = &cut_off {
                turn.give_up(match cut_off {
                    CutOff::RateLimit => Skip::RateLimited,
                    CutOff::Time => Skip::OutOfTime,
                });
                break;
            }
            let outcome = self.carry_out(&command, &work, now).await;
            turn.done(outcome, &mut self.memory);
        }
        let mut tally = Tally {
            pods: pods.len(),
            ..Tally::default()
        };
        tally.count(turn.fates());
        match work.vpa.way() {
            Some(way) if way.resizes() => tally.updatable = turn.lined_up(),
            Some(_) => tally.evictable = turn.lined_up(),
            None => {}
        }
        let fates = turn.fates().to_vec();
        self.feed.lock().note(key, tally, turn.quiet_until());
        self.tell_reasons(&work, &fates).await;
        cut_off
    }

    fn permitted(&self, key: &VpaKey, evictions: Evictions, now: DateTime<Utc>) -> Evictions {
        if evictions != Evictions::Allowed || self.settings.quirks.has(Quirk::EvictsWithoutEvidence) {
            return evictions;
        }
        match self.evidence.permit(&key.workload(), now) {
            Ok(Permit::Budget) => Evictions::Allowed,
            Ok(Permit::Probe) => Evictions::Probe,
            Err(skip) => Evictions::Stopped(skip),
        }
    }

    /// Waits until a command may be carried out; or says why the loop ends.
    async fn wait(&mut self, command: &Command<'_>, work: &Work, begun: Moment) -> Option<CutOff> {
        let taken = self.handles.clock.moment().since(begun);
        if self.handles.shutdown.is_requested() || taken >= self.interval {
            return Some(CutOff::Time);
        }
        let patience = self.interval.saturating_sub(taken);
        let (limiter, failure) = match &command.act {
            Act::Evict => (&mut self.evictions, Failure::EvictionRateLimit),
            Act::Resize(_) => (&mut self.resizes, Failure::UpdateRateLimit),
            Act::Unboost(_) => return None,
        };
        let may_go = tokio::select! {
            may_go = limiter.wait(patience) => may_go,
            () = self.handles.shutdown.requested() => return Some(CutOff::Time),
        };
        if may_go {
            return None;
        }
        let metrics = self.metrics.of(&work.key, &work.vpa, work.pods.len());
        metrics.failed(failure);
        Some(CutOff::RateLimit)
    }

    /// Does what was decided, and tells of it.
    async fn carry_out(&mut self, command: &Command<'_>, work: &Work, now: DateTime<Utc>) -> Outcome {
        let Command { pod, act } = command;
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let namespace = &*work.key.namespace;
        let (done, what) = match act {
            Act::Unboost(resize) => (self.actor.resize(pod, resize).await, "end the boost of"),
            Act::Resize(resize) => (self.actor.resize(pod, resize).await, "resize"),
            Act::Evict => (self.actor.evict(pod).await, "evict"),
        };
        let metrics = self.metrics.of(&work.key, &work.vpa, work.pods.len());
        match done {
            Done::Yes(changed) => {
                tracing::info!(namespace, pod = name, vpa = %work.key, "did {what} a pod");
                match act {
                    Act::Evict => {
                        metrics.evicted();
                        self.await_replacement(pod, work, now);
                        self.feed.lock().evicted(&work.key, name);
                        for told in Told::evicted(pod, &work.key, &work.uid) {
                            self.teller.tell(told).await;
                        }
                    }
                    Act::Resize(_) | Act::Unboost(_) => {
                        metrics.updated();
                        if let Some(changed) = changed {
                            self.feed.lock().resized(*changed);
                        }
                        self.teller.tell(Told::resized(pod)).await;
                    }
                }
                Outcome::Done
            }
            Done::No(outcome, error) => {
                tracing::warn!(namespace, pod = name, vpa = %work.key, error, "cannot {what} a pod");
                metrics.failed(match (act, outcome) {
                    (Act::Evict, _) => Failure::Eviction,
                    (Act::Unboost(_), _) => Failure::Unboost,
                    (Act::Resize(_), Outcome::NodeCapacity) => Failure::UpdateInfeasible,
                    (Act::Resize(_), _) => Failure::Update,
                });
                if let (Act::Evict, Outcome::Unanswered) = (act, outcome) {
                    self.await_replacement(pod, work, now);
                }
                outcome
            }
        }
    }

    /// From now on a pod that comes may show whether this eviction did any good.
    fn await_replacement(&mut self, pod: &Pod, work: &Work, now: DateTime<Utc>) {
        self.evidence.evicted(&work.key.workload(), work.shape(pod), now);
        self.feed.lock().await_replacement(&work.key);
    }

    /// Tells of the pods that something holds back now that did not before.
    async fn tell_reasons(&mut self, work: &Work, fates: &[Fate]) {
        let metrics = self.metrics.of(&work.key, &work.vpa, work.pods.len());
        for (pod, fate) in work.pods.iter().zip(fates) {
            let reason = match fate {
                Fate::Skipped(skip) if skip.holds_back() => Some(*skip),
                Fate::Skipped(_) | Fate::Unboosted | Fate::Resized | Fate::Evicted => None,
            };
            if reason == Some(Skip::InfeasibleBefore) {
                metrics.infeasible();
            }
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let is_new = self.feed.lock().tell(&work.key, name, reason);
            let Some(reason) = reason.filter(|_| is_new) else {
                continue;
            };
            if self.teller.may_tell() {
                self.teller.tell(Told::skipped(pod, reason)).await;
            } else {
                // For another time.
                self.feed.lock().tell(&work.key, name, None);
            }
        }
    }

    /// Learns what the cluster can do in place.
    async fn ask_version(&mut self) {
        self.asked_version = self.handles.clock.moment();
        let support = match self.handles.client.apiserver_version().await {
            Ok(version) => ResizeSupport::of(&version.major, &version.minor),
            Err(error) => {
                tracing::warn!(%error, "cannot ask for the version of the API server");
                return;
            }
        };
        if support != self.settings.resize_support {
            tracing::info!(?support, "the cluster's resizes in place");
            self.settings = Arc::new(Settings {
                resize_support: support,
                ..Settings::clone(&self.settings)
            });
            self.feed.lock().everything_changed();
        }
    }
}

/// Measures the steps of a loop.
struct Steps<'c> {
    clock: &'c Clock,
    metrics: Metrics,
    started: Moment,
    last: Moment,
}

impl<'c> Steps<'c> {
    fn start(clock: &'c Clock, metrics: Metrics) -> Self {
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
        let took = self.clock.moment().since(self.started);
        self.metrics.step("total", took);
    }
}
