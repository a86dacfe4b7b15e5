//! The daemon's tasks, every one of them watched: a task that ends before it is asked to ends the process, with a
//! reason; one that does not end when it is asked to is named.

use std::{collections::BTreeMap, future::Future, time::Duration};

use tokio::task::{Id, JoinError, JoinSet};

use super::Shutdown;

/// Why a daemon did not run and stop as it should.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// A task gave up.
    #[error("task {task} failed: {source:#}")]
    Failed {
        /// Which.
        task: &'static str,
        /// Why.
        source: anyhow::Error,
    },
    /// A task has a bug.
    #[error("task {task} panicked: {message}")]
    Panicked {
        /// Which.
        task: &'static str,
        /// What it said.
        message: String,
    },
    /// A task came to an end that it should not have.
    #[error("task {task} ended before it was asked to")]
    Ended {
        /// Which.
        task: &'static str,
    },
    /// Tasks that did not stop in time.
    #[error("did not stop within {}: {}", super::GoDuration(*.grace), .tasks.join(", "))]
    Stuck {
        /// Which.
        tasks: Vec<&'static str>,
        /// In what time.
        grace: Duration,
    },
}

/// Tasks with names. Dropping it aborts them.
#[derive(Debug)]
pub struct Tasks {
    set: JoinSet<anyhow::Result<()>>,
    names: BTreeMap<Id, &'static str>,
    shutdown: Shutdown,
}

impl Tasks {
    /// None yet.
    #[must_use]
    pub fn new(shutdown: Shutdown) -> Self {
        Self {
            set: JoinSet::new(),
            names: BTreeMap::new(),
            shutdown,
        }
    }

    /// Starts a task that runs until shutdown is requested.
    pub fn spawn(
        &mut self,
        name: &'static str,
        task: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        let handle = self.set.spawn(task);
        self.names.insert(handle.id(), name);
    }

    /// Waits until shutdown is requested or a task ends, then asks all others to stop and waits for them, but no
    /// longer than `grace`. The first thing that went wrong is the answer.
    pub async fn run(mut self, grace: Duration) -> Result<(), TaskError> {
        let shutdown = self.shutdown.clone();
        let mut outcome = tokio::select! {
            biased;
            () = shutdown.requested() => Ok(()),
            ended = self.next() => ended.unwrap_or(Ok(())),
        };
        if let Err(error) = &outcome {
            tracing::error!("{error}; stopping");
        }
        self.shutdown.request();
        let drained = tokio::time::timeout(grace, async {
            while let Some(ended) = self.next().await {
                if let Err(error) = ended {
                    tracing::error!("{error} while stopping");
                    outcome = outcome.and(Err(error));
                }
            }
            outcome
        });
        match drained.await {
            Ok(outcome) => outcome,
            Err(_) => {
                let tasks = self.names.into_values().collect();
                Err(TaskError::Stuck { tasks, grace })
            }
        }
    }

    /// The next task to end, and whether it was right to; nothing when there is none left.
    async fn next(&mut self) -> Option<Result<(), TaskError>> {
        let ended = self.set.join_next_with_id().await?;
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let task = self.names.remove(&id).unwrap_or("unknown");
        Some(match ended {
            Ok((_, Ok(()))) if self.shutdown.is_requested() => Ok(()),
            Ok((_, Ok(()))) => Err(TaskError::Ended { task }),
            Ok((_, Err(source))) => Err(TaskError::Failed { task, source }),
            Err(error) => Err(TaskError::Panicked {
                task,
                message: panic_message(error),
            }),
        })
    }
}

/// What a task said when it panicked.
pub(crate) fn panic_message(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned()),
        Err(cancelled) => cancelled.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    const GRACE: Duration = Duration::from_secs(25);

    async fn obedient(shutdown: Shutdown) -> anyhow::Result<()> {
        shutdown.requested().await;
        Ok(())
    }

    async fn run_with(task: impl Future<Output = anyhow::Result<()>> + Send + 'static) -> Result<(), String> {
        let shutdown = Shutdown::new();
        let mut tasks = Tasks::new(shutdown.clone());
        tasks.spawn("obedient", obedient(shutdown.clone()));
        tasks.spawn("other", task);
        let outcome = tasks.run(GRACE).await;
        assert!(shutdown.is_requested());
        outcome.map_err(|error| error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn all_stop_when_asked() {
        let shutdown = Shutdown::new();
        let mut tasks = Tasks::new(shutdown.clone());
        tasks.spawn("first", obedient(shutdown.clone()));
        tasks.spawn("second", obedient(shutdown.clone()));
        let running = tokio::spawn(tasks.run(GRACE));
        shutdown.request();
        running.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_task_ends_the_daemon_with_a_reason() {
        let ended = run_with(async { Ok(()) }).await;
        assert_eq!(ended, Err("task other ended before it was asked to".to_owned()));
        let failed = run_with(async { Err(anyhow::anyhow!("no such file").context("cannot read")) }).await;
        assert_eq!(
            failed,
            Err("task other failed: cannot read: no such file".to_owned())
        );
        let panicked = run_with(async { panic!("impossible: {}", 7) }).await;
        assert_eq!(panicked, Err("task other panicked: impossible: 7".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_stop_in_time_is_named() {
        let shutdown = Shutdown::new();
        let mut tasks = Tasks::new(shutdown.clone());
        tasks.spawn("obedient", obedient(shutdown.clone()));
        tasks.spawn("stubborn", pending());
        shutdown.request();
        let error = tasks.run(GRACE).await.unwrap_err().to_string();
        assert_eq!(error, "did not stop within 25s: stubborn");
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_failure_is_the_answer_and_a_failure_while_stopping_is_one() {
        let shutdown = Shutdown::new();
        let mut tasks = Tasks::new(shutdown.clone());
        let stopping = shutdown.clone();
        tasks.spawn("last words", async move {
            stopping.requested().await;
            anyhow::bail!("cannot write")
        });
        shutdown.request();
        let error = tasks.run(GRACE).await.unwrap_err().to_string();
        assert_eq!(error, "task last words failed: cannot write");
    }
}
