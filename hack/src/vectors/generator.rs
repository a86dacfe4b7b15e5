//! The usage generators of family `recommendation`: many samples from a few numbers, in 64-bit integers.

use anyhow::Context as _;
use serde::Deserialize;

/// A rule for the value of the i-th sample.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Generator {
    kind: Kind,
    #[serde(default)]
    base: i64,
    #[serde(default)]
    amp: i64,
    #[serde(default)]
    period: i64,
    #[serde(default)]
    offset: i64,
    /// Of `lcg`, whose state it becomes.
    #[serde(default)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Const,
    Lcg,
    Triangle,
    Arch,
    Square,
    Spike,
    Ramp,
    Mod,
}

impl Generator {
    /// The value of the i-th sample. They are asked for in order, from 0 on.
    pub(super) fn value(&mut self, i: i64) -> anyhow::Result<i64> {
        self.next(i)
            .with_context(|| format!("generator {:?} has no {i}-th value", self.kind))
    }

    fn next(&mut self, i: i64) -> Option<i64> {
        let Self {
            kind,
            base,
            amp,
            period,
            offset,
            ..
        } = *self;
        let place = || i.checked_rem(period);
        let above = match kind {
            Kind::Const => 0,
            Kind::Lcg => {
                self.seed = self
                    .seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                i64::try_from(self.seed >> 33).ok()?.checked_rem(amp)?
            }
            Kind::Triangle => {
                let x = place()?;
                amp.checked_mul(2)?
                    .checked_mul(x.min(period - x))?
                    .checked_div(period)?
            }
            Kind::Arch => {
                let x = place()?;
                let high = amp.checked_mul(4)?.checked_mul(x)?.checked_mul(period - x)?;
                high.checked_div(period.checked_mul(period)?)?
            }
            Kind::Square => {
                if i.checked_div(period)? % 2 == 0 {
                    0
                } else {
                    amp
                }
            }
            Kind::Spike => {
                if place()? == offset {
                    amp
                } else {
                    0
                }
            }
            Kind::Ramp => amp.checked_mul(i)?,
            Kind::Mod => amp.checked_mul(i)?.checked_rem(period)?,
        };
        base.checked_add(above)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn values(generator: &Value) -> Vec<i64> {
        let mut generator = Generator::deserialize(generator).unwrap();
        (0..6).map(|i| generator.value(i).unwrap()).collect()
    }

    #[test]
    fn each_kind_follows_its_rule() {
        for (generator, expected) in [
            (json!({"kind": "const", "base": 7}), [7, 7, 7, 7, 7, 7]),
            (
                json!({"kind": "triangle", "base": 1, "amp": 10, "period": 4}),
                [1, 6, 11, 6, 1, 6],
            ),
            (
                json!({"kind": "arch", "base": 0, "amp": 10, "period": 4}),
                [0, 7, 10, 7, 0, 7],
            ),
            (
                json!({"kind": "square", "base": 1, "amp": 2, "period": 2}),
                [1, 1, 3, 3, 1, 1],
            ),
            (
                json!({"kind": "spike", "base": 1, "amp": 9, "period": 3, "offset": 1}),
                [1, 10, 1, 1, 10, 1],
            ),
            (json!({"kind": "ramp", "base": 1, "amp": 2}), [1, 3, 5, 7, 9, 11]),
            (
                json!({"kind": "mod", "base": 1, "amp": 3, "period": 5}),
                [1, 4, 2, 5, 3, 1],
            ),
        ] {
            assert_eq!(values(&generator), expected, "{generator}");
        }
    }

    #[test]
    fn what_cannot_be_computed_is_an_error() {
        let mut generator = Generator::deserialize(&json!({"kind": "mod", "amp": 3})).unwrap();
        assert!(generator.value(1).is_err());
    }
}
