//! Leader election by a Lease: one of several replicas works, the others wait for it to stop or die.
//! The decisions are in [`candidate`]; here are the clock, the requests and the work.

pub mod candidate;
#[cfg(test)]
mod candidate_tests;
#[cfg(test)]
mod simulation;

use std::{
    future::Future,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, api::PostParams};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use self::candidate::{Action, Answer, Candidate, End, Event, Now, Request, holder};
use crate::{
    clock::{Clock, Moment, Ticker},
    daemon::{GoDuration, Handles, Shutdown, panic_message},
    kube::{client::layered, fence::FenceLayer},
};

/// Which lease, and how it is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSettings {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// How long others wait after the leader was last heard of.
    pub duration: Duration,
    /// How long the leader leads without having renewed.
    pub renew_deadline: Duration,
    /// How long to wait between tries.
    pub retry_period: Duration,
}

/// Why settings are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseSettingsError {
    /// An old leader could still be at work when a new one begins.
    #[error("the lease duration ({}) must be longer than the renew deadline ({})", GoDuration(*.duration), GoDuration(*.deadline))]
    DurationTooShort {
        /// The lease duration.
        duration: Duration,
        /// The renew deadline.
        deadline: Duration,
    },
    /// There would be no second try.
    #[error("the renew deadline ({}) must be longer than 1.2 times the retry period ({})", GoDuration(*.deadline), GoDuration(*.retry))]
    DeadlineTooShort {
        /// The renew deadline.
        deadline: Duration,
        /// The retry period.
        retry: Duration,
    },
    /// It would never rest.
    #[error("the retry period must be longer than zero")]
    NoRetryPeriod,
    /// Nameless.
    #[error("the lease needs a name and a namespace")]
    NoName,
}

impl LeaseSettings {
    /// These settings, if an election can work with them; the rules are client-go's.
    pub fn checked(self) -> Result<Self, LeaseSettingsError> {
        if self.name.is_empty() || self.namespace.is_empty() {
            return Err(LeaseSettingsError::NoName);
        }
        if self.retry_period.is_zero() {
            return Err(LeaseSettingsError::NoRetryPeriod);
        }
        if self.renew_deadline <= self.retry_period.mul_f64(1.2) {
            return Err(LeaseSettingsError::DeadlineTooShort {
                deadline: self.renew_deadline,
                retry: self.retry_period,
            });
        }
        if self.duration <= self.renew_deadline {
            return Err(LeaseSettingsError::DurationTooShort {
                duration: self.duration,
                deadline: self.renew_deadline,
            });
        }
        Ok(self)
    }

    /// The duration as it stands in the lease: whole seconds, and never less than was asked for.
    fn duration_seconds(&self) -> i32 {
        let up = u64::from(self.duration.subsec_nanos() > 0);
        i32::try_from(self.duration.as_secs().saturating_add(up)).unwrap_or(i32::MAX)
    }

    /// How long a lease stays its holder's: what it says itself, since the holder may run with other flags.
    fn duration_of(&self, lease: &Lease) -> Duration {
        let said = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        match said.and_then(|seconds| u64::try_from(seconds).ok()) {
            Some(seconds) => Duration::from_secs(seconds),
            None => self.duration,
        }
    }
}

/// Why an election ended otherwise than by a stop.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The lease could not be renewed in time. There may be another leader soon, so this one must end.
    #[error("lost master: lease {lease} could not be renewed within {}", GoDuration(*.deadline))]
    Expired {
        /// Namespace and name.
        lease: String,
        /// The renew deadline.
        deadline: Duration,
    },
    /// The lease is not ours any more.
    #[error("lost master: lease {lease} is held by somebody else")]
    Taken {
        /// Namespace and name.
        lease: String,
    },
    /// The work failed; the lease was given back.
    #[error(transparent)]
    Work(anyhow::Error),
}

/// `outrigger_leader`: 1 while this process leads.
#[derive(Clone, Debug)]
pub struct LeaseMetrics(Family<LeaseLabel, Gauge>);

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LeaseLabel {
    lease: String,
}

impl LeaseMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let leader = Family::default();
        registry.register(
            "outrigger_leader",
            "1 while this process holds the lease",
            leader.clone(),
        );
        Self(leader)
    }

    /// One of each, for the documentation.
    pub(super) fn sample(&self) {
        crate::daemon::metrics::sample(&self.0);
    }
}

