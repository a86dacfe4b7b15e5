//! The admission component beside the updater, for one namespace.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::Result;
use common::{
    api::k8s::{ByteString, MutatingWebhookConfiguration},
    clock::Clock,
    daemon::{Context, DaemonError, Namespaces, Shutdown},
    gates::{Gate, Gates},
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;
use tokio::task::JoinHandle;

use super::super::super::World;

/// The admission component, registered under a name of the scenario's own: others have theirs at the same time.
pub(in super::super) struct Admission {
    shutdown: Shutdown,
    running: JoinHandle<Result<(), DaemonError>>,
    configuration: String,
}

impl Admission {
    pub(in super::super) async fn start(world: &World, gate: bool) -> Result<Self> {
        Self::start_as(world, |config| {
            config.pods.gates = Gates::default().with(Gate::NativeSidecar, gate);
        })
        .await
    }

    /// Starts one that differs from the usual: that has no gate, and whose absence keeps pods from being created.
    pub(in super::super) async fn start_as(
        world: &World,
        differ: impl FnOnce(&mut admission::Config),
    ) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let url = format!("https://127.0.0.1:{}", listener.local_addr()?.port());
        let mut config = admission::Config::local(Gates::default(), listener)?;
        config.namespaces = Namespaces::Only(world.namespace.clone());
        config.webhook.register = false;
        config.webhook.fail = true;
        config.lease.namespace = world.namespace.clone();
        // The updater reads the one that the scenario made.
        config.lease.name = "another".to_owned();
        differ(&mut config);
        let admission::config::Certificates::Given { certificate, .. } = &config.certificates else {
            anyhow::bail!("no certificate");
        };
        let ca_bundle = ByteString(certificate.clone().into_bytes());
        // Webhooks are called in the order of their configurations' names: who comes after this one has a b.
        let configuration = format!("{}-a-vpa", world.namespace);
        let failure_policy = if config.webhook.fail { "Fail" } else { "Ignore" };
        let object: MutatingWebhookConfiguration = serde_json::from_value(json!({
            "metadata": {"name": configuration},
            "webhooks": [{
                "name": "vpa.k8s.io", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": {"url": url, "caBundle": ca_bundle},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
                "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
                "failurePolicy": failure_policy, "timeoutSeconds": 30, "reinvocationPolicy": config.pods.reinvocation.name(),
            }],
        }))?;
        let shutdown = Shutdown::new();
        // Whoever calls it checks its certificate by the machine's time.
        let context = Context::new(world.client.clone(), Clock::system(), shutdown.clone());
        let running = tokio::spawn(admission::run(config, context));
        let configurations: Api<MutatingWebhookConfiguration> = Api::all(world.client.clone());
        configurations.create(&PostParams::default(), &object).await?;
        Ok(Self {
            shutdown,
            running,
            configuration,
        })
    }

    pub(in super::super) async fn stop(self, world: &World) -> Result<()> {
        let configurations: Api<MutatingWebhookConfiguration> = Api::all(world.client.clone());
        configurations
            .delete(&self.configuration, &DeleteParams::default())
            .await?;
        self.shutdown.request();
        Ok(self.running.await??)
    }
}
