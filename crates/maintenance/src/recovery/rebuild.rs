//! A rebuild restores every timer after Redis lost its data, or after a restart that may have lost the last second. The
//! workers continue during the rebuild.
//!
//! Timers are inserted by due time. The first step uses the deadlines in the rows to find the timers that are overdue
//! or due soon, and inserts them page by page. Then all later timers are read in several passes, each of which keeps
//! the earliest ones in memory. After each step, the horizon is published next to the marker, and workers take jobs
//! that are due up to it. The epoch is written last.
//!
//! A flush removes marker and horizon, and the rebuild ends. The next turn starts another one. If this process dies,
//! another process starts a rebuild. Until then, the timers that were inserted remain, and workers take them up to the
//! horizon.
//!
//! Each shard has its own marker, horizon and epoch. The rows are read once for all shards in the rebuild. A shard that
//! fails or is flushed is left to the next turn and does not delay the others.
//!
//! A worker may end an order whose timers were read but not inserted yet. Such a timer is superseded: when it runs, its
//! row does not need it.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use futures_util::future::join_all;
use metrics::counter;
use model::decide::timers::time_until;

use super::{
    earliest::{EarliestTimers, TimerPlace},
    pages::{RepairScope, RowTimer, TimerPages},
    repair::{RepairReport, prepare_repair, record_verdict},
};
use crate::capability::Maintenance;
use bindings::restore;
use foundation::{crash, db, error::ServiceError, loops::report_progress};
use queue::{
    JobId, Shards, Store, StoreError,
    job::round_up_ms,
    store::{DueJob, RebuildMarker},
};

/// Timers due within this time are inserted first. By the time it has passed, the later timers are all read, and their
/// horizon stays ahead of the clock.
const DUE_SOON: Duration = Duration::from_secs(30);
/// Minimum number of timers that a pass keeps. It holds up to twice as many, 150 bytes each.
const KEPT: usize = 300_000;
/// Timers of one call, and concurrent calls: Redis processes one while the next is being built.
const BATCH: usize = 500;
const CALLS: usize = 4;

/// Restores every timer of these shards, and writes the epoch of each shard that was not flushed in between.
pub async fn rebuild_timers(maintenance: &Maintenance, lost: &[Store]) -> Result<RepairReport, ServiceError> {
    let shards: Vec<u16> = lost.iter().map(Store::shard).collect();
    tracing::info!(?shards, "Redis lost its data or was restarted; restoring all timers from Postgres.");
    let mut rebuild = Rebuild::begin_of(maintenance, lost).await?;
    let is_whole = rebuild.put_back_due_soon().await? && rebuild.put_back_later().await? && rebuild.finish().await?;
    let report = rebuild.report;
    if is_whole {
        counter!("dispatchq_redis_epoch_changes_total").increment(1);
        tracing::info!(looked_at = report.looked_at, inserted = report.inserted, "All timers were restored.");
    } else {
        tracing::warn!("Redis was flushed during the rebuild; the next turn starts another one.");
    }
    Ok(report)
}

#[derive(Debug)]
struct ShardRebuild {
    store: Store,
    run_id: String,
    marker: RebuildMarker,
    /// Start of the rebuild on this shard's clock. It is read after Postgres' time and rounded up, so that no job is
    /// due early.
    begun_ms: u64,
    /// Whether the rebuild of this shard is still valid: no flush, no other rebuild, no failed call.
    still_counts: bool,
}

/// A running rebuild. Each step returns whether it is still valid for any shard; a flush or another rebuild makes it
/// invalid. Due times are relative to the start, because rows use Postgres' clock and each shard its own.
#[derive(Debug)]
pub struct Rebuild<'a> {
    maintenance: &'a Maintenance,
    shards: Shards,
    parts: Vec<ShardRebuild>,
    begun_at: DateTime<Utc>,
    /// All timers due up to this time, in ms from the start, are inserted. Nothing is published before the first step.
    horizon_ms: u64,
    /// Time just after the marker was written, on this process' clock. Redis lost its data before this time.
    begun: Instant,
    has_bindings: bool,
    report: RepairReport,
}

