//! Starts and ends the loops of a process. The caller runs the jobs that they take.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::{
    EngineMetrics, InFlight, OnDead, ResultSender, RunCounts, RunTimes, ShardLinks, Supervisor, TicketedJob, lease,
    peers, settle, take::TakeLoop,
};
use crate::{
    gate::Gate,
    life,
    registry::Registry,
    shards::Shards,
    store::{EndedSlots, HeldLease, LatenessCounts, WorkerInfo},
};

/// Maximum time for the last slots to be released.
const SLOTS_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunSummary {
    /// Number of results written.
    pub settled: u64,
    /// Number of results refused because the lease was lost.
    pub refused: u64,
    /// Number of jobs handed back by the drain.
    pub released: u64,
}

/// Settings of the loops of a process.
pub(crate) struct EngineSettings {
    pub(crate) shards: watch::Receiver<Shards>,
    pub(crate) registry: Registry,
    /// Queues, each with the number of its jobs that run at once.
    pub(crate) queues: Vec<(&'static str, usize)>,
    pub(crate) name: Option<String>,
    /// See [`new_boot`].
    pub(crate) boot: String,
    pub(crate) gate: Gate,
    pub(crate) on_missing_epoch: Option<Arc<Notify>>,
    pub(crate) on_dead: Option<OnDead>,
}

pub(crate) struct EngineLoops {
    pub(crate) supervisor: Arc<Supervisor>,
    changes: watch::Receiver<Shards>,
    /// One channel per queue, to the queue's worker.
    channels: Vec<mpsc::UnboundedSender<TicketedJob>>,
    results: ResultSender,
    stop_taking: CancellationToken,
    /// Task that watches the other processes of this machine.
    watcher: JoinHandle<()>,
    /// One taker, one settler and one lease keeper per shard.
    takers: Vec<JoinHandle<()>>,
    settlers: Vec<JoinHandle<()>>,
    keepers: Vec<JoinHandle<()>>,
    flush: CancellationToken,
    stop_keeper: CancellationToken,
}

impl EngineLoops {
    /// Starts to take jobs into these channels, one per queue. The workers send their results through `results`.
    pub(crate) fn start(
        settings: EngineSettings,
        channels: Vec<mpsc::UnboundedSender<TicketedJob>>,
        results: ResultSender,
        stop: &CancellationToken,
    ) -> Self {
        let changes = settings.shards.clone();
        let supervisor = Arc::new(make_supervisor(settings));
        let watcher = tokio::spawn({
            let (supervisor, stop) = (supervisor.clone(), stop.child_token());
            async move { peers::run(&supervisor, stop).await }
        });
        let mut loops = Self {
            supervisor,
            changes,
            channels,
            results,
            stop_taking: stop.child_token(),
            watcher,
            takers: Vec::new(),
            settlers: Vec::new(),
            keepers: Vec::new(),
            flush: CancellationToken::new(),
            stop_keeper: CancellationToken::new(),
        };
        loops.open_shards();
        loops
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

    /// Waits until the number of shards changes, and opens the new shards. Does not return if no further change is
    /// possible.
    pub(crate) async fn follow_shards(&mut self) {
        if self.changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.open_shards();
    }

    /// Takes no more jobs, and hands back those that have not started.
    pub(crate) async fn stop_taking(&mut self) {
        self.stop_taking.cancel();
        self.watcher.abort();
        wait_for_all(std::mem::take(&mut self.takers)).await;
        self.hand_back_waiting().await;
    }

    pub(crate) async fn hand_back_waiting(&self) {
        hand_back(&self.supervisor, self.supervisor.in_flight.take_waiting()).await;
    }

    /// Writes the last results, and hands back all jobs without one. To be called after [`stop_taking`](Self::stop_taking).
    pub(crate) async fn finish(self) -> RunSummary {
        let supervisor = self.supervisor;
        self.flush.cancel();
        wait_for_all(self.settlers).await;
        hand_back(&supervisor, supervisor.in_flight.take_all()).await;
        let _ = tokio::time::timeout(SLOTS_WITHIN, supervisor.control().store.wait_for_slot_releases()).await;
        self.stop_keeper.cancel();
        wait_for_all(self.keepers).await;
        lease::send_heartbeat(&supervisor, false).await;
        summarize_run(&supervisor.counts)
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

/// Returns a name that is unique per process start: 16 hexadecimal digits.
pub(crate) fn new_boot() -> String {
    format!("{:016x}", rand::random::<u64>())
}

fn make_supervisor(settings: EngineSettings) -> Supervisor {
    let boot = settings.boot;
    let host = host_name();
    let pid = std::process::id();
    let info = WorkerInfo {
        host: host.clone(),
        pid,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        queues: settings.queues.iter().map(|(queue, _)| (*queue).to_owned()).collect(),
        in_hand: 0,
        drain_ms: None,
        runs: BTreeMap::new(),
        resident_bytes: None,
        cpu_percent: None,
        life: life::own_life().cloned(),
        started_ms: 0,
    };
    let open = settings.shards.borrow().stores().len();
    Supervisor {
        links: ShardLinks::new(),
        metrics: EngineMetrics::new(settings.queues.iter().map(|(queue, _)| *queue), &settings.registry),
        in_flight: InFlight::new(&settings.queues, open),
        current: settings.shards,
        registry: settings.registry,
        gate: settings.gate,
        replica: settings.name.unwrap_or_else(|| format!("{host}-{pid}-{boot}")),
        boot,
        info,
        on_missing_epoch: settings.on_missing_epoch,
        on_dead: settings.on_dead,
        lateness: Mutex::new(LatenessCounts::default()),
        run_times: Mutex::new(RunTimes::new(settings.queues.iter().map(|(queue, _)| *queue), Instant::now())),
        processor: Mutex::default(),
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
