//! Takes, holds, extends, settles and hands back jobs; one per process.
//!
//! Each shard has its own loops that take, settle and renew, so one that gives no answer keeps no other waiting. They share the table of jobs
//! in hand.
//!
//! Each concern is a loop of its own, and each loop makes one call to Redis at a time and waits for its end. So nothing
//! ever drops a call half-way: an abandoned `take` would keep its jobs from everybody until their leases expire.
//!
//! * `links`: the shards, as the loops know them.
//! * `in_flight`: the table of jobs in hand. It alone knows the free permits.
//! * `take`: leases due jobs when permits are free, and sleeps exactly as long as it may.
//! * `turn`: when this process runs suspects.
//! * `settle`: writes results back, many in one call.
//! * `lease`: renews leases, gives the sign of life, hands back what a drain leaves.
//! * `metrics`: what is counted. `run_times`: how long jobs take lately.
//! * `outage`: backoff, and one line in the log per outage.

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
mod metrics;
mod outage;
pub(crate) mod peers;
mod run_times;
pub(crate) mod settle;
pub(crate) mod take;
mod turn;

pub(crate) use in_flight::{InFlight, Permits, TicketedJob};
pub(crate) use links::{ShardLink, ShardLinks};
pub(crate) use metrics::EngineMetrics;
pub(crate) use outage::RedisOutage;
pub(crate) use run_times::RunTimes;
pub(crate) use settle::{FinishedJob, ResultSender};

/// How long a lease lasts without renewal: so long do a dead worker's jobs wait, unless a worker of the same machine sees it end.
pub(crate) const LEASE: Duration = Duration::from_secs(8);

/// Called with each job that died, and why.
pub(crate) type OnDead = Arc<dyn Fn(&JobId, &str) + Send + Sync>;

/// What the loops share.
pub(crate) struct Supervisor {
    /// The shards as they are now: their number may change during the run.
    pub(crate) current: watch::Receiver<Shards>,
    pub(crate) links: ShardLinks,
    pub(crate) registry: Registry,
    pub(crate) gate: Gate,
    pub(crate) in_flight: InFlight,
    pub(crate) metrics: EngineMetrics,
    /// Unique per process start: first part of every token.
    pub(crate) boot: String,
    pub(crate) replica: String,
    /// `in_hand` and `runs` are filled in at each heartbeat.
    pub(crate) info: WorkerInfo,
    pub(crate) on_missing_epoch: Option<Arc<Notify>>,
    pub(crate) on_dead: Option<OnDead>,
    /// Not yet reported by a heartbeat.
    pub(crate) lateness: Mutex<LatenessCounts>,
    /// Reported by each heartbeat.
    pub(crate) run_times: Mutex<RunTimes>,
    /// Redis' time at the last take, by the control shard.
    pub(crate) now_ms: AtomicU64,
    pub(crate) started: Instant,
    pub(crate) counts: RunCounts,
}

/// What the run has done so far.
#[derive(Default)]
pub(crate) struct RunCounts {
    pub(crate) settled: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) released: AtomicU64,
}

impl Supervisor {
    /// Returns the shards as they are now.
    pub(crate) fn shards(&self) -> Shards {
        self.current.borrow().clone()
    }

    /// Returns how many shards are open.
    pub(crate) fn count_open(&self) -> usize {
        self.current.borrow().stores().len()
    }

    /// A shard that is open, or was once in this run.
    pub(crate) fn link(&self, shard: usize) -> &ShardLink {
        self.links.get_or_open(shard, || self.current.borrow().opened_store(shard).clone())
    }

    /// Where signs of life go, and jobs that are handed slots.
    pub(crate) fn control(&self) -> &ShardLink {
        self.link(0)
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
