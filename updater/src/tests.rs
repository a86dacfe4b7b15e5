//! The rows of the updater and actuation suites that need no node (`spec/vpa.md` 6.2, 6.4), the quirks, and native sidecars,
//! as one VPA's turn answers them.

use serde_json::{Value, json};

use crate::{
    decide::{Evictions, Fate, Outcome},
    hopeless::ResizeSupport,
    reason::Skip,
    testing::{Workload, native_sidecar, recommended, requests, workload},
};

const MODES: [&str; 3] = ["Recreate", "InPlaceOrRecreate", "InPlace"];

fn condition(type_: &str, reason: &str) -> Value {
    json!({"type": type_, "status": "True", "reason": reason})
}

fn resizing(mode: &str, type_: &str, reason: &str) -> Workload {
    workload(mode, 1)
        .with(|workload| workload.settings.min_replicas = 1)
        .each(|pod| pod["status"]["conditions"] = json!([condition(type_, reason)]))
}

#[test]
fn each_mode_has_its_way() {
    for (mode, expected) in [
        ("Recreate", "evicted"),
        ("Auto", "evicted"),
        ("InPlaceOrRecreate", "resized"),
        ("InPlace", "resized"),
        ("Initial", "Mode"),
        ("Off", "Mode"),
    ] {
        assert_eq!(workload(mode, 2).first(), expected, "{mode}");
    }
    assert_eq!(workload("InPlace", 2).gate("InPlace=false").first(), "GateOff");
}

#[test]
fn how_many_of_a_group_in_one_loop() {
    for (pods, tolerance, expected) in [
        (1, 0.5, 1),
        (2, 0.5, 1),
        (3, 0.5, 1),
        (4, 0.5, 2),
        (10, 0.7, 7),
        (10, 0.0, 1),
    ] {
        for mode in MODES {
            let mut workload = workload(mode, pods).with(|workload| {
                workload.settings.min_replicas = 1;
                workload.settings.eviction_tolerance = tolerance;
            });
            assert_eq!(workload.done().len(), expected, "{mode} {pods} {tolerance}");
        }
    }
}

#[test]
fn groups_that_are_too_small_or_not_known() {
    for (kind, wanted, pods, expected) in [
        ("ReplicaSet", Some(1), 1, "TooFewReplicas"),
        ("ReplicaSet", Some(2), 2, "evicted"),
        ("StatefulSet", None, 2, "NoController"),
        ("DaemonSet", Some(0), 2, "NoReplicas"),
        ("Job", None, 2, "evicted"),
        ("CloneSet", None, 2, "evicted"),
    ] {
        let mut workload = workload("Recreate", pods).with(|workload| {
            workload.kind = kind;
            workload.wanted = wanted;
        });
        assert_eq!(workload.first(), expected, "{kind} {wanted:?}");
    }
}

#[test]
fn a_custom_controller_has_a_budget() {
    let of = |wanted, quirks| {
        workload("Recreate", 6)
            .quirks(quirks)
            .with(|workload| {
                workload.kind = "CloneSet";
                workload.wanted = wanted;
            })
            .done()
            .len()
    };
    assert_eq!(of(Some(6), "none"), 3);
    assert_eq!(of(None, "none"), 3);
    // Two pods are missing already.
    assert_eq!(of(Some(8), "none"), 2);
    assert_eq!(of(Some(6), "Q12"), 6);
}

#[test]
fn a_single_replica_is_resized_where_nothing_restarts() {
    let single = || workload("InPlaceOrRecreate", 1);
    let annotated = |workload: &mut Workload| {
        workload.vpa["metadata"]["annotations"] =
            json!({"outrigger.dev/in-place-skip-disruption-budget": "true"});
    };
    let restarting = |pod: &mut Value| {
        pod["spec"]["containers"][0]["resizePolicy"] =
            json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    };
    assert_eq!(single().first(), "TooFewReplicas");
    assert_eq!(single().with(annotated).first(), "resized");
    let by_flag = |workload: &mut Workload| workload.settings.in_place_skip_disruption_budget = true;
    assert_eq!(single().with(by_flag).first(), "resized");
    assert_eq!(single().with(by_flag).each(restarting).first(), "TooFewReplicas");
    assert_eq!(
        single().with(by_flag).each(restarting).quirks("Q36").first(),
        "resized"
    );
    // A resize that fails is not followed by an eviction.
    let mut refused = single().with(by_flag).with(|workload| {
        workload.resize_fails = vec![("web-0", Outcome::Refused), ("web-1", Outcome::Refused)];
    });
    assert_eq!(refused.first(), "TooFewReplicas");
}

