//! The loop of the reconciler, which one process at a time runs.
//!
//! Every worker process runs this loop; a Postgres advisory lock admits one. All timers are rebuilt when Redis has lost
//! its data (no epoch) or was restarted (another run id: the last second of its log may be lost). Otherwise the loop
//! checks overdue rows every few seconds. Each shard is rebuilt separately. After a change of the number of shards, all
//! timers are inserted into their new shards.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    capability::Maintenance,
    recovery::{
        overdue,
        pages::OVERDUE,
        rebuild,
        repair::{self, RepairReport},
        shards::{self, ShardLook},
    },
};
use areas::admission::{
    limits_mirror,
    waiting::{self, SuspectMembers, WaitingDrift},
};
use foundation::{
    db::{self, lock},
    error::ServiceError,
    loops::report_progress,
    shard_map::tolerate_failed,
    work_slice::WorkSlice,
};
use orders::fleet::driver_index;

const INTERVAL: Duration = Duration::from_secs(5);
/// Maximum delay until a timer that Redis has lost is restored while a worker runs: the timer must be overdue, and then
/// a turn must come.
pub(crate) const MENDED_WITHIN: Duration = OVERDUE.saturating_add(INTERVAL);
/// Pause after a report of a missing epoch. Every take reports it, and one reaction per pause is enough.
const REBUILD_PAUSE: Duration = Duration::from_millis(250);
/// Lock key. The number is arbitrary but the same in every replica.
pub const LOCK: i64 = 0x6470_7265_636f_6e63;
/// Pause before the next look at whether a full reconciliation has ended.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const PLACES_EVERY: Duration = Duration::from_secs(60);

/// Runs until `stop` is cancelled. A worker notifies `missing_epoch` when it notices that Redis has lost its data.
pub async fn run(maintenance: Maintenance, missing_epoch: Arc<Notify>, stop: CancellationToken) {
    let turns = maintenance.core.loops.register_loop("reconciler");
    let mut places = PlacesCheck::default();
    let mut changes = maintenance.core.shards.subscribe();
    while !stop.is_cancelled() {
        turns.run_turn(run_turn(&maintenance, &mut places)).await;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
            () = missing_epoch.notified() => tokio::time::sleep(REBUILD_PAUSE).await,
            Ok(()) = changes.changed() => {}
        }
    }
}

/// Runs one turn of the loop. Each part logs its own failure, and the next part still runs.
async fn run_turn(maintenance: &Maintenance, places: &mut PlacesCheck) {
    if let Err(error) = reconcile_once(maintenance).await {
        tracing::warn!(%error, "The reconciler failed; the next turn tries again.");
    }
    report_progress();
    if let Err(error) = driver_index::rebuild_if_missing(&maintenance.orders).await {
        tracing::debug!(%error, "The index of drivers could not be refreshed.");
    }
    report_progress();
    if let Err(error) = places.compare_places(maintenance).await {
        tracing::debug!(%error, "The waiting sets could not be compared with Postgres.");
    }
}

/// Comparison of the waiting sets with Postgres, once a minute and immediately after Redis has lost them.
#[derive(Debug, Default)]
struct PlacesCheck {
    compared: Option<std::time::Instant>,
    suspects: SuspectMembers,
}

impl PlacesCheck {
    async fn compare_places(&mut self, maintenance: &Maintenance) -> Result<(), ServiceError> {
        let is_due = self.compared.is_none_or(|at| at.elapsed() > PLACES_EVERY);
        if !is_due && waiting::is_complete(&maintenance.core).await? {
            return Ok(());
        }
        let drift = waiting::repair_exclusively(&maintenance.areas, &mut self.suspects).await?;
        limits_mirror::mirror_limits(&maintenance.areas).await?;
        self.compared = Some(std::time::Instant::now());
        if let Some(drift) = drift.filter(|drift| *drift != WaitingDrift::default()) {
            tracing::info!(missing = drift.missing, left_over = drift.left_over, "The waiting sets were corrected.");
        }
        Ok(())
    }
}

/// Runs one reconciliation. Returns `None` if another replica is running one.
pub async fn reconcile_once(maintenance: &Maintenance) -> Result<Option<RepairReport>, ServiceError> {
    run_exclusively(maintenance, reconcile_shards(maintenance)).await
}

