//! Puts supervisor and apalis workers together, and takes them apart again without losing a job.
//!
//! A drain: take nothing more; hand back what has not begun; wait for what runs; abort what is left; write the last
//! results; hand back the rest, no try spent.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, atomic::AtomicU64},
    time::{Duration, Instant},
};

use apalis_core::worker::context::WorkerContext;
use tokio::{
    sync::{Notify, mpsc},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    backend::{HandlerTasks, start_worker},
    gate::Gate,
    job::JobId,
    registry::Registry,
    shards::{Shards, rank_shards},
    store::{EndedSlots, HeldLease, LatenessCounts, Store, WorkerInfo},
    supervisor::{
        EngineMetrics, InFlight, OnDead, RedisOutage, ResultSender, RunCounts, RunTimes, ShardLink, Supervisor,
        TicketedJob, lease, settle, take::TakeLoop,
    },
};

/// What an aborted handler may take until its next await, and a stopped worker until its end.
const STOP_WITHIN: Duration = Duration::from_secs(1);

/// A worker process being set up.
pub struct Runtime {
    shards: Shards,
    registry: Registry,
    queues: Vec<(&'static str, usize)>,
    name: Option<String>,
    gate: Gate,
    on_missing_epoch: Option<Arc<Notify>>,
    on_dead: Option<OnDead>,
    grace: Duration,
}

/// Why a run could not begin, or ended by itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    #[error("no queue to work on: give at least one, with a concurrency above 0")]
    NoQueues,
    #[error("queue {0} is given twice")]
    QueueTwice(&'static str),
    #[error("the worker of a queue ended by itself: {0}")]
    WorkerEnded(String),
}

/// What a run did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunSummary {
    /// Results written.
    pub settled: u64,
    /// Results refused because the lease was lost.
    pub refused: u64,
    /// Jobs handed back by the drain.
    pub released: u64,
}

impl Runtime {
    /// A worker of one store, or of all shards.
    pub fn new(shards: impl Into<Shards>, registry: Registry) -> Self {
        Self {
            shards: shards.into(),
            registry,
            queues: Vec::new(),
            name: None,
            gate: Gate::new_open(),
            on_missing_epoch: None,
            on_dead: None,
            grace: Duration::from_secs(20),
        }
    }