#[test]
fn a_disruption_budget_is_asked_once_for_pods_that_are_alike() {
    let unready = json!([{"type": "Ready", "status": "False"}]);
    let refused = || {
        workload("Recreate", 8).with(|workload| {
            let no = Outcome::NotNow(Skip::DisruptionBudget);
            workload.evict_fails = vec![("web-0", no)];
        })
    };
    let (done, fates) = refused().turn();
    assert_eq!(done, ["cannot evict web-0"]);
    assert!(
        fates
            .iter()
            .all(|fate| *fate == Fate::Skipped(Skip::DisruptionBudget)),
        "{fates:?}"
    );
    // Budgets select by labels, and treat pods that are not ready in their own way.
    let (done, _) = refused()
        .with(|workload| workload.pods[5]["metadata"]["labels"] = json!({"canary": "true"}))
        .with(|workload| workload.pods[6]["status"]["conditions"] = unready)
        .turn();
    assert_eq!(done, ["cannot evict web-0", "evict web-5", "evict web-6"]);
    // Any other refusal is of one pod.
    let (done, _) = refused()
        .with(|workload| workload.evict_fails = vec![("web-0", Outcome::Refused)])
        .turn();
    assert_eq!(done.len(), 5, "{done:?}");
}

#[test]
fn what_was_not_answered_counts_as_done() {
    let unanswered = |mode: &str, evictions: Evictions| {
        let names = [
            "web-0", "web-1", "web-2", "web-3", "web-4", "web-5", "web-6", "web-7",
        ];
        let fails = names.map(|name| (name, Outcome::Unanswered)).to_vec();
        let mut workload = workload(mode, 8).with(|workload| {
            workload.evictions = evictions;
            workload.evict_fails = fails.clone();
            workload.resize_fails = fails;
        });
        let (_, fates) = workload.turn();
        let asked = fates
            .iter()
            .filter(|fate| **fate == Fate::Skipped(Skip::ApiUnavailable));
        asked.count()
    };
    assert_eq!(unanswered("Recreate", Evictions::Allowed), 4);
    assert_eq!(unanswered("Recreate", Evictions::Probe), 1);
    assert_eq!(unanswered("InPlace", Evictions::Allowed), 4);
    assert_eq!(unanswered("InPlaceOrRecreate", Evictions::Allowed), 4);
}

#[test]
fn what_a_resize_under_way_leads_to() {
    // The state, then what follows in InPlaceOrRecreate at once and after 6 and 70 minutes, and in InPlace.
    for (type_, reason, expected, in_place) in [
        (
            "PodResizePending",
            "Deferred",
            ["ResizeDeferred", "evicted", "evicted"],
            "ResizeDeferred",
        ),
        (
            "PodResizePending",
            "Infeasible",
            ["evicted", "evicted", "evicted"],
            "resized",
        ),
        (
            "PodResizePending",
            "Other",
            ["evicted", "evicted", "evicted"],
            "ResizeDeferred",
        ),
        (
            "PodResizeInProgress",
            "",
            ["ResizeInProgress", "ResizeInProgress", "evicted"],
            "ResizeInProgress",
        ),
        (
            "PodResizeInProgress",
            "Error",
            ["evicted", "evicted", "evicted"],
            "ResizeFailing",
        ),
    ] {
        let mut workload = resizing("InPlaceOrRecreate", type_, reason);
        let at_once = workload.first();
        workload.later(6);
        let soon = workload.first();
        workload.later(64);
        assert_eq!([at_once, soon, workload.first()], expected, "{type_} {reason}");
        assert_eq!(
            resizing("InPlace", type_, reason).first(),
            in_place,
            "{type_} {reason}"
        );
    }
}

#[test]
fn a_wait_is_counted_for_one_resize_of_one_pod() {
    let deferred = || resizing("InPlaceOrRecreate", "PodResizePending", "Deferred");
    // Another pod of the same name.
    let again = |quirks: &str| {
        let mut workload = deferred().quirks(quirks);
        workload.first();
        workload.later(6);
        let mut workload = workload.each(|pod| pod["metadata"]["uid"] = json!("another"));
        workload.first()
    };
    assert_eq!(again("none"), "ResizeDeferred");
    assert_eq!(again("Q13"), "evicted");
    // A restarted updater believes the kubelet.
    let mut said = deferred().each(|pod| {
        pod["status"]["conditions"][0]["lastTransitionTime"] = json!("2026-03-10T11:50:00Z");
    });
    assert_eq!(said.first(), "evicted");
}

