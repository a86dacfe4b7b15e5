//! Every scenario holds on the sandbox. `make e2e` runs the same on a real cluster.

use hack::e2e::{On, Places, all, run_all};

#[tokio::test(flavor = "multi_thread")]
async fn every_scenario_holds_on_the_sandbox() {
    let scenarios = all();
    let places = Places::prepare(On::Sandbox, &scenarios).await.unwrap();
    let report = run_all(&places, &scenarios, scenarios.len()).await;
    let failures: Vec<_> = report.failures().collect();
    assert!(failures.is_empty(), "{failures:#?}");
    assert_eq!(report.passed(), scenarios.len(), "{report}");
}
