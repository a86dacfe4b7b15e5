//! Which pods stay on an older revision where a set wants that for a share of them: drawn as Kruise does, or counted
//! exactly. Counting is by pods that are there and by those on their way; several replicas divide the quota.
//!
//! Each pod that was counted carries the annotation [`RESERVATION`], `REPLICA/NUMBER`: by it a replica knows its own pods and
//! those of others, and of its own which ones have arrived. So no replica depends on how soon it hears of another's pods:
//!
//! - a percentage holds among the pods of each replica, so among all of them it is off by at most one for each further
//!   replica;
//! - a count is divided among the replicas that live, and what replicas leave behind that live no more is taken off before.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use common::{
    api::sidecarset::SidecarSet,
    pod::Pod,
    sidecarset::{
        Share,
        record::{self, HASH},
    },
};

use super::inject::Quota;

/// The annotation of a pod that was counted.
pub const RESERVATION: &str = "outrigger.dev/sidecarset-reservation";
/// How long a pod that was admitted may take to arrive: it may have been refused after us.
pub const LAPSE: Duration = Duration::from_secs(30);
/// How long a replica counts after its lease was last renewed.
pub const REPLICA_LAPSE: Duration = Duration::from_secs(15);

/// What is counted.
#[derive(Debug)]
pub struct Quotas {
    /// Who this is.
    me: String,
    /// The next number.
    next: u64,
    /// The other replicas, and when their leases were last seen to change.
    others: BTreeMap<String, DateTime<Utc>>,
    /// By namespace and name.
    pods: HashMap<(String, String), Row>,
    reservations: Vec<Reservation>,
}

/// A pod that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    /// The replica that it came through, if it is known.
    replica: Option<String>,
    /// Its sets, and the revision it has of each.
    sets: Vec<(String, String)>,
}

/// A pod that is on its way.
#[derive(Debug)]
struct Reservation {
    number: u64,
    set: String,
    stays: bool,
    since: DateTime<Utc>,
}

/// How many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    pods: u32,
    older: u32,
}

impl Count {
    fn add(&mut self, is_older: bool) {
        self.pods = self.pods.saturating_add(1);
        self.older = self.older.saturating_add(u32::from(is_older));
    }
}

impl Quotas {
    /// Nothing yet. The name of a replica is its own for good: after a restart it has another.
    #[must_use]
    pub fn new(me: impl Into<String>) -> Self {
        Self {
            me: me.into(),
            next: 0,
            others: BTreeMap::new(),
            pods: HashMap::new(),
            reservations: Vec::new(),
        }
    }

    /// A replica, this one or another, has shown that it lives.
    pub fn replica_seen(&mut self, replica: &str, now: DateTime<Utc>) {
        if replica != self.me {
            self.others.insert(replica.to_owned(), now);
        }
    }

    /// A replica is gone.
    pub fn replica_gone(&mut self, replica: &str) {
        self.others.remove(replica);
    }

    /// Takes in a pod that is there or has changed. Those that are over, or on their way out, do not count.
    pub fn apply(&mut self, pod: &Pod) {
        let meta = &pod.metadata;
        let key = (
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        );
        let annotations = pod.metadata.annotations.as_ref();
        let reservation = annotations.and_then(|annotations| annotations.get(RESERVATION));
        let reservation = reservation.and_then(|text| text.rsplit_once('/'));
        if let Some((replica, number)) = reservation
            && replica == self.me
            && let Ok(number) = number.parse::<u64>()
        {
            self.reservations
                .retain(|reservation| reservation.number != number);
        }
        // What cannot be read was injected by nobody.
        let records = record::records(annotations, HASH).unwrap_or_default();
        if records.is_empty() || pod.status.phase.is_terminal() || pod.metadata.deletion_timestamp.is_some() {
            self.pods.remove(&key);
            return;
        }
        let row = Row {
            replica: reservation.map(|(replica, _)| replica.to_owned()),
            sets: records
                .into_iter()
                .map(|(set, record)| (set, record.controller_revision))
                .collect(),
        };
        self.pods.insert(key, row);
    }

