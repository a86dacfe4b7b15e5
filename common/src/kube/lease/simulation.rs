//! Elections on a simulated network: candidates on clocks that show different times, requests and answers that are slow,
//! lost or out of order, processes that are killed or stopped.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use k8s_openapi::api::coordination::v1::Lease;
use proptest::prelude::*;

use super::{
    LeaseSettings,
    candidate::{Action, Answer, Candidate, End, Event, Now, Request},
};
use crate::clock::Moment;

/// Times are milliseconds of the world.
type Millis = u64;

const DURATION: Millis = 15_000;
const RENEW: Millis = 10_000;
const RETRY: Millis = 2_000;
/// The longest that a follower waits between two looks.
const LONGEST_RETRY: Millis = RETRY * 22 / 10;
/// A healthy network's longest way there or back.
const DELAY: Millis = 50;

fn settings() -> LeaseSettings {
    LeaseSettings {
        namespace: "kube-system".to_owned(),
        name: "lease".to_owned(),
        duration: Duration::from_millis(DURATION),
        renew_deadline: Duration::from_millis(RENEW),
        retry_period: Duration::from_millis(RETRY),
    }
}

/// What happens to one request.
#[derive(Clone, Copy, Debug)]
struct Fate {
    there: Millis,
    back: Millis,
    arrives: bool,
    answered: bool,
}

const HEALTHY: Fate = Fate {
    there: DELAY / 2,
    back: DELAY,
    arrives: true,
    answered: true,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// A candidate's timer.
    Wake {
        candidate: usize,
        turn: u64,
    },
    /// A request reaches the store.
    Arrive {
        request: u64,
    },
    /// An answer reaches the candidate, or its patience ends.
    Answer {
        candidate: usize,
        turn: u64,
        request: Option<u64>,
    },
    Kill {
        candidate: usize,
    },
    /// A process that ended comes again, as somebody new.
    Restart {
        candidate: usize,
    },
    Stop {
        candidate: usize,
    },
}

struct Process {
    candidate: Candidate,
    /// How far its clocks are from the world's.
    moment_ahead: Millis,
    calendar_ahead: TimeDelta,
    /// Counts what it waits for, so that what it does not wait for any more is not heard.
    turn: u64,
    alive: bool,
    stopping: bool,
    end: Option<End>,
}

/// A time in which a candidate's requests do not arrive, or are not answered.
#[derive(Clone, Copy, Debug)]
struct Partition {
    candidate: usize,
    from: Millis,
    to: Millis,
    arrives: bool,
}

struct World {
    now: Millis,
    queue: BinaryHeap<Reverse<(Millis, u64, Happening)>>,
    count: u64,
    processes: Vec<Process>,
    store: Option<(Lease, u64)>,
    requests: BTreeMap<u64, (usize, Request, Option<Answer>)>,
    fates: Vec<Fate>,
    partitions: Vec<Partition>,
    /// How long after its end a process is started again, if it is.
    restart_after: Option<Millis>,
    jitter: f64,
    /// When each process became leader.
    led: Vec<(Millis, usize)>,
}

impl World {
    fn new(clocks: &[(Millis, i64)], fates: Vec<Fate>, jitter: f64) -> Self {
        let processes = clocks
            .iter()
            .enumerate()
            .map(|(i, (moment_ahead, calendar_ahead))| Process {
                candidate: Candidate::new(settings(), format!("candidate-{i}")),
                moment_ahead: *moment_ahead,
                calendar_ahead: TimeDelta::seconds(*calendar_ahead),
                turn: 0,
                alive: true,
                stopping: false,
                end: None,
            });
        let mut world = Self {
            now: 0,
            queue: BinaryHeap::new(),
            count: 0,
            processes: processes.collect(),
            store: None,
            requests: BTreeMap::new(),
            fates,
            partitions: Vec::new(),
            restart_after: None,
            jitter,
            led: Vec::new(),
        };
        for candidate in 0..world.processes.len() {
            world.schedule(0, Happening::Wake { candidate, turn: 0 });
        }
        world
    }

    fn schedule(&mut self, at: Millis, happening: Happening) {
        self.count += 1;
        self.queue.push(Reverse((at, self.count, happening)));
    }

    /// Who leads just now, by its own clock.
    fn leaders(&self) -> Vec<usize> {
        let leads = |process: &Process| {
            let until = process.candidate.leads_until();
            process.alive && until.is_some_and(|until| self.moment_of(process) < until)
        };
        (0..)
            .zip(&self.processes)
            .filter(|(_, process)| leads(process))
            .map(|(i, _)| i)
            .collect()
    }

