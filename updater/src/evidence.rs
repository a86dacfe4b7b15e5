//! Whether evictions of a workload do any good: shown by the pods that come after. Without fresh evidence one pod is evicted
//! as a probe; a replacement that was not sized opens a breaker for the workload, and several open breakers one for all.

use std::collections::HashMap;

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};

use crate::reason::Skip;

/// How long evidence is fresh, and a replacement is waited for.
pub const FRESH: TimeDelta = TimeDelta::minutes(10);
const FIRST_BACK_OFF: TimeDelta = TimeDelta::minutes(10);
const LONGEST_BACK_OFF: TimeDelta = TimeDelta::hours(6);
/// As many open breakers are no matter of single workloads.
const BREAKERS_FOR_ALL: usize = 3;
/// While nobody has shown lately that admission works, so many probes are out at once.
const PROBES: usize = 10;

/// The pods of one VPA.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Workload {
    /// The VPA's namespace.
    pub namespace: String,
    /// The VPA's name.
    pub vpa: String,
}

/// How many pods may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// As many as the disruption budget allows.
    Budget,
    /// One, to see what becomes of it.
    Probe,
}

/// What a workload looked like, so that a pod that comes later can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Names the pod template.
    pub template: String,
    /// How many pods were wanted.
    pub replicas: i64,
}

/// A pod that came into being.
#[derive(Clone, Debug, PartialEq)]
pub struct Newcomer {
    /// When.
    pub created: DateTime<Utc>,
    /// What its workload looks like.
    pub shape: Shape,
    /// Whether admission has sized it: it carries `vpaObservedContainers`, or has what some recommendation since the
    /// eviction gives it.
    pub is_sized: bool,
}

/// What a newcomer showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Nothing.
    Nothing,
    /// That admission works.
    Works,
    /// That it does not: the workload's breaker is open until then.
    Fails {
        /// Until when.
        until: DateTime<Utc>,
    },
}

/// What is known of all workloads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    workloads: HashMap<Workload, Record>,
    breakers: HashMap<Workload, Breaker>,
    /// The last time that anybody showed that admission works.
    works_since: Option<DateTime<Utc>>,
    /// The probes that are out, as of the last survey and since.
    probes: usize,
    /// Whether it is known which evictions there were: not before the pods that are there at the start were looked at.
    is_settled: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Record {
    works_since: Option<DateTime<Utc>>,
    last: Option<Eviction>,
}

#[derive(Clone, Debug, PartialEq)]
struct Eviction {
    at: DateTime<Utc>,
    shape: Shape,
    is_answered: bool,
    /// Nobody knows of it, but there may have been one before a restart: it is waited for, and shows nothing.
    is_assumed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Breaker {
    until: DateTime<Utc>,
    back_off: TimeDelta,
}

impl Evidence {
    /// How many pods of a workload may be evicted.
    ///
    /// # Errors
    /// Why none.
    pub fn permit(&self, workload: &Workload, now: DateTime<Utc>) -> Result<Permit, Skip> {
        let is_open = |breaker: &Breaker| now < breaker.until;
        if self.breakers.get(workload).is_some_and(is_open) || self.is_open_for_all(now) {
            return Err(Skip::BreakerOpen);
        }
        let is_fresh = |since: DateTime<Utc>| now.signed_duration_since(since) < FRESH;
        let Some(record) = self.workloads.get(workload) else {
            return self.probe(now);
        };
        if record.works_since.is_some_and(is_fresh) {
            return Ok(Permit::Budget);
        }
        match &record.last {
            Some(eviction) if !eviction.is_answered && is_fresh(eviction.at) => Err(Skip::ProbePending),
            Some(_) | None => self.probe(now),
        }
    }

    /// A first failure of admission must not cost every workload a pod.
    fn probe(&self, now: DateTime<Utc>) -> Result<Permit, Skip> {
        let is_fresh = |since: DateTime<Utc>| now.signed_duration_since(since) < FRESH;
        if self.probes < PROBES || self.works_since.is_some_and(is_fresh) {
            Ok(Permit::Probe)
        } else {
            Err(Skip::ProbePending)
        }
    }

    /// Counts the probes that are out: once in every loop, after a look at its newcomers. The first of them are those that
    /// were there at the start.
    pub fn survey(&mut self, now: DateTime<Utc>) {
        self.is_settled = true;
        let records = self.workloads.values();
        let waits =
            |eviction: &Eviction| !eviction.is_answered && now.signed_duration_since(eviction.at) < FRESH;
        self.probes = records
            .filter(|record| record.last.as_ref().is_some_and(waits))
            .count();
    }

    /// How many breakers are open.
    #[must_use]
    pub fn open_breakers(&self, now: DateTime<Utc>) -> usize {
        self.breakers
            .values()
            .filter(|breaker| now < breaker.until)
            .count()
    }