    /// Forgets a pod.
    pub fn remove(&mut self, namespace: &str, name: &str) {
        self.pods.remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Forgets the pods of which `keep` says no.
    pub fn retain(&mut self, keep: impl Fn(&str, &str) -> bool) {
        self.pods.retain(|(namespace, name), _| keep(namespace, name));
    }

    /// The admission of one pod; a dry run reserves nothing.
    pub fn admission(&mut self, now: DateTime<Utc>, dry_run: bool) -> Admission<'_> {
        self.next = self.next.wrapping_add(1);
        Admission {
            number: self.next,
            quotas: self,
            now,
            dry_run,
            asked: false,
        }
    }

    fn decide(&self, set: &SidecarSet, share: Share, revision: &str, now: DateTime<Utc>) -> bool {
        let name = set.metadata.name.as_deref().unwrap_or_default();
        let current = set.status.as_ref().map(|status| status.latest_revision.as_str());
        let is_older = |found: &str| match current.filter(|current| !current.is_empty()) {
            Some(current) => found != current,
            None => found == revision,
        };
        let live = self.live(now);
        let (mut own, mut left_behind) = (Count::default(), Count::default());
        for row in self.pods.values() {
            let Some((_, revision)) = row.sets.iter().find(|(set, _)| set == name) else {
                continue;
            };
            match &row.replica {
                Some(replica) if *replica == self.me => own.add(is_older(revision)),
                Some(replica) if live.contains(replica.as_str()) => {}
                _ => left_behind.add(is_older(revision)),
            }
        }
        for reservation in self
            .reservations
            .iter()
            .filter(|reservation| reservation.set == name)
        {
            own.add(reservation.stays);
        }
        let replicas = u32::try_from(live.len()).unwrap_or(u32::MAX).max(1);
        let rank = live.iter().position(|replica| *replica == self.me).unwrap_or(0);
        let rank = u32::try_from(rank).unwrap_or(u32::MAX);
        match share {
            Share::Count(count) => {
                let to_divide = count.saturating_sub(left_behind.older);
                let mine = to_divide / replicas + u32::from(rank < to_divide % replicas);
                own.older < mine
            }
            Share::Percent(_) => {
                if rank == 0 {
                    own.pods = own.pods.saturating_add(left_behind.pods);
                    own.older = own.older.saturating_add(left_behind.older);
                }
                own.older < share.pods(own.pods.saturating_add(1))
            }
        }
    }

    /// The replicas that live, this one among them, in an order that all of them know.
    fn live(&self, now: DateTime<Utc>) -> BTreeSet<&str> {
        let live = self
            .others
            .iter()
            .filter(|(_, seen)| !is_past(**seen, REPLICA_LAPSE, now));
        live.map(|(replica, _)| replica.as_str())
            .chain([self.me.as_str()])
            .collect()
    }
}

fn is_past(since: DateTime<Utc>, lapse: Duration, now: DateTime<Utc>) -> bool {
    let lapse = TimeDelta::from_std(lapse).unwrap_or(TimeDelta::MAX);
    now.signed_duration_since(since) > lapse
}

/// The admission of one pod.
#[derive(Debug)]
pub struct Admission<'q> {
    quotas: &'q mut Quotas,
    number: u64,
    now: DateTime<Utc>,
    dry_run: bool,
    asked: bool,
}

impl Quota for Admission<'_> {
    fn stays(&mut self, set: &SidecarSet, share: Share, revision: &str) -> bool {
        let now = self.now;
        self.quotas
            .reservations
            .retain(|reservation| !is_past(reservation.since, LAPSE, now));
        let stays = self.quotas.decide(set, share, revision, now);
        if !self.dry_run {
            self.asked = true;
            self.quotas.reservations.push(Reservation {
                number: self.number,
                set: set.metadata.name.clone().unwrap_or_default(),
                stays,
                since: now,
            });
        }
        stays
    }

    fn annotation(&self) -> Option<(&'static str, String)> {
        self.asked
            .then(|| (RESERVATION, format!("{}/{}", self.quotas.me, self.number)))
    }
}