/// The right to act as leader, for as long as it lasts. Cloning gives another handle to the same.
#[derive(Clone, Debug)]
pub struct Leadership {
    clock: Clock,
    until: watch::Receiver<Term>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Term {
    Unlimited,
    Until(Moment),
    Over,
}

impl Leadership {
    /// That of a daemon without an election.
    #[must_use]
    pub fn unlimited(clock: Clock) -> Self {
        Self {
            clock,
            until: watch::channel(Term::Unlimited).1,
        }
    }

    /// Whether it still lasts. The clock decides, not whoever keeps the lease: that one may be late.
    #[must_use]
    pub fn lasts(&self) -> bool {
        match *self.until.borrow() {
            Term::Unlimited => true,
            Term::Until(until) => self.clock.moment() < until,
            Term::Over => false,
        }
    }

    /// Waits until it is over.
    pub async fn over(mut self) {
        loop {
            let term = *self.until.borrow_and_update();
            let left = match term {
                Term::Over => return,
                Term::Unlimited => return std::future::pending().await,
                Term::Until(until) => until.since(self.clock.moment()),
            };
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = self.clock.sleep(left) => {}
                changed = self.until.changed() => if changed.is_err() { return },
            }
        }
    }

    /// A client that refuses every request once the leadership is over. For everything that a leader writes.
    #[must_use]
    pub fn guard(&self, client: &Client) -> Client {
        layered(client, &FenceLayer(self.clone()))
    }
}

/// An election that this process takes part in.
pub struct Election {
    /// Which lease.
    pub settings: LeaseSettings,
    /// Who this is; see [`identity`].
    pub identity: String,
    /// How to reach the API server.
    pub client: Client,
    /// The time.
    pub clock: Clock,
    /// When to stop.
    pub shutdown: Shutdown,
    /// Where it is told.
    pub metrics: LeaseMetrics,
}

impl Election {
    /// Waits for the lease and does the work while holding it. The work has to end when shutdown is requested; the
    /// lease is given back after that, so that the next one starts at once and not before. If the lease is lost, the
    /// work is dropped where it stands, and the process has to end.
    pub async fn lead<F>(self, work: impl FnOnce(Leadership) -> F) -> Result<(), LeaseError>
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let lease = format!("{}/{}", self.settings.namespace, self.settings.name);
        let (term, until) = watch::channel(Term::Over);
        let leadership = Leadership {
            clock: self.clock.clone(),
            until,
        };
        let leader = self
            .metrics
            .0
            .get_or_create_owned(&LeaseLabel { lease: lease.clone() });
        let mut candidate = Candidate::new(self.settings.clone(), self.identity.clone());
        let mut work = Work::Waiting(work);
        let mut event = Event::Wake;
        let mut waker = Waker {
            clock: self.clock.clone(),
            awake: None,
        };
        tracing::info!(lease, identity = self.identity, "waiting for the lease");
        let ended = loop {
            let action = candidate.step(event, self.now());
            let leads = candidate.leads_until();
            term.send_replace(leads.map_or(Term::Over, Term::Until));
            leader.set(i64::from(leads.is_some()));
            if leads.is_some() && !self.shutdown.is_requested() {
                work.start(&leadership, &lease);
            }
            event = match action {
                Action::End(end) => break end,
                Action::Wait(until) => tokio::select! {
                    biased;
                    () = work.ended() => Event::Stop,
                    () = self.shutdown.requested(), if !work.is_running() => Event::Stop,
                    () = waker.wake_at(until) => Event::Wake,
                },
                Action::Send(request, by) => tokio::select! {
                    biased;
                    answer = self.send(&request) => Event::Answer(answer),
                    () = self.clock.sleep(by.since(self.clock.moment())) => {
                        tracing::warn!(lease, "no answer about the lease in time");
                        Event::Answer(Answer::Failed)
                    }
                    // Reading changes nothing, so nobody has to wait for it.
                    () = self.shutdown.requested(), if request == Request::Read && candidate.follows() => Event::Stop,
                },
            };
        };
        match ended {
            End::Stopped => work.result().map_err(LeaseError::Work),
            End::Expired => Err(LeaseError::Expired {
                lease,
                deadline: self.settings.renew_deadline,
            }),
            End::Taken => Err(LeaseError::Taken { lease }),
        }
    }

    fn now(&self) -> Now {
        Now {
            moment: self.clock.moment(),
            calendar: self.clock.now(),
            jitter: chance(),
        }
    }

    async fn send(&self, request: &Request) -> Answer {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), &self.settings.namespace);
        let name = &self.settings.name;
        let answered = match request {
            Request::Read => api.get(name).await.map(Answer::Found),
            Request::Create(lease) => api.create(&PostParams::default(), lease).await.map(Answer::Saved),
            Request::Replace(lease) => {
                let replaced = api.replace(name, &PostParams::default(), lease).await;
                replaced.map(Answer::Saved)
            }
        };
        match answered {
            Ok(answer) => {
                if let Answer::Found(lease) = &answer {
                    tracing::debug!(holder = holder(lease), "read the lease");
                }
                answer
            }
            // Nothing to create it in is no missing lease, and trying again at once would not help.
            Err(kube::Error::Api(status)) if status.code == 404 && !matches!(request, Request::Create(_)) => {
                Answer::Missing
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Answer::Conflict,
            Err(error) => {
                tracing::warn!(%error, name, "cannot read or write the lease");
                Answer::Failed
            }
        }
    }
}

