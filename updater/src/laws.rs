//! What holds for every turn, whatever the pods look like and whatever the API server says.

use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

use crate::{
    decide::{Fate, Outcome},
    reason::Skip,
    testing::{Workload, recommended, requests, workload},
};

const MODES: [&str; 7] = [
    "Off",
    "Initial",
    "Recreate",
    "Auto",
    "InPlaceOrRecreate",
    "InPlace",
    "Later",
];
const NAMES: [&str; 8] = [
    "web-0", "web-1", "web-2", "web-3", "web-4", "web-5", "web-6", "web-7",
];

const FAILURES: [Outcome; 3] = [Outcome::Refused, Outcome::NodeCapacity, Outcome::Unanswered];

/// What a pod may be in the middle of.
fn change() -> impl Strategy<Value = fn(&mut Value)> {
    fn resizing(pod: &mut Value, type_: &str, status: &str, reason: &str) {
        let condition = json!({"type": type_, "status": status, "reason": reason});
        pod["status"]["conditions"] = json!([condition]);
    }
    select(vec![
        |_: &mut Value| {},
        |pod: &mut Value| pod["status"]["phase"] = json!("Pending"),
        |pod: &mut Value| resizing(pod, "PodResizePending", "True", "Deferred"),
        |pod: &mut Value| resizing(pod, "PodResizePending", "True", "Infeasible"),
        |pod: &mut Value| resizing(pod, "PodResizePending", "False", "Deferred"),
        |pod: &mut Value| resizing(pod, "PodResizeInProgress", "True", ""),
        |pod: &mut Value| resizing(pod, "PodResizeInProgress", "True", "Error"),
        |pod: &mut Value| {
            pod["metadata"]["annotations"]["vpaCpuStartupBoost/app"] =
                json!("{\"requests\":{\"cpu\":\"50m\"}}");
            pod["status"]["conditions"] =
                json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-10T11:00:00Z"}]);
        },
        |pod: &mut Value| pod["spec"]["containers"][0]["resources"] = json!({}),
        |pod: &mut Value| pod["spec"]["containers"][0]["resources"] = requests("400m", "50Mi"),
        |pod: &mut Value| pod["spec"]["containers"][0]["resources"] = requests("200m", "200Mi"),
        |pod: &mut Value| pod["metadata"]["annotations"] = json!({"vpaObservedContainers": "x,,-"}),
    ])
}

prop_compose! {
    fn any_workload()(
        mode in select(MODES.to_vec()),
        changes in vec((change(), change()), 1..8),
        wanted in 0..10_i64,
        kind in select(vec!["ReplicaSet", "DaemonSet", "Job", "CloneSet"]),
        tolerance in select(vec![0.0, 0.1, 0.25, 0.5, 0.9, 1.0]),
        min_replicas in 0..4_i64,
        has_boost in any::<bool>(),
        resize_fails in vec((select(NAMES.to_vec()), select(FAILURES.to_vec())), 0..5),
        evict_fails in vec((select(NAMES.to_vec()), select(FAILURES.to_vec())), 0..5),
    ) -> Workload {
        workload(mode, changes.len()).with(|workload| {
            workload.kind = kind;
            workload.wanted = Some(wanted);
            workload.settings.eviction_tolerance = tolerance;
            workload.settings.min_replicas = min_replicas;
            workload.resize_fails = resize_fails;
            workload.evict_fails = evict_fails;
            if has_boost {
                workload.vpa["spec"]["startupBoost"] = json!({"cpu": {"type": "Factor", "factor": 2}});
            }
            for (pod, (one, other)) in workload.pods.iter_mut().zip(changes) {
                one(pod);
                other(pod);
            }
        })
    }
}

impl Workload {
    /// How many running pods of the group may be gone or restart at once.
    fn allowed(&self) -> i64 {
        let is_pending = |pod: &&Value| pod["status"]["phase"] == "Pending";
        let live = i64::try_from(self.pods.len()).unwrap();
        let running = live - i64::try_from(self.pods.iter().filter(is_pending).count()).unwrap();
        let wanted = self.wanted.unwrap_or(0);
        let configured = match self.kind {
            "Job" => live,
            "CloneSet" => wanted.max(live),
            _ => wanted,
        };
        let mut tolerance = 0;
        while to_f64(tolerance + 1) <= to_f64(configured) * self.settings.eviction_tolerance {
            tolerance += 1;
        }
        let at_least = i64::from(configured == running && tolerance == 0);
        (running - configured + tolerance).max(at_least)
    }
}

fn to_f64(n: i64) -> f64 {
    f64::from(i32::try_from(n).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_budget_is_kept(mut workload in any_workload()) {
        let allowed = workload.allowed();
        for _ in 0..3 {
            let (_, fates) = workload.turn();
            let disrupted = fates.iter().zip(&workload.pods).filter(|(fate, pod)| match fate {
                Fate::Unboosted | Fate::Resized => true,
                // Of all failures, this is the one that may be none.
                Fate::Evicted | Fate::Skipped(Skip::ApiUnavailable) => pod["status"]["phase"] != "Pending",
                Fate::Skipped(_) => false,
            });
            let disrupted = i64::try_from(disrupted.count()).unwrap();
            prop_assert!(disrupted <= allowed, "{disrupted} of at most {allowed}");
            workload.later(7);
        }
    }

    #[test]
    fn pods_that_have_what_they_should_have_are_left(
        mut workload in any_workload(),
        has_limits in any::<bool>(),
    ) {
        workload.vpa["status"]["recommendation"]["containerRecommendations"] =
            json!([recommended("app", "200m", "200Mi"), recommended("other", "1", "1Gi")]);
        for pod in &mut workload.pods {
            pod["metadata"]["annotations"] = json!({"vpaObservedContainers": "app"});
            pod["spec"]["containers"][0]["resources"] = requests("200m", "200Mi");
            if has_limits {
                pod["spec"]["containers"][0]["resources"]["limits"] = json!({"cpu": "1", "memory": "1Gi"});
            }
        }
        workload.settings.pod_update_threshold = 0.0;
        prop_assert_eq!(workload.done(), Vec::<String>::new());
    }

    #[test]
    fn a_turn_depends_on_its_inputs_alone(mut workload in any_workload()) {
        let memory = workload.memory.clone();
        let first = (workload.turn(), workload.memory.clone());
        workload.memory = memory;
        prop_assert_eq!(first, (workload.turn(), workload.memory));
    }

    #[test]
    fn modes_do_what_they_say(mut workload in any_workload()) {
        let mode = workload.vpa["spec"]["updatePolicy"]["updateMode"].clone();
        let (_, fates) = workload.turn();
        for fate in fates {
            match fate {
                Fate::Evicted => prop_assert!(["Recreate", "Auto", "InPlaceOrRecreate"].contains(&mode.as_str().unwrap())),
                Fate::Resized => prop_assert!(["InPlace", "InPlaceOrRecreate"].contains(&mode.as_str().unwrap())),
                Fate::Unboosted => prop_assert!(workload.vpa["spec"].get("startupBoost").is_some()),
                Fate::Skipped(_) => {}
            }
        }
    }
}
