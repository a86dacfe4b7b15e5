//! One scenario of each daemon holds on the sandbox. `make e2e` runs all of them, there and on a real cluster.

use hack::e2e::{On, Places, Scenario, all, run_all};

const ONE_OF_EACH: [&str; 3] = [
    "recommends-for-sidecars",
    "updater-resizes-in-place",
    "admission-sizes-new-pods",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_scenario_of_each_daemon_holds_on_the_sandbox() {
    let mut scenarios = all();
    scenarios.retain(|Scenario { name, .. }| ONE_OF_EACH.contains(name));
    assert_eq!(scenarios.len(), ONE_OF_EACH.len());
    let places = Places::prepare(On::Sandbox, &scenarios).await.unwrap();
    let report = run_all(&places, &scenarios, 1, scenarios.len()).await;
    let failures: Vec<_> = report.failures().collect();
    assert!(failures.is_empty(), "{failures:#?}");
    assert_eq!(report.passed(), scenarios.len(), "{report}");
}
