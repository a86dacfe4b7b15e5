//! What is known of the cluster when a pod comes in, as plain rows; who watches and asks is [`feed`](crate::feed)'s
//! business.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
};

use common::{
    plan::LimitRangeIndex,
    sidecarset::FormulaIndex,
    target::{
        Controller, ControllerIndex, ControllerKey, Controllers, Scale, ScaleLookup, VpaIndex, WellKnown,
    },
};

use crate::pod::World;

/// What is known.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// The VPAs.
    pub(crate) vpas: VpaIndex,
    /// Who owns whom.
    pub(crate) owners: Owners,
    /// What LimitRanges say.
    pub(crate) limit_ranges: LimitRangeIndex,
    /// The formulas of SidecarSets, where they are looked at.
    pub(crate) formulas: FormulaIndex,
    /// The SidecarSets, where we inject them.
    pub(crate) sidecarsets: crate::sidecarset::known::Known,
}

/// The controllers: those that are watched, and those that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// The well-known ones.
    pub(crate) well_known: ControllerIndex,
    /// The scales of others.
    pub(crate) scales: HashMap<ControllerKey, KnownScale>,
}

/// What came of asking for a scale.
#[derive(Debug)]
pub(crate) struct KnownScale {
    answer: ScaleAnswer,
    /// Whether somebody wanted to know since it was last asked for.
    used: AtomicBool,
}

#[derive(Clone, Debug, PartialEq)]
enum ScaleAnswer {
    Found(Scale),
    NotFound(String),
    Failed(String),
}

impl Index {
    /// As reviews see it.
    pub(crate) fn world(&self) -> World<'_, Owners> {
        World {
            vpas: &self.vpas,
            controllers: &self.owners,
            limit_ranges: self.limit_ranges.merged(),
            formulas: &self.formulas,
        }
    }
}

impl Owners {
    /// Takes in what came of asking for a scale; nothing forgets it.
    pub(crate) fn note_scale(&mut self, key: &ControllerKey, found: ScaleLookup<'_>) {
        let answer = match found {
            ScaleLookup::Found(scale) => ScaleAnswer::Found(scale.clone()),
            ScaleLookup::NotFound(error) => ScaleAnswer::NotFound(error.to_owned()),
            ScaleLookup::Failed(error) => ScaleAnswer::Failed(error.to_owned()),
            ScaleLookup::Unasked => {
                self.scales.remove(key);
                return;
            }
        };
        let known = KnownScale {
            answer,
            used: AtomicBool::new(false),
        };
        self.scales.insert(key.clone(), known);
    }

    /// The scales that somebody wanted to know since the last time, and those nobody did.
    pub(crate) fn used_scales(&self) -> (Vec<ControllerKey>, Vec<ControllerKey>) {
        let keys = self.scales.iter();
        let (used, unused): (Vec<_>, Vec<_>) =
            keys.partition(|(_, known)| known.used.swap(false, Ordering::Relaxed));
        let names = |rows: Vec<(&ControllerKey, _)>| rows.into_iter().map(|(key, _)| key.clone()).collect();
        (names(used), names(unused))
    }
}

impl Controllers for Owners {
    fn well_known(&self, kind: WellKnown, namespace: &str, name: &str) -> Option<&Controller> {
        self.well_known.get(kind, namespace, name)
    }

    fn scale(&self, key: &ControllerKey) -> ScaleLookup<'_> {
        let Some(known) = self.scales.get(key) else {
            return ScaleLookup::Unasked;
        };
        known.used.store(true, Ordering::Relaxed);
        match &known.answer {
            ScaleAnswer::Found(scale) => ScaleLookup::Found(scale),
            ScaleAnswer::NotFound(error) => ScaleLookup::NotFound(error),
            ScaleAnswer::Failed(error) => ScaleLookup::Failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_asked_for_again_only_if_somebody_wants_to_know() {
        let key = |name: &str| ControllerKey {
            namespace: "a".into(),
            api_version: "x/v1".into(),
            kind: "Rollout".into(),
            name: name.into(),
        };
        let mut owners = Owners::default();
        assert_eq!(owners.scale(&key("one")), ScaleLookup::Unasked);
        owners.note_scale(&key("one"), ScaleLookup::NotFound("no"));
        owners.note_scale(&key("two"), ScaleLookup::Failed("never"));
        assert_eq!(owners.scale(&key("one")), ScaleLookup::NotFound("no"));
        assert_eq!(owners.used_scales(), (vec![key("one")], vec![key("two")]));
        assert_eq!(owners.used_scales().0, Vec::new());
        owners.note_scale(&key("two"), ScaleLookup::Unasked);
        assert_eq!(owners.scale(&key("two")), ScaleLookup::Unasked);
    }
}