    fn moment_of(&self, process: &Process) -> Moment {
        Moment::after(Duration::from_millis(self.now + process.moment_ahead))
    }

    fn run_until(&mut self, end: Millis) -> Result<(), TestCaseError> {
        while let Some(Reverse((at, _, _))) = self.queue.peek().filter(|Reverse((at, _, _))| *at <= end) {
            self.now = *at;
            let Some(Reverse((_, _, happening))) = self.queue.pop() else {
                break;
            };
            let before = self.leaders();
            self.happen(happening);
            let leaders = self.leaders();
            prop_assert!(leaders.len() <= 1, "two leaders at {}: {leaders:?}", self.now);
            if let [leader] = leaders[..]
                && !before.contains(&leader)
            {
                self.led.push((self.now, leader));
            }
        }
        self.now = end;
        Ok(())
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Wake { candidate, turn } => self.hear(candidate, turn, Event::Wake),
            Happening::Arrive { request } => self.arrive(request),
            Happening::Answer {
                candidate,
                turn,
                request,
            } => {
                let known = request.and_then(|request| self.requests.get(&request)?.2.clone());
                self.hear(candidate, turn, Event::Answer(known.unwrap_or(Answer::Failed)));
            }
            Happening::Kill { candidate } => {
                self.processes[candidate].alive = false;
                self.restart(candidate);
            }
            Happening::Restart { candidate } => {
                let identity = format!("candidate-{candidate}-{}", self.count);
                let process = &mut self.processes[candidate];
                process.candidate = Candidate::new(settings(), identity);
                process.turn += 1;
                process.alive = true;
                process.stopping = false;
                process.end = None;
                let turn = process.turn;
                self.hear(candidate, turn, Event::Wake);
            }
            Happening::Stop { candidate } => {
                // As the driver does it: a leader's work ends at once here, and who waits stops waiting.
                self.processes[candidate].stopping = true;
                let turn = self.processes[candidate].turn;
                self.hear(candidate, turn, Event::Stop);
            }
        }
    }

    fn restart(&mut self, candidate: usize) {
        if let Some(after) = self.restart_after {
            self.schedule(self.now + after, Happening::Restart { candidate });
        }
    }

    fn fate(&mut self, candidate: usize) -> Fate {
        let fate = self.fates.pop().unwrap_or(HEALTHY);
        let cut = |partition: &&Partition| {
            partition.candidate == candidate && (partition.from..partition.to).contains(&self.now)
        };
        match self.partitions.iter().find(cut) {
            Some(partition) => Fate {
                arrives: partition.arrives,
                answered: false,
                ..fate
            },
            None => fate,
        }
    }

    fn hear(&mut self, candidate: usize, turn: u64, event: Event) {
        let moment = self.moment_of(&self.processes[candidate]);
        let calendar: DateTime<Utc> =
            DateTime::from_timestamp_millis(i64::try_from(self.now).unwrap()).unwrap();
        let process = &mut self.processes[candidate];
        if !process.alive || process.turn != turn || process.end.is_some() {
            return;
        }
        let now = Now {
            moment,
            calendar: calendar + process.calendar_ahead,
            jitter: self.jitter,
        };
        let mut action = process.candidate.step(event, now);
        if process.stopping && matches!(action, Action::Wait(_)) {
            action = process.candidate.step(Event::Stop, now);
        }
        process.turn += 1;
        let (turn, ahead) = (process.turn, process.moment_ahead);
        let world_time = |moment: Moment| {
            let since = moment.since(Moment::after(Duration::from_millis(ahead)));
            u64::try_from(since.as_nanos().div_ceil(1_000_000)).unwrap()
        };
        match action {
            Action::End(end) => {
                process.end = Some(end);
                self.restart(candidate);
            }
            Action::Wait(until) => self.schedule(world_time(until), Happening::Wake { candidate, turn }),
            Action::Send(request, by) => {
                let fate = self.fate(candidate);
                self.count += 1;
                let id = self.count;
                self.requests.insert(id, (candidate, request, None));
                let gives_up = Happening::Answer {
                    candidate,
                    turn,
                    request: None,
                };
                self.schedule(world_time(by), gives_up);
                if fate.arrives {
                    self.schedule(self.now + fate.there, Happening::Arrive { request: id });
                }
                if fate.arrives && fate.answered {
                    let answer = Happening::Answer {
                        candidate,
                        turn,
                        request: Some(id),
                    };
                    self.schedule(self.now + fate.there + fate.back, answer);
                }
            }
        }
    }

    /// The store: optimistic concurrency, one thing at a time.
    fn arrive(&mut self, id: u64) {
        let Some((_, request, answer)) = self.requests.get_mut(&id) else {
            return;
        };
        let version = self.store.as_ref().map_or(0, |(_, version)| *version);
        let written = |lease: &Lease| {
            let mut lease = lease.clone();
            lease.metadata.resource_version = Some((version + 1).to_string());
            lease
        };
        *answer = Some(match (&*request, &self.store) {
            (Request::Read, Some((lease, _))) => Answer::Found(lease.clone()),
            (Request::Read | Request::Replace(_), None) => Answer::Missing,
            (Request::Create(_), Some(_)) => Answer::Conflict,
            (Request::Replace(lease), Some(_))
                if lease.metadata.resource_version != Some(version.to_string()) =>
            {
                Answer::Conflict
            }
            (Request::Create(lease) | Request::Replace(lease), _) => {
                let lease = written(lease);
                self.store = Some((lease.clone(), version + 1));
                Answer::Saved(lease)
            }
        });
    }
}

