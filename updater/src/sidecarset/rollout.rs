//! Which pods get a set's newest images now (`spec/sidecarset.md` 5, steps 3 to 5): not more than the strategy lets go at
//! once, and as many as it wants kept are kept.

use common::{
    api::{
        k8s::IntOrString,
        sidecarset::{SidecarSet, UpdateStrategyType},
    },
    selector::Selector,
};

use super::{order::sort, pod::SidecarPod, standing::Standing};

/// Which pods a set's updates are for at all.
#[derive(Clone, Debug, PartialEq)]
pub struct Reach(Option<Selector>);

impl Reach {
    /// Of a set; none if it updates nothing now. What nobody can read selects nothing.
    #[must_use]
    pub fn of(set: &SidecarSet) -> Option<Self> {
        let strategy = &set.spec.update_strategy;
        if strategy.type_ == Some(UpdateStrategyType::NotUpdate) || strategy.paused {
            return None;
        }
        let selector = strategy.selector.as_ref().map(Selector::try_from).transpose();
        selector.ok().map(Self)
    }

    /// Whether a pod is one of them.
    #[must_use]
    pub fn includes(&self, pod: &SidecarPod) -> bool {
        let selector = self.0.as_ref();
        selector.is_none_or(|selector| selector.matches(|key| pod.label(key)))
    }
}

/// The pods that are to be updated now.
#[must_use]
pub fn next<'p>(set: &SidecarSet, standings: &[Standing<'p>]) -> Vec<Standing<'p>> {
    let strategy = &set.spec.update_strategy;
    let Some(reach) = Reach::of(set) else {
        return Vec::new();
    };
    let old = standings.iter().filter(|standing| !standing.is_updated);
    let (mut candidates, staying): (Vec<Standing<'p>>, Vec<_>) =
        old.partition(|standing| standing.is_upgradable && reach.includes(standing.pod));
    sort(&mut candidates, strategy);

    // Those that stay old anyway are among those that are to be kept.
    let keep = kept(strategy.partition.as_ref(), standings.len()).saturating_sub(staying.len());
    candidates.truncate(candidates.len().saturating_sub(keep));

    let max = scaled(
        strategy.max_unavailable.as_ref().unwrap_or(&IntOrString::Int(1)),
        standings.len(),
    );
    let updating = standings
        .iter()
        .filter(|standing| standing.is_updated && !standing.is_ready);
    let mut budget = max.saturating_sub(updating.count());
    candidates.retain(|candidate| {
        if !candidate.is_ready {
            return true;
        }
        let fits = budget > 0;
        budget = budget.saturating_sub(1);
        fits
    });
    candidates
}

/// How many of so many pods stay as they are. Below 100% at least one goes, so that something is seen to happen.
fn kept(partition: Option<&IntOrString>, pods: usize) -> usize {
    let Some(partition) = partition else {
        return 0;
    };
    let kept = scaled(partition, pods).min(pods);
    let is_all =
        matches!(partition, IntOrString::String(text) if percent(text).is_some_and(|percent| percent < 100));
    if is_all && kept == pods && pods > 1 {
        kept - 1
    } else {
        kept
    }
}

/// A number, or a percentage rounded up. What cannot be read is all: nothing is updated by mistake.
fn scaled(amount: &IntOrString, of: usize) -> usize {
    match amount {
        IntOrString::Int(count) => usize::try_from(*count).unwrap_or(0),
        IntOrString::String(text) => {
            percent(text).map_or(of, |percent| of.saturating_mul(percent).div_ceil(100))
        }
    }
}

fn percent(text: &str) -> Option<usize> {
    text.strip_suffix('%')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn set(strategy: Value) -> SidecarSet {
        let mut set = json!({"metadata": {"name": "s"}, "spec": {}});
        set["spec"]["updateStrategy"] = strategy;
        serde_json::from_value(set).unwrap()
    }

    /// So many pods of a kind.
    fn standings(pod: &SidecarPod, kinds: [(usize, bool, bool); 3]) -> Vec<Standing<'_>> {
        let standing = |is_updated, is_ready| Standing {
            pod,
            is_updated,
            is_ready,
            is_upgradable: true,
        };
        kinds
            .into_iter()
            .flat_map(|(count, is_updated, is_ready)| {
                std::iter::repeat_n(standing(is_updated, is_ready), count)
            })
            .collect()
    }

    /// The tests of `spec/sidecarset.md` 5, step 5, and around them.
    #[test]
    fn partition_and_max_unavailable_hold() {
        let (old, updated, broken) = (|n| (n, false, true), |n| (n, true, true), |n| (n, true, false));
        for (strategy, kinds, expected) in [
            (
                json!({"maxUnavailable": 10}),
                [old(70), updated(26), broken(4)],
                6,
            ),
            (
                json!({"maxUnavailable": "5%"}),
                [old(950), updated(0), broken(50)],
                0,
            ),
            (
                json!({"maxUnavailable": 1000, "partition": 180}),
                [old(200), updated(800), broken(0)],
                20,
            ),
            (
                json!({"maxUnavailable": 5, "partition": "99%"}),
                [old(5), updated(0), broken(0)],
                1,
            ),
            (
                json!({"maxUnavailable": 5, "partition": "1%"}),
                [old(5), updated(0), broken(0)],
                4,
            ),
            (
                json!({"maxUnavailable": 5, "partition": "100%"}),
                [old(5), updated(0), broken(0)],
                0,
            ),
            (
                json!({"maxUnavailable": 5, "partition": "99%"}),
                [old(1), updated(0), broken(0)],
                0,
            ),
            (json!({}), [old(5), updated(0), broken(0)], 1),
            (
                json!({"maxUnavailable": "1%"}),
                [old(5), updated(0), broken(0)],
                1,
            ),
            (
                json!({"maxUnavailable": 2}),
                [old(5), (3, false, false), broken(1)],
                4,
            ),
            (
                json!({"maxUnavailable": 5, "paused": true}),
                [old(5), updated(0), broken(0)],
                0,
            ),
            (
                json!({"maxUnavailable": 5, "type": "NotUpdate"}),
                [old(5), updated(0), broken(0)],
                0,
            ),
            (
                json!({"maxUnavailable": 5, "partition": "x"}),
                [old(5), updated(0), broken(0)],
                0,
            ),
        ] {
            let pod = SidecarPod::default();
            let found = next(&set(strategy.clone()), &standings(&pod, kinds)).len();
            assert_eq!(found, expected, "{strategy} {kinds:?}");
        }
    }

    #[test]
    fn only_selected_and_upgradable_pods_are_updated() {
        let labelled: SidecarPod =
            serde_json::from_value(json!({"metadata": {"labels": {"canary": "true"}}})).unwrap();
        let plain = SidecarPod::default();
        let standing = |pod, is_upgradable| Standing {
            pod,
            is_updated: false,
            is_ready: true,
            is_upgradable,
        };
        let all = [
            standing(&labelled, true),
            standing(&labelled, false),
            standing(&plain, true),
        ];
        let strategy = json!({"maxUnavailable": 9, "selector": {"matchLabels": {"canary": "true"}}});
        assert_eq!(next(&set(strategy), &all), [standing(&labelled, true)]);
        // One that cannot be updated is one of those that are kept.
        assert_eq!(
            next(&set(json!({"maxUnavailable": 9, "partition": 1})), &all).len(),
            2
        );
        let unreadable = json!({"selector": {"matchExpressions": [{"key": "a", "operator": "badOp"}]}});
        assert_eq!(next(&set(unreadable), &all), []);
    }
}