async fn reconcile_shards(maintenance: &Maintenance) -> Result<RepairReport, ServiceError> {
    let generation = maintenance.core.shards.reload(&maintenance.core.db).await?;
    let queue = maintenance.core.queue();
    let look = ShardLook::begin(&queue, &generation).await;
    tolerate_failed(&queue, look.failed)?;
    shards::open_empty(&look.empty).await?;
    let mut report = RepairReport::default();
    if !look.lost.is_empty() {
        let rebuilt = rebuild::rebuild_timers(maintenance, &look.lost).await;
        if queue.stores().len() == 1 {
            return rebuilt;
        }
        match rebuilt {
            Ok(rebuilt) => report += rebuilt,
            Err(ServiceError::Queue(error)) => {
                tracing::warn!(%error, "A shard could not be rebuilt; the next turn tries again, the others continue.");
            }
            Err(error) => return Err(error),
        }
    }
    report += repair::repair_overdue(maintenance).await?;
    if generation.derived_at.is_none() {
        report += repair::derive_shards(maintenance, &generation).await?;
    }
    if generation.settled_at.is_none() {
        shards::end_change(&maintenance.core, &generation).await?;
    }
    Ok(report)
}

/// Same as [`reconcile_once`], but rebuilds every timer regardless of the state of Redis.
pub async fn reconcile_in_full(maintenance: &Maintenance) -> Result<Option<RepairReport>, ServiceError> {
    let rebuild = async {
        maintenance.core.shards.reload(&maintenance.core.db).await?;
        rebuild::rebuild_timers(maintenance, maintenance.core.queue().homes()).await
    };
    run_exclusively(maintenance, rebuild).await
}

/// State of a full reconciliation that continues after its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FullRun {
    Done(RepairReport),
    /// It is still running. `since` is a time before its start.
    UnderWay {
        since: DateTime<Utc>,
    },
    /// Another process is reconciling, so nothing was started.
    Refused,
    /// It ended without a report.
    Failed,
}

/// Starts [`reconcile_in_full`] in its own task, and waits for its end for at most `patience`. A stopped rebuild would have to
/// start again, so it is not cut into slices. It continues after the request, and [`await_full_run`] waits for it in any
/// process. If this process shuts down first, a worker starts the rebuild again.
pub async fn start_full_run(maintenance: &Maintenance, patience: Duration) -> Result<FullRun, ServiceError> {
    let since = db::database_now(&maintenance.core.db).await?;
    let of_task = maintenance.clone();
    let work = async move {
        let done = reconcile_in_full(&of_task).await;
        if let Err(error) = &done {
            tracing::warn!(%error, "A full reconciliation failed.");
        }
        done
    };
    let mut running = maintenance.core.behind_answers.spawn(work.in_current_span());
    match tokio::time::timeout(patience, &mut running).await {
        Ok(Ok(done)) => Ok(done?.map_or(FullRun::Refused, FullRun::Done)),
        Ok(Err(_)) => Ok(FullRun::Failed),
        Err(_) => Ok(FullRun::UnderWay { since }),
    }
}

/// Waits at most this long for the end of a full reconciliation that was started after `since`, in this process or another.
pub async fn await_full_run(
    maintenance: &Maintenance,
    since: DateTime<Utc>,
    patience: Duration,
) -> Result<FullRun, ServiceError> {
    let core = &maintenance.core;
    let slice = WorkSlice::lasting(patience);
    loop {
        // Read before the lock is tried: a waiter that takes the lock makes other reconcilers skip a turn.
        if let Some(report) = repair::find_full_report(core, since).await? {
            return Ok(FullRun::Done(report));
        }
        if lock::run_under_lock(&core.upkeep, LOCK, async { Ok(()) }).await?.is_some() {
            return Ok(repair::find_full_report(core, since).await?.map_or(FullRun::Failed, FullRun::Done));
        }
        if slice.is_over() {
            return Ok(FullRun::UnderWay { since });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn run_exclusively(
    maintenance: &Maintenance,
    work: impl Future<Output = Result<RepairReport, ServiceError>>,
) -> Result<Option<RepairReport>, ServiceError> {
    let recorded = async {
        // Ending overdue orders needs only Postgres, because Redis may be unavailable or full. It runs concurrently
        // with the repair, so that one locked order does not delay the timers of all others.
        let (ended, done) = tokio::join!(Box::pin(overdue::end_far_overdue(maintenance)), Box::pin(work));
        let (compensated, not_ended) = ended.map_or_else(|error| (0, Some(error)), |ended| (ended, None));
        let (report, failed) = match done {
            Ok(report) => (RepairReport { compensated, ..report }, not_ended),
            Err(error) => (RepairReport { compensated, ..RepairReport::default() }, Some(error)),
        };
        repair::record_report(&maintenance.core, &report).await?;
        failed.map_or(Ok(report), Err)
    };
    lock::run_under_lock(&maintenance.core.upkeep, LOCK, recorded).await
}
