//! Removes rows after their retention time. The statements are small, so that changes do not wait for them, and can be
//! repeated at any point.
//!
//! Times are bound as parameters instead of evaluating `dispatchq_now()` per row. Each batch takes the oldest rows by
//! index, so its cost does not grow with the table. If a sweep fails, the others still run, and the job fails at the
//! end with the names of the failed sweeps. Cleanup also finishes interrupted erasures.
//!
//! Orders and steps that the proof of the history has not reached are kept longer, for at most `proof.max_wait`. Other
//! rows, personal data and erasures never wait for it.

use std::{fmt, str::FromStr, time::Duration};

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::{
    capability::Maintenance,
    periodic::{
        binding_sweeps,
        sweeps::{self, TableSweep},
    },
    proof::{place, violations},
};
use desk::privacy;
use foundation::{core::Core, db, error::ServiceError, work_slice::WorkSlice};
use queue::store::DeadFilter;
use settings::{RetentionConfig, ScheduledTask};

/// Rows of one statement; few, so that it takes milliseconds.
const BATCH: i64 = 250;
/// Orders or transactions of one statement. Each has about ten rows in other tables.
const FAMILY_BATCH: i64 = 100;
/// Dead jobs of one script call.
const DEAD_BATCH: usize = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CleanupMode {
    Remove,
    /// Only counts the rows.
    DryRun,
}

/// Number of rows that were removed, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CleanupReport {
    /// Closed orders with their offers, messages and alerts. Orders with an owed refund or an open alert are kept.
    pub orders: u64,
    /// Kept orders from which contact, notes, addresses and metadata were removed.
    pub details: u64,
    /// Finished offer messages of orders that are kept, messages about orders that do not exist, messages about
    /// bindings, and acknowledged alerts about bindings.
    pub messages: u64,
    pub rankings: u64,
    pub idempotency_keys: u64,
    /// Steps of orders, runs of schedules, snapshots of queues, areas and totals, admission counts, shadow refusals,
    /// the supply log, reconciler log entries, callbacks without an order, decided dead letters, plans with their items,
    /// expired desk claims, and drains of ended workers.
    pub records: u64,
    pub dead_jobs: u64,
    /// Final transactions of bindings, with their calls. The newest transaction of a binding is kept, and so are those
    /// after one that is not final.
    pub transactions: u64,
    /// Deleted bindings without transactions.
    pub bindings: u64,
    /// Copies of dead jobs in Postgres. Not shown, because `dead_jobs` counts the jobs in Redis.
    #[serde(skip)]
    expired: u64,
    /// Failed sweeps with their errors. Rows that they removed before the failure are counted.
    pub failed: Vec<String>,
}

/// Removes rows that are older than `[retention]`. If a sweep fails, the function runs the others and then fails. It
/// fails immediately if a server is unavailable.
pub async fn run(maintenance: &Maintenance, mode: CleanupMode) -> Result<CleanupReport, ServiceError> {
    let report = run_all(maintenance, mode).await?;
    if !report.failed.is_empty() {
        return Err(ServiceError::Incomplete(format!("cleanup failed in part: {}", report.failed.join("; "))));
    }
    Ok(report)
}

/// Same as [`run`], but returns failed sweeps in the report.
pub async fn run_all(maintenance: &Maintenance, mode: CleanupMode) -> Result<CleanupReport, ServiceError> {
    Ok(run_slice(maintenance, mode, CleanupPlace::default(), WorkSlice::WHOLE).await?.0)
}

/// Position at which a cleanup continues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CleanupPlace {
    /// Index in the list of steps.
    step: usize,
    /// Last row read, if the step is a walk.
    row: Option<Cursor>,
}

impl fmt::Display for CleanupPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.step)?;
        match &self.row {
            Some((at, id)) => write!(f, ":{}:{id}", at.timestamp_micros()),
            None => Ok(()),
        }
    }
}

/// Error of a text that is not a position of a cleanup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be the next_cursor of an answer")]
pub struct InvalidCleanupPlace;

impl FromStr for CleanupPlace {
    type Err = InvalidCleanupPlace;

