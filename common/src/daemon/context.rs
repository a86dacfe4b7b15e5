//! What a daemon is given to run, and the shell it runs in. A process makes its context from the flags; a test or the
//! sandbox makes one from a client, a clock and a shutdown of its own, and runs the same daemon.

use std::{future::Future, io, sync::Arc, time::Duration};

use kube::Client;
use prometheus_client::registry::Registry;
use tokio::{net::TcpListener, task::AbortHandle};

use super::{
    Activity, ArgsError, Common, CommonArgs, ListenAddress, LogLevel, Part, Readiness, Settings, Shutdown,
    TaskError, Tasks,
    admin::{self, Admin},
    build, logs, process,
    tasks::panic_message,
};
use crate::{
    clock::Clock,
    kube::client::{self, ClientError},
};

/// What a daemon is given to run.
pub struct Context {
    /// How to reach the API server.
    pub client: Client,
    /// The time.
    pub clock: Clock,
    /// Where metrics are registered.
    pub registry: Registry,
    /// When to stop.
    pub shutdown: Shutdown,
    /// How long stopping may take before the process ends all the same.
    pub grace: Duration,
    /// Where to serve metrics and health, if anywhere.
    pub admin: Option<TcpListener>,
    /// The log's level, where the log is this daemon's own.
    pub log_level: Option<LogLevel>,
}

/// A little less than the 30 seconds that Kubernetes gives a pod.
const GRACE: Duration = Duration::from_secs(25);

