//! Reading and printing quantities, which every pod and every metrics sample does several times.

use std::hint::black_box;

use common::quantity::Quantity;
use criterion::{Criterion, criterion_group, criterion_main};

const EVERYDAY: [&str; 4] = ["100m", "128Mi", "1", "123456789n"];

fn read(c: &mut Criterion) {
    for text in EVERYDAY.into_iter().chain(["879.4Ti", "12345678901234567890"]) {
        c.bench_function(&format!("parse {text}"), |b| {
            b.iter(|| black_box(text).parse::<Quantity>());
        });
    }
}

fn compute(c: &mut Criterion) {
    let quantities: Vec<Quantity> = EVERYDAY.iter().filter_map(|text| text.parse().ok()).collect();
    for (text, quantity) in EVERYDAY.iter().zip(&quantities) {
        c.bench_function(&format!("milli {text}"), |b| {
            b.iter(|| black_box(quantity).milli());
        });
        c.bench_function(&format!("print {text}"), |b| {
            b.iter(|| black_box(quantity).to_string());
        });
    }
    c.bench_function("sum", |b| {
        b.iter(|| {
            black_box(&quantities)
                .iter()
                .fold(Quantity::default(), |sum, quantity| &sum + quantity)
        });
    });
}

criterion_group!(benches, read, compute);
criterion_main!(benches);
