//! Starts the supervisor and the apalis workers, and drains them without losing a job.
//!
//! A drain has six steps: take no more jobs; hand back jobs that have not started; wait for running jobs; abort those
//! that remain; write the last results; hand back the rest without spending a try.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

use apalis_core::worker::context::WorkerContext;
use parking_lot::Mutex;
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
    life,
    registry::Registry,
    shards::Shards,
    store::{EndedSlots, HeldLease, LatenessCounts, WorkerInfo},
    supervisor::{
        EngineMetrics, InFlight, OnDead, ResultSender, RunCounts, RunTimes, ShardLinks, Supervisor, TicketedJob, lease,
        peers, settle, take::TakeLoop,
    },
};

/// Maximum time for an aborted handler to reach its next await, and for a stopped worker to end.
const STOP_WITHIN: Duration = Duration::from_secs(1);

/// Builder of a worker process.
pub struct Runtime {
    shards: watch::Receiver<Shards>,
    registry: Registry,
    queues: Vec<(&'static str, usize)>,
    name: Option<String>,
    gate: Gate,
    on_missing_epoch: Option<Arc<Notify>>,
    on_dead: Option<OnDead>,
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

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunSummary {
    /// Number of results written.
    pub settled: u64,
    /// Number of results refused because the lease was lost.
    pub refused: u64,
    /// Number of jobs handed back by the drain.
    pub released: u64,
}

impl Runtime {
    /// Creates a worker for one store or for all shards.
    pub fn new(shards: impl Into<Shards>, registry: Registry) -> Self {
        Self {
            shards: watch::channel(shards.into()).1,
            registry,
            queues: Vec::new(),
            name: None,
            gate: Gate::new_open(),
            on_missing_epoch: None,
            on_dead: None,
            grace: Duration::from_secs(20),
        }
    }

    /// Lets the number of shards change during the run. The worker takes from the open shards and places follow-ups
    /// according to the current number. It takes nothing more from a closed shard and settles the jobs that it has from
    /// there.
    #[must_use]
    pub fn follow_shards(mut self, shards: watch::Receiver<Shards>) -> Self {
        self.shards = shards;
        self
    }

    /// Sets the queues to work on, each with the number of its jobs that run at once.
    #[must_use]
    pub fn queues(mut self, queues: impl IntoIterator<Item = (&'static str, usize)>) -> Self {
        self.queues = queues.into_iter().filter(|(_, concurrency)| *concurrency > 0).collect();
        self
    }

    /// Sets the replica's name among the workers; `host-pid-boot` by default.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets a gate. The worker takes no jobs while it is closed.
    #[must_use]
    pub fn gate(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }

    /// Sets the notification that a take sends when it finds that Redis does not have all jobs: Redis lost its data, or
    /// a rebuild is running.
    #[must_use]
    pub fn on_missing_epoch(mut self, notify: Arc<Notify>) -> Self {
        self.on_missing_epoch = Some(notify);
        self
    }

    /// Sets a hook that is called with each job that dies in this process, and with the job's error. The hook must not
    /// block.
    #[must_use]
    pub fn on_dead(mut self, hook: impl Fn(&JobId, &str) + Send + Sync + 'static) -> Self {
        self.on_dead = Some(Arc::new(hook));
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
        if self.queues.is_empty() {
            return Err(RuntimeError::NoQueues);
        }
        for (position, (queue, _)) in self.queues.iter().enumerate() {
            if self.queues[..position].iter().any(|(earlier, _)| earlier == queue) {
                return Err(RuntimeError::QueueTwice(queue));
            }
        }
        ActiveRun::start(self, &stop).until_drained(stop).await
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("queues", &self.queues)
            .field("registry", &self.registry)
            .finish_non_exhaustive()
    }
}

struct ActiveRun {
    supervisor: Arc<Supervisor>,
    changes: watch::Receiver<Shards>,
    handlers: HandlerTasks,
    workers: Vec<(WorkerContext, JoinHandle<()>)>,
    /// One channel per queue, to the queue's worker.
    channels: Vec<mpsc::UnboundedSender<TicketedJob>>,
    results: ResultSender,
    /// Receives one message if a worker ends without being stopped.
    ended: mpsc::Receiver<String>,
    stop_taking: CancellationToken,
    /// Task that watches the other processes of this machine.
    watcher: JoinHandle<()>,
    /// One taker, one settler and one lease keeper per shard.
    takers: Vec<JoinHandle<()>>,
    settlers: Vec<JoinHandle<()>>,
    keepers: Vec<JoinHandle<()>>,
    flush: CancellationToken,
    stop_keeper: CancellationToken,
    grace: Duration,
}

impl ActiveRun {
    fn start(runtime: Runtime, stop: &CancellationToken) -> Self {
        let (grace, changes) = (runtime.grace, runtime.shards.clone());
        let supervisor = Arc::new(make_supervisor(runtime));
        let handlers = HandlerTasks::default();
        let results = ResultSender::new();
        let (ending, ended) = mpsc::channel(1);

        let mut channels = Vec::new();
        let mut workers = Vec::new();
        for queue in supervisor.in_flight.queues() {
            let (channel, jobs) = mpsc::unbounded_channel::<TicketedJob>();
            channels.push(channel);
            workers.push(start_worker(&supervisor, &handlers, queue, jobs, results.clone(), ending.clone()));
        }
        let watcher = tokio::spawn({
            let (supervisor, stop) = (supervisor.clone(), stop.child_token());
            async move { peers::run(&supervisor, stop).await }
        });
        let mut run = Self {
            supervisor,
            changes,
            handlers,
            workers,
            channels,
            results,
            ended,
            stop_taking: stop.child_token(),
            watcher,
            takers: Vec::new(),
            settlers: Vec::new(),
            keepers: Vec::new(),
            flush: CancellationToken::new(),
            stop_keeper: CancellationToken::new(),
            grace,
        };
        run.open_shards();
        info!(replica = %run.supervisor.replica, queues = ?run.supervisor.info.queues, "The worker is running.");
        run
    }

    /// Starts taking from each shard that was not open before. The loops of a closed shard pause.
    fn open_shards(&mut self) {
        let open = self.supervisor.count_open();
        for shard in 0..open {
            self.supervisor.link(shard);
        }
        self.supervisor.links.set_shares(&self.supervisor.boot, open);
        while self.takers.len() < open {
            self.start_shard(self.takers.len());
        }
        self.supervisor.in_flight.set_shards(open);
    }

    fn start_shard(&mut self, shard: usize) {
        let finished = self.results.open_shard(shard);
        let (unreadable, unread) = mpsc::unbounded_channel();
        self.takers.push(tokio::spawn({
            let (supervisor, channels) = (self.supervisor.clone(), self.channels.clone());
            let stop = self.stop_taking.clone();
            async move { TakeLoop::new(&supervisor, shard, channels, unreadable).run(stop).await }
        }));
        self.settlers.push(tokio::spawn({
            let (supervisor, flush) = (self.supervisor.clone(), self.flush.clone());
            async move { settle::run((&supervisor, supervisor.link(shard)), finished, unread, flush).await }
        }));
        self.keepers.push(tokio::spawn({
            let (supervisor, stop) = (self.supervisor.clone(), self.stop_keeper.clone());
            async move { lease::run((&supervisor, supervisor.link(shard)), stop).await }
        }));
    }

    async fn until_drained(mut self, stop: CancellationToken) -> Result<RunSummary, RuntimeError> {
        let failure = loop {
            tokio::select! {
                () = stop.cancelled() => break None,
                Some(reason) = self.ended.recv() => break Some(RuntimeError::WorkerEnded(reason)),
                () = wait_for_change(&mut self.changes) => self.open_shards(),
            }
        };
        let supervisor = self.supervisor.clone();
        self.stop_taking.cancel();
        self.watcher.abort();
        wait_for_all(self.takers).await;
        hand_back(&supervisor, supervisor.in_flight.take_waiting()).await;
        info!(
            in_hand = supervisor.in_flight.len(),
            "The worker is draining: it takes no more jobs and finishes the running ones."
        );
        if tokio::time::timeout(self.grace, supervisor.in_flight.wait_until_empty()).await.is_err() {
            warn!(
                jobs = supervisor.in_flight.len(),
                "The grace period is over; running jobs are aborted and handed back."
            );
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
        self.flush.cancel();
        wait_for_all(self.settlers).await;
        hand_back(&supervisor, supervisor.in_flight.take_all()).await;
        let _ = tokio::time::timeout(STOP_WITHIN, supervisor.control().store.wait_for_slot_releases()).await;
        self.stop_keeper.cancel();
        wait_for_all(self.keepers).await;
        lease::send_heartbeat(&supervisor, false).await;

        let summary = summarize_run(&supervisor.counts);
        info!(
            settled = summary.settled,
            refused = summary.refused,
            released = summary.released,
            "The worker has drained."
        );
        failure.map_or(Ok(summary), Err)
    }
}

/// Waits until the number of shards changes. Waits forever if the number can no longer change.
async fn wait_for_change(changes: &mut watch::Receiver<Shards>) {
    if changes.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn wait_for_all(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        let _ = task.await;
    }
}

/// Hands jobs back. Slots are released only if no work has started with them, whether or not the handler has started.
async fn hand_back(supervisor: &Supervisor, (held, slots): (Vec<HeldLease>, Vec<EndedSlots>)) {
    slots.into_iter().for_each(|slots| supervisor.control().store.release_unused_slots(slots));
    // Boxed: otherwise the callers' types would be nested deeper than the compiler's default limit.
    Box::pin(lease::release_leases(supervisor, held)).await;
}

fn make_supervisor(runtime: Runtime) -> Supervisor {
    let boot = format!("{:016x}", rand::random::<u64>());
    let host = host_name();
    let pid = std::process::id();
    let info = WorkerInfo {
        host: host.clone(),
        pid,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        queues: runtime.queues.iter().map(|(queue, _)| (*queue).to_owned()).collect(),
        in_hand: 0,
        runs: BTreeMap::new(),
        life: life::own_life().cloned(),
        started_ms: 0,
    };
    let open = runtime.shards.borrow().stores().len();
    Supervisor {
        links: ShardLinks::new(),
        metrics: EngineMetrics::new(runtime.queues.iter().map(|(queue, _)| *queue), &runtime.registry),
        in_flight: InFlight::new(&runtime.queues, open),
        current: runtime.shards,
        registry: runtime.registry,
        gate: runtime.gate,
        replica: runtime.name.unwrap_or_else(|| format!("{host}-{pid}-{boot}")),
        boot,
        info,
        on_missing_epoch: runtime.on_missing_epoch,
        on_dead: runtime.on_dead,
        lateness: Mutex::new(LatenessCounts::default()),
        run_times: Mutex::new(RunTimes::new(runtime.queues.iter().map(|(queue, _)| *queue), Instant::now())),
        now_ms: AtomicU64::new(0),
        started: Instant::now(),
        counts: RunCounts::default(),
    }
}

fn summarize_run(counts: &RunCounts) -> RunSummary {
    let read = |counter: &AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
    RunSummary { settled: read(&counts.settled), refused: read(&counts.refused), released: read(&counts.released) }
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
    name.ok().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).unwrap_or_else(|| "worker".to_owned())
}