/// What the leader does, before, while and after it does it. Dropping it drops the work.
enum Work<W> {
    Waiting(W),
    Starting,
    Running(AbortOnDropHandle<anyhow::Result<()>>),
    Ended(anyhow::Result<()>),
}

impl<W, F> Work<W>
where
    W: FnOnce(Leadership) -> F,
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    fn start(&mut self, leadership: &Leadership, lease: &str) {
        *self = match std::mem::replace(self, Self::Starting) {
            Self::Waiting(work) => {
                tracing::info!(lease, "leading");
                // A task of its own: work that takes long between two awaits must not keep the lease from being renewed.
                Self::Running(AbortOnDropHandle::new(tokio::spawn(work(leadership.clone()))))
            }
            started => started,
        };
    }

    fn is_running(&self) -> bool {
        matches!(self, Self::Running(_))
    }

    /// Waits until running work has ended.
    async fn ended(&mut self) {
        let Self::Running(running) = self else {
            return std::future::pending().await;
        };
        let ended = match running.await {
            Ok(result) => result,
            Err(error) => Err(anyhow::anyhow!(
                "the leader's work panicked: {}",
                panic_message(error)
            )),
        };
        *self = Self::Ended(ended);
    }

    fn result(self) -> anyhow::Result<()> {
        match self {
            Self::Ended(result) => result,
            Self::Waiting(_) | Self::Starting | Self::Running(_) => Ok(()),
        }
    }
}

/// Wakes the candidate, and holds a virtual clock while the candidate is awake: a request takes no virtual time.
struct Waker {
    clock: Clock,
    awake: Option<Ticker>,
}

impl Waker {
    async fn wake_at(&mut self, moment: Moment) {
        self.awake = None;
        let mut ticker = self.clock.ticker(moment.since(self.clock.moment()));
        ticker.tick().await;
        self.awake = Some(ticker);
    }
}

/// Does the work: as the leader if there is an election, at once if there is none.
pub async fn lead<F>(
    settings: Option<LeaseSettings>,
    metrics: LeaseMetrics,
    handles: &Handles,
    work: impl FnOnce(Leadership) -> F,
) -> Result<(), LeaseError>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let Some(settings) = settings else {
        let leadership = Leadership::unlimited(handles.clock.clone());
        return work(leadership).await.map_err(LeaseError::Work);
    };
    let election = Election {
        settings,
        identity: identity(),
        client: handles.client.clone(),
        clock: handles.clock.clone(),
        shutdown: handles.shutdown.clone(),
        metrics,
    };
    election.lead(work).await
}

/// Who this process is in an election: `hostname_UUID`, as client-go's users have it. A restarted process is another.
#[must_use]
pub fn identity() -> String {
    let host = hostname::get().map_or_else(|_| "unknown".into(), |name| name.to_string_lossy().into_owned());
    let (high, low) = (random(), random());
    format!(
        "{host}_{:08x}-{:04x}-4{:03x}-{:x}{:03x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        8 + (low >> 62),
        (low >> 48) & 0xfff,
        low & 0xffff_ffff_ffff,
    )
}

fn chance() -> f64 {
    f64::from(u32::try_from(random() >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

/// The standard library seeds its hash maps from the operating system, which is all the randomness needed here.
fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}

#[cfg(test)]
mod tests;
