//! The election as a state machine: what one candidate does next, given what it has seen and the time. Compatible with
//! client-go's elector, and stricter in one thing: leadership counts from the start of the request that won or renewed
//! it, so it is over here before anybody else may take it.

use chrono::{DateTime, Utc};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::LeaseSettings;
use crate::{clock::Moment, time::to_k8s_micro};

/// client-go's factor: a follower waits one to 2.2 retry periods, so that the followers do not ask in step.
const JITTER: f64 = 1.2;

/// How often releasing is tried against conflicts: a renewal whose answer was lost causes one.
const RELEASE_TRIES: u8 = 2;

/// The time of a step.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For measuring.
    pub moment: Moment,
    /// For writing into the lease, where people read it. Nobody measures with it.
    pub calendar: DateTime<Utc>,
    /// Chance, from 0 to 1.
    pub jitter: f64,
}

/// What a candidate has seen.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one in two seconds")]
pub enum Event {
    /// The time it waited for has come.
    Wake,
    /// The request it made was answered, or was not.
    Answer(Answer),
    /// It is asked to stop, and whatever it did as leader has ended.
    Stop,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The lease as it is.
    Found(Lease),
    /// There is no such lease.
    Missing,
    /// The lease as it was written.
    Saved(Lease),
    /// Somebody else wrote first.
    Conflict,
    /// An error, or nothing in time. It may have been carried out all the same, now or later.
    Failed,
}

/// What a candidate does next.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one in two seconds")]
pub enum Action {
    /// Wait until then.
    Wait(Moment),
    /// Make a request, and give it up at a time.
    Send(Request, Moment),
    /// Nothing more.
    End(End),
}

/// A request for the lease.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Read it.
    Read,
    /// Create it.
    Create(Lease),
    /// Replace it, if it still has the version that this one has.
    Replace(Lease),
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As asked.
    Stopped,
    /// The lease could not be renewed in time.
    Expired,
    /// The lease is not ours any more.
    Taken,
}

/// One candidate for a lease.
#[derive(Clone, Debug)]
pub struct Candidate {
    settings: LeaseSettings,
    identity: String,
    role: Role,
    /// The lease as last seen, and when it was first seen so. Other clocks are not to be trusted, so the age of a
    /// lease is how long it has not changed before our eyes.
    observed: Option<(Lease, Moment)>,
    /// When the request under way was made.
    sent: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Following,
    Leading { until: Moment },
    Releasing { tries: u8 },
    Ended(End),
}

impl Candidate {
    /// One that has seen nothing yet; wake it to begin.
    #[must_use]
    pub fn new(settings: LeaseSettings, identity: String) -> Self {
        Self {
            settings,
            identity,
            role: Role::Following,
            observed: None,
            sent: Moment::after(std::time::Duration::ZERO),
        }
    }

    /// Until when this candidate leads, if it does. It does not lead any more at that moment, whatever happens.
    #[must_use]
    pub fn leads_until(&self) -> Option<Moment> {
        match self.role {
            Role::Leading { until } => Some(until),
            Role::Following | Role::Releasing { .. } | Role::Ended(_) => None,
        }
    }

    /// Whether it only waits for the lease.
    #[must_use]
    pub fn follows(&self) -> bool {
        self.role == Role::Following
    }

    /// Takes in what happened, and says what to do next.
    pub fn step(&mut self, event: Event, now: Now) -> Action {
        match self.role {
            Role::Following => self.follow(event, now),
            Role::Leading { until } if now.moment >= until && event != Event::Stop => self.end(End::Expired),
            Role::Leading { until } => self.lead(event, until, now),
            Role::Releasing { tries } => self.release(event, tries, now),
            Role::Ended(end) => Action::End(end),
        }
    }

    fn follow(&mut self, event: Event, now: Now) -> Action {
        match event {
            Event::Stop => self.end(End::Stopped),
            Event::Wake => self.send(Request::Read, now),
            Event::Answer(Answer::Missing) => self.send(Request::Create(self.created(now)), now),
            Event::Answer(Answer::Found(lease)) => {
                self.observe(lease, now);
                self.consider(now)
            }
            Event::Answer(Answer::Saved(lease)) => {
                self.observe(lease, now);
                let until = self.sent + self.settings.renew_deadline;
                if now.moment < until {
                    self.role = Role::Leading { until };
                    return self.rest(until, now);
                }
                // Won, but so slowly that another may soon win as well: not a leadership to start with.
                self.back_off(now)
            }
            Event::Answer(Answer::Conflict | Answer::Failed) => self.back_off(now),
        }
    }

    /// Whether to try for the lease as it was found.
    fn consider(&mut self, now: Now) -> Action {
        let Some((lease, seen)) = &self.observed else {
            return self.back_off(now);
        };
        let holder = holder(lease);
        if holder == Some(&self.identity) {
            // Won by a request whose answer was lost.
            return self.send(Request::Replace(self.renewed(lease, now)), now);
        }
        let expires = *seen + self.settings.duration_of(lease);
        if holder.is_some() && now.moment < expires {
            let retry = self.retry_at(now);
            return Action::Wait(retry.min(expires));
        }
        self.send(Request::Replace(self.taken(lease, now)), now)
    }

