//! Repair: reads rows, derives their timers, and inserts the timers that Redis lacks. It never removes a timer. If
//! Redis has lost everything, see `rebuild`.

use std::{collections::HashSet, fmt, ops::AddAssign, time::Duration};

use chrono::{DateTime, Utc};
use futures_util::future::join_all;
use metrics::counter;
use model::{
    actor::Actor,
    decide::{Change, Decision, timers},
    messages,
    order::{HoldCause, Snapshot},
};
use serde::Serialize;

use super::{
    pages::{RepairScope, TimerPage, TimerPages},
    shards::{self, tolerate_control},
};
use crate::capability::Maintenance;
use desk::{
    dead_letters::decide::{self, DeadJobSubject},
    tick_schedule::next_job,
};
use foundation::{
    core::Core,
    crash, db,
    error::ServiceError,
    loops::report_progress,
    queue_pauses,
    shard_map::{self, ShardGeneration, tolerate_failed},
};
use orders::{capability::Orders, change::ChangeError, changed::Changed, seen::Basis};
use queue::{JobId, NewJob, Shards, Store, StoreError, store::RepairVerdict};

/// Maximum age of an unmatched callback in a normal repair. A callback can arrive while its booking is being written,
/// and no transaction takes this long.
const MATCHED_WITHIN: Duration = Duration::from_secs(600);

/// Results of a reconciliation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RepairReport {
    /// Whether Redis had lost its data or was restarted, so that every timer was compared.
    pub rebuild: bool,
    /// Orders and messages that were read.
    pub looked_at: u64,
    /// Timers that were missing.
    pub inserted: u64,
    /// Timers that were later than their row's time.
    pub moved: u64,
    /// Orders put under review because one of their timers is dead.
    pub held: u64,
    /// Orders far past their lifetime that were ended.
    pub compensated: u64,
}

impl RepairReport {
    fn found_something(&self) -> bool {
        self.rebuild || self.inserted + self.moved + self.held + self.compensated > 0
    }
}

impl AddAssign for RepairReport {
    fn add_assign(&mut self, other: Self) {
        self.rebuild |= other.rebuild;
        self.looked_at += other.looked_at;
        self.inserted += other.inserted;
        self.moved += other.moved;
        self.held += other.held;
        self.compensated += other.compensated;
    }
}

/// Restores the timers of rows whose deadline has passed without a step.
pub async fn repair_overdue(maintenance: &Maintenance) -> Result<RepairReport, ServiceError> {
    // A limit may have been set while Redis was unavailable.
    tolerate_control(&maintenance.core, bindings::servers::publish_limits(&maintenance.bindings).await)?;
    prepare_repair(maintenance, RepairScope::Overdue).await?;
    let mut pass = RepairPass::new(maintenance);
    let report = pass.repair_rows(RepairScope::Overdue).await?;
    tolerate_failed(&pass.shards, pass.failed)?;
    Ok(report)
}

/// Inserts the timers of all rows into their shards of this generation. A job that remains in its old shard also runs
/// there. This is harmless, because it finds that its row has changed. If the process dies halfway, another process
/// starts again.
pub async fn derive_shards(
    maintenance: &Maintenance,
    generation: &ShardGeneration,
) -> Result<RepairReport, ServiceError> {
    crash::reach_point("shards", "derive");
    shards::move_all_dead(&maintenance.core).await?;
    let mut pass = RepairPass::new(maintenance);
    let report = pass.repair_rows(RepairScope::All).await?;
    if let Some((_, error)) = pass.failed.into_iter().next() {
        return Err(error.into());
    }
    crash::reach_point("shards", "derived");
    shard_map::mark_derived(&maintenance.core.db, generation.generation).await?;
    let (generation, shards) = (generation.generation, generation.shards.get());
    tracing::info!(generation, shards, inserted = report.inserted, "All timers are in their shards.");
    Ok(report)
}

/// Whether missing timers are only reported or inserted.
#[derive(Debug, Clone, Copy)]
enum RepairMode {
    Look,
    PutBack,
}

