//! What the three things cost that a loop does most: adding a sample, merging aggregates, asking for a percentile.
#![allow(missing_docs, reason = "criterion's macros make public items")]

use chrono::{DateTime, TimeDelta, Utc};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use recommender::histogram::{HalfLife, Histogram, Resource};
use std::hint::black_box;

/// A day of samples, one a minute, of a container that wanders between 200 and 600 millicores.
fn day() -> Histogram {
    let half_life = HalfLife::new(TimeDelta::days(1)).unwrap_or_else(|| unreachable!("a day is a half-life"));
    let mut histogram = Histogram::new(Resource::Cpu, half_life);
    for minute in 0..1440 {
        histogram.add(cores(minute), 0.1, time(minute));
    }
    histogram
}

fn cores(minute: i32) -> f64 {
    f64::from(200 + (37 * minute) % 400) / 1000.0
}

fn time(minute: i32) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::days(20_000) + TimeDelta::minutes(i64::from(minute))
}

fn histograms(c: &mut Criterion) {
    let day = day();
    c.bench_function("add", |bencher| {
        let mut histogram = day.clone();
        let mut minute = 1440;
        bencher.iter(|| {
            minute = (minute + 1) % 2880;
            histogram.add(black_box(cores(minute)), 0.1, black_box(time(minute)));
        });
    });
    c.bench_function("percentile", |bencher| {
        bencher.iter(|| day.percentile(black_box(0.9)));
    });
    c.bench_function("merge", |bencher| {
        let setup = || day.clone();
        bencher.iter_batched_ref(
            setup,
            |merged| merged.merge(black_box(&day)),
            BatchSize::SmallInput,
        );
    });
    c.bench_function("save", |bencher| bencher.iter(|| black_box(&day).save()));
}

criterion_group!(benches, histograms);
criterion_main!(benches);