#[test]
fn a_false_condition_hides_nothing() {
    let both = |quirks: &str| {
        workload("InPlace", 2)
            .quirks(quirks)
            .each(|pod| {
                pod["status"]["conditions"] = json!([
                    {"type": "PodResizePending", "status": "False", "reason": "Deferred"},
                    condition("PodResizeInProgress", ""),
                ]);
            })
            .first()
    };
    assert_eq!(both("none"), "ResizeInProgress");
    assert_eq!(both("Q33"), "resized");
}

#[test]
fn deferred_really_waits() {
    assert_eq!(
        resizing("InPlace", "PodResizePending", "Deferred").first(),
        "ResizeDeferred"
    );
    assert_eq!(
        resizing("InPlace", "PodResizePending", "Deferred")
            .quirks("Q14")
            .first(),
        "resized"
    );
}

#[test]
fn what_did_not_fit_is_tried_again_when_it_is_less() {
    let mut workload = workload("InPlace", 2).with(|workload| {
        workload.resize_fails = vec![("web-0", Outcome::NodeCapacity)];
    });
    assert_eq!(workload.first(), "ResizeRefused");
    workload.resize_fails.clear();
    assert_eq!(workload.first(), "InfeasibleBefore");
    let recommend = |workload: &mut Workload, cpu| {
        workload.vpa["status"]["recommendation"]["containerRecommendations"] =
            json!([recommended("app", cpu, "200Mi")]);
    };
    recommend(&mut workload, "300m");
    assert_eq!(workload.first(), "InfeasibleBefore");
    recommend(&mut workload, "150m");
    assert_eq!(workload.first(), "resized");
}

#[test]
fn a_failing_kubelet_is_not_remembered_as_infeasible() {
    let mut workload = resizing("InPlace", "PodResizeInProgress", "Error");
    assert_eq!(workload.first(), "ResizeFailing");
    assert_eq!(workload.memory.infeasible_uids().count(), 0);
    let mut workload = workload.each(|pod| pod["status"]["conditions"] = json!([]));
    assert_eq!(workload.first(), "resized");
}

#[test]
fn an_infeasible_resize_is_not_sent_again() {
    let mut workload = resizing("InPlace", "PodResizePending", "Infeasible").each(|pod| {
        pod["spec"]["containers"][0]["resources"] = requests("200m", "200Mi");
        pod["status"]["containerStatuses"] = json!([{"name": "app", "resources": requests("100m", "100Mi")}]);
    });
    assert_eq!(workload.first(), "ResizeInfeasible");
    assert_eq!(workload.first(), "InfeasibleBefore");
}

#[test]
fn a_resize_after_an_infeasible_one_is_tried_until_it_reaches_the_pod() {
    for (answer, said) in [
        (Outcome::Refused, "ResizeRefused"),
        (Outcome::NotNow(Skip::ApiUnavailable), "ApiUnavailable"),
    ] {
        let mut workload = resizing("InPlace", "PodResizePending", "Infeasible")
            .with(|workload| workload.resize_fails = vec![("web-0", answer)]);
        assert_eq!(workload.first(), said);
        workload.resize_fails.clear();
        assert_eq!(workload.first(), "resized", "after {said}");
        assert_eq!(workload.first(), "InfeasibleBefore", "after {said}");
    }
}

#[test]
fn a_refused_resize_is_followed_by_an_eviction_where_the_mode_has_it() {
    for (mode, expected) in [("InPlaceOrRecreate", "evicted"), ("InPlace", "ResizeRefused")] {
        let mut workload = workload(mode, 2).with(|workload| {
            workload.resize_fails = vec![("web-0", Outcome::Refused), ("web-1", Outcome::Refused)];
        });
        assert_eq!(workload.first(), expected, "{mode}");
    }
}

