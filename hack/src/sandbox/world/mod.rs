//! What lives in the sandbox: controllers, a scheduler, simulated kubelets, load and metrics, all in the time of the
//! sandbox's clock. One ticker moves everything; a tick costs as much as has changed, and with a virtual clock a day of a
//! hundred pods passes in seconds.
//!
//! - [`World::start`] brings a sandbox to life; [`WorldOptions`] says with which nodes and which parts.
//! - [`World::load`] says what containers use while a scenario runs; see [`load`] for the annotation that does the same.
//! - A Node object with the annotation `sandbox.outrigger.dev/simulated` gets a kubelet, whoever made it; pods on other
//!   nodes stay Pending, as with nodes that are only objects on a real cluster.
//! - Within a tick everybody reacts to everybody until nothing changes. What takes time (a start, a back-off, a grace period)
//!   is due at a later tick.

mod context;
mod controllers;
mod index;
mod kubelet;
pub mod load;
mod metrics;
mod scheduler;

use std::{pin::pin, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::{
    context::Context, controllers::Controllers, index::Index, kubelet::Kubelet, load::Loads,
    scheduler::Scheduler,
};
use super::{ApiError, Sandbox, Write};

/// A node of the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// Its name.
    pub name: String,
    /// What its pods may take, as a quantity.
    pub cpu: String,
    /// What its pods may take, as a quantity.
    pub memory: String,
    /// How many pods fit.
    pub pods: u32,
}

impl NodeSpec {
    /// A node for 110 pods.
    #[must_use]
    pub fn new(name: &str, cpu: &str, memory: &str) -> Self {
        Self {
            name: name.into(),
            cpu: cpu.into(),
            memory: memory.into(),
            pods: 110,
        }
    }
}

/// How a world is.
#[derive(Clone, Debug)]
pub struct WorldOptions {
    /// The nodes to begin with.
    pub nodes: Vec<NodeSpec>,
    /// How often it moves on.
    pub tick: Duration,
    /// Whether workloads get their pods, and disruption budgets their status.
    pub controllers: bool,
    /// Whether pods get their node.
    pub scheduler: bool,
    /// Whether pods on simulated nodes run.
    pub kubelet: bool,
    /// Whether `metrics.k8s.io` is served.
    pub metrics: bool,
    /// Whether the parts write events.
    pub events: bool,
    /// How often usage is measured: the window of the metrics.
    pub resolution: Duration,
    /// How often the memory of containers that could pass their limit is looked at.
    pub memory_check: Duration,
    /// How long an ordinary init container runs.
    pub init_time: Duration,
    /// How long a container needs until it is ready.
    pub startup_time: Duration,
    /// How long a container needs to stop, if its grace period allows.
    pub stop_time: Duration,
    /// Decides the noise of the load.
    pub seed: u64,
}

impl Default for WorldOptions {
    fn default() -> Self {
        Self {
            nodes: vec![NodeSpec::new("node-1", "16", "64Gi")],
            tick: Duration::from_secs(1),
            controllers: true,
            scheduler: true,
            kubelet: true,
            metrics: true,
            events: true,
            resolution: Duration::from_secs(15),
            memory_check: Duration::from_secs(10),
            init_time: Duration::from_millis(500),
            startup_time: Duration::from_millis(500),
            stop_time: Duration::from_secs(1),
            seed: 0,
        }
    }
}