    /// Whether nothing at all is evicted.
    #[must_use]
    pub fn is_open_for_all(&self, now: DateTime<Utc>) -> bool {
        self.open_breakers(now) >= BREAKERS_FOR_ALL
    }

    /// Notes an eviction.
    pub fn evicted(&mut self, workload: &Workload, shape: Shape, now: DateTime<Utc>) {
        let record = self.workloads.entry(workload.clone()).or_default();
        // The API server gives times of creation in whole seconds.
        record.last = Some(Eviction {
            at: now.trunc_subsecs(0),
            shape,
            is_answered: false,
            is_assumed: false,
        });
        self.probes += 1;
    }

    /// Looks at a pod that came into being, or at one that is there after a restart.
    pub fn saw(&mut self, workload: &Workload, newcomer: &Newcomer, now: DateTime<Utc>) -> Finding {
        let Newcomer {
            created,
            shape,
            is_sized,
        } = newcomer;
        let record = self.workloads.entry(workload.clone()).or_default();
        if *is_sized {
            record.works_since = record.works_since.max(Some(*created));
            self.works_since = self.works_since.max(Some(*created));
        }
        let Some(eviction) = &mut record.last else {
            // We may be new here, and it may be what came of our own eviction.
            if !self.is_settled
                && !is_sized
                && record.works_since.is_none()
                && now.signed_duration_since(*created) < FRESH
            {
                record.last = Some(Eviction {
                    at: *created,
                    shape: shape.clone(),
                    is_answered: false,
                    is_assumed: true,
                });
            }
            return Finding::Nothing;
        };
        if eviction.is_assumed && !is_sized {
            eviction.at = eviction.at.max(*created);
            return Finding::Nothing;
        }
        let is_answer = *created >= eviction.at && !eviction.is_answered;
        let is_late = created.signed_duration_since(eviction.at) >= FRESH;
        let changed = shape.template != eviction.shape.template || shape.replicas < eviction.shape.replicas;
        if !is_answer || is_late {
            return Finding::Nothing;
        }
        if *is_sized {
            eviction.is_answered = true;
            self.breakers.remove(workload);
            return Finding::Works;
        }
        // Somebody else's doing: whether admission works is as open as before.
        eviction.is_answered = true;
        if changed {
            return Finding::Nothing;
        }
        record.works_since = None;
        let before = self.breakers.get(workload).map(|breaker| breaker.back_off);
        let back_off = before.map_or(FIRST_BACK_OFF, |before| (before * 2).min(LONGEST_BACK_OFF));
        let until = now + back_off;
        self.breakers
            .insert(workload.clone(), Breaker { until, back_off });
        Finding::Fails { until }
    }

