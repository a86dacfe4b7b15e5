//! The daemons as processes of their own, which an outage may not end.

use anyhow::{Result, ensure};

use super::super::super::{Look, World};
use super::super::{admission::process as admission, recommender::GATE_ON, updater::own_flags};
use crate::daemon::{Daemon, Process};

/// A recommender, two updaters and admission.
pub(super) struct Daemons {
    all: Vec<(&'static str, Process)>,
    _certificates: admission::Files,
}

impl Daemons {
    pub(super) async fn start(world: &World) -> Result<Self> {
        let (process, certificates) = admission::start(world).await?;
        let mut all = vec![("admission", process)];
        // Who cannot renew a lease in time ends, as in VPA; who is to outlive an outage holds it for longer.
        let common = [
            GATE_ON.to_owned(),
            "--leader-elect".to_owned(),
            "--leader-elect-lease-duration=910s".to_owned(),
            "--leader-elect-renew-deadline=900s".to_owned(),
            "--leader-elect-retry-period=1s".to_owned(),
            format!("--leader-elect-resource-namespace={}", world.namespace),
        ];
        let recommender = [
            format!("--vpa-object-namespace={}", world.namespace),
            "--recommender-interval=5s".to_owned(),
            "--checkpoint-max-age=10s".to_owned(),
        ];
        let updater = [
            &own_flags(world)[..],
            // One pod a second, so that there is a middle.
            &["--eviction-tolerance=1", "--eviction-rate-limit=1"].map(str::to_owned),
        ]
        .concat();
        for (name, daemon, own) in [
            ("recommender", Daemon::Recommender, &recommender[..]),
            ("updater", Daemon::Updater, &updater),
            ("updater", Daemon::Updater, &updater),
        ] {
            let flags: Vec<&str> = common.iter().chain(own).map(String::as_str).collect();
            all.push((name, Process::start(daemon, &world.kubeconfig, &flags).await?));
        }
        Ok(Self {
            all,
            _certificates: certificates,
        })
    }

    pub(super) fn all_run(&mut self) -> Result<()> {
        for (name, process) in &mut self.all {
            let runs = process.is_running()?;
            ensure!(runs, "the {name} ended: {:?}", process.log().last());
        }
        Ok(())
    }

    /// Those that lead, by name.
    pub(super) async fn leaders(&self) -> Result<Vec<&'static str>> {
        let mut leaders = Vec::new();
        for (name, process) in &self.all {
            let (_, metrics) = process.get("/metrics").await?;
            let leads = |line: &str| line.starts_with("outrigger_leader{") && line.ends_with(" 1");
            if metrics.lines().any(leads) {
                leaders.push(*name);
            }
        }
        Ok(leaders)
    }

    pub(super) fn resident(&self) -> Result<Vec<f64>> {
        self.all
            .iter()
            .map(|(_, process)| process.taken()?.resident_mib())
            .collect()
    }

    /// Waits until each takes about as much memory as before.
    pub(super) async fn as_before(&self, world: &World, before: &[f64]) -> Result<()> {
        let what = "the daemons take as much memory as before";
        world
            .until(what, async || {
                let now = self.resident()?;
                let pairs = before.iter().zip(&now);
                Ok(
                    if pairs.clone().all(|(before, now)| *now <= before * 1.5 + 20.0) {
                        Look::Done(())
                    } else {
                        Look::NotYet(format!("{:?} MiB before and now", pairs.collect::<Vec<_>>()))
                    },
                )
            })
            .await
    }

    pub(super) async fn stop(self) -> Result<()> {
        for (name, process) in self.all {
            let (_, metrics) = process.get("/metrics").await?;
            let counts = |line: &&str| line.contains("_panics_total") && !line.starts_with('#');
            let panics = metrics.lines().filter(counts).find(|line| !line.ends_with(" 0"));
            ensure!(panics.is_none(), "the {name} says {panics:?}");
            let log = process.log();
            let panicked = log.iter().find(|line| line.to_string().contains("panicked"));
            ensure!(panicked.is_none(), "the {name} says {panicked:?}");
            let status = process.stop().await?;
            ensure!(status.success(), "the {name} ended with {status}");
        }
        Ok(())
    }
}