impl RepairMode {
    async fn ask(self, store: &Store, jobs: &[NewJob]) -> Result<Vec<RepairVerdict>, StoreError> {
        match self {
            Self::Look => store.preview_repair(jobs).await,
            Self::PutBack => store.repair(jobs).await,
        }
    }
}

/// Pass over rows that inserts the timers that their shards lack. A shard that fails is left out of the rest of the
/// pass.
struct RepairPass<'a> {
    maintenance: &'a Maintenance,
    shards: Shards,
    failed: Vec<(u16, StoreError)>,
}

impl<'a> RepairPass<'a> {
    fn new(maintenance: &'a Maintenance) -> Self {
        Self { maintenance, shards: maintenance.core.queue(), failed: Vec::new() }
    }

    async fn repair_rows(&mut self, scope: RepairScope) -> Result<RepairReport, ServiceError> {
        let (mut report, mut pages) = (RepairReport::default(), TimerPages::new(scope));
        while let Some(page) = pages.next_page(&self.maintenance.core).await? {
            report.looked_at += page.rows;
            let jobs = self.still_lacking(&pages, page).await?;
            let verdicts = self.ask_shards(&jobs, RepairMode::PutBack).await?;
            report_progress();
            for (job, verdict) in jobs.iter().zip(verdicts) {
                if let Some(verdict) = verdict {
                    record_verdict(self.maintenance, &mut report, job, verdict).await?;
                }
            }
        }
        Ok(report)
    }

    /// Returns the jobs of this page that Redis lacks and that their rows still need after the query to Redis. A worker
    /// may have made a step between the two reads. Its old timer is then missing because it has run, and must not be
    /// inserted again.
    async fn still_lacking(&mut self, pages: &TimerPages, page: TimerPage) -> Result<Vec<NewJob>, ServiceError> {
        let jobs = page.into_jobs();
        let answers = self.ask_shards(&jobs, RepairMode::Look).await?;
        let is_lacking = |answer: Option<RepairVerdict>| answer.is_some_and(|verdict| verdict != RepairVerdict::Fine);
        let lacking: HashSet<JobId> =
            jobs.into_iter().zip(answers).filter(|(_, answer)| is_lacking(*answer)).map(|(job, _)| job.id).collect();
        if lacking.is_empty() {
            return Ok(Vec::new());
        }
        let again = pages.read_again(&self.maintenance.core).await?.map(TimerPage::into_jobs).unwrap_or_default();
        Ok(again.into_iter().filter(|job| lacking.contains(&job.id)).collect())
    }

    /// Queries the shard of each job. Returns `None` for jobs whose shard does not respond. With a single shard, an
    /// error is returned.
    async fn ask_shards(
        &mut self,
        jobs: &[NewJob],
        mode: RepairMode,
    ) -> Result<Vec<Option<RepairVerdict>>, StoreError> {
        let parts = self.shards.split_jobs(jobs).into_iter();
        let parts = parts.filter(|(store, ..)| !self.failed.iter().any(|(shard, _)| *shard == store.shard()));
        let calls =
            parts.map(|(store, places, jobs)| async move { (store.shard(), places, mode.ask(store, &jobs).await) });
        let mut verdicts = vec![None; jobs.len()];
        for (shard, places, answer) in join_all(calls).await {
            match answer {
                Ok(answers) => {
                    for (place, verdict) in places.into_iter().zip(answers) {
                        verdicts[place] = Some(verdict);
                    }
                }
                Err(error) if self.shards.homes().len() == 1 => return Err(error),
                Err(error) => self.failed.push((shard, error)),
            }
        }
        Ok(verdicts)
    }
}

/// Returns the jobs that a repair would insert, without inserting them.
pub async fn list_missing(core: &Core) -> Result<Vec<NewJob>, ServiceError> {
    let mut missing = Vec::new();
    let mut pages = TimerPages::new(RepairScope::All);
    while let Some(page) = pages.next_page(core).await? {
        let jobs = page.into_jobs();
        let answers = core.queue().preview_repair(&jobs).await?;
        missing
            .extend(jobs.into_iter().zip(answers).filter(|(_, a)| *a == RepairVerdict::Inserted).map(|(job, _)| job));
    }
    Ok(missing)
}

