//! From a VPA's target to the selector of its pods, and what to say where there is none (`spec/vpa.md` 1.5, 2.3).

use common::{
    api::vpa::CrossVersionObjectReference,
    kube::scale::Scales,
    selector::Selector,
    target::{
        Controller, ControllerIndex, ControllerKey, Controllers, ScaleLookup, TargetError, TopmostError,
        WellKnown, selector_of, topmost,
    },
};

/// What is known of controllers: the watched ones, and the scales of others.
pub(crate) struct Known<'k> {
    pub(crate) watched: &'k ControllerIndex,
    pub(crate) scales: &'k Scales,
}

impl Controllers for Known<'_> {
    fn well_known(&self, kind: WellKnown, namespace: &str, name: &str) -> Option<&Controller> {
        self.watched.get(kind, namespace, name)
    }

    fn scale(&self, key: &ControllerKey) -> ScaleLookup<'_> {
        self.scales.get(key)
    }
}

/// What became of a target.
#[derive(Debug, PartialEq)]
pub(crate) enum Target {
    /// The selector of its pods.
    Selector(Selector),
    /// Why there is none: the message of the condition.
    Unsupported(String),
    /// This scale has to be asked for first.
    Needs(ControllerKey),
}

/// Finds the selector of a target.
pub(crate) fn resolve(
    namespace: &str,
    target: Option<&CrossVersionObjectReference>,
    controllers: &impl Controllers,
) -> Target {
    let Some(target) = target else {
        return Target::Unsupported("Cannot read targetRef".to_owned());
    };
    let key = ControllerKey {
        namespace: namespace.to_owned(),
        api_version: target.api_version.clone(),
        kind: target.kind.clone(),
        name: target.name.clone(),
    };
    let selector = match selector_of(&key, controllers) {
        Ok(selector) => selector.into_owned(),
        Err(TargetError::NeedsScale(scale)) => return Target::Needs(scale),
        Err(error) => return Target::Unsupported(format!("Cannot read targetRef. Reason: {error}")),
    };
    let CrossVersionObjectReference {
        api_version,
        kind,
        name,
    } = target;
    let named = format!("{api_version}.{kind}/{name}");
    let what = "a topmost well-known or scalable controller";
    match topmost(key.clone(), controllers) {
        Ok(Some(top)) if top == key => Target::Selector(selector),
        Ok(Some(_)) => Target::Unsupported(format!(
            "The target {named} has a parent controller but it should point to {what}"
        )),
        Ok(None) => Target::Unsupported(format!(
            "Unknown error during checking if target {named} is {what}"
        )),
        Err(TopmostError::NeedsScale(scale)) => Target::Needs(scale),
        Err(error) => Target::Unsupported(format!("Error checking if target {named} is {what}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::target::Scale;

    struct Fixed {
        watched: ControllerIndex,
        scale: Option<Scale>,
    }

    impl Controllers for Fixed {
        fn well_known(&self, kind: WellKnown, namespace: &str, name: &str) -> Option<&Controller> {
            self.watched.get(kind, namespace, name)
        }

        fn scale(&self, _: &ControllerKey) -> ScaleLookup<'_> {
            match &self.scale {
                Some(scale) => ScaleLookup::Found(scale),
                None => ScaleLookup::NotFound("not found"),
            }
        }
    }

    fn target(kind: &str, name: &str) -> CrossVersionObjectReference {
        CrossVersionObjectReference {
            api_version: "apps/v1".to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
        }
    }

    fn controllers() -> Fixed {
        let labels = std::collections::BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        let owner = ControllerKey {
            namespace: "shop".to_owned(),
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            name: "web".to_owned(),
        };
        let mut watched = ControllerIndex::default();
        let top = Controller::labelling(None, Some(&labels));
        watched.apply(WellKnown::Deployment, "shop", "web", top);
        let owned = Controller::labelling(Some(owner), Some(&labels));
        watched.apply(WellKnown::ReplicaSet, "shop", "web-1", owned);
        Fixed { watched, scale: None }
    }

    #[test]
    fn a_target_has_a_selector_or_a_reason() {
        let cases = [
            (Some(target("Deployment", "web")), Target::Selector("app=web".parse().unwrap())),
            (None, Target::Unsupported("Cannot read targetRef".to_owned())),
            (
                Some(target("Deployment", "other")),
                Target::Unsupported("Cannot read targetRef. Reason: Deployment shop/other does not exist".to_owned()),
            ),
            (
                Some(target("ReplicaSet", "web-1")),
                Target::Unsupported(
                    "The target apps/v1.ReplicaSet/web-1 has a parent controller but it should point to a topmost \
                     well-known or scalable controller"
                        .to_owned(),
                ),
            ),
            (
                Some(target("Rollout", "web")),
                Target::Unsupported(
                    "Cannot read targetRef. Reason: unhandled targetRef apps/v1 / Rollout / web, last error not found"
                        .to_owned(),
                ),
            ),
        ];
        let controllers = controllers();
        for (target, expected) in cases {
            assert_eq!(resolve("shop", target.as_ref(), &controllers), expected);
        }
    }

    #[test]
    fn a_scalable_target_is_as_good_as_a_well_known_one() {
        let scale = Scale {
            owner: None,
            selector: "app=web".to_owned(),
            replicas: None,
        };
        let controllers = Fixed {
            scale: Some(scale),
            ..controllers()
        };
        assert_eq!(
            resolve("shop", Some(&target("Rollout", "web")), &controllers),
            Target::Selector("app=web".parse().unwrap())
        );
    }
}