/// Draws as Kruise does: for each pod anew, and never twice for one.
#[derive(Clone, Copy, Debug)]
pub struct Drawn<F>(pub F);

impl<F: FnMut() -> f64> Quota for Drawn<F> {
    fn stays(&mut self, set: &SidecarSet, share: Share, _: &str) -> bool {
        let matched = set.status.as_ref().map_or(0, |status| status.matched_pods);
        share.falls((self.0)(), u32::try_from(matched).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn set() -> SidecarSet {
        serde_json::from_value(json!({
            "metadata": {"name": "s"}, "spec": {}, "status": {"latestRevision": "new"},
        }))
        .unwrap()
    }

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).unwrap()
    }

    /// A pod with a revision, as it comes by the watch.
    fn pod(name: &str, stays: bool, reservation: Option<&str>) -> Pod {
        let revision = if stays { "old" } else { "new" };
        let record = json!({"s": {"sidecarSetName": "s", "controllerRevision": revision}}).to_string();
        serde_json::from_value(json!({"metadata": {
            "name": name, "annotations": {HASH: record, RESERVATION: reservation.unwrap_or_default()},
        }}))
        .unwrap()
    }

    /// Admits a pod; whether it stays, and its annotation.
    fn admit(quotas: &mut Quotas, share: Share, now: i64) -> (bool, String) {
        let mut admission = quotas.admission(at(now), false);
        let stays = admission.stays(&set(), share, "old");
        (stays, admission.annotation().unwrap().1)
    }

    fn stays(quotas: &mut Quotas, share: Share, now: i64) -> bool {
        admit(quotas, share, now).0
    }

    #[test]
    fn pods_on_their_way_count() {
        let mut quotas = Quotas::new("a");
        let count: Vec<bool> = (0..5).map(|_| stays(&mut quotas, Share::Count(2), 0)).collect();
        assert_eq!(count, [true, true, false, false, false]);
        let mut quotas = Quotas::new("a");
        let percent: Vec<bool> = (0..5)
            .map(|_| stays(&mut quotas, Share::Percent(40), 0))
            .collect();
        assert_eq!(percent, [true, false, true, false, false]);
    }

    #[test]
    fn a_pod_that_has_arrived_is_counted_once_and_one_that_is_gone_not_at_all() {
        let mut quotas = Quotas::new("a");
        let (stayed, reservation) = admit(&mut quotas, Share::Count(1), 0);
        assert!(stayed);
        quotas.apply(&pod("u", true, Some(&reservation)));
        assert_eq!(quotas.reservations.len(), 0);
        assert!(!stays(&mut quotas, Share::Count(1), 0));
        quotas.remove("", "u");
        assert!(stays(&mut quotas, Share::Count(1), 0));
        let mut over = pod("u", true, None);
        over.metadata.deletion_timestamp = Some(common::time::to_k8s(at(0)));
        quotas.apply(&pod("u", true, None));
        quotas.apply(&over);
        assert_eq!(quotas.pods.len(), 0);
    }

    #[test]
    fn a_reservation_lapses() {
        let mut quotas = Quotas::new("a");
        assert!(stays(&mut quotas, Share::Count(1), 0));
        assert!(!stays(&mut quotas, Share::Count(1), 30));
        assert!(stays(&mut quotas, Share::Count(1), 31));
    }

    #[test]
    fn a_dry_run_reserves_nothing() {
        let mut quotas = Quotas::new("a");
        for _ in 0..3 {
            let mut admission = quotas.admission(at(0), true);
            assert!(admission.stays(&set(), Share::Count(1), "old"));
            assert_eq!(admission.annotation(), None);
        }
        assert!(stays(&mut quotas, Share::Count(1), 0));
    }