    /// The queues to work on, each with the number of its jobs performed at once.
    #[must_use]
    pub fn queues(mut self, queues: impl IntoIterator<Item = (&'static str, usize)>) -> Self {
        self.queues = queues.into_iter().filter(|(_, concurrency)| *concurrency > 0).collect();
        self
    }

    /// The replica's name among the workers; `host-pid-boot` by default.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// While this gate is closed, nothing is taken.
    #[must_use]
    pub fn gate(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }

    /// Notified whenever a take finds that Redis does not hold our data, or not all of them yet.
    #[must_use]
    pub fn on_missing_epoch(mut self, notify: Arc<Notify>) -> Self {
        self.on_missing_epoch = Some(notify);
        self
    }

    /// Called with each job that died in this process' hands, and why. Must not block.
    #[must_use]
    pub fn on_dead(mut self, hook: impl Fn(&JobId, &str) + Send + Sync + 'static) -> Self {
        self.on_dead = Some(Arc::new(hook));
        self
    }

    /// How long a drain waits for running handlers; 20 s by default.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Performs jobs until `stop` is cancelled, then drains.
    ///
    /// Redis may come and go meanwhile. Metrics go to the recorder that is installed when the run begins. Do not drop the future: jobs in hand would wait for their leases to expire.
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

/// Everything that runs.
struct ActiveRun {
    supervisor: Arc<Supervisor>,
    handlers: HandlerTasks,
    workers: Vec<(WorkerContext, JoinHandle<()>)>,
    /// One message: a worker ended though it was not told to.
    ended: mpsc::Receiver<String>,
    stop_taking: CancellationToken,
    /// Of each shard, as the settlers and the keepers.
    takers: Vec<JoinHandle<()>>,
    settlers: Vec<JoinHandle<()>>,
    keepers: Vec<JoinHandle<()>>,
    flush: CancellationToken,
    stop_keeper: CancellationToken,
    grace: Duration,
}

impl ActiveRun {
    fn start(runtime: Runtime, stop: &CancellationToken) -> Self {
        let grace = runtime.grace;
        let supervisor = Arc::new(make_supervisor(runtime));
        let handlers = HandlerTasks::default();
        let shards = 0..supervisor.links.len();
        let (ends, finished): (Vec<_>, Vec<_>) = shards.clone().map(|_| mpsc::unbounded_channel()).unzip();
        let results = ResultSender::new(ends);
        let (ending, ended) = mpsc::channel(1);

        let mut channels = Vec::new();
        let mut workers = Vec::new();
        for queue in supervisor.in_flight.queues() {
            let (channel, jobs) = mpsc::unbounded_channel::<TicketedJob>();
            channels.push(channel);
            workers.push(start_worker(&supervisor, &handlers, queue, jobs, results.clone(), ending.clone()));
        }
        let (stop_taking, flush, stop_keeper) =
            (stop.child_token(), CancellationToken::new(), CancellationToken::new());
        let (mut takers, mut settlers, mut keepers) = (Vec::new(), Vec::new(), Vec::new());
        for (shard, finished) in shards.zip(finished) {
            let (unreadable, unread) = mpsc::unbounded_channel();
            takers.push(tokio::spawn({
                let (supervisor, channels, stop) = (supervisor.clone(), channels.clone(), stop_taking.clone());
                async move { TakeLoop::new(&supervisor, shard, channels, unreadable).run(stop).await }
            }));
            settlers.push(tokio::spawn({
                let (supervisor, flush) = (supervisor.clone(), flush.clone());
                async move { settle::run((&supervisor, &supervisor.links[shard]), finished, unread, flush).await }
            }));
            keepers.push(tokio::spawn({
                let (supervisor, stop) = (supervisor.clone(), stop_keeper.clone());
                async move { lease::run((&supervisor, &supervisor.links[shard]), stop).await }
            }));
        }
        info!(replica = %supervisor.replica, queues = ?supervisor.info.queues, "The worker is running.");
        Self { supervisor, handlers, workers, ended, stop_taking, takers, settlers, keepers, flush, stop_keeper, grace }
    }

    async fn until_drained(mut self, stop: CancellationToken) -> Result<RunSummary, RuntimeError> {
        let failure = tokio::select! {
            () = stop.cancelled() => None,
            Some(reason) = self.ended.recv() => Some(RuntimeError::WorkerEnded(reason)),
        };
        let supervisor = self.supervisor.clone();
        self.stop_taking.cancel();
        wait_for_all(self.takers).await;
        hand_back(&supervisor, supervisor.in_flight.take_waiting()).await;
        info!(
            in_hand = supervisor.in_flight.len(),
            "The worker drains: it takes no more jobs and finishes those that run."
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

async fn wait_for_all(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        let _ = task.await;
    }
}

/// Slots go back only where no work has begun with them, be its handler begun or not.
async fn hand_back(supervisor: &Supervisor, (held, slots): (Vec<HeldLease>, Vec<EndedSlots>)) {
    slots.into_iter().for_each(|slots| supervisor.control().store.release_unused_slots(slots));
    // Boxed: the types of callers would be nested deeper than the compiler follows by default.
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
        started_ms: 0,
    };
    let ranks = rank_shards(&boot, runtime.shards.stores().len());
    let link = |(store, rank): (&Store, usize)| ShardLink {
        store: store.clone(),
        outage: RedisOutage::default(),
        share: share_of(rank, ranks.len()),
    };
    Supervisor {
        links: runtime.shards.stores().iter().zip(ranks.iter().copied()).map(link).collect(),
        metrics: EngineMetrics::new(runtime.queues.iter().map(|(queue, _)| *queue), &runtime.registry),
        in_flight: InFlight::new(&runtime.queues, runtime.shards.stores().len()),
        shards: runtime.shards,
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

/// Which part of the free permits a take gets: of one shard all of them; of several the half, of those that other processes prefer a
/// quarter. So a shard that gives no answer keeps some and not all of them.
fn share_of(rank: usize, shards: usize) -> usize {
    if shards == 1 {
        1
    } else if rank < shards.div_ceil(2) {
        2
    } else {
        4
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
