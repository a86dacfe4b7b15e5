//! Family `histogram`: operations on numbered decaying histograms. Doubles are compared by their bits.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use chrono::{DateTime, TimeDelta, Utc};
use common::api::checkpoint::HistogramCheckpoint;
use recommender::histogram::{BUCKETS, HalfLife, Histogram, Resource, Saved};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::family::Context;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    resource: String,
    half_life_seconds: i64,
    ops: Vec<Op>,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Op {
    Add { h: i64, v: f64, w: f64, t: i64 },
    Sub { h: i64, v: f64, w: f64, t: i64 },
    Merge { h: i64, from: i64 },
    Pct { h: i64, p: Vec<f64> },
    Empty { h: i64 },
    State { h: i64 },
    Save { h: i64 },
    Load { h: i64, checkpoint: HistogramCheckpoint },
    Reload { h: i64, from: i64 },
    Bucket { v: f64 },
}

pub(super) fn answer(input: &Value, _context: &Context) -> anyhow::Result<Value> {
    let input = Input::deserialize(input).context("cannot read the input")?;
    let resource = match input.resource.as_str() {
        "cpu" => Resource::Cpu,
        "memory" => Resource::Memory,
        other => bail!("unknown resource {other:?}"),
    };
    let half_life = HalfLife::new(TimeDelta::seconds(input.half_life_seconds)).context("no half-life")?;
    let mut histograms = Histograms {
        resource,
        half_life,
        numbered: BTreeMap::new(),
    };
    let results = input.ops.into_iter().map(|op| histograms.run(op));
    Ok(json!({ "results": results.collect::<anyhow::Result<Vec<_>>>()? }))
}

struct Histograms {
    resource: Resource,
    half_life: HalfLife,
    numbered: BTreeMap<i64, Histogram>,
}

impl Histograms {
    fn run(&mut self, op: Op) -> anyhow::Result<Value> {
        Ok(match op {
            Op::Add { h, v, w, t } => {
                self.get(h).add(v, w, DateTime::from_timestamp_nanos(t));
                Value::Null
            }
            Op::Sub { h, v, w, t } => {
                self.get(h).subtract(v, w, DateTime::from_timestamp_nanos(t));
                Value::Null
            }
            Op::Merge { h, from } => {
                let mut source = self.get(from).clone();
                // The original's merge moves the reference of the source; ours leaves it alone, so it is moved here.
                self.get(h).align(&mut source);
                *self.get(from) = source.clone();
                self.get(h).merge(&source);
                Value::Null
            }
            Op::Pct { h, p } => {
                let histogram = self.get(h);
                let percentile = |p: f64| {
                    let value = histogram.percentile(p);
                    json!({ "p": p, "v": value, "bits": bits(value) })
                };
                p.into_iter().map(percentile).collect()
            }
            Op::Empty { h } => json!(self.get(h).is_empty()),
            Op::State { h } => state(self.get(h)),
            Op::Save { h } => {
                let saved = self.get(h).save();
                json!({ "totalBits": bits(saved.total), "checkpoint": wire(saved) })
            }
            Op::Load { h, checkpoint } => {
                let loaded = self.load(&checkpoint);
                let (histogram, answer) = match loaded {
                    Ok(histogram) => (histogram, json!({ "ok": true })),
                    Err(error) => (self.empty(), json!({ "error": error.to_string() })),
                };
                self.numbered.insert(h, histogram);
                answer
            }
            Op::Reload { h, from } => {
                let checkpoint = serde_json::to_value(wire(self.get(from).save()))?;
                let histogram = self.load(&HistogramCheckpoint::deserialize(&checkpoint)?)?;
                self.numbered.insert(h, histogram);
                json!({ "checkpoint": checkpoint })
            }
            Op::Bucket { v } => {
                let bucket = self.resource.bucket(v);
                let start = self.resource.start(bucket);
                json!({ "bucket": bucket, "start": start, "startBits": bits(start), "numBuckets": BUCKETS })
            }
        })
    }

    fn get(&mut self, number: i64) -> &mut Histogram {
        let empty = self.empty();
        self.numbered.entry(number).or_insert(empty)
    }

    fn empty(&self) -> Histogram {
        Histogram::new(self.resource, self.half_life)
    }

    fn load(&self, checkpoint: &HistogramCheckpoint) -> anyhow::Result<Histogram> {
        let saved = Saved {
            reference: checkpoint.reference_timestamp,
            weights: checkpoint.bucket_weights.get().map_err(Clone::clone)?.clone(),
            total: checkpoint.total_weight,
        };
        Ok(Histogram::load(self.resource, self.half_life, &saved)?)
    }
}

fn state(histogram: &Histogram) -> Value {
    let (min, max) = histogram.range();
    let weights: Map<String, Value> = histogram
        .weights()
        .map(|(bucket, weight)| (bucket.to_string(), json!(bits(weight))))
        .collect();
    json!({
        "total": histogram.total(),
        "totalBits": bits(histogram.total()),
        "minBucket": min,
        "maxBucket": max,
        "reference": histogram.reference().map(rfc3339),
        "weightBits": weights,
    })
}

fn wire(saved: Saved) -> HistogramCheckpoint {
    HistogramCheckpoint {
        reference_timestamp: saved.reference,
        bucket_weights: saved.weights.into(),
        total_weight: saved.total,
    }
}

/// With as many digits of a second as are needed.
fn rfc3339(time: DateTime<Utc>) -> String {
    let text = time.format("%Y-%m-%dT%H:%M:%S%.9f").to_string();
    format!("{}Z", text.trim_end_matches('0').trim_end_matches('.'))
}

fn bits(value: f64) -> String {
    format!("{:016x}", value.to_bits())
}
