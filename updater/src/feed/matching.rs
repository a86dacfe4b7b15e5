//! From pods to VPAs: a controller is followed to the top once for all its pods, and only where something has changed.

use std::{cell::RefCell, collections::HashSet, sync::Arc};

use common::target::{
    Controller, ControllerIndex, ControllerKey, Controllers, ScaleLookup, TopmostError, VpaIndex, WellKnown,
    strongest, topmost,
};

use super::{Feed, GroupName, Place};

impl Feed {
    /// Brings matching up to date. Gives the scales that have to be asked for first; what depends on them waits.
    pub fn settle<'s>(&mut self, scale: impl Fn(&ControllerKey) -> ScaleLookup<'s>) -> Vec<ControllerKey> {
        let mut needs = Vec::new();
        for namespace in std::mem::take(&mut self.unsettled) {
            let Some(place) = self.places.get_mut(&namespace) else {
                continue;
            };
            let known = Known {
                watched: &self.controllers,
                scale: &scale,
                asked: RefCell::default(),
            };
            let before = needs.len();
            place.settle(&self.vpas, &known, &mut needs);
            let asked = known.asked.into_inner();
            if place.rematch {
                place.scales = asked;
            } else {
                place.scales.extend(asked);
            }
            // What waits for an answer is looked at again when there is one.
            place.rematch = needs.len() > before;
            if place.rematch {
                self.unsettled.insert(namespace);
            } else if place.vpas.is_empty() && place.pods.is_empty() {
                self.places.remove(&namespace);
            }
        }
        needs
    }

    /// The scales that matching depends on.
    #[must_use]
    pub fn scales(&self) -> Vec<ControllerKey> {
        let places = self.places.values().filter(|place| !place.vpas.is_empty());
        places.flat_map(|place| place.scales.iter().cloned()).collect()
    }
}

impl Place {
    fn settle(&mut self, vpas: &VpaIndex, known: &impl Controllers, needs: &mut Vec<ControllerKey>) {
        let unmatched = std::mem::take(&mut self.unmatched);
        let mut groups: Vec<(Arc<GroupName>, Vec<Arc<str>>)> = if self.rematch {
            let groups = self.groups.iter();
            groups
                .map(|(name, group)| (name.clone(), group.members.iter().cloned().collect()))
                .collect()
        } else {
            let mut rows: Vec<_> = unmatched
                .into_iter()
                .filter_map(|name| Some((self.pods.get(&name)?.group.clone(), name)))
                .collect();
            rows.sort_unstable();
            let chunks = rows.chunk_by(|(one, _), (other, _)| one == other);
            chunks
                .filter_map(|chunk| {
                    let (group, _) = chunk.first()?;
                    Some((
                        group.clone(),
                        chunk.iter().map(|(_, name)| name.clone()).collect(),
                    ))
                })
                .collect()
        };
        groups.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        if self.rematch {
            self.vpas.values_mut().for_each(|row| row.groups.clear());
        }
        for (group, members) in groups {
            self.settle_group(&group, &members, vpas, known, needs);
        }
    }

    fn settle_group(
        &mut self,
        group: &Arc<GroupName>,
        members: &[Arc<str>],
        vpas: &VpaIndex,
        known: &impl Controllers,
        needs: &mut Vec<ControllerKey>,
    ) {
        // Where there is no VPA at all nobody's owners need to be followed.
        let top = match self.groups.get(group).filter(|_| !self.vpas.is_empty()) {
            None => Ok(None),
            Some(found) => topmost(found.controller.clone(), known),
        };
        let top = match top {
            Err(TopmostError::NeedsScale(key)) => {
                needs.push(key);
                return;
            }
            Err(error) => {
                tracing::debug!(kind = group.kind, name = group.name, %error, "a controller cannot be followed");
                None
            }
            Ok(top) => top,
        };
        for name in members {
            let labels = self.pods.get(name).and_then(|row| row.labels.clone());
            let found = match &top {
                None => None,
                Some(top) => match strongest(top, labels.as_deref(), vpas, known, |_| true) {
                    Err(TopmostError::NeedsScale(key)) => {
                        needs.push(key);
                        return;
                    }
                    Err(_) => None,
                    Ok(vpa) => vpa.map(|vpa| vpa.sizing.name.as_str()),
                },
            };
            self.assign(name, group, found);
        }
    }

    /// A pod has this VPA from now on; both it and the one from before have to look again if that is new.
    fn assign(&mut self, pod: &Arc<str>, group: &Arc<GroupName>, vpa: Option<&str>) {
        let Some(row) = self.pods.get_mut(pod) else {
            return;
        };
        if row.vpa.as_deref() == vpa {
            if let Some(vpa) = vpa.and_then(|vpa| self.vpas.get_mut(vpa)) {
                vpa.groups.insert(group.clone());
            }
            return;
        }
        if let Some(before) = row.vpa.take()
            && let Some(before) = self.vpas.get_mut(&*before)
        {
            before.changed = true;
        }
        let key = vpa
            .and_then(|vpa| self.vpas.get_key_value(vpa))
            .map(|(key, _)| key.clone());
        if let Some(vpa) = key.as_ref().and_then(|key| self.vpas.get_mut(key)) {
            vpa.changed = true;
            vpa.groups.insert(group.clone());
        }
        row.vpa = key;
    }
}

/// What is known of controllers, and what was asked of it.
struct Known<'k, 's, F: Fn(&ControllerKey) -> ScaleLookup<'s>> {
    watched: &'k ControllerIndex,
    scale: &'k F,
    asked: RefCell<HashSet<ControllerKey>>,
}

impl<'s, F: Fn(&ControllerKey) -> ScaleLookup<'s>> Controllers for Known<'_, 's, F> {
    fn well_known(&self, kind: WellKnown, namespace: &str, name: &str) -> Option<&Controller> {
        self.watched.get(kind, namespace, name)
    }

    fn scale(&self, key: &ControllerKey) -> ScaleLookup<'_> {
        self.asked.borrow_mut().insert(key.clone());
        (self.scale)(key)
    }
}