impl<'a> Rebuild<'a> {
    /// Starts a rebuild of all shards.
    pub async fn begin(maintenance: &'a Maintenance) -> Result<Self, ServiceError> {
        let shards = maintenance.core.queue();
        Self::begin_of(maintenance, shards.homes()).await
    }

    /// Starts a rebuild, and restores what jobs need when they run: queue pauses, and the limits and slots of bindings.
    pub async fn begin_of(maintenance: &'a Maintenance, lost: &[Store]) -> Result<Self, ServiceError> {
        let mut marked = Vec::new();
        for store in lost {
            marked.push((store.clone(), store.run_id().await?, store.begin_rebuild().await?));
        }
        let begun = Instant::now();
        let has_bindings = if lost.iter().any(|store| store.shard() == maintenance.core.store.shard()) {
            restore::restore_lines(&maintenance.bindings).await?
        } else {
            false
        };
        prepare_repair(maintenance, RepairScope::All).await?;
        let begun_at = db::database_now(&maintenance.core.db).await?;
        let mut parts = Vec::new();
        for (store, run_id, marker) in marked {
            let begun_ms = store.now_ms_rounded_up().await?;
            parts.push(ShardRebuild { store, run_id, marker, begun_ms, still_counts: true });
        }
        let report = RepairReport { rebuild: true, ..RepairReport::default() };
        Ok(Self {
            maintenance,
            shards: maintenance.core.queue(),
            parts,
            begun_at,
            horizon_ms: 0,
            begun,
            has_bindings,
            report,
        })
    }

    /// Returns the report so far.
    pub fn report(&self) -> &RepairReport {
        &self.report
    }

    /// Restores the timers that are overdue or due soon, and publishes the first horizon.
    pub async fn put_back_due_soon(&mut self) -> Result<bool, ServiceError> {
        let horizon_ms = round_up_ms(DUE_SOON) - 1;
        let mut pages = TimerPages::new(RepairScope::DueWithin(DUE_SOON));
        while let Some(page) = pages.next_page(&self.maintenance.core).await? {
            let jobs = page.timers.into_iter().map(|timer| self.to_due_job(timer));
            let soon: Vec<DueJob> = jobs.filter(|job| job.due_ms <= horizon_ms).collect();
            if !self.put_back(soon).await? {
                return Ok(false);
            }
        }
        self.publish_horizon(horizon_ms).await
    }

    /// Restores all later timers, earliest first.
    pub async fn put_back_later(&mut self) -> Result<bool, ServiceError> {
        let mut after: TimerPlace = (self.horizon_ms + 1, None);
        loop {
            let (jobs, is_rest) = self.read_earliest(after).await?;
            let last = jobs.last().map(|last| (last.due_ms, Some(last.job.id.clone())));
            let mut jobs = jobs.into_iter();
            loop {
                let step: Vec<DueJob> = jobs.by_ref().take(BATCH * CALLS).collect();
                let Some(last_ms) = step.last().map(|last| last.due_ms) else { break };
                // The next step may start with timers of the same millisecond.
                if !self.put_back(step).await? || !self.publish_horizon(last_ms - 1).await? {
                    return Ok(false);
                }
            }
            match last {
                Some(last) if !is_rest => after = last,
                _ => return Ok(true),
            }
        }
    }

    /// Writes the epoch of each shard. Returns whether all shards have their epoch. Slots are granted after the control
    /// shard has its epoch.
    pub async fn finish(&self) -> Result<bool, ServiceError> {
        if self.has_bindings {
            restore::restore_late_claims(&self.maintenance.bindings, self.begun).await?;
        }
        let mut is_whole = true;
        for part in &self.parts {
            let written = part.still_counts
                && match part.store.finish_rebuild(&part.marker, &part.run_id).await {
                    Ok(written) => written,
                    Err(error) if self.parts.len() > 1 => {
                        let shard = part.store.shard();
                        tracing::warn!(shard, %error, "A shard could not be rebuilt; the others continue.");
                        false
                    }
                    Err(error) => return Err(error.into()),
                };
            is_whole &= written;
        }
        Ok(is_whole)
    }

