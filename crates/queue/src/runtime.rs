//! Starts the supervisor and the apalis workers, and drains them without losing a job.
//!
//! A drain has six steps: take no more jobs; hand back jobs that have not started; wait for running jobs; abort those
//! that remain; write the last results; hand back the rest without spending a try.

use std::{fmt, sync::Arc, time::Duration};

use apalis_core::worker::context::WorkerContext;
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    backend::{HandlerTasks, start_worker},
    gate::Gate,
    job::JobId,
    registry::Registry,
    shards::Shards,
    supervisor::{EngineLoops, EngineSettings, ResultSender, RunSummary, new_boot},
};

/// Maximum time for an aborted handler to reach its next await, and for a stopped worker to end.
const STOP_WITHIN: Duration = Duration::from_secs(1);

/// Builder of a worker process.
pub struct Runtime {
    settings: EngineSettings,
    grace: Duration,
}

/// Reason why a run did not start or ended early.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    #[error("no queue to work on: give at least one, with a concurrency above 0")]
    NoQueues,
    #[error("queue {0} is given twice")]
    QueueTwice(&'static str),
    #[error("the worker of a queue ended unexpectedly: {0}")]
    WorkerEnded(String),
}

impl Runtime {
    /// Creates a worker for one store or for all shards.
    pub fn new(shards: impl Into<Shards>, registry: Registry) -> Self {
        let settings = EngineSettings {
            shards: watch::channel(shards.into()).1,
            registry,
            queues: Vec::new(),
            name: None,
            boot: new_boot(),
            gate: Gate::new_open(),
            on_missing_epoch: None,
            on_dead: None,
        };
        Self { settings, grace: Duration::from_secs(20) }
    }

    /// Returns the id of this worker process: 16 hexadecimal digits, unique per process start.
    pub fn boot(&self) -> &str {
        &self.settings.boot
    }

    /// Lets the number of shards change during the run. The worker takes from the open shards and places follow-ups
    /// according to the current number. It takes nothing more from a closed shard and settles the jobs that it has from
    /// there.
    #[must_use]
    pub fn follow_shards(mut self, shards: watch::Receiver<Shards>) -> Self {
        self.settings.shards = shards;
        self
    }

    /// Sets the queues to work on, each with the number of its jobs that run at once.
    #[must_use]
    pub fn queues(mut self, queues: impl IntoIterator<Item = (&'static str, usize)>) -> Self {
        self.settings.queues = queues.into_iter().filter(|(_, concurrency)| *concurrency > 0).collect();
        self
    }

    /// Sets the replica's name among the workers; `host-pid-boot` by default.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// Sets a gate. The worker takes no jobs while it is closed.
    #[must_use]
    pub fn gate(mut self, gate: Gate) -> Self {
        self.settings.gate = gate;
        self
    }

    /// Sets the notification that a take sends when it finds that Redis does not have all jobs: Redis lost its data, or
    /// a rebuild is running.
    #[must_use]
    pub fn on_missing_epoch(mut self, notify: Arc<Notify>) -> Self {
        self.settings.on_missing_epoch = Some(notify);
        self
    }

    /// Sets a hook that is called with each job that dies in this process, and with the job's error. The hook must not
    /// block.
    #[must_use]
    pub fn on_dead(mut self, hook: impl Fn(&JobId, &str) + Send + Sync + 'static) -> Self {
        self.settings.on_dead = Some(Arc::new(hook));
        self
    }

    /// Sets the time that a drain waits for running handlers; 20 s by default.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Runs jobs until `stop` is cancelled, then drains.
    ///
    /// Redis may be unavailable for a time during the run. Metrics go to the recorder that is installed when the run
    /// starts. Do not drop the future: its jobs would then wait for their leases to expire.
    pub async fn run(self, stop: CancellationToken) -> Result<RunSummary, RuntimeError> {
        let queues = &self.settings.queues;
        if queues.is_empty() {
            return Err(RuntimeError::NoQueues);
        }
        for (position, (queue, _)) in queues.iter().enumerate() {
            if queues[..position].iter().any(|(earlier, _)| earlier == queue) {
                return Err(RuntimeError::QueueTwice(queue));
            }
        }
        ActiveRun::start(self, &stop).until_drained(stop).await
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("queues", &self.settings.queues)
            .field("registry", &self.settings.registry)
            .finish_non_exhaustive()
    }
}

struct ActiveRun {
    loops: EngineLoops,
    handlers: HandlerTasks,
    workers: Vec<(WorkerContext, JoinHandle<()>)>,
    /// Receives one message if a worker ends without being stopped.
    ended: mpsc::Receiver<String>,
    grace: Duration,
}

impl ActiveRun {
    fn start(runtime: Runtime, stop: &CancellationToken) -> Self {
        let Runtime { settings, grace } = runtime;
        let queues: Vec<&'static str> = settings.queues.iter().map(|(queue, _)| *queue).collect();
        let handlers = HandlerTasks::default();
        let results = ResultSender::new();
        let (ending, ended) = mpsc::channel(1);
        let (channels, receivers): (Vec<_>, Vec<_>) = queues.iter().map(|_| mpsc::unbounded_channel()).unzip();
        let loops = EngineLoops::start(settings, channels, results.clone(), stop);
        let start =
            |(queue, jobs)| start_worker(&loops.supervisor, &handlers, queue, jobs, results.clone(), ending.clone());
        let workers = queues.into_iter().zip(receivers).map(start).collect();
        info!(replica = %loops.supervisor.replica, queues = ?loops.supervisor.info.queues, "The worker is running.");
        Self { loops, handlers, workers, ended, grace }
    }

    async fn until_drained(mut self, stop: CancellationToken) -> Result<RunSummary, RuntimeError> {
        let failure = loop {
            tokio::select! {
                () = stop.cancelled() => break None,
                Some(reason) = self.ended.recv() => break Some(RuntimeError::WorkerEnded(reason)),
                () = self.loops.follow_shards() => {}
            }
        };
        self.loops.stop_taking().await;
        let in_flight = &self.loops.supervisor.in_flight;
        info!(
            in_hand = in_flight.len(),
            "The worker is draining: it takes no more jobs and finishes the running ones."
        );
        if tokio::time::timeout(self.grace, in_flight.wait_until_empty()).await.is_err() {
            warn!(jobs = in_flight.len(), "The grace period is over; running jobs are aborted and handed back.");
        }

        self.handlers.abort.cancel();
        self.handlers.tasks.close();
        let _ = tokio::time::timeout(STOP_WITHIN, self.handlers.tasks.wait()).await;
        for (context, _) in &self.workers {
            let _ = context.stop();
        }
        for (_, mut worker) in self.workers {
            if tokio::time::timeout(STOP_WITHIN, &mut worker).await.is_err() {
                worker.abort();
            }
        }
        let summary = self.loops.finish().await;
        info!(
            settled = summary.settled,
            refused = summary.refused,
            released = summary.released,
            "The worker has drained."
        );
        failure.map_or(Ok(summary), Err)
    }
}