/// Returns the stored report of the first full reconciliation that ended after `since`.
pub(super) async fn find_full_report(core: &Core, since: DateTime<Utc>) -> Result<Option<RepairReport>, sqlx::Error> {
    let row: Option<(bool, i64, i64, i64, i64, i64)> = sqlx::query_as(
        "-- report of full reconciliation
         SELECT rebuild, looked_at, inserted, moved, held, compensated FROM reconcile_log
         WHERE at >= $1 AND rebuild ORDER BY at LIMIT 1",
    )
    .bind(since)
    .fetch_optional(&core.db)
    .await?;
    Ok(row.map(|(rebuild, looked_at, inserted, moved, held, compensated)| {
        let [looked_at, inserted, moved, held, compensated] =
            [looked_at, inserted, moved, held, compensated].map(i64::cast_unsigned);
        RepairReport { rebuild, looked_at, inserted, moved, held, compensated }
    }))
}

/// Stores the report if anything was found.
pub async fn record_report(core: &Core, report: &RepairReport) -> Result<(), sqlx::Error> {
    if !report.found_something() {
        return Ok(());
    }
    counter!("dispatchq_reconciler_repairs_total").increment(report.inserted + report.moved);
    sqlx::query(
        "-- record reconciliation
         INSERT INTO reconcile_log (at, rebuild, looked_at, inserted, moved, held, compensated)
         VALUES (dispatchq_now(), $1, $2, $3, $4, $5, $6) ON CONFLICT (at) DO NOTHING",
    )
    .bind(report.rebuild)
    .bind(report.looked_at.cast_signed())
    .bind(report.inserted.cast_signed())
    .bind(report.moved.cast_signed())
    .bind(report.held.cast_signed())
    .bind(report.compensated.cast_signed())
    .execute(&core.db)
    .await?;
    Ok(())
}

/// Prepares a repair: paused queues stay paused, the next runs of schedules are enqueued, and callbacks are matched
/// with their orders.
pub(super) async fn prepare_repair(maintenance: &Maintenance, scope: RepairScope) -> Result<(), ServiceError> {
    queue_pauses::mirror_pauses(&maintenance.core).await?;
    tolerate_control(&maintenance.core, enqueue_schedules(maintenance).await)?;
    Ok(match_late_callbacks(&maintenance.core, scope).await?)
}

/// Counts the verdict of a job. If the job is dead, its order is put under review.
pub(super) async fn record_verdict(
    maintenance: &Maintenance,
    report: &mut RepairReport,
    job: &NewJob,
    verdict: RepairVerdict,
) -> Result<(), ServiceError> {
    match verdict {
        RepairVerdict::Inserted => report.inserted += 1,
        RepairVerdict::Moved => report.moved += 1,
        RepairVerdict::Fine => {}
        RepairVerdict::Dead => {
            report.held += u64::from(log_and_continue(hold_order(maintenance, job).await, &job.id)?);
            report_progress();
        }
    }
    Ok(())
}

/// Logs an error of a single row, so that the other rows are still processed. If the database is unavailable, the error
/// is returned.
pub(super) fn log_and_continue<T: Default>(
    done: Result<T, ServiceError>,
    about: &impl fmt::Display,
) -> Result<T, ServiceError> {
    match done {
        Err(error) if !error.database_error().is_some_and(db::ends_the_pass) => {
            tracing::error!(%about, %error, "The reconciler could not repair this row; the others continue.");
            Ok(T::default())
        }
        done => done,
    }
}

