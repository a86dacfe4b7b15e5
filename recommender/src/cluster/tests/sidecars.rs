//! Native sidecars, with the gate and without.

use super::*;

fn gate(on: bool) -> ModelConfig {
    ModelConfig {
        native_sidecars: on,
        ..config(Quirks::none())
    }
}

#[test]
fn with_the_gate_on_they_are_containers_like_others() {
    let mut story = Story::new(gate(true));
    story.pod("p0", "app=x", &["app", "a:sidecar", "setup:init"]);
    story.cpu("p0", 100, 1).unwrap();
    story.oom("p0", 100 * MIB, 1).unwrap();
    assert_eq!(story.names(), ["a", "app"]);
    assert_eq!(story.view().histories().len(), 2);
    assert_eq!(
        story.sample("p0", "setup", Usage::Cpu(MilliCpu(1)), 1),
        Err(Rejected::InitContainer)
    );
}

#[test]
fn with_the_gate_off_nothing_of_them_is_in_the_model() {
    let mut with = Story::new(gate(false));
    with.pod("p0", "app=x", &["app", "a:sidecar", "setup:init"]);
    assert_eq!(with.cpu("p0", 100, 1), Err(Rejected::InitContainer));
    assert_eq!(with.oom("p0", 100, 1), Err(Rejected::InitContainer));
    assert_eq!(with.names(), ["app"]);
    assert_eq!(with.cluster.aggregates(), 1);
}

#[test]
fn a_container_that_becomes_a_sidecar_keeps_its_history() {
    let mut story = Story::new(gate(true));
    story.pod("p0", "app=x", &["app", "a"]);
    story.cpu("p0", 100, 1).unwrap();
    story.cluster.remove_pod("ns", "p0", at(2));
    story.pod("p1", "app=x", &["app", "a:sidecar"]);
    story.cpu("p1", 100, 3).unwrap();
    assert_eq!(story.cluster.aggregates(), 2);
    assert_eq!(story.history().samples, 2);
}

/// Gate on, off, on again: known, set aside, known again, and nothing was lost.
#[test]
fn a_checkpoint_is_set_aside_while_the_gate_is_off() {
    let mut on = Story::new(gate(true));
    on.pod("p0", "app=x", &["app", "a:sidecar"]);
    on.cpu("p0", 100, 1).unwrap();
    let sidecar = on.checkpoint(2).status;

    let mut off = Story::new(gate(false));
    off.cluster
        .load_checkpoint(("ns", "v"), "a", &sidecar, None, at(3))
        .unwrap();
    assert_eq!(off.names(), ["a"], "with no pods as VPA");
    off.pod("p0", "app=x", &["app", "a:sidecar"]);
    assert_eq!(off.names(), ["app"]);
    assert_eq!(off.view().histories().len(), 1);
    assert_eq!(off.view().checkpoint("a", at(4)), None);
    assert_eq!(off.cluster.take_checkpoint(("ns", "v"), "a", at(4)), None);

    // One pod that still has it as a container is enough.
    off.pod("p1", "app=x", &["app", "a"]);
    assert_eq!(off.names(), ["a", "app"]);

    let mut again = Story::new(gate(true));
    again
        .cluster
        .load_checkpoint(("ns", "v"), "a", &sidecar, None, at(3))
        .unwrap();
    again.pod("p0", "app=x", &["app", "a:sidecar"]);
    assert_eq!(again.names(), ["a", "app"]);
    assert_eq!(again.history().samples, 1);
}