    #[test]
    fn two_replicas_divide_a_count_and_one_takes_it_all_when_the_other_is_gone() {
        let grants =
            |quotas: &mut Quotas, now| (0..9).filter(|_| stays(quotas, Share::Count(5), now)).count();
        let (mut a, mut b) = (Quotas::new("a"), Quotas::new("b"));
        a.replica_seen("b", at(0));
        b.replica_seen("a", at(0));
        assert_eq!((grants(&mut a, 0), grants(&mut b, 0)), (3, 2));
        // By now all have arrived, and b's lease is over: its pods still count.
        let mut alone = Quotas::new("a");
        alone.replica_seen("b", at(0));
        for number in 0..2 {
            alone.apply(&pod(&format!("b{number}"), true, Some(&format!("b/{number}"))));
        }
        assert_eq!(grants(&mut alone, 16), 3);
    }

    #[test]
    fn a_count_is_met_to_the_pod_once_each_replica_has_had_its_part_of_requests() {
        for (count, replicas) in [(0, 2), (1, 3), (5, 2), (10, 3), (7, 4)] {
            let parts: Vec<Step> = (0..replicas)
                .flat_map(|replica| vec![Step::Create(replica); usize::try_from(count).unwrap() + 1])
                .collect();
            let found = run(replicas, Share::Count(count), &parts);
            assert_eq!(found.older, count, "{count} among {replicas}");
            // However they come: no request is heard of by the others before all are done.
            let one_by_one = (0..40)
                .map(|request| Step::Create(request % replicas))
                .collect::<Vec<_>>();
            let found = run(replicas, Share::Count(count), &one_by_one);
            assert_eq!(found.older, count, "{count} among {replicas}, in turn");
        }
    }

    #[test]
    fn the_draw_is_kruise_s() {
        let mut draws = [0.3, 0.31].into_iter();
        let mut drawn = Drawn(|| draws.next().unwrap());
        assert!(drawn.stays(&set(), Share::Percent(30), "old"));
        assert!(!drawn.stays(&set(), Share::Percent(30), "old"));
    }

    /// What happens next: a pod comes in at a replica, or a replica hears of what it has not heard of yet.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Create(usize),
        Hear(usize),
    }

    fn steps(replicas: usize) -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            2 => (0..replicas).prop_map(Step::Create),
            1 => (0..replicas).prop_map(Step::Hear),
        ];
        prop::collection::vec(step, 0..120)
    }

    /// Runs the steps; how many pods there are, and how many of them stayed.
    fn run(replicas: usize, share: Share, steps: &[Step]) -> Count {
        let names: Vec<String> = (0..replicas).map(|index| format!("r{index}")).collect();
        let mut all: Vec<Quotas> = names.iter().map(Quotas::new).collect();
        for quotas in &mut all {
            for name in &names {
                quotas.replica_seen(name, at(0));
            }
        }
        let mut arrived: Vec<Pod> = Vec::new();
        let mut heard = vec![0; replicas];
        let mut count = Count::default();
        for step in steps {
            match *step {
                Step::Create(replica) => {
                    let (stays, reservation) = admit(&mut all[replica], share, 0);
                    arrived.push(pod(&format!("u{}", arrived.len()), stays, Some(&reservation)));
                    count.add(stays);
                }
                Step::Hear(replica) => {
                    arrived[heard[replica]..]
                        .iter()
                        .for_each(|pod| all[replica].apply(pod));
                    heard[replica] = arrived.len();
                }
            }
        }
        count
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn one_replica_is_exact_however_late_it_hears(percent in 0_u32..=100, count in 0_u32..100, steps in steps(1)) {
            let of_percent = run(1, Share::Percent(percent), &steps);
            prop_assert_eq!(of_percent.older, Share::Percent(percent).pods(of_percent.pods));
            let of_count = run(1, Share::Count(count), &steps);
            prop_assert_eq!(of_count.older, count.min(of_count.pods));
        }

        #[test]
        fn several_replicas_are_off_by_less_than_one_each(percent in 0_u32..=100, steps in steps(3)) {
            let found = run(3, Share::Percent(percent), &steps);
            let exact = Share::Percent(percent).pods(found.pods);
            prop_assert!(found.older.abs_diff(exact) <= 2, "{found:?}, and {exact} is right");
        }

        #[test]
        fn several_replicas_never_exceed_a_count(count in 0_u32..100, steps in steps(3)) {
            prop_assert!(run(3, Share::Count(count), &steps).older <= count);
        }
    }
}