    /// Forgets all workloads but these.
    pub fn keep(&mut self, exists: impl Fn(&Workload) -> bool) {
        self.workloads.retain(|workload, _| exists(workload));
        self.breakers.retain(|workload, _| exists(workload));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::noon;

    fn web(index: usize) -> Workload {
        Workload {
            namespace: "shop".into(),
            vpa: format!("web-{index}"),
        }
    }

    fn shape(template: &str, replicas: i64) -> Shape {
        Shape {
            template: template.into(),
            replicas,
        }
    }

    fn minutes(minutes: i64) -> DateTime<Utc> {
        noon() + TimeDelta::minutes(minutes)
    }

    fn newcomer(created: i64, is_sized: bool) -> Newcomer {
        Newcomer {
            created: minutes(created),
            shape: shape("t1", 3),
            is_sized,
        }
    }

    #[test]
    fn a_probe_goes_before_the_budget() {
        let mut evidence = Evidence::default();
        assert_eq!(evidence.permit(&web(0), noon()), Ok(Permit::Probe));
        evidence.evicted(&web(0), shape("t1", 3), noon());
        assert_eq!(evidence.permit(&web(0), minutes(1)), Err(Skip::ProbePending));
        assert_eq!(
            evidence.saw(&web(0), &newcomer(2, true), minutes(2)),
            Finding::Works
        );
        assert_eq!(evidence.permit(&web(0), minutes(11)), Ok(Permit::Budget));
        assert_eq!(evidence.permit(&web(0), minutes(12)), Ok(Permit::Probe));
        assert_eq!(evidence.permit(&web(1), minutes(3)), Ok(Permit::Probe));
    }

    #[test]
    fn a_replacement_that_is_not_sized_opens_the_breaker_for_longer_each_time() {
        let mut evidence = Evidence::default();
        let mut at = 0;
        for back_off in [10, 20, 40, 80, 160, 320, 360, 360] {
            assert_eq!(evidence.permit(&web(0), minutes(at)), Ok(Permit::Probe));
            evidence.evicted(&web(0), shape("t1", 3), minutes(at));
            let until = minutes(at + 1 + back_off);
            let found = evidence.saw(&web(0), &newcomer(at + 1, false), minutes(at + 1));
            assert_eq!(found, Finding::Fails { until });
            assert_eq!(
                evidence.permit(&web(0), minutes(at + back_off)),
                Err(Skip::BreakerOpen)
            );
            at += 1 + back_off;
        }
        // One that is sized makes up for all of them.
        evidence.evicted(&web(0), shape("t1", 3), minutes(at));
        assert_eq!(
            evidence.saw(&web(0), &newcomer(at, true), minutes(at)),
            Finding::Works
        );
        evidence.evicted(&web(0), shape("t1", 3), minutes(at));
        let until = minutes(at + 10);
        assert_eq!(
            evidence.saw(&web(0), &newcomer(at, false), minutes(at)),
            Finding::Fails { until }
        );
    }

    #[test]
    fn what_says_nothing_opens_nothing() {
        let cases = [
            (
                "another template",
                Newcomer {
                    shape: shape("t2", 3),
                    ..newcomer(1, false)
                },
            ),
            (
                "fewer replicas",
                Newcomer {
                    shape: shape("t1", 2),
                    ..newcomer(1, false)
                },
            ),
            ("from before", newcomer(-1, false)),
            ("much later", newcomer(10, false)),
        ];
        for (case, newcomer) in cases {
            let mut evidence = Evidence::default();
            evidence.evicted(&web(0), shape("t1", 3), noon());
            assert_eq!(
                evidence.saw(&web(0), &newcomer, minutes(10)),
                Finding::Nothing,
                "{case}"
            );
            assert_eq!(evidence.permit(&web(0), minutes(10)), Ok(Permit::Probe), "{case}");
        }
    }

    #[test]
    fn several_open_breakers_stop_everything() {
        let mut evidence = Evidence::default();
        for index in 0..3 {
            assert_eq!(evidence.permit(&web(9), noon()), Ok(Permit::Probe));
            evidence.evicted(&web(index), shape("t1", 3), noon());
            evidence.saw(&web(index), &newcomer(0, false), noon());
        }
        assert_eq!(evidence.permit(&web(9), noon()), Err(Skip::BreakerOpen));
        assert_eq!(evidence.permit(&web(9), minutes(10)), Ok(Permit::Probe));
        evidence.keep(|workload| *workload != web(0));
        assert_eq!(evidence.permit(&web(9), noon()), Ok(Permit::Probe));
    }

    #[test]
    fn while_nobody_knows_whether_admission_works_only_some_find_out() {
        let mut evidence = Evidence::default();
        for index in 0..10 {
            assert_eq!(evidence.permit(&web(index), noon()), Ok(Permit::Probe));
            evidence.evicted(&web(index), shape("t1", 3), noon());
        }
        assert_eq!(evidence.permit(&web(10), noon()), Err(Skip::ProbePending));
        evidence.survey(minutes(1));
        assert_eq!(evidence.permit(&web(10), minutes(1)), Err(Skip::ProbePending));
        evidence.saw(&web(3), &newcomer(1, true), minutes(1));
        assert_eq!(evidence.permit(&web(10), minutes(1)), Ok(Permit::Probe));
        // Nobody answered and nobody knows: others may try.
        evidence.survey(minutes(20));
        assert_eq!(evidence.permit(&web(10), minutes(20)), Ok(Permit::Probe));
    }

    #[test]
    fn after_a_restart_the_pods_tell() {
        let mut evidence = Evidence::default();
        assert_eq!(
            evidence.saw(&web(0), &newcomer(-5, true), noon()),
            Finding::Nothing
        );
        assert_eq!(evidence.permit(&web(0), noon()), Ok(Permit::Budget));
        // A young pod without a size may come from an eviction of ours: another one has to wait.
        assert_eq!(
            evidence.saw(&web(1), &newcomer(-5, false), noon()),
            Finding::Nothing
        );
        assert_eq!(evidence.permit(&web(1), noon()), Err(Skip::ProbePending));
        assert_eq!(evidence.permit(&web(1), minutes(5)), Ok(Permit::Probe));
        assert_eq!(
            evidence.saw(&web(2), &newcomer(-60, false), noon()),
            Finding::Nothing
        );
        assert_eq!(evidence.permit(&web(2), noon()), Ok(Permit::Probe));
        // Nor do several of them say that admission does not work: perhaps the VPA came after them.
        assert_eq!(
            evidence.saw(&web(1), &newcomer(-1, false), noon()),
            Finding::Nothing
        );
        assert_eq!(evidence.permit(&web(1), minutes(5)), Err(Skip::ProbePending));
        assert_eq!(evidence.permit(&web(1), minutes(9)), Ok(Permit::Probe));
        // Later on it is known which evictions there were.
        evidence.survey(noon());
        assert_eq!(
            evidence.saw(&web(3), &newcomer(0, false), noon()),
            Finding::Nothing
        );
        assert_eq!(evidence.permit(&web(3), noon()), Ok(Permit::Probe));
    }
}