    /// Converts a timer to a job. A timer that was due before the start is due at the start.
    fn to_due_job(&self, RowTimer { job, due }: RowTimer) -> DueJob {
        DueJob { job, due_ms: round_up_ms(time_until(due, self.begun_at)) }
    }

    /// Returns the index of a job's shard, or `None` if the shard is not in this rebuild.
    fn part_of(&self, job: &JobId) -> Option<usize> {
        let shard = self.shards.shard_of(job);
        self.parts.iter().position(|part| part.store.shard() == shard)
    }

    /// Reads all rows. Returns the earliest timers after a position by due time, and whether there are no others.
    async fn read_earliest(&mut self, after: TimerPlace) -> Result<(Vec<DueJob>, bool), ServiceError> {
        let mut earliest = EarliestTimers::after(after, KEPT);
        let (mut pages, mut rows) = (TimerPages::new(RepairScope::All), 0);
        while let Some(page) = pages.next_page(&self.maintenance.core).await? {
            rows += page.rows;
            for timer in page.timers {
                if self.part_of(&timer.job.id).is_some() {
                    earliest.push(self.to_due_job(timer));
                }
            }
            report_progress();
        }
        self.report.looked_at = rows;
        Ok(earliest.into_sorted())
    }

    async fn put_back(&mut self, jobs: Vec<DueJob>) -> Result<bool, ServiceError> {
        let mut of_parts: Vec<Vec<DueJob>> = self.parts.iter().map(|_| Vec::new()).collect();
        for due in jobs {
            if let Some(n) = self.part_of(&due.job.id) {
                of_parts[n].push(DueJob { due_ms: self.parts[n].begun_ms + due.due_ms, ..due });
            }
        }
        let mut batches: Vec<(usize, &[DueJob])> = Vec::new();
        for (n, jobs) in of_parts.iter().enumerate() {
            batches.extend(jobs.chunks(BATCH).map(|batch| (n, batch)));
        }
        for step in batches.chunks(CALLS.max(self.parts.len())) {
            let calls = step.iter().filter(|(n, _)| self.parts[*n].still_counts).map(|(n, batch)| {
                let part = &self.parts[*n];
                async move { (*n, *batch, part.store.rebuild_jobs(&part.marker, batch).await) }
            });
            let answers = join_all(calls).await;
            report_progress();
            for (n, batch, answer) in answers {
                match answer {
                    Ok(Some(verdicts)) => {
                        for (job, verdict) in batch.iter().zip(verdicts) {
                            record_verdict(self.maintenance, &mut self.report, &job.job, verdict).await?;
                        }
                    }
                    Ok(None) => self.parts[n].still_counts = false,
                    Err(error) => self.leave_out(n, error)?,
                }
            }
            if !self.still_counts() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn publish_horizon(&mut self, horizon_ms: u64) -> Result<bool, ServiceError> {
        let calls = self.counting_parts().map(|(n, part)| async move {
            (n, part.store.publish_horizon(&part.marker, part.begun_ms + horizon_ms).await)
        });
        for (n, answer) in join_all(calls).await {
            match answer {
                Ok(still_counts) => self.parts[n].still_counts &= still_counts,
                Err(error) => self.leave_out(n, error)?,
            }
        }
        self.horizon_ms = horizon_ms;
        crash::reach_point("rebuild", "horizon");
        Ok(self.still_counts())
    }

    fn still_counts(&self) -> bool {
        self.parts.iter().any(|part| part.still_counts)
    }

    /// Returns the shards for which the rebuild is still valid, with their indexes.
    fn counting_parts(&self) -> impl Iterator<Item = (usize, &ShardRebuild)> {
        self.parts.iter().enumerate().filter(|(_, part)| part.still_counts)
    }

    /// Removes a shard that does not respond from this rebuild, so that the others continue; the next turn checks it
    /// again. Fails if it is the only shard.
    fn leave_out(&mut self, n: usize, error: StoreError) -> Result<(), StoreError> {
        self.parts[n].still_counts = false;
        if self.parts.len() == 1 {
            return Err(error);
        }
        tracing::warn!(shard = self.parts[n].store.shard(), %error, "A shard could not be rebuilt; the others continue.");
        Ok(())
    }
}
