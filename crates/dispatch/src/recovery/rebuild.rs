//! A rebuild: Redis has lost its data, or the last second of them by a restart, and every timer is put back while the fleet works.
//!
//! Timers go in by due time. First those that are overdue or due soon, a page at a time, found by the rows' own deadlines; then all
//! later ones, read in passes that keep the earliest in memory. After each step the horizon is published beside the marker: workers
//! take what is due up to it. The epoch is written last. A flush takes marker and horizon along, and the rebuild ends; the next turn
//! begins another. So does another process if this one dies; what this one put in stays, and is taken up to its horizon until then.
//!
//! A worker may end an order whose timers were read and are not yet in. Such a timer is superseded: its row does not want it.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use futures_util::future::try_join_all;
use metrics::counter;
use model::decide::timers::time_until;
use workers::{
    job::round_up_ms,
    store::{DueJob, RebuildMarker},
};

use super::{
    earliest::{EarliestTimers, TimerPlace},
    pages::{RepairScope, RowTimer, TimerPages},
    repair::{RepairReport, prepare_repair, record_verdict},
};
use crate::{app::App, bindings::restore, crash, db, error::ServiceError, loops::report_progress};

/// What is due within this time goes in first. The later timers are all read by then, and their horizon keeps ahead of the clock.
const DUE_SOON: Duration = Duration::from_secs(30);
/// Timers that a pass keeps at least, and half of those it may hold: 150 bytes each.
const KEPT: usize = 300_000;
/// Timers of one call, and calls on their way at the same time: Redis works on one while the next is being put together.
const BATCH: usize = 500;
const CALLS: usize = 4;

/// Returns whether Redis has lost its data, or the last second of them by a restart.
pub async fn needs_rebuild(app: &App) -> Result<bool, ServiceError> {
    let run_id = app.store.run_id().await?;
    Ok(app.store.epoch().await?.is_none_or(|epoch| epoch.run_id != run_id))
}

/// Puts every timer back, and writes the epoch if no flush came in between.
pub async fn rebuild_timers(app: &App) -> Result<RepairReport, ServiceError> {
    tracing::info!("Redis has no data of ours or was restarted: all timers are put back from Postgres.");
    let mut rebuild = Rebuild::begin(app).await?;
    let is_whole = rebuild.put_back_due_soon().await? && rebuild.put_back_later().await? && rebuild.finish().await?;
    let report = rebuild.report;
    if is_whole {
        counter!("dispatchq_redis_epoch_changes_total").increment(1);
        tracing::info!(looked_at = report.looked_at, inserted = report.inserted, "All timers are back.");
    } else {
        tracing::warn!("Redis was flushed while its timers were put back; once more.");
    }
    Ok(report)
}

/// The same moment by two clocks: rows go by Postgres', due times in Redis by its own.
#[derive(Debug, Clone, Copy)]
struct MomentOfBoth {
    postgres: DateTime<Utc>,
    /// Read later, and rounded up: nothing is due early by it.
    redis_ms: u64,
}

impl MomentOfBoth {
    async fn read(app: &App) -> Result<Self, ServiceError> {
        let postgres = db::database_now(&app.db).await?;
        Ok(Self { postgres, redis_ms: app.store.now_ms_rounded_up().await? })
    }

    /// What was due before this moment is due at it.
    fn to_due_job(self, RowTimer { job, due }: RowTimer) -> DueJob {
        DueJob { job, due_ms: self.redis_ms + round_up_ms(time_until(due, self.postgres)) }
    }
}

/// A rebuild under way, step by step. Each step answers whether it still counts: `false` after a flush, or once another has begun.
#[derive(Debug)]
pub struct Rebuild<'a> {
    app: &'a App,
    run_id: String,
    marker: RebuildMarker,
    begun_at: MomentOfBoth,
    /// Each timer due up to it, in ms of Redis' clock, is in; nothing is published before the first step.
    horizon_ms: u64,
    /// When the marker was written, by this process' clock: whatever Redis lost, it lost before.
    begun: Instant,
    has_bindings: bool,
    report: RepairReport,
}