#[test]
fn a_resize_that_must_fail_is_not_sent() {
    let best_effort = |pod: &mut Value| pod["spec"]["containers"][0]["resources"] = json!({});
    let limited = |pod: &mut Value| {
        pod["spec"]["containers"][0]["resources"] = json!({
            "requests": {"cpu": "300m", "memory": "300Mi"}, "limits": {"cpu": "600m", "memory": "600Mi"},
        });
    };
    for (support, change, expected) in [
        (
            ResizeSupport::Full,
            best_effort as fn(&mut Value),
            "QosWouldChange",
        ),
        (ResizeSupport::Full, limited, "resized"),
        (ResizeSupport::NoMemoryDecrease, limited, "MemoryLimitDecrease"),
        (ResizeSupport::None, limited, "ResizeUnsupported"),
    ] {
        let of = |mode: &str| {
            workload(mode, 2)
                .each(change)
                .with(|workload| workload.settings.resize_support = support)
        };
        assert_eq!(of("InPlace").first(), expected, "{support:?}");
        assert_eq!(of("InPlace").quirks("Q35").first(), "resized", "{support:?}");
        let instead = if expected == "resized" {
            "resized"
        } else {
            "evicted"
        };
        assert_eq!(of("InPlaceOrRecreate").first(), instead, "{support:?}");
    }
}

#[test]
fn nothing_is_evicted_while_admission_is_stale() {
    assert_eq!(
        Evictions::with_lease(true, "all".parse().unwrap()),
        Some(Evictions::Allowed)
    );
    assert_eq!(Evictions::with_lease(false, "Q26".parse().unwrap()), None);
    let stale = Evictions::with_lease(false, "none".parse().unwrap()).unwrap();
    assert_eq!(stale, Evictions::Stopped(Skip::AdmissionStale));
    let of = |mode: &str| workload(mode, 2).with(|workload| workload.evictions = stale);
    assert_eq!(of("Recreate").first(), "AdmissionStale");
    assert_eq!(of("InPlaceOrRecreate").first(), "resized");
    let mut refused = of("InPlaceOrRecreate").with(|workload| {
        workload.resize_fails = vec![("web-0", Outcome::Refused), ("web-1", Outcome::Refused)];
    });
    assert_eq!(refused.first(), "AdmissionStale");
    let mut stuck = resizing("InPlaceOrRecreate", "PodResizePending", "Infeasible");
    stuck.evictions = stale;
    assert_eq!(stuck.first(), "AdmissionStale");
}

#[test]
fn a_probe_is_one_eviction() {
    let mut probing = workload("Recreate", 8).with(|workload| workload.evictions = Evictions::Probe);
    assert_eq!(probing.done(), ["evict web-0"]);
    let mut refused = workload("InPlaceOrRecreate", 8).with(|workload| {
        workload.evictions = Evictions::Probe;
        workload.resize_fails = vec![("web-0", Outcome::Refused), ("web-1", Outcome::Refused)];
    });
    assert_eq!(
        refused.done(),
        ["resize web-2", "resize web-3", "resize web-4", "resize web-5"]
    );
}

#[test]
fn eviction_requirements_are_heard() {
    for (direction, expected) in [
        ("TargetHigherThanRequests", "evicted"),
        ("TargetLowerThanRequests", "Requirements"),
    ] {
        let mut workload = workload("Recreate", 2).with(|workload| {
            workload.vpa["spec"]["updatePolicy"]["evictionRequirements"] =
                json!([{"resources": ["cpu"], "changeRequirement": direction}]);
        });
        assert_eq!(workload.first(), expected, "{direction}");
    }
}

/// Within bounds, target 2Gi, request 1Gi, killed a minute after its start.
#[test]
fn quick_oom() {
    for (threshold, expected) in [(1, "TooYoung"), (600, "evicted")] {
        let mut workload = workload("Recreate", 2)
            .with(|workload| {
                workload.vpa["spec"]["updatePolicy"]["evictAfterOOMSeconds"] = json!(threshold);
                workload.vpa["status"]["recommendation"]["containerRecommendations"] = json!([{
                    "containerName": "app", "target": {"memory": "2Gi"},
                    "lowerBound": {"memory": "500Mi"}, "upperBound": {"memory": "3Gi"},
                }]);
            })
            .each(|pod| {
                pod["spec"]["containers"][0]["resources"] = requests("100m", "1Gi");
                pod["status"]["startTime"] = json!("2026-03-10T11:30:00Z");
                pod["status"]["containerStatuses"] = json!([{"name": "app", "lastState": killed()}]);
            });
        assert_eq!(workload.first(), expected, "{threshold}");
    }
}