/// Matches callbacks with bookings that exist now. A callback without our reference can be stored while the response to
/// its booking is being written. In this case, neither transaction sees the other.
async fn match_late_callbacks(core: &Core, scope: RepairScope) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- match late callbacks
         UPDATE inbox i SET state = 'pending', order_id = b.order_id
         FROM bookings b
         WHERE i.state = 'unmatched' AND b.partner = i.partner AND b.booking_id = i.booking_id
           AND ($1::float8 IS NULL OR i.received_at > (SELECT dispatchq_now()) - $1 * interval '1 second')",
    )
    .bind((scope == RepairScope::Overdue).then_some(MATCHED_WITHIN.as_secs_f64()))
    .execute(&core.db)
    .await?;
    Ok(())
}

/// Enqueues the next run of each schedule. This is also how a schedule starts, so it does not count as a repair.
async fn enqueue_schedules(maintenance: &Maintenance) -> Result<(), ServiceError> {
    let now = db::database_now(&maintenance.core.db).await?;
    let next: Vec<NewJob> = maintenance
        .config
        .schedules
        .iter()
        .map(|(task, schedule)| next_job(schedule, *task, now))
        .collect::<Result<_, _>>()
        .map_err(|error| ServiceError::Unusable(error.to_string()))?;
    maintenance.core.queue().enqueue(&next).await?;
    Ok(())
}

/// Puts the order of a dead timer under review, so that it does not wait for a job that will not run.
async fn hold_order(maintenance: &Maintenance, job: &NewJob) -> Result<bool, ServiceError> {
    if job.queue == jobs::queues::NOTIFY {
        give_up(&maintenance.core, &job.id).await?;
        return Ok(false);
    }
    let Some(id) = timers::order_of(&job.id) else { return Ok(false) };
    let why = HoldCause::dead_timer_reason(&job.id);
    let held = maintenance
        .orders
        .change(&id, Basis::Fresh, |s: &Snapshot| {
            if s.order.held_for_review || !timers::derive_timers(s).iter().any(|t| *t.id() == job.id) {
                return Decision::Unchanged;
            }
            let mut change = Change::new(s, Actor::RECONCILER);
            change.hold_for_review(s, HoldCause::DeadTimer(job.id.clone()), why.clone());
            change.notify(messages::timer_dead(&change.order, &why, s.now));
            change.into()
        })
        .await;
    let Some(follow_ups) = changed_jobs(&maintenance.orders, held).await? else { return Ok(false) };
    maintenance.core.queue().enqueue(&follow_ups).await?;
    Ok(true)
}

/// Records in the row of a message or alert that its job is dead, so that people see it and can requeue the job.
async fn give_up(core: &Core, job: &JobId) -> Result<(), sqlx::Error> {
    let (row, id) = match decide::subject_of(job) {
        DeadJobSubject::Message { outbox_id } => (
            sqlx::query(
                "-- give up message
                 UPDATE outbox SET state = 'dead', last_error = 'its job died' WHERE id = $1 AND state = 'pending'",
            ),
            outbox_id,
        ),
        DeadJobSubject::Alert { alert_id, .. } => (
            sqlx::query(
                "-- give up escalation
                 UPDATE alerts SET gave_up_at = dispatchq_now() WHERE id = $1 AND gave_up_at IS NULL",
            ),
            alert_id,
        ),
        DeadJobSubject::Timer(_) | DeadJobSubject::Other => return Ok(()),
    };
    tracing::error!(job.id = %job, "A message cannot be delivered: its job is dead. See: dispatchq dead show {job}");
    row.bind(id).execute(&core.db).await?;
    Ok(())
}

/// Runs the effects of a change except its timers. Returns the jobs that the order must have, or `None` if nothing was
/// changed.
pub(super) async fn changed_jobs(
    orders: &Orders,
    result: Result<Changed, ChangeError>,
) -> Result<Option<Vec<NewJob>>, ServiceError> {
    match result {
        Ok(changed) if changed.is_written() => Ok(Some(timers::derive_jobs(&changed.publish(orders).await))),
        Ok(_) | Err(ChangeError::NotFound | ChangeError::Busy) => Ok(None),
        Err(e) => Err(e.into()),
    }
}
