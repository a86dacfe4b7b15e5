//! What befalls the town: rollouts, leaks, heavy neighbours, a server that fails, daemons that are restarted or killed.

use std::{fmt, sync::Arc, time::Duration};

use anyhow::Result;
use chrono::{DateTime, TimeDelta, Utc};
use common::clock::VirtualClock;

use super::{
    book::Daemon,
    daemons::Daemons,
    luck::Luck,
    town::{Town, Workload},
};
use crate::sandbox::{
    Effect, Fault, Faults,
    world::{
        NodeSpec,
        load::{ContainerLoad, Loads},
    },
};

/// How long the server fails.
const FAULTY: Duration = Duration::from_secs(180);
/// How much of the requests.
const PART: f64 = 0.05;

/// How much befell it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    rollouts: u32,
    leaks: u32,
    shifts: u32,
    pressures: u32,
    faults: u32,
    restarts: u32,
    kills: u32,
    replaced: u32,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rollouts,
            leaks,
            shifts,
            pressures,
            faults,
            restarts,
            kills,
            replaced,
        } = self;
        write!(
            f,
            "{rollouts} rollouts, {leaks} leaks, {shifts} changes of load, {pressures} times node pressure, {faults} spells of \
             faults, {restarts} restarts and {kills} kills of daemons, {replaced} workloads replaced"
        )
    }
}

/// What goes on, and until when.
pub(super) struct Trouble {
    luck: Luck,
    time: VirtualClock,
    faults: Faults,
    loads: Arc<Loads>,
    nodes: usize,
    leaks: Vec<(Workload, DateTime<Utc>)>,
    pressed_until: Option<DateTime<Utc>>,
    pub(super) counts: Counts,
}

impl Trouble {
    pub(super) fn new(
        luck: Luck,
        time: VirtualClock,
        faults: Faults,
        loads: Loads,
        nodes: &[NodeSpec],
    ) -> Self {
        Self {
            luck,
            time,
            faults,
            loads: Arc::new(loads),
            nodes: nodes.len(),
            leaks: Vec::new(),
            pressed_until: None,
            counts: Counts::default(),
        }
    }

    /// What ends by itself ends; so it does at once where nothing may go on.
    ///
    /// # Errors
    /// When the sandbox refuses something.
    pub(super) async fn ease(&mut self, town: &Town, is_over: bool) -> Result<()> {
        let now = self.time.now();
        let loads = &self.loads;
        self.leaks.retain(|(workload, until)| {
            let goes_on = !is_over && now < *until;
            if !goes_on {
                loads.clear(&workload.namespace, &workload.name);
            }
            goes_on
        });
        if self.pressed_until.is_some_and(|until| is_over || now >= until) {
            town.weigh_down(0).await?;
            self.pressed_until = None;
        }
        Ok(())
    }

    /// Ten minutes' worth of bad luck.
    ///
    /// # Errors
    /// When the sandbox refuses something, or a daemon does not end or start as it should.
    pub(super) async fn strike(&mut self, town: &mut Town, daemons: &mut Daemons) -> Result<()> {
        let now = self.time.now();
        if self.luck.once_in(6)
            && let Some(workload) = self.luck.one_of(&town.workloads).cloned()
        {
            self.counts.rollouts += 1;
            town.roll_out(&workload).await?;
        }
        if self.luck.once_in(12)
            && let Some(workload) = self.luck.one_of(&town.workloads).cloned()
        {
            self.counts.leaks += 1;
            let leak = ContainerLoad::parse("30m", "leak(150Mi, 1800Mi)")?;
            self.loads.set(&workload.namespace, &workload.name, "app", leak);
            self.leaks.push((workload, now + TimeDelta::minutes(30)));
        }
        if self.luck.once_in(24)
            && let Some(workload) = self.luck.one_of(&town.workloads).cloned()
        {
            self.counts.shifts += 1;
            let busy = ["20m * noise(20%)", "200m * noise(20%)", "400m * noise(20%)"];
            let cpu = self.luck.one_of(&busy).copied().unwrap_or("20m");
            let load = ContainerLoad::parse(cpu, "150Mi * noise(10%)")?;
            self.loads.set(&workload.namespace, &workload.name, "app", load);
        }
        if self.pressed_until.is_none() && self.luck.once_in(36) {
            self.counts.pressures += 1;
            // One on each node, of which a few do not fit.
            town.weigh_down(self.nodes).await?;
            self.pressed_until = Some(now + TimeDelta::hours(1));
        }
        if self.luck.once_in(36) {
            self.counts.replaced += 1;
            town.replace(&mut self.luck).await?;
        }
        if self.luck.once_in(24) {
            let daemon = self.luck.one_of(&Daemon::ALL).copied().unwrap_or(Daemon::Updater);
            let is_killed = self.luck.once_in(2);
            *if is_killed {
                &mut self.counts.kills
            } else {
                &mut self.counts.restarts
            } += 1;
            daemons.restart(daemon, is_killed).await?;
        }
        if self.luck.once_in(18) {
            self.counts.faults += 1;
            let fault = self.fault();
            let id = self.faults.add(fault);
            self.time.advance(FAULTY).await;
            self.faults.remove(id);
        }
        Ok(())
    }

    /// What can fail. A watch that stalls is not among it: it is found out by the machine's time, in which virtual days pass.
    fn fault(&mut self) -> Fault {
        let error = |code| Effect::Error {
            code,
            retry_after_seconds: None,
        };
        let all: [Fault; 9] = [
            Fault::new(error(500)).with_probability(PART),
            Fault::new(error(429)).with_probability(PART),
            Fault::new(error(409))
                .verbs(&["patch", "update"])
                .with_probability(0.3),
            Fault::new(Effect::Reset).with_probability(PART),
            Fault::new(Effect::DropWatch { after_events: 3 }).verbs(&["watch"]),
            Fault::new(Effect::ExpireWatch { after_events: 3 })
                .verbs(&["watch"])
                .times(20),
            Fault::new(Effect::WebhookTimeout)
                .verbs(&["webhook"])
                .with_probability(0.5),
            Fault::new(Effect::MetricsGap { part: 0.5 }).verbs(&["list"]),
            Fault::new(error(503))
                .verbs(&["list"])
                .on(&["pods.metrics.k8s.io"]),
        ];
        let at = self.luck.below(all.len());
        all.into_iter()
            .nth(at)
            .unwrap_or_else(|| Fault::new(Effect::Reset).times(1))
    }
}