fn killed() -> Value {
    json!({"terminated": {
        "reason": "OOMKilled", "startedAt": "2026-03-10T11:58:00Z", "finishedAt": "2026-03-10T11:59:00Z",
    }})
}

#[test]
fn boosts_end_when_their_time_is_over() {
    let boosted = |ready: &str, mode: &str, pods| {
        workload(mode, pods)
            .with(|workload| {
                workload.vpa["spec"]["startupBoost"] =
                    json!({"cpu": {"type": "Factor", "factor": 2, "durationSeconds": 60}});
            })
            .each(|pod| {
                pod["metadata"]["annotations"]["vpaCpuStartupBoost/app"] =
                    json!("{\"requests\":{\"cpu\":\"100m\"},\"limits\":{}}");
                pod["status"]["conditions"] =
                    json!([{"type": "Ready", "status": "True", "lastTransitionTime": ready}]);
            })
    };
    for mode in ["Off", "Initial", "Recreate", "InPlaceOrRecreate", "InPlace"] {
        assert_eq!(
            boosted("2026-03-10T11:58:00Z", mode, 2).first(),
            "unboosted",
            "{mode}"
        );
        assert_eq!(
            boosted("2026-03-10T11:59:30Z", mode, 2).first(),
            "Boosted",
            "{mode}"
        );
    }
    // Below minReplicas boosts end, and nothing else is done.
    assert_eq!(
        boosted("2026-03-10T11:58:00Z", "Recreate", 1).first(),
        "unboosted"
    );
    let mut one_of_two = boosted("2026-03-10T11:58:00Z", "Recreate", 2).with(|workload| {
        workload.settings.min_replicas = 3;
        workload.pods[0]["metadata"]["annotations"] = json!({"vpaObservedContainers": "app"});
        workload.pods[1]["status"]["conditions"] = json!([]);
    });
    assert_eq!(one_of_two.first(), "TooFewReplicas");
    assert_eq!(one_of_two.quirks("Q18").first(), "evicted");
}

/// A pod that has what it should have, but for a native sidecar.
fn with_sidecar(mode: &str, gates: &str, annotation: &Value) -> Workload {
    workload(mode, 2)
        .gate(&format!("InPlace=true,NativeSidecar={gates}"))
        .with(|workload| {
            workload.vpa["status"]["recommendation"]["containerRecommendations"] = json!([
                recommended("app", "100m", "100Mi"),
                recommended("proxy", "50m", "50Mi")
            ]);
        })
        .each(|pod| {
            pod["metadata"]["annotations"] = annotation.clone();
            pod["spec"]["initContainers"] = json!([
                {"name": "migrate", "resources": requests("10m", "10Mi")},
                native_sidecar("proxy"),
            ]);
        })
}

#[test]
fn native_sidecars_count_where_the_gate_and_the_purpose_say_so() {
    let named = json!({"vpaObservedContainers": "app, proxy"});
    let unnamed = json!({"vpaObservedContainers": "app"});
    let absent = json!({});
    for (mode, gate, annotation, expected) in [
        // Admission without the gate would not size it: evicting for it would go on for ever.
        ("Recreate", "true", &named, "evicted"),
        ("Recreate", "true", &unnamed, "NoChange"),
        ("Recreate", "true", &absent, "NoChange"),
        // Pods admitted before the gate was on are served too.
        ("InPlaceOrRecreate", "true", &named, "resized"),
        ("InPlaceOrRecreate", "true", &unnamed, "resized"),
        ("InPlaceOrRecreate", "true", &absent, "resized"),
        ("InPlace", "true", &unnamed, "resized"),
        ("InPlace", "true", &absent, "resized"),
        ("Recreate", "false", &named, "NoChange"),
        ("InPlaceOrRecreate", "false", &named, "NoChange"),
        ("InPlace", "false", &named, "NoChange"),
    ] {
        let mut workload = with_sidecar(mode, gate, annotation);
        assert_eq!(workload.first(), expected, "{mode} gate {gate} {annotation}");
    }
}

#[test]
fn a_sidecar_that_admission_does_not_know_is_no_reason_to_evict_after_a_failed_resize() {
    for (annotation, expected) in [
        (json!({"vpaObservedContainers": "app, proxy"}), "evicted"),
        (json!({"vpaObservedContainers": "app"}), "SidecarNotObserved"),
        (json!({}), "SidecarNotObserved"),
    ] {
        let mut workload = with_sidecar("InPlaceOrRecreate", "true", &annotation).with(|workload| {
            workload.resize_fails = vec![("web-0", Outcome::Refused), ("web-1", Outcome::Refused)];
        });
        assert_eq!(workload.first(), expected, "{annotation}");
    }
}

