//! Every transition of a candidate, one by one.

use std::time::Duration;

use chrono::{DateTime, TimeDelta};
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};

use super::{
    LeaseSettings,
    candidate::{Action, Answer, Candidate, End, Event, Now, Request},
};
use crate::{clock::Moment, time::to_k8s_micro};

fn settings() -> LeaseSettings {
    LeaseSettings {
        namespace: "kube-system".to_owned(),
        name: "vpa-updater".to_owned(),
        duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    }
}

fn at(millis: u64) -> Moment {
    Moment::after(Duration::from_millis(millis))
}

/// The calendar of this machine is an hour ahead of the other's, which must not matter.
fn now(millis: u64) -> Now {
    let since = TimeDelta::milliseconds(i64::try_from(millis).unwrap()) + TimeDelta::hours(1);
    Now {
        moment: at(millis),
        calendar: DateTime::UNIX_EPOCH + since,
        jitter: 0.5,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "reads better at every call")]
fn lease(version: &str, spec: Value) -> Lease {
    let metadata = json!({"name": "vpa-updater", "namespace": "kube-system", "resourceVersion": version});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

/// Held by another, renewed at a second of its own clock.
fn others(version: &str, second: u32) -> Lease {
    lease(
        version,
        json!({
            "holderIdentity": "other", "leaseDurationSeconds": 15, "leaseTransitions": 3,
            "acquireTime": "1970-01-01T00:00:00.000000Z",
            "renewTime": format!("1970-01-01T00:00:{second:02}.000000Z"),
        }),
    )
}

/// Held by this candidate, with times in milliseconds of its own calendar.
fn mine(version: &str, acquired: u64, renewed: u64, transitions: i32) -> Lease {
    lease(
        version,
        json!({
            "holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": transitions,
            "acquireTime": to_k8s_micro(now(acquired).calendar),
            "renewTime": to_k8s_micro(now(renewed).calendar),
        }),
    )
}

fn candidate() -> Candidate {
    Candidate::new(settings(), "me".to_owned())
}

fn found(lease: Lease) -> Event {
    Event::Answer(Answer::Found(lease))
}

fn saved(lease: Lease) -> Event {
    Event::Answer(Answer::Saved(lease))
}

fn send(request: Request, by: u64) -> Action {
    Action::Send(request, at(by))
}

/// A leader since 0, that took the lease over from another by a request that took 100 ms.
fn leader() -> Candidate {
    let mut candidate = candidate();
    candidate.step(Event::Wake, now(0));
    let empty = lease("1", json!({"holderIdentity": "", "leaseTransitions": 3}));
    assert_eq!(
        candidate.step(found(empty), now(0)),
        send(Request::Replace(mine("1", 0, 0, 4)), 5_000)
    );
    let won = candidate.step(saved(mine("2", 0, 0, 4)), now(100));
    assert_eq!(won, Action::Wait(at(2_100)));
    assert_eq!(
        candidate.leads_until(),
        Some(at(10_000)),
        "from the start of the request"
    );
    candidate
}

#[test]
fn a_lease_that_is_not_there_is_created() {
    let mut candidate = candidate();
    assert_eq!(candidate.step(Event::Wake, now(0)), send(Request::Read, 5_000));
    let Action::Send(Request::Create(created), by) = candidate.step(Event::Answer(Answer::Missing), now(0))
    else {
        panic!("not created");
    };
    assert_eq!(by, at(5_000));
    assert_eq!(
        serde_json::to_value(created).unwrap(),
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "vpa-updater", "namespace": "kube-system"},
            "spec": {
                "holderIdentity": "me",
                "leaseDurationSeconds": 15,
                "acquireTime": "1970-01-01T01:00:00.000000Z",
                "renewTime": "1970-01-01T01:00:00.000000Z",
                "leaseTransitions": 0,
            },
        })
    );
    let won = candidate.step(saved(mine("1", 0, 0, 0)), now(3_000));
    assert_eq!(won, Action::Wait(at(5_000)));
    assert_eq!(candidate.leads_until(), Some(at(10_000)));
}

#[test]
fn a_race_that_is_lost_is_not_run_again_at_once() {
    for answer in [Answer::Conflict, Answer::Failed] {
        let mut candidate = candidate();
        candidate.step(Event::Wake, now(0));
        candidate.step(Event::Answer(Answer::Missing), now(0));
        // 2 s, and half of 1.2 times 2 s.
        assert_eq!(
            candidate.step(Event::Answer(answer), now(1_000)),
            Action::Wait(at(4_200))
        );
        assert_eq!(candidate.leads_until(), None);
        assert_eq!(
            candidate.step(Event::Wake, now(4_200)),
            send(Request::Read, 9_200)
        );
    }
}