/// A sandbox's life; it ends when dropped. Objects stay as they are then.
#[derive(Debug)]
pub struct World {
    context: Arc<Context>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl World {
    /// Makes the nodes, does what is to be done at once, and goes on at every tick of the sandbox's clock.
    ///
    /// # Errors
    /// When the sandbox refuses a node.
    pub async fn start(sandbox: &Sandbox, options: WorldOptions) -> anyhow::Result<Self> {
        let api = sandbox.api().clone();
        let clock = api.clock.clone();
        let live = options.controllers || options.scheduler || options.kubelet;
        let context = Arc::new(Context {
            index: Index::new(api.store(), live),
            loads: Loads::new(clock.clone(), options.seed),
            options,
            api,
        });
        for node in &context.options.nodes {
            context.make_node(node).await?;
        }
        if context.options.metrics {
            metrics::serve(&context);
        }
        let mut parts = Parts {
            controllers: Controllers::new(),
            scheduler: Scheduler::default(),
            kubelet: Kubelet::default(),
        };
        parts.pass(&context).await;
        let stop = CancellationToken::new();
        let (stopped, life) = (stop.clone(), context.clone());
        let mut ticker = clock.ticker(context.options.tick);
        let (ready, begun) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move {
            if live {
                // Polled once before the caller goes on, so that a virtual clock knows that somebody waits.
                {
                    let mut tick = pin!(ticker.tick());
                    if futures::poll!(tick.as_mut()).is_pending() {
                        if ready.send(()).is_err() {
                            return;
                        }
                        tokio::select! { () = tick => {}, () = stopped.cancelled() => return }
                    }
                }
                loop {
                    parts.pass(&life).await;
                    tokio::select! { () = ticker.tick() => {}, () = stopped.cancelled() => return }
                }
            }
        });
        // An error means that nothing ticks in this world.
        drop(begun.await);
        Ok(Self { context, stop, task })
    }

    /// What the containers use.
    #[must_use]
    pub fn load(&self) -> &Loads {
        &self.context.loads
    }

    /// One more node.
    ///
    /// # Errors
    /// When there is one of this name, or its quantities are none.
    pub async fn add_node(&self, node: &NodeSpec) -> Result<(), ApiError> {
        self.context.make_node(node).await
    }

    /// Ends it, and waits until the work under way is done.
    pub async fn stop(mut self) {
        self.stop.cancel();
        // It ends by itself; that it was cancelled or has panicked has been said elsewhere.
        drop((&mut self.task).await);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
        self.task.abort();
    }
}

struct Parts {
    controllers: Controllers,
    scheduler: Scheduler,
    kubelet: Kubelet,
}

/// Everything settles in fewer; a quarrel between two parts must not stop time.
const ROUNDS: usize = 50;

impl Parts {
    /// Reacts to everything until nothing is left to react to at this time.
    async fn pass(&mut self, context: &Context) {
        let options = &context.options;
        for _ in 0..ROUNDS {
            let news = context.index.read().news();
            let mut busy = false;
            if options.controllers {
                self.controllers.note(context, &news);
                busy |= self.controllers.run(context).await;
            }
            if options.scheduler {
                self.scheduler.note(&news);
                busy |= self.scheduler.run(context).await;
            }
            if options.kubelet {
                self.kubelet.note(context, &news);
                busy |= self.kubelet.run(context).await;
            }
            if !busy {
                return;
            }
        }
        tracing::warn!("the world did not settle within a tick");
    }
}

fn node(spec: &NodeSpec) -> Value {
    let NodeSpec {
        name,
        cpu,
        memory,
        pods,
    } = spec;
    let resources = json!({"cpu": cpu, "memory": memory, "pods": pods.to_string()});
    json!({
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            },
            "annotations": {index::SIMULATED: "true"},
        },
        "status": {
            "capacity": resources, "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": {
                "kubeletVersion": "v1.36.4", "containerRuntimeVersion": "sandbox://1", "operatingSystem": "linux",
                "architecture": "amd64", "bootID": "", "kernelVersion": "", "kubeProxyVersion": "", "machineID": "",
                "osImage": "sandbox", "systemUUID": "",
            },
            "declaredFeatures": ["InPlacePodVerticalScalingInitContainers"],
        },
    })
}

impl Context {
    async fn make_node(&self, spec: &NodeSpec) -> Result<(), ApiError> {
        let kind = self.api.kind("nodes")?;
        let made = self.api.create(&kind, "", node(spec), &Write::default()).await;
        made.map(drop)
    }
}