#[test]
fn a_sidecar_killed_for_its_memory_counts_like_a_container() {
    let killed_in = |container: &str, gate: &str, annotation: &str| {
        with_sidecar("Recreate", gate, &json!({"vpaObservedContainers": annotation}))
            .with(|workload| {
                workload.vpa["status"]["recommendation"]["containerRecommendations"] = json!([{
                    "containerName": "proxy", "target": {"memory": "20Mi"},
                    "lowerBound": {"memory": "1Mi"}, "upperBound": {"memory": "30Mi"},
                }]);
            })
            .each(|pod| {
                pod["status"]["startTime"] = json!("2026-03-10T11:30:00Z");
                pod["status"]["initContainerStatuses"] = json!([{"name": container, "lastState": killed()}]);
            })
            .first()
    };
    assert_eq!(killed_in("proxy", "true", "app, proxy"), "evicted");
    assert_eq!(killed_in("proxy", "true", "app"), "NoChange");
    assert_eq!(killed_in("proxy", "false", "app, proxy"), "NoChange");
    assert_eq!(killed_in("migrate", "true", "app, proxy"), "TooYoung");
}

#[test]
fn ordinary_init_containers_never_count() {
    for mode in MODES {
        let mut workload = with_sidecar(
            mode,
            "true",
            &json!({"vpaObservedContainers": "app, proxy, migrate"}),
        )
        .with(|workload| {
            workload.vpa["status"]["recommendation"]["containerRecommendations"] = json!([
                recommended("app", "100m", "100Mi"),
                recommended("migrate", "50m", "50Mi")
            ]);
        });
        assert_eq!(workload.first(), "NoChange", "{mode}");
    }
}

#[test]
fn requirements_look_at_sidecars_that_count() {
    let of = |annotation: &str| {
        with_sidecar("Recreate", "true", &json!({"vpaObservedContainers": annotation}))
            .with(|workload| {
                // The application would shrink, the sidecar would grow.
                workload.vpa["status"]["recommendation"]["containerRecommendations"] = json!([
                    recommended("app", "50m", "50Mi"),
                    recommended("proxy", "50m", "50Mi")
                ]);
                workload.vpa["spec"]["updatePolicy"]["evictionRequirements"] =
                    json!([{"resources": ["cpu"], "changeRequirement": "TargetHigherThanRequests"}]);
            })
            .first()
    };
    assert_eq!(of("app, proxy"), "evicted");
    assert_eq!(of("app"), "Requirements");
}

#[test]
fn observed_names_are_read_leniently() {
    // A second container that came through another webhook is not evicted for.
    let of = |annotation: &str, quirks: &str| {
        workload("Recreate", 2)
            .quirks(quirks)
            .with(|workload| {
                workload.vpa["status"]["recommendation"]["containerRecommendations"] = json!([
                    recommended("app", "100m", "100Mi"),
                    recommended("late", "50m", "50Mi")
                ]);
            })
            .each(|pod| {
                pod["metadata"]["annotations"] = json!({"vpaObservedContainers": annotation});
                let containers = pod["spec"]["containers"].as_array_mut().unwrap();
                containers.push(json!({"name": "late", "resources": requests("10m", "10Mi")}));
                containers.push(json!({"name": "more", "resources": {}}));
            })
            .first()
    };
    assert_eq!(of("app, more", "none"), "NoChange");
    assert_eq!(of("app,more", "none"), "NoChange");
    assert_eq!(of("app,more", "Q21"), "evicted");
    assert_eq!(of("app, late, more", "none"), "evicted");
}

#[test]
fn pods_that_have_what_they_should_have_are_left() {
    for mode in MODES {
        let satisfied = || {
            workload(mode, 2)
                .with(|workload| workload.settings.pod_update_threshold = 0.0)
                .each(|pod| {
                    pod["spec"]["containers"][0]["resources"] = requests("200m", "200Mi");
                })
        };
        assert_eq!(satisfied().first(), "NoChange", "{mode}");
        let acts = satisfied().quirks("Q34").first();
        assert!(["evicted", "resized"].contains(&acts.as_str()), "{mode} {acts}");
    }
}
