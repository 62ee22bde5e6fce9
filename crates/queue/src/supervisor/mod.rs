//! Takes, tracks, extends, settles and hands back jobs; one supervisor per process.
//!
//! Each shard has its own loops that take, settle and renew, so a silent shard does not delay the others. The loops
//! share the table of jobs in flight.
//!
//! Each loop makes one call to Redis at a time and waits for its end. So no loop drops a call halfway: the jobs of an
//! abandoned `take` would not run until their leases expire.
//!
//! * `loops`: starts and ends the loops. `links`: the shards, as the loops see them.
//! * `in_flight`: the table of jobs in flight, which also tracks the free permits.
//! * `take`: leases due jobs when permits are free, and sleeps until the next one is due.
//! * `turn`: decides when this process runs suspects.
//! * `settle`: writes results, many in one call.
//! * `lease`: renews leases, sends heartbeats, hands back the jobs that a drain leaves.
//! * `peers`: frees the slots of processes on this machine that have died.
//! * `metrics`: the engine's counters. `run_times`: recent run times of jobs. `own_use`: memory and processor time.
//! * `outage`: backoff, and one log line per outage.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::{
    gate::Gate,
    job::JobId,
    registry::Registry,
    shards::Shards,
    store::{LatenessCounts, WorkerInfo},
};

mod in_flight;
pub(crate) mod lease;
mod links;
mod loops;
mod metrics;
mod outage;
mod own_use;
pub(crate) mod peers;
mod run_times;
pub(crate) mod settle;
pub(crate) mod take;
mod turn;

pub(crate) use in_flight::{InFlight, Permits, TicketedJob};
pub(crate) use links::{ShardLink, ShardLinks};
pub use loops::RunSummary;
pub(crate) use loops::{EngineLoops, EngineSettings, new_boot};
pub(crate) use metrics::EngineMetrics;
pub(crate) use outage::RedisOutage;
pub(crate) use own_use::ProcessorShare;
pub(crate) use run_times::RunTimes;
pub(crate) use settle::{FinishedJob, ResultSender};

/// Duration of a lease without renewal. The jobs of a dead worker wait this long before they run again.
pub(crate) const LEASE: Duration = Duration::from_secs(8);

/// Hook that is called with each job that died and with its error.
pub(crate) type OnDead = Arc<dyn Fn(&JobId, &str) + Send + Sync>;

/// State that the loops share.
pub(crate) struct Supervisor {
    /// Current shards; their number may change during the run.
    pub(crate) current: watch::Receiver<Shards>,
    pub(crate) links: ShardLinks,
    pub(crate) registry: Registry,
    pub(crate) gate: Gate,
    pub(crate) in_flight: InFlight,
    pub(crate) metrics: EngineMetrics,
    /// Unique per process start; the first part of every token.
    pub(crate) boot: String,
    pub(crate) replica: String,
    /// Each heartbeat sets the values that change.
    pub(crate) info: WorkerInfo,
    pub(crate) on_missing_epoch: Option<Arc<Notify>>,
    pub(crate) on_dead: Option<OnDead>,
    /// Counts since the last heartbeat.
    pub(crate) lateness: Mutex<LatenessCounts>,
    /// Each heartbeat reports them.
    pub(crate) run_times: Mutex<RunTimes>,
    /// Measured from one heartbeat to the next.
    pub(crate) processor: Mutex<ProcessorShare>,
    /// Redis' time at the last take from the control shard.
    pub(crate) now_ms: AtomicU64,
    pub(crate) started: Instant,
    pub(crate) counts: RunCounts,
}

/// Totals of the run so far.
#[derive(Default)]
pub(crate) struct RunCounts {
    pub(crate) settled: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) released: AtomicU64,
}

impl Supervisor {
    pub(crate) fn shards(&self) -> Shards {
        self.current.borrow().clone()
    }

    pub(crate) fn count_open(&self) -> usize {
        self.current.borrow().stores().len()
    }

    /// Returns a shard that is or was open in this run.
    pub(crate) fn link(&self, shard: usize) -> &ShardLink {
        self.links.get_or_open(shard, || self.current.borrow().opened_store(shard).clone())
    }

    /// Returns the control shard, which has the heartbeats and all slots.
    pub(crate) fn control(&self) -> &ShardLink {
        self.link(0)
    }

    /// Returns the time of the request to drain that this process follows. Returns `None` while a take that started
    /// before the gate was closed may still lease jobs.
    pub(crate) fn followed_drain(&self) -> Option<u64> {
        let drain_ms = self.gate.drain_ms()?;
        let takes_jobs = self.gate.is_open() || self.in_flight.has_running_take();
        (!takes_jobs).then_some(drain_ms)
    }

    pub(crate) fn job_died(&self, id: &JobId, error: &str) {
        tracing::warn!(job.id = %id, error, "The job is dead.");
        if let Some(on_dead) = &self.on_dead {
            on_dead(id, error);
        }
    }
}

impl RunCounts {
    pub(crate) fn add_to(counter: &AtomicU64, n: usize) {
        counter.fetch_add(n as u64, Ordering::Relaxed);
    }
}