fn clocks() -> impl Strategy<Value = Vec<(Millis, i64)>> {
    prop::collection::vec((0_u64..100_000, -7_200_i64..7_200), 2..=3)
}

fn fate() -> impl Strategy<Value = Fate> {
    let slow = prop_oneof![6 => 0..DELAY, 2 => 0_u64..5_000, 1 => 0_u64..40_000];
    let usually = prop::bool::weighted(0.9);
    (slow.clone(), slow, usually, usually).prop_map(|(there, back, arrives, answered)| Fate {
        there,
        back,
        arrives,
        answered,
    })
}

fn partition() -> impl Strategy<Value = Partition> {
    (0_usize..3, 0_u64..600_000, 0_u64..60_000, any::<bool>()).prop_map(
        |(candidate, from, length, arrives)| Partition {
            candidate,
            from,
            to: from + length,
            arrives,
        },
    )
}

fn disturbance() -> impl Strategy<Value = Happening> {
    prop_oneof![
        (0_usize..2).prop_map(|candidate| Happening::Kill { candidate }),
        (0_usize..2).prop_map(|candidate| Happening::Stop { candidate }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn never_two_leaders_whatever_the_network_does_and_one_in_the_end(
        clocks in clocks(),
        fates in prop::collection::vec(fate(), 0..1500),
        partitions in prop::collection::vec(partition(), 0..20),
        disturbances in prop::collection::vec((0_u64..600_000, disturbance()), 0..10),
        jitter in 0.0_f64..=1.0,
    ) {
        let mut world = World::new(&clocks, fates, jitter);
        world.partitions = partitions;
        world.restart_after = Some(1_000);
        for (at, disturbance) in disturbances {
            world.schedule(at, disturbance);
        }
        world.run_until(700_000)?;
        // From here on the network is healthy; what was still under way arrives within 80 s.
        world.fates.clear();
        world.run_until(700_000 + 80_000 + DURATION + LONGEST_RETRY + 4 * DELAY)?;
        prop_assert_eq!(world.leaders().len(), 1);
    }

    #[test]
    fn after_a_kill_another_leads_within_the_lease_duration_and_one_retry(
        clocks in clocks(),
        killed_at in 1_000_u64..60_000,
        jitter in 0.0_f64..=1.0,
    ) {
        let mut world = World::new(&clocks, Vec::new(), jitter);
        world.run_until(killed_at)?;
        let [candidate] = world.leaders()[..] else {
            return Err(TestCaseError::fail("nobody leads a healthy network"));
        };
        world.schedule(killed_at, Happening::Kill { candidate });
        let ways = 4 * DELAY;
        world.run_until(killed_at + DURATION + LONGEST_RETRY + ways)?;
        prop_assert_eq!(world.leaders().len(), 1);
        let (_, next) = world.led[world.led.len() - 1];
        prop_assert_ne!(next, candidate);
    }

    #[test]
    fn after_a_stop_another_leads_within_one_retry(
        clocks in clocks(),
        stopped_at in 1_000_u64..60_000,
        jitter in 0.0_f64..=1.0,
    ) {
        let mut world = World::new(&clocks, Vec::new(), jitter);
        world.run_until(stopped_at)?;
        let [candidate] = world.leaders()[..] else {
            return Err(TestCaseError::fail("nobody leads a healthy network"));
        };
        world.schedule(stopped_at, Happening::Stop { candidate });
        let ways = 6 * DELAY;
        world.run_until(stopped_at + LONGEST_RETRY + ways)?;
        prop_assert_eq!(world.leaders().len(), 1);
        let (_, next) = world.led[world.led.len() - 1];
        prop_assert_ne!(next, candidate);
    }
}