#[test]
fn a_lease_is_another_s_as_long_as_it_was_seen_to_change_within_its_duration() {
    let mut candidate = candidate();
    candidate.step(Event::Wake, now(0));
    assert_eq!(
        candidate.step(found(others("1", 50)), now(0)),
        Action::Wait(at(3_200))
    );
    candidate.step(Event::Wake, now(3_200));
    // Renewed: fifteen seconds from now.
    assert_eq!(
        candidate.step(found(others("2", 52)), now(3_200)),
        Action::Wait(at(6_400))
    );
    candidate.step(Event::Wake, now(17_000));
    // A label is no renewal. It expires before the next try is due, so that one comes earlier.
    let mut labelled = others("3", 52);
    labelled.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    assert_eq!(
        candidate.step(found(labelled.clone()), now(17_000)),
        Action::Wait(at(18_200))
    );
    candidate.step(Event::Wake, now(18_200));
    let Action::Send(Request::Replace(taken), _) = candidate.step(found(labelled.clone()), now(18_200))
    else {
        panic!("not taken");
    };
    let mut expected = mine("3", 18_200, 18_200, 4);
    expected.metadata.labels = labelled.metadata.labels;
    assert_eq!(
        taken, expected,
        "with the version that was read, and what others put on it"
    );
}

#[test]
fn a_lease_s_own_duration_counts() {
    for (seconds, expires) in [
        (json!(1), 1_000),
        (json!(60), 60_000),
        (json!(null), 15_000),
        (json!(0), 0),
        (json!(-5), 15_000),
    ] {
        let mut candidate = candidate();
        let held = lease(
            "1",
            json!({"holderIdentity": "other", "leaseDurationSeconds": seconds}),
        );
        candidate.step(Event::Wake, now(0));
        candidate.step(found(held.clone()), now(0));
        if expires > 0 {
            candidate.step(Event::Wake, now(expires - 1));
            let early = candidate.step(found(held.clone()), now(expires - 1));
            assert_eq!(early, Action::Wait(at(expires)), "{seconds}");
            candidate.step(Event::Wake, now(expires));
            let late = candidate.step(found(held), now(expires));
            assert!(
                matches!(late, Action::Send(Request::Replace(_), _)),
                "{seconds}: {late:?}"
            );
        }
    }
}

#[test]
fn a_lease_won_by_a_request_whose_answer_was_lost_is_renewed_first() {
    let mut candidate = candidate();
    candidate.step(Event::Wake, now(7_000));
    assert_eq!(
        candidate.step(found(mine("4", 1_000, 1_000, 2)), now(7_000)),
        send(Request::Replace(mine("4", 1_000, 7_000, 2)), 12_000)
    );
    assert_eq!(candidate.leads_until(), None);
    candidate.step(saved(mine("5", 1_000, 7_000, 2)), now(8_000));
    assert_eq!(candidate.leads_until(), Some(at(17_000)));
}

#[test]
fn a_lease_won_too_slowly_is_no_leadership() {
    let mut candidate = candidate();
    candidate.step(Event::Wake, now(0));
    candidate.step(Event::Answer(Answer::Missing), now(0));
    let late = candidate.step(saved(mine("1", 0, 0, 0)), now(10_000));
    assert_eq!(late, Action::Wait(at(13_200)));
    assert_eq!(candidate.leads_until(), None);
}

#[test]
fn a_leader_renews_every_retry_period() {
    let mut leader = leader();
    assert_eq!(
        leader.step(Event::Wake, now(2_100)),
        send(Request::Replace(mine("2", 0, 2_100, 4)), 7_100)
    );
    let renewed = leader.step(saved(mine("3", 0, 2_000, 4)), now(2_600));
    assert_eq!(renewed, Action::Wait(at(4_600)));
    assert_eq!(leader.leads_until(), Some(at(12_100)));
}

#[test]
fn a_leader_that_cannot_renew_tries_on_and_ends_at_the_deadline() {
    let mut leader = leader();
    leader.step(Event::Wake, now(2_100));
    assert_eq!(
        leader.step(Event::Answer(Answer::Failed), now(7_100)),
        Action::Wait(at(9_100))
    );
    assert_eq!(leader.leads_until(), Some(at(10_000)));
    let Action::Send(Request::Replace(_), by) = leader.step(Event::Wake, now(9_100)) else {
        panic!("gave up");
    };
    assert_eq!(by, at(10_000), "not longer than it leads");
    assert_eq!(
        leader.step(Event::Answer(Answer::Failed), now(9_500)),
        Action::Wait(at(10_000))
    );
    assert_eq!(leader.step(Event::Wake, now(10_000)), Action::End(End::Expired));
    assert_eq!(leader.leads_until(), None);
    assert_eq!(
        leader.step(Event::Wake, now(10_001)),
        Action::End(End::Expired),
        "for good"
    );
}

