use std::pin::pin;

use chrono::TimeDelta;
use tokio::sync::{mpsc, oneshot};

use super::*;

fn noon() -> DateTime<Utc> {
    DateTime::from_timestamp(1_772_366_400, 0).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_virtual_day_has_1440_minutes_whatever_the_work_between_them() {
    let time = VirtualClock::starting_at(noon());
    let clock = time.clock();
    let (ticks, mut seen) = mpsc::unbounded_channel();
    let (waits, waiting) = oneshot::channel();
    tokio::spawn(async move {
        let mut ticker = clock.ticker(Duration::from_secs(60));
        {
            let mut first = pin!(ticker.tick());
            assert!(futures::poll!(first.as_mut()).is_pending());
            waits.send(()).unwrap();
            first.await;
        }
        while ticks.send(clock.now()).is_ok() {
            tokio::task::yield_now().await;
            ticker.tick().await;
        }
    });
    waiting.await.unwrap();
    time.advance(Duration::from_secs(86_400)).await;
    time.idle().await;
    let mut times = Vec::new();
    while let Ok(at) = seen.try_recv() {
        times.push(at);
    }
    assert_eq!(times.len(), 1440);
    assert_eq!(times.first(), Some(&(noon() + TimeDelta::minutes(1))));
    assert_eq!(times.last(), Some(&(noon() + TimeDelta::days(1))));
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_same_moment_may_work_side_by_side() {
    let time = VirtualClock::starting_at(noon());
    time.let_work_side_by_side();
    let both = std::sync::Arc::new(tokio::sync::Barrier::new(2));
    let work = |clock: Clock, both: std::sync::Arc<tokio::sync::Barrier>| async move {
        let mut ticker = clock.ticker(Duration::from_secs(1));
        ticker.tick().await;
        both.wait().await;
        clock.now()
    };
    let all = futures::future::join3(
        work(time.clock(), both.clone()),
        work(time.clock(), both),
        time.advance(Duration::from_secs(1)),
    );
    let all = tokio::time::timeout(Duration::from_secs(60), all).await;
    let (first, second, ()) = all.expect("one waits for the other");
    let due = noon() + TimeDelta::seconds(1);
    assert_eq!((first, second), (due, due));
}

#[tokio::test]
async fn who_stops_waiting_does_not_hold_the_clock() {
    let time = VirtualClock::starting_at(noon());
    let clock = time.clock();
    let mut ticker = clock.ticker(Duration::from_secs(1));
    tokio::select! {
        biased;
        () = ticker.tick() => unreachable!("time stands still"),
        () = std::future::ready(()) => {}
    }
    time.advance(Duration::from_secs(10)).await;
    assert_eq!(time.now(), noon() + TimeDelta::seconds(10));
}

#[tokio::test(start_paused = true)]
async fn the_machine_s_ticker_leaves_out_what_it_missed() {
    let clock = Clock::system();
    let start = tokio::time::Instant::now();
    let mut ticker = clock.ticker(Duration::from_secs(10));
    ticker.tick().await;
    assert_eq!(start.elapsed().as_secs(), 10);
    tokio::time::sleep(Duration::from_secs(25)).await;
    ticker.tick().await;
    assert_eq!(start.elapsed().as_secs(), 35);
    ticker.tick().await;
    assert_eq!(start.elapsed().as_secs(), 45);
}

#[tokio::test]
async fn moments_measure_what_passed_and_not_what_the_calendar_says() {
    let time = VirtualClock::starting_at(noon());
    let clock = time.clock();
    let start = clock.moment();
    time.advance(Duration::from_secs(60)).await;
    time.jump(noon() - TimeDelta::days(1));
    assert_eq!(clock.moment().since(start), Duration::from_secs(60));
    time.advance(Duration::from_secs(5)).await;
    assert_eq!(clock.moment().since(start), Duration::from_secs(65));
    assert_eq!(start.since(clock.moment()), Duration::ZERO);
}

#[tokio::test]
async fn a_jump_sets_the_calendar_and_wakes_nobody() {
    for jump in [-TimeDelta::hours(1), TimeDelta::hours(1)] {
        let time = VirtualClock::starting_at(noon());
        let clock = time.clock();
        let sleeper = tokio::spawn(async move { clock.sleep(Duration::from_secs(60)).await });
        tokio::task::yield_now().await;
        time.jump(noon() + jump);
        time.advance(Duration::from_secs(59)).await;
        tokio::task::yield_now().await;
        assert!(!sleeper.is_finished(), "{jump}");
        time.advance(Duration::from_secs(1)).await;
        sleeper.await.unwrap();
        assert_eq!(time.now(), noon() + jump + TimeDelta::minutes(1));
    }
}