    fn from_str(text: &str) -> Result<Self, InvalidCleanupPlace> {
        let (step, row) = text.split_once(':').map_or((text, None), |(step, row)| (step, Some(row)));
        let read_row = |row: &str| {
            let (micros, id) = row.split_once(':')?;
            Some((DateTime::from_timestamp_micros(micros.parse().ok()?)?, id.to_owned()))
        };
        let row = row.map(|row| read_row(row).ok_or(InvalidCleanupPlace)).transpose()?;
        Ok(Self { step: step.parse().map_err(|_| InvalidCleanupPlace)?, row })
    }
}

/// One step of a cleanup.
enum CleanupStep {
    /// Removes the oldest rows of a table after this retention time.
    Sweep(&'static TableSweep, Duration),
    /// Scans a table, and removes the rows that may be removed.
    Walk(&'static TableSweep, Duration),
    DeadJobs(&'static str),
    /// Continues interrupted erasures.
    Erasures,
}

/// Field of the report to which a step adds.
type Counter = fn(&mut CleanupReport) -> &mut u64;

/// Returns the steps of a cleanup in order. Their number depends only on the mode, so that a position stays valid.
fn list_steps(keep: &RetentionConfig, history: HistoryAges, mode: CleanupMode) -> Vec<(CleanupStep, Counter)> {
    use CleanupStep::{DeadJobs, Erasures, Sweep, Walk};
    let records: Counter = |report| &mut report.records;
    let mut steps: Vec<(CleanupStep, Counter)> =
        vec![(Walk(&sweeps::ORDERS, history.orders), |report| &mut report.orders)];
    steps.push((Sweep(&sweeps::DETAILS, keep.contact), |report| &mut report.details));
    for table in [
        &sweeps::OFFERS,
        &sweeps::MESSAGES,
        &binding_sweeps::BINDING_MESSAGES,
        &binding_sweeps::BINDING_ALERTS,
        &sweeps::ALERTS,
    ] {
        steps.push((Sweep(table, keep.messages), |report| &mut report.messages));
    }
    steps.push((Sweep(&sweeps::REPLAYS, RetentionConfig::REPLAYS), |report| &mut report.messages));
    steps.push((Sweep(&sweeps::RANKINGS, keep.messages), |report| &mut report.rankings));
    let keys = Sweep(&sweeps::IDEMPOTENCY_KEYS, RetentionConfig::IDEMPOTENCY_KEYS);
    steps.push((keys, |report| &mut report.idempotency_keys));
    // Kept as long as the history of orders, because these records show the authors of decisions.
    for (table, keep) in [
        (&sweeps::AREA_CHANGES, keep.events),
        (&sweeps::FEED, history.steps),
        (&sweeps::STAFF_ACTIONS, keep.events),
        (&sweeps::STAFF_REQUESTS, keep.events),
        (&binding_sweeps::BINDING_EVENTS, keep.events),
    ] {
        steps.push((Sweep(table, keep), records));
    }
    steps.push((Walk(&binding_sweeps::TRANSACTIONS, keep.transactions), |report| &mut report.transactions));
    steps.push((Sweep(&binding_sweeps::DELETED_BINDINGS, keep.transactions), |report| &mut report.bindings));
    for table in [&sweeps::SUPPLY_COUNTS, &sweeps::SUPPLY_MINUTES] {
        steps.push((Sweep(table, keep.supply), records));
    }
    steps.push((Sweep(&sweeps::ERASURES, keep.erasures), records));
    // The record in `staff_actions` remains.
    steps.push((Sweep(&sweeps::DESK_TAKES, Duration::ZERO), records));
    for table in [
        &sweeps::SESSIONS,
        &sweeps::PEOPLES_KEYS,
        &sweeps::DRIVER_LINKS,
        &sweeps::DRIVER_SESSIONS,
        &sweeps::RUNS,
        &sweeps::WORKER_DRAINS,
        &sweeps::SNAPSHOTS,
        &sweeps::AREA_SNAPSHOTS,
        &sweeps::GLANCE_SNAPSHOTS,
        &sweeps::ADMISSION_COUNTS,
        &sweeps::SHADOW_REFUSALS,
        &sweeps::RECONCILE_LOG,
        &sweeps::CALLBACKS,
        &sweeps::DEAD_LETTERS,
        &sweeps::PLAN_ITEMS,
        &sweeps::PLANS,
        &sweeps::VIOLATIONS,
    ] {
        steps.push((Sweep(table, keep.records), records));
    }
    if mode == CleanupMode::Remove {
        // Runs before the removal in Redis. Otherwise a flush in between would restore these dead letters.
        steps.push((Sweep(&sweeps::EXPIRED_DEAD_LETTERS, keep.dead_jobs), |report| &mut report.expired));
    }
    steps.extend(jobs::queues::ALL.map(|queue| (DeadJobs(queue), (|report| &mut report.dead_jobs) as Counter)));
    if mode == CleanupMode::Remove {
        // Runs last, because an erasure may take longer than this run has left. The next run continues it.
        steps.push((Erasures, records));
    }
    steps
}

/// Runs the part of a cleanup that fits into a slice, starting at `from`. Returns the report of this slice, and the position
/// at which the next slice continues. The position is `None` if nothing is left.
pub async fn run_slice(
    maintenance: &Maintenance,
    mode: CleanupMode,
    from: CleanupPlace,
    slice: WorkSlice,
) -> Result<(CleanupReport, Option<CleanupPlace>), ServiceError> {
    let now = db::database_now(&maintenance.core.db).await?;
    let history = HistoryAges::load(maintenance, now).await?;
    let mut sweeper = TableSweeper { core: &maintenance.core, now, mode, slice, failed: Vec::new() };
    let mut report = CleanupReport::default();
    let keep = &maintenance.config.retention;
    let mut next = None;
    let mut row = from.row;
    for (step, (work, counter)) in list_steps(keep, history, mode).into_iter().enumerate().skip(from.step) {
        if step > from.step && slice.is_over() {
            next = Some(CleanupPlace { step, row: None });
            break;
        }
        let done = match work {
            CleanupStep::Sweep(table, keep) => sweeper.sweep_table(table, keep).await?,
            CleanupStep::Walk(table, keep) => {
                // The row belongs to the step at which the slice starts.
                let first = row.take().filter(|_| step == from.step);
                sweeper.walk_table(table, keep, first).await?
            }
            CleanupStep::DeadJobs(queue) => sweeper.remove_dead_jobs(queue, keep.dead_jobs).await?,
            CleanupStep::Erasures => sweeper.resume_erasures().await?,
        };
        *counter(&mut report) += done.removed;
        if done.is_left {
            next = Some(CleanupPlace { step, row: done.row });
            break;
        }
    }
    report.failed = sweeper.failed;
    if history.is_past_wait && report.orders > 0 && mode == CleanupMode::Remove {
        violations::record_removal(&maintenance.core.db).await?;
    }
    Ok((report, next))
}

/// Ages at which orders and their steps are removed.
#[derive(Debug, Clone, Copy)]
struct HistoryAges {
    orders: Duration,
    steps: Duration,
    /// Whether orders are removed that are not proven, because cleanup has waited for `proof.max_wait`.
    is_past_wait: bool,
}

impl HistoryAges {
    /// Reads how far the history is proven. Without the periodic proof, nothing waits.
    async fn load(maintenance: &Maintenance, now: DateTime<Utc>) -> Result<Self, sqlx::Error> {
        let (keep, max_wait) = (&maintenance.config.retention, maintenance.config.proof.max_wait);
        if !maintenance.config.schedules.contains_key(&ScheduledTask::Proof) {
            return Ok(Self { orders: keep.orders, steps: keep.events, is_past_wait: false });
        }
        let proven_at = place::load_place(&maintenance.core.db).await?.proven_at;
        let unproven = (now - proven_at).to_std().unwrap_or_default();
        let wait = |keep: Duration| unproven.clamp(keep, keep + max_wait);
        let is_past_wait = unproven > keep.orders + max_wait;
        Ok(Self { orders: wait(keep.orders), steps: wait(keep.events), is_past_wait })
    }
}

/// Sweeps one table after the other.
struct TableSweeper<'a> {
    core: &'a Core,
    now: DateTime<Utc>,
    mode: CleanupMode,
    slice: WorkSlice,
    failed: Vec<String>,
}

/// Position of a scan: time and id of the last row.
type Cursor = (DateTime<Utc>, String);

/// Result of a step.
#[derive(Debug, Default)]
struct StepResult {
    removed: u64,
    /// Whether the slice was over before the end.
    is_left: bool,
    /// Last row read by an unfinished walk.
    row: Option<Cursor>,
}

impl TableSweeper<'_> {
    async fn sweep_table(&mut self, table: &TableSweep, keep: Duration) -> Result<StepResult, sqlx::Error> {
        let before = self.now - keep;
        let (db, mut step) = (&self.core.db, StepResult::default());
        let done = async {
            if self.mode == CleanupMode::DryRun {
                let count: i64 = sqlx::query_scalar(table.count).bind(before).fetch_one(db).await?;
                step.removed = count.unsigned_abs();
                return Ok(());
            }
            loop {
                let batch = sqlx::query(table.remove).bind(before).bind(BATCH).execute(db).await?.rows_affected();
                step.removed += batch;
                step.is_left = batch >= BATCH.unsigned_abs();
                if !step.is_left || self.slice.is_over() {
                    return Ok(());
                }
            }
        }
        .await;
        self.record_failure(table.what, done, &mut step)?;
        Ok(step)
    }

    /// Scans a table from its oldest rows on, or from a position. Each statement reads a batch and removes the rows that may be removed.
    /// Rows that must stay are therefore read once, not once for each batch after them.
    async fn walk_table(
        &mut self,
        table: &TableSweep,
        keep: Duration,
        from: Option<Cursor>,
    ) -> Result<StepResult, sqlx::Error> {
        let before = self.now - keep;
        let statement = if self.mode == CleanupMode::DryRun { table.count } else { table.remove };
        let (db, mut step) = (&self.core.db, StepResult::default());
        let done = async {
            let (mut at, mut id): Cursor = from.unwrap_or((DateTime::UNIX_EPOCH, String::new()));
            loop {
                let seen: Option<(i64, DateTime<Utc>, String)> = sqlx::query_as(statement)
                    .bind(before)
                    .bind(FAMILY_BATCH)
                    .bind(at)
                    .bind(&id)
                    .fetch_optional(db)
                    .await?;
                let Some((batch, last_at, last_id)) = seen else { return Ok(()) };
                step.removed += batch.unsigned_abs();
                (at, id) = (last_at, last_id);
                if self.slice.is_over() {
                    (step.is_left, step.row) = (true, Some((at, id)));
                    return Ok(());
                }
            }
        }
        .await;
        self.record_failure(table.what, done, &mut step)?;
        Ok(step)
    }

    async fn remove_dead_jobs(&self, queue: &str, keep: Duration) -> Result<StepResult, ServiceError> {
        let mut step = StepResult::default();
        if self.mode == CleanupMode::DryRun {
            let filter = DeadFilter { older_than: keep, ..DeadFilter::default() };
            let mut cursor = None;
            loop {
                let page = self.core.queue().list_dead(queue, &filter, cursor.as_ref()).await?;
                step.removed += page.entries.len() as u64;
                cursor = page.next;
                if cursor.is_none() {
                    return Ok(step);
                }
            }
        }
        loop {
            let discarded = self.core.queue().discard_dead_older_than(queue, keep, DEAD_BATCH).await?;
            step.removed += discarded as u64;
            step.is_left = discarded >= DEAD_BATCH;
            if !step.is_left || self.slice.is_over() {
                return Ok(step);
            }
        }
    }

    async fn resume_erasures(&mut self) -> Result<StepResult, sqlx::Error> {
        let resumed = privacy::resume_erasures(self.core, self.slice).await?;
        self.failed.extend(resumed.failed);
        Ok(StepResult { is_left: resumed.is_left, ..StepResult::default() })
    }

    /// Records a failed sweep, which this run does not repeat. If the database is unavailable, the run ends, because the other sweeps
    /// would fail too.
    fn record_failure(
        &mut self,
        what: &str,
        done: Result<(), sqlx::Error>,
        step: &mut StepResult,
    ) -> Result<(), sqlx::Error> {
        let Err(error) = done else { return Ok(()) };
        (step.is_left, step.row) = (false, None);
        let code =
            error.as_database_error().and_then(sqlx::error::DatabaseError::code).unwrap_or_default().into_owned();
        // A statement timeout or lock timeout does not affect the next statement.
        let is_its_own = ["57014", "55P03"].contains(&code.as_str());
        if db::is_transient(&error) && !is_its_own {
            return Err(error);
        }
        tracing::error!(sweep = what, %error, "A sweep of the cleanup failed; the other sweeps continue.");
        self.failed.push(format!("{what}: {error}"));
        Ok(())
    }
}