    fn lead(&mut self, event: Event, until: Moment, now: Now) -> Action {
        let observed = self.observed.as_ref().map(|(lease, _)| lease);
        match (event, observed) {
            (Event::Stop, Some(lease)) => {
                let request = Request::Replace(self.released(lease, now));
                self.role = Role::Releasing { tries: 1 };
                self.send(request, now)
            }
            (Event::Wake, Some(lease)) => {
                let request = Request::Replace(self.renewed(lease, now));
                self.send_by(request, until, now)
            }
            (Event::Answer(Answer::Saved(lease)), _) => {
                self.observe(lease, now);
                let until = self.sent + self.settings.renew_deadline;
                self.role = Role::Leading { until };
                if now.moment >= until {
                    return self.end(End::Expired);
                }
                self.rest(until, now)
            }
            // Deleted under us: whoever creates it first leads, and that had better be the leader.
            (Event::Answer(Answer::Missing), _) => {
                let request = Request::Create(self.created(now));
                self.send_by(request, until, now)
            }
            (Event::Answer(Answer::Found(lease)), _) => {
                if holder(&lease) != Some(&self.identity) {
                    return self.end(End::Taken);
                }
                let request = Request::Replace(self.renewed(&lease, now));
                self.observe(lease, now);
                self.send_by(request, until, now)
            }
            (Event::Answer(Answer::Conflict), _) | (Event::Wake | Event::Stop, None) => {
                self.send_by(Request::Read, until, now)
            }
            (Event::Answer(Answer::Failed), _) => self.rest(until, now),
        }
    }

    fn release(&mut self, event: Event, tries: u8, now: Now) -> Action {
        match event {
            Event::Answer(Answer::Conflict) if tries < RELEASE_TRIES => {
                self.role = Role::Releasing { tries: tries + 1 };
                self.send(Request::Read, now)
            }
            Event::Answer(Answer::Found(lease)) if holder(&lease) == Some(&self.identity) => {
                let request = Request::Replace(self.released(&lease, now));
                self.send(request, now)
            }
            // Released, not ours, or out of reach: then it expires by itself.
            Event::Answer(_) | Event::Wake | Event::Stop => self.end(End::Stopped),
        }
    }

    fn end(&mut self, end: End) -> Action {
        self.role = Role::Ended(end);
        Action::End(end)
    }

    fn send(&mut self, request: Request, now: Now) -> Action {
        self.sent = now.moment;
        // Half of the deadline, as client-go has it, so that one request that hangs does not lose the lease.
        Action::Send(request, now.moment + self.settings.renew_deadline / 2)
    }

    fn send_by(&mut self, request: Request, until: Moment, now: Now) -> Action {
        self.sent = now.moment;
        Action::Send(request, until.min(now.moment + self.settings.renew_deadline / 2))
    }

    /// A leader's pause.
    fn rest(&self, until: Moment, now: Now) -> Action {
        Action::Wait(until.min(now.moment + self.settings.retry_period))
    }

    /// A follower's pause.
    fn back_off(&self, now: Now) -> Action {
        Action::Wait(self.retry_at(now))
    }

    fn retry_at(&self, now: Now) -> Moment {
        now.moment
            + self
                .settings
                .retry_period
                .mul_f64(1.0 + JITTER * now.jitter.clamp(0.0, 1.0))
    }

    /// Only what is in the spec counts as a change: a label put on the lease is no sign of life.
    fn observe(&mut self, lease: Lease, now: Now) {
        let seen = match &self.observed {
            Some((known, seen)) if known.spec == lease.spec => *seen,
            _ => now.moment,
        };
        self.observed = Some((lease, seen));
    }

    fn created(&self, now: Now) -> Lease {
        let metadata = ObjectMeta {
            name: Some(self.settings.name.clone()),
            namespace: Some(self.settings.namespace.clone()),
            ..ObjectMeta::default()
        };
        let lease = Lease {
            metadata,
            spec: Some(LeaseSpec {
                lease_transitions: Some(0),
                ..LeaseSpec::default()
            }),
        };
        self.held(lease, now)
    }

    fn taken(&self, lease: &Lease, now: Now) -> Lease {
        let mut lease = self.held(lease.clone(), now);
        let spec = lease.spec.get_or_insert_default();
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        lease
    }

    fn held(&self, mut lease: Lease, now: Now) -> Lease {
        lease.spec.get_or_insert_default().acquire_time = Some(to_k8s_micro(now.calendar));
        self.renewed(&lease, now)
    }

    fn renewed(&self, lease: &Lease, now: Now) -> Lease {
        let mut lease = lease.clone();
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = Some(self.settings.duration_seconds());
        spec.renew_time = Some(to_k8s_micro(now.calendar));
        lease
    }

    /// As client-go leaves a lease: held by nobody, for a second.
    fn released(&self, lease: &Lease, now: Now) -> Lease {
        let mut lease = lease.clone();
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.acquire_time = Some(to_k8s_micro(now.calendar));
        spec.renew_time = Some(to_k8s_micro(now.calendar));
        lease
    }
}

/// Who holds a lease.
pub(super) fn holder(lease: &Lease) -> Option<&String> {
    let holder = lease.spec.as_ref()?.holder_identity.as_ref();
    holder.filter(|holder| !holder.is_empty())
}