#[test]
fn an_answer_after_the_deadline_does_not_help() {
    let mut leader = leader();
    leader.step(Event::Wake, now(2_100));
    let late = leader.step(saved(mine("3", 0, 2_000, 4)), now(10_000));
    assert_eq!(late, Action::End(End::Expired));
}

#[test]
fn a_leader_that_meets_a_conflict_looks_whose_the_lease_is() {
    let mut first = leader();
    first.step(Event::Wake, now(3_000));
    assert_eq!(
        first.step(Event::Answer(Answer::Conflict), now(3_000)),
        send(Request::Read, 8_000)
    );
    let mut second = first.clone();
    assert_eq!(
        first.step(found(others("9", 1)), now(3_000)),
        Action::End(End::Taken)
    );
    assert_eq!(first.leads_until(), None);
    // A renewal whose answer was lost.
    assert_eq!(
        second.step(found(mine("3", 0, 2_000, 4)), now(4_000)),
        send(Request::Replace(mine("3", 0, 4_000, 4)), 9_000)
    );
}

#[test]
fn a_leader_whose_lease_somebody_emptied_steps_down() {
    let mut leader = leader();
    leader.step(Event::Wake, now(3_000));
    leader.step(Event::Answer(Answer::Conflict), now(3_000));
    let emptied = lease("9", json!({"holderIdentity": ""}));
    assert_eq!(leader.step(found(emptied), now(3_000)), Action::End(End::Taken));
}

#[test]
fn a_leader_whose_lease_was_deleted_creates_it_again() {
    let mut leader = leader();
    leader.step(Event::Wake, now(3_000));
    let again = leader.step(Event::Answer(Answer::Missing), now(3_000));
    assert!(
        matches!(again, Action::Send(Request::Create(_), by) if by == at(8_000)),
        "{again:?}"
    );
    assert_eq!(leader.leads_until(), Some(at(10_000)));
    leader.step(saved(mine("1", 3_000, 3_000, 0)), now(3_100));
    assert_eq!(leader.leads_until(), Some(at(13_000)));
    leader.step(Event::Wake, now(5_100));
    leader.step(Event::Answer(Answer::Missing), now(5_100));
    assert_eq!(
        leader.step(Event::Answer(Answer::Conflict), now(5_100)),
        send(Request::Read, 10_100)
    );
}

#[test]
fn a_follower_stops_at_once() {
    let mut candidate = candidate();
    candidate.step(Event::Wake, now(0));
    assert_eq!(candidate.step(Event::Stop, now(0)), Action::End(End::Stopped));
}

#[test]
fn a_leader_gives_the_lease_back_as_client_go_does() {
    let mut leader = leader();
    let released = lease(
        "2",
        json!({
            "holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 4,
            "acquireTime": "1970-01-01T01:00:03.000000Z", "renewTime": "1970-01-01T01:00:03.000000Z",
        }),
    );
    assert_eq!(
        leader.step(Event::Stop, now(3_000)),
        send(Request::Replace(released.clone()), 8_000)
    );
    assert_eq!(leader.leads_until(), None);
    assert_eq!(
        leader.step(saved(released), now(3_000)),
        Action::End(End::Stopped)
    );
}

#[test]
fn giving_back_is_tried_twice_and_only_while_it_is_ours() {
    let mut first = leader();
    first.step(Event::Stop, now(3_000));
    assert_eq!(
        first.step(Event::Answer(Answer::Conflict), now(3_000)),
        send(Request::Read, 8_000)
    );
    let mut second = first.clone();
    assert_eq!(
        first.step(found(others("9", 1)), now(3_000)),
        Action::End(End::Stopped)
    );
    let again = second.step(found(mine("3", 0, 2_000, 4)), now(3_000));
    let Action::Send(Request::Replace(released), _) = again else {
        panic!("not given back: {again:?}");
    };
    assert_eq!(released.metadata.resource_version.as_deref(), Some("3"));
    assert_eq!(
        second.step(Event::Answer(Answer::Conflict), now(3_000)),
        Action::End(End::Stopped)
    );
    let mut unreachable = leader();
    unreachable.step(Event::Stop, now(3_000));
    assert_eq!(
        unreachable.step(Event::Answer(Answer::Failed), now(8_000)),
        Action::End(End::Stopped)
    );
}

#[test]
fn fractions_of_a_second_are_never_rounded_down() {
    for (millis, seconds) in [(15_000, 15), (1_500, 2), (100, 1)] {
        let settings = LeaseSettings {
            duration: Duration::from_millis(millis),
            ..settings()
        };
        assert_eq!(settings.duration_seconds(), seconds);
    }
}
