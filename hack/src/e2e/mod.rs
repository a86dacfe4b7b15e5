//! Scenarios, written once and run on the sandbox, on a real cluster, or on any cluster by its kubeconfig. What holds
//! on a real API server must hold on the sandbox: the same code says so.

mod place;
mod run;
mod running;
mod scenarios;
mod webhook;
mod world;

pub use place::{On, Places, Stage, StageFor};
pub use run::{Args, Outcome, Report, run_all};
pub use running::Running;
pub use scenarios::{all, install_crds};
use world::is_busy;
pub use world::{Answer, Look, World, in_short, is_ready};

use anyhow::Result;
use futures::future::LocalBoxFuture;

/// Something that must hold, from a first object to a last check, in a namespace of its own.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What holds, in a sentence.
    pub about: &'static str,
    /// What it needs of its place; it is skipped where that is not to be had.
    pub needs: &'static [Need],
    /// Runs it.
    pub run: for<'w> fn(&'w World) -> LocalBoxFuture<'w, Result<()>>,
}

/// What a scenario needs of its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// An API server; every place has one.
    ApiServer,
    /// Controllers, a scheduler, and a node with a kubelet, real or simulated, whose usage is measured.
    Node,
    /// An API server with nothing behind it, so that objects stay as the scenario makes them.
    NoControllers,
    /// An API server that reaches webhooks on this machine's loopback.
    LocalWebhooks,
    /// Faults on demand. The scenario has its API server for itself, so that nobody else suffers them.
    Faults,
    /// Time that the scenario moves as it likes. It has its place for itself, so that nobody else is hurried.
    VirtualTime,
    /// Nodes that have the daemons' images. The scenario has its cluster for itself, since what it installs serves all
    /// namespaces.
    Images,
    /// A control plane whose programs end and are started again. The scenario has its cluster for itself, so that nobody else
    /// suffers it.
    Outages,
}

impl Need {
    /// Why a scenario is skipped where this is not to be had.
    #[must_use]
    pub fn missing(self) -> &'static str {
        match self {
            Self::ApiServer => "there is no API server",
            Self::Node => "there is no node",
            Self::NoControllers => "controllers run there",
            Self::LocalWebhooks => "its API server does not reach this machine",
            Self::Faults => "nothing fails there on demand",
            Self::VirtualTime => "its time is the machine's",
            Self::Images => "no images can be loaded there",
            Self::Outages => "its control plane is not ours to stop",
        }
    }
}