/// Why a daemon did not start, or did not run and stop as it should.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The flags contradict each other.
    #[error(transparent)]
    Args(#[from] ArgsError),
    /// There is a log already.
    #[error("cannot start the log: {0}")]
    Log(#[from] tracing_subscriber::util::TryInitError),
    /// No signals.
    #[error("cannot listen for signals: {0}")]
    Signals(#[source] io::Error),
    /// Nobody to talk to.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The address is taken, or not ours.
    #[error("cannot listen on --address {address}: {source}")]
    Bind {
        /// The address.
        address: ListenAddress,
        /// Why not.
        source: io::Error,
    },
    /// It did not run and stop as it should.
    #[error(transparent)]
    Task(#[from] TaskError),
}

impl Context {
    /// For use inside another process: nothing is served, and the log is the host's.
    #[must_use]
    pub fn new(client: Client, clock: Clock, shutdown: Shutdown) -> Self {
        Self {
            client,
            clock,
            registry: Registry::default(),
            shutdown,
            grace: GRACE,
            admin: None,
            log_level: None,
        }
    }

    /// For a process of its own, from its flags: starts the log, listens for signals and on `--address`.
    pub async fn from_args(daemon: &'static str, args: CommonArgs) -> Result<(Settings, Self), DaemonError> {
        let Common {
            kubeconfig,
            rate_limit,
            address,
            settings,
            logs,
            warnings,
        } = args.resolve()?;
        let log_level = logs::init(&logs)?;
        tracing::info!(
            version = build::VERSION,
            commit = build::COMMIT,
            gates = %settings.gates,
            namespaces = ?settings.namespaces,
            "starting {daemon}"
        );
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        let shutdown = Shutdown::on_signals().map_err(DaemonError::Signals)?;
        let mut registry = Registry::default();
        build::register(&mut registry);
        process::register(&mut registry);
        let client = client::connect(daemon, kubeconfig.as_deref(), rate_limit, &mut registry).await?;
        let admin = address
            .bind()
            .await
            .map_err(|source| DaemonError::Bind { address, source })?;
        let context = Self {
            client,
            clock: Clock::system(),
            registry,
            shutdown,
            grace: GRACE,
            admin: Some(admin),
            log_level: Some(log_level),
        };
        Ok((settings, context))
    }
}

/// Logs how a daemon ended and ends the process, also when some task does not: 0 if it was asked to and could.
pub fn exit(outcome: Result<(), DaemonError>) -> ! {
    match outcome {
        Ok(()) => {
            tracing::info!("stopped");
            std::process::exit(0)
        }
        Err(error) if tracing::dispatcher::has_been_set() => {
            tracing::error!("{error}");
            std::process::exit(1)
        }
        Err(error) => {
            eprintln!("error: {error}");
            std::process::exit(1)
        }
    }
}

/// A daemon's shell: its tasks, and what they share.
pub struct Shell {
    handles: Handles,
    tasks: Tasks,
    grace: Duration,
    server: Option<AbortHandle>,
}

/// What a daemon's tasks share. Cloning gives another handle to the same.
#[derive(Clone)]
pub struct Handles {
    /// How to reach the API server.
    pub client: Client,
    /// The time.
    pub clock: Clock,
    /// When to stop.
    pub shutdown: Shutdown,
    /// Who is ready.
    pub readiness: Readiness,
    /// Whether the loop turns.
    pub activity: Activity,
    connected: Arc<Part>,
}

impl Handles {
    /// Waits for the API server to answer; false if shutdown is requested first. Until then the daemon is not ready,
    /// so other parts that have to get ready are best made before.
    pub async fn connect(&self) -> bool {
        let version = client::wait_for_server(&self.client, &self.clock, &self.shutdown).await;
        if version.is_some() {
            self.connected.ready();
        }
        version.is_some()
    }
}

impl Shell {
    /// Starts the shell around a daemon whose loop, if it has one, comes round in this time. All metrics must be
    /// registered by now.
    #[must_use]
    pub fn start(context: Context, interval: Option<Duration>) -> Self {
        let Context {
            client,
            clock,
            registry,
            shutdown,
            grace,
            admin: listener,
            log_level,
        } = context;
        let activity = match interval {
            Some(interval) => Activity::every(interval, clock.clone()),
            None => Activity::unlimited(clock.clone()),
        };
        let readiness = Readiness::new(shutdown.clone());
        let connected = Arc::new(readiness.part("API server"));
        let admin = Admin {
            registry: Arc::new(registry),
            activity: activity.clone(),
            readiness: readiness.clone(),
            log_level,
        };
        let mut tasks = Tasks::new(shutdown.clone());
        let server = listener.map(|listener| serve(&mut tasks, shutdown.clone(), listener, admin));
        let handles = Handles {
            client,
            clock,
            shutdown,
            readiness,
            activity,
            connected,
        };
        Self {
            handles,
            tasks,
            grace,
            server,
        }
    }

    /// What the tasks share.
    #[must_use]
    pub fn handles(&self) -> Handles {
        self.handles.clone()
    }

    /// Starts a task that runs until shutdown is requested.
    pub fn spawn(
        &mut self,
        name: &'static str,
        task: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        self.tasks.spawn(name, task);
    }

    /// Runs until shutdown is requested or a task ends; see [`Tasks::run`]. The admin server answers to the last.
    pub async fn run(self) -> Result<(), DaemonError> {
        let outcome = self.tasks.run(self.grace).await;
        if let Some(server) = self.server {
            server.abort();
        }
        Ok(outcome?)
    }
}

/// Starts the admin server, and a task that watches it: the server itself has to outlive the tasks.
fn serve(tasks: &mut Tasks, shutdown: Shutdown, listener: TcpListener, admin: Admin) -> AbortHandle {
    match listener.local_addr() {
        Ok(address) => tracing::info!(%address, "serving metrics and health"),
        Err(error) => tracing::warn!(%error, "serving metrics and health on an unknown address"),
    }
    let server = tokio::spawn(admin::serve(listener, admin));
    let handle = server.abort_handle();
    tasks.spawn("admin server", async move {
        tokio::select! {
            ended = server => ended.map_err(|error| anyhow::anyhow!(panic_message(error)))?,
            () = shutdown.requested() => Ok(()),
        }
    });
    handle
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::DateTime;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn unreachable_client() -> Client {
        let (service, _server) =
            tower_test::mock::pair::<http::Request<_>, http::Response<kube::client::Body>>();
        Client::new(service, "default")
    }

    async fn get(address: std::net::SocketAddr, path: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.0\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn the_admin_server_answers_until_the_last_task_has_stopped() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let time = crate::clock::VirtualClock::starting_at(DateTime::UNIX_EPOCH);
        let shutdown = Shutdown::new();
        let mut context = Context::new(unreachable_client(), time.clock(), shutdown.clone());
        context.admin = Some(listener);
        let mut shell = Shell::start(context, None);
        let Handles {
            shutdown: asked,
            connected,
            ..
        } = shell.handles();
        let (finish, finished) = tokio::sync::oneshot::channel::<()>();
        shell.spawn("slow", async move {
            asked.requested().await;
            finished.await?;
            Ok(())
        });
        let running = tokio::spawn(shell.run());
        assert!(get(address, "/readyz").await.ends_with("not ready: API server"));
        connected.ready();
        assert!(get(address, "/readyz").await.starts_with("HTTP/1.0 200 OK"));
        shutdown.request();
        assert!(
            get(address, "/readyz")
                .await
                .ends_with("not ready: shutting down")
        );
        finish.send(()).unwrap();
        running.await.unwrap().unwrap();
        assert!(tokio::net::TcpStream::connect(address).await.is_err());
    }
}