impl<'a> Rebuild<'a> {
    /// Begins, and puts back what jobs must find when they run: stopped queues, the limits and slots of bindings.
    pub async fn begin(app: &'a App) -> Result<Self, ServiceError> {
        let run_id = app.store.run_id().await?;
        let marker = app.store.begin_rebuild().await?;
        let begun = Instant::now();
        let has_bindings = restore::restore_lines(app).await?;
        prepare_repair(app, RepairScope::All).await?;
        let begun_at = MomentOfBoth::read(app).await?;
        let report = RepairReport { rebuild: true, ..RepairReport::default() };
        Ok(Self { app, run_id, marker, begun_at, horizon_ms: begun_at.redis_ms, begun, has_bindings, report })
    }

    /// What was put back so far.
    pub fn report(&self) -> &RepairReport {
        &self.report
    }

    /// Puts back what is overdue or due soon, and publishes the first horizon.
    pub async fn put_back_due_soon(&mut self) -> Result<bool, ServiceError> {
        let begun_at = self.begun_at;
        let horizon_ms = begun_at.redis_ms + round_up_ms(DUE_SOON) - 1;
        let mut pages = TimerPages::new(RepairScope::DueWithin(DUE_SOON));
        while let Some(page) = pages.next_page(self.app).await? {
            let jobs = page.timers.into_iter().map(|timer| begun_at.to_due_job(timer));
            let soon: Vec<DueJob> = jobs.filter(|job| job.due_ms <= horizon_ms).collect();
            if !self.put_back(&soon).await? {
                return Ok(false);
            }
        }
        self.publish_horizon(horizon_ms).await
    }

    /// Puts back all later timers, the earliest first.
    pub async fn put_back_later(&mut self) -> Result<bool, ServiceError> {
        let mut after: TimerPlace = (self.horizon_ms + 1, None);
        loop {
            let (jobs, is_rest) = self.read_earliest(after).await?;
            for step in jobs.chunks(BATCH * CALLS) {
                let Some(last) = step.last() else { break };
                // The next step may begin with timers of the same millisecond.
                if !self.put_back(step).await? || !self.publish_horizon(last.due_ms - 1).await? {
                    return Ok(false);
                }
            }
            match jobs.last() {
                Some(last) if !is_rest => after = (last.due_ms, Some(last.job.id.clone())),
                _ => return Ok(true),
            }
        }
    }

    /// Writes the epoch: slots are handed out from then on.
    pub async fn finish(&self) -> Result<bool, ServiceError> {
        if self.has_bindings {
            restore::restore_late_claims(self.app, self.begun).await?;
        }
        Ok(self.app.store.finish_rebuild(&self.marker, &self.run_id).await?)
    }

    /// Reads all rows. Returns the earliest timers after a place by due time, and whether they are all there are.
    async fn read_earliest(&mut self, after: TimerPlace) -> Result<(Vec<DueJob>, bool), ServiceError> {
        let mut earliest = EarliestTimers::after(after, KEPT);
        let (mut pages, mut rows) = (TimerPages::new(RepairScope::All), 0);
        while let Some(page) = pages.next_page(self.app).await? {
            rows += page.rows;
            for timer in page.timers {
                earliest.push(self.begun_at.to_due_job(timer));
            }
            report_progress();
        }
        self.report.looked_at = rows;
        Ok(earliest.into_sorted())
    }

    async fn put_back(&mut self, jobs: &[DueJob]) -> Result<bool, ServiceError> {
        for step in jobs.chunks(BATCH * CALLS) {
            let calls = step.chunks(BATCH).map(|batch| self.app.store.rebuild_jobs(&self.marker, batch));
            let answers = try_join_all(calls).await?;
            report_progress();
            for (batch, verdicts) in step.chunks(BATCH).zip(answers) {
                let Some(verdicts) = verdicts else { return Ok(false) };
                for (job, verdict) in batch.iter().zip(verdicts) {
                    record_verdict(self.app, &mut self.report, &job.job, verdict).await?;
                }
            }
        }
        Ok(true)
    }

    async fn publish_horizon(&mut self, horizon_ms: u64) -> Result<bool, ServiceError> {
        let still_counts = self.app.store.publish_horizon(&self.marker, horizon_ms).await?;
        self.horizon_ms = horizon_ms;
        crash::reach_point("rebuild", "horizon");
        Ok(still_counts)
    }
}
